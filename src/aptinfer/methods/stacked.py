r"""Several posteriors of different kinds, learned from the same rows and weighted by rows held back.

Each family is trained alone, with the method's own loss, and its score at a row is minus that loss: log q
while all rows come from the prior, and then how sure it is of the right answer to the atomic loss's question.
Scores make weights as in `estimators.stack`: nobody has to choose a family.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aptinfer.epochs import held_back_losses
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import each_member
from aptinfer.estimators.stack import Stacked, of_family, stacking_weights, telling
from aptinfer.keys import Key
from aptinfer.methods.losses import Loss
from aptinfer.precision import precise
from aptinfer.rows import TrainingRows
from aptinfer.train import History

MOST = 2000  # rows that are asked


def with_others(
    first: tuple[Embedded, History],
    stacked: Stacked,
    train: Callable[[Key, Embedded], tuple[Embedded, History]],
    key: Key,
    loss: Loss,
    rows: TrainingRows,
    batch: int,
) -> tuple[Stacked, History]:
    """The stack, its first family trained already, and the history of the family with the largest weight."""
    others = [train(of_family(key, k), one) for k, one in enumerate(stacked.families[1:], 1)]
    families, histories = zip(first, *others, strict=True)
    weights = stacking_weights(-_losses(families, loss, rows, batch))
    return Stacked.of(families, weights), histories[int(weights.argmax())]


def _losses(families: tuple[Embedded, ...], loss: Loss, rows: TrainingRows, size: int) -> np.ndarray:
    """Of each family at rows held back, those of proposals if they are enough: (families, rows)."""
    n = int(rows.n_validation)
    assert rows.x is not None
    on_device = jax.device_put(rows.without_x())  # once, for all parts
    found, counted, index = [], [], []
    for i in range(-(-min(n, MOST) // size)):
        part = rows.validation[(i * size + np.arange(size)) % n]
        # The host gathers x, which may be too large for the device.
        losses, count = _part(families, loss, on_device, rows.x[part], np.int32(i))
        found.append(losses)
        counted.append(count)
        index.append(part)
    chosen = telling(np.concatenate(counted), np.asarray(rows.source)[np.concatenate(index)])
    return np.concatenate(found, axis=1)[:, chosen].astype(np.float64)


@eqx.filter_jit
@precise
def _part(families: tuple[Embedded, ...], loss: Loss, rows: TrainingRows, x, i):
    def held_back(one: Embedded):
        return held_back_losses(loss, one, rows, i, len(x), x)

    found = [each_member(family, held_back) for family in families]
    return jnp.stack([losses.mean(axis=0) for losses, _ in found]), found[0][1][0]
