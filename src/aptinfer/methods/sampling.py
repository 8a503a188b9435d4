"""What methods share whose posterior is sampled: the answer to a round, its notes, and the next proposal."""

import warnings
from typing import Any

import numpy as np

from aptinfer.errors import SamplingWarning
from aptinfer.methods.learning import FAR, Learned, Task
from aptinfer.posteriors import SampledPosterior
from aptinfer.posteriors.sampled import FIRST
from aptinfer.posteriors.targets import target_in
from aptinfer.proposals import FromPosterior
from aptinfer.protocols import Proposal
from aptinfer.samplers.nuts import NUTS
from aptinfer.samplers.single_slice import SingleSlice
from aptinfer.samplers.slices import Slice
from aptinfer.samplers.target import refuse_prior_on_host
from aptinfer.spaces import Frame
from aptinfer.train import History


def check_prior(sampler: object, frame: Frame) -> None:
    """Refuse, before the first simulation, a sampler that could not evaluate the prior."""
    if isinstance(sampler, Slice | SingleSlice | NUTS):
        refuse_prior_on_host(target_in(frame), type(sampler).__name__)


def proposed(posterior: SampledPosterior, number: int) -> Proposal:
    """The posterior, by the draws that its round's notes are about: a sampler runs once per round."""
    return FromPosterior(posterior, source=number, key=FIRST)


def sampled(task: Task, posterior: SampledPosterior, history: History, memory: Any) -> Learned:
    """The answer of a method whose posterior is sampled.

    Chains that disagree are worth a warning in the posterior that the user gets. In rounds before, they make
    a proposal less good, and nothing wrong: the notes say so.
    """
    with warnings.catch_warnings():
        if not task.last:
            warnings.simplefilter("ignore", SamplingWarning)
        draws = posterior.first_draws
    notes = {"effective_size": draws.effective}
    if np.isfinite(draws.r_hat):
        notes["r_hat"] = draws.r_hat
    if task.frame.always_inside:
        notes["share_far"] = float((np.abs(draws.values) > FAR).any(axis=1).mean())
    return Learned(posterior, history, notes, memory)
