"""A finished run and its file, which tests copy."""

import pytest
from runs import infer


@pytest.fixture(scope="module", autouse=True)
def without_optimisation(quick):
    """Here and in processes that tests start, which must have the same bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        yield


@pytest.fixture(scope="module")
def plain(without_optimisation):
    """The run without a file, and without an interruption."""
    return infer()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, plain):
    """The file of the same run."""
    path = tmp_path_factory.mktemp("finished") / "run.apt"
    infer(path)
    return path
