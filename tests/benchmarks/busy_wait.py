"""Does the measuring loop tell the truth? Bodies that busy-wait for a known time, measured by it.

    python -m tests.benchmarks.busy_wait

A body of 20 µs and one of 1 ms, each spinning until ``time.perf_counter_ns`` has moved by that much, are measured under
the default plan. Exit 1 where a median is off by more than 2 %.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from harness import clocks
from harness.measure import Plan, loop, measure


def busy(duration_ns: int) -> Callable[[], None]:
    def body() -> None:
        end = time.perf_counter_ns() + duration_ns
        while time.perf_counter_ns() < end:
            pass

    return body


def main() -> int:
    clock = clocks.wall()
    print(f"clock: resolution {clock.resolution_ns:.0f} ns, overhead {clock.overhead_ns:.0f} ns")
    good = True
    for duration_ns in (20_000, 1_000_000):
        measurement = measure(loop(busy(duration_ns)), clock, Plan())
        median = statistics.median(measurement.samples_ns)
        error = median / duration_ns - 1
        good = good and abs(error) <= 0.02
        print(
            f"busy wait of {duration_ns:>9,} ns: median {median:>11,.0f} ns ({error:+.2%}), "
            f"{len(measurement.samples_ns)} samples, stopped by {measurement.stop_reason}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
