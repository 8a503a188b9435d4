"""What can go wrong, as types. Mistakes in a call are `ValueError` or `TypeError`, as in any library."""

from typing import Any


class AptinferError(Exception):
    """Everything that goes wrong while a run computes.

    Attributes:
        run: the rounds that had finished before, if any: nothing is lost.
    """

    run: Any = None


class SimulationError(AptinferError):
    """The simulator cannot be used: it always fails, or its output is not an array of one shape."""


class TrainingError(AptinferError):
    """Training produced no usable network."""


class SamplingError(AptinferError):
    """A sampler gave up in bounded time. The message names the reason and the remedy."""


class RunFileError(AptinferError):
    """A run file or a saved posterior cannot be used: damaged, too new, not one at all, in use, or of another
    run. The file itself is left as it is."""


class SamplingWarning(UserWarning):
    """Draws were made, but cannot be relied on, as where chains disagree. The message names the remedy."""
