"""Clocks, and what reading one costs. Worker side: standard library only.

A clock says what it can tell apart (``resolution_ns``) and how much time two readings with nothing between them show
(``overhead_ns``); both are measured in the process that uses it and stored with every record. Nothing is ever
subtracted silently.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


class Clock(Protocol):
    """Something that tells time in nanoseconds from an arbitrary start."""

    @property
    def name(self) -> str: ...

    @property
    def resolution_ns(self) -> float:
        """The smallest difference between two readings that it can show, ns."""
        ...

    @property
    def overhead_ns(self) -> float:
        """Median of what two adjacent readings show with nothing between them, ns: part of every sample."""
        ...

    def now_ns(self) -> int: ...


@dataclass(frozen=True)
class WallClock:
    """``time.perf_counter_ns``: monotonic wall time."""

    resolution_ns: float
    overhead_ns: float
    name: str = "perf_counter_ns"
    # A class attribute bound to the C function itself: reading the clock costs one call and no Python frame.
    now_ns = staticmethod(time.perf_counter_ns)


def wall(readings: int = 20_000) -> WallClock:
    """A wall clock, its resolution and overhead measured now over ``readings`` adjacent readings."""
    now = time.perf_counter_ns
    differences = [0] * readings
    for i in range(readings):
        before = now()
        differences[i] = now() - before
    positive = [d for d in differences if d > 0]
    # The two ends of a difference are both multiples of the clock's tick, so the smallest gap between the distinct
    # differences seen is the finest step it shows; with one distinct value, that value is the finest known.
    distinct = sorted(set(differences))
    gaps = [b - a for a, b in pairwise(distinct)]
    resolution = min([*gaps, *positive[:1]]) if gaps else (positive[0] if positive else 1)
    advertised = time.get_clock_info("perf_counter").resolution * 1e9
    return WallClock(resolution_ns=max(float(resolution), advertised), overhead_ns=statistics.median(differences))


class FakeClock:
    """A clock that a test moves. ``advance`` moves it; ``per_reading_ns`` is what every reading itself costs."""

    def __init__(self, *, resolution_ns: float = 1.0, per_reading_ns: int = 0) -> None:
        self.name = "fake"
        self.resolution_ns = resolution_ns
        self.overhead_ns = float(per_reading_ns)
        self._per_reading_ns = per_reading_ns
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += self._per_reading_ns
        return self._now_ns

    def advance(self, duration_ns: int) -> None:
        self._now_ns += duration_ns

    def body(self, durations_ns: Iterable[int]) -> Body:
        """A callable that takes the next of ``durations_ns`` at each call; it fails the test where they run out."""
        return Body(self, iter(durations_ns))


@dataclass
class Body:
    """A body of known duration, on a fake clock. ``calls`` counts how often it ran."""

    clock: FakeClock
    durations_ns: Iterator[int]
    calls: int = 0

    def __call__(self) -> None:
        self.calls += 1
        self.clock.advance(next(self.durations_ns))
