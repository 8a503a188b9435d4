"""What importing costs, and what it offers: worker processes must not load JAX."""

import subprocess
import sys

import pytest

import aptinfer as apt


@pytest.mark.parametrize(
    "module",
    [
        "aptinfer",
        "aptinfer.simulators, aptinfer.executors, aptinfer.protocols, aptinfer.store, aptinfer.priors",
        "aptinfer.samplers",
    ],
)
def test_import_does_not_load_jax(module):
    code = f"import sys, {module}; print({{'jax', 'numpyro', 'equinox', 'rich'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_simulation_in_a_worker_does_not_load_jax():
    code = (
        "import sys, numpy as np, aptinfer as apt\n"
        "from aptinfer.protocols import Rows\n"
        "from aptinfer.simulators import as_simulator\n"
        "rows = Rows(np.arange(3), np.zeros((3, 2)))\n"
        "outcomes = apt.Inline()(as_simulator(lambda rng, theta: theta), 0, rows)\n"
        "print(len(list(outcomes)), apt.box([0, 0], [1, 1]).names, 'jax' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "3 ('theta_1', 'theta_2') False"


@pytest.mark.parametrize("name", apt.__all__)
def test_every_public_name_can_be_imported(name):
    value = getattr(apt, name)
    assert name in dir(apt)
    if callable(value):
        assert value.__doc__, f"apt.{name} has no docstring"


@pytest.mark.parametrize(("typed", "meant"), [("infr", "infer"), ("MFA", "MAF"), ("atomic", "Atomic")])
def test_a_mistyped_name_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(AttributeError, match=f"no attribute '{typed}'. Did you mean '{meant}'"):
        getattr(apt, typed)


def test_misspelt_keywords_of_classes_whose_shapes_tests_check():
    """In a process of its own: the check of shapes would look at the keywords first."""
    calls = {"MAF(layer=1)": "layers", "GRU(unit=3)": "units", "SNL(samplr=None)": "sampler"}
    lines = [f"try: apt.{call}\nexcept TypeError as error: print(error)" for call in calls]
    code = "\n".join(["import aptinfer as apt", *lines])
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for line, meant in zip(said.splitlines(), calls.values(), strict=True):
        assert f"Did you mean '{meant}'?" in line
