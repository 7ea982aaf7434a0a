"""Processor time in units that mean the same on a slow core as on a fast one.

Machines that run tests differ by half, and neighbours slow them further. So what is timed takes turns with a fixed
piece of Python of the same kind (calls, attributes, dictionaries, small tuples), and its time is given as it would be
on a core on which that piece takes `PIECE_US`: the one that the bounds of these tests were set on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

PIECE_US = 63.0


class Point:
    __slots__ = ("left", "right", "seen")

    def __init__(self, left: int, right: int) -> None:
        self.left = left
        self.right = right
        self.seen: list[tuple[int, ...]] = []

    def step(self, table: dict[int, int]) -> int:
        found = table.get(self.left, self.right)
        self.left, self.right = self.right, (found + 1) % 97
        self.seen.append((found, self.left))
        return found


def piece() -> int:
    """The same work each time."""
    table = {number: number * 3 % 97 for number in range(97)}
    points = [Point(number, number + 1) for number in range(16)]
    total = 0
    for _ in range(20):
        total += sum(point.step(table) for point in points)
    return total + max(len(point.seen[-4:]) for point in points)


def thread_us(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return 1e6 * (time.thread_time() - began)


def median_us(work: Callable[[], object], times: int) -> float:
    """Median processor microseconds of `work`, as if a piece took `PIECE_US`."""
    taken, pieces = zip(*((thread_us(work), thread_us(piece)) for _ in range(times)), strict=True)
    return median(taken) / median(pieces) * PIECE_US
