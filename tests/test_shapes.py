"""Shapes in annotations are checked while tests run, and only then."""

import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from aptinfer.estimators.mog import Mixture
from aptinfer.methods.weight_uncertainty import Gaussians
from aptinfer.shuffling import random_order


def test_wrong_shapes_are_refused():
    two, three = jnp.zeros(2, jnp.float32), jnp.zeros(3, jnp.float32)
    with pytest.raises(jaxtyping.TypeCheckError, match="log_sd"):
        Gaussians(two, three)
    with pytest.raises(jaxtyping.TypeCheckError, match="count"):
        random_order(None, 2, jnp.zeros(2, jnp.int32))  # pyright: ignore[reportArgumentType]


def test_host_arrays_are_welcome():
    arrays: Any = (np.zeros(s, np.float32) for s in ((2,), (2, 3), (2, 3, 3)))
    mixture = Mixture(*arrays)
    assert mixture.means.shape == (2, 3)


def test_other_processes_do_not_check():
    code = "from aptinfer.methods.weight_uncertainty import Gaussians; import numpy as np;"
    code += "Gaussians(np.zeros(2), np.zeros(3))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
