"""Runs of every method, interrupted and read back from their file."""

from typing import Any

import pytest
from runs import (
    MOMENTS,
    TRAINER,
    Interrupted,
    assert_same_bits,
    infer,
    interrupt,
    interrupted_everywhere,
    simulate,
)

import aptinfer as apt

COMMON: dict[str, Any] = {"embedding": apt.MLP((8,)), "trainer": TRAINER}
WEIGHTED = apt.samplers.Resampled(1000)  # compiles in no time
METHODS = {
    "APT": apt.APT(estimator=apt.MDN(2), **COMMON),
    "NPE": apt.NPE(estimator=apt.MDN(2), **COMMON),
    "FMPE": apt.FMPE(apt.VelocityNetwork(8, 1), apt.Flatten(), trainer=TRAINER),
    "SNPE-A": apt.SNPEA(estimator=apt.MDN(2), **COMMON),
    "SNPE-B": apt.SNPEB(estimator=apt.MDN(2), **COMMON, proposal=apt.Defensive(0.1)),
    "TSNPE": apt.TSNPE(estimator=apt.MDN(2), **COMMON),
    "SNL": apt.SNL(estimator=apt.MDN(2), trainer=TRAINER, sampler=WEIGHTED),
    "SNRE": apt.SNRE(trainer=TRAINER, sampler=WEIGHTED),
    "rejection": apt.RejectionABC(quantile=0.5),
    "SMC-ABC": apt.SMCABC(particles=20),
    "synthetic likelihood": apt.SyntheticLikelihood(replicates=10),
}
VARIANTS = {
    "atomic": apt.APT(loss=apt.Atomic(5), estimator=apt.NSF(layers=1), **COMMON),
    "ensemble": apt.APT(estimator=apt.Ensemble(apt.MDN(2), 2), embedding=apt.Flatten(), trainer=TRAINER),
    "stack": apt.APT(estimator=apt.Stack((apt.MDN(1), apt.MDN(2))), **COMMON),
    "uncertain": apt.SNPEB(estimator=apt.MDN(1), **COMMON, uncertainty=apt.WeightUncertainty()),
    "tempered": apt.APT(apt.Atomic(5), apt.MDN(2), **COMMON, proposal=apt.Tempered()),
    "SNL, chains": apt.SNL(estimator=apt.MDN(2), trainer=TRAINER),
    "SNRE, chains": apt.SNRE(trainer=TRAINER),
    "theta": apt.APT(estimator=apt.MDN(2), **COMMON, space=apt.Theta()),
}
# Few steps are not many.
pytestmark = pytest.mark.filterwarnings("ignore::aptinfer.errors.SamplingWarning")


LIKE_OTHERS = (
    "APT",
    "NPE",
    "FMPE",
    "SNPE-B",
    "TSNPE",
    "SNRE",
    "rejection",
)  # what they remember, another method here remembers too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in METHODS]
)
def test_interrupted_after_a_round_and_read_back(name, tmp_path):
    method, path = METHODS[name], tmp_path / "run.apt"
    # A method with a single round is interrupted in the middle of it.
    moment = ("Simulated", 0) if method.one_round else ("RoundFinished", 0)
    rounds = 1 if method.one_round else 4 if isinstance(method, apt.SyntheticLikelihood) else 2
    settings = {"method": method, "rounds": rounds}
    with pytest.raises(Interrupted):
        infer(path, listen=interrupt(*moment), **settings)
    run = apt.resume(path, simulate, progress=False)
    assert_same_bits(infer(**settings), run)
    assert_same_bits(run, apt.open(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS | VARIANTS)
def test_interrupted_at_every_stage(name, tmp_path):
    method, path = (METHODS | VARIANTS)[name], tmp_path / "run.apt"
    settings = {"method": method, "rounds": 1 if method.one_round else 4}
    seen = set()
    plain = infer(**settings, listen=lambda event: seen.add((type(event).__name__, event.number)))
    interrupted_everywhere(path, [moment for moment in MOMENTS if moment in seen], **settings)
    assert_same_bits(plain, apt.resume(path, simulate, progress=False))
