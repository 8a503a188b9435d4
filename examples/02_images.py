"""2. Images straight into APT: rock, paper, scissors.

Three species hunt each other in a ring on a lattice of 32 x 32 cells, and x is one image of their densities.
We want the rates at which they breed, kill and spread. Nobody has to think of summary statistics: a
convolutional network learns them together with the posterior.

    python examples/02_images.py
"""

import argparse
import time

import numpy as np

import aptinfer as apt
from aptinfer.problems import rock_paper_scissors

# 1. The problem of the APT paper, on a smaller lattice. x has shape (3, 32, 32): (channels, height, width).

PROBLEM = rock_paper_scissors.make(size=32)


def main(rounds: int, simulations: int) -> np.ndarray:
    """Run APT and return how many posterior standard deviations the truth is from the mean."""
    started = time.perf_counter()

    # 2. An embedding is chosen from the shape of x when none is named: convolutions, for an image. The
    # paper's own network is for images of 100 x 100; here two convolutions are enough.
    embedding = apt.CNN(channels=(8, 16), hidden=(32,))
    method = apt.APT(estimator=apt.MDN(components=1), embedding=embedding)
    run = apt.infer(
        PROBLEM.simulator,
        PROBLEM.prior,
        PROBLEM.observation,
        method=method,
        rounds=rounds,
        simulations=simulations,
    )
    print(run.summary())

    # 3. The image was simulated, so we know what should be found.
    error = (run.posterior.mean() - PROBLEM.truth) / run.posterior.std()
    print("\nparameter        truth  error of the mean (in posterior std)")
    for row in zip(PROBLEM.prior.names, PROBLEM.truth, error, strict=True):
        print("{:15s}  {:5.2f}  {:36.2f}".format(*row))
    print(f"\n{time.perf_counter() - started:.0f} seconds")
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simulations", type=int, default=500, help="per round")
    chosen = parser.parse_args()
    main(chosen.rounds, chosen.simulations)
