"""Compiled programs of a process: each is compiled once, and all are let go before they are too many."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from aptinfer.precision import precise

MOST_MAPS = 0.5  # share of a process's memory maps that may be taken when a run begins
_PROGRAMS: dict = {}


def compiled(name: str, function: Callable, settings: tuple, *args) -> tuple[Any, float]:
    """The program of `function` for arguments of these shapes, compiled at most once, and the seconds for it.

    `settings` are what the function closes over: equal ones give the same program.
    """
    leaves, structure = jax.tree.flatten(args)
    described = tuple((a.shape, a.dtype) if hasattr(a, "dtype") else a for a in leaves)
    chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    wanted = (name, settings, structure, described, chosen)
    if wanted in _PROGRAMS:
        return _PROGRAMS[wanted], 0.0
    started = time.perf_counter()
    _PROGRAMS[wanted] = eqx.filter_jit(precise(function)).lower(*args).compile()
    return _PROGRAMS[wanted], time.perf_counter() - started


def make_room() -> bool:
    """Let go of all compiled programs if they are so many that another might crash the process.

    A program takes hundreds of the memory maps that Linux allows a process, 65530 by default, and XLA does
    not survive it when there is none left: a session with some fifty different runs would end there.
    """
    try:
        taken = Path("/proc/self/maps").read_bytes().count(b"\n")
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):  # not Linux, or hidden
        return False
    if taken < MOST_MAPS * allowed:
        return False
    forget_all()
    return True


def forget_all() -> None:
    """Let go of everything compiled, JAX's own programs too."""
    _PROGRAMS.clear()
    eqx.clear_caches()
    jax.clear_caches()
    gc.collect()
