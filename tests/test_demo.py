"""The demo, small, as its command line runs it."""

import subprocess
import sys

import pytest

from aptinfer import demo


def test_demo_leaves_a_picture_and_a_report(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "DRAWS", 1000)  # the comparison would take longer than the run
    out = tmp_path / "made" / "here"
    demo.main(["--rounds", "2", "--simulations", "200", "--seed", "3", "--out", str(out)])
    printed = capsys.readouterr().out
    report = (out / "report.md").read_text(encoding="utf-8")
    assert (out / "two_moons.png").read_bytes().startswith(b"\x89PNG")
    assert "(two_moons.png)" in report
    for text in (printed, report):
        assert "theta_1" in text
        assert "C2ST against 1000 exact draws" in text
        assert "400 simulations" in text
    assert "round  2:" in printed


def test_help_does_not_import_jax():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['demo', '--help']\n"
        "try:\n    runpy.run_module('aptinfer.demo', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "assert 'jax' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--simulations" in done.stdout


@pytest.mark.parametrize("wrong", ["0", "-1", "ten"])
def test_counts_are_checked(wrong, capsys):
    with pytest.raises(SystemExit):
        demo.main(["--rounds", wrong])
    assert "whole number" in capsys.readouterr().err
