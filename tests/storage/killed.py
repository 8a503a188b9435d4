"""A run that a test kills: `python killed.py FILE CALLS ROUNDS WAIT PROCESSES`.

Every call of the simulator, which waits so many seconds, is noted in CALLS with the process that it runs in:
one of so many workers, or, with 0 of them, this one.
"""

import os
import sys
import time

import aptinfer as apt

SIMULATIONS = 60


def infer(file: str | None, calls: str, rounds: int, wait: float = 0.0, processes: int = 0) -> apt.Run:
    def simulate(rng, theta):
        with open(calls, "ab", buffering=0) as log:
            log.write(theta.tobytes() + os.getpid().to_bytes(8, "little"))
        time.sleep(wait)
        return theta + 0.2 * rng.standard_normal(2)

    trainer = apt.Trainer(epochs=40, patience=10, learning_rate=5e-3, warmup=10)
    method = apt.APT(estimator=apt.MDN(components=2), embedding=apt.MLP((8,)), trainer=trainer)
    return apt.infer(
        simulate,
        apt.box([-1, -1], [1, 1]),
        [0.2, 0.3],
        method=method,
        rounds=rounds,
        simulations=SIMULATIONS,
        progress=False,
        file=file,
        executor=apt.Processes(processes) if processes else None,
    )


if __name__ == "__main__":
    infer(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
