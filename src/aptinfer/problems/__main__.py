"""`python -m aptinfer.problems`: the benchmark problems as a table."""

import sys

from aptinfer import problems


def table() -> str:
    """One line per problem: its dimensions, what is known of the answer, what it is."""
    lines = [("name", "parameters", "data", "likelihood", "reference", "about")]
    for name in problems.list():
        problem = problems.get(name)
        about = sys.modules[f"aptinfer.problems.{name}"].__doc__ or ""
        lines.append(
            (
                name,
                str(problem.prior.dim),
                "×".join(map(str, problem.observation.shape)),
                "exact" if problem.log_likelihood else "-",
                "exact" if problem.reference else "-",
                about.splitlines()[0].partition(": ")[2],
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


if __name__ == "__main__":
    print(table())
