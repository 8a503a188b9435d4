"""Estimates of p(theta | x_o): NumPy in, NumPy out, in theta."""

from aptinfer.posteriors.base import Posterior as Posterior
from aptinfer.posteriors.direct import DirectPosterior as DirectPosterior
from aptinfer.posteriors.particles import ParticlePosterior as ParticlePosterior
from aptinfer.posteriors.sampled import SampledPosterior as SampledPosterior
