"""The document is what its lines say."""

import re

from made_up import line, seeds_of, written

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


def test_a_piece_has_its_part_of_a_device_that_it_shared(tmp_path):
    shared = [entry | {"sharing": 4} for entry in seeds_of("2", "APT", "mmd", [0.1, 0.2])]
    (minutes,) = Results((written(tmp_path, shared),)).minutes("2").values()
    assert minutes == 0.25


def test_errors_that_differ_in_numbers_are_one(tmp_path):
    texts = (
        "only 12 of 200704 draws lie inside (rate 6e-05). Train longer.",
        "only 3 of 9 draws lie inside (rate 0.3).",
    )
    failed = [line("2", "APT", seed) | {"failed": text} for seed, text in enumerate(texts)]
    found = report.failures(Results((written(tmp_path, failed),)), "2")
    assert "APT, 2 runs: only … of … draws lie inside (rate …)" in found
    assert "Train" not in found
