"""Outcomes on their way back: columns of one message, not a pickle per row.

index      n whole numbers
seconds    n floats
status     n letters, one of `Status` each
x          the data of those that have any, stacked; a list where shapes or types differ
reasons    the texts of those that have one, by their place
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aptinfer.protocols import Outcome, Status

_STATUSES = tuple(Status)
_CODES = {status: code for code, status in enumerate(_STATUSES)}
_DONE = _CODES[Status.DONE]


class Columns(NamedTuple):
    """Outcomes, column by column."""

    index: np.ndarray
    seconds: np.ndarray
    status: bytes
    x: np.ndarray | list[np.ndarray]
    reasons: dict[int, str]


def packed(outcomes: Sequence[Outcome]) -> Columns:
    """The outcomes as columns."""
    index, x, status, reasons, seconds = zip(*outcomes, strict=True)
    data = [value for value in x if value is not None]
    alike = len({(value.shape, value.dtype) for value in data}) == 1
    return Columns(
        np.array(index),
        np.array(seconds),
        bytes([_CODES[one] for one in status]),
        np.array(data) if alike else data,
        {place: reason for place, reason in enumerate(reasons) if reason},
    )


def unpacked(columns: Columns) -> list[Outcome]:
    """The outcomes again."""
    data = iter(columns.x)
    return [
        Outcome(
            index,
            next(data) if code == _DONE else None,
            _STATUSES[code],
            columns.reasons.get(place, ""),
            seconds,
        )
        for place, (index, code, seconds) in enumerate(
            zip(columns.index.tolist(), columns.status, columns.seconds.tolist(), strict=True)
        )
    ]
