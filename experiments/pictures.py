"""What the pictures share: colours of methods, curves by round, clouds and pairs of parameters."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter

from experiments.lines import Line
from experiments.results import Results, mean_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "APT": "#1b6ca8",
    "MAF-APT": "#1b6ca8",
    "RNN-APT": "#1b8a8f",
    "MDN-APT": "#58a4d8",
    "APT, statistics": "#b5478f",
    "APT, combined loss": "#58a4d8",
    "APT, rounds not cut": "#58a4d8",
    "MDN-APT, atomic": "#58a4d8",
    "SNL": "#e08214",
    "SNL, particles": "#f2c18d",
    "SNL, particles, wider": "#b35806",
    "SNPE-A": "#5aa05a",
    "SNPE-B": "#8c6bb1",
    "SMC-ABC": "#7f7f7f",
}
OURS = "#111111"
TRUTH = "#d1495b"
GREY = "#9a9a9a"
LEVELS = (0.5, 0.9)  # shares that contours enclose


def colour(method: str) -> str:
    return COLOURS.get(method, OURS)


def figure(width: float, height: float) -> Any:
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rcParams.update(
        {
            "font.size": 8.5,
            "axes.titlesize": 9,
            "axes.labelsize": 8.5,
            "xtick.labelsize": 7.5,
            "ytick.labelsize": 7.5,
            "legend.fontsize": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.7,
            "svg.fonttype": "none",
        }
    )
    made = Figure(figsize=(width, height), facecolor="white")
    made.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    FigureCanvasAgg(made)
    return made


def save(made: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, dpi=140, metadata={"Software": None})


def curves(
    axis: "Axes",
    results: Results,
    name: str,
    metric: str,
    methods: Iterable[str],
    problem: str | None = None,
    *,
    label: str = "",
) -> None:
    """Mean and standard error over seeds, round by round."""
    from matplotlib.ticker import MaxNLocator

    for method in methods:
        by_round = results.by_round(name, method, metric, problem)
        means = {number: mean_of(values) for number, values in by_round.items()}
        means = {number: mean for number, mean in means.items() if mean.count}
        if not means:
            continue
        x = np.array(list(means))
        y, error = (np.array([getattr(mean, part) for mean in means.values()]) for part in ("value", "error"))
        counts = {mean.count for mean in means.values()}
        ours = method.startswith("aptinfer")
        axis.plot(
            x,
            y,
            color=colour(method),
            linewidth=1.4,
            linestyle=(0, (4, 2)) if ours else "-",
            marker="o",
            markersize=2.4,
            label=f"{method} ({max(counts)})",
        )
        axis.fill_between(x, y - error, y + error, color=colour(method), alpha=0.18, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round")
    axis.set_ylabel(label)
    axis.margins(x=0.03)


def dots(
    axis: "Axes", results: Results, name: str, metric: str, methods: Sequence[str], problem: str | None = None
) -> None:
    """The last round of every seed, and their mean."""
    shown = [method for method in methods if len(results.at_end(name, method, metric, problem))]
    for place, method in enumerate(shown):
        values = results.at_end(name, method, metric, problem)
        spread = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else [0]
        axis.scatter(place + np.asarray(spread), values, s=11, color=colour(method), alpha=0.6, linewidths=0)
        axis.hlines(np.mean(values), place - 0.3, place + 0.3, color=colour(method), linewidth=2)
    axis.set_xticks(range(len(shown)), shown, rotation=35, ha="right")
    axis.set_xlim(-0.6, len(shown) - 0.4)


def legend(made: "Figure", axis: "Axes", columns: int = 6) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        made.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            title="method (number of seeds)",
            title_fontsize=7.5,
        )


def small_title(axis: "Axes", text: str) -> None:
    axis.set_title(text.replace(",", "\u2009"), fontsize=6.5, pad=2)


def cloud(axis: "Axes", draws: np.ndarray, shade: str, size: float = 1.4) -> None:
    axis.scatter(*draws[:, :2].T, s=size, color=shade, alpha=0.35, linewidths=0, rasterized=True)


def contours(axis: "Axes", draws: np.ndarray, spans: Sequence[tuple[float, float]], shade: str) -> None:
    """Lines that enclose 50 % and 90 % of the draws, the inner region filled."""
    counts, *edges = np.histogram2d(*draws.T, bins=48, range=spans)
    smooth = gaussian_filter(counts, 1.8).T
    heights = np.sort(smooth.ravel())[::-1]
    shares = np.cumsum(heights) / max(heights.sum(), 1e-12)
    levels = sorted({float(heights[min(np.searchsorted(shares, s), len(heights) - 1)]) for s in LEVELS})
    if len(levels) < 2 or levels[0] <= 0:
        return cloud(axis, draws, shade)
    centres = [(e[1:] + e[:-1]) / 2 for e in edges]
    axis.contourf(*centres, smooth, levels=[*levels, smooth.max() * 1.01], colors=[shade, shade], alpha=0.22)
    axis.contour(*centres, smooth, levels=levels, colors=shade, linewidths=0.8)
    return None


def pairs(
    made: Any,
    clouds: dict[str, np.ndarray],
    names: Sequence[str],
    truth: np.ndarray | None,
    spans: Sequence[tuple[float, float]] | None = None,
) -> None:
    """Marginals on the diagonal, pairs below it, of one or several posteriors, in a figure or part of one."""
    dim = len(names)
    everything = np.concatenate(list(clouds.values()))
    spans = spans or [_span(everything[:, j], None if truth is None else truth[j]) for j in range(dim)]
    axes = made.subplots(dim, dim, squeeze=False)
    for row in range(dim):
        for column in range(dim):
            axis = axes[row, column]
            if column > row:
                axis.set_visible(False)
                continue
            for method, draws in clouds.items():
                if row == column:
                    density(axis, draws[:, row], spans[row], colour(method), method)
                else:
                    contours(axis, draws[:, [column, row]], (spans[column], spans[row]), colour(method))
            axis.set_xlim(spans[column])
            if row != column:
                axis.set_ylim(spans[row])
            if truth is not None:
                axis.axvline(truth[column], color=TRUTH, linewidth=0.8)
                if row != column:
                    axis.axhline(truth[row], color=TRUTH, linewidth=0.8)
            axis.locator_params(axis="x", nbins=2)
            if row != column:
                axis.locator_params(axis="y", nbins=2)
            axis.set_box_aspect(1)
            numbered = dim < 5  # more would not be legible
            axis.tick_params(
                labelsize=5.5,
                labelbottom=numbered and row == dim - 1,
                labelleft=numbered and column == 0 < row,
                length=2 if numbered else 0,
            )
            if row == dim - 1:
                axis.set_xlabel(names[column], fontsize=7.5)
            if column == 0 < row:
                axis.set_ylabel(names[row], fontsize=7.5)


def density(
    axis: "Axes", draws: np.ndarray, span: tuple[float, float], shade: str, label: str | None = None
) -> None:
    """A smooth marginal, filled."""
    counts, edges = np.histogram(draws, bins=80, range=span, density=True)
    smooth = gaussian_filter(counts, 1.6)
    centres = (edges[1:] + edges[:-1]) / 2
    axis.plot(centres, smooth, color=shade, linewidth=1, label=label)
    axis.fill_between(centres, smooth, color=shade, alpha=0.2, linewidth=0)
    axis.set_yticks([])
    axis.set_ylim(bottom=0)


def _span(values: np.ndarray, mark: float | None) -> tuple[float, float]:
    low, high = np.quantile(values, [0.002, 0.998])
    if mark is not None:
        low, high = min(low, mark), max(high, mark)
    room = 0.06 * (high - low) or 0.1
    return float(low - room), float(high + room)


def first_draws(results: Results, name: str, method: str, problem: str | None = None) -> np.ndarray | None:
    """The draws that were kept of a method's last round, of the first seed that has any."""
    for line in sorted(results.of(name, method, problem), key=lambda line: (line["seed"], -line["round"])):
        found = results.draws(line)
        if found is not None:
            return found
    return None


def with_draws(results: Results, some: Iterable[Line]) -> list[tuple[Line, np.ndarray]]:
    pairs_found = ((line, results.draws(line)) for line in some)
    return [(line, draws) for line, draws in pairs_found if draws is not None]


def nothing(axis: "Axes", text: str = "not yet run") -> None:
    """An empty place for what is not there."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=GREY, fontsize=8)
    axis.set_xticks([])
    axis.set_yticks([])
