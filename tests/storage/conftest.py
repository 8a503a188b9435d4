"""A finished run and its file, which tests copy."""

import pytest
from runs import infer


@pytest.fixture(scope="module")
def plain():
    """The run without a file, and without an interruption."""
    return infer()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, plain):
    """The file of the same run."""
    path = tmp_path_factory.mktemp("finished") / "run.apt"
    infer(path)
    return path
