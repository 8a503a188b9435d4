"""Benchmark worker for aptinfer: the same commands and cases as `sbi_worker`.

* Step cases time `Trainer` as a run calls it: shuffling, batching, loss, gradient, clipping, Adam. Its
  epochs are one compiled program, so they are timed whole and divided by their steps. Compilation is left
  out. Validation cannot be, and counts against aptinfer: 1 % of the rows, one batch per epoch.
* End-to-end cases time `infer`, in a new process with an empty compilation cache, so that every
  compilation is included; only imports are not.
* Sampling cases time `posterior.sample` after a first call.
"""

import os
import platform
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context

import jax
import numpy as np

import aptinfer as apt
from aptinfer.estimators.ensemble import as_members, build_members
from aptinfer.keys import Key
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.protocols import Simulations
from aptinfer.rows import training_rows
from aptinfer.scaling import fit_scaling
from aptinfer.train import Trainer
from workers import cases
from workers.protocol import serve

STEP_VALIDATION = 0.01
STEP_EPOCHS = 10  # in one call: what it costs on the host is then small
MANY = 100_000  # epochs


def networks(settings):
    """Estimator and embedding with the layers of sbi's.

    sbi's MAF has one hidden layer more than blocks. Its MDN has two hidden layers with ReLU, which are an
    embedding here; ours computes whole matrices where sbi computes their upper triangles.
    """
    hidden = settings["hidden"]
    if settings["estimator"] == "mdn":
        return apt.MDN(settings["components"]), apt.MLP((hidden, hidden), jax.nn.relu)
    estimator = apt.MAF(layers=settings["transforms"], hidden=(hidden,) * (settings["blocks"] + 1))
    return estimator, convolutional(settings["embedding"]) if "embedding" in settings else apt.Flatten()


def convolutional(settings):
    """The network that `cases.CNN` describes."""
    return apt.CNN(
        channels=tuple(settings["out_channels"]),
        kernel=settings["kernel_size"],
        padding=settings["padding"],
        pool=settings["pool_size"],
        hidden=(*settings["linear_hidden"], settings["output_dim"]),
        activation=jax.nn.relu,
    )


def equal_trainer(settings, **choices):
    """sbi's way of training: plain Adam, no warm-up, no averaging, no learning-rate drops."""
    return Trainer(
        batch=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        clip=settings["clip_max_norm"],
        weight_decay=0.0,
        warmup=0,
        average=0.0,
        drops=0,
        early_patience=None,
        **choices,
    )


def parameter_count(estimator):
    return sum(leaf.size for leaf in jax.tree.leaves(as_members(estimator)[0]))


class Steps:
    """A trainer that runs a fixed number of epochs, with networks and rows of a step case."""

    def __init__(self, settings, seed):
        rounds = cases.step_rounds(settings, seed)
        dim, half_width = settings["dim_theta"], cases.STEP_PRIOR_HALF_WIDTH
        frame = apt.Theta().frame(apt.box([-half_width] * dim, [half_width] * dim), np.float32)
        theta, x = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        number = np.repeat(np.arange(len(rounds)), [len(theta) for theta, _ in rounds])
        value = frame.from_theta(theta)
        scaled = fit_scaling(rounds[0][1])(x)
        atomic = settings["loss"] == "atomic"
        self.loss = apt.Atomic(settings["atoms"]) if atomic else MaximumLikelihood()

        held_back = Trainer(validation=STEP_VALIDATION).validates(np.arange(len(theta))).sum()
        self.steps_per_epoch = int((len(theta) - held_back) // settings["batch_size"])
        self.trainer = equal_trainer(settings, validation=STEP_VALIDATION, epochs=STEP_EPOCHS, patience=MANY)
        self.rows = training_rows(
            Simulations(value, theta, number, number, scaled, np.ones(len(theta), bool)),
            frame.log_prior(value, theta.astype(np.float64)),
            None,
            capacity=len(theta),
            validates=self.trainer.validates,
            contrasts=atomic,
            rng=np.random.default_rng(seed),
        )
        estimator, embedding = networks(settings)
        self.estimator = build_members(Key((seed, 0)), estimator, embedding, dim, x.shape[1:])

    def train(self, seed):
        self.estimator, history = self.trainer(Key((seed, 1)), self.estimator, self.loss, self.rows)
        return history


def run_rounds(settings, seed):
    """Sequential inference on a task: the run, its seconds, and the epochs of every round."""
    problem = apt.problems.get(settings["task"])
    method = apt.SNL() if settings.get("learns") == "likelihood" else None
    if settings["ours"] == "equal":
        estimator, embedding = networks(settings)
        trainer = equal_trainer(settings, patience=settings["stop_after_epochs"], epochs=MANY)
        method = apt.APT(
            loss=apt.Atomic(settings["atoms"]), estimator=estimator, embedding=embedding, trainer=trainer
        )
    start = time.perf_counter()
    run = apt.infer(
        problem.simulator,
        problem.prior,
        cases.observation(settings["task"]),
        method=method,
        rounds=settings["rounds"],
        simulations=settings["simulations_per_round"],
        seed=seed,
        progress=False,
    )
    seconds = time.perf_counter() - start
    histories = [finished.history for finished in run.rounds]
    details = {
        "epochs_per_round": [history.epochs for history in histories],
        "training_seconds_per_round": [history.run_seconds for history in histories],
        "compile_seconds_per_round": [history.compile_seconds for history in histories],
    }
    if settings.get("learns") == "likelihood":
        details["parameters"] = parameter_count(run.posterior.model.estimator)
    else:
        details["parameters"] = parameter_count(run.posterior.estimator)
        details["acceptance_rate"] = run.posterior.acceptance[0]
    return run.posterior, seconds, details


def end_to_end(settings, seed, cache, samples_path):
    jax.config.update("jax_compilation_cache_dir", cache)
    posterior, seconds, details = run_rounds(settings, seed)
    start = time.perf_counter()
    samples = posterior.sample(settings["posterior_samples"], seed=seed)
    details["final_sampling_seconds"] = time.perf_counter() - start
    if samples_path is not None:
        np.save(samples_path, samples)
    return seconds, details


class AptinferBench:
    """The commands of the protocol, answered with aptinfer."""

    def __init__(self):
        self.prepared = {}

    def info(self):
        packages = ("aptinfer", "jax", "jaxlib", "equinox", "numpy")
        return {
            "library": "aptinfer",
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
            "cores": len(os.sched_getaffinity(0)),
            "device": jax.default_backend(),
        }

    def prepare(self, case, settings, seed):
        start = time.perf_counter()
        details = {}
        if settings["kind"] == "step":
            steps = self.prepared[case] = Steps(settings, seed)
            history = steps.train(seed)
            details = {
                "parameters": parameter_count(steps.estimator),
                "steps_per_epoch": steps.steps_per_epoch,
                "epochs_per_measurement": steps.trainer.epochs,
                "compile_seconds": history.compile_seconds,
            }
        elif settings["kind"] == "sampling":
            posterior, _, details = run_rounds(settings, seed)
            posterior.sample(settings["posterior_samples"], seed=seed)
            self.prepared[case] = posterior
        return {"seconds": time.perf_counter() - start, "details": details}

    def measure(self, case, settings, seed, repeat=1, samples_path=None):
        timed = {
            "step": self._measure_step,
            "end_to_end": self._measure_end_to_end,
            "sampling": self._measure_sampling,
        }[settings["kind"]]
        results = [timed(case, settings, seed + i, samples_path) for i in range(repeat)]
        seconds, details = zip(*results, strict=True)
        return {"seconds": list(seconds), "details": list(details)}

    def release(self, case):
        return {"released": self.prepared.pop(case, None) is not None}

    def _measure_step(self, case, settings, seed, samples_path):
        steps, clock = self.prepared[case], cases.clock(settings)
        start = clock()
        history = steps.train(seed)
        seconds = clock() - start
        if history.compile_seconds or history.skipped_steps:
            raise RuntimeError(f"compiled anew or skipped steps: {history}")
        return seconds / (history.epochs * steps.steps_per_epoch), {}

    def _measure_end_to_end(self, case, settings, seed, samples_path):
        with (
            tempfile.TemporaryDirectory() as cache,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        ):
            return pool.submit(end_to_end, settings, seed, cache, samples_path).result()

    def _measure_sampling(self, case, settings, seed, samples_path):
        start = time.perf_counter()
        samples = self.prepared[case].sample(settings["posterior_samples"], seed=seed)
        elapsed = time.perf_counter() - start
        if samples_path is not None:
            np.save(samples_path, samples)
        return elapsed, {"elapsed_seconds": elapsed, "samples": len(samples)}


if __name__ == "__main__":
    serve(AptinferBench())
