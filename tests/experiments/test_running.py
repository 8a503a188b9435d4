"""Pieces are restartable, and leave lines of one schema."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from made_up import line

import aptinfer as apt
from experiments import figure_1, figures, lines, run
from experiments.collect import collect
from experiments.measure import DRAWS, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

SMALL = apt.NPE(estimator=apt.MDN(1), embedding=apt.MLP((8,)), trainer=apt.Trainer(epochs=2))
PARTICLES = apt.SMCABC(particles=50)


def moved_by(shift):
    """A figure of two pieces that notes what is run."""
    ran = []

    def pieces(scale):
        return [Piece("made_up", "p", method, (0, 1), 2, 1000) for method in ("A", "B")]

    def run_one(piece, folder, deadline):
        ran.append(piece.method)
        if piece.method == "B" and shift == "fails":
            raise RuntimeError("B fails")
        return [line("made_up", piece.method, seed, mmd=0.1) for seed in piece.seeds]

    return SimpleNamespace(pieces=pieces, run=run_one, ran=ran)


def run_made_up(module, folder, monkeypatch, *, accelerated=True) -> list[str]:
    """What `run` runs of the figure, in this process."""
    monkeypatch.setattr(figures, "module", lambda name: module)
    module.ran.clear()
    for piece in run.left_to_run(["made_up"], Scale(), [folder], accelerated=accelerated):
        run.run_here(piece, folder, np.inf)
    return list(module.ran)


def test_what_is_there_is_not_run_again(tmp_path, monkeypatch):
    module = moved_by("nothing")
    assert run_made_up(module, tmp_path, monkeypatch) == ["A", "B"]
    assert run_made_up(module, tmp_path, monkeypatch) == []


def test_without_an_accelerator_every_seed_that_is_not_there_is_a_piece(tmp_path, monkeypatch):
    module = moved_by("nothing")
    lines.append([line("made_up", "A", 1, mmd=0.1)], tmp_path)
    assert run_made_up(module, tmp_path, monkeypatch, accelerated=False) == ["A", "B", "B"]
    assert run_made_up(module, tmp_path, monkeypatch, accelerated=False) == []


def test_a_piece_that_fails_stops_no_other_and_is_tried_again(tmp_path, monkeypatch, capsys):
    module = moved_by("fails")
    assert run_made_up(module, tmp_path, monkeypatch) == ["A", "B"]
    assert "B fails" in capsys.readouterr().err
    assert run_made_up(module, tmp_path, monkeypatch) == ["B"]


def test_runs_that_were_stopped_are_not_done():
    piece = Piece("made_up", "p", "A", (0, 1), 2, 1000)
    whole = [line("made_up", "A", seed) for seed in (0, 1)]
    assert lines.seeds_left(piece, whole) == ()
    assert lines.seeds_left(piece, whole[:1]) == (1,)
    assert lines.seeds_left(piece, [whole[0], whole[1] | {"ended": False, "round": 1}]) == (1,)
    assert lines.seeds_left(piece, [entry | {"rounds": 1} for entry in whole]) == (0, 1)  # of a quick run
    longer = whole[1] | {"rounds": 5, "ended": False}
    assert lines.seeds_left(piece, [whole[0], longer | {"round": 3}]) == ()
    assert lines.seeds_left(piece, [whole[0], longer | {"round": 1}]) == (1,)


def test_the_later_line_about_the_same_counts(tmp_path):
    lines.append([line("made_up", "A", 0, mmd=0.5)], tmp_path)
    lines.append([line("made_up", "A", 0, mmd=0.25)], tmp_path)
    assert Results((tmp_path,)).at_end("made_up", "A", "mmd") == pytest.approx([0.25])


def test_the_clock_starts_only_what_ends_in_time():
    clock = run.Clock(5.0)
    long, short = (Piece("made_up", "p", "A", (0,), 2, 1000, minutes=minutes) for minutes in (6, 1))
    assert clock.allows(long)  # the first is always tried
    assert not clock.allows(long)
    assert clock.allows(short)


def test_pieces_are_chosen_by_parts_of_their_names_in_the_order_of_these():
    a, b, c = (
        Piece(figure, "p", method, (0,), 2, 1000) for figure, method in (("1", "A"), ("1", "B"), ("2", "A"))
    )
    assert run.chosen([a, b, c], ["figure 2", "p, A"]) == [c, a]
    assert run.chosen([a, b, c], [""]) == [a, b, c]


def test_lines_of_networks_side_by_side(tmp_path):
    piece = Piece("made_up", "two_moons", "small", (0, 1), 1, 100)
    found = run_piece(piece, two_moons, SMALL, lambda measured: {"shape": measured.draws.shape}, tmp_path)
    assert [(entry["seed"], entry["round"]) for entry in found] == [(0, 1), (1, 1)]
    for entry in found:
        assert entry["metrics"] == {"shape": (DRAWS, 2)}
        assert entry["at_once"] == 2
        assert entry["notes"]["epochs"] == 2
        assert entry["ended"]
        assert entry["seconds_simulating"] > 0


def test_lines_of_rounds(tmp_path):
    piece = Piece("made_up", "two_moons", "particles", (0, 1), 2, 200)

    def metrics(measured):
        return {"rows": len(measured.simulated), "last": measured.is_last}

    lines.append(run_piece(piece, two_moons, PARTICLES, metrics, tmp_path), tmp_path)
    stored = lines.read("made_up", tmp_path)
    assert [(entry["seed"], entry["round"]) for entry in stored] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    for entry in stored:
        assert set(lines.FIELDS) <= set(entry)
        assert entry["simulations"] == 200 * entry["round"]
        assert entry["metrics"] == {"rows": 200, "last": entry["round"] == 2}
        assert entry["ended"] == (entry["round"] == 2)
    assert lines.seeds_left(piece, stored) == ()
    draws = lines.find_draws(stored[1], tmp_path)
    assert draws is not None
    assert draws.shape == (2000, 2)
    assert lines.find_draws(stored[0], tmp_path) is None


def test_a_passed_deadline_ends_runs_after_their_round(tmp_path):
    piece = Piece("made_up", "two_moons", "particles", (0,), 2, 200)
    late = time.monotonic()
    found = run_piece(piece, two_moons, PARTICLES, lambda measured: {}, tmp_path, deadline=late)
    assert [(entry["round"], entry["ended"]) for entry in found] == [(1, False)]


def test_a_chain_goes_on_where_its_time_was_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where run files are kept meanwhile
    piece = Piece("made_up", "two_moons", "particles", (0,), 3, 200, single_core=True)
    late = time.monotonic()
    first = run_piece(piece, two_moons, PARTICLES, lambda measured: {}, tmp_path, deadline=late)
    second = run_piece(piece, two_moons, PARTICLES, lambda measured: {}, tmp_path)
    assert [entry["round"] for entry in first] == [1]
    assert [entry["round"] for entry in second] == [2, 3]  # the first is measured already
    assert not list(tmp_path.rglob("*.apt"))


def two_moons(seed):
    return apt.problems.get("two_moons")


def test_populations_alone_are_measured_of_smc_abc(tmp_path, monkeypatch):
    monkeypatch.setattr(figure_1, "c2st", lambda draws, exact: 0.5)
    piece = Piece("1", "two_moons", "SMC-ABC", (0,), 6, 1000, single_core=True, quick=True)
    found = figure_1.run(piece, tmp_path)
    assert found
    populations = [entry["notes"]["population"] for entry in found]
    assert populations == list(range(1, len(found) + 1))
    assert all(0 <= entry["metrics"]["mmd"] < 1 for entry in found)


def test_exact_draws_are_on_the_crescents():
    problem = apt.problems.get("two_moons")
    exact = problem.reference_posterior(problem.observation, 20_000)
    inside = 0.9973  # of a Gaussian within three standard deviations
    assert figure_1.on_crescents(exact) == pytest.approx(
        inside, abs=4 * np.sqrt(inside * (1 - inside) / 20_000)
    )
    assert figure_1.on_crescents(problem.prior.sample(np.random.default_rng(0), 20_000)) < 0.1


def test_lines_and_draws_are_brought_home_once(tmp_path):
    away, home = tmp_path / "away", tmp_path / "home"
    entry = line("2", "APT", 0, mmd=0.5)
    lines.append([entry], away)
    lines.keep_draws(away, entry, np.zeros((3, 2)))
    assert collect(away, home) == 1
    assert collect(away, home) == 0
    (stored,) = lines.read("2", home)
    assert lines.find_draws(stored, home) is not None


def test_the_command_runs_pieces_in_processes_of_their_own(tmp_path):
    """One of them on a core of its own, the other wherever the system puts it, as beside an accelerator."""
    wanted = [
        piece
        for piece in figures.module("table_1").pieces(Scale(quick=True))
        if piece.method in ("SNPE-A", "SMC-ABC")
    ]
    places = [run.available_cores()[-1], None]
    assert run.run_in_processes(wanted, tmp_path, run.Clock(None), places)
    found = {entry["method"]: entry["metrics"] for entry in lines.read("table_1", tmp_path)}
    assert set(found) == {"SNPE-A", "SMC-ABC"}
    assert found["SNPE-A"]["estimators"] == {"mixture": True, "flow": False}


def test_where_processes_share_an_accelerator_seeds_part_unless_their_networks_are_wide(monkeypatch):
    small, wide = (Piece("made_up", "p", m, (0, 1), 2, 1000, wide=m == "wide") for m in ("small", "wide"))
    monkeypatch.setattr(figures, "module", lambda name: SimpleNamespace(pieces=lambda scale: [small, wide]))

    def seeds(**how):
        return [piece.seeds for piece in run.left_to_run(["made_up"], Scale(), [], **how)]

    assert seeds(accelerated=True) == [(0, 1), (0, 1)]
    assert seeds(accelerated=True, at_once=2) == [(0,), (1,), (0, 1)]
    assert seeds(accelerated=True, at_once=2, together=True) == [(0, 1), (0, 1)]
    assert seeds(accelerated=False, at_once=2) == [(0,), (1,), (0,), (1,)]


def test_a_seed_that_is_there_leaves_its_piece(tmp_path, monkeypatch):
    module = moved_by("nothing")
    monkeypatch.setattr(run.figures, "module", lambda name: module)
    lines.append([line("made_up", "A", 1, mmd=0.1)], tmp_path)
    left = run.left_to_run(["made_up"], Scale(), [tmp_path], accelerated=True)
    assert [(piece.method, piece.seeds) for piece in left] == [("A", (0,)), ("B", (0, 1))]
