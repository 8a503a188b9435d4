"""Runs that are independent of each other, one after another."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of the calls, in their order."""
    return [call() for call in calls]
