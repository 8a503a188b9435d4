"""Convolutions as dense products against XLA's own: a gradient step of the paper's network on 100 images.

One network, and five side by side, as runs of several seeds are trained.

    python benchmarks/convolutions.py
"""

import argparse
import datetime
import functools
import json
import pathlib
import time
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import aptinfer as apt
from aptinfer.estimators import convolutions
from aptinfer.estimators.ensemble import build_members, member
from aptinfer.keys import Key
from aptinfer.precision import precise

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "convolutions.jsonl"
WAYS = {"product": convolutions.pooled_by_product, "xla": convolutions.pooled_by_xla}
ROWS, BATCH, STEPS, REPETITIONS = 1000, 100, 10, 4


def milliseconds(way: str, networks: int) -> float:
    """Of one step of all networks: the best of some repetitions of a compiled loop."""
    published = apt.problems.get("rock_paper_scissors").network
    settings = published["estimator"], published["embedding"], 3, (3, 100, 100)
    built = [member(build_members(Key((i,)), *settings), 0).embedding for i in range(networks)]
    parts = [eqx.partition(network, eqx.is_inexact_array) for network in built]
    weights = jax.tree.map(lambda *arrays: jnp.stack(arrays), *(part[0] for part in parts))
    x = jax.random.normal(jax.random.key(0), (networks, ROWS, 3, 100, 100))

    def trained(weights, x, key):
        def loss(weights, index):
            return jnp.mean(jax.vmap(eqx.combine(weights, parts[0][1]))(x[index]) ** 2)

        def step(weights, key):
            slope = jax.grad(loss)(weights, jax.random.randint(key, (BATCH,), 0, ROWS))
            return jax.tree.map(lambda w, g: w - np.float32(1e-3) * g, weights, slope), None

        return jax.lax.scan(step, weights, jax.random.split(key, STEPS))[0]

    by_way = functools.partial(mock.patch.object, convolutions, new=WAYS[way])
    with by_way("pooled_by_product"), by_way("pooled_by_xla"):
        program = jax.jit(precise(jax.vmap(trained)))
        arguments = weights, x, jax.random.split(jax.random.key(1), networks)
        jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - began)
    return 1000 * min(seconds) / STEPS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    chosen = parser.parse_args()
    for count in chosen.networks:
        for name in WAYS:
            line = {
                "by": name,
                "networks": count,
                "milliseconds": round(milliseconds(name, count), 3),
                "device": jax.devices()[0].device_kind,
                "versions": {"aptinfer": apt.__version__, "jax": jax.__version__},
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            print(f"{count} by {name}: {line['milliseconds']:.2f} ms", flush=True)
            with chosen.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
