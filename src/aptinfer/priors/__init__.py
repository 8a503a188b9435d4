"""Priors over named parameters, each with its exact bijection to z ~ N(0, I) where it has one.

    Prior(growth=dist.LogNormal(0, 1), death=dist.Uniform(0, 5))      independent marginals
    Prior(a=dist.Uniform(0, 1), b=lambda a: dist.Uniform(a, a + 1))   marginals given earlier ones
    box(low, high)                                                    uniform on a box
    gaussian(mean, covariance)                                        correlated Gaussian
    BijectivePrior(forward, inverse, log_prob, names)                 the user's own bijection
    CustomPrior(sample, log_prob, names)                              no bijection

For marginals, z_j = Phi^-1(F_j(theta_j | theta_1 ... theta_{j-1})): the map is triangular, so its
log-determinant is the sum of the marginals' and p(theta) their product.
"""

from aptinfer.priors.custom import BijectivePrior, CustomPrior
from aptinfer.priors.gaussian import GaussianPrior
from aptinfer.priors.joint import JointPrior
from aptinfer.priors.named import Prior, as_prior, box, gaussian

__all__ = [
    "BijectivePrior",
    "CustomPrior",
    "GaussianPrior",
    "JointPrior",
    "Prior",
    "as_prior",
    "box",
    "gaussian",
]
