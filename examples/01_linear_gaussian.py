"""1. A linear-Gaussian model, where the answer is known.

Three parameters with a correlated Gaussian prior, measured through a matrix with Gaussian noise:

    theta ~ N(m, S),    x = A theta + e,    e ~ N(0, s^2 I).

The posterior is Gaussian too, with precision S^-1 + A'A / s^2, so we can see how close APT comes.

    python examples/01_linear_gaussian.py
"""

import argparse

import numpy as np

import aptinfer as apt

# 1. The model. A simulator is a function of one draw; it gets a generator of its own and theta.

A = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.5], [0.3, 0.0, 1.0], [1.0, 1.0, 1.0]])
NOISE = 0.3


def simulator(rng, theta):
    return A @ theta + NOISE * rng.standard_normal(len(A))


# 2. The prior, with names that follow the parameters everywhere.

MEAN = np.array([0.0, 1.0, -1.0])
COVARIANCE = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])
PRIOR = apt.gaussian(MEAN, COVARIANCE, names=["offset", "gain", "drift"])


# 3. What we hope to find: completing the square.


def exact_posterior(x_o):
    prior_precision = np.linalg.inv(COVARIANCE)
    precision = prior_precision + A.T @ A / NOISE**2
    mean = np.linalg.solve(precision, prior_precision @ MEAN + A.T @ x_o / NOISE**2)
    return mean, np.linalg.inv(precision)


def main(rounds: int, simulations: int) -> float:
    """Run APT, compare, and return the largest error of a mean in exact standard deviations."""
    truth = np.array([0.5, 0.5, -0.5])
    x_o = simulator(np.random.default_rng(0), truth)

    # 4. A mixture density network of one component is a Gaussian whose mean and covariance depend on x: all
    # this posterior needs. Its loss has a closed form, which APT chooses by itself.
    method = apt.APT(estimator=apt.MDN(components=1))
    run = apt.infer(simulator, PRIOR, x_o, method=method, rounds=rounds, simulations=simulations)
    print(run.summary())

    # 5. The comparison. An error of 0.1 standard deviations is invisible in a plot.
    mean, covariance = exact_posterior(x_o)
    spread = np.sqrt(np.diag(covariance))
    error = (run.posterior.mean() - mean) / spread
    print("\nparameter  exact mean  exact std  error of the mean (in std)  estimated std / exact std")
    for row in zip(PRIOR.names, mean, spread, error, run.posterior.std() / spread, strict=True):
        print("{:9s}  {:10.3f}  {:9.3f}  {:26.3f}  {:25.3f}".format(*row))
    return float(np.abs(error).max())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--simulations", type=int, default=1000, help="per round")
    chosen = parser.parse_args()
    main(chosen.rounds, chosen.simulations)
