"""Benchmark worker for aptinfer: the same commands and cases as `sbi_worker`.

What each case must time, to be comparable with sbi:

* step cases: one epoch of the training loop as `fit` runs it (shuffling, batching, loss,
  gradient, clipping, Adam), validation and compilation left out, divided by the number of
  steps. The data are `cases.step_rounds(settings, seed)`; `prepare` runs two epochs of each
  round first. The atoms are drawn anew at every step from the other rows of the mini-batch.
  The values must be on the host before the clock stops.
* end-to-end cases: everything from the first prior draw to the last trained round, compilation
  included. The final posterior draws are timed apart.
* sampling cases: `prepare` trains; only drawing posterior samples is timed.
"""

import os
import platform
from importlib.metadata import version

from workers.protocol import serve


class AptinferBench:
    """The commands of the protocol, answered with aptinfer."""

    def __init__(self):
        self.prepared = {}

    def info(self):
        packages = ("aptinfer", "jax", "jaxlib", "equinox", "optax", "numpy")
        return {
            "library": "aptinfer",
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
            "cores": len(os.sched_getaffinity(0)),
            "device": "cpu",
        }

    def prepare(self, case, settings, seed):
        """Return {"seconds": float, "details": {"parameters": int, "steps_per_epoch": int}}."""
        raise NotImplementedError(case)

    def measure(self, case, settings, seed, repeat=1, samples_path=None):
        """Return {"seconds": [...], "details": [...]}; see `protocol`."""
        timed = {
            "step": self._measure_step,
            "end_to_end": self._measure_end_to_end,
            "sampling": self._measure_sampling,
        }[settings["kind"]]
        results = [timed(case, settings, samples_path) for _ in range(repeat)]
        seconds, details = zip(*results, strict=True)
        return {"seconds": list(seconds), "details": list(details)}

    def release(self, case):
        return {"released": self.prepared.pop(case, None) is not None}

    def _measure_step(self, case, settings, samples_path):
        """Return (seconds per step of one epoch, {})."""
        raise NotImplementedError(case)

    def _measure_end_to_end(self, case, settings, samples_path):
        """Return (seconds, details) with the details that `sbi_worker.run_rounds` names."""
        raise NotImplementedError(case)

    def _measure_sampling(self, case, settings, samples_path):
        """Return (seconds, {"elapsed_seconds": float, "samples": int})."""
        raise NotImplementedError(case)


if __name__ == "__main__":
    serve(AptinferBench())
