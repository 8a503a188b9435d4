"""Compiled programs that tests share in a process."""

import pytest

from aptinfer import epochs


def forget_programs():
    """Let go of everything compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "MOST_MAPS", 0.0)
        epochs.make_room()
