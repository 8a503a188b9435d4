"""Matrix products in full precision on every device.

JAX's default keeps ten bits of a float32's 23 on recent GPUs, and seven on TPUs: that is fast, and meant for
large networks. Ours are small, and what they say is squared, subtracted and exponentiated: a posterior would
depend on the device. On CPUs nothing changes.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable)


def precise(function: Function) -> Function:
    """What a compiled program computes, without the default's short cuts, unless the user has chosen them."""

    @functools.wraps(function)
    def traced(*args, **keywords):
        import jax

        chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
        with jax.default_matmul_precision(chosen or "float32"):
            return function(*args, **keywords)

    return traced  # pyright: ignore[reportReturnType]
