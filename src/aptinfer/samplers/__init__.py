"""Draws from posteriors that are known only through an unnormalised log density.

A target is log p(z) + log L(params, z); a sampler is a small record of settings that is called:

    draws = Automatic()(key, target, params, n)
    draws.values                      # (n, dim)
    draws.r_hat, draws.effective      # did it work?

`params` is an argument of the compiled program, so that trained weights and observations may change from
call to call without compiling anything again. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from aptinfer.lazy import lazy

_WHERE = {
    "Automatic": "automatic",
    "TemperedSMC": "tempered_smc",
    "Resampled": "resampled",
    "Slice": "slices",
    "SingleSlice": "single_slice",
    "NUTS": "nuts",
    "Target": "target",
    "Sampler": "draws",
    "Draws": "draws",
}

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _WHERE)

if TYPE_CHECKING:
    from aptinfer.samplers.automatic import Automatic as Automatic
    from aptinfer.samplers.draws import Draws as Draws
    from aptinfer.samplers.draws import Sampler as Sampler
    from aptinfer.samplers.nuts import NUTS as NUTS
    from aptinfer.samplers.resampled import Resampled as Resampled
    from aptinfer.samplers.single_slice import SingleSlice as SingleSlice
    from aptinfer.samplers.slices import Slice as Slice
    from aptinfer.samplers.target import Target as Target
    from aptinfer.samplers.tempered_smc import TemperedSMC as TemperedSMC
