"""Simulations in this process."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from aptinfer.blas import one_thread
from aptinfer.protocols import Outcome, Rows, Simulator
from aptinfer.simulators import in_chunks

CHUNKS_PER_CALL = 16  # so that a compiled simulator's chunks overlap, and progress still moves


@dataclass(frozen=True)
class Inline:
    """In this process, one after the other; JAX simulators vectorised and compiled."""

    def __call__(self, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        with one_thread():
            if simulator.chunk == 1:
                for outcomes in simulator.one_by_one(seed, rows):
                    yield from outcomes
                return
            chunks = in_chunks(rows, simulator.chunk)
            at_once = 1  # the first chunk alone: a mistake shows before more is spent
            while group := list(islice(chunks, at_once)):
                index, theta = (np.concatenate(column) for column in zip(*group, strict=True))
                yield from simulator(seed, Rows(index, theta))
                at_once = CHUNKS_PER_CALL
