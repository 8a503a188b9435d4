r"""A density given by a velocity: N(0, I) carried along a learned field (Lipman et al. 2022).

Flow matching joins noise z_0 ~ N(0, I) and value z_1 by the line z_t = (1 - t) z_0 + t z_1, and learns its
mean velocity v(t, z) = E[z_1 - z_0 | z_t = z, x]; following v from t = 0 to 1 takes the noise to q(. | x).

Were the value N(0, I) too, as the prior is in latent space, z_t would have the spread s = |(1 - t, t)|. In
its units, with the angle phi between (1, 0) and (1 - t, t), the line becomes a turn:

    u = z_t / s = z_0 cos(phi) + z_1 sin(phi),       du/dphi = z_1 cos(phi) - z_0 sin(phi).

The network predicts du/dphi, whose mean given u is zero under the prior. So a network of zeros is the prior
itself, its targets have unit variance at all times, and v = ((2 t - 1) u + du/dphi) / s. Densities are

    log q(z_1) = log N(u_0; 0, I) - integral over phi of the divergence of du/dphi    (Chen et al. 2018).
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.embeddings import Gated
from aptinfer.estimators.mog import LOG_2PI

RIGHT_ANGLE = np.float32(np.pi / 2)
NARROWEST = 0.005  # widths of a posterior, in those of the prior, that the clock below still resolves
WAVES = 4  # of the clock, that the network sees


def _clock(angle):
    """The time left, from 1 to 0: even in the logarithm of the angle left, down to `NARROWEST`.

    A posterior of width w is settled when about w is left of the angle: whatever its width, it takes the same
    share of the clock, so that a network sees it well and equal steps follow it.
    """
    return jnp.arcsinh((RIGHT_ANGLE - angle) / NARROWEST) / np.float32(np.arcsinh(RIGHT_ANGLE / NARROWEST))


def _angles(steps: int) -> np.ndarray:
    """Angles at equal steps of the clock."""
    left = NARROWEST * np.sinh(np.linspace(1, 0, steps + 1) * np.arcsinh(RIGHT_ANGLE / NARROWEST))
    return (RIGHT_ANGLE - left).astype(np.float32)


class VelocityHead(DensityEstimator):
    """features -> the field at one condition."""

    context: eqx.nn.Linear
    first: eqx.nn.Linear
    blocks: tuple[Gated, ...]
    last: eqx.nn.Linear
    steps: int = eqx.field(static=True)

    def __call__(self, condition: Float[Array, " features"]) -> "Carried":
        return Carried(self, self.context(condition))


class Carried(Density):
    """N(0, I) carried along the field at one condition."""

    head: VelocityHead
    context: Float[Array, " hidden"]

    def turning(self, angle: Float[Array, ""], u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """du/dphi."""
        clock = _clock(angle)
        phases = clock * np.arange(1, WAVES + 1, dtype=np.float32) * np.float32(np.pi)
        h = self.context + self.head.first(
            jnp.concatenate([u, clock[None], jnp.sin(phases), jnp.cos(phases)])
        )
        for block in self.head.blocks:
            h = block(h)
        return self.head.last(h)

    def velocity(self, t: Float[Array, ""], z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """v(t, z)."""
        s = jnp.hypot(1 - t, t)
        u = z / s
        return ((2 * t - 1) * u + self.turning(jnp.arctan2(t, 1 - t), u)) / s

    def log_prob(self, value):
        def field(angle, state):
            turn = lambda u: self.turning(angle, u)  # noqa: E731
            return turn(state[0]), jnp.trace(jax.jacfwd(turn)(state[0]))

        start = (value, jnp.zeros((), value.dtype))
        noise, log_shrunk = _solved(field, start, _angles(self.head.steps)[::-1])
        return log_shrunk - 0.5 * jnp.sum(noise**2) - np.float32(0.5 * LOG_2PI * value.shape[0])

    def sample(self, key):
        noise = jax.random.normal(key, (self.head.last.out_features,), jnp.float32)  # pyright: ignore
        return _solved(self.turning, noise, _angles(self.head.steps))


def _solved(field, state, angles: np.ndarray):
    """The state at the last of the angles, by the classical Runge-Kutta method of fourth order."""

    def step(state, angle_and_width):
        angle, h = angle_and_width
        ahead = lambda slope, share: jax.tree.map(lambda a, b: a + share * h * b, state, slope)  # noqa: E731
        k1 = field(angle, state)
        k2 = field(angle + h / 2, ahead(k1, 0.5))
        k3 = field(angle + h / 2, ahead(k2, 0.5))
        k4 = field(angle + h, ahead(k3, 1.0))
        slope = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return ahead(slope, 1.0), None

    return jax.lax.scan(step, state, (angles[:-1], np.diff(angles)))[0]


@suggests_keywords
@dataclass(frozen=True)
class VelocityNetwork:
    """Settings of the field that `FMPE` learns: gated residual blocks over value, time and features of x.

    Args:
        hidden: width of the blocks.
        blocks: number of blocks.
        steps: of the solver, four evaluations of the network each, for draws and densities. With 24, a
            Gaussian from 0.003 to 1.8 times as wide as the prior is right to about 0.001 of its width.
    """

    hidden: int = 64
    blocks: int = 3
    steps: int = 24

    def __post_init__(self):
        positive_int("VelocityNetwork hidden", self.hidden)
        positive_int("VelocityNetwork blocks", self.blocks)
        positive_int("VelocityNetwork steps", self.steps)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> VelocityHead:
        def dense(inputs, outputs, key):
            return eqx.nn.Linear(inputs, outputs, dtype=jnp.float32, key=key)

        width = self.hidden
        for_context, for_first, for_last, *rest = jax.random.split(key, 3 + self.blocks)
        blocks = [Gated.build(k, width) for k in rest]
        last = jax.tree.map(jnp.zeros_like, dense(width, dim, for_last))  # the prior, to start with
        return VelocityHead(
            dense(features, width, for_context),
            dense(dim + 1 + 2 * WAVES, width, for_first),
            tuple(blocks),
            last,
            self.steps,
        )
