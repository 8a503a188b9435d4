"""The rows of a round on their way through workers: what waits, how much to hand out at once, what to repeat.

Workers get whole chunks, in groups that take about `TARGET_SECONDS`: long enough that handing them out costs
nothing, short enough that nobody waits for the last one. How long a chunk takes is learned on the way.
"""

from collections import deque

from aptinfer.protocols import Rows
from aptinfer.simulators import chunk_edges, in_order

TARGET_SECONDS = 0.2
GROWTH = 8  # a group has at most so many times the chunks that have been timed: early timings mislead
FORGETTING = 0.9  # what earlier timings still weigh when a new one comes


class Work:
    """A round's chunks. A `range` of chunk numbers is what workers are given.

    Args:
        rows: what is to be simulated.
        chunk: the simulator's fixed size of a chunk.
        target: seconds that a group of chunks should take.
    """

    def __init__(self, rows: Rows, chunk: int, target: float = TARGET_SECONDS):
        self.index, self.theta = in_order(rows)
        self.edges = chunk_edges(self.index, chunk)
        self.target = target
        self.chunks = len(self.edges) - 1
        self.waiting = deque([range(self.chunks)] if self.chunks else [])
        self.unfinished = self.chunks
        self.attempts: dict[int, int] = {}
        self._timed, self._recent, self._recent_seconds = 0, 0.0, 0.0

    def rows(self, chunks: range) -> Rows:
        """Their rows."""
        part = slice(self.edges[chunks.start], self.edges[chunks.stop])
        return Rows(self.index[part], self.theta[part])

    def take(self, takers: int) -> range | None:
        """The next group of chunks, for one of so many workers; None if all are handed out."""
        if not self.waiting:
            return None
        size = self._size(takers)
        first = self.waiting.popleft()
        if size < len(first):
            self.waiting.appendleft(first[size:])
        return first[:size]

    def _size(self, takers: int) -> int:
        if not self._timed:
            return 1
        affordable = int(self.target * self._recent / max(self._recent_seconds, 1e-9))
        left = sum(len(chunks) for chunks in self.waiting)
        fair = -(-left // (2 * takers))  # towards the end groups shrink, so that all workers end together
        return max(1, min(affordable, fair, GROWTH * self._timed))

    def done(self, chunks: int, seconds: float) -> None:
        """So many chunks came back, after a worker was busy with them for so long."""
        self.unfinished -= chunks
        self._timed += chunks
        self._recent = FORGETTING * self._recent + chunks
        self._recent_seconds = FORGETTING * self._recent_seconds + seconds

    def put_back(self, chunks: range) -> None:
        """These were not finished, through no fault of their own: they come first."""
        if len(chunks):
            self.waiting.appendleft(chunks)

    def attempted(self, chunk: int) -> int:
        """How often this one has ended its worker, this time included."""
        self.attempts[chunk] = self.attempts.get(chunk, 0) + 1
        return self.attempts[chunk]
