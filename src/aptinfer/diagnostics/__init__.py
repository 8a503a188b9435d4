"""Is the posterior right? Each file answers with one kind of evidence.

Names are imported when they are first used, so that `import aptinfer.diagnostics` does not load JAX.
"""

from typing import TYPE_CHECKING

from aptinfer.lazy import lazy

_WHERE = {
    "c2st": "two_sample",
    "c2st_published": "two_sample",
    "mmd2": "two_sample",
    "sliced_wasserstein": "two_sample",
    "kde_log_density": "kde",
    "median_distance": "distance",
    "expected_coverage": "coverage",
}
_MODULES = ("two_sample",)

__all__ = [*_WHERE, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _WHERE, _MODULES)

if TYPE_CHECKING:
    from aptinfer.diagnostics import two_sample as two_sample
    from aptinfer.diagnostics.coverage import expected_coverage as expected_coverage
    from aptinfer.diagnostics.distance import median_distance as median_distance
    from aptinfer.diagnostics.kde import kde_log_density as kde_log_density
    from aptinfer.diagnostics.two_sample import c2st as c2st
    from aptinfer.diagnostics.two_sample import c2st_published as c2st_published
    from aptinfer.diagnostics.two_sample import mmd2 as mmd2
    from aptinfer.diagnostics.two_sample import sliced_wasserstein as sliced_wasserstein
