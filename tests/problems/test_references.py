"""Our posterior draws against the published ones, by the classifier two-sample test."""

import numpy as np
import pytest

from aptinfer import problems
from aptinfer.diagnostics.two_sample import c2st
from comparisons import published

OPTIONS = {"slcp_distractors": {"mixture": "sbibm"}}
PUBLISHED_NAMES = {"lotka_volterra_ode": "lotka_volterra"}
TASKS = (
    "two_moons",
    "slcp",
    "slcp_distractors",
    "gaussian_linear",
    "gaussian_linear_uniform",
    "gaussian_mixture",
    "bernoulli_glm",
    "bernoulli_glm_raw",
    "sir",
    "lotka_volterra_ode",
)


def task(name: str):
    """A benchmark problem and what is published about it."""
    return problems.get(name, **OPTIONS.get(name, {})), published(PUBLISHED_NAMES.get(name, name))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", TASKS)
def test_all_draws(name, number):
    problem, known = task(name)
    draws = problem.reference_posterior(known["observations"][number], 10_000)
    score = c2st(draws, known["reference_samples"][number])
    print(f"{name}, observation {number + 1}: C2ST {score:.4f}")
    assert 0.48 < score < 0.52


@pytest.mark.parametrize("name", [name for name in TASKS if name != "bernoulli_glm_raw"])
def test_some_draws(name):
    # The raw GLM has the same posterior and the same chains as the other: tests/problems/test_glm.py.
    problem, known = task(name)
    n = 2000
    draws = problem.reference_posterior(known["observations"][0], n)
    score = c2st(draws, known["reference_samples"][0][:n])
    assert abs(score - 0.5) < 4 * 0.5 / np.sqrt(2 * n)


@pytest.mark.parametrize("name", TASKS)
def test_what_is_shipped_is_what_was_published(name):
    problem, known = task(name)
    np.testing.assert_array_equal(problem.observations, known["observations"])
    np.testing.assert_array_equal(problem.truths, known["true_parameters"])


@pytest.mark.slow
def test_slcp_at_the_paper_s_observation():
    problem, known = problems.get("slcp"), published("paper_observations")
    np.testing.assert_array_equal(known["slcp_observation"], problem.observation)
    np.testing.assert_array_equal(known["slcp_true_parameters"], problem.truth)
    draws = problem.reference_posterior(problem.observation, 10_000)
    score = c2st(draws, known["slcp_reference_samples"])
    print(f"slcp, the paper's observation: C2ST {score:.4f}")
    assert 0.48 < score < 0.52
