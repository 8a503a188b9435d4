"""A finished run and its file, which tests copy."""

import jax
import pytest
from runs import infer

from programs import forget_programs


@pytest.fixture(scope="package", autouse=True)
def quick():
    """Programs are compiled without optimisation, here and in processes that tests start: it is faster."""
    forget_programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        yield
    jax.config.update("jax_disable_most_optimizations", False)
    forget_programs()


@pytest.fixture(scope="package")
def plain(quick):
    """The run without a file, and without an interruption."""
    return infer()


@pytest.fixture(scope="package")
def finished(tmp_path_factory, plain):
    """The file of the same run."""
    path = tmp_path_factory.mktemp("finished") / "run.apt"
    infer(path)
    return path
