"""The paper's settings, as methods of this library.

Sources: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for likelihood-free inference",
ICML 2019 (appendix, "Experimental details"), and for what it leaves to them, the authors' published
experiments and the code of Papamakarios, Sterratt & Murray, "Sequential neural likelihood", AISTATS 2019.

All of them learn in theta, as the paper did: `apt.Theta()` standardises by the prior's own spread, an affine
map that is the same for every method. Draws outside the prior are drawn again, up to 10,000 times as in the
authors' code.
"""

from typing import Any

import jax.numpy as jnp

import aptinfer as apt

# Adam at a constant rate, gradients of norm 0.1 at most, and nothing that the paper does not have: no decay
# of weights, no average of them, no drops of the learning rate, and every round trained like the last.
PLAIN: dict[str, Any] = {"weight_decay": 0.0, "average": 0.0, "warmup": 0, "drops": 0, "early_patience": None}

THETA = apt.Theta(least_accepted=1e-4)
QUICK_EPOCHS = 40  # of a round at most, in quick runs


def cut(epochs: int, rounds: int) -> tuple[int, ...]:
    """Epochs of each round at most, as the authors had it for APT: a share that falls with its number."""
    return tuple(max(epochs // number, 1) for number in range(1, rounds + 1))


def trainer(
    epochs: int | tuple[int, ...], *, learning_rate: float = 1e-3, clip: float = 0.1, **others: Any
) -> apt.Trainer:
    """Minibatches of 100, a tenth of the rows held back, patience of 20 epochs: the choices for APT."""
    return apt.Trainer(
        batch=100, learning_rate=learning_rate, clip=clip, patience=20, epochs=epochs, **PLAIN, **others
    )


def tanh(*units: int) -> apt.MLP:
    """Fully connected tanh layers; the paper has two of 50 nearly everywhere."""
    return apt.MLP(units or (50, 50), activation=jnp.tanh)


def maf_apt(epochs: int | tuple[int, ...], estimator: Any = None, *, loss: Any = None) -> apt.APT:
    """5 MADEs of 2 x 50 tanh units on x itself, atomic with M = 100: all of a minibatch against all."""
    return apt.APT(
        loss=loss or apt.Atomic(atoms=100),
        estimator=estimator or apt.MAF(),
        embedding=apt.Flatten(),
        space=THETA,
        trainer=trainer(epochs),
    )


def mdn_apt(components: int, epochs: int, loss: Any = None, embedding: Any = None, **others: Any) -> apt.APT:
    """A mixture of Gaussians from 2 x 50 tanh units; mixture proposals in closed form by default."""
    chosen: dict[str, Any] = {"space": THETA, "trainer": trainer(epochs)} | others
    return apt.APT(
        loss=loss or apt.MixtureProposal(),
        estimator=apt.MDN(components),
        embedding=embedding or tanh(),
        **chosen,
    )


def snpe_a(
    components: int, epochs: int, *, precision: float | None = None, embedding: Any = None
) -> apt.SNPEA:
    """One Gaussian until the last round, then `components`. `precision`: of uncertain weights' prior."""
    return apt.SNPEA(
        estimator=apt.MDN(components),
        embedding=embedding or tanh(),
        space=THETA,
        trainer=trainer(epochs),
        uncertainty=None if precision is None else apt.WeightUncertainty(precision),
    )


def snpe_b(
    components: int, epochs: int, *, precision: float | None = None, embedding: Any = None
) -> apt.SNPEB:
    """Each row weighted by its own round's proposal, as published."""
    return apt.SNPEB(
        estimator=apt.MDN(components),
        embedding=embedding or tanh(),
        space=THETA,
        trainer=trainer(epochs),
        own_weights=True,
        uncertainty=None if precision is None else apt.WeightUncertainty(precision),
    )


def snl(epochs: int = 2000, estimator: Any = None, *, sampler: Any = None) -> apt.SNL:
    """A flow of x given theta, learning rate 1e-4, 5 % held back; a single slice-sampling chain (thin 10)."""
    return apt.SNL(
        estimator=estimator or apt.MAF(),
        embedding=apt.Flatten(),
        space=THETA,
        trainer=trainer(epochs, learning_rate=1e-4, clip=5.0, validation=0.05),
        sampler=sampler or apt.samplers.SingleSlice(),
    )


def usual(quick: bool) -> dict[str, Any]:
    """The methods where the paper has the same ones: for SLCP, Lotka-Volterra and M/G/1."""
    most = QUICK_EPOCHS if quick else 5000
    return {
        "APT": maf_apt(min(most, 500)),
        "SNL": snl(min(most, 2000)),
        "SNPE-A": snpe_a(8, min(most, 1000), precision=0.01),
        "SNPE-B": snpe_b(8, min(most, 1000), precision=0.01),
        "aptinfer default": apt.APT(),
    }
