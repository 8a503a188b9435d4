"""Pictures of posteriors. Figures are made without pyplot, so nothing of the user's plots is touched."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter

from aptinfer.checks import finite_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aptinfer.posteriors import Posterior
    from aptinfer.run import Run

DRAWS = 20_000
BINS = 60
INK, FILL, TRUTH = "#1f3b5c", "#5b8cc0", "#d1495b"
LEVELS = (0.5, 0.9)  # shares of the posterior that the contours enclose


def pairs(
    posterior: "Posterior", path: "str | os.PathLike[str] | None" = None, truth: object = None
) -> "Figure":
    """Every parameter's marginal on the diagonal, every pair's density below it.

    Args:
        posterior: at one observation.
        path: where to save the figure, if anywhere; the ending decides the format.
        truth: known parameters to mark, shape (dim,).

    Returns:
        Matplotlib's figure. Contours enclose 50 % and 90 % of the posterior.
    """
    if posterior.batched:
        raise ValueError(
            f"the posterior is at {len(posterior.observation)} observations, and a picture shows one. "
            f"Choose it: posterior.given(x)."
        )
    names, dim = posterior.names, len(posterior.names)
    marks = _checked_truth(truth, names)
    draws = posterior.sample(DRAWS, seed=0)
    ranges = [_range(draws[:, j], None if marks is None else marks[j]) for j in range(dim)]
    size = min(2.2 * dim + 0.6, 18.0)
    figure = _figure((size, size))
    axes: Any = figure.subplots(dim, dim, squeeze=False)
    for row in range(dim):
        for column in range(dim):
            axis = axes[row, column]
            if column > row:
                axis.set_visible(False)
                continue
            if column == row:
                _marginal(axis, draws[:, row], ranges[row])
            else:
                _density(axis, draws[:, [column, row]], (ranges[column], ranges[row]))
                axis.set_ylim(ranges[row])
            axis.set_xlim(ranges[column])
            _label(axis, names, row, column)
            if marks is not None:
                axis.axvline(marks[column], color=TRUTH, linewidth=1)
                if column < row:
                    axis.axhline(marks[row], color=TRUTH, linewidth=1)
    figure.align_labels()
    return _saved(figure, path)


def rounds_and_exact(
    run: "Run",
    exact: np.ndarray,
    path: "str | os.PathLike[str] | None" = None,
    *,
    shown: Sequence[int] = (1, 2, 4, 10),
) -> "Figure":
    """The first two parameters' posterior after some rounds, and exact draws beside them.

    Args:
        run: a run with at least two parameters.
        exact: draws from the exact posterior, shape (n, dim).
        path: where to save the figure, if anywhere.
        shown: rounds to show, counted from 1; those the run has not reached are left out, its last never.
    """
    last = run.rounds[-1].number + 1
    chosen = sorted({number for number in shown if number < last} | {last})
    clouds = [run.rounds[number - 1].posterior.sample(len(exact), seed=0)[:, :2] for number in chosen]
    titles = [
        f"round {number}\n{sum(map(run.plan.size, range(number))):,} simulations".replace(",", "\u2009")
        for number in chosen
    ]
    ranges = tuple(_range(exact[:, j], None, margin=0.35) for j in range(2))
    figure = _figure((2.5 * (len(chosen) + 1), 3.1))
    axes: Any = figure.subplots(1, len(chosen) + 1, squeeze=False, sharex=True, sharey=True)[0]
    for axis, cloud, title in zip(axes[:-1], clouds, titles, strict=True):
        _cloud(axis, cloud, INK)
        axis.set_title(title, fontsize=10)
    _cloud(axes[-1], exact[:, :2], TRUTH)
    axes[-1].set_title("exact\nposterior", fontsize=10)
    for axis in axes:
        axis.set(xlim=ranges[0], ylim=ranges[1], xlabel=run.posterior.names[0])
        axis.set_box_aspect(1)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel(run.posterior.names[1])
    return _saved(figure, path)


def _figure(size: tuple[float, float]) -> "Figure":
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is not installed: pip install aptinfer[plot]"
        ) from (error)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _saved(figure: "Figure", path: "str | os.PathLike[str] | None") -> "Figure":
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _checked_truth(truth: object, names: Sequence[str]) -> np.ndarray | None:
    if truth is None:
        return None
    marks = finite_array("truth", truth)
    if marks.shape != (len(names),):
        raise ValueError(
            f"truth must have one value for each of {', '.join(names)}; got shape {marks.shape}."
        )
    return marks


def _range(draws: np.ndarray, mark: float | None, margin: float = 0.05) -> tuple[float, float]:
    """Where all but a thousandth of the draws lie on either side, and the mark, with a margin."""
    low, high = np.quantile(draws, [0.001, 0.999])
    if mark is not None:
        low, high = min(low, mark), max(high, mark)
    room = margin * (high - low) or 0.05 * max(abs(high), 1.0)
    return float(low - room), float(high + room)


def _marginal(axis: "Axes", draws: np.ndarray, span: tuple[float, float]) -> None:
    axis.hist(draws, bins=BINS, range=span, density=True, histtype="stepfilled", color=FILL, alpha=0.6)
    axis.hist(draws, bins=BINS, range=span, density=True, histtype="step", color=INK, linewidth=1)
    axis.set_yticks([])


def _density(axis: "Axes", draws: np.ndarray, spans: Sequence[tuple[float, float]]) -> None:
    """The smoothed histogram as an image, with contours that enclose given shares of the draws."""
    counts, *edges = np.histogram2d(*draws.T, bins=BINS, range=spans)
    smooth = gaussian_filter(counts, 1.0).T
    axis.imshow(
        smooth,
        extent=(*spans[0], *spans[1]),
        origin="lower",
        aspect="auto",
        cmap="Blues",
        interpolation="bilinear",
    )
    heights = np.sort(smooth.ravel())[::-1]
    shares = np.cumsum(heights) / heights.sum()
    levels = sorted({float(heights[np.searchsorted(shares, level)]) for level in LEVELS})
    centres = [(e[1:] + e[:-1]) / 2 for e in edges]
    axis.contour(*centres, smooth, levels=levels, colors=INK, linewidths=0.8)


def _cloud(axis: "Axes", draws: np.ndarray, colour: str) -> None:
    axis.scatter(*draws.T, s=1.2, color=colour, alpha=0.25, linewidths=0, rasterized=True)


def _label(axis: "Axes", names: Sequence[str], row: int, column: int) -> None:
    """Names and numbers on the outer axes only."""
    lowest, leftmost = row == len(names) - 1, column == 0 < row
    axis.tick_params(labelsize=8, labelbottom=lowest, labelleft=leftmost)
    axis.tick_params(axis="x", rotation=30)
    if lowest:
        axis.set_xlabel(names[column])
    if leftmost:
        axis.set_ylabel(names[row])
