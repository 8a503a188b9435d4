"""Benchmark worker for sbi. Run it with the Python of an environment that has sbi installed.

Every number comes from sbi's own `train()` and `sample()`; the only addition is a clock around
`_train_epoch`, so that validation is left out of the time per step.
"""

import math
import os
import platform
import tempfile
import time
import warnings

import numpy as np
import sbi
import torch
from sbi.inference import NLE_A, NPE_C
from sbi.inference.posteriors.base_posterior import NeuralPosterior
from sbi.neural_nets import likelihood_nn, posterior_nn
from sbi.neural_nets.embedding_nets import CNNEmbedding
from sbi.utils import BoxUniform
from sbi.utils.sbiutils import within_support

from workers import cases
from workers.protocol import serve

NEVER = 2**31 - 1


class TimedNPE(NPE_C):
    """NPE-C that notes the seconds per optimisation step of each training epoch."""

    def __init__(self, *args, clock=time.perf_counter, **kwargs):
        super().__init__(*args, show_progress_bars=False, **kwargs)
        self.seconds_per_step, self.clock = [], clock

    def _train_epoch(self, train_loader, *args, **kwargs):
        start = self.clock()
        loss = super()._train_epoch(train_loader, *args, **kwargs)
        self.seconds_per_step.append((self.clock() - start) / len(train_loader))
        return loss


def box_prior(dim, half_width):
    return BoxUniform(-half_width * torch.ones(dim), half_width * torch.ones(dim))


def density_estimator(settings):
    """sbi's builder for the estimator that the settings describe."""
    if settings["estimator"] == "mdn":
        return posterior_nn(
            model="mdn",
            hidden_features=settings["hidden"],
            num_components=settings["components"],
        )
    return posterior_nn(
        model="maf",
        hidden_features=settings["hidden"],
        num_transforms=settings["transforms"],
        num_blocks=settings["blocks"],
        embedding_net=embedding_net(settings.get("embedding")),
    )


def embedding_net(settings):
    if settings is None:
        return torch.nn.Identity()
    return CNNEmbedding(
        input_shape=tuple(settings["input_shape"]),
        in_channels=settings["in_channels"],
        out_channels_per_layer=settings["out_channels"],
        num_conv_layers=len(settings["out_channels"]),
        num_linear_layers=len(settings["linear_hidden"]) + 1,
        num_linear_units=settings["linear_hidden"][0],
        output_dim=settings["output_dim"],
        kernel_size=settings["kernel_size"],
        pool_kernel_size=settings["pool_size"],
    )


def training_arguments(settings):
    return {
        "num_atoms": settings.get("atoms", 10),
        "training_batch_size": settings["batch_size"],
        "learning_rate": settings["learning_rate"],
        "validation_fraction": settings["validation_fraction"],
        "clip_max_norm": settings["clip_max_norm"],
    }


def two_moons(theta):
    count = len(theta)
    angle = (torch.rand(count) - 0.5) * math.pi
    radius = 0.1 + 0.01 * torch.randn(count)
    shift = torch.stack([-(theta[:, 0] + theta[:, 1]).abs(), theta[:, 1] - theta[:, 0]], dim=1) / math.sqrt(2)
    crescent = torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], dim=1)
    return crescent + shift


def slcp(theta):
    s1, s2, rho = theta[:, 2:3] ** 2, theta[:, 3:4] ** 2, theta[:, 4:5].tanh()
    z = torch.randn(len(theta), 4, 2)
    first = theta[:, 0:1] + s1 * z[..., 0]
    second = theta[:, 1:2] + s2 * (rho * z[..., 0] + (1 - rho**2).sqrt() * z[..., 1])
    return torch.stack([first, second], dim=2).reshape(len(theta), 8)


SIMULATORS = {"two_moons": two_moons, "slcp": slcp}


def parameter_count(inference):
    return sum(p.numel() for p in inference._neural_net.parameters())


def train_briefly(inference, settings, resume=False):
    """One more epoch of sbi's training loop, or the first two of a round.

    sbi runs `max_num_epochs + 1` epochs and wants `max_num_epochs` to be at least 1.
    """
    inference.train(
        **training_arguments(settings),
        stop_after_epochs=NEVER,
        max_num_epochs=inference.epoch if resume else 1,
        resume_training=resume,
    )


def prepare_step(settings, seed):
    """An inference object in its first or second round, two epochs into training.

    The second round's proposal is a smaller box: with an MDN posterior for a proposal sbi would
    not use atoms, and the atomic loss itself does not look at the proposal.
    """
    dim = settings["dim_theta"]
    inference = TimedNPE(
        prior=box_prior(dim, cases.STEP_PRIOR_HALF_WIDTH),
        density_estimator=density_estimator(settings),
        clock=cases.clock(settings),
    )
    proposals = [None]
    if settings["loss"] == "atomic":
        proposals.append(box_prior(dim, cases.STEP_PROPOSAL_HALF_WIDTH))
    for proposal, (theta, x) in zip(proposals, cases.step_rounds(settings, seed), strict=True):
        inference.append_simulations(torch.from_numpy(theta), torch.from_numpy(x), proposal=proposal)
        train_briefly(inference, settings)
    if settings["loss"] == "atomic" and inference.use_non_atomic_loss:
        raise RuntimeError("sbi chose the non-atomic loss")
    return inference


def draw(distribution, count):
    """Samples without a progress bar, which a plain prior does not know about."""
    if isinstance(distribution, NeuralPosterior):
        return distribution.sample((count,), show_progress_bars=False)
    return distribution.sample((count,))


def run_rounds(settings):
    """Sequential inference on a task, with the seconds and epochs of every round."""
    task = cases.TASKS[settings["task"]]
    simulator = SIMULATORS[settings["task"]]
    x_o = torch.from_numpy(cases.observation(settings["task"]))
    prior = box_prior(task["dim_theta"], task["prior_half_width"])
    inference = TimedNPE(prior=prior, density_estimator=density_estimator(settings))
    posterior = proposal = prior
    sampling, training = [], []
    for _ in range(settings["rounds"]):
        start = time.perf_counter()
        theta = draw(proposal, settings["simulations_per_round"])
        sampled = time.perf_counter()
        inference.append_simulations(theta, simulator(theta), proposal=proposal)
        inference.train(**training_arguments(settings), stop_after_epochs=settings["stop_after_epochs"])
        posterior = proposal = inference.build_posterior().set_default_x(x_o)
        sampling.append(sampled - start)
        training.append(time.perf_counter() - sampled)
    details = {
        "epochs_per_round": inference.summary["epochs_trained"],
        "sampling_seconds_per_round": sampling,
        "training_seconds_per_round": training,
        "parameters": parameter_count(inference),
    }
    return posterior, details


def learn_likelihood(settings):
    """One round of neural likelihood estimation, and the posterior that sbi's MCMC samples."""
    task = cases.TASKS[settings["task"]]
    prior = box_prior(task["dim_theta"], task["prior_half_width"])
    inference = NLE_A(
        prior=prior,
        density_estimator=likelihood_nn(
            model="maf",
            hidden_features=settings["hidden"],
            num_transforms=settings["transforms"],
            num_blocks=settings["blocks"],
        ),
        show_progress_bars=False,
    )
    theta = prior.sample((settings["simulations_per_round"],))
    inference.append_simulations(theta, SIMULATORS[settings["task"]](theta))
    arguments = training_arguments(settings)
    del arguments["num_atoms"]
    inference.train(**arguments, stop_after_epochs=settings["stop_after_epochs"])
    posterior = inference.build_posterior(sample_with="mcmc", mcmc_method=settings["sampler"])
    posterior.set_default_x(torch.from_numpy(cases.observation(settings["task"])))
    return posterior, {
        "epochs_per_round": inference.summary["epochs_trained"],
        "parameters": parameter_count(inference),
    }


def acceptance_rate(posterior, draws=20_000):
    """Fraction of the network's raw draws that lie in the support of the prior."""
    raw = posterior.posterior_estimator.sample((draws,), condition=posterior.default_x)
    return within_support(posterior.prior, raw[:, 0]).float().mean().item()


class SbiBench:
    """The commands of the protocol, answered with sbi."""

    def __init__(self):
        self.prepared = {}

    def info(self):
        return {
            "library": "sbi",
            "versions": {
                "python": platform.python_version(),
                "sbi": sbi.__version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
            "threads": torch.get_num_threads(),
            "cores": len(os.sched_getaffinity(0)),
            "device": "cpu",
        }

    def prepare(self, case, settings, seed):
        torch.manual_seed(seed)
        start = time.perf_counter()
        details = {}
        if settings["kind"] == "step":
            inference = prepare_step(settings, seed)
            self.prepared[case] = inference
            details = {
                "parameters": parameter_count(inference),
                "steps_per_epoch": cases.training_rows(settings) // settings["batch_size"],
            }
        elif settings.get("learns") == "likelihood":
            self.prepared[case], details = learn_likelihood(settings)
        elif settings["kind"] == "sampling":
            posterior, details = run_rounds(settings)
            self.prepared[case] = posterior
            details["acceptance_rate"] = acceptance_rate(posterior)
        return {"seconds": time.perf_counter() - start, "details": details}

    def measure(self, case, settings, seed, repeat=1, samples_path=None):
        torch.manual_seed(seed)
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
        inference = self.prepared[case]
        train_briefly(inference, settings, resume=True)
        return inference.seconds_per_step[-1], {}

    def _measure_end_to_end(self, case, settings, samples_path):
        start = time.perf_counter()
        posterior, details = run_rounds(settings)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        samples = draw(posterior, settings["posterior_samples"])
        details["final_sampling_seconds"] = time.perf_counter() - start
        details["acceptance_rate"] = acceptance_rate(posterior)
        if samples_path is not None:
            np.save(samples_path, samples.numpy())
        return seconds, details

    def _measure_sampling(self, case, settings, samples_path):
        """Seconds for all samples; where time ran out, scaled up from those obtained."""
        wanted = settings["posterior_samples"]
        limits = {}
        if "max_sampling_seconds" in settings:  # of rejection; chains always end
            limits["max_sampling_time"] = settings["max_sampling_seconds"]
            limits["return_partial_on_timeout"] = True
        start = time.perf_counter()
        samples = self.prepared[case].sample((wanted,), show_progress_bars=False, **limits)
        elapsed = time.perf_counter() - start
        if samples_path is not None:
            np.save(samples_path, samples.numpy())
        details = {"elapsed_seconds": elapsed, "samples": len(samples)}
        return elapsed * wanted / len(samples), details


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Maximum number of epochs")
    warnings.filterwarnings("ignore", message="The proposal you passed is neither")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # sbi writes its TensorBoard log into the working directory
        serve(SbiBench())
