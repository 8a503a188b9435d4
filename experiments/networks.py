"""How many weights the paper's networks have: counted, not trained."""

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


def weights(tree: object) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def wide_enough(dim: int) -> apt.MAF:
    """The paper's flow, its layers as wide as what they transform: in narrower ones some entries could not
    depend on all before them."""
    return apt.MAF(hidden=(max(50, dim),) * 2)


def _built(family: str, dim: int, conditions: int):
    estimator = apt.MDN(8) if family == "mixture" else wide_enough(dim)
    embedding = settings.tanh() if family == "mixture" else apt.Flatten()
    return eqx.filter_eval_shape(lambda: build_members(Key((0,)), estimator, embedding, dim, (conditions,)))


def posterior_weights(family: str, d: int) -> int:
    """Of q(theta | x) with dim(x) = d."""
    return _weights_of_shapes(_built(family, DIM, d))


def likelihood_weights(family: str, d: int) -> int:
    """Of q(x | theta)."""
    return _weights_of_shapes(_built(family, d, DIM))


def _weights_of_shapes(tree: object) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape"))


def is_linear(counts: list[int]) -> bool:
    """Whether counts at equal distances lie on a line, to a thousandth."""
    return abs(counts[0] - 2 * counts[1] + counts[2]) < 1e-3 * counts[2]


def shown(counts: dict[str, list[int]]) -> str:
    parts = [f"{name} {', '.join(f'{count:,}' for count in some)}" for name, some in counts.items()]
    return f"{'; '.join(parts)} at dim(x) = {', '.join(map(str, SIZES))}"


def rock_paper_scissors_weights() -> tuple[int, int, int]:
    """Of the convolutions, of the dense layers and of the Gaussian's parameters."""
    published = apt.problems.get("rock_paper_scissors").network
    built = build_members(Key((0,)), published["estimator"], published["embedding"], 3, (3, 100, 100))
    network = built.embedding
    return weights(network.convolutions), weights(network.dense), weights(built.head)
