"""Priors from their descriptions: the way back from `to_dict`, for all that have no function of the user."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aptinfer.priors.gaussian import GaussianPrior
from aptinfer.priors.joint import JointPrior
from aptinfer.priors.marginal_maps import (
    External,
    LocationScale,
    LogNormal,
    LogUniform,
    Marginal,
    Normal,
    Uniform,
)
from aptinfer.priors.marginals import SCIPY, as_marginal
from aptinfer.priors.named import Prior
from aptinfer.priors.truncated_normal import TruncatedNormal

LAWS = dict(SCIPY.values())
FAMILIES: dict[str, Callable[..., Marginal]] = {
    cls.family: cls for cls in (Normal, LogNormal, Uniform, LogUniform, TruncatedNormal)
}


def prior_from_dict(description: Mapping[str, Any]) -> JointPrior | None:
    """The prior that `to_dict` described; None where that took a function of the user, which is not kept.

    Raises:
        ValueError, TypeError, KeyError: the description is of no prior.
    """
    kind = description["kind"]
    if kind == "gaussian":
        return GaussianPrior(description["mean"], description["covariance"], description["names"])
    if kind in ("bijection", "custom"):
        return None
    if kind != "marginals":
        raise ValueError(f"a prior of unknown kind was described: {str(kind)[:40]!r}.")
    parts = description["marginals"]
    marginals = {name: _marginal(parts[name]) for name in description["names"]}
    return None if None in marginals.values() else Prior(**marginals)


def _marginal(description: Mapping[str, Any]) -> Marginal | None:
    numbers = dict(description)
    family = numbers.pop("family", None)
    if family is None:  # given earlier parameters, by a function
        return None
    # An infinite bound is written as None.
    numbers = {n: {"low": -np.inf, "high": np.inf}[n] if v is None else float(v) for n, v in numbers.items()}
    if family in FAMILIES:
        return FAMILIES[family](**numbers)
    if family in LAWS:
        loc, scale = numbers.pop("loc"), numbers.pop("scale")
        return LocationScale(family, LAWS[family], numbers, loc, scale)
    return _from_scipy(family, numbers)


def _from_scipy(family: str, numbers: dict[str, float]) -> Marginal | None:
    """One of scipy's continuous distributions, by its name; None where the name is not one of scipy's own."""
    from scipy import stats

    known = getattr(stats, family, None) if isinstance(family, str) and family.isidentifier() else None
    if not isinstance(known, stats.rv_continuous) or not numbers:
        return None
    marginal = as_marginal(known(**numbers), family)
    return marginal if isinstance(marginal, External) else None
