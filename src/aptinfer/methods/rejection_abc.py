r"""Rejection ABC: the draws from the prior whose simulations came closest to x_o.

With `adjust`, what x says about the parameters is taken out by a local linear regression in the coordinates
of the space, z being the parameters there (Beaumont, Zhang & Balding, "Approximate Bayesian computation in
population genetics", Genetics 2002):

    z_i - (x_i - x_o) b,    a, b = argmin sum_i w_i |z_i - a - (x_i - x_o) b|^2,    w_i = 1 - (d_i / eps)^2.
"""

import warnings
from dataclasses import dataclass, field

import numpy as np

from aptinfer.checks import optional_function, positive_float, positive_int, suggests_keywords
from aptinfer.errors import SamplingWarning
from aptinfer.methods.choices import check_space
from aptinfer.methods.distances import (
    FEWEST,
    Candidates,
    Distance,
    candidates,
    standardised,
    try_distance,
)
from aptinfer.methods.learning import Learned, Task
from aptinfer.posteriors.particles import ParticlePosterior, equal_weights
from aptinfer.protocols import Proposal
from aptinfer.scaling import fit_scaling
from aptinfer.spaces import Frame, Latent, Space

USUAL_SHARE, USUAL_FEWEST = 0.01, 100


@suggests_keywords
@dataclass(frozen=True)
class RejectionABC:
    """Keep the closest of a single round of draws from the prior.

    Args:
        accept, quantile, eps: how many to keep, which share of the successful simulations, or all that are
            no further from x_o than this. One of them; by default the closest 1 %, but 100 at least.
        adjust: move the kept parameters to where a linear regression on x expects them at x_o, and weight
            them by distance. Exact where parameters and data are jointly Gaussian. Needs latent coordinates,
            where no parameter can be moved out of the prior's support.
        distance: as for `SMCABC`.
        space: `apt.Latent()` or `apt.Theta()`; it matters for `adjust` alone.
    """

    accept: int | None = None
    quantile: float | None = None
    eps: float | None = None
    adjust: bool = False
    distance: Distance | None = None
    space: Space = field(default_factory=Latent)

    one_round = True
    has_density = False

    def __post_init__(self):
        given = [n for n in ("accept", "quantile", "eps") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"RejectionABC takes one of accept, quantile, eps; got {' and '.join(given)}.")
        if self.accept is not None:
            positive_int("RejectionABC accept", self.accept, minimum=2)
        if self.eps is not None:
            positive_float("RejectionABC eps", self.eps)
        if self.quantile is not None and positive_float("RejectionABC quantile", self.quantile) > 1:
            raise ValueError(f"RejectionABC quantile must be a share of at most 1, got {self.quantile}.")
        optional_function(
            "RejectionABC distance", self.distance, "lambda x, x_o: np.linalg.norm(x - x_o, axis=1)"
        )
        check_space(self)

    def settled(self, frame: Frame) -> "RejectionABC":
        if self.adjust and not frame.always_inside:
            raise ValueError(
                "RejectionABC adjust=True needs latent coordinates, where no adjusted parameter leaves the "
                "prior's support: space=apt.Latent() and a prior such as apt.Prior, apt.box or apt.gaussian."
            )
        return self

    def check_run(self, rounds: int, simulations: int, observation: np.ndarray) -> None:
        """Refuse what cannot work, before anything is simulated."""
        if self.accept is not None and self.accept > simulations:
            raise ValueError(
                f"RejectionABC accept={self.accept} of simulations={simulations}. Raise simulations=."
            )
        try_distance("RejectionABC", self.distance, observation)

    def propose(self, posterior: ParticlePosterior, number: int) -> Proposal:
        raise ValueError("RejectionABC is a one-round method: use method=apt.SMCABC() for several rounds.")

    def learn(self, task: Task, memory: None) -> Learned:
        distance = self.distance or standardised(task.newest)
        rows = candidates(distance, task)
        kept = self._kept(rows)
        reached = float(kept.distance.max())
        values, theta, weights = kept.value, kept.theta, equal_weights(len(kept.value))
        if self.adjust:
            values, weights = adjusted(task, kept, max(reached, self.eps or 0.0))
            theta = task.frame.to_theta(values)
        posterior = ParticlePosterior(task.frame, task.observation, task.event, values, theta, weights)
        notes = {
            "accepted": len(values) / len(task.newest.done),
            "eps": reached,
            "effective_size": posterior.effective_size,
        }
        return Learned(posterior, None, notes, None)

    def _kept(self, rows: Candidates) -> Candidates:
        n = len(rows.distance)
        if self.eps is None:
            share = max(USUAL_SHARE * n, USUAL_FEWEST) if self.quantile is None else self.quantile * n
            wanted = self.accept or int(np.ceil(share))
            return rows.closest(max(wanted, 2))
        kept = rows.within(self.eps)
        if len(kept.distance) >= FEWEST:
            return kept
        closest = rows.closest(FEWEST)
        warnings.warn(
            f"only {len(kept.distance)} of {n} simulations are within eps = {self.eps:g} of x_o. The "
            f"posterior is the {len(closest.distance)} closest, at most {closest.distance.max():.3g} away. "
            f"Raise simulations= or eps=, or use apt.SMCABC().",
            SamplingWarning,
            stacklevel=6,
        )
        return closest


def adjusted(task: Task, kept: Candidates, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Values at x_o by the regression on x, and their weights."""
    spread = fit_scaling(task.newest.x, task.newest.done).spread
    steps = (task.newest.x[kept.row].astype(np.float64) - task.observation) / spread
    steps = steps.reshape(len(steps), -1)
    weights = 1 - (kept.distance / eps) ** 2
    if np.sum(weights > 0) < steps.shape[1] + 2:
        warnings.warn(
            f"{len(weights)} simulations are too few for a regression on {steps.shape[1]} numbers, so the "
            f"posterior is not adjusted. Raise simulations=, or what is accepted.",
            SamplingWarning,
            stacklevel=6,
        )
        return kept.value, equal_weights(len(weights))
    design = np.concatenate([np.ones((len(steps), 1)), steps], axis=1)
    root = np.sqrt(weights)[:, None]
    coefficients = np.linalg.lstsq(root * design, root * kept.value)[0]
    return kept.value - steps @ coefficients[1:], weights / weights.sum()
