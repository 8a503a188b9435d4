"""Speed of the problems' simulators, each beside a plain loop in NumPy measured in the same run.

A case is compiled, then timed several times; the median counts. The loop simulates one draw after the
other, as one would write it without a library, on fewer of the same draws, and its seconds are scaled up.

    python benchmarks/simulators.py
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from aptinfer import problems
from aptinfer.problems import mg1, slcp
from aptinfer.protocols import Rows

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "simulators.jsonl"
PACKAGES = ("aptinfer", "jax", "jaxlib", "numpy")


def slcp_loop(rng, theta):
    s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
    u_1, u_2 = rng.standard_normal((2, 4))
    x_1 = theta[0] + s_1 * u_1
    x_2 = theta[1] + s_2 * (rho * u_1 + np.sqrt(1 - rho**2) * u_2)
    return np.stack([x_1, x_2], axis=1).ravel()


def mg1_loop(rng, theta):
    service = rng.uniform(theta[0], theta[1], 50)
    arrival = np.cumsum(rng.exponential(1 / theta[2], 50))
    left, between = 0.0, np.empty(50)
    for i in range(50):
        between[i] = service[i] + max(0.0, arrival[i] - left)
        left += between[i]
    return np.percentile(between, [0, 25, 50, 75, 100])


def series_loop(rng, theta, limit):
    """Gillespie's algorithm, event by event; None after too many."""
    rates = [float(rate) for rate in np.exp(theta)]
    x, y, now, events, series = 50, 100, 0.0, 0, []
    for step in range(151):
        while now < 0.2 * step:
            born = rates[0] * x * y
            died = born + rates[1] * x
            bred = died + rates[2] * y
            total = bred + rates[3] * x * y
            if total == 0:
                now = np.inf
                break
            now += rng.exponential() / total
            choice = rng.random() * total
            if choice < born:
                x += 1
            elif choice < died:
                x -= 1
            elif choice < bred:
                y += 1
            else:
                y -= 1
            events += 1
            if events > limit:
                return None
        series.append((x, y))
    return np.array(series, float)


def lotka_volterra_loop(rng, theta):
    series = series_loop(rng, theta, 10_000)
    if series is None:
        return None
    spread = series.std(axis=0, ddof=1)
    if np.any(spread == 0):
        return None
    z = (series - series.mean(axis=0)) / spread
    lags = [z[k:, j] @ z[:-k, j] / 150 for j in (0, 1) for k in (1, 2)]
    return np.array([*series.mean(axis=0), *np.log(spread**2 + 1), *lags, z[:, 0] @ z[:, 1] / 150])


def lotka_volterra_raw_loop(rng, theta):
    return series_loop(rng, theta, 50_000)


def rock_paper_scissors_loop(rng, theta):
    mu, sigma, diffusion = 10**theta
    field = np.full((3, 100, 100), mu / (3 * mu + sigma))
    for _ in range(100):
        neighbours = sum(np.roll(field, shift, axis) for shift in (-1, 1) for axis in (1, 2))
        free = mu * (1 - field.sum(axis=0))
        eaten = sigma * np.roll(field, 1, axis=0)
        noise = np.sqrt(field * (np.maximum(free, 0) + eaten)) * rng.standard_normal(field.shape)
        drift = diffusion * 100**2 * (neighbours - 4 * field) + field * (free - eaten)
        field = np.clip(field + drift + 0.01 * noise, 0, 1)
    return field


class Case(NamedTuple):
    """What is timed: the simulator behind the library's call, or a function of one draw, vectorised.

    Args:
        draws: how many are simulated at once.
        loop: the same in NumPy, for one draw.
        loop_draws: how many of them the loop does.
        function: f(key, theta) to be vectorised; None: the problem's simulator, outcomes included.
    """

    draws: int
    loop: Callable
    loop_draws: int
    function: Callable | None = None


CASES = {
    "slcp": Case(1_000_000, slcp_loop, 20_000, slcp.simulate),
    "mg1": Case(100_000, mg1_loop, 2000, mg1.simulate),
    "lotka_volterra": Case(1000, lotka_volterra_loop, 200),
    "lotka_volterra_raw": Case(1000, lotka_volterra_raw_loop, 200),
    "rock_paper_scissors": Case(1000, rock_paper_scissors_loop, 10),
}


def simulation(name: str, case: Case, theta: np.ndarray) -> Callable[[int], object]:
    """A function of a seed that runs the whole case and waits for it; compiled."""
    if case.function is None:
        simulator, rows = problems.get(name).simulator, Rows(np.arange(len(theta)), theta)
        simulator(0, Rows(*(column[: simulator.chunk] for column in rows)))
        return lambda seed: simulator(seed, rows)
    function, values = case.function, theta.astype(np.float32)

    @jax.jit
    def run(seed, values):
        return jax.vmap(function)(jax.random.split(jax.random.key(seed), len(values)), values)

    run(0, values).block_until_ready()
    return lambda seed: np.asarray(run(seed, values))


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # on the path without being installed
        return getattr(importlib.import_module(package), "__version__", "unknown")


def measured(name: str, case: Case, repetitions: int) -> dict:
    """One line of results."""
    load = os.getloadavg()[0]
    theta = problems.get(name).prior.sample(np.random.default_rng(0), case.draws)
    run = simulation(name, case, theta)
    ours = [seconds(lambda seed=seed: run(seed)) for seed in range(1, repetitions + 1)]
    rng = np.random.default_rng(1)
    # Spread over all of the draws: the longest take a thousand times as long as the shortest.
    some = theta[:: case.draws // case.loop_draws]
    loop = seconds(lambda: [case.loop(rng, row) for row in some])
    scaled = loop * case.draws / len(some)
    median = statistics.median(ours)
    return {
        "case": name,
        "timed": "problem.simulator" if case.function is None else "jit(vmap(simulate))",
        "draws": case.draws,
        "seconds": median,
        "seconds_numpy_scaled": scaled,
        "ratio": scaled / median,
        "repetitions": ours,
        "numpy_draws": len(some),
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in PACKAGES},
        "load_before": load,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    arguments = parser.parse_args()
    print("| case | draws | aptinfer | NumPy loop | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name in arguments.cases:
        line = measured(name, CASES[name], arguments.repetitions)
        with arguments.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        times = f"{line['seconds']:.3g} s | {line['seconds_numpy_scaled']:.3g} s | {line['ratio']:.3g}"
        print(f"| `{name}` | {line['draws']:,} | {times} |", flush=True)


if __name__ == "__main__":
    main()
