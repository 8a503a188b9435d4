"""Autoregressive flows: N(0, I) through a stack of MADEs, each transforming every dimension by a
one-dimensional bijection whose parameters come from the dimensions before it and from x.

    log q(value | x) = log N(u; 0, I) + sum over layers and dimensions of log |du_j / dvalue_j|

Evaluating takes one pass per layer; drawing takes one pass per layer and dimension.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_float, positive_int, suggests_keywords, whole_numbers
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.made import MADE, Conditioned, refuse_narrow
from aptinfer.estimators.mog import LOG_2PI


class Transform(eqx.Module):
    """A family of increasing one-dimensional bijections with kinds x size parameters each."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[int, int]: ...

    @abstractmethod
    def forward(self, p: Float[Array, "kinds dim size"], value: Float[Array, " dim"]) -> tuple[Array, Array]:
        """value -> u and log du/dvalue."""

    @abstractmethod
    def inverse(self, p: Float[Array, "kinds dim size"], u: Float[Array, " dim"]) -> Array: ...

    def rows(
        self, p: Float[Array, "kinds dim size batch"], values: Float[Array, "dim batch"]
    ) -> tuple[Array, Array]:
        """`forward` with rows along the last axis."""
        return jax.vmap(self.forward, in_axes=-1, out_axes=-1)(p, values)


class Affine(Transform):
    """u = (value - shift) exp(log_scale), as in the paper's MAF."""

    parameters = (2, 1)  # pyright: ignore[reportAssignmentType]

    def forward(self, p, value):
        log_scale = _bounded(p[1, :, 0])
        return (value - p[0, :, 0]) * jnp.exp(log_scale), log_scale

    def inverse(self, p, u):
        return u * jnp.exp(-_bounded(p[1, :, 0])) + p[0, :, 0]

    def rows(self, p, values):
        return self.forward(p, values)  # as it stands: `vmap` would transpose, and back


def _bounded(log_scale):
    return 10 * jnp.tanh(log_scale / 10)  # a single layer cannot overflow float32


class Spline(Transform):
    """Monotone rational-quadratic spline on [-bound, bound], the identity beyond (Durkan et al. 2019).

    Identity tails matter in latent space: there the prior is N(0, I), and where the data say nothing
    more (the edge of a box lies at infinity) the posterior's tail must stay the prior's.
    """

    bins: int = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    @property
    def parameters(self) -> tuple[int, int]:
        return 1, 3 * self.bins - 1

    def _knots(self, p):
        k = self.bins
        widths = _simplex(p[:, :k])
        heights = _simplex(p[:, k : 2 * k])
        # softplus(0.5413) = 1: zero parameters give slope one everywhere, the identity.
        inner = 1e-3 + (1 - 1e-3) * jax.nn.softplus(p[:, 2 * k :] + np.float32(0.5413248))
        slopes = jnp.pad(inner, ((0, 0), (1, 1)), constant_values=1.0)
        return widths, heights, slopes

    def _bin(self, p, target, by_height):
        """Left edges, width, height and the two slopes of the bin that holds each target."""
        widths, heights, slopes = self._knots(p[0])
        x_edges, y_edges = self._edges(widths), self._edges(heights)
        edges = y_edges if by_height else x_edges
        # One-hot selection: gathers along a short axis are far slower than masked sums on CPUs.
        inside = (target[:, None] >= edges[:, :-1]) & (target[:, None] < edges[:, 1:])
        pick = lambda a: jnp.sum(jnp.where(inside, a, 0), axis=-1)  # noqa: E731
        scale = np.float32(2 * self.bound)
        return (
            pick(x_edges[:, :-1]),
            pick(y_edges[:, :-1]),
            pick(widths) * scale,
            pick(heights) * scale,
            pick(slopes[:, :-1]),
            pick(slopes[:, 1:]),
        )

    def _edges(self, shares):
        # A product with ones below the diagonal: XLA's cumulative sum is slow on CPUs.
        ones = np.triu(np.ones((self.bins, self.bins - 1), np.float32))
        inner = (shares @ ones) * np.float32(2 * self.bound) - np.float32(self.bound)
        return jnp.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (-self.bound, self.bound)))

    def forward(self, p, value):
        outside = jnp.abs(value) >= self.bound
        safe = jnp.where(outside, 0.0, value)
        x0, y0, w, h, d0, d1 = self._bin(p, safe, by_height=False)
        slope = h / w
        t = (safe - x0) / w
        t1 = t * (1 - t)
        denominator = slope + (d0 + d1 - 2 * slope) * t1
        u = y0 + h * (slope * t * t + d0 * t1) / denominator
        log_slope = jnp.log(slope**2 * (d1 * t * t + 2 * slope * t1 + d0 * (1 - t) ** 2)) - 2 * jnp.log(
            denominator
        )
        return jnp.where(outside, value, u), jnp.where(outside, 0.0, log_slope)

    def inverse(self, p, u):
        outside = jnp.abs(u) >= self.bound
        safe = jnp.where(outside, 0.0, u)
        x0, y0, w, h, d0, d1 = self._bin(p, safe, by_height=True)
        slope = h / w
        rise = safe - y0
        bend = rise * (d0 + d1 - 2 * slope)
        a = h * (slope - d0) + bend
        b = h * d0 - bend
        c = -slope * rise
        root = -b - jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0.0))
        t = 2 * c / jnp.where(root == 0, -1.0, root)
        return jnp.where(outside, u, x0 + jnp.clip(t, 0.0, 1.0) * w)


def _simplex(logits):
    k = logits.shape[-1]
    return 1e-3 + (1 - 1e-3 * k) * jax.nn.softmax(logits, axis=-1)


class FlowDensity(Density):
    """The flow at one condition."""

    layers: tuple[Conditioned, ...]
    transform: Transform

    def evaluate(self, value):
        """value -> u and log |du / dvalue|."""
        log_slope = jnp.zeros((), value.dtype)
        for layer in self.layers:
            first, slope_of_first = self.transform.forward(layer.first, value[:1])
            rest, slopes = self.transform.forward(layer.rest(value), value[1:])
            log_slope = log_slope + slope_of_first[0] + jnp.sum(slopes)
            value = jnp.concatenate([first, rest])[::-1]
        return value, log_slope

    def log_prob(self, value):
        return _log_standard_normal(*self.evaluate(value))

    def sample(self, key):
        value = jax.random.normal(key, (self.layers[0].made.dim,), jnp.float32)
        for layer in reversed(self.layers):
            value = self._invert(layer, value[::-1])
        return value

    def _invert(self, layer, u):
        def next_dimension(i, value):
            return value.at[i].set(self.transform.inverse(layer(value), u)[i])

        return jax.lax.fori_loop(0, u.shape[0], next_dimension, jnp.zeros_like(u))


class Flow(DensityEstimator):
    """A stack of MADEs over one family of one-dimensional transforms; after each the order is reversed."""

    mades: tuple[MADE, ...]
    transform: Transform

    def __call__(self, condition: Float[Array, " features"]) -> FlowDensity:
        return FlowDensity(tuple(made(condition) for made in self.mades), self.transform)

    def log_prob_rows(self, conditions, values):
        conditions, values = conditions.T, values.T
        log_slopes = jnp.zeros_like(values[0])
        for made in self.mades:
            values, slopes = self.transform.rows(made.rows(conditions, values), values)
            values, log_slopes = values[::-1], log_slopes + jnp.sum(slopes, axis=0)
        return _log_standard_normal(values, log_slopes)


def _log_standard_normal(u, log_slope):
    return log_slope - 0.5 * jnp.sum(u**2, axis=0) - np.float32(0.5 * LOG_2PI * u.shape[0])


def _build_flow(key, dim, features, layers, hidden, activation, transform) -> Flow:
    if layers == 1:
        refuse_narrow(hidden, dim)

    def made(key):
        return MADE(dim, features, hidden, *transform.parameters, activation=activation, key=key)

    return Flow(tuple(made(k) for k in jax.random.split(key, layers)), transform)


def checked_hidden(name: str, hidden: object) -> tuple[int, ...]:
    sizes = whole_numbers(f"{name} hidden", hidden)
    if not sizes or len(set(sizes)) > 1:
        raise ValueError(
            f"{name} hidden must name at least one layer, all of one width, such as (50, 50); got {hidden!r}."
        )
    return sizes


@suggests_keywords
@dataclass(frozen=True)
class MAF:
    """Masked autoregressive flow with affine layers; the defaults are the paper's.

    Args:
        layers: number of MADEs.
        hidden: units of each MADE's hidden layers.
        activation: an elementwise function of JAX arrays.
    """

    layers: int = 5
    hidden: tuple[int, ...] = (50, 50)
    activation: Callable = jnp.tanh

    def __post_init__(self):
        positive_int("MAF layers", self.layers)
        object.__setattr__(self, "hidden", checked_hidden("MAF", self.hidden))

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> Flow:
        return _build_flow(key, dim, features, self.layers, self.hidden, self.activation, Affine())


@suggests_keywords
@dataclass(frozen=True)
class NSF:
    """Autoregressive flow of rational-quadratic splines: sharper and multimodal conditionals.

    Args:
        layers: number of MADEs.
        hidden: units of each MADE's hidden layers.
        bins: pieces of each spline.
        bound: splines act on [-bound, bound] and are the identity beyond.
        activation: an elementwise function of JAX arrays.
    """

    layers: int = 3
    hidden: tuple[int, ...] = (50, 50)
    bins: int = 8
    bound: float = 5.0
    activation: Callable = jax.nn.gelu

    def __post_init__(self):
        positive_int("NSF layers", self.layers)
        positive_int("NSF bins", self.bins, minimum=2)
        positive_float("NSF bound", self.bound)
        object.__setattr__(self, "hidden", checked_hidden("NSF", self.hidden))

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> Flow:
        spline = Spline(self.bins, float(self.bound))
        return _build_flow(key, dim, features, self.layers, self.hidden, self.activation, spline)
