"""Priors of named marginals, independent or each given earlier ones, and every way to say a prior."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aptinfer.checks import finite_array, nearest
from aptinfer.priors.custom import CustomPrior
from aptinfer.priors.gaussian import GaussianPrior
from aptinfer.priors.joint import JointPrior, checked_names, function_note
from aptinfer.priors.marginal_maps import Marginal, Normal, Uniform
from aptinfer.priors.marginals import as_marginal, is_distribution, named

TRIAL_ROWS = 64


class Conditional:
    """A parameter whose distribution is a function of earlier parameters, row by row."""

    def __init__(self, name: str, function: Callable[..., Any], earlier: Sequence[str]):
        self.name, self.function = name, function
        self.arguments = _conditioning_names(name, function, earlier)

    def given(self, values: Mapping[str, np.ndarray], rows: int) -> Marginal:
        """The marginal of each row, with array parameters."""
        arguments = {argument: values[argument] for argument in self.arguments}
        try:
            distribution = self.function(**arguments)
        except Exception as error:
            raise ValueError(
                f"prior parameter {self.name!r}: its function failed on arrays of {rows} values "
                f"({type(error).__name__}: {error}). It is called once for all rows: write it with "
                "array operations such as numpy.where."
            ) from error
        return as_marginal(distribution, self.name, rows)

    def __repr__(self) -> str:
        return f"<given {', '.join(self.arguments)}>"


class Prior(JointPrior):
    """Named marginals in order, independent or each given earlier ones.

    Args:
        **marginals: name -> a numpyro or frozen scipy continuous distribution, or a function of
            *earlier* parameters, named by its arguments, that returns one. The function receives
            float64 arrays with one value per row. Distributions built from NumPy arrays keep
            float64; after `jax.numpy` arithmetic they hold float32, which changes the density by as
            much but not the inversion, since both directions see the same rounded parameters.

    Example:
        >>> import scipy.stats as st
        >>> prior = Prior(a=st.uniform(0, 10), b=lambda a: st.uniform(a, 10))
        >>> prior.names
        ('a', 'b')
    """

    def __init__(self, /, **marginals: Any):
        if not marginals:
            raise ValueError("Prior() needs at least one parameter, such as Prior(a=Normal(0, 1)).")
        self.names = checked_names(tuple(marginals), len(marginals))
        self._parts: list[Marginal | Conditional] = []
        for j, (name, value) in enumerate(marginals.items()):
            if _is_function(value):
                self._parts.append(Conditional(name, value, self.names[:j]))
            else:
                self._parts.append(as_marginal(value, name))
        if not self._independent:
            self._try_conditionals()

    @property
    def _independent(self) -> bool:
        return all(isinstance(part, Marginal) for part in self._parts)

    @property
    def gaussian_moments(self) -> tuple[np.ndarray, np.ndarray] | None:
        normals = [part for part in self._parts if isinstance(part, Normal)]
        if len(normals) < self.dim:
            return None
        mean = np.array([float(n.loc) for n in normals])
        return mean, np.diag([float(n.scale) ** 2 for n in normals])

    @property
    def uniform(self) -> tuple[bool, ...]:
        return tuple(isinstance(part, Uniform) for part in self._parts)

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        ends = [
            (float(part.low), float(part.high)) if isinstance(part, Marginal) else (-np.inf, np.inf)
            for part in self._parts
        ]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def to_dict(self) -> dict[str, Any]:
        """Family and parameters of each marginal; a function by its name."""
        parts = {
            name: part.to_dict()
            if isinstance(part, Marginal)
            else {"given": list(part.arguments), **function_note(part.function)}
            for name, part in zip(self.names, self._parts, strict=True)
        }
        return {"kind": "marginals", "names": list(self.names), "marginals": parts}

    def __repr__(self) -> str:
        inside = (f"{n}={p!r}" for n, p in zip(self.names, self._parts, strict=True))
        return f"Prior({', '.join(inside)})"

    def _forward(self, z, dtype):
        theta = np.full(z.shape, np.nan)
        finite = np.isfinite(z).all(axis=1)  # a function of the user never sees NaN
        for j in range(self.dim):
            theta[finite, j] = self._part(j, theta[finite]).forward(z[finite, j], dtype)
        return theta

    def _inverse(self, theta):
        return self._scan(theta)[0]

    def _log_prob(self, theta):
        return self._scan(theta)[1]

    def _contains(self, theta):
        return np.isfinite(self._scan(theta)[0]).all(axis=1)

    def _sample(self, rng, n):
        return self._forward(rng.standard_normal((n, self.dim)), np.float64)

    def _scan(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z and log p, parameter by parameter; a row is left as soon as it is outside.

        So the user's functions are only ever called with values inside the prior's support.
        """
        z, log_prob = np.full(theta.shape, np.nan), np.zeros(len(theta))
        inside = np.arange(len(theta))
        for j in range(self.dim):
            rows = theta[inside]
            marginal = self._part(j, rows)
            z[inside, j] = marginal.inverse(rows[:, j])
            log_prob[inside] += marginal.log_prob(rows[:, j])
            inside = inside[marginal.contains(rows[:, j])]
        outside = np.ones(len(theta), bool)
        outside[inside] = False
        z[outside], log_prob[outside] = np.nan, -np.inf
        return z, log_prob

    def _part(self, j: int, rows: np.ndarray) -> Marginal:
        part = self._parts[j]
        if isinstance(part, Marginal):
            return part
        if len(rows) == 0:
            return Normal(np.zeros(0), np.ones(0))  # no row to condition on: any marginal will do
        return part.given(dict(zip(self.names, rows.T[:j], strict=False)), len(rows))

    def _try_conditionals(self) -> None:
        """Call every function once, and check that it treats each row by itself."""
        z = np.random.default_rng(0).standard_normal((TRIAL_ROWS, self.dim))
        together, half = self.forward(z), TRIAL_ROWS // 2
        apart = self.forward(z[:half])
        bad = np.flatnonzero(~np.isclose(together[:half], apart, rtol=1e-6).all(axis=0))
        if len(bad):
            raise ValueError(
                f"prior parameter {self.names[bad[0]]!r}: its function gives a row another "
                "distribution when other rows are present. Compute it elementwise."
            )


def box(low: Any, high: Any, names: Sequence[str] | None = None) -> Prior:
    """The uniform prior on a box, low_j < theta_j < high_j.

    Args:
        low: lower ends, shape (dim,).
        high: upper ends, shape (dim,).
        names: the parameters' names; theta_1, theta_2, ... by default.
    """
    low, high = finite_array("low", low), finite_array("high", high)
    if low.ndim != 1 or low.shape != high.shape or len(low) == 0:
        raise ValueError(
            f"low and high must be vectors of one length, got shapes {low.shape} and {high.shape}. "
            "Give one number per parameter."
        )
    names = checked_names(names, len(low))
    ends = zip(names, low, high, strict=True)
    return Prior(**{name: named(name, Uniform, a, b) for name, a, b in ends})


def gaussian(mean: Any, covariance: Any, names: Sequence[str] | None = None) -> GaussianPrior:
    """The correlated Gaussian prior N(mean, covariance).

    Args:
        mean: shape (dim,).
        covariance: shape (dim, dim), symmetric and positive definite.
        names: the parameters' names; theta_1, theta_2, ... by default.
    """
    return GaussianPrior(mean, covariance, names)


def as_prior(value: Any) -> JointPrior:
    """Any accepted kind of prior as a `JointPrior`.

    Accepts one of ours, a dict of name -> marginal, or an object with `sample(rng, n)` and
    `log_prob(theta)`, whose names come from its `names`, else its `dim`, else from one draw.
    """
    if isinstance(value, JointPrior):
        return value
    if isinstance(value, Mapping):
        return Prior(**value)
    own = callable(getattr(value, "sample", None)) and callable(getattr(value, "log_prob", None))
    if own and not isinstance(value, type) and not is_distribution(value):
        return CustomPrior(value.sample, value.log_prob, _names_of(value))
    single = " One distribution needs a name: Prior(theta=...)." if is_distribution(value) else ""
    raise TypeError(
        "prior must be an aptinfer.Prior, box, gaussian, BijectivePrior or CustomPrior, a dict of "
        "name -> distribution, or an object with sample(rng, n) and log_prob(theta); got "
        f"{type(value).__name__}.{single}"
    )


def _names_of(value: Any) -> tuple[str, ...]:
    names, dim = getattr(value, "names", None), getattr(value, "dim", None)
    if names is not None:
        return tuple(names)
    if dim is None:
        draw = np.asarray(value.sample(np.random.default_rng(0), 2))
        dim = draw.shape[1] if draw.ndim == 2 else 1
    return checked_names(None, int(dim))


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not is_distribution(value)


def _conditioning_names(name: str, function: Callable[..., Any], earlier: Sequence[str]) -> tuple[str, ...]:
    """The function's arguments, each the name of an earlier parameter (or left to its default)."""
    found = []
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise TypeError(
                f"prior parameter {name!r}: its function's argument {p.name!r} must be an ordinary "
                "one, named like an earlier parameter."
            )
        if p.name in earlier:
            found.append(p.name)
        elif p.default is p.empty:
            known = nearest(p.name, earlier) if earlier else "No parameter comes before it."
            raise ValueError(
                f"prior parameter {name!r}: its function asks for {p.name!r}, which is not an "
                f"earlier parameter. {known}"
            )
    if not found:
        raise ValueError(
            f"prior parameter {name!r}: its function depends on no earlier parameter. "
            "Give the distribution itself."
        )
    return tuple(found)
