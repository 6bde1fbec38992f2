"""How long the server takes to answer, counted so cheaply that it is always on.

What leaves in one write is measured together, from the write to the arrival of its last reply: one look at
the clock for each write, however many commands it has. So a command is counted with the slowest of those it
left with, which is what its caller waited for at most.
"""

from __future__ import annotations

from bisect import bisect_left

LATENCY_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""The upper ends of the classes, in seconds; a last class has no end."""


class Latencies:
    """Commands by the time that their answers took, since the link was made."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds = 0.0
        """Of all commands together."""

    def add(self, seconds: float, commands: int) -> None:
        """Count commands that left in one write."""
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += commands
        self.seconds += seconds * commands
