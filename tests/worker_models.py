"""Simulators that worker processes can import without JAX."""

import os
import signal
import time
from math import erf, sqrt

import numpy as np


def noisy(rng, theta):
    return theta + rng.standard_normal(2)


def with_global_state(theta):
    return theta + np.random.standard_normal(2)  # noqa: NPY002


def gammas(rng, theta):
    """Rejection inside: a row draws as many numbers as it happens to need."""
    return rng.gamma(np.abs(theta) + 0.1, size=(50, 2)).sum(axis=0)


def linear_algebra(rng, theta):
    """Added up in another order on another number of BLAS threads."""
    long, matrix = rng.standard_normal(100_000), rng.standard_normal((200, 200))
    return np.array([long @ long, np.linalg.solve(matrix, matrix[0]).sum()]) + theta


def many(rng, thetas):
    return thetas + rng.gamma(2.0, size=thetas.shape).astype(np.float32)


def misbehaving(rng, theta):
    """The first parameter decides: 5 % each hang, crash, raise, return NaN; the rest is well."""
    kind = int(theta[0] * 20)
    if kind == 0:
        time.sleep(1000)
    if kind == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 2:
        raise ValueError("no equilibrium")
    return np.full(2, np.nan) if kind == 3 else noisy(rng, theta)


NOISE, EDGE, MOST = 0.5, 0.78, 0.23  # N(0, 1) is beyond EDGE with probability 0.22


def kind_of_trouble(rng, theta):
    """Which of four ways to fail; 4: none. The chance of each rises from 0 to MOST where theta[0] is EDGE."""
    chance = MOST * 0.5 * (1 + erf(8 * (theta[0] - EDGE) / sqrt(2)))
    return int(min(rng.uniform() / max(chance, 1e-9), 4))


def troubled(rng, theta):
    """Hangs, crashes, raises or returns NaN, 5 % of N(0, I) each; otherwise theta and noise."""
    kind = kind_of_trouble(rng, theta)
    if kind == 0:
        time.sleep(1000)
    if kind == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 2:
        raise ValueError(f"no equilibrium at theta = {theta}")
    x = theta + NOISE * rng.standard_normal(2)
    return x * np.nan if kind == 3 else x


class Diary:
    """Writes down every call in a folder, then takes its time, or crashes as often as theta says."""

    def __init__(self, folder, seconds=0.0):
        self.folder, self.seconds = str(folder), seconds

    def __call__(self, rng, theta):
        row, crashes = int(theta[0]), int(theta[1])
        calls = sum(name.startswith(f"{row}-") for name in os.listdir(self.folder))
        with open(f"{self.folder}/{row}-{calls}-{os.getpid()}", "w"):
            pass
        time.sleep(self.seconds)
        if calls < crashes:
            os.kill(os.getpid(), signal.SIGKILL)
        return theta + rng.standard_normal(2)
