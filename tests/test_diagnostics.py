"""What `apt.diagnostics` offers: names load when first used, and their examples run."""

import doctest
import subprocess
import sys

import pytest

import aptinfer as apt

FUNCTIONS = [name for name in apt.diagnostics.__all__ if name != "two_sample"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_name_is_documented_with_an_example_that_runs(name):
    function = getattr(apt.diagnostics, name)
    assert name in dir(apt.diagnostics)
    for section in ("Args:", "Returns:", "Example:"):
        assert section in function.__doc__
    module = vars(sys.modules[function.__module__])
    (example,) = doctest.DocTestFinder().find(function.__wrapped__, name, globs=dict(module))
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_a_mistyped_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"has no attribute 'c2ts'. Did you mean 'c2st'"):
        apt.diagnostics.c2ts  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_import_does_not_load_jax():
    code = "import sys, aptinfer.diagnostics; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
