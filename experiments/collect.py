"""Bring lines and draws home that were written elsewhere: `python -m experiments.collect DIR`.

Lines that are there already are left out, so that a folder may be collected twice.
"""

import argparse
import shutil
from pathlib import Path

from experiments import figures, lines


def collect(source: Path, target: Path = lines.RESULTS) -> int:
    """How many new lines there were."""
    count = 0
    target.mkdir(parents=True, exist_ok=True)
    for name in figures.NAMES:
        if not lines.path(name, source).exists():
            continue
        known = set()
        if lines.path(name, target).exists():
            known = set(lines.path(name, target).read_text(encoding="utf-8").splitlines())
        new = [
            text
            for text in lines.path(name, source).read_text(encoding="utf-8").splitlines()
            if text not in known
        ]
        with lines.path(name, target).open("a", encoding="utf-8") as file:
            file.writelines(text + "\n" for text in new)
        count += len(new)
    for path in (source / "draws").rglob("*.npy"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    print(f"{collect(parser.parse_args().source)} new lines in {lines.RESULTS}")
