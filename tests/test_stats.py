"""Order statistics: exact values, and no tail percentile that is not an observation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.stats import Weighted, summary, tail


def test_a_summary_gives_the_median_and_the_quartiles() -> None:
    found = summary([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found.samples, found.iqr_low_ns, found.median_ns, found.iqr_high_ns, found.max_ns) == (
        5,
        2.0,
        3.0,
        4.0,
        5.0,
    )


def test_a_summary_of_nothing_says_nothing() -> None:
    found = summary([])
    assert found.samples == 0
    assert all(math.isnan(v) for v in (found.median_ns, found.iqr_low_ns, found.p99_ns, found.max_ns))


@pytest.mark.parametrize(("q", "enough"), [(0.9, 10), (0.99, 100), (0.999, 1_000)])
def test_a_tail_percentile_needs_a_sample_expected_beyond_it(q: float, enough: int) -> None:
    values = [float(n) for n in range(1, enough + 1)]
    assert math.isnan(tail(values[:-1], q))
    assert tail(values, q) == pytest.approx(1 + q * (enough - 1))


def test_every_group_weighs_the_same_however_many_samples_it_has() -> None:
    # One slow sample against nine fast ones, each side half of the weight.
    values = np.array([100.0, *range(1, 10)], dtype=float)
    weights = np.array([1.0] + [1 / 9] * 9)
    found = Weighted.of(values, weights)
    assert found.quantile(0.25) == 5.0  # five ninths of the fast half are 0.278
    assert found.quantile(0.45) == 9.0
    assert found.quantile(0.55) == 100.0
    assert (found.samples, found.max_ns, found.share[-1]) == (10, 100.0, 1.0)


def test_equal_weights_count_every_sample_and_unequal_ones_fewer() -> None:
    values = np.arange(100, dtype=float)
    assert Weighted.of(values, np.ones(100)).effective == pytest.approx(100)
    lopsided = Weighted.of(values, np.array([99.0] + [1.0] * 99))
    assert lopsided.effective < 4
    assert math.isnan(lopsided.quantile(0.9))  # a hundred samples, but of the weight of fewer than four


def test_weighted_quantiles_are_values_that_were_seen() -> None:
    values = np.array([10.0, 30.0, 20.0, 40.0])
    found = Weighted.of(values, np.ones(4))
    assert [found.quantile(q) for q in (0.25, 0.5, 0.51, 0.75)] == [10.0, 20.0, 30.0, 30.0]
