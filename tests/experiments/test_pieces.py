"""Every row of the paper is a list of pieces: breadth first, small enough, and the paper's sizes."""

import pytest

from experiments import figures
from experiments.pieces import FIRST_SEEDS, Scale, breadth_first

PAPER_SIZES = {  # rounds and simulations of APT
    "1": ("MAF-APT", 10, 1000, 10),
    "2": ("APT", 40, 1000, 10),
    "3": ("APT", 40, 1000, 5),
    "4": ("APT", 10, 1000, 10),
    "5": ("RNN-APT", 10, 1000, 10),
    "6": ("APT", 10, 1000, 30),
    "mg1": ("APT", 20, 1000, 10),
    "glm": ("APT", 5, 5000, 10),
}


@pytest.mark.parametrize("name", PAPER_SIZES)
def test_full_pieces_have_the_papers_sizes(name):
    method, rounds, simulations, seeds = PAPER_SIZES[name]
    pieces = [piece for piece in figures.module(name).pieces(Scale()) if piece.method == method]
    assert {(piece.rounds, piece.simulations) for piece in pieces} == {(rounds, simulations)}
    for problem in {piece.problem for piece in pieces}:
        found = [seed for piece in pieces if piece.problem == problem for seed in piece.seeds]
        assert sorted(found) == list(range(seeds))


@pytest.mark.parametrize("name", figures.NAMES)
def test_pieces_end_within_ten_minutes_and_are_named_apart(name):
    pieces = figures.module(name).pieces(Scale())
    assert pieces
    assert all(piece.minutes <= 9 for piece in pieces)
    assert len({piece.name for piece in pieces}) == len(pieces)


@pytest.mark.parametrize("name", figures.NAMES)
def test_quick_pieces_are_one_seed_and_few_rounds(name):
    pieces = figures.module(name).pieces(Scale(quick=True))
    assert pieces
    assert all(piece.seeds == (0,) and piece.quick for piece in pieces)
    trained = [piece for piece in pieces if piece.method != "SMC-ABC" and name != "complexity"]
    assert all(piece.rounds <= 3 for piece in trained)


@pytest.mark.parametrize("name", ["1", "2", "3", "4", "5", "6", "mg1", "glm", "proposition_1"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_method_of_every_piece_is_known(name, quick):
    module = figures.module(name)
    known = module.methods(100, quick) if name == "3" else module.methods(quick)
    assert {piece.method for piece in module.pieces(Scale(quick=quick))} <= set(known)


def test_three_seeds_of_every_figure_before_more_of_any():
    pieces = breadth_first(piece for name in figures.NAMES for piece in figures.module(name).pieces(Scale()))
    first = [piece for piece in pieces if piece.stage == 0]
    assert {piece.figure for piece in first} == set(figures.NAMES)
    assert pieces[: len(first)] == first
    for name in ("1", "2", "3", "4", "mg1", "glm"):
        assert max(seed for piece in first if piece.figure == name for seed in piece.seeds) == FIRST_SEEDS - 1
    assert max(seed for piece in first if piece.figure == "6" for seed in piece.seeds) == 9


def test_fewer_seeds_on_request():
    pieces = figures.module("2").pieces(Scale(seeds=2))
    assert {seed for piece in pieces for seed in piece.seeds} == {0, 1}
