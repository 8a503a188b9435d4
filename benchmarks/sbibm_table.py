"""The lines of `results/sbibm.jsonl` beside the published figures: a table, and a picture.

`published.csv` has, for eight algorithms, means over observations 1 to 5 of the benchmark's results.
"""

import csv
import json
import pathlib
import statistics
from collections import defaultdict
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TASKS = (
    "two_moons",
    "slcp",
    "slcp_distractors",
    "gaussian_linear",
    "gaussian_linear_uniform",
    "gaussian_mixture",
    "bernoulli_glm",
    "bernoulli_glm_raw",
    "lotka_volterra",
    "sir",
)
COLUMNS = (
    ("task", "---"),
    ("simulations", "---:"),
    ("method", "---"),
    ("mean C2ST", "---:"),
    ("median", "---:"),
    ("largest", "---:"),
    ("mean MMD²", "---:"),
    ("minutes", "---:"),
    ("runs", "---:"),
    ("SNPE", "---:"),
    ("its minutes", "---:"),
    ("best of eight", "---"),
)

Line = dict[str, Any]


def read(results: pathlib.Path) -> list[Line]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def published() -> dict[tuple[str, int], dict[str, dict[str, float]]]:
    """By task and budget, then by algorithm: C2ST, MMD² and minutes."""
    found: dict[tuple[str, int], dict[str, dict[str, float]]] = defaultdict(dict)
    with (HERE / "published.csv").open() as file:
        for row in csv.DictReader(file):
            numbers = {name: float(row[name]) for name in ("c2st", "mmd", "minutes")}
            found[row["task"], int(row["simulations"])][row["algorithm"]] = numbers
    return found


def groups_of(lines: list[Line]) -> dict[tuple[int, int, str], list[Line]]:
    """By the task's number, budget and method, in this order."""
    groups = defaultdict(list)
    for line in lines:
        groups[TASKS.index(line["task"]), line["budget"], line["method"]].append(line)
    return dict(sorted(groups.items()))


def table(lines: list[Line]) -> str:
    """Each task, budget and method beside the published SNPE and the best of the eight. Minutes are a run's
    part of those that runs side by side took."""
    rows = [[name for name, _ in COLUMNS], [ruler for _, ruler in COLUMNS]]
    known = published()
    for (number, budget, method), group in groups_of(lines).items():
        scores, anchors = [line["c2st"] for line in group], known[TASKS[number], budget]
        best = min(anchors, key=lambda name: anchors[name]["c2st"], default=None)
        rows.append(
            [
                TASKS[number],
                f"{budget:,}",
                method,
                f"{statistics.mean(scores):.3f}",
                f"{statistics.median(scores):.3f}",
                f"{max(scores):.3f}",
                f"{statistics.mean(line['mmd2'] for line in group):.4f}",
                f"{statistics.median(line['minutes'] / line.get('at_once', 1) for line in group):.2f}",
                str(len(group)),
                f"{anchors['SNPE']['c2st']:.3f}" if best else "",  # other budgets were not published
                f"{anchors['SNPE']['minutes']:.1f}" if best else "",
                f"{anchors[best]['c2st']:.3f} ({best})" if best else "",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(lines: list[Line], path: pathlib.Path) -> None:
    """C2ST by budget, a panel per task: the eight in grey, ours in colour with every run as a dot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.4), layout="constrained", facecolor="white")
    panels = figure.subplots(2, 5, sharex=True, sharey=True).flat
    known, groups = published(), groups_of(lines)
    methods = sorted({method for _, _, method in groups})
    for number, (task, panel) in enumerate(zip(TASKS, panels, strict=True)):
        budgets = sorted(budget for name, budget in known if name == task)
        for algorithm in known[task, budgets[0]]:
            heights = [known[task, budget][algorithm]["c2st"] for budget in budgets]
            panel.plot(budgets, heights, color="#c4c4c4", linewidth=0.9, zorder=1)
        for method, colour in zip(
            methods, ("#1b6ca8", "#e08214", "#5aa05a", "#8c6bb1", "#7f7f7f"), strict=False
        ):
            mine = {
                b: [g["c2st"] for g in group]
                for (n, b, m), group in groups.items()
                if (n, m) == (number, method)
            }
            for budget, scores in mine.items():
                panel.plot([budget] * len(scores), scores, ".", color=colour, markersize=3, alpha=0.5)
            means = [statistics.mean(scores) for scores in mine.values()]
            panel.plot(list(mine), means, "o-", color=colour, markersize=4, linewidth=1.6, label=method)
        panel.set_title(task, fontsize=9)
        panel.set(xscale="log", ylim=(0.48, 1.0))
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    figure.supxlabel("simulations", fontsize=9)
    figure.supylabel("C2ST: 0.5 is perfect", fontsize=9)
    panels[0].plot([], [], color="#c4c4c4", label="published algorithms")
    panels[0].legend(fontsize=7.5, frameon=False)
    figure.savefig(path, dpi=150)
