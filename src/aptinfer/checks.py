"""Checks at the door: every message names the argument, what came, what was expected, what to do."""

import difflib
import functools
import inspect
import numbers
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

Decorated = TypeVar("Decorated", bound=Callable)
Number = TypeVar("Number", int, float)


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the known name closest to `name`, or lists them all."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Known names: {', '.join(known)}."


def suggests_keywords(target: Decorated) -> Decorated:
    """Decorator for a function or a class: an unknown keyword is refused with the nearest name."""
    call = target.__init__ if inspect.isclass(target) else target
    known = [
        p.name
        for p in inspect.signature(call).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"
    ]

    @functools.wraps(call)
    def checked(*args, **keywords):
        for name in keywords:
            if name not in known:
                raise TypeError(
                    f"{target.__name__}() got an unknown argument {name!r}. {nearest(name, known)}"
                )
        return call(*args, **keywords)

    if inspect.isclass(target):
        target.__init__ = checked  # pyright: ignore[reportAttributeAccessIssue]
        return target  # pyright: ignore[reportReturnType]
    return checked  # pyright: ignore[reportReturnType]


def positive_int(name: str, value: object, *, minimum: int = 1) -> int:
    """`value` as an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return int(value)


def whole_numbers(name: str, value: object) -> tuple[int, ...]:
    """`value` as a tuple of whole numbers above zero, such as the units of layers."""
    if not isinstance(value, tuple | list | np.ndarray):
        raise TypeError(f"{name} must be a tuple of whole numbers, such as (50, 50); got {value!r}.")
    return tuple(positive_int(name, number) for number in value)


def no_class(name: str, value: object) -> None:
    """Refuse a class where settings are wanted: its brackets were forgotten."""
    if inspect.isclass(value):
        written = f"{value.__name__}()"
        raise TypeError(f"{name} must be settings, and {value.__name__} is a class: write {written}.")


def whole_seed(value: object) -> int:
    """`value` as the seed of a run or of a sample."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {value!r}.")
    return int(value)


def true_or_false(name: str, value: object) -> bool:
    """`value`, which must be a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return value


def optional_function(name: str, value: object, example: str) -> None:
    """Refuse what is neither None nor an object to call; a class was meant to be an instance."""
    if value is None or (callable(value) and not inspect.isclass(value)):
        return
    came = f"the class {value.__name__}" if inspect.isclass(value) else repr(value)
    raise TypeError(f"{name} must be None or something to call, such as {example}; got {came}.")


def positive_float(name: str, value: object, *, zero: bool = False) -> float:
    """`value` as a finite float above zero (or at least zero, with `zero=True`)."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if ok else np.nan  # pyright: ignore[reportArgumentType]
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        bound = "at least 0" if zero else "above 0"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}.")
    return number


def one_or_one_each(name: str, value: object, check: Callable[[str, object], Number]) -> Any:
    """A number, or a tuple with one for each round, of which the last one stays; see `of_round`."""
    if not isinstance(value, tuple | list):
        return check(name, value)
    if not value:
        raise ValueError(f"{name} must be a number, or a tuple with one for each round; got an empty one.")
    return tuple(check(name, number) for number in value)


def of_round(value: Number | tuple[Number, ...], index: int) -> Number:
    """The number of round `index`, where 0 is the first that has one."""
    return value[min(index, len(value) - 1)] if isinstance(value, tuple) else value


def share(name: str, value: object) -> float:
    """`value` as a float from 0 to 1."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not ok or not 0 <= float(value) <= 1:  # pyright: ignore[reportArgumentType]
        raise ValueError(f"{name} must be a share from 0 to 1, got {value!r}.")
    return float(value)  # pyright: ignore[reportArgumentType]


def numeric_array(name: str, value: object) -> np.ndarray:
    """`value` as a float64 array, refused when it is not numeric. NaN is left to the caller."""
    try:
        if isinstance(value, np.ma.MaskedArray):  # asarray would bring back what is masked
            value = np.ma.filled(value.astype(np.float64), np.nan)
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(
            f"{name} must be a numeric array; got {kind} that NumPy cannot read as real numbers."
        ) from None


def finite_array(
    name: str, value: object, advice: str = "Remove or repair them before inference."
) -> np.ndarray:
    """`value` as a float64 array without NaN or infinity."""
    array = numeric_array(name, value)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} must be finite; {len(bad)} of {array.size} entries are NaN or infinite, the "
            f"first at index {where}. {advice}"
        )
    return array
