"""The clocks say what they cost, and the fake one moves only when told."""

from __future__ import annotations

import time

import pytest

from harness import clocks
from harness.clocks import FakeClock


def test_the_wall_clock_measures_its_own_resolution_and_overhead() -> None:
    clock = clocks.wall(2_000)
    assert clock.resolution_ns >= 1
    assert clock.overhead_ns > 0
    # Adjacent readings cannot be further apart, in the median, than two readings around a sleep of 1 ms.
    assert clock.overhead_ns < 1_000_000


def test_the_wall_clock_is_the_standard_librarys_own_function() -> None:
    assert clocks.wall(100).now_ns is time.perf_counter_ns


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock()
    assert (clock.now_ns(), clock.now_ns()) == (0, 0)
    clock.advance(7)
    assert clock.now_ns() == 7


def test_every_reading_of_a_fake_clock_can_cost_time() -> None:
    clock = FakeClock(per_reading_ns=5)
    assert (clock.now_ns(), clock.now_ns()) == (5, 10)
    assert clock.overhead_ns == 5


def test_a_body_takes_its_durations_in_order_and_then_fails() -> None:
    clock = FakeClock()
    body = clock.body([3, 4])
    body()
    body()
    assert (clock.now_ns(), body.calls) == (7, 2)
    with pytest.raises(StopIteration):
        body()
