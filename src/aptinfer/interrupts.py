"""Ctrl-C where an exception out of nowhere would do harm.

Python raises `KeyboardInterrupt` between any two instructions of the main thread: after a lock was taken and
before the block that gives it back (subprocess has such a place, and waits for ever afterwards), or in a
callback of the garbage collector, where it is lost.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def noted_ctrl_c(wake: Callable[[], Any] = lambda: None) -> Iterator[list[KeyboardInterrupt]]:
    """Within the block Ctrl-C is noted in the list, for the block to raise where that is safe.

    Pressed once more, it strikes. A handler of the user's own is left alone, and so are other threads than
    the main one, which Ctrl-C never strikes.

    Args:
        wake: called when it is pressed, between any two instructions: ends what the block waits for.
    """
    pressed: list[KeyboardInterrupt] = []
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield pressed
        return

    def note(number: int, frame: Any) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(KeyboardInterrupt())
        wake()

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, usual)
