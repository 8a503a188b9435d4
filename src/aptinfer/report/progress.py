"""The live display of a run: round, simulations, epochs, losses, time left. Silent off a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aptinfer.sequential import Event, Plan, RoundFinished, RoundStarted, Simulated, Trained


@contextmanager
def display(plan: Plan, method: Any, *, enabled: bool) -> Iterator[Callable[[Event], None]]:
    """A listener that keeps one line up to date while the run lasts, below one that says the plan."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda event: None
        return
    console.print(plan_in_words(plan, method), highlight=False)
    status = _Status(plan)
    with Live(status.text(), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            status.update(event)
            live.update(status.text())

        yield show


def plan_in_words(plan: Plan, method: Any) -> str:
    """What a run is going to do."""
    rounds = "1 round" if plan.rounds == 1 else f"{plan.rounds} rounds"
    return f"{type(method).__name__}: {rounds} of {plan.simulations} simulations, {plan.capacity} in all"


class _Status:
    """What is known of the run, as a line of text."""

    def __init__(self, plan: Plan):
        self.plan, self.started = plan, time.monotonic()
        self.number, self.doing, self.finished_at = 0, "starting", [0.0]

    def update(self, event: Event) -> None:
        if isinstance(event, RoundStarted):
            self.number, self.doing = event.number, "proposing"
        elif isinstance(event, Simulated):
            failed = f", {event.failed} failed" if event.failed else ""
            self.doing = f"simulated {event.done + event.failed} of {self.plan.size(event.number)}{failed}"
        elif isinstance(event, Trained):
            p = event.progress
            self.doing = (
                f"training, epoch {p.epoch}: loss {p.training_loss:.3f}, "
                f"validation {p.validation_loss:.3f} (best {p.best_loss:.3f})"
            )
        elif isinstance(event, RoundFinished):
            self.finished_at.append(time.monotonic() - self.started)

    def text(self) -> str:
        return f"round {self.number + 1}/{self.plan.rounds}  {self.doing}  {self._time_left()}"

    def _time_left(self) -> str:
        elapsed = time.monotonic() - self.started
        if len(self.finished_at) < 2:
            return f"[{elapsed:.0f} s]"
        # Rounds grow, as each trains on all rows so far: the last one is the best guess.
        last = self.finished_at[-1] - self.finished_at[-2]
        left = last * (self.plan.rounds - len(self.finished_at) + 1)
        left = max(left - (elapsed - self.finished_at[-1]), 0.0)
        return f"[{elapsed:.0f} s, about {left:.0f} s left]"
