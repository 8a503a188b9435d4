"""The document is what its lines say."""

import re

from made_up import seeds_of, written

from experiments import deviations, figures, lines, report
from experiments.results import Results


def test_the_document_is_up_to_date():
    folder = report.DOCUMENT.with_suffix("")
    pictures = {name: [path.name for path in figures.pictures(name, folder)] for name in figures.NAMES}
    expected = report.document(Results(), pictures, folder.name)
    assert report.DOCUMENT.read_text(encoding="utf-8") == expected, "run: python -m experiments.report"


def test_figures_with_lines_have_their_picture():
    folder = report.DOCUMENT.with_suffix("")
    for name in figures.NAMES:
        if lines.path(name).exists() and name != "table_1":
            assert figures.pictures(name, folder), f"run: python -m experiments.report ({name})"


def test_links_of_the_overview_lead_to_sections():
    text = report.DOCUMENT.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(#([^)]*)\)", text)
    titles = {report.anchor(title) for title in re.findall(r"^## (.*)$", text, re.M)}
    assert targets
    assert set(targets) == titles


def test_every_figure_has_a_title_and_known_deviations():
    assert tuple(report.TITLES) == figures.NAMES
    assert set(deviations.FIGURES) <= set(figures.NAMES)


def test_numbers_come_from_the_lines(tmp_path):
    folder = written(tmp_path, seeds_of("2", "APT", "mmd", [0.123, 0.125], problem="slcp"))
    target = tmp_path / "text.md"
    report.write(Results((folder,)), target, draw=False)
    text = target.read_text(encoding="utf-8")
    assert "| slcp | APT | 2 | 2,000 | 0.124 ± 0.001 | – |" in text
    assert "2.0 minutes" not in text  # two lines of one piece are its time once
    assert "1.0 minutes on CPU core" in text
