"""Reading one-dimensional distributions of numpyro or scipy as marginals with exact maps.

Neither numpyro nor JAX is imported here: a numpyro distribution is known by its class's module, and
its parameters are read as float64 (numpyro keeps NumPy arrays and Python numbers as they came;
parameters computed with JAX arrive with JAX's precision, the same in both directions).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from aptinfer.checks import nearest
from aptinfer.priors import standard_laws as laws
from aptinfer.priors.marginal_maps import (
    External,
    LocationScale,
    LogNormal,
    LogUniform,
    Marginal,
    Normal,
    Uniform,
)
from aptinfer.priors.standard_laws import Law
from aptinfer.priors.truncated_normal import TruncatedNormal

__all__ = [
    "LogNormal",
    "LogUniform",
    "Marginal",
    "Normal",
    "TruncatedNormal",
    "Uniform",
    "as_marginal",
    "is_distribution",
    "named",
]

DISCRETE = (
    "is discrete. A posterior here is a density over the parameters, and a discrete parameter has "
    "none: marginalise it inside the simulator, or run one inference per value."
)
MULTIVARIATE = (
    "is multivariate, and this is the place of one parameter. Use aptinfer.gaussian(mean, "
    "covariance) for a correlated Gaussian, a function of earlier parameters for a conditional "
    "prior, or BijectivePrior."
)
ACCEPTED = "a numpyro.distributions or a frozen scipy.stats continuous distribution"


def as_marginal(distribution: Any, name: str, rows: int | None = None) -> Marginal:
    """The marginal of one parameter, with its exact map to N(0, 1).

    Args:
        distribution: a numpyro or frozen scipy distribution, or one of our own marginals.
        name: the parameter's name, for messages.
        rows: when given, parameters may be arrays with one value for each of so many rows.

    Raises:
        TypeError: if it is not a continuous distribution of one variable.
        ValueError: if its parameters are outside their domain; the message names the parameter.
    """
    if not is_distribution(distribution):
        raise TypeError(_named_message(name, _why_not(distribution)))
    if isinstance(distribution, Marginal):
        marginal = distribution
    elif "numpyro" in _origins(distribution):
        marginal = named(name, _from_numpyro, distribution)
    else:
        marginal = named(name, _from_scipy, distribution)
    allowed = {()} if rows is None else {(), (1,), (rows,)}
    values = (*marginal.parameters.values(), marginal.low, marginal.high)
    shape = next((v.shape for v in values if v.shape not in allowed), None)
    if shape is not None:
        what = (
            "has array parameters. Give one marginal per parameter: Prior(a=..., b=...), or box()"
            if rows is None
            else f"must have one value for each of the {rows} rows. Compute it elementwise"
        )
        text = f"{_label(distribution)} of batch shape {shape} {what}."
        raise ValueError(_named_message(name, text))
    return marginal


def is_distribution(value: Any) -> bool:
    """Whether `value` is an instance of a distribution of numpyro, scipy or ours."""
    if isinstance(value, type):
        return False
    return isinstance(value, Marginal) or bool(_origins(value) & {"numpyro", "scipy"})


def named(name: str, build: Callable[..., Marginal], *arguments: Any) -> Marginal:
    """`build(*arguments)`, with the parameter's name put before the message of any refusal."""
    try:
        return build(*arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(_named_message(name, str(error))) from None


def _named_message(name: str, text: str) -> str:
    return f"prior parameter {name!r}: {text}"


def _label(value: Any) -> str:
    return getattr(value, "family", None) or type(value).__name__


def _bases(value: Any) -> set[str]:
    return {c.__name__ for c in type(value).__mro__}


def _origins(value: Any) -> set[str]:
    """The packages that the classes of `value` come from; arrays of JAX or NumPy do not count."""
    return {c.__module__.split(".")[0] for c in type(value).__mro__}


def _why_not(value: Any) -> str:
    if isinstance(value, type):
        return f"got the class {value.__name__}. Call it with its parameters, {value.__name__}(...)."
    if isinstance(value, (int, float)):
        return (
            f"got the number {value!r}, expected {ACCEPTED}. A known constant is not inferred: set "
            "it inside the simulator."
        )
    return f"got {type(value).__name__}, expected {ACCEPTED}, or a function of earlier parameters."


def _location_scale(family: str, law: Law, *shapes: str) -> Callable[[Any], Marginal]:
    """Reader of a family by its shape attributes, and `loc` and `scale` where it has any."""

    def read(d: Any) -> Marginal:
        given = {shape: getattr(d, shape) for shape in shapes}
        return LocationScale(family, law, given, getattr(d, "loc", 0.0), getattr(d, "scale", 1.0))

    return read


def _with_rate(family: str, law: Law, *shapes: str) -> Callable[[Any], Marginal]:
    """The same for a family whose scale is given as a rate, its reciprocal."""

    def read(d: Any) -> Marginal:
        rate = np.asarray(d.rate, np.float64)
        with np.errstate(divide="ignore"):
            scale = np.asarray(1 / rate)
        if not np.all((rate > 0) & np.isfinite(scale)):
            raise ValueError(f"rate must be finite and above 0, got {np.min(rate)}.")
        return LocationScale(family, law, {s: getattr(d, s) for s in shapes}, 0.0, scale)

    return read


def _inverse_gamma(d: Any) -> Marginal:
    shapes = {"concentration": d.concentration}
    return LocationScale("inverse_gamma", laws.INVERSE_GAMMA, shapes, 0.0, d.rate)


def _truncated(d: Any) -> Marginal:
    base = d.base_dist
    if type(base).__name__ != "Normal":
        raise TypeError(
            f"got a truncated {type(base).__name__}; of numpyro's truncated distributions only the "
            "normal is read. Use a scipy.stats distribution, or BijectivePrior."
        )
    low, high = getattr(d, "low", -np.inf), getattr(d, "high", np.inf)
    return TruncatedNormal(base.loc, base.scale, low, high)


NUMPYRO: dict[str, Callable[[Any], Marginal]] = {
    "Uniform": lambda d: Uniform(d.low, d.high),
    "Normal": lambda d: Normal(d.loc, d.scale),
    "LogNormal": lambda d: LogNormal(d.loc, d.scale),
    "LogUniform": lambda d: LogUniform(d.low, d.high),
    "LeftTruncatedDistribution": _truncated,
    "RightTruncatedDistribution": _truncated,
    "TwoSidedTruncatedDistribution": _truncated,
    "HalfNormal": _location_scale("half_normal", laws.HALF_NORMAL),
    "Exponential": _with_rate("exponential", laws.EXPONENTIAL),
    "Laplace": _location_scale("laplace", laws.LAPLACE),
    "Gamma": _with_rate("gamma", laws.GAMMA, "concentration"),
    "Chi2": _with_rate("gamma", laws.GAMMA, "concentration"),
    "InverseGamma": _inverse_gamma,
    "Beta": _location_scale("beta", laws.BETA, "concentration1", "concentration0"),
    "StudentT": _location_scale("student_t", laws.STUDENT_T, "df"),
    "Cauchy": _location_scale("cauchy", laws.CAUCHY),
    "HalfCauchy": _location_scale("half_cauchy", laws.HALF_CAUCHY),
    "Logistic": _location_scale("logistic", laws.LOGISTIC),
    "Gumbel": _location_scale("gumbel", laws.GUMBEL),
    "Weibull": _location_scale("weibull", laws.WEIBULL, "concentration"),
    "Pareto": _location_scale("pareto", laws.PARETO, "alpha"),
}


def _from_numpyro(d: Any) -> Marginal:
    label = f"numpyro's {type(d).__name__}"
    if getattr(d, "event_shape", ()) != ():
        raise TypeError(f"{label} {MULTIVARIATE}")
    if getattr(getattr(d, "support", None), "is_discrete", False) or type(d).__name__ == "Delta":
        raise TypeError(f"{label} {DISCRETE}")
    if type(d).__name__ == "ExpandedDistribution":
        raise ValueError(
            f"got a distribution expanded to batch shape {d.batch_shape}. Give one marginal per "
            "parameter: Prior(a=..., b=...)."
        )
    read = NUMPYRO.get(type(d).__name__)
    if read is None:
        raise TypeError(
            f"{label} is not among the distributions with an exact map to N(0, 1). "
            f"{nearest(type(d).__name__, NUMPYRO)} Any frozen scipy.stats continuous distribution "
            "works too."
        )
    return read(d)


SCIPY: dict[str, tuple[str, Law]] = {
    "halfnorm": ("half_normal", laws.HALF_NORMAL),
    "expon": ("exponential", laws.EXPONENTIAL),
    "laplace": ("laplace", laws.LAPLACE),
    "gamma": ("gamma", laws.GAMMA),
    "invgamma": ("inverse_gamma", laws.INVERSE_GAMMA),
    "beta": ("beta", laws.BETA),
    "t": ("student_t", laws.STUDENT_T),
    "cauchy": ("cauchy", laws.CAUCHY),
    "halfcauchy": ("half_cauchy", laws.HALF_CAUCHY),
    "logistic": ("logistic", laws.LOGISTIC),
    "gumbel_r": ("gumbel", laws.GUMBEL),
    "weibull_min": ("weibull", laws.WEIBULL),
    "pareto": ("pareto", laws.PARETO),
}


def _from_scipy(d: Any) -> Marginal:
    bases = _bases(d)
    if bases & {"rv_discrete_frozen", "rv_discrete", "DiscreteDistribution"}:
        raise TypeError(f"scipy's {_scipy_name(d)} {DISCRETE}")
    if bases & {"multi_rv_frozen", "multi_rv_generic"}:
        raise TypeError(f"scipy's {type(d).__name__} {MULTIVARIATE}")
    if "rv_continuous" in bases:
        raise TypeError(
            f"scipy's {d.name} has no parameters yet. Freeze it by calling it, for example "
            f"scipy.stats.{d.name}(loc=0, scale=1) with its shape parameters before."
        )
    if hasattr(d, "iccdf"):  # scipy's newer distribution objects
        low, high = d.support()
        law = Law(d.icdf, d.iccdf, d.cdf, d.ccdf, d.logpdf, low, high)
        return External(_scipy_name(d), law)
    if "rv_continuous_frozen" not in bases:
        raise TypeError(f"got scipy's {type(d).__name__}, expected {ACCEPTED}.")
    return _from_frozen(d)


def _scipy_name(d: Any) -> str:
    return getattr(getattr(d, "dist", None), "name", None) or type(d).__name__


def _from_frozen(d: Any) -> Marginal:
    shapes, loc, scale = d.dist._parse_args(*d.args, **d.kwds)
    names = [s.strip() for s in d.dist.shapes.split(",")] if d.dist.shapes else []
    loc, scale = np.asarray(loc, np.float64), np.asarray(scale, np.float64)
    shapes = {n: np.asarray(s, np.float64) for n, s in zip(names, shapes, strict=False)}
    # A user's own rv_continuous may carry any name, and is known by its functions only.
    kind = d.dist.name if type(d.dist).__module__.startswith("scipy.") else None
    if kind in SCIPY:
        family, law = SCIPY[kind]
        return LocationScale(family, law, shapes, loc, scale)
    if kind == "chi2":
        return LocationScale("gamma", laws.GAMMA, {"concentration": shapes["df"] / 2}, loc, 2 * scale)
    if kind == "norm":
        return Normal(loc, scale)
    if kind == "uniform":
        return Uniform(loc, loc + scale)
    if kind == "truncnorm":
        return TruncatedNormal(loc, scale, *(loc + scale * shapes[end] for end in "ab"))
    if kind == "lognorm" and np.all(loc == 0) and np.all(scale > 0):
        return LogNormal(np.log(scale), shapes["s"])
    if kind in ("loguniform", "reciprocal") and np.all(loc == 0):
        return LogUniform(shapes["a"] * scale, shapes["b"] * scale)
    low, high = d.support()
    law = Law(d.ppf, d.isf, d.cdf, d.sf, d.logpdf, low, high)
    return External(_scipy_name(d), law, {**shapes, "loc": loc, "scale": scale})
