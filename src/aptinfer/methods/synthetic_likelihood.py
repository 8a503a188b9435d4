r"""Synthetic likelihood: data taken for Gaussian, their moments simulated anew at every parameter.

With m and S the mean and covariance of `replicates` simulations at theta,

    p(x_o | theta)  ~  N(x_o; m, S)        (Wood, "Statistical inference for noisy nonlinear ecological
                                            dynamic systems", Nature 2010),

or the unbiased estimate of that density (Ghurye & Olkin 1969; Price et al., "Bayesian synthetic likelihood",
JCGS 2018), for n replicates of d numbers with scatter matrix M = (n - 1) S,

    log p = c(n, d) - log|M| / 2 + (n - d - 3) / 2 log(1 - q),    q = n / (n - 1) (x_o - m)' M^-1 (x_o - m),

with which Metropolis-Hastings chains have the exact posterior of Gaussian data, however few replicates
(Andrieu & Roberts 2009). A round of the run is a step of all chains at once. The first round draws from the
prior, and the chains start at its rows closest to x_o; the step's covariance follows the chains' spread for
the first half of the run, and stays as it is in the second, which is what counts.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from aptinfer.checks import positive_float, positive_int, suggests_keywords
from aptinfer.errors import SamplingError
from aptinfer.estimators.mog import LOG_2PI
from aptinfer.keys import Key
from aptinfer.methods.choices import check_space
from aptinfer.methods.distances import candidates, standardised
from aptinfer.methods.learning import Learned, Task
from aptinfer.posteriors.particles import ParticlePosterior, equal_weights
from aptinfer.protocols import Draws, Proposal
from aptinfer.samplers.draws import Draws as Sampled
from aptinfer.samplers.draws import checked
from aptinfer.scaling import fit_scaling
from aptinfer.spaces import Frame, Latent, Space

FEWEST_CHAINS = 4
FEWEST_ROUNDS = 4
REMEMBERED = 20  # steps of all chains that the step's covariance is taken from
AIM = 0.25  # share of accepted steps that the step's size is adapted to
CHECKS = 10  # times that chains are compared during a run: each time costs what all records do
_ACCEPT = 0


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """A step from where each chain stands, simulated so many times.

    A step that would leave the prior's support stays where it is: the same chance in both directions.
    """

    frame: Frame
    values: np.ndarray  # (chains, dim)
    theta: np.ndarray
    root: np.ndarray | None  # of the step's covariance; None to stay
    replicates: int

    def draw(self, key: Key, n: int) -> Draws:
        value, theta = self.values.astype(np.float32), self.theta
        if self.root is not None:
            moved = self.values + key.generator().standard_normal(value.shape) @ self.root.T
            moved = moved.astype(np.float32)
            there = self.frame.to_theta(moved)
            if not self.frame.always_inside:
                inside = self.frame.prior.contains(there)[:, None]
                moved, there = np.where(inside, moved, value), np.where(inside, there, theta)
            value, theta = moved, there
        value, theta = (np.repeat(a, self.replicates, axis=0) for a in (value, theta))
        assert len(value) == n
        return Draws(value, theta, np.zeros(n, np.int32))


class Chains(NamedTuple):
    """Where the chains stand, and how they came there.

    Attributes:
        centre, spread: of x in the first round, for arithmetic with moderate numbers.
        log_likelihood: synthetic, at the chains' states; -inf where none is known.
        scale: of the step, in units of the best one for a Gaussian posterior.
        recent: the states after the last few steps, while the step's covariance follows them.
        records: states of the second half of the run, values and theta: (records, chains, dim). They are
            filled in place, and posteriors see the part that was filled: a copy for each round would take the
            square of what the run takes.
        recorded: how many there are so far.
    """

    centre: np.ndarray
    spread: np.ndarray
    values: np.ndarray
    theta: np.ndarray
    log_likelihood: np.ndarray
    scale: float
    root: np.ndarray | None
    recent: tuple[np.ndarray, ...]
    records: tuple[np.ndarray, np.ndarray]
    recorded: int


@suggests_keywords
@dataclass(frozen=True)
class SyntheticLikelihood:
    """Metropolis-Hastings with a Gaussian likelihood whose moments are simulated at every step.

    Every round is one step of simulations / replicates chains, so that hundreds of rounds are usual.

    Args:
        replicates: simulations per proposed parameter.
        unbiased: use the unbiased estimate of the Gaussian density, whose posterior does not depend on
            replicates; False for the density at the simulated moments.
        shrinkage: share of the way from the simulated correlations to none, for few replicates (Warton 2008);
            it is a plug-in estimate then, whatever `unbiased` says.
        space: `apt.Latent()` or `apt.Theta()`, the coordinates of the random walk.
    """

    replicates: int = 50
    unbiased: bool = True
    shrinkage: float = 0.0
    space: Space = field(default_factory=Latent)

    one_round = False
    takes_given_rows = False
    has_density = False
    usual_rounds = 500

    def __post_init__(self):
        positive_int("SyntheticLikelihood replicates", self.replicates, minimum=3)
        if positive_float("SyntheticLikelihood shrinkage", self.shrinkage, zero=True) > 1:
            raise ValueError(
                f"SyntheticLikelihood shrinkage must be a share of at most 1, got {self.shrinkage}."
            )
        check_space(self)

    def settled(self, frame: Frame) -> "SyntheticLikelihood":
        del frame
        return self

    def fewest_replicates(self, dim: int) -> int:
        """Successful simulations at a parameter without which it is rejected, for x of `dim` numbers."""
        if self.shrinkage:
            return 3
        return dim + 4 if self.unbiased else dim + 2

    def check_run(self, rounds: int, simulations: int, observation: np.ndarray) -> None:
        """Refuse what cannot work, before anything is simulated."""
        fewest = self.fewest_replicates(observation.size)
        if self.replicates < fewest:
            raise ValueError(
                f"SyntheticLikelihood replicates={self.replicates} are too few for the covariance of "
                f"{observation.size} numbers in x_o: at least {fewest} are needed, and several times as many "
                f"are better. Raise replicates=, or set shrinkage=, or summarise x."
            )
        chains, rest = divmod(simulations, self.replicates)
        if rest or chains < FEWEST_CHAINS:
            raise ValueError(
                f"simulations={simulations} must be a multiple of replicates={self.replicates} for at least "
                f"{FEWEST_CHAINS} chains, such as simulations={max(chains, 20) * self.replicates}: a round "
                f"is a step of simulations / replicates chains."
            )
        if rounds < FEWEST_ROUNDS:
            raise ValueError(
                f"rounds={rounds}: SyntheticLikelihood takes a step of its chains per round, and needs "
                f"{FEWEST_ROUNDS} at least; hundreds are usual."
            )

    def propose(self, posterior: ParticlePosterior, number: int) -> Proposal:
        assert posterior.proposal is not None
        return posterior.proposal

    def learn(self, task: Task, memory: Chains | None) -> Learned:
        if memory is None:
            chains, notes = self._start(task), {}
        else:
            chains, accepted = self._step(task, memory)
            notes = {"accepted": accepted}
            chains = self._recorded(task, chains) if self._counts(task) else _adapted(chains, accepted)
        posterior = self._posterior(task, chains)
        planned, last = len(chains.records[0]), task.number + 1 == task.rounds
        if chains.recorded and (last or chains.recorded % max(planned // CHECKS, 1) == 0):
            notes |= {"effective_size": posterior.effective_size, "r_hat": posterior.r_hat}
        if last:
            checked(
                Sampled(posterior.values, posterior.r_hat, posterior.effective_size),
                "Raise rounds=, or simulations= for more chains; where few steps are accepted, replicates=.",
                stacklevel=6,
            )
        return Learned(posterior, None, notes, chains)

    def _counts(self, task: Task) -> bool:
        return task.number >= task.rounds // 2

    def _start(self, task: Task) -> Chains:
        """Chains at the closest of the prior's draws."""
        rows = task.newest
        number = len(rows.done) // self.replicates
        closest = candidates(standardised(rows), task).closest(number)
        chosen = np.resize(np.arange(len(closest.row)), number)  # again, if too few have succeeded
        values, theta = closest.value[chosen], closest.theta[chosen]
        scaling = fit_scaling(rows.x[rows.done])
        shape = (task.rounds - task.rounds // 2, number, values.shape[1])
        nowhere = np.full(number, -np.inf)
        return Chains(
            centre=scaling.centre,
            spread=scaling.spread,
            values=values,
            theta=theta,
            log_likelihood=nowhere,
            scale=1.0,
            root=None,
            recent=(),
            records=(np.empty(shape), np.empty(shape)),
            recorded=0,
        )

    def _step(self, task: Task, chains: Chains) -> tuple[Chains, float]:
        """Every chain accepts or rejects what was simulated for it; and the share that accepts."""
        rows, each = task.newest, self.replicates
        values, theta = rows.value[::each].astype(np.float64), rows.theta[::each]
        x = ((rows.x - chains.centre) / chains.spread).reshape(len(values), each, -1)
        x_o = ((task.observation - chains.centre) / chains.spread).ravel()
        found = self.log_likelihood(x, rows.done.reshape(len(values), each), x_o)
        if chains.root is None and not np.isfinite(found).any():
            raise SamplingError(
                "the synthetic likelihood is zero wherever the chains start. Entries of x that are constant "
                "or functions of each other have no Gaussian density: leave them out, or set shrinkage=. "
                "Where many simulations fail, raise replicates=."
            )
        before = chains.log_likelihood + task.frame.log_prior(chains.values, chains.theta)
        after = found + task.frame.log_prior(values, theta)
        height = np.log(task.for_training.child(_ACCEPT).generator().uniform(size=len(values)))
        # Where a chain has no likelihood yet, anything finite is better.
        better = np.isfinite(after) & (np.isneginf(before) | (height < after - np.maximum(before, -1e300)))
        chains = chains._replace(
            values=np.where(better[:, None], values, chains.values),
            theta=np.where(better[:, None], theta, chains.theta),
            log_likelihood=np.where(better, found, chains.log_likelihood),
        )
        return chains, float(better.mean())

    def log_likelihood(self, x: np.ndarray, done: np.ndarray, x_o: np.ndarray) -> np.ndarray:
        """log of the synthetic likelihood, one number for each of x (parameters, replicates, dim).

        Of the replicates that are `done`, times their share: x_o did not fail.
        """
        dim, count = x.shape[-1], done.sum(axis=1)
        out = np.full(len(x), -np.inf)
        enough = count >= self.fewest_replicates(dim)
        x, done, n = x[enough], done[enough][:, :, None], count[enough].astype(np.float64)
        mean = np.sum(x, axis=1, where=done) / n[:, None]
        centred = np.where(done, x - mean[:, None], 0.0)
        scatter = np.einsum("prj,prk->pjk", centred, centred)
        if self.shrinkage:
            scatter = np.where(np.eye(dim, dtype=bool), scatter, (1 - self.shrinkage) * scatter)
        sign, log_volume = np.linalg.slogdet(scatter)
        # Rounding can leave a constant entry a variance of 1e-30.
        width = np.sqrt(np.einsum("pjj->pj", scatter))
        regular = (sign > 0) & (
            log_volume > 2 * np.log(np.maximum(width, 1e-300)).sum(axis=1) + dim * np.log(1e-13)
        )
        regular &= (width > 1e-12).all(axis=1)
        gap = np.where(regular[:, None], x_o - mean, 0.0)
        solved = np.linalg.solve(np.where(regular[:, None, None], scatter, np.eye(dim)), gap[:, :, None])
        square = np.einsum("pj,pj->p", gap, solved[:, :, 0])
        if self.unbiased and not self.shrinkage:
            log_density = _unbiased(n, dim, log_volume, square)
        else:
            log_density = -0.5 * (dim * LOG_2PI + log_volume - dim * np.log(n - 1) + (n - 1) * square)
        out[enough] = np.where(regular, log_density + np.log(n / done.shape[1]), -np.inf)
        return out

    def _recorded(self, task: Task, chains: Chains) -> Chains:
        for kept, state in zip(chains.records, (chains.values, chains.theta), strict=True):
            kept[chains.recorded] = state
        return chains._replace(recorded=chains.recorded + 1)

    def _posterior(self, task: Task, chains: Chains) -> ParticlePosterior:
        """The recorded states, or where the chains stand while there are none."""
        walk = RandomWalk(task.frame, chains.values, chains.theta, chains.root, self.replicates)
        values, theta = chains.values, chains.theta
        if chains.recorded:
            values, theta = (r[: chains.recorded].reshape(-1, r.shape[-1]) for r in chains.records)
        return ParticlePosterior(
            task.frame,
            task.observation,
            task.event,
            values,
            theta,
            equal_weights(len(values)),
            chains=len(chains.values) if chains.recorded else None,
            proposal=walk,
        )


def _adapted(chains: Chains, accepted: float) -> Chains:
    """The next step's covariance, from the chains' spread, and its size, from how many accepted this one."""
    recent = (*chains.recent, chains.values)[-REMEMBERED:]
    scale = chains.scale
    if chains.root is not None:
        scale = float(np.clip(scale * np.exp(accepted - AIM), 0.01, 10.0))
    states = np.concatenate(recent)
    dim = states.shape[1]
    covariance = np.atleast_2d(np.cov(states.T)) * (2.38 * scale) ** 2 / dim
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(dim))
    return chains._replace(recent=recent, scale=scale, root=root)


def _unbiased(n: np.ndarray, dim: int, log_volume: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Ghurye & Olkin's estimate: from the scatter matrix's log-determinant, and a square in its units."""
    q = square * n / (n - 1)
    constant = _log_c(dim, n - 2) - _log_c(dim, n - 1) - 0.5 * dim * (LOG_2PI + np.log1p(-1 / n))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = constant - 0.5 * log_volume + 0.5 * (n - dim - 3) * np.log1p(-q)
    return np.where(q < 1, found, -np.inf)


def _log_c(dim: int, v: np.ndarray) -> np.ndarray:
    """log of Ghurye & Olkin's c(dim, v), without the factors of pi that cancel."""
    parts = np.arange(1, dim + 1)
    return -0.5 * dim * v * np.log(2) - gammaln(0.5 * (v[:, None] - parts + 1)).sum(axis=1)
