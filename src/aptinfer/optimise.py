"""The parameters of highest posterior density."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from aptinfer.keys import Key

if TYPE_CHECKING:
    from aptinfer.posteriors import Posterior

STARTS = 2000
CLIMBS = 3


def highest_density(posterior: "Posterior", seed: int) -> np.ndarray:
    """Climb from the best few of many draws, in the estimator's coordinates.

    The density that counts is the one over theta. Its gradient comes from differences over a hundredth of the
    posterior's own width, evaluated as one batch: smaller steps would drown in float32.
    """
    frame = posterior.frame
    values, theta = posterior.draw(Key((seed,)), STARTS)
    values = values.astype(np.float64)
    heights = posterior.log_prob(theta)
    width = np.maximum(values.std(axis=0), 1e-6)
    offsets = np.concatenate([np.zeros((1, len(width))), np.diag(width), -np.diag(width)]) / 100

    def depth_and_slope(value):
        around = value + offsets
        height = posterior.log_prob(frame.to_theta(around))
        height = np.where(np.isfinite(height), height, heights.min())
        ahead, behind = np.split(height[1:], 2)
        return -height[0], -(ahead - behind) / (2 * width / 100)

    best, best_height = theta[np.argmax(heights)], heights.max()
    for start in values[np.argsort(-heights)[:CLIMBS]]:
        found = minimize(depth_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 100})
        top = frame.to_theta(found.x[None])
        height = posterior.log_prob(top)[0]
        if height > best_height:
            best, best_height = top[0], height
    return best
