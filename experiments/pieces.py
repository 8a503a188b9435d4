"""What is to be run: a piece is one method on one problem with a group of seeds that train side by side."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

FIRST_SEEDS = 3  # every figure has so many before any has more
# Small networks, and chains that move one step at a time, are as fast on a core as on an accelerator.
ON_CORES = ("SNPE-A", "SNPE-B", "SNL", "aptinfer default")


@dataclass(frozen=True)
class Piece:
    """One method, one problem, some seeds.

    Attributes:
        figure, problem, method: names; the figure's module knows what they stand for.
        seeds: of the runs, trained side by side.
        rounds, simulations: of each run, and simulations per round.
        minutes: how long it may take, on the device that it is meant for.
        single_core: belongs on a processor's core, not on an accelerator.
        stage: pieces of an earlier stage are run first, whatever their figure.
        quick: problems are made smaller too, where they have a size.
        wide: seeds train side by side however many pieces share the accelerator. A step through a series
            takes about as long for ten networks as for one.
    """

    figure: str
    problem: str
    method: str
    seeds: tuple[int, ...]
    rounds: int
    simulations: int
    minutes: float = 5.0
    single_core: bool = False
    stage: int = 0
    quick: bool = False
    wide: bool = False

    @property
    def name(self) -> str:
        first, last = self.seeds[0], self.seeds[-1]
        seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
        size = f"{self.rounds} x {self.simulations}"
        return f"figure {self.figure}: {self.problem}, {self.method}, {seeds}, {size}"


@dataclass(frozen=True)
class Scale:
    """How much of the paper is run.

    Attributes:
        quick: one seed, at most 3 rounds, fewer simulations, small images.
        seeds: at most so many of a figure's seeds.
    """

    quick: bool = False
    seeds: int | None = None

    def rounds(self, paper: int) -> int:
        return min(paper, 3) if self.quick else paper

    def simulations(self, paper: int, quick: int = 500) -> int:
        return min(paper, quick) if self.quick else paper

    def shown(self, methods: Iterable[str]) -> list[str]:
        """The methods that are run: in quick runs those that claims are about."""
        return [name for name in methods if not (self.quick and name.startswith("aptinfer"))]

    def groups(self, seeds: int, first: int = FIRST_SEEDS) -> list[tuple[int, ...]]:
        """The paper's seeds, counted from 0, in groups: the first few, then the rest."""
        if self.quick:
            return [(0,)]
        wanted = seeds if self.seeds is None else min(seeds, self.seeds)
        groups = [tuple(range(min(first, wanted))), tuple(range(first, wanted))]
        return [group for group in groups if group]

    def pieces(
        self,
        figure: str,
        problem: str,
        method: str,
        *,
        rounds: int,
        simulations: int,
        seeds: int = 10,
        quick_simulations: int = 500,
        minutes: float = 5.0,
        single_core: bool | None = None,
        later: int = 0,
        first: int = FIRST_SEEDS,
        wide: bool = False,
    ) -> list[Piece]:
        """A method on a problem, in as many pieces as it takes. `later`: so many stages after the others."""
        found = []
        single_core = method in ON_CORES if single_core is None else single_core
        for stage, group in enumerate(self.groups(seeds, first)):
            for part in [(seed,) for seed in group] if single_core else [group]:
                found.append(
                    Piece(
                        figure,
                        problem,
                        method,
                        part,
                        self.rounds(rounds),
                        self.simulations(simulations, quick_simulations),
                        minutes,
                        single_core,
                        stage + later,
                        self.quick,
                        wide,
                    )
                )
        return found


def breadth_first(pieces: Iterable[Piece]) -> list[Piece]:
    """All of the first stage, then all of the next; figures in their order within a stage."""
    return sorted(pieces, key=lambda piece: piece.stage)


def one_seed_each(pieces: Iterable[Piece]) -> list[Piece]:
    """Without an accelerator nothing is gained side by side: seeds go to cores of their own instead."""
    return [replace(piece, seeds=(seed,)) for piece in pieces for seed in piece.seeds]
