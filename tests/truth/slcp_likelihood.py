"""SNL on SLCP, ten rounds of 1000 simulations, at one of the published observations; prints one JSON line.

    python tests/truth/slcp_likelihood.py --observation 1 --reference shared/reference/slcp.npz

Published SNL (the benchmark's SNLE) has a mean C2ST of 0.715 over the observations with as many simulations.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.diagnostics import c2st

PUBLISHED_SCORE = 0.715


def measured(
    known: dict[str, np.ndarray], observation: int, method: Any = None, seed: int = 0
) -> dict[str, Any]:
    """C2ST of 10,000 draws at observation 1, 2, ... and the seconds that the run and the draws took."""
    problem = apt.problems.get("slcp")
    x_o, exact = known["observations"][observation - 1], known["reference_samples"][observation - 1]
    started = time.perf_counter()
    method = apt.SNL() if method is None else method
    run = apt.infer(problem.simulator, problem.prior, x_o, method=method, seed=seed, progress=False)
    trained = time.perf_counter()
    theta = run.posterior.sample(len(exact), seed=1)
    drawn = time.perf_counter()
    return {
        "observation": observation,
        "seed": seed,
        "c2st": c2st(theta, exact),
        "seconds_run": trained - started,
        "seconds_sampling": drawn - trained,
        "r_hat": run.rounds[-1].notes["r_hat"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--observation", type=int, required=True, help="1 to 5")
    parser.add_argument("--reference", type=Path, required=True, help="slcp.npz, published draws")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with np.load(options.reference) as archive:
        print(json.dumps(measured(dict(archive), options.observation, seed=options.seed)), flush=True)
