"""The benchmark cases: settings, data and reference posteriors shared by both libraries.

Only NumPy is imported here, so that every environment can load it. The orchestrator sends the
settings of a case with each command; workers hold no settings of their own.
"""

import time

import numpy as np

# sbi's defaults for density estimators and training, written out so that both sides match them.
MAF = {
    "estimator": "maf",
    "transforms": 5,
    "hidden": 50,
    "blocks": 2,
    "activation": "tanh",
    "permutation": "random",
}
MDN = {"estimator": "mdn", "components": 10, "hidden": 50}
TRAINING = {
    "batch_size": 200,
    "learning_rate": 5e-4,
    "clip_max_norm": 5.0,
    "validation_fraction": 0.1,
    "stop_after_epochs": 20,
}

# Every convolution has stride 1 and padding 1 and is followed by ReLU and max pooling; every
# linear layer, the last one too, is followed by ReLU. 1x32x32 -> 6x15x15 -> 12x6x6 -> 50 -> 20.
CNN = {
    "input_shape": [32, 32],
    "in_channels": 1,
    "out_channels": [6, 12],
    "kernel_size": 5,
    "stride": 1,
    "padding": 1,
    "pool_size": 2,
    "linear_hidden": [50],
    "output_dim": 20,
    "activation": "relu",
}

# `ours` says how aptinfer runs a task: "equal" with the networks and the training above, "default" as
# `infer` does when nothing is said. sbi's runs do not depend on it.
_TWO_MOONS = {
    "kind": "end_to_end",
    "unit": "s",
    "task": "two_moons",
    **MAF,
    **TRAINING,
    "atoms": 10,
    "rounds": 10,
    "simulations_per_round": 1_000,
    "posterior_samples": 10_000,
}
_STEP = {"kind": "step", "unit": "s per step", "dim_theta": 5, "x_shape": [10], **TRAINING}

CASES = {
    "first_round_step": {**_STEP, **MAF, "loss": "maximum likelihood", "rows": 10_000},
    "atomic_step_10": {**_STEP, **MAF, "loss": "atomic", "atoms": 10, "rows": 10_000},
    "atomic_step_100": {
        **_STEP,
        **MAF,
        "loss": "atomic",
        "atoms": 100,
        "batch_size": 100,
        "rows": 2_000,
    },
    "mdn_atomic_step": {**_STEP, **MDN, "loss": "atomic", "atoms": 10, "rows": 10_000},
    "cnn_atomic_step": {
        **_STEP,
        **MAF,
        "loss": "atomic",
        "atoms": 10,
        "x_shape": [1, 32, 32],
        "embedding": CNN,
        "rows": 2_000,
    },
    "two_moons_equal": {**_TWO_MOONS, "ours": "equal"},
    "two_moons_default": {**_TWO_MOONS, "ours": "default"},
    "slcp_sampling": {
        "kind": "sampling",
        "unit": "s",
        "task": "slcp",
        "ours": "default",
        **MAF,
        **TRAINING,
        "atoms": 10,
        "rounds": 6,
        "simulations_per_round": 1_000,
        "posterior_samples": 10_000,
        "max_sampling_seconds": 300,
    },
    # sbi's own sampler of several chains at once; both libraries learn from one round of prior draws.
    "likelihood_sampling": {
        "kind": "sampling",
        "unit": "s",
        "task": "two_moons",
        "learns": "likelihood",
        "sampler": "slice_np_vectorized",
        "ours": "default",
        **MAF,
        **TRAINING,
        "rounds": 1,
        "simulations_per_round": 10_000,
        "posterior_samples": 10_000,
    },
}

# Half-widths of the uniform distributions, all centred at zero.
STEP_PRIOR_HALF_WIDTH = 2.0
STEP_PROPOSAL_HALF_WIDTH = 1.0
TASKS = {
    "two_moons": {"dim_theta": 2, "prior_half_width": 1.0, "x_o": [0.0, 0.0]},
    "slcp": {"dim_theta": 5, "prior_half_width": 3.0},
}
SLCP_THETA_O = np.array([0.7, -2.9, -1.0, -0.9, 0.6])


def clock(settings):
    """What steps are timed with: the wall's clock, or the time that the processor gave to the process."""
    return time.process_time if settings.get("clock") == "processor" else time.perf_counter


def training_rows(settings):
    """Number of rows that a step case trains on, the validation rows taken off."""
    return int((1 - settings["validation_fraction"]) * settings["rows"])


def step_rounds(settings, seed):
    """The (theta, x) pairs of each round of a step case, with x = theta W + noise.

    The first-round case has one round, from the prior. The atomic cases have two of equal size,
    the second from a smaller box.
    """
    half_widths = [STEP_PRIOR_HALF_WIDTH]
    if settings["loss"] == "atomic":
        half_widths.append(STEP_PROPOSAL_HALF_WIDTH)
    rows, dim = settings["rows"] // len(half_widths), settings["dim_theta"]
    size = int(np.prod(settings["x_shape"]))
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(dim, size)) / np.sqrt(dim)
    rounds = []
    for half_width in half_widths:
        theta = rng.uniform(-half_width, half_width, size=(rows, dim))
        x = (theta @ weights + rng.normal(size=(rows, size))).reshape(rows, *settings["x_shape"])
        rounds.append((theta.astype(np.float32), x.astype(np.float32)))
    return rounds


def observation(task):
    """The observation x_o of a task."""
    if task == "slcp":
        return slcp_numpy(SLCP_THETA_O, np.random.default_rng(1))
    return np.array(TASKS[task]["x_o"], dtype=np.float32)


def slcp_numpy(theta, rng):
    """One SLCP simulation: four draws from a bivariate normal whose moments theta sets."""
    s1, s2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
    z = rng.normal(size=(4, 2))
    first = theta[0] + s1 * z[:, 0]
    second = theta[1] + s2 * (rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1])
    return np.stack([first, second], axis=1).reshape(-1).astype(np.float32)


def two_moons_posterior(count, rng):
    """Exact posterior draws of two moons at x_o = (0, 0).

    The simulator is x = p + f(theta) with f linear on either side of theta_1 + theta_2 = 0, and
    the crescent of p lies wholly in the image of the prior box; so each draw of p gives two
    equally probable parameters.
    """
    angle = rng.uniform(-np.pi / 2, np.pi / 2, size=count)
    radius = rng.normal(0.1, 0.01, size=count)
    p1, p2 = radius * np.cos(angle) + 0.25, radius * np.sin(angle)
    total = rng.choice([-1.0, 1.0], size=count) * np.sqrt(2) * p1
    difference = -np.sqrt(2) * p2
    return np.stack([(total - difference) / 2, (total + difference) / 2], axis=1)
