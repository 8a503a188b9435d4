r"""Where a posterior was found: the parameters that are worth learning from in the next round.

    d(v)^2 = (v - m)' C^{-1} (v - m) / dim,      near:  d(v) <= r

with mean m and covariance C of the posterior's draws, for which d is about one. A likelihood has to be right
where the posterior may be, and nowhere else. Rows from far away bend simple models: the number of animals may
be all but linear in the parameters over the posterior, and anything but over the prior.

Nothing is known of a likelihood where it has not learned. There it is made to fall off as a Gaussian would,

    log L(v) - dim/2 max(0, d(v)^2 - r^2),

which a posterior can still climb if the one before was wrong, a little in every round.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Nearby(eqx.Module):
    """Parameters at most `radius` times as far from the mean of draws as these are themselves."""

    mean: Float[Array, " dim"]
    whiten: Float[Array, "dim dim"]
    radius: Float[Array, ""]

    @classmethod
    def everywhere(cls, dim: int) -> "Nearby":
        return cls(jnp.zeros(dim), jnp.eye(dim), jnp.float32(jnp.inf))

    @classmethod
    def of(cls, draws: np.ndarray, rows: np.ndarray, radius: float) -> "Nearby":
        """At this radius, or a larger one that holds half of the rows."""
        draws = np.asarray(draws, np.float64)
        spread = np.linalg.eigh(np.atleast_2d(np.cov(draws, rowvar=False)))
        # Draws may lie in a plane, or be all but one point: a direction of no width is given a little.
        width = np.sqrt(np.maximum(spread.eigenvalues, 1e-6 * spread.eigenvalues.max() + 1e-12))
        whiten = spread.eigenvectors / width
        found = cls(
            jnp.asarray(draws.mean(axis=0), jnp.float32),
            jnp.asarray(whiten, jnp.float32),
            jnp.float32(radius),
        )
        half = np.median(found.distance(jnp.asarray(rows, jnp.float32)))
        return eqx.tree_at(lambda f: f.radius, found, jnp.float32(max(radius, half)))

    def distance(self, value: Float[Array, "*rows dim"]) -> Float[Array, "*rows"]:
        """From the mean, in typical distances of the draws."""
        return jnp.sqrt(jnp.mean(((value - self.mean) @ self.whiten) ** 2, axis=-1))

    def contains(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.distance(jnp.asarray(values, jnp.float32)) <= self.radius)

    def log_weight(self, value: Float[Array, " dim"]) -> Float[Array, ""]:
        """What the logarithm of a likelihood loses there: nothing inside."""
        outside = jnp.maximum(self.distance(value) ** 2 - self.radius**2, 0)
        return -0.5 * value.shape[-1] * outside
