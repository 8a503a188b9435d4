"""Ensembles: several independently started estimators, trained in one `vmap`, mixed with equal weights."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array

from aptinfer.checks import no_class, positive_int, suggests_keywords
from aptinfer.estimators.density import DensityEstimator
from aptinfer.estimators.embeddings import Embedded, build_embedding
from aptinfer.keys import Key, as_jax


@suggests_keywords
@dataclass(frozen=True)
class Ensemble:
    """`members` copies of an estimator and its embedding, each with its own start and order of rows.

    Args:
        estimator: settings of the members, such as `apt.NSF()`.
        members: how many.
    """

    estimator: Any
    members: int = 5

    def __post_init__(self):
        positive_int("Ensemble members", self.members)
        no_class("Ensemble estimator", self.estimator)
        if isinstance(self.estimator, Ensemble):
            raise TypeError("Ensemble estimator must be a single estimator, not another Ensemble.")


def split_ensemble(spec: object) -> tuple[Any, int]:
    """The members' settings and their number; a single estimator is an ensemble of one."""
    return (spec.estimator, spec.members) if isinstance(spec, Ensemble) else (spec, 1)


def build_members(
    key: Key,
    estimator: object,
    embedding: object,
    dim: int,
    event: tuple[int, ...],
    *,
    missing: bool = False,
) -> Embedded:
    """Embedding and density, the trained arrays of all members stacked along a first axis.

    `missing` says that entries of the condition may be NaN.
    """
    single, members = split_ensemble(estimator)
    settings = (single, members, embedding, dim, event, missing)
    try:
        build = (_remembered if _by_value(single) and _by_value(embedding) else _builder)(*settings)
    except TypeError:  # a network of the user's, which has arrays and no hash
        build = _builder(*settings)
    return build(key.words())


def _by_value(settings: object) -> bool:
    """Whether equal hashes mean equal content: a user's object that is its own hash may change meanwhile."""
    return type(settings).__hash__ is not object.__hash__


def _builder(
    estimator: Any, members: int, embedding: Any, dim: int, event: tuple[int, ...], missing: bool
) -> Callable[[np.ndarray], Embedded]:
    def one(key):
        for_embedding, for_head = jax.random.split(key)
        network, features = build_embedding(embedding, for_embedding, event, missing=missing)
        return Embedded(network, estimator.build(for_head, dim, features))

    # Arrays that are not trained, such as a user's integer tables, are shared by all members.
    stacked = eqx.filter_vmap(one, out_axes=lambda leaf: 0 if eqx.is_inexact_array(leaf) else None)
    return eqx.filter_jit(lambda words: stacked(jax.random.split(as_jax(words), members)))


# Runs with equal settings, such as those side by side, build their networks by one program.
_remembered = functools.lru_cache(maxsize=64)(_builder)


def as_members(estimator: DensityEstimator):
    """(arrays with a member axis, the rest): what a `vmap` over members takes. The first are learned."""
    return eqx.partition(estimator, eqx.is_inexact_array)


def each_member(estimator: DensityEstimator, function: Callable[[Any], Any]) -> Any:
    """What `function` says of every member, along a first axis; in compiled programs."""
    weights, rest = as_members(estimator)
    return jax.vmap(lambda weights: function(eqx.combine(weights, rest)))(weights)


def mean_of_densities(log_q: Array) -> Array:
    """log of the average over the first axis of densities whose logarithms are given."""
    return logsumexp(log_q, axis=0) - np.float32(np.log(log_q.shape[0]))


def count_members(estimator: DensityEstimator) -> int:
    return jax.tree.leaves(as_members(estimator)[0])[0].shape[0]


def member(estimator: DensityEstimator, number: int) -> Any:
    """One member on its own."""
    weights, rest = as_members(estimator)
    return eqx.combine(jax.tree.map(lambda a: a[number], weights), rest)
