"""The prior itself: the first round, and a part of defensive proposals."""

from dataclasses import dataclass

import numpy as np

from aptinfer.keys import Key
from aptinfer.protocols import Draws
from aptinfer.spaces import Frame


@dataclass(frozen=True)
class FromPrior:
    """Draws of the prior."""

    frame: Frame

    def draw(self, key: Key, n: int) -> Draws:
        value, theta = self.frame.draw_prior(key.generator(), n)
        return Draws(value, theta, np.zeros(n, np.int32))
