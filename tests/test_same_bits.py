"""A whole run has the same bits whatever was compiled before, and whatever the user has set around it."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, sys
import jax, numpy as np, aptinfer as apt
def simulate(key, theta):
    return theta + 0.2 * jax.random.gamma(key, 2.0, (8, 2)).mean(0)
simulator = apt.JaxSimulator(simulate, chunk=30)
trainer = apt.Trainer(epochs=8, patience=5, learning_rate=5e-3, warmup=10)
method = apt.APT(apt.Atomic(5), apt.MDN(2), apt.MLP((8,)), trainer=trainer)
run = apt.infer(
    simulator, apt.box([-1, -1], [1, 1]), [0.5, 0.6], method=method, rounds=2, simulations=40, progress=False
)
bits = hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in run.simulations))
bits.update(run.posterior.sample(200).tobytes())
bits.update(run.posterior.log_prob(run.simulations.theta).tobytes())
print(bits.hexdigest())
"""
NOT_OPTIMISED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiles in half the time


def bits(cache, **settings):
    """What a run in another process came to."""
    settings |= {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_with_an_empty_and_a_warm_compilation_cache_and_with_other_settings(tmp_path):
    empty = bits(tmp_path, **NOT_OPTIMISED)
    assert len(os.listdir(tmp_path)) >= 10, "programs are kept"
    threads = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    assert bits(tmp_path, **NOT_OPTIMISED, **threads, JAX_DEFAULT_PRNG_IMPL="rbg") == empty


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"JAX_DEFAULT_PRNG_IMPL": "rbg"},
        {"JAX_DEFAULT_PRNG_IMPL": "unsafe_rbg"},
        {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
    ],
    ids=str,
)
def test_with_programs_compiled_as_usual(tmp_path, settings):
    first = bits(tmp_path / "one")
    assert bits(tmp_path / "one", **settings) == first, "read from the cache"
    assert bits(tmp_path / "two", **settings) == first, "compiled again"
