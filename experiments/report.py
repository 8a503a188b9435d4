"""Write the document of the reproduction, and its pictures, from the lines: nothing in it is typed by hand.

python -m experiments.report                              docs/reproduction.md, from experiments/results
python -m experiments.report --results build/reproduce --out build/reproduce/report.md
"""

import argparse
import os
import re
from collections import Counter
from pathlib import Path

from experiments import deviations, figures, lines, table_1
from experiments.claims import decided
from experiments.deciding import Verdict
from experiments.results import Results, mean_of
from experiments.run import QUICK_OUT

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reproduction.md"
SIGNS = {Verdict.HOLDS: "✔", Verdict.FAILS: "✘", Verdict.UNDECIDED: "≈", Verdict.MISSING: "·"}
TITLES = {
    "1": "Figure 1: two moons",
    "table_1": "Table 1: what each method takes",
    "2": "Figure 2: simple likelihood, complex posterior",
    "3": "Figure 3: uninformative data",
    "4": "Figure 4: Lotka-Volterra, statistics",
    "5": "Figure 5: Lotka-Volterra, raw series",
    "6": "Figure 6: rock-paper-scissors",
    "mg1": "M/G/1 queue",
    "glm": "Generalised linear model",
    "complexity": "Computational complexity",
    "proposition_1": "Proposition 1 and leakage",
}
QUICK = (
    "**One seed, at most three rounds, few simulations: a check that everything runs. The verdicts below say "
    "nothing about the paper.**"
)
# What the table of a figure shows of its last round.
METRICS = {
    "1": {"mmd": "MMD", "c2st": "C2ST", "on_crescents": "share on the crescents"},
    "2": {"mmd": "MMD", "c2st": "C2ST"},
    "3": {"mmd": "MMD"},
    "4": {"kde_surprise": "-log q(θ*), KDE", "distance": "median distance"},
    "5": {"surprise": "-log q(θ*)", "spread": "sd", "error": "error of the mean"},
    "6": {"surprise": "-log q(θ*)"},
    "mg1": {"kde_surprise": "-log q(θ*), KDE", "distance": "median distance"},
    "glm": {"mmd": "MMD", "c2st": "C2ST"},
    "proposition_1": {"excess": "excess of the loss, nats", "ratios_wrong": "variance unexplained"},
}


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def claims_table(results: Results, figure: str) -> str:
    rows = [
        [
            claim.text,
            claim.source,
            f"{shown}. {claim.comment}".rstrip(". "),
            f"{SIGNS[verdict]} {verdict.value}",
        ]
        for claim, verdict, shown in decided(results, figure)
    ]
    return table(["the paper says", "where", "we find", ""], rows)


def numbers_table(results: Results, figure: str) -> str:
    """The last round of every method: mean and standard error over seeds."""
    rows = []
    for problem in results.problems(figure):
        for method in figures.ordered(figure, results.methods(figure, problem)):
            last = results.last(figure, method, problem)
            if not last:
                continue
            ended = [f"{count:,}" for count in sorted({line["simulations"] for line in last})]
            values = [str(mean_of(results.at_end(figure, method, name, problem))) for name in METRICS[figure]]
            simulations = ended[0] if len(ended) == 1 else f"{ended[0]} to {ended[-1]}"
            rows.append([problem, method, str(len(last)), simulations, *values])
    if not rows:
        return "Not yet run."
    return table(["problem", "method", "seeds", "simulations", *METRICS[figure].values()], rows)


def table_1_entries(results: Results) -> str:
    rows = []
    for name, (proposal, prior, family) in table_1.PAPER.items():
        last = results.last("table_1", name)
        if last:
            ours = table_1.entries(last[0]["metrics"])
            rows.append(
                [
                    name,
                    *(
                        f"{theirs} / {entry}"
                        for theirs, entry in zip((proposal, prior, family), ours, strict=True)
                    ),
                ]
            )
    if not rows:
        return "Not yet run."
    return "In every entry the paper's word, then what the library takes.\n\n" + table(
        ["", "proposal", "prior", "density family"], rows
    )


def failures(results: Results, figure: str) -> str:
    """Of errors that differ in their numbers alone, one, without its advice."""
    failed = Counter(
        (line["method"], re.sub(r"\d+(\.\d+)?(e-?\d+)?", "…", line["failed"].split(". ")[0].rstrip(".")))
        for line in results.failures(figure)
    )
    if not failed:
        return ""
    kinds = "; ".join(
        f"{method}, {count} run{'s' if count > 1 else ''}: {reason}"
        for (method, reason), count in failed.items()
    )
    return f"Runs that ended with an error, and count with the last round they finished: {kinds}.\n\n"


def section(results: Results, figure: str, pictures: list[str], where: str) -> str:
    parts = [f"## {TITLES[figure]}"]
    parts += [f"![{TITLES[figure]}]({where}/{name})" for name in pictures]
    parts.append(claims_table(results, figure))
    if figure == "table_1":
        parts.append(table_1_entries(results))
    elif figure in METRICS:
        parts.append(numbers_table(results, figure))
    if text := failures(results, figure):
        parts.append(text.strip())
    if different := deviations.FIGURES.get(figure):
        parts.append("Differences from the paper's setting:")
        parts.append("\n".join(f"- {what} {why}" for what, why in different))
    spent = ", ".join(
        f"{minutes:.1f} minutes on {device}" for device, minutes in results.minutes(figure).items()
    )
    parts.append(f"Time: {spent or 'none'}.")
    return "\n\n".join(parts)


def document(results: Results, pictures: dict[str, list[str]], where: str, *, quick: bool = False) -> str:
    """The whole text."""
    verdicts = Counter(verdict for _, verdict, _ in decided(results))
    counts = ", ".join(f"{kind.value} {verdicts[kind]}" for kind in Verdict)
    overview = table(
        ["figure", *(kind.value for kind in Verdict), "seeds"],
        [
            [
                f"[{title}](#{anchor(title)})",
                *(str(Counter(v for _, v, _ in decided(results, name))[kind]) for kind in Verdict),
                most_seeds(results, name),
            ]
            for name, title in TITLES.items()
        ],
    )
    head = [
        "# The paper, reproduced" + (" in small" if quick else ""),
        *([QUICK] if quick else []),
        "Written by `python -m experiments.report` from `experiments/results/*.jsonl`, which "
        "`python -m experiments.run` appends to; every number in it comes from a line there. The paper is "
        "Greenberg, "
        "Nonnenmacher & Macke, *Automatic posterior transformation for likelihood-free inference*, ICML "
        "2019.",
        f"Of its {sum(verdicts.values())} claims: {counts}. A comparison holds if means differ in the "
        f"claimed direction "
        "by more than two standard errors, and is undecided if they differ by less. ± is one standard error "
        "over seeds.",
        overview,
        "Differences that all figures share:",
        "\n".join(f"- {what} {why}" for what, why in deviations.SHARED),
    ]
    body = [section(results, name, pictures.get(name, []), where) for name in TITLES]
    return "\n\n".join([*head, *body]) + "\n"


def anchor(title: str) -> str:
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")


def most_seeds(results: Results, figure: str) -> str:
    """How many seeds a figure's methods have, the fewest and the most."""
    counts = [len({x["seed"] for x in results.of(figure, method)}) for method in results.methods(figure)]
    if not counts:
        return "–"
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def write(results: Results, target: Path, *, draw: bool = True, quick: bool = False) -> None:
    """The document and, in a folder of its name beside it, the pictures."""
    folder = target.with_suffix("")
    pictures = {}
    for name in figures.NAMES:
        if draw and results.lines(name):
            figures.module(name).draw(results, folder)
        pictures[name] = [p.name for p in figures.pictures(name, folder)]
    target.parent.mkdir(parents=True, exist_ok=True)
    text = document(results, pictures, os.path.relpath(folder, target.parent), quick=quick)
    target.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, help="folder with lines")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="of the quick run, in build/reproduce")
    parser.add_argument("--text-only", action="store_true", help="leave the pictures as they are")
    options = parser.parse_args()
    folder = options.results or (QUICK_OUT if options.quick else lines.RESULTS)
    target = options.out or (folder / "report.md" if options.quick else DOCUMENT)
    results = Results((folder,))
    write(results, target, draw=not options.text_only, quick=options.quick)
    for claim, verdict, shown in decided(results):
        print(f"{SIGNS[verdict]} {TITLES[claim.figure]}: {claim.text} {shown}")
    print(f"Written: {target}")


if __name__ == "__main__":
    main()
