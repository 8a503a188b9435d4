"""Claims decide rightly on made-up lines."""

import pytest
from made_up import line, seeds_of, written

from experiments import deciding, figures, networks
from experiments.claims import CLAIMS, decided
from experiments.deciding import Verdict
from experiments.results import Mean, Results, mean_of

LOW, HIGH = [0.10, 0.11, 0.09], [0.30, 0.32, 0.31]


def answer(folder, text: str) -> Verdict:
    (claim,) = [claim for claim in CLAIMS if claim.text.startswith(text)]
    return claim.decide(Results((folder,)))[0]


def test_every_figure_has_claims_and_every_claim_a_figure():
    assert {claim.figure for claim in CLAIMS} == set(figures.NAMES)
    assert len({claim.text for claim in CLAIMS}) >= len(CLAIMS) - 2  # "The same, ..." is said twice


def test_without_lines_only_what_needs_none_is_decided(tmp_path):
    known = [claim.text for claim, verdict, _ in decided(Results((tmp_path,))) if verdict != Verdict.MISSING]
    assert len(known) == 3  # weights of networks
    assert all("weights" in text or "grows" in text for text in known)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (LOW, HIGH, Verdict.HOLDS),
        (HIGH, LOW, Verdict.FAILS),
        ([0.1, 0.3, 0.2], [0.15, 0.35, 0.2], Verdict.UNDECIDED),
        ([0.1], [0.3], Verdict.HOLDS),
        ([0.3], [0.1], Verdict.FAILS),
    ],
)
def test_below_asks_for_two_standard_errors(tmp_path, ours, theirs, expected):
    written(
        tmp_path,
        seeds_of("2", "APT", "mmd", ours),
        seeds_of("2", "SNPE-A", "mmd", theirs),
        seeds_of("2", "SNPE-B", "mmd", HIGH if expected != Verdict.FAILS else theirs),
    )
    assert answer(tmp_path, "APT outperforms SNPE-A and SNPE-B (MMD)") == expected


def test_one_missing_method_leaves_a_comparison_open(tmp_path):
    written(tmp_path, seeds_of("2", "APT", "mmd", LOW), seeds_of("2", "SNPE-A", "mmd", HIGH))
    assert answer(tmp_path, "APT outperforms SNPE-A and SNPE-B (MMD)") == Verdict.MISSING


@pytest.mark.parametrize(("apt_mmd", "expected"), [(0.19, Verdict.HOLDS), (0.28, Verdict.FAILS)])
def test_the_gap_is_measured_from_the_better_of_the_others(tmp_path, apt_mmd, expected):
    written(
        tmp_path,
        seeds_of("2", "APT", "mmd", [apt_mmd]),
        seeds_of("2", "SNPE-A", "mmd", [0.3]),
        seeds_of("2", "SNPE-B", "mmd", [0.5]),
        seeds_of("2", "SNL", "mmd", [0.1]),
    )
    assert answer(tmp_path, "APT closes over half") == expected


def test_a_gap_within_the_errors_decides_nothing(tmp_path):
    written(
        tmp_path,
        seeds_of("2", "APT", "mmd", [0.20, 0.31]),
        seeds_of("2", "SNPE-A", "mmd", [0.29, 0.31]),
        seeds_of("2", "SNPE-B", "mmd", [0.5, 0.52]),
        seeds_of("2", "SNL", "mmd", [0.25, 0.26]),
    )
    assert answer(tmp_path, "APT closes over half") == Verdict.UNDECIDED


def test_lost_modes_are_counted(tmp_path):
    written(tmp_path, seeds_of("1", "SNL", "share_upper", [0.0, 1.0, 0.5], problem="two_moons"))
    assert answer(tmp_path, "The chains of SNL fail") == Verdict.HOLDS


def test_distractors_are_compared_with_the_prior(tmp_path):
    snl = [line("3", "SNL", seed, problem="dim(x) = 100", mmd=0.6, mmd_prior=0.67) for seed in range(2)]
    ours = [line("3", "APT", seed, problem="dim(x) = 100", mmd=0.2, mmd_prior=0.67) for seed in range(2)]
    written(tmp_path, snl, ours, seeds_of("2", "APT", "mmd", [0.15, 0.16]))
    assert answer(tmp_path, "At large dim(x) SNL") == Verdict.HOLDS
    assert answer(tmp_path, "APT degrades only slightly") == Verdict.HOLDS


def test_leakage_is_read_from_the_notes(tmp_path):
    leaky = [
        line("2", "APT", seed, round=number, mmd=0.1) | {"notes": {"acceptance": rate}, "ended": number == 2}
        for seed in range(3)
        for number, rate in ((1, 0.9 + 0.01 * seed), (2, 0.3 + 0.01 * seed))
    ]
    ours = [
        line("2", "aptinfer default", 0, round=number, mmd=0.1) | {"notes": {"share_far": 0.0}}
        for number in (1, 2)
    ]
    written(tmp_path, leaky, ours)
    assert answer(tmp_path, "Flows trained with atoms leak") == Verdict.HOLDS
    assert answer(tmp_path, "Learning in coordinates") == Verdict.HOLDS


def test_failed_runs_count_with_their_last_round(tmp_path):
    written(
        tmp_path,
        [line("2", "SNPE-A", 0, round=1, mmd=0.4) | {"ended": False}],
        [line("2", "SNPE-A", 0, round=2) | {"failed": "no acceptance"}],
    )
    assert Results((tmp_path,)).at_end("2", "SNPE-A", "mmd") == pytest.approx([0.4])


def test_means_and_errors():
    assert mean_of([1.0, 2.0, 3.0]) == pytest.approx(Mean(2.0, 1 / 3**0.5, 3))
    assert str(mean_of([0.25])) == "0.25"
    assert mean_of([1.0, None, 3.0]).count == 2  # type: ignore[list-item]
    assert deciding.compared(Mean(1, 0.1, 3), Mean(1.2, 0.1, 3)) == Verdict.UNDECIDED


def test_the_papers_network_has_the_papers_weights():
    assert networks.rock_paper_scissors_weights() == (8768, 4200, 612)
