"""The measuring loop, told time by a fake clock: every expected value is exact."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clocks import FakeClock
from harness.errors import MasktaxError
from harness.measure import (
    Plan,
    Samples,
    enough,
    loop,
    measure,
    merge,
    outliers,
    quantile,
    relative_interval,
)

# A plan that stops by nothing but the number of samples, unless a test says otherwise.
PLAN = Plan(
    warmup_iterations=0, resolution_multiple=100, min_samples=6, max_samples=12, relative_interval=1e-9,
    plateau_improvement=0.0, time_cap_s=1e6,
)  # fmt: skip


def with_(plan: Plan, **changes: object) -> Plan:
    return Plan(**({name: getattr(plan, name) for name in Plan.names()} | changes))  # type: ignore[arg-type]


def run(durations: Iterable[int], plan: Plan, resolution_ns: float = 1.0) -> tuple[object, int]:
    clock = FakeClock(resolution_ns=resolution_ns)
    body = clock.body(durations)
    measurement = measure(loop(body), clock, plan)
    return measurement, body.calls


def test_warm_up_iterations_run_and_are_not_recorded() -> None:
    # 3 warm-up calls of 9,000; one calibration call of 500, long enough at 100 × 1 ns; then samples of 200.
    durations = itertools.chain([9_000] * 3, [500], itertools.repeat(200))
    measurement, calls = run(durations, with_(PLAN, warmup_iterations=3, relative_interval=0.01))
    assert measurement.samples_ns == (200.0,) * 6
    assert measurement.warmup_iterations == 3
    assert calls == 3 + 1 + 6


def test_calibration_repeats_a_short_body_until_a_sample_is_long_enough() -> None:
    # At 10 ns a call and 1,000 ns wanted: 1 call lasts 10, aim at 100 but at most tenfold → 10 calls, 100 ns → 100.
    measurement, calls = run(itertools.repeat(10), with_(PLAN, resolution_multiple=1_000, relative_interval=0.01))
    assert measurement.iterations == (100,) * 6
    assert measurement.samples_ns == (10.0,) * 6
    assert calls == 1 + 10 + 100 + 6 * 100


def test_calibration_counts_the_clocks_overhead_where_it_exceeds_the_resolution() -> None:
    clock = FakeClock(resolution_ns=1, per_reading_ns=50)
    body = clock.body(itertools.repeat(950))
    measurement = measure(loop(body), clock, with_(PLAN, relative_interval=0.01))
    # Wanted: 100 × 50 = 5,000 ns; one call shows 950 + 50 = 1,000; five show 4,800; the next try doubles to ten.
    assert measurement.iterations == (10,) * 6
    assert measurement.samples_ns == ((10 * 950 + 50) / 10,) * 6


def test_a_body_that_cannot_be_repeated_is_run_once_a_sample() -> None:
    clock = FakeClock(resolution_ns=1_000)
    body = clock.body(itertools.repeat(10))
    measurement = measure(loop(body), clock, with_(PLAN, relative_interval=0.01), repeatable=False)
    assert measurement.iterations == (1,) * 6
    assert body.calls == 6


def test_times_are_divided_by_the_iterations_in_one_unit_of_work() -> None:
    clock = FakeClock()
    body = clock.body(itertools.repeat(3_000))
    measurement = measure(loop(body), clock, with_(PLAN, relative_interval=0.01), unit=30)
    assert measurement.samples_ns == (100.0,) * 6
    assert measurement.iterations == (30,) * 6


def test_steady_samples_stop_at_the_smallest_number_by_their_interval() -> None:
    measurement, _ = run(itertools.repeat(500), with_(PLAN, relative_interval=0.01))
    assert (len(measurement.samples_ns), measurement.stop_reason) == (6, "relative_interval")


def test_the_interval_is_looked_at_after_every_sample() -> None:
    # 100, then 200s. Up to ten samples the interval starts at the lowest, ⌊10/2 − 1.96·√10/2⌋ = 1: (200 − 100)/2/200
    # is 0.25. With eleven it starts at rank ⌊11/2 − 1.96·√11/2⌋ = 2, all 200s: 0.
    durations = itertools.chain([500], [100], itertools.repeat(200))
    measurement, _ = run(durations, with_(PLAN, relative_interval=0.2))
    assert (len(measurement.samples_ns), measurement.stop_reason) == (11, "relative_interval")


def test_it_gives_up_where_doubling_the_samples_no_longer_helps() -> None:
    # 100 and 300 alternating never narrow: the interval is [100, 300] at 6 samples and still at 12.
    durations = itertools.chain([500], itertools.cycle([100, 300]))
    measurement, _ = run(durations, with_(PLAN, max_samples=1_000, plateau_improvement=0.1))
    assert (len(measurement.samples_ns), measurement.stop_reason) == (12, "noise_plateau")


def test_it_stops_at_the_largest_number_of_samples() -> None:
    durations = itertools.chain([500], (100 + 7 * (i % 5) for i in itertools.count()))
    measurement, _ = run(durations, PLAN)
    assert (len(measurement.samples_ns), measurement.stop_reason) == (12, "max_samples")


def test_the_time_cap_wins_over_the_smallest_number_but_leaves_one_sample() -> None:
    # Calibration takes 2 s, the cap is 1 s: one sample and no more.
    measurement, calls = run(itertools.repeat(2_000_000_000), with_(PLAN, time_cap_s=1.0))
    assert (measurement.samples_ns, measurement.stop_reason) == ((2e9,), "time_cap")
    assert calls == 2


def test_preparation_is_outside_the_samples_and_inside_the_time_cap() -> None:
    clock = FakeClock()

    def make(_: int) -> object:
        clock.advance(400_000_000)
        return lambda: clock.advance(1_000)

    measurement = measure(make, clock, with_(PLAN, time_cap_s=1.0), repeatable=False)  # type: ignore[arg-type]
    assert measurement.samples_ns == (1_000.0,) * 3
    assert measurement.stop_reason == "time_cap"


def test_an_untimed_plan_runs_the_body_once() -> None:
    clock = FakeClock()
    body = clock.body([500])
    measurement = measure(loop(body), clock, PLAN.once(), repeatable=False)
    assert (len(measurement.samples_ns), body.calls) == (1, 1)


def test_outliers_are_labelled_and_kept() -> None:
    # Quartiles of 1…9 with 100 appended: positions 2.25 and 6.75 of the sorted ten → 3.25 and 7.75, range 4.5.
    # Mild beyond 7.75 + 6.75 = 14.5, severe beyond 7.75 + 13.5 = 21.25.
    assert outliers([1, 2, 3, 4, 5, 6, 7, 8, 9, 100])[-1] == "severe"
    assert outliers([1, 2, 3, 4, 5, 6, 7, 8, 9, 15])[-1] == "mild"
    assert outliers([1, 2, 3, 4, 5, 6, 7, 8, 9, 14]) == ("",) * 10
    durations = itertools.chain([500], [100, 101, 102, 103, 104, 9_000], itertools.repeat(103))
    measurement, _ = run(durations, PLAN)
    assert measurement.samples_ns[5] == 9_000.0
    assert measurement.outliers[5] == "severe"
    assert len(measurement.outliers) == len(measurement.samples_ns)


def test_no_outliers_are_claimed_of_fewer_than_four_samples() -> None:
    assert outliers([1, 1, 1_000]) == ("", "", "")


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=60), st.floats(0, 1))
def test_quantiles_lie_between_the_extremes_and_do_not_fall(values: list[float], q: float) -> None:
    ordered = sorted(values)
    assert ordered[0] <= quantile(ordered, q) <= ordered[-1]
    assert quantile(ordered, q) <= quantile(ordered, min(1.0, q + 0.1))


def test_there_is_no_interval_of_a_median_below_six_samples() -> None:
    assert relative_interval([1.0] * 5) == math.inf
    assert relative_interval([1.0] * 6) == 0


def test_the_interval_of_the_median_covers_it_about_as_often_as_it_says() -> None:
    generator = random.Random(20)
    trials, covered, n = 2_000, 0, 50
    # n = 50: ⌊25 − 1.96·√50/2⌋ = 18, so the 18th lowest to the 18th highest.
    low, high = 17, 32
    for _ in range(trials):
        ordered = sorted(generator.expovariate(1.0) for _ in range(n))
        covered += ordered[low] <= math.log(2) <= ordered[high]
        assert relative_interval(ordered) == pytest.approx((ordered[high] - ordered[low]) / 2 / quantile(ordered, 0.5))
    assert 0.94 <= covered / trials <= 0.98


def test_single_shots_keep_their_columns_beside_them() -> None:
    samples = Samples({"visit": "first"})
    samples.add(300, position=0)
    samples.add(900, 3, position=1)
    measurement = samples.measurement("single_shots")
    assert measurement.samples_ns == (300.0, 300.0)
    assert measurement.iterations == (1, 3)
    assert measurement.columns == {"position": (0, 1)}


def test_merged_measurements_keep_all_samples_and_name_every_reason() -> None:
    one = Samples({"k": 1})
    one.add(5, position=0)
    other = Samples({"k": 1})
    other.add(6, position=9)
    merged = merge([one.measurement("time_cap", 1), other.measurement("max_samples", 2)])
    assert merged.samples_ns == (5.0, 6.0)
    assert merged.columns == {"position": (0, 9)}
    assert merged.stop_reason == "max_samples+time_cap"
    assert merged.warmup_iterations == 3


def test_iterations_for_an_estimated_body_follow_the_same_rule() -> None:
    clock = FakeClock(resolution_ns=10)
    assert enough(100.0, clock, PLAN) == 10
    assert enough(5_000.0, clock, PLAN) == 1
    assert enough(0.0, clock, PLAN) == 1_000


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"min_samples": 0}, "min_samples"),
        ({"time_cap_s": -1}, "time_cap_s"),
        ({"warmup_iterations": -1}, "warmup_iterations"),
        ({"plateau_improvement": 1.0}, "plateau_improvement"),
        ({"min_samples": 30, "max_samples": 20}, "max_samples"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(MasktaxError, match=named):
        with_(PLAN, **changes)
