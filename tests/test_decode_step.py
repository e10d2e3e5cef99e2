"""The arithmetic of a decode step: numbers computed by hand, and what must hold whatever the numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.decode_step import MODES, DecodeStep, HiddenBatch, Mode, Parts, beside_ns, largest_hidden_batch

US = 1_000.0
# 64 rows: 7 ms of filling, 64 µs to copy, 40 µs to apply, 200 µs to accept.
BATCH = Parts(fill_ns=7_000 * US, copy_ns=64 * US, apply_ns=40 * US, accept_ns=200 * US)


def step(mode: Mode, forward_us: float, parts: Parts = BATCH, rows: int = 64) -> DecodeStep:
    return DecodeStep(mode, parts, forward_us * US, rows)


@pytest.mark.parametrize(
    ("mode", "forward_us", "sticks_out_us", "exposed_us"),
    [
        ("overlapped", 20_000, 0, 64 + 40 + 200),
        ("overlapped", 7_000, 0, 304),
        ("overlapped", 5_000, 2_000, 2_304),
        ("barrier", 20_000, 0, 64 + 40),
        ("barrier", 7_000, 200, 304),
        ("barrier", 5_000, 2_200, 2_304),
        ("serialised", 20_000, 0, 7_304),
        ("serialised", 5_000, 0, 7_304),
    ],
)
def test_what_is_exposed_in_each_mode(mode: Mode, forward_us: int, sticks_out_us: int, exposed_us: int) -> None:
    found = step(mode, forward_us)
    assert found.sticks_out_ns == sticks_out_us * US
    assert found.exposed_ns == exposed_us * US
    assert found.exposed_per_token_ns == exposed_us * US / 64
    assert found.step_ns == (forward_us + exposed_us) * US
    assert found.share == exposed_us / (forward_us + exposed_us)


def test_a_step_that_loses_its_overlap_gives_away_a_quarter_of_its_throughput() -> None:
    assert step("serialised", 20_000).share == pytest.approx(0.2675, abs=1e-4)
    assert step("overlapped", 20_000).share == pytest.approx(0.0150, abs=1e-4)


@pytest.mark.parametrize(
    ("mode", "expected_us"), [("overlapped", 7_000), ("barrier", 7_200), ("serialised", 0)]
)  # fmt: skip
def test_what_runs_beside_the_forward_pass(mode: Mode, expected_us: int) -> None:
    assert beside_ns(mode, BATCH) == expected_us * US


_TIMES = st.floats(min_value=0, max_value=1e9)
_PARTS = st.builds(Parts, _TIMES, _TIMES, _TIMES, _TIMES)
_FORWARDS = st.floats(min_value=1, max_value=1e9)


@given(parts=_PARTS, forward_ns=_FORWARDS, rows=st.integers(1, 512))
def test_the_barrier_never_costs_more_than_overlap_nor_overlap_more_than_none(
    parts: Parts, forward_ns: float, rows: int
) -> None:
    barrier, overlapped, serialised = (
        DecodeStep(mode, parts, forward_ns, rows).exposed_ns for mode in ("barrier", "overlapped", "serialised")
    )
    slack = 1e-6 * (1 + serialised)  # floats are added in different orders
    assert barrier <= overlapped + slack
    assert overlapped <= serialised + slack
    assert barrier >= parts.copy_ns + parts.apply_ns


@given(parts=_PARTS, forwards=st.tuples(_FORWARDS, _FORWARDS), mode=st.sampled_from(MODES))
def test_a_longer_forward_pass_never_exposes_more(parts: Parts, forwards: tuple[float, float], mode: Mode) -> None:
    short, long = (DecodeStep(mode, parts, forward_ns, 1) for forward_ns in sorted(forwards))
    assert long.exposed_ns <= short.exposed_ns
    assert 0 <= long.share <= short.share < 1


@given(parts=_PARTS, mode=st.sampled_from(MODES))
def test_once_the_work_hides_the_length_of_the_pass_makes_no_difference(parts: Parts, mode: Mode) -> None:
    long_enough = max(beside_ns(mode, parts), 1.0)
    found = DecodeStep(mode, parts, long_enough, 1)
    assert found.sticks_out_ns == 0
    assert found.exposed_ns == DecodeStep(mode, parts, 3 * long_enough, 1).exposed_ns == found.after_ns


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"mode": "sometimes"}, "mode must be one of overlapped, serialised, barrier, not 'sometimes'"),
        ({"forward_ns": 0.0}, "forward_ns must be positive, not 0.0"),
        ({"forward_ns": math.nan}, "forward_ns must be positive, not nan"),
        ({"rows": 0}, "rows must be at least 1, not 0"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(fault: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"mode": "barrier", "parts": BATCH, "forward_ns": US, "rows": 1}
    with pytest.raises(ValueError, match=message):
        DecodeStep(**(fields | fault))


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_a_part_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="copy_ns must be a time of at least 0 ns"):
        Parts(1.0, value, 1.0, 1.0)


MEASURED = {1: 100.0, 16: 1_600.0, 64: 8_800.0, 128: 17_000.0}


@pytest.mark.parametrize(
    ("forward_ns", "expected"),
    [
        (50, HiddenBatch(1, "below")),
        (100, HiddenBatch(1, "at")),
        (199, HiddenBatch(1, "at")),  # 100 ns more for each row up to 16
        (200, HiddenBatch(2, "at")),
        (1_600, HiddenBatch(16, "at")),
        (1_899, HiddenBatch(17, "at")),  # 150 ns more for each row up to 64
        (5_000, HiddenBatch(38, "at")),
        (16_999, HiddenBatch(127, "at")),
        (17_000, HiddenBatch(128, "at_least")),
        (10**9, HiddenBatch(128, "at_least")),
    ],
)
def test_the_largest_batch_that_hides(forward_ns: float, expected: HiddenBatch) -> None:
    assert largest_hidden_batch(MEASURED, forward_ns) == expected
    assert largest_hidden_batch(dict(reversed(MEASURED.items())), forward_ns) == expected


def test_a_larger_batch_that_was_faster_hides_nothing_that_a_smaller_one_does_not() -> None:
    lucky = {1: 100.0, 16: 9_000.0, 64: 3_000.0}
    assert largest_hidden_batch(lucky, 4_550.0) == HiddenBatch(8, "at")
    assert largest_hidden_batch(lucky, 9_000.0) == HiddenBatch(64, "at_least")


def test_what_is_known_of_a_batch_in_words() -> None:
    assert str(HiddenBatch(38, "at")) == "38 rows"
    assert str(HiddenBatch(128, "at_least")) == "at least 128 rows"
    assert str(HiddenBatch(16, "below")) == "fewer than 16 rows"
    with pytest.raises(ValueError, match="no batch was measured"):
        largest_hidden_batch({}, 1.0)


_MEASURED = st.dictionaries(st.integers(1, 512), _TIMES, min_size=1, max_size=6)


@given(measured=_MEASURED, forwards=st.tuples(_FORWARDS, _FORWARDS))
def test_more_hides_behind_a_longer_pass_and_nothing_is_said_beyond_what_was_measured(
    measured: dict[int, float], forwards: tuple[float, float]
) -> None:
    fewer, more = (largest_hidden_batch(measured, forward_ns) for forward_ns in sorted(forwards))
    order = ("below", "at", "at_least")
    assert (order.index(fewer.bound), fewer.rows) <= (order.index(more.bound), more.rows)
    for found in (fewer, more):
        assert min(measured) <= found.rows <= max(measured)
        assert (found.bound == "at_least") <= (found.rows == max(measured))
        assert (found.bound == "below") <= (found.rows == min(measured))


@given(measured=_MEASURED, forward_ns=_FORWARDS)
def test_every_measured_size_up_to_the_largest_hidden_one_was_measured_to_hide(
    measured: dict[int, float], forward_ns: float
) -> None:
    found = largest_hidden_batch(measured, forward_ns)
    if found.bound != "below":
        assert all(work_ns <= forward_ns for rows, work_ns in measured.items() if rows <= found.rows)
