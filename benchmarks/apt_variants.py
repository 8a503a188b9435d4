"""APT with one of its choices changed at a time, and the table of what each change does.

The runs are made by `sbibm.py`; `python benchmarks/apt_variants.py` prints the table of their lines.
"""

import pathlib
import statistics
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax

import aptinfer as apt
from aptinfer.estimators.density import log_prob_pairs
from sbibm_table import TASKS, read

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "apt_ablations.jsonl"
BASE = "apt"


class Variant(NamedTuple):
    """A method, and how its budget is spent.

    Attributes:
        method: None is what `budget=` chooses.
        rounds: of equal size; None: as many as `budget=` has.
        at_first: share of the budget that is drawn from the prior before the rounds begin.
    """

    method: Any
    rounds: int | None = None
    at_first: float = 0.0


class Masked(eqx.Module):
    """An embedding whose features are multiplied by a row's own mask."""

    embedding: eqx.Module
    mask: jax.Array

    def __call__(self, x):
        return self.mask * self.embedding(x)  # pyright: ignore[reportCallIssue]


@dataclass(frozen=True)
class Dropout(apt.Atomic):
    """The atomic loss, with a share of the embedding's features left out in every row of every training step.

    The first round learns by maximum likelihood, and without it.
    """

    rate: float = 0.0

    def __call__(self, estimator, batch):
        if batch.key is None:  # validation
            return super().__call__(estimator, batch)
        features = jax.eval_shape(estimator.embedding, batch.x[0]).shape
        kept = jax.random.bernoulli(batch.key, 1 - self.rate, (len(batch.x), *features))

        def row(mask, x, candidates):
            masked = eqx.tree_at(lambda e: e.embedding, estimator, Masked(estimator.embedding, mask))
            return log_prob_pairs(masked, x[None], candidates[None])[0]

        log_ratio = jax.vmap(row)(kept / (1 - self.rate), batch.x, batch.candidates) - batch.log_prior
        return jax.nn.logsumexp(log_ratio, axis=1) - log_ratio[:, 0]


def variants() -> dict[str, dict[str, Variant]]:
    """By the choice that is changed, then by name."""
    usual = apt.APT()

    def trained(**settings: Any) -> Variant:
        return Variant(replace(usual, trainer=replace(usual.trainer, **settings)))

    def changed(**settings: Any) -> Variant:
        return Variant(replace(usual, **settings))

    mixture = apt.AutoregressiveMixture()
    return {
        "coordinates": {"theta space": changed(space=apt.Theta())},
        "embedding": {
            "no embedding": changed(embedding=apt.Flatten()),
            "embedding of 16 units": changed(embedding=apt.MLP((16, 16))),
            "embedding of 256 units": changed(embedding=apt.MLP((256, 256))),
            "embedding beside x": changed(embedding=apt.MLP(skip=True)),
            "residual embedding": changed(embedding=apt.ResidualMLP()),
        },
        "estimator": {
            "affine flow": changed(estimator=apt.MAF()),
            "spline flow": changed(estimator=apt.NSF()),
            "mixture network, closed form": changed(estimator=apt.MDN(8)),
            "mixture network, atomic": changed(estimator=apt.MDN(8), loss=apt.Atomic()),
            "3 conditional components": changed(estimator=apt.AutoregressiveMixture(3)),
            "stack of four kinds": changed(estimator=apt.Stack()),
        },
        "ensemble": {
            "ensemble of 3": changed(estimator=apt.Ensemble(mixture, 3)),
            "ensemble of 5": changed(estimator=apt.Ensemble(mixture, 5)),
        },
        "atoms and batch": {
            "2 atoms": changed(loss=apt.Atomic(2)),
            "30 atoms": changed(loss=apt.Atomic(30)),
            "100 atoms": changed(loss=apt.Atomic(100)),
            "batch of 50": trained(batch=50),
            "batch of 200": trained(batch=200),
        },
        "loss": {"combined loss": changed(loss=apt.Combined())},
        "training": {
            "no weight decay": trained(weight_decay=0.0),
            "weight decay of 0.3": trained(weight_decay=0.3),
            "weights not averaged": trained(average=0.0),
            "rate never dropped": trained(drops=0),
            "every round like the last": trained(early_patience=None),
            "fresh start per round": trained(restart=True),
            "dropout of 10 %": changed(loss=Dropout(rate=0.1)),
            "dropout of 30 %": changed(loss=Dropout(rate=0.3)),
        },
        "rounds": {
            "2 rounds": Variant(usual, rounds=2),
            "5 rounds": Variant(usual, rounds=5),
            "20 rounds": Variant(usual, rounds=20),
            "half of all at first": Variant(usual, at_first=0.5),
        },
        "proposals": {
            "defensive": changed(proposal=apt.Defensive()),
            "truncated, atomic": changed(proposal=apt.Truncated()),
            "truncated, maximum likelihood": Variant(apt.TSNPE()),
            "tempered, power 0.5": changed(proposal=apt.Tempered(0.5)),
        },
    }


def by_name() -> dict[str, Variant]:
    """All of them, with APT itself."""
    named = {f"apt, {name}": one for group in variants().values() for name, one in group.items()}
    return {BASE: Variant(apt.APT()), **named}


def table(lines: list[dict[str, Any]]) -> str:
    """Mean C2ST of APT, and by how much it is higher with each change, over the runs that both have."""
    cells = sorted({(line["budget"], TASKS.index(line["task"])) for line in lines})
    scores = {
        (x["method"], x["budget"], TASKS.index(x["task"]), x["observation"], x["seed"]): x["c2st"]
        for x in lines
    }

    def entry(name: str, cell: tuple[int, int]) -> str:
        runs = [key[3:] for key in scores if key[:3] == (name, *cell) and (BASE, *key[1:]) in scores]
        if not runs:
            return ""
        mean = statistics.mean(scores[name, *cell, *run] for run in runs)
        if name == BASE:
            return f"{mean:.3f}"
        return f"{mean - statistics.mean(scores[BASE, *cell, *run] for run in runs):+.3f}"

    heads = ["choice", "", *(f"{TASKS[task]}, {budget:,}" for budget, task in cells), "mean change"]
    rows = [["", "APT", *(entry(BASE, cell) for cell in cells), ""]]
    for choice, group in variants().items():
        for name in group:
            entries = [entry(f"apt, {name}", cell) for cell in cells]
            some = [float(text) for text in entries if text]
            rows.append([choice, name, *entries, f"{statistics.mean(some):+.3f}" if some else ""])
    marks = ["---", "---", *["---:"] * (len(cells) + 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, marks, *rows])


if __name__ == "__main__":
    print(table(read(RESULTS)))
