"""Draws from posteriors that are known only through an unnormalised log density.

A target is log p(z) + log L(params, z); a sampler is a small record of settings that is called:

    draws = Automatic()(key, target, params, n)
    draws.values                      # (n, dim)
    draws.r_hat, draws.effective      # did it work?

`params` is an argument of the compiled program, so that trained weights and observations may change from
call to call without compiling anything again. Names are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        from aptinfer.checks import nearest

        raise AttributeError(f"module 'aptinfer.samplers' has no {name!r}. {nearest(name, __all__)}")
    value = getattr(importlib.import_module(f"aptinfer.samplers.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


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
