"""How close do simulations come to the observation? The median distance, one number per round.

Simulations from a round's proposal come closer to x_o as the proposal narrows, down to the simulator's
own noise. The distance is Euclidean in units in which every statistic counts alike:

    median_i | (x_i - x_o) / scale |.

References: Papamakarios et al., "Sequential neural likelihood", AISTATS 2019; Greenberg et al.,
"Automatic posterior transformation", ICML 2019, figure 4.
"""

import numpy as np

from aptinfer import checks
from aptinfer.diagnostics import arrays

__all__ = ["median_distance"]


@checks.suggests_keywords
def median_distance(simulations: object, observation: object, *, scale: object = None) -> float:
    """Median Euclidean distance of `simulations` to the `observation`.

    Rows with a NaN or an infinity are failed simulations, and left out. For another metric, such as a
    whitening matrix, transform both arguments first.

    Args:
        simulations: `(n, *event)` array of simulated data; for a round's curve, those of its proposal.
        observation: array of shape `event`.
        scale: units of the statistics, such as their standard deviations under the prior: a number or an
            array of shape `event`. None for 1.

    Returns:
        The median distance over the simulations that did not fail.

    Example:
        >>> median_distance([[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]], [0.0, 0.0])
        2.0
    """
    x_o = checks.finite_array("observation", observation)
    x = checks.numeric_array("simulations", simulations)
    if x.ndim == 0 or x.shape[1:] != x_o.shape:
        raise ValueError(
            f"simulations must have shape (n, *event), where event is the observation's shape, {x_o.shape}; "
            f"got shape {x.shape}."
        )
    difference = (x - x_o).reshape(len(x), -1)
    if scale is not None:
        difference = difference / arrays.positive("scale", scale, x_o.size)
    done = difference[np.all(np.isfinite(difference), axis=1)]
    if len(done) == 0:
        raise ValueError(
            f"simulations must have at least one row without NaN or infinity; got {len(x)} rows, all failed."
        )
    return float(np.median(np.linalg.norm(done, axis=1)))
