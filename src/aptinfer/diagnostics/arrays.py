"""Checks at the door of every diagnostic: draws are rows of a finite matrix, weights sum to one."""

import numpy as np

from aptinfer import checks

__all__ = ["pair", "positive", "rows", "weights"]


def rows(name: str, value: object, *, minimum: int, reason: str) -> np.ndarray:
    """`value` as a finite float64 matrix of at least `minimum` rows; `reason` says why so many."""
    array = checks.finite_array(name, value)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, dim), one draw per row; got shape {array.shape}.")
    if len(array) < minimum:
        raise ValueError(f"{name} must have at least {minimum} rows {reason}; got {len(array)}.")
    return array


def pair(samples: object, reference: object, *, minimum: int, reason: str) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of draws with equally many columns."""
    first = rows("samples", samples, minimum=minimum, reason=reason)
    second = rows("reference", reference, minimum=minimum, reason=reason)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"samples and reference must have equally many columns, one per parameter; got shapes "
            f"{first.shape} and {second.shape}."
        )
    return first, second


def weights(value: object, n: int) -> np.ndarray:
    """`value` as `n` weights that sum to one; None gives every row the same."""
    if value is None:
        return np.full(n, 1 / n)
    array = checks.finite_array("weights", value)
    if array.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one per row of samples; got shape {array.shape}.")
    if array.min() < 0:
        raise ValueError(f"weights must be at least 0; got {array.min()} at index {array.argmin()}.")
    largest = array.max()
    if largest == 0:
        raise ValueError("weights must not all be 0.")
    array = array / largest  # so that the sum neither overflows nor vanishes
    return array / array.sum()


def positive(name: str, value: object, n: int) -> np.ndarray:
    """`value` as `n` finite numbers above zero; a single number stands for all of them."""
    array = checks.finite_array(name, value)
    if array.size not in (1, n):
        raise ValueError(f"{name} must be a number or {n} of them; got shape {array.shape}.")
    if array.size and array.min() <= 0:
        raise ValueError(f"{name} must be above 0; got {array.min()}.")
    return np.broadcast_to(array.ravel(), n)
