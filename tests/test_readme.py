"""What the documents show runs, and what they point to exists."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def run_blocks(document: Path) -> dict:
    """Execute a document's Python blocks in order, as one script; what they defined."""
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.S | re.M)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, document.name, "exec"), names)
    return names


def test_readme_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "README.md")
    amplitude, rate = names["theta"].T
    assert names["theta"].shape == (1000, 2)
    assert (amplitude > 0).all()
    assert ((rate > 0) & (rate < 2)).all()
    assert np.isfinite(names["density"]).all()
    assert abs(np.median(amplitude) - 2) < 0.5
    assert "amplitude" in capsys.readouterr().out


def test_guide_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "docs" / "guide.md")
    capsys.readouterr()
    assert names["middle"].shape == (3, 2)
    assert 0 < names["failed"] < 50


@pytest.mark.slow
def test_example_meets_the_exact_posterior(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "01_linear_gaussian.py"))
    worst = example["main"](rounds=2, simulations=400)
    assert worst < 0.5  # of a standard deviation; 10 000 draws add 0.01
    assert "exact mean" in capsys.readouterr().out


@pytest.mark.slow
def test_example_of_images_finds_the_truth(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "02_images.py"))
    error = example["main"](rounds=2, simulations=300)
    assert np.abs(error).max() < 3  # posterior standard deviations
    assert "log10_mu" in capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_picture_is_small():
    assert (ROOT / "docs" / "two_moons.png").stat().st_size < 200_000
