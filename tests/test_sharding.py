"""Training on several devices: the result of one, and each has its part of the work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import aptinfer as apt
import sharded
from aptinfer.errors import TrainingError
from aptinfer.methods.learning import fitting
from aptinfer.protocols import Simulations
from aptinfer.storage.specification import described_method, differences

FLAG = "--xla_force_host_platform_device_count=8"


def on_eight(case):
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("sharded.py")), case],
        env=os.environ | {"XLA_FLAGS": FLAG, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def slow(*cases):
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    "case", ["in memory", *slow("streamed", "streamed ensemble", "closed form", "spline flow")]
)
def test_eight_devices_train_what_one_does(case):
    """Rounding, of relative size 1e-7 in float32, grows by less than a thousand in eight epochs."""
    found = on_eight(case)
    assert found["devices"] == 8
    assert found["loss"] < 1e-4
    assert found["draws"] < 1e-3
    rows = {shape.split(",")[0] for shape in found["products"] if shape.endswith(",6")}
    assert "16" not in rows, "a device works on the whole batch of 16 rows"
    assert "2" in rows


def test_a_batch_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match=r"batch \(100\) must be a multiple of devices \(8\).*batch=104"):
        apt.Trainer(devices=8)
    with pytest.raises(ValueError, match="Trainer devices must be"):
        apt.Trainer(devices=0)


def test_more_devices_than_there_are_are_refused_before_anything_is_simulated(monkeypatch):
    many = 16 * jax.device_count()
    monkeypatch.setattr(sharded, "simulate", lambda rng, theta: pytest.fail("simulated"))
    method = apt.APT(trainer=apt.Trainer(batch=many, devices=many))
    with pytest.raises(ValueError, match=rf"devices={many}, but this process has {jax.device_count()} of"):
        apt.infer(sharded.simulate, apt.box([-1], [1]), [0.0], method=method, progress=False)


def test_a_run_file_goes_on_with_the_devices_of_another_machine():
    def written(**machine):
        return {"method": described_method(apt.NPE(trainer=apt.Trainer(batch=16, **machine)))}

    assert not differences(written(), written(devices=8, device_memory=1e9))
    assert differences(written(), {"method": described_method(apt.NPE(trainer=apt.Trainer(batch=8)))})


def test_a_small_first_round_is_divided_too():
    nothing = np.zeros((30, 1), np.float32)
    rows = Simulations(nothing, nothing, nothing[:, 0], np.zeros(30, int), nothing, np.ones(30, bool))
    assert fitting(apt.Trainer(batch=96, devices=8), rows).batch == 24  # of 27 rows
    with pytest.raises(TrainingError, match="devices=32, and the first round has 27 rows to train on"):
        fitting(apt.Trainer(batch=96, devices=32), rows)
