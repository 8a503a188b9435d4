"""Standard one-dimensional laws (location 0, scale 1), each with both of its tails.

`ppf` and `isf` are the quantiles from below and from above, `ppf(u) = F^-1(u)` and
`isf(u) = F^-1(1 - u)`, and are only ever asked for u <= 1/2; `cdf` and `sf` are F and 1 - F.
Every one is written so that a small probability keeps its relative precision.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special as sp


class Law(NamedTuple):
    """The functions of one law; arguments are the value and then the shape parameters."""

    ppf: Callable[..., Any]
    isf: Callable[..., Any]
    cdf: Callable[..., Any]
    sf: Callable[..., Any]
    log_density: Callable[..., Any]
    low: Any = 0.0
    high: Any = np.inf


def _symmetric(
    tail_quantile: Callable[..., Any], tail: Callable[..., Any], log_density: Callable[..., Any]
) -> Law:
    """A law symmetric about 0 from its upper tail, `tail(t) = P(T > t)` for t >= 0."""

    def cdf(t, *shapes):
        small = tail(np.abs(t), *shapes)
        return np.where(t <= 0, small, 1 - small)

    return Law(
        ppf=lambda u, *shapes: -tail_quantile(u, *shapes),
        isf=tail_quantile,
        cdf=cdf,
        sf=lambda t, *shapes: cdf(-t, *shapes),
        log_density=log_density,
        low=-np.inf,
    )


def _student_tail_quantile(u, df):
    # P(T > t) = I_x(df/2, 1/2) / 2 with x = df / (df + t^2). The complement 1 - x is solved for
    # directly near the median, where 1 / x - 1 would cancel.
    x = sp.betaincinv(df / 2, 0.5, 2 * u)
    rest = sp.betaincinv(0.5, df / 2, 1 - 2 * u)
    return np.sqrt(df * np.where(u < 0.25, (1 - x) / x, rest / (1 - rest)))


def _student_tail(t, df):
    square = t * t
    far = 0.5 * sp.betainc(df / 2, 0.5, df / (df + square))
    near = 0.5 - 0.5 * sp.betainc(0.5, df / 2, square / (df + square))
    return np.where(square < df, near, far)


def _student_log_density(t, df):
    constant = sp.gammaln((df + 1) / 2) - sp.gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    return constant - (df + 1) / 2 * np.log1p(t * t / df)


HALF_NORMAL = Law(
    # 2 Phi(t) - 1 = erf(t / sqrt 2): erf and its inverse keep their precision near zero.
    ppf=lambda u: np.sqrt(2) * sp.erfinv(u),
    isf=lambda u: -sp.ndtri(u / 2),
    cdf=lambda t: sp.erf(t / np.sqrt(2)),
    sf=lambda t: sp.erfc(t / np.sqrt(2)),
    log_density=lambda t: 0.5 * np.log(2 / np.pi) - 0.5 * t * t,
)

EXPONENTIAL = Law(
    ppf=lambda u: -np.log1p(-u),
    isf=lambda u: -np.log(u),
    cdf=lambda t: -np.expm1(-t),
    sf=lambda t: np.exp(-t),
    log_density=lambda t: -t,
)

LAPLACE = _symmetric(
    tail_quantile=lambda u: -np.log(2 * u),
    tail=lambda t: 0.5 * np.exp(-t),
    log_density=lambda t: -np.abs(t) - np.log(2),
)

GAMMA = Law(
    ppf=lambda u, shape: sp.gammaincinv(shape, u),
    isf=lambda u, shape: sp.gammainccinv(shape, u),
    cdf=lambda t, shape: sp.gammainc(shape, t),
    sf=lambda t, shape: sp.gammaincc(shape, t),
    log_density=lambda t, shape: sp.xlogy(shape - 1, t) - t - sp.gammaln(shape),
)

INVERSE_GAMMA = Law(
    # T = 1 / G with G ~ Gamma: the tails change places.
    ppf=lambda u, shape: 1 / sp.gammainccinv(shape, u),
    isf=lambda u, shape: 1 / sp.gammaincinv(shape, u),
    cdf=lambda t, shape: sp.gammaincc(shape, 1 / t),
    sf=lambda t, shape: sp.gammainc(shape, 1 / t),
    log_density=lambda t, shape: -(shape + 1) * np.log(t) - 1 / t - sp.gammaln(shape),
)

BETA = Law(
    ppf=lambda u, a, b: sp.betaincinv(a, b, u),
    isf=lambda u, a, b: sp.betainccinv(a, b, u),
    cdf=lambda t, a, b: sp.betainc(a, b, t),
    sf=lambda t, a, b: sp.betaincc(a, b, t),
    log_density=lambda t, a, b: sp.xlogy(a - 1, t) + sp.xlog1py(b - 1, -t) - sp.betaln(a, b),
    high=1.0,
)

STUDENT_T = _symmetric(_student_tail_quantile, _student_tail, _student_log_density)

CAUCHY = _symmetric(
    tail_quantile=lambda u: 1 / np.tan(np.pi * u),
    tail=lambda t: np.arctan2(1, t) / np.pi,
    log_density=lambda t: -np.log(np.pi) - np.log1p(t * t),
)

HALF_CAUCHY = Law(
    ppf=lambda u: np.tan(np.pi * u / 2),
    isf=lambda u: 1 / np.tan(np.pi * u / 2),
    cdf=lambda t: 2 / np.pi * np.arctan(t),
    sf=lambda t: 2 / np.pi * np.arctan2(1, t),
    log_density=lambda t: np.log(2 / np.pi) - np.log1p(t * t),
)

LOGISTIC = _symmetric(
    tail_quantile=lambda u: -sp.logit(u),
    tail=lambda t: sp.expit(-t),
    log_density=lambda t: -np.abs(t) - 2 * np.log1p(np.exp(-np.abs(t))),
)

GUMBEL = Law(
    ppf=lambda u: -np.log(-np.log(u)),
    isf=lambda u: -np.log(-np.log1p(-u)),
    cdf=lambda t: np.exp(-np.exp(-t)),
    sf=lambda t: -np.expm1(-np.exp(-t)),
    log_density=lambda t: -t - np.exp(-t),
    low=-np.inf,
)

WEIBULL = Law(
    ppf=lambda u, shape: (-np.log1p(-u)) ** (1 / shape),
    isf=lambda u, shape: (-np.log(u)) ** (1 / shape),
    cdf=lambda t, shape: -np.expm1(-(t**shape)),
    sf=lambda t, shape: np.exp(-(t**shape)),
    log_density=lambda t, shape: np.log(shape) + sp.xlogy(shape - 1, t) - t**shape,
)

PARETO = Law(
    ppf=lambda u, shape: np.exp(-np.log1p(-u) / shape),
    isf=lambda u, shape: u ** (-1 / shape),
    cdf=lambda t, shape: -np.expm1(-shape * np.log1p(t - 1)),
    sf=lambda t, shape: t**-shape,
    log_density=lambda t, shape: np.log(shape) - (shape + 1) * np.log(t),
    low=1.0,
)
