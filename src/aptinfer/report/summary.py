"""A run in words: the posterior's marginals, the rounds, and one line of settings."""

from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from aptinfer.posteriors import Posterior
    from aptinfer.run import Run
    from aptinfer.sequential import RoundFinished

QUANTILES = (0.05, 0.5, 0.95)


class Table(NamedTuple):
    """Cells already written out, to be set as plain text or as Markdown. The first column is a name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Columns aligned with spaces."""
        return "\n".join("  ".join(cells).rstrip() for cells in self._aligned())

    def markdown(self) -> str:
        """A Markdown table, readable as it stands."""
        header, *rows = self._aligned()
        rule = ["-" * len(header[0]), *("-" * (len(cell) - 1) + ":" for cell in header[1:])]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))

    def _aligned(self) -> list[list[str]]:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
            for line in lines
        ]


class Note(NamedTuple):
    """A round's number to watch: its name among the notes, the title of its column, and how it is written."""

    name: str
    title: str
    form: str
    factor: float = 1.0

    def written(self, number: float | None) -> str:
        return "" if number is None else self.form.format(self.factor * number)


NOTES = (
    Note("acceptance", "inside prior", "{:.3g} %", 100),
    Note("share_far", "far tails", "{:.3g} %", 100),
    Note("effective_rows", "effective rows", "{:.0f}"),
    Note("not_positive_definite", "not positive definite", "{:.0f}"),
    Note("population", "population", "{:.0f}"),
    Note("eps", "eps", "{:.3g}"),
    Note("accepted", "accepted", "{:.3g} %", 100),
    Note("effective_size", "effective draws", "{:.0f}"),
    Note("r_hat", "R-hat", "{:.3f}"),
)
SHOWN = 5  # rounds at either end of a table that would be too long


def summarise(run: "Run") -> str:
    """The run as plain text."""
    last, planned = run.rounds[-1].number + 1, run.plan.rounds
    ended = "" if last == planned else f", {'interrupted' if run.interrupted else 'stopped'} there"
    return "\n".join(
        [
            f"Posterior after round {last} of {planned}{ended}",
            "",
            marginals(run.posterior).text(),
            "",
            "Rounds",
            "",
            rounds(run).text(),
            "",
            settings(run),
        ]
    )


def marginals(posterior: "Posterior") -> Table:
    """Mean, standard deviation and quantiles of each parameter."""
    if posterior.batched:
        raise ValueError(
            f"the posterior is at {len(posterior.observation)} observations, and a table shows one. "
            f"Choose it: posterior.given(x)."
        )
    numbers = np.stack([posterior.mean(), posterior.std(), *posterior.quantiles(QUANTILES)], axis=1)
    header = ("parameter", "mean", "std", *(f"{100 * q:g} %" for q in QUANTILES))
    written = [[name, *_significant(line)] for name, line in zip(posterior.names, numbers, strict=True)]
    return Table(header, written)


def rounds(run: "Run") -> Table:
    """What each round cost, its numbers to watch, and where its training ended.

    The loss is the best on validation rows, averaged over an ensemble. Round 1 scores -log q, later rounds
    the method's own loss: compare epochs of a round, not rounds. Of many rounds the first and last are shown.
    """
    notes = [note for note in NOTES if note.name in run.rounds[-1].notes]
    trained = run.rounds[-1].history is not None
    header = (
        "round",
        "simulations",
        "failed",
        *(("epochs", "validation loss", "compile s", "run s") if trained else ()),
        *(note.title for note in notes),
        *(("training ended",) if trained else ()),
    )
    lines = [_round_cells(finished, run.plan.size(finished.number), notes) for finished in run.rounds]
    if len(lines) > 4 * SHOWN:
        lines[SHOWN:-SHOWN] = [["..."] + [""] * (len(header) - 1)]
    return Table(header, lines)


def settings(run: "Run") -> str:
    """What was run, on one line; settings left at their defaults are not named."""
    rows = sum(map(run.plan.size, range(len(run.rounds))))
    return (
        f"{describe(run.method)}; prior on {', '.join(run.posterior.names)}; "
        f"{rows} simulations in {len(run.rounds)} rounds; seed {run.plan.seed}."
    )


def describe(value: Any) -> str:
    """A record of settings by its name and whatever differs from the defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        named = [
            f"{f.name}={describe(getattr(value, f.name))}"
            for f in fields(value)
            if f.repr and getattr(value, f.name) != _default(f)
        ]
        return f"{type(value).__name__}({', '.join(named)})"
    if isinstance(value, str | int | float | tuple | None):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _round_cells(finished: "RoundFinished", simulations: int, notes: list[Note]) -> list[str]:
    history = finished.history
    training = history and [
        str(history.epochs),
        f"{np.mean(history.best_loss):.3f}",
        f"{history.compile_seconds:.1f}",
        f"{history.run_seconds:.1f}",
    ]
    return [
        str(finished.number + 1),
        str(simulations),
        str(finished.failed),
        *(training or ()),
        *(note.written(finished.notes.get(note.name)) for note in notes),
        *((history.stop_reason,) if history else ()),
    ]


def _significant(numbers: np.ndarray) -> list[str]:
    """Numbers of one parameter, to three digits of its standard deviation (the second of them)."""
    spread = abs(float(numbers[1]))
    if not np.isfinite(numbers).all() or spread == 0:
        return [f"{v:.4g}" for v in numbers]
    digits = 2 - int(np.floor(np.log10(spread)))
    largest = float(np.abs(numbers).max())
    if digits > 6 or largest >= 1e7:
        return [f"{v:.{max(0, digits + int(np.floor(np.log10(largest))))}e}" for v in numbers]
    return [f"{v:.{max(digits, 0)}f}" for v in numbers]
