"""A process with eight devices: prints how far its results are from those of one device, as JSON.

Started by `test_sharding.py`; the name of a case is its argument.
"""

import json
import re
import sys
from typing import Any

import jax
import numpy as np

import aptinfer as apt
from aptinfer import programs

BATCH, ROW = 16, 4 * 6  # bytes of one x
CASES: dict[str, dict[str, Any]] = {
    "in memory": {"estimator": apt.Ensemble(apt.MDN(1), 2), "loss": apt.Atomic(BATCH), "rounds": 2},
    "streamed": {"device_memory": 2 * 4 * BATCH * ROW, "loss": apt.Atomic(5)},
    "streamed ensemble": {
        "estimator": apt.Ensemble(apt.MDN(1), 2),
        "device_memory": 2 * 2 * 4 * BATCH * ROW,
        "rounds": 2,
    },
    "closed form": {"loss": apt.MixtureProposal(), "estimator": apt.MDN(2), "rounds": 2},
    "spline flow": {"estimator": apt.NSF(layers=1), "loss": apt.Atomic(BATCH), "rounds": 2},
}


def simulate(rng, theta):
    return None if theta[0] > 0.8 else theta + 0.1 * rng.standard_normal((3, 2))


def infer(devices, *, loss=None, estimator=None, device_memory=None, rounds=1):
    trainer = apt.Trainer(epochs=8, batch=BATCH, warmup=5, device_memory=device_memory, devices=devices)
    method = apt.APT(loss, estimator or apt.MDN(1), embedding=apt.MLP((6,)), trainer=trainer)
    settings = {"method": method, "rounds": rounds, "simulations": 150, "progress": False}
    return apt.infer(simulate, apt.box([-1, -1], [1, 1]), np.zeros((3, 2)), **settings)


def differences(one: apt.Run, eight: apt.Run) -> dict[str, float]:
    largest = {"loss": 0.0, "draws": 0.0}
    for a, b in zip(one.rounds, eight.rounds, strict=True):
        assert a.history is not None
        assert b.history is not None
        apart = np.abs(a.history.validation_loss - b.history.validation_loss).max()
        largest["loss"] = max(largest["loss"], float(apart))
        apart = np.abs(a.posterior.sample(200) - b.posterior.sample(200)).max()
        largest["draws"] = max(largest["draws"], float(apart))
    return largest


if __name__ == "__main__":
    case = CASES[sys.argv[1]]
    eight = infer(8, **case)
    texts = [program.compiled.as_text() for program in programs._PROGRAMS.values()]
    products = {shape for text in texts for shape in re.findall(r"= f32\[([\d,]*)\]\S* dot\(", text)}
    found = differences(infer(None, **case), eight)
    print(json.dumps({"devices": jax.device_count(), "products": sorted(products), **found}))
