"""JSON lines over stdin and stdout: one command in, one reply out.

Commands:
    {"command": "info"}                                     versions and thread counts
    {"command": "prepare", "case": ..., "settings": {...}, "seed": 0}
        builds data and networks, compiles, warms up
    {"command": "measure", "case": ..., "settings": {...}, "seed": 0, "repeat": 1,
     "samples_path": "..."}                                 the timed part, `repeat` times
    {"command": "release", "case": ...}                     forgets what was prepared
    {"command": "quit"}

`measure` answers {"seconds": [...], "details": [...]}, one entry per repetition: seconds per
optimisation step, per run or per sampling call, as the case's `unit` says. A failed command
answers {"error": traceback}.
"""

import json
import os
import sys
import traceback


def serve(bench):
    """Answer commands with the methods of `bench` until stdin closes or `quit` comes.

    Whatever the libraries print goes to stderr, so that stdout carries replies alone.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        message = json.loads(line)
        command = message.pop("command")
        if command == "quit":
            break
        try:
            reply = getattr(bench, command)(**message)
        except Exception:
            reply = {"error": traceback.format_exc()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
