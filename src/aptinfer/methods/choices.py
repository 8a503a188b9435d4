"""What the user has chosen for a method: defaults for the rest, and what is refused before anything is
simulated."""

from dataclasses import replace
from typing import Any

import equinox as eqx

from aptinfer.checks import no_class
from aptinfer.estimators.autoregressive import AutoregressiveMixture
from aptinfer.estimators.by_shape import ByShape
from aptinfer.estimators.embeddings import EmbeddingSpec, build_embedding
from aptinfer.estimators.ensemble import split_ensemble
from aptinfer.estimators.ratio import RatioNetwork
from aptinfer.estimators.stack import Stack, families_of
from aptinfer.estimators.velocity import VelocityNetwork
from aptinfer.keys import Key, as_jax
from aptinfer.spaces import Space
from aptinfer.train import Trainer


def default_estimator() -> Any:
    """What a method uses when the user names no estimator."""
    return AutoregressiveMixture()


def with_defaults(method: Any) -> Any:
    """The method with an estimator and an embedding, where the user has named none."""
    estimator = default_estimator() if method.estimator is None else method.estimator
    embedding = ByShape() if method.embedding is None else method.embedding
    return replace(method, estimator=estimator, embedding=embedding)


def check_choices(method: Any, *, ratio: bool = False, velocity: bool = False, stack: bool = False) -> None:
    """Refuse what is not an estimator, an embedding, a space or a trainer, when the method is built.

    `ratio` and `velocity` say that the method learns one of these instead of a density, `stack` that it can
    learn several.
    """
    name = type(method).__name__
    no_class(f"{name} estimator", method.estimator)
    if isinstance(method.estimator, Stack) and not stack:
        raise TypeError(
            f"{name} estimator must be a single density: a Stack belongs to apt.APT(), apt.NPE() or "
            f"apt.SNL()."
        )
    for single in _singles(method.estimator):
        if not hasattr(single, "build"):
            raise TypeError(
                f"{name} estimator must be settings such as apt.MDN(), apt.MAF(), apt.NSF() or "
                f"apt.Ensemble(...); got {method.estimator!r}."
            )
        if isinstance(single, RatioNetwork) and not ratio:
            raise TypeError(
                f"{name} estimator must be a density, and {single!r} is a ratio: it belongs to apt.SNRE(). "
                f"Use settings such as apt.MDN() or apt.MAF()."
            )
        if isinstance(single, VelocityNetwork) and not velocity:
            raise ValueError(
                f"{name} trains a density, and that of VelocityNetwork takes a hundred evaluations of it: "
                f"use apt.FMPE(estimator=...), which trains it without, or another estimator such as "
                f"apt.NSF()."
            )
    for embedding in (method.embedding, *_of_families(method.estimator)):
        no_class(f"{name} embedding", embedding)
        if embedding is not None and not (isinstance(embedding, EmbeddingSpec) or callable(embedding)):
            raise TypeError(
                f"{name} embedding must be settings such as apt.MLP(), or an eqx.Module that maps x to a "
                f"vector; got {embedding!r}."
            )
    check_space(method)
    if not isinstance(method.trainer, Trainer):
        raise TypeError(f"{name} trainer must be an apt.Trainer(...); got {method.trainer!r}.")


def _singles(estimator: Any) -> list[Any]:
    """The settings of what is trained: of the families of a stack, of an ensemble's members."""
    if estimator is None or (isinstance(estimator, Stack) and estimator.families is None):
        return []
    return [split_ensemble(family.estimator)[0] for family in families_of(estimator)]


def _of_families(estimator: Any) -> list[Any]:
    """The embeddings that the families of a stack name."""
    if not isinstance(estimator, Stack) or estimator.families is None:
        return []
    return [family.embedding for family in families_of(estimator) if family.embedding is not None]


def check_members(method: Any) -> None:
    """Refuse a stack of posteriors whose families are ensembles of different sizes."""
    estimator = method.estimator
    if not isinstance(estimator, Stack) or estimator.families is None:
        return
    sizes = {split_ensemble(family.estimator)[1] for family in families_of(estimator)}
    if len(sizes) > 1:
        raise ValueError(
            f"{type(method).__name__} estimator: the families of a Stack of posteriors must all be ensembles "
            f"of one size, or all single; got {sorted(sizes)} members."
        )


def with_embedding(method: Any, shape: tuple[int, ...], *, missing: bool) -> Any:
    """The method with the embedding that x of this shape gets.

    One that the user has named is built without its numbers: a mistake shows before the first simulation.
    """
    if hasattr(method, "embedded"):
        return method.embedded(shape, missing=missing)
    named, words = _of_families(method.estimator), Key((0,)).words()
    if isinstance(method.embedding, ByShape):
        method = replace(method, embedding=method.embedding.chosen(shape))
    else:
        named.append(method.embedding)
    for embedding in named:
        eqx.filter_eval_shape(lambda e=embedding: build_embedding(e, as_jax(words), shape, missing=missing))
    return method


def check_space(method: Any) -> None:
    """Refuse what is no space, when the method is built."""
    if not isinstance(method.space, Space):
        name = type(method).__name__
        raise TypeError(f"{name} space must be apt.Latent() or apt.Theta(); got {method.space!r}.")
