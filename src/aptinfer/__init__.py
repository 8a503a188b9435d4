"""Simulation-based Bayesian inference with Automatic Posterior Transformation.

    import aptinfer as apt
    run = apt.infer(simulator, prior, x_o)
    run.posterior.sample(10_000)

Public names are imported when they are first used, so that worker processes and command-line help need
not load JAX.
"""

from typing import TYPE_CHECKING

from aptinfer.lazy import lazy

__version__ = "0.1.0"

_WHERE = {
    # the one call
    "infer": "run",
    "resume": "resuming",
    "side_by_side": "convoy",
    "open": "resuming",
    "Run": "run",
    # what the user brings
    "Prior": "priors",
    "box": "priors",
    "gaussian": "priors",
    "BijectivePrior": "priors",
    "CustomPrior": "priors",
    "BatchSimulator": "simulators",
    "Done": "given",
    "JaxSimulator": "simulators",
    "CommandSimulator": "commands",
    "Inline": "executors",
    "Processes": "executors",
    "Dask": "executors",
    # methods and their choices
    "APT": "methods.apt",
    "NPE": "methods.apt",
    "FMPE": "methods.fmpe",
    "SNPEA": "methods.snpe_a",
    "SNPEB": "methods.snpe_b",
    "SNL": "methods.snl",
    "SNRE": "methods.snre",
    "SMCABC": "methods.smc_abc",
    "RejectionABC": "methods.rejection_abc",
    "SyntheticLikelihood": "methods.synthetic_likelihood",
    "TSNPE": "methods.snpe_b",
    "Recipe": "methods.recipe",
    "distil": "methods.distil",
    "WeightUncertainty": "methods.weight_uncertainty",
    "Atomic": "methods.losses",
    "Combined": "methods.losses",
    "GaussianProposal": "methods.losses",
    "MixtureProposal": "methods.losses",
    "LastPosterior": "proposals",
    "Defensive": "proposals",
    "Truncated": "proposals",
    "Tempered": "proposals",
    "Active": "proposals",
    "Latent": "spaces",
    "Theta": "spaces",
    "Trainer": "train",
    "WhenSettled": "stopping",
    # networks
    "MDN": "estimators.mdn",
    "MAF": "estimators.flows",
    "NSF": "estimators.flows",
    "AutoregressiveMixture": "estimators.autoregressive",
    "RatioNetwork": "estimators.ratio",
    "VelocityNetwork": "estimators.velocity",
    "Ensemble": "estimators.ensemble",
    "Family": "estimators.stack",
    "Repeated": "estimators.repeated",
    "Shifted": "estimators.shifted",
    "Stack": "estimators.stack",
    "CNN": "estimators.convolutions",
    "Conv1D": "estimators.series",
    "GRU": "estimators.recurrent",
    "Transformer": "estimators.attention",
    "DeepSet": "estimators.sets",
    "SetTransformer": "estimators.attention",
    "ResidualMLP": "estimators.embeddings",
    "MLP": "estimators.embeddings",
    "Flatten": "estimators.embeddings",
    # results
    "Posterior": "posteriors",
    "load_posterior": "posteriors.loading",
    "ParticlePosterior": "posteriors",
    "History": "train",
    "RoundStarted": "sequential",
    "Simulated": "sequential",
    "Trained": "sequential",
    "WarmedUp": "overlap",
    "RoundFinished": "sequential",
    # what can go wrong
    "AptinferError": "errors",
    "SimulationError": "errors",
    "TrainingError": "errors",
    "SamplingError": "errors",
    "RunFileError": "errors",
    "SamplingWarning": "errors",
}
_MODULES = ("problems", "diagnostics", "samplers")

__all__ = [*_WHERE, *_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _WHERE, _MODULES)

if TYPE_CHECKING:
    from aptinfer import diagnostics as diagnostics
    from aptinfer import problems as problems
    from aptinfer import samplers as samplers
    from aptinfer.commands import CommandSimulator as CommandSimulator
    from aptinfer.convoy import side_by_side as side_by_side
    from aptinfer.errors import AptinferError as AptinferError
    from aptinfer.errors import RunFileError as RunFileError
    from aptinfer.errors import SamplingError as SamplingError
    from aptinfer.errors import SamplingWarning as SamplingWarning
    from aptinfer.errors import SimulationError as SimulationError
    from aptinfer.errors import TrainingError as TrainingError
    from aptinfer.estimators.attention import SetTransformer as SetTransformer
    from aptinfer.estimators.attention import Transformer as Transformer
    from aptinfer.estimators.autoregressive import AutoregressiveMixture as AutoregressiveMixture
    from aptinfer.estimators.convolutions import CNN as CNN
    from aptinfer.estimators.embeddings import MLP as MLP
    from aptinfer.estimators.embeddings import Flatten as Flatten
    from aptinfer.estimators.embeddings import ResidualMLP as ResidualMLP
    from aptinfer.estimators.ensemble import Ensemble as Ensemble
    from aptinfer.estimators.flows import MAF as MAF
    from aptinfer.estimators.flows import NSF as NSF
    from aptinfer.estimators.mdn import MDN as MDN
    from aptinfer.estimators.ratio import RatioNetwork as RatioNetwork
    from aptinfer.estimators.recurrent import GRU as GRU
    from aptinfer.estimators.repeated import Repeated as Repeated
    from aptinfer.estimators.series import Conv1D as Conv1D
    from aptinfer.estimators.sets import DeepSet as DeepSet
    from aptinfer.estimators.shifted import Shifted as Shifted
    from aptinfer.estimators.stack import Family as Family
    from aptinfer.estimators.stack import Stack as Stack
    from aptinfer.estimators.velocity import VelocityNetwork as VelocityNetwork
    from aptinfer.executors import Dask as Dask
    from aptinfer.executors import Inline as Inline
    from aptinfer.executors import Processes as Processes
    from aptinfer.given import Done as Done
    from aptinfer.methods.apt import APT as APT
    from aptinfer.methods.apt import NPE as NPE
    from aptinfer.methods.distil import distil as distil
    from aptinfer.methods.fmpe import FMPE as FMPE
    from aptinfer.methods.losses import Atomic as Atomic
    from aptinfer.methods.losses import Combined as Combined
    from aptinfer.methods.losses import GaussianProposal as GaussianProposal
    from aptinfer.methods.losses import MixtureProposal as MixtureProposal
    from aptinfer.methods.recipe import Recipe as Recipe
    from aptinfer.methods.rejection_abc import RejectionABC as RejectionABC
    from aptinfer.methods.smc_abc import SMCABC as SMCABC
    from aptinfer.methods.snl import SNL as SNL
    from aptinfer.methods.snpe_a import SNPEA as SNPEA
    from aptinfer.methods.snpe_b import SNPEB as SNPEB
    from aptinfer.methods.snpe_b import TSNPE as TSNPE
    from aptinfer.methods.snre import SNRE as SNRE
    from aptinfer.methods.synthetic_likelihood import SyntheticLikelihood as SyntheticLikelihood
    from aptinfer.methods.weight_uncertainty import WeightUncertainty as WeightUncertainty
    from aptinfer.overlap import WarmedUp as WarmedUp
    from aptinfer.posteriors import ParticlePosterior as ParticlePosterior
    from aptinfer.posteriors import Posterior as Posterior
    from aptinfer.posteriors.loading import load_posterior as load_posterior
    from aptinfer.priors import BijectivePrior as BijectivePrior
    from aptinfer.priors import CustomPrior as CustomPrior
    from aptinfer.priors import Prior as Prior
    from aptinfer.priors import box as box
    from aptinfer.priors import gaussian as gaussian
    from aptinfer.proposals import Active as Active
    from aptinfer.proposals import Defensive as Defensive
    from aptinfer.proposals import LastPosterior as LastPosterior
    from aptinfer.proposals import Tempered as Tempered
    from aptinfer.proposals import Truncated as Truncated
    from aptinfer.resuming import open as open
    from aptinfer.resuming import resume as resume
    from aptinfer.run import Run as Run
    from aptinfer.run import infer as infer
    from aptinfer.sequential import RoundFinished as RoundFinished
    from aptinfer.sequential import RoundStarted as RoundStarted
    from aptinfer.sequential import Simulated as Simulated
    from aptinfer.sequential import Trained as Trained
    from aptinfer.simulators import BatchSimulator as BatchSimulator
    from aptinfer.simulators import JaxSimulator as JaxSimulator
    from aptinfer.spaces import Latent as Latent
    from aptinfer.spaces import Theta as Theta
    from aptinfer.stopping import WhenSettled as WhenSettled
    from aptinfer.train import History as History
    from aptinfer.train import Trainer as Trainer
