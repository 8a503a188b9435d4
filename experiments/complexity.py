"""Computational complexity (appendix): the cost of a minibatch over M, dim(x) and the size of the network.

With M parameters and M data in a minibatch, the paper has for an atomic step

    MDN:  O(M [d h + l h² + h K n²] + M² K n²)             d = dim(x), n = dim(theta)
    MAF:  O(MADEs [M d h + M² n l h² + M² n² h])           h units, l layers, K components

and the same without the quadratic terms for maximum likelihood. Seconds are measured on the device at hand,
floating-point operations counted in the program before any optimisation, so that the formulas' terms are seen
as they are.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import aptinfer as apt
from aptinfer.estimators.ensemble import build_members, member
from aptinfer.keys import Key
from aptinfer.methods.losses import Batch, MaximumLikelihood
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import about
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "complexity"
DIM = 5
ATOMS = (10, 20, 50, 100, 200)
QUICK_ATOMS = (10, 50, 100)
SHAPES = ((10, 50), (1000, 50), (10, 100))  # dim(x) and hidden units
STEPS, REPETITIONS = 20, 5
LINE_COLOURS = {
    "MDN, atomic": "#e08214",
    "MDN, maximum likelihood": "#f2c18d",
    "MAF, atomic": "#1b6ca8",
    "MAF, maximum likelihood": "#8fbfe3",
}
METHODS = tuple(LINE_COLOURS)


def pieces(scale: Scale) -> list[Piece]:
    """On one core, and on an accelerator where there is one."""
    count = len(QUICK_ATOMS if scale.quick else ATOMS) * len(SHAPES)
    shared: dict[str, Any] = {
        "seeds": (0,),
        "rounds": count,
        "simulations": 1,
        "minutes": 3,
        "quick": scale.quick,
    }
    found = [Piece(NAME, "one core", method, single_core=True, **shared) for method in METHODS]
    if not scale.quick:
        found += [Piece(NAME, "device", method, **shared) for method in METHODS]
    return found


def networks(family: str, d: int, h: int) -> Any:
    if family == "MAF":
        estimator, embedding = apt.MAF(hidden=(h, h)), apt.Flatten()
    else:
        estimator, embedding = apt.MDN(8), settings.tanh(h, h)
    return member(build_members(Key((0,)), estimator, embedding, DIM, (d,)), 0)


def minibatch(atoms: int, d: int, atomic: bool) -> Batch:
    """Of `atoms` rows; in the atomic loss each is contrasted with all others."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((atoms, DIM)).astype(np.float32)
    others = (np.arange(atoms)[:, None] + np.arange(atoms if atomic else 1)[None, :]) % atoms
    return Batch(
        x=jnp.asarray(rng.standard_normal((atoms, d)).astype(np.float32)),
        candidates=jnp.asarray(theta[others]),
        log_prior=jnp.zeros(others.shape, jnp.float32),
        from_prior=jnp.zeros(atoms, bool),
        weight=jnp.ones(atoms, jnp.float32),
        ratio=None,
    )


class Step(NamedTuple):
    """A gradient step of one size: what it costs, and the program of many of them."""

    size: dict[str, int]
    operations: dict[str, float]  # none where the compiler does not count them, as for GPUs
    program: Any
    arguments: tuple


def step(method: str, atoms: int, d: int, h: int) -> Step:
    """Its floating-point operations are counted; its program is not compiled yet."""
    family, kind = method.split(", ")
    loss = apt.Atomic(atoms) if kind == "atomic" else MaximumLikelihood()
    weights, rest = eqx.partition(networks(family, d, h), eqx.is_inexact_array)
    batch = minibatch(atoms, d, kind == "atomic")

    def gradient(weights, batch):
        return jax.grad(lambda w: jnp.mean(loss(eqx.combine(w, rest), batch)))(weights)

    def many(weights, batch):
        """Steps in a loop, as in training."""

        def stepped(weights, _):
            slope = gradient(weights, batch)
            return jax.tree.map(lambda w, g: w - np.float32(1e-6) * g, weights, slope), None

        return jax.lax.scan(stepped, weights, None, length=STEPS)[0]

    counted: Any = jax.jit(gradient).lower(weights, batch).cost_analysis()
    lowered = jax.jit(many).lower(weights, batch)
    return Step(
        {"atoms": atoms, "dim_x": d, "units": h},
        {"operations": float(counted["flops"])} if counted else {},
        lowered,
        (weights, batch),
    )


def milliseconds(program: Callable, arguments: tuple) -> float:
    """Of one step: the best of some repetitions."""
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - began)
    return 1000 * min(seconds) / STEPS


def costs(
    method: str, sizes: Iterable[tuple[int, int, int]], timed: Callable[[int, int], bool]
) -> list[dict]:
    """Of steps with these atoms, dim(x) and units. All are compiled, at once, before any is timed."""
    steps = [step(method, *size) for size in sizes]
    chosen = [timed(one.size["dim_x"], one.size["units"]) for one in steps]
    with ThreadPoolExecutor() as pool:
        programs = list(pool.map(lambda one, timed: one.program.compile() if timed else None, steps, chosen))
    found = []
    for one, program in zip(steps, programs, strict=True):
        time_of_it = {"milliseconds": milliseconds(program, one.arguments)} if program else {}
        found.append(one.size | one.operations | time_of_it)
    return found


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    del folder, deadline
    began = time.monotonic()
    sizes = [(atoms, d, h) for (d, h), atoms in product(SHAPES, QUICK_ATOMS if piece.quick else ATOMS)]
    measured = costs(piece.method, sizes, lambda d, h: not piece.quick or (d, h) == SHAPES[0])
    seconds = time.monotonic() - began
    lines = []
    for number, metrics in enumerate(measured):
        line = {"round": number + 1, "simulations": 0, "ended": number + 1 == piece.rounds, "notes": {}}
        lines.append(
            about(piece, 0) | line | {"metrics": metrics, "seconds": seconds, "piece_seconds": seconds}
        )
    return lines


def draw(results: Results, folder: Path) -> list[str]:
    """Milliseconds on the devices at hand, and operations, over M."""
    made = pictures.figure(7.2, 2.9)
    axes = made.subplots(1, 3)
    titles = ("operations of a step", "milliseconds, one core", "milliseconds, accelerator")
    shades = dict(zip(SHAPES, ("-", "--", ":"), strict=True))
    for axis, title in zip(axes, titles, strict=True):
        problem = "device" if "accelerator" in title else "one core"
        metric = "operations" if "operations" in title else "milliseconds"
        for method in METHODS:
            some = [x["metrics"] for x in results.of(NAME, method, problem) if metric in x["metrics"]]
            for shape, style in shades.items():
                points = [(m["atoms"], m[metric]) for m in some if (m["dim_x"], m["units"]) == shape]
                if points:
                    axis.plot(
                        *zip(*points, strict=True),
                        linestyle=style,
                        color=LINE_COLOURS[method],
                        linewidth=1.3,
                        label=method if shape == SHAPES[0] else None,
                    )
        axis.set_title(title)
        if axis.lines:
            axis.set(xscale="log", yscale="log", xlabel="M")
        else:
            pictures.nothing(axis)
    for (d, h), style in shades.items():
        axes[0].plot([], [], color=pictures.GREY, linestyle=style, label=f"dim(x) = {d}, {h} units")
    handles, labels = axes[0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    pictures.save(made, folder / "complexity.png")
    return ["complexity.png"]
