"""Many slice-sampling chains at once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers import slice_kernel
from aptinfer.samplers.draws import Draws, Starts, checked, from_chains
from aptinfer.samplers.resampled import Resampled
from aptinfer.samplers.target import Target, refuse_prior_on_host

FEWEST_RECORDS = 40  # of each chain: R-hat compares their halves


@suggests_keywords
@dataclass(frozen=True)
class Slice:
    """Vectorised chains of coordinate-wise slice sampling: no gradient, and any shape that axes can follow.

    Args:
        chains: how many run side by side.
        thin: sweeps per recorded draw.
        tune: sweeps that tune the widths, which all chains share from then on.
        warmup: recorded draws that each chain throws away.
        start: where chains start: `Resampled()`, the best of many prior draws, or `TemperedSMC()`, which
            finds modes that such draws would miss.
    """

    chains: int = 100
    thin: int = 10
    tune: int = 20
    warmup: int = 10
    start: Starts = field(default_factory=Resampled)

    def __post_init__(self):
        positive_int("Slice chains", self.chains, minimum=2)
        positive_int("Slice thin", self.thin)
        positive_int("Slice tune", self.tune)
        positive_int("Slice warmup", self.warmup, minimum=0)

    @property
    def block(self) -> int:
        """Draws that one call makes for the price of a single one."""
        return self.chains * FEWEST_RECORDS

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        n = positive_int("n", n)
        refuse_prior_on_host(target, "Slice")
        key_order, key_start, key_tune, key_warm, key_draw = (key.child(i) for i in range(5))
        z = self.start.starts(key_start, target, params, self.chains).values
        state = slice_kernel.tuned(key_tune, target, params, z, tune=self.tune, sweeps=self.thin)
        widths = np.broadcast_to(state.widths.mean(axis=0), state.widths.shape)
        state = state._replace(widths=widths)
        state, _, _ = slice_kernel.advance(
            key_warm, target, params, state, sweeps=self.thin, records=self.warmup
        )
        records = max(FEWEST_RECORDS, -(-n // self.chains))
        _, chains, turns = slice_kernel.advance(
            key_draw, target, params, state, sweeps=self.thin, records=records
        )
        remedy = f"Thin more, Slice(thin={4 * self.thin}), or let Automatic() sample."
        return checked(from_chains(key_order, chains, n, {"evaluations": turns}), remedy)
