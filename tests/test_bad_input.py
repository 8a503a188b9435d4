"""Bad input is refused early, with a message that names the argument, what came and what to do."""

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats as st

import aptinfer as apt
from aptinfer.sequential import HOPELESS_AFTER

TRAINER = apt.Trainer(epochs=60, patience=10, learning_rate=5e-3, warmup=10)
METHOD = apt.APT(estimator=apt.MDN(components=2), embedding=apt.MLP((16,)), trainer=TRAINER)
BOX = apt.box([-1, -1], [1, 1])
X_O = [0.2, 0.3]


def simulate(rng, theta):
    return theta + 0.2 * rng.standard_normal(2)


class Counting:
    """A simulator that counts its calls; `x` is what it returns, or a function of the count that does."""

    def __init__(self, x: Any):
        self.x, self.calls = x, 0

    def __call__(self, rng, theta):
        self.calls += 1
        return self.x(self.calls) if callable(self.x) else self.x


def infer(simulator: Any = simulate, prior: Any = BOX, x_o: Any = X_O, **settings: Any):
    settings = {"method": METHOD, "rounds": 2, "simulations": 200, "progress": False} | settings
    return apt.infer(simulator, prior, x_o, **settings)


def uniform_square():
    return apt.CustomPrior(
        lambda rng, n: rng.uniform(-1, 1, (n, 2)),
        lambda theta: np.where((np.abs(theta) < 1).all(axis=1), -np.log(4), -np.inf),
        names=("a", "b"),
    )


class Refusal(NamedTuple):
    why: str
    call: Any
    error: type[Exception]
    says: str


def loose(function: Any, *arguments: Any, **settings: Any):
    """A call that the type checker must not look at."""
    return lambda: function(*arguments, **settings)


CALLS = [
    # the observation
    Refusal(
        "x_o NaN", lambda: infer(x_o=[np.nan, 0]), ValueError, r"x_o must be finite; 1 of 2 .*index \(0,\)"
    ),
    Refusal(
        "x_o inf", lambda: infer(x_o=[0, np.inf]), ValueError, r"x_o must be finite; 1 of 2 .*index \(1,\)"
    ),
    Refusal("x_o text", lambda: infer(x_o="abc"), TypeError, "x_o must be a numeric array; got str"),
    Refusal("x_o None", lambda: infer(x_o=None), TypeError, "x_o must be a numeric array; got NoneType"),
    Refusal(
        "x_o ragged", lambda: infer(x_o=[[1], [1, 2]]), TypeError, "x_o must be a numeric array; got list"
    ),
    Refusal("x_o complex", lambda: infer(x_o=[1j, 2]), TypeError, "x_o must be a numeric array"),
    Refusal(
        "x_o masked",
        lambda: infer(x_o=np.ma.MaskedArray([1.0, 2.0], mask=[True, False])),
        ValueError,
        "x_o must be finite; 1 of 2",
    ),
    Refusal("x_o short", lambda: infer(x_o=[1.0]), ValueError, r"x_o has shape \(1,\), but .* shape \(2,\)"),
    Refusal(
        "x_o a row", lambda: infer(x_o=[X_O]), ValueError, r"x_o has shape \(1, 2\), but .* shape \(2,\)"
    ),
    Refusal("x_o empty", lambda: infer(x_o=[]), ValueError, r"x_o has no entries, its shape is \(0,\)"),
    # the prior
    Refusal("prior a number", lambda: infer(prior=3), TypeError, "prior must be .*; got int"),
    Refusal("prior a class", lambda: infer(prior=apt.Prior), TypeError, "prior must be .*; got"),
    Refusal("prior None", lambda: infer(prior=None), TypeError, "prior must be .*; got NoneType"),
    Refusal("prior unnamed", lambda: infer(prior=st.norm(0, 1)), TypeError, "One distribution needs a name"),
    Refusal("low = high", lambda: apt.box([0, 0], [1, 0]), ValueError, "theta_2.*low.*high"),
    Refusal("low > high", lambda: apt.box([2, 0], [1, 1]), ValueError, "theta_1.*low.*high"),
    Refusal("low, high lengths", lambda: apt.box([0], [1, 1]), ValueError, r"shapes \(1,\) and \(2,\)"),
    Refusal("no scale", lambda: apt.Prior(a=st.norm(0, 0)), ValueError, "'a'.*scale"),
    Refusal("flat Gaussian", lambda: apt.gaussian([0, 0], np.zeros((2, 2))), ValueError, "positive definite"),
    # the simulator
    Refusal("not callable", lambda: infer(3), TypeError, r"simulator must be a function .*; got int"),
    Refusal("no argument", lambda: infer(lambda: 1.0), TypeError, r"simulator must take .*has 0 required"),
    Refusal("three arguments", lambda: infer(lambda a, b, c: 1.0), TypeError, r"simulator must take .*has 3"),
    Refusal(
        "needs a keyword",
        lambda: infer(lambda theta, *, steps: theta),
        TypeError,
        r"also needs the keyword 'steps'. Fix it with functools.partial",
    ),
    Refusal(
        "returns text", lambda: infer(Counting("abc")), apt.SimulationError, "returned str 'abc' for row 0"
    ),
    Refusal(
        "returns a dict", lambda: infer(Counting({"x": 1})), apt.SimulationError, "returned dict .* numbers"
    ),
    Refusal(
        "returns ragged",
        lambda: infer(Counting([1, [2, 3]])),
        apt.SimulationError,
        "returned list .* numbers",
    ),
    Refusal(
        "returns an object",
        lambda: infer(Counting(object())),
        apt.SimulationError,
        "returned object .*numbers",
    ),
    Refusal(
        "changes shape",
        lambda: infer(Counting(lambda calls: np.zeros(2 if calls < 30 else 3))),
        apt.SimulationError,
        r"changed the shape of its output: x has shape \(2,\) .* \(3,\) for row 29",
    ),
    # sizes and seeds
    *[
        Refusal(
            f"simulations={n}", lambda n=n: infer(simulations=n), ValueError, f"simulations must be .*got {n}"
        )
        for n in (0, -1, 2.5, 19, True)
    ],
    *[
        Refusal(f"rounds={n}", lambda n=n: infer(rounds=n), ValueError, f"rounds must be .*got {n}")
        for n in (0, -3, 1.5)
    ],
    *[
        Refusal(f"seed={s}", lambda s=s: infer(seed=s), ValueError, f"seed must be a whole number .*got {s}")
        for s in (-1, 1.5, 2**32, None)
    ],
    # the method and what it is made of
    Refusal(
        "method a class", loose(infer, method=apt.APT), TypeError, r"method must be .*apt.APT\(\).*got <class"
    ),
    Refusal("method a string", loose(infer, method="APT"), TypeError, r"method must be .*got 'APT'"),
    Refusal(
        "atoms > batch",
        lambda: apt.APT(loss=apt.Atomic(atoms=101)),
        ValueError,
        r"atoms \(101\) must not exceed the batch \(100\).*Raise Trainer\(batch",
    ),
    Refusal("one atom", lambda: apt.Atomic(atoms=1), ValueError, "atoms must be .* at least 2, got 1"),
    Refusal(
        "NPE in rounds",
        lambda: infer(method=apt.NPE(), rounds=3),
        ValueError,
        r"rounds=3: NPE is a one-round method. Use method=apt.APT\(\)",
    ),
    Refusal(
        "closed form, flow",
        lambda: apt.APT(loss=apt.MixtureProposal(), estimator=apt.MAF()),
        ValueError,
        r"MixtureProposal\(\) needs a mixture density network.*estimator=apt.MDN\(\)",
    ),
    Refusal(
        "closed form, custom prior",
        lambda: infer(
            prior=uniform_square(),
            method=apt.APT(loss=apt.GaussianProposal(), estimator=apt.MDN(components=1)),
        ),
        ValueError,
        r"GaussianProposal\(\) has no closed form for CustomPrior.*Use loss=apt.Atomic\(\)",
    ),
    Refusal(
        "velocity for APT",
        lambda: apt.APT(estimator=apt.Ensemble(apt.VelocityNetwork(), 2)),
        ValueError,
        r"APT trains a density, and that of VelocityNetwork .*use apt.FMPE\(estimator",
    ),
    Refusal(
        "density for FMPE",
        lambda: apt.FMPE(estimator=apt.NSF()),
        TypeError,
        r"FMPE estimator must be apt.VelocityNetwork.*got NSF.*use apt.NPE\(estimator",
    ),
    Refusal(
        "FMPE in rounds",
        lambda: infer(method=apt.FMPE(), rounds=3),
        ValueError,
        r"rounds=3: FMPE is a one-round method. Use method=apt.APT\(\)",
    ),
    Refusal(
        "exponent", lambda: apt.FMPE(exponent=-1), ValueError, "FMPE exponent must be .* above -1, got -1"
    ),
    Refusal("loss a class", loose(apt.APT, loss=apt.Atomic), TypeError, "APT loss must be"),
    Refusal(
        "estimator a string", loose(apt.APT, estimator="maf"), TypeError, "APT estimator must be .*got 'maf'"
    ),
    Refusal(
        "estimator a class",
        loose(apt.APT, estimator=apt.MDN),
        TypeError,
        r"APT estimator must be settings, and MDN is a class: write MDN\(\)",
    ),
    Refusal(
        "embedding a class", loose(apt.NPE, embedding=apt.CNN), TypeError, "NPE embedding .*CNN is a class"
    ),
    Refusal("member a class", loose(apt.Ensemble, apt.NSF), TypeError, "Ensemble estimator .*NSF is a class"),
    Refusal("one layer", loose(apt.MLP, hidden=5), TypeError, r"MLP hidden .* such as \(50, 50\); got 5"),
    Refusal("one channel", loose(apt.CNN, channels=8), TypeError, "CNN channels must be a tuple .*got 8"),
    Refusal(
        "no list of runs", loose(apt.side_by_side, print), TypeError, "side_by_side takes a list of functions"
    ),
    Refusal("trainer a dict", loose(apt.APT, trainer={}), TypeError, r"APT trainer must be .*got \{\}"),
    Refusal("space a string", loose(apt.APT, space="theta"), TypeError, "APT space must be .*got 'theta'"),
    # where and what else
    Refusal("executor", loose(infer, executor=4), TypeError, r"executor must be apt.Inline\(\), .*; got 4"),
    Refusal(
        "executor a class", loose(infer, executor=apt.Inline), TypeError, "executor must .*the class Inline"
    ),
    Refusal("stop", loose(infer, stop=True), TypeError, r"stop must be .*apt.WhenSettled\(\); got True"),
    Refusal(
        "stop a class", loose(infer, stop=apt.WhenSettled), TypeError, "stop must be .*the class WhenSettled"
    ),
    Refusal("progress", loose(infer, progress="bar"), TypeError, "progress must be True or False, got 'bar'"),
    Refusal("listen", loose(infer, listen=[]), TypeError, r"listen must be .*got \[\]"),
    Refusal(
        "tolerance", lambda: apt.WhenSettled(tolerance=0), ValueError, "tolerance must be .*above 0, got 0"
    ),
    Refusal(
        "chunk",
        lambda: apt.BatchSimulator(simulate, chunk=0),
        ValueError,
        "BatchSimulator chunk must .*got 0",
    ),
    # mistyped keywords
    Refusal(
        "infer keyword", loose(infer, simulation=1), TypeError, r"infer\(\) .*'simulation'. .*'simulations'"
    ),
    Refusal("APT keyword", loose(apt.APT, estimater=1), TypeError, r"APT\(\) .*'estimater'. .*'estimator'"),
    Refusal("NPE keyword", loose(apt.NPE, embeding=1), TypeError, r"NPE\(\) .*'embeding'. .*'embedding'"),
    Refusal(
        "Ensemble keyword",
        loose(apt.Ensemble, member=1),
        TypeError,
        r"Ensemble\(\) .*'member'. Did you mean 'members'",
    ),
    Refusal("no share", loose(apt.Theta, least_accepted=0), ValueError, r"Theta least_accepted .* 0"),
    Refusal("all of it", loose(apt.Theta, 2), ValueError, r"Theta least_accepted must be a share .* got 2"),
    Refusal("Trainer keyword", loose(apt.Trainer, epoch=1), TypeError, r"Trainer\(\) .*'epoch'. .*'epochs'"),
    Refusal("stop keyword", loose(apt.WhenSettled, _last=1), TypeError, r"WhenSettled\(\) .*'_last'"),
]


@pytest.mark.parametrize("refusal", CALLS, ids=lambda refusal: refusal.why)
def test_refused(refusal):
    with pytest.raises(refusal.error, match=f"(?s){refusal.says}"):
        refusal.call()


@pytest.mark.parametrize("x", [np.zeros(3), np.zeros((2, 1)), 0.5])
def test_another_shape_than_the_observation_is_seen_after_one_simulation(x):
    simulator = Counting(x)
    with pytest.raises(ValueError, match=r"x_o has shape \(2,\), but the simulator returns x of shape"):
        infer(simulator)
    assert simulator.calls == 1


@pytest.mark.parametrize("kind", [apt.BatchSimulator, apt.JaxSimulator])
def test_another_shape_is_seen_after_one_chunk(kind):
    calls = []

    def function(rng, theta):
        calls.append(theta)
        return theta[..., :1]

    with pytest.raises(
        ValueError, match=r"x_o has shape \(2,\), but the simulator returns x of shape \(1,\)"
    ):
        infer(kind(function, chunk=20))
    assert len(calls) == 1


def test_the_observation_is_compared_with_the_first_success():
    simulator = Counting(lambda calls: None if calls < 5 else np.zeros(3))
    with pytest.raises(ValueError, match="x_o has shape"):
        infer(simulator)
    assert simulator.calls == 5


def bug(calls):
    raise RuntimeError(f"the pump broke ({calls})")


def test_a_simulator_that_always_raises_stops_early_with_its_traceback():
    simulator = Counting(bug)
    with pytest.raises(apt.SimulationError, match=r"first 50 simulations of round 1 failed") as caught:
        infer(simulator, simulations=5000)
    assert simulator.calls <= HOPELESS_AFTER
    assert re.search(r"(?s)in bug\n.*RuntimeError: the pump broke \(1\)", str(caught.value))


def test_a_batch_simulator_that_always_raises_stops_early():
    calls = []

    def function(thetas):
        calls.append(len(thetas))
        raise RuntimeError("the pump broke")

    with pytest.raises(apt.SimulationError, match="the pump broke"):
        infer(apt.BatchSimulator(function), simulations=5000)
    assert len(calls) <= HOPELESS_AFTER


def test_a_simulator_that_only_returns_nan_stops_early():
    simulator = Counting(np.full(2, np.nan))
    with pytest.raises(apt.SimulationError, match=r"(?s)first 50 .*\(invalid\).*returned NaN or infinity"):
        infer(simulator, simulations=5000)
    assert simulator.calls <= HOPELESS_AFTER


def test_too_few_successes_are_explained():
    simulator = Counting(lambda calls: np.zeros(2) if calls % 20 == 0 else None)
    with pytest.raises(apt.SimulationError, match=r"only 10 of 200 .*Raise simulations=.*returned None"):
        infer(simulator)


@pytest.fixture(scope="module")
def posterior():
    return infer(stop=lambda finished: True).posterior


ASKED = [
    (
        "theta too long",
        lambda p: p.log_prob([0, 0, 0]),
        ValueError,
        r"theta must have shape \(2,\) or \(n, 2\)",
    ),
    ("theta scalar", lambda p: p.log_prob(0.1), ValueError, r"theta must have shape .*got \(\)"),
    ("theta a column", lambda p: p.log_prob(np.zeros((5, 1))), ValueError, r"theta must .*got \(5, 1\)"),
    ("theta stacked", lambda p: p.log_prob(np.zeros((3, 5, 2))), ValueError, r"theta must .*got \(3, 5, 2\)"),
    ("theta text", lambda p: p.log_prob("ab"), TypeError, "theta must be a numeric array; got str"),
    (
        "theta for other observations",
        lambda p: p.given(np.zeros((3, 2))).log_prob(np.zeros((4, 5, 2))),
        ValueError,
        r"theta has shape \(4, 5, 2\), but there are 3 observations. Give \(n, 2\)",
    ),
    (
        "q > 1",
        lambda p: p.quantiles([0.5, 1.5]),
        ValueError,
        r"probabilities must lie between 0 and 1, got \[0.5",
    ),
    ("q < 0", lambda p: p.quantiles(-0.1), ValueError, "probabilities must lie between 0 and 1, got -0.1"),
    ("q NaN", lambda p: p.quantiles([np.nan]), ValueError, "probabilities must be finite"),
    ("no samples", lambda p: p.sample(0), ValueError, "n must be a whole number of at least 1, got 0"),
    ("half a sample", lambda p: p.sample(2.5), ValueError, "n must be a whole number of at least 1, got 2.5"),
    ("seed", lambda p: p.sample(10, seed=-1), ValueError, "seed must be a whole number .*got -1"),
    ("seed of map", lambda p: p.map(seed=0.5), ValueError, "seed must be a whole number .*got 0.5"),
    ("given short", lambda p: p.given([1.0]), ValueError, r"x has shape \(1,\), but .* shape \(2,\)"),
    (
        "given scalar",
        lambda p: p.given(1.0),
        ValueError,
        r"x has shape \(1,\), but .*several along a first axis",
    ),
    ("given long", lambda p: p.given(np.zeros((4, 3))), ValueError, r"x has shape \(4, 3\)"),
    ("given stacked", lambda p: p.given(np.zeros((4, 3, 2))), ValueError, r"x has shape \(4, 3, 2\)"),
    (
        "given none",
        lambda p: p.given(np.zeros((0, 2))),
        ValueError,
        r"x has no entries, its shape is \(0, 2\)",
    ),
    ("given NaN", lambda p: p.given([np.nan, 0.0]), ValueError, "x must be finite"),
    ("given text", lambda p: p.given("ab"), TypeError, "x must be a numeric array"),
    (
        "acceptance of several",
        lambda p: p.given(np.zeros((3, 2))).raw_values(5),
        ValueError,
        "posterior is at 3",
    ),
]


@pytest.mark.parametrize(("why", "ask", "error", "says"), ASKED, ids=[row[0] for row in ASKED])
def test_a_posterior_refuses(posterior, why, ask, error, says):
    with pytest.raises(error, match=says):
        ask(posterior)


@pytest.mark.parametrize("outside", [1.0, -1.0, 1.5, -1e300, np.inf, np.nan])
def test_theta_outside_the_support_has_no_density_and_no_warning(posterior, outside):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_prob = posterior.log_prob([[outside, 0.0], [0.0, 0.0], [0.0, outside]])
    assert np.isneginf(log_prob[[0, 2]]).all()
    assert np.isfinite(log_prob[1])
    assert np.isneginf(posterior.log_prob([outside, 0.0]))
