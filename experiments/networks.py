"""How many weights the paper's networks have: counted, not trained."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np

import aptinfer as apt
from aptinfer.estimators.ensemble import build_members
from aptinfer.keys import Key
from experiments import settings

DIM = 5  # of theta
SIZES = (50, 100, 150)  # of x
FAMILIES = ("mixture", "flow")


def weights(shapes: object) -> int:
    """Of a network, or of its shapes alone."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "shape"))


def wide_enough(dim: int) -> apt.MAF:
    """The paper's flow, its layers as wide as what they transform: in narrower ones some entries do not
    depend on all before them."""
    return apt.MAF(hidden=(max(50, dim),) * 2)


def _built(family: str, dim: int, conditions: int):
    estimator = apt.MDN(8) if family == "mixture" else wide_enough(dim)
    embedding = settings.tanh() if family == "mixture" else apt.Flatten()
    return shapes_of(estimator, embedding, dim, (conditions,))


def shapes_of(estimator: Any, embedding: Any, dim: int, event: tuple[int, ...]) -> Any:
    """A network without its numbers."""
    return eqx.filter_eval_shape(lambda: build_members(Key((0,)), estimator, embedding, dim, event))


@cache
def posterior_weights(family: str, d: int) -> int:
    """Of q(theta | x) with dim(x) = d."""
    return weights(_built(family, DIM, d))


@cache
def likelihood_weights(family: str, d: int) -> int:
    """Of q(x | theta)."""
    return weights(_built(family, d, DIM))


def is_linear(counts: list[int]) -> bool:
    """Whether counts at equal distances lie on a line, to a thousandth."""
    return abs(counts[0] - 2 * counts[1] + counts[2]) < 1e-3 * counts[2]


def shown(counts: dict[str, list[int]]) -> str:
    parts = [f"{name} {', '.join(f'{count:,}' for count in some)}" for name, some in counts.items()]
    return f"{'; '.join(parts)} at dim(x) = {', '.join(map(str, SIZES))}"


@cache
def rock_paper_scissors_weights() -> tuple[int, int, int]:
    """Of the convolutions, of the dense layers and of the Gaussian's parameters."""
    published = apt.problems.get("rock_paper_scissors").network
    built = shapes_of(published["estimator"], published["embedding"], 3, (3, 100, 100))
    network = built.embedding
    return weights(network.convolutions), weights(network.dense), weights(built.head)
