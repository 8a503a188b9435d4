"""The entries of table 1 are true: each is tried at the door, and the stored table says the same."""

import pytest

from experiments import lines, table_1

EXPECTED = {
    "SMC-ABC": ("its own", "any", "particles"),
    "SNPE-A": ("its own", "any that maps to N(0, I)", "mixtures of Gaussians"),
    "SNPE-B": ("any with a density", "any", "any"),
    "SNL": ("its own posterior; given simulations of any origin", "any", "any"),
    "APT": ("any", "any", "any"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "SNL")) for name in table_1.METHODS]
)
def test_each_attempt_ends_as_the_table_says(name):
    found = table_1.answers(name)
    assert table_1.entries(found) == EXPECTED[name]
    for line in lines.where(lines.read("table_1"), method=name):
        assert line["metrics"] == found
