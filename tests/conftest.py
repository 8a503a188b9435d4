"""Shared fixtures; tests ask for them by name.

Shapes in annotations are checked while tests run (`shapes.py`). Worker processes import the package without
these checks, as users do.
"""

import signal
from pathlib import Path

from jaxtyping import install_import_hook

SOURCE = Path(__file__).parents[1] / "src"


def with_shapes() -> list[str]:
    """Modules that annotate shapes.

    Others are left alone: the hook puts a frame into every call, and warnings must point to the user's line.
    """
    paths = (path for path in SOURCE.rglob("*.py") if "[Array, " in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths]


install_import_hook(with_shapes(), "shapes.checked")  # before anything imports the package

import jax  # noqa: E402
import pytest  # noqa: E402

from aptinfer import programs  # noqa: E402

# A shell lets what it starts in the background ignore Ctrl-C, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules compile much that others have compiled: seconds of JAX's own threshold add up.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="module")
def strict():
    """No silent change of dtype or rank: our own arithmetic must say what it means."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module", autouse=True)
def optimisation(request):
    """Programs are compiled without optimisation, in less time, unless a module's tests train for long.

    Their bits differ from those of usual ones: neither kind is left to modules that want the other.
    """
    module = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    long = any(item.get_closest_marker(name) for item in module for name in ("slow", "optimised"))
    if jax.config.read("jax_disable_most_optimizations") == long:
        programs.forget_all()
        jax.config.update("jax_disable_most_optimizations", not long)
    with pytest.MonkeyPatch.context() as patch:  # for processes that tests start
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(not long)))
        yield


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Many small tests, each with programs of its own, never begin a run: see `programs.make_room`."""
    yield
    programs.make_room()


@pytest.fixture(scope="session", autouse=True)
def own_references(tmp_path_factory):
    """Expensive posterior draws are kept for one session of tests, never taken from the user's folder."""
    folder = tmp_path_factory.mktemp("references")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aptinfer.caching.references_folder", lambda: folder)
        yield
