"""Peak memory of a training on many images: 10,000 of 3 x 100 x 100 with the paper's convolutional network.

The images are 1.1 GiB in float32. They are made up from theta, so that nothing but memory is measured.

    python benchmarks/memory.py
    python benchmarks/memory.py --device-memory 2e8    # streamed
"""

import argparse
import json
import resource
import sys
import time

import numpy as np

import aptinfer as apt


def pattern(rng, thetas):
    """Noise around theta, as float32; made in place."""
    x = rng.standard_normal((len(thetas), 3, 100, 100), np.float32)
    x += thetas[:, :, None, None].astype(np.float32)
    return x


def main(simulations: int, rounds: int, epochs: int, device_memory: float | None) -> dict:
    network = apt.problems.get("rock_paper_scissors").network
    trainer = apt.Trainer(epochs=epochs, device_memory=device_memory)
    method = apt.APT(**network, trainer=trainer)
    started = time.perf_counter()
    run = apt.infer(
        apt.BatchSimulator(pattern, chunk=50),
        apt.box([-1, -1, -1], [1, 1, 1]),
        np.zeros((3, 100, 100)),
        method=method,
        rounds=rounds,
        simulations=simulations // rounds,
        progress=False,
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "images": simulations,
        "rounds": rounds,
        "device_memory": device_memory,
        "peak_gib": round(peak / 2**30, 2),
        "seconds": round(time.perf_counter() - started, 1),
        "losses": [float(r.history.validation_loss[-1].mean()) for r in run.rounds if r.history],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--simulations", type=int, default=10_000, help="in all rounds together")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1, help="per round")
    parser.add_argument("--device-memory", type=float, default=None, help="bytes; more data are streamed")
    chosen = parser.parse_args()
    print(json.dumps(main(chosen.simulations, chosen.rounds, chosen.epochs, chosen.device_memory)))
