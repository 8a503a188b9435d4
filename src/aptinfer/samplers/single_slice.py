"""The paper's sampler: one slice-sampling chain that persists across rounds.

Reference: Papamakarios, Sterratt & Murray, "Sequential neural likelihood", AISTATS 2019; Greenberg et al.,
"Automatic posterior transformation", ICML 2019, appendix.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers import slice_kernel
from aptinfer.samplers.draws import Draws, agreement, checked
from aptinfer.samplers.target import (
    Target,
    log_likelihoods,
    possible_prior_draws,
    refuse_prior_on_host,
)

FEWEST_RECORDS = 100  # so that R-hat and effective size can be told


@suggests_keywords
@dataclass(frozen=True)
class SingleSlice:
    """One chain of coordinate-wise slice sampling, as published. It stays in a mode that is far from others.

    The chain starts at a prior draw and tunes its widths once. `draws.state` is where it ends; passed in
    again, it goes on from there.

    Args:
        thin: sweeps per recorded draw.
        tune: sweeps that tune the widths, when the chain starts.
        warmup: recorded draws that are thrown away at every call.
    """

    thin: int = 10
    tune: int = 50
    warmup: int = 20

    def __post_init__(self):
        positive_int("SingleSlice thin", self.thin)
        positive_int("SingleSlice tune", self.tune)
        positive_int("SingleSlice warmup", self.warmup, minimum=0)

    @property
    def block(self) -> int:
        """Draws of one call; the next one goes on where the chain is. The paper's rounds have as many."""
        return 1000

    def __call__(
        self, key: Key, target: Target, params: Any, n: int, *, state: slice_kernel.Chains | None = None
    ) -> Draws:
        n = positive_int("n", n)
        refuse_prior_on_host(target, "SingleSlice")
        key_start, key_tune, key_warm, key_draw = (key.child(i) for i in range(4))
        if state is None:
            z, _ = possible_prior_draws(key_start, target, params, 1)
            state = slice_kernel.tuned(key_tune, target, params, z, tune=self.tune, sweeps=self.thin)
        elif not np.isfinite(log_likelihoods(target, params, state.z)).all():
            # This round's networks find impossible where the last round's chain ended.
            z, _ = possible_prior_draws(key_start, target, params, 1)
            state = slice_kernel.Chains(z, state.widths)
        state, _, _ = slice_kernel.advance(
            key_warm, target, params, state, sweeps=self.thin, records=self.warmup
        )
        records = max(n, FEWEST_RECORDS)
        state, chain, turns = slice_kernel.advance(
            key_draw, target, params, state, sweeps=self.thin, records=records
        )
        r_hat, effective = agreement(chain)
        draws = Draws(chain[0, -n:], r_hat, effective, {"evaluations": turns}, state)
        return checked(draws, f"Thin more, SingleSlice(thin={10 * self.thin}), or let Automatic() sample.")
