"""The stage batch_fill: what is timed, under which conditions, and what is called wrong instead."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness import bitmask
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.clocks import FakeClock
from harness.constraint import Constraint
from harness.control_groups import quota_cores
from harness.measure import Plan
from harness.stages import Job, stages
from tests import fake_backends
from tests.batch.jobs import Batching, companion, job
from tests.fake_backends import Fake
from tests.making import VOCABULARY

WORDS = companion("test/words", Constraint("choice", '["yes", "no"]'), ("yes", "no"))
SHORT = Plan(warmup_iterations=0, min_samples=6, max_samples=12, time_cap_s=0.5)


def run(the_job: Job) -> tuple[list[Measurement], list[Refusal]]:
    results = stages()["batch_fill"].run(the_job)
    return [r for r in results if isinstance(r, Measurement)], [r for r in results if isinstance(r, Refusal)]


def conditions(policy: str, rows: Sequence[int] = (2, 5), **others: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    return {"policy": (policy,), "mix": ("positions",), "rows": tuple(rows), **others}


def test_each_policy_is_timed_over_each_mix_and_size_and_by_the_axes_that_matter_to_it_alone() -> None:
    asked = {"rows": (2, 5), "threshold": (4,), "chunk": (2, 3), "threads": (1, 2), "mix": ("identical", "positions")}
    timed, refused = run(job(Batching(), conditions=asked))
    assert refused == []
    for mix in asked["mix"]:
        found = [dict(m.conditions) for m in timed if m.conditions["mix"] == mix]
        base = [{"policy": policy, "mix": mix, "rows": rows} for policy in ("serial", "sglang_batch", "state_shared")
                for rows in (2, 5)]  # fmt: skip
        pool = [{"threshold": 4, "chunk": c, "threads": t} for c in (2, 3) for t in (1, 2)]
        expected = [
            *base,
            {"policy": "vllm_pool", "mix": mix, "rows": 2, "threshold": 4},
            *({"policy": "vllm_pool", "mix": mix, "rows": 5, **setting} for setting in pool),
            *({"policy": "native_batch", "mix": mix, "rows": rows, "threads": t} for rows in (2, 5) for t in (1, 2)),
        ]
        assert sorted(map(repr, map(_sorted, found))) == sorted(map(repr, map(_sorted, expected)))


def _sorted(values: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(values.items())


def test_left_out_the_pool_has_vllms_numbers_and_says_what_it_was_sized_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    timed, _ = run(job("naive", conditions=conditions("vllm_pool", rows=(128, 129))))
    below, above = timed
    assert below.conditions == {"policy": "vllm_pool", "mix": "positions", "rows": 128, "threshold": 128}
    assert "host_cpus" not in below.columns
    assert above.conditions == {**below.conditions, "rows": 129, "chunk": 16, "threads": 3}
    assert set(above.columns["host_cpus"]) == {6}
    assert set(above.columns["usable_cpus"]) == {len(os.sched_getaffinity(0))}
    assert set(above.columns["quota_cores"]) == {quota_cores()}


def test_a_sample_is_a_whole_block_and_policies_take_turns() -> None:
    clock = FakeClock()
    backend = Fake(spoil=lambda row: clock.advance(1_000))
    asked = {"policy": ("serial", "state_shared", "another stage's"), "mix": ("identical",), "rows": (7,)}
    timed, _ = run(job(backend, conditions=asked, plan=SHORT, clock=clock))
    serial, shared = timed
    assert set(serial.samples_ns) == {7_000.0}
    assert set(shared.samples_ns) == {1_000.0}
    for measurement in timed:
        assert set(measurement.columns["states"]) == {1}
        assert sorted(set(measurement.columns["round"])) == [0, 1, 2]


def test_what_a_library_lacks_is_refused_once_with_its_reason() -> None:
    asked = {"policy": ("serial", "native_batch"), "mix": ("identical", "positions"), "rows": (2, 5)}
    timed, refused = run(job("reference", conditions=asked))
    assert len(timed) == 4
    assert refused == [Refusal({"policy": "native_batch"}, "unsupported", "rows are filled one by one")]


def test_schemas_without_companions_are_refused_once_and_timed_with_them() -> None:
    asked = {"policy": ("serial", "state_shared"), "mix": ("schemas", "positions"), "rows": (2, 5)}
    timed, refused = run(job(Fake(), conditions=asked))
    assert {m.conditions["mix"] for m in timed} == {"positions"}
    (refusal,) = refused
    assert (refusal.conditions, refusal.kind) == ({"mix": "schemas"}, "unsupported")
    assert "no companions" in refusal.reason
    timed, refused = run(job(Fake(), conditions=asked, companions=[WORDS]))
    assert len(timed) == 8
    assert refused == []


def test_all_of_it_stays_within_the_plans_time() -> None:
    clock = FakeClock()
    durations = iter(range(5_000_000, 1_000_000_000, 100_000))  # never two alike: no interval closes
    backend = Fake(spoil=lambda row: clock.advance(next(durations)))
    plan = Plan(min_samples=1_000, max_samples=100_000, relative_interval=1e-9, time_cap_s=30.0)
    asked = {"policy": ("serial", "vllm_pool", "state_shared"), "mix": ("identical", "positions"), "rows": (2, 9)}
    timed, _ = run(job(backend, conditions=asked, plan=plan, clock=clock))
    assert len(timed) == 12
    assert {m.stop_reason for m in timed} == {"time_cap"}
    taken_s = sum(sum(m.samples_ns) for m in timed) / 1e9
    longest_s = max(max(m.samples_ns) for m in timed) / 1e9
    # Each turn ends with the block during which its time ran out.
    assert 20.0 < taken_s < 30.0 + 3 * len(timed) * longest_s


# Batch calls with a fault.


def _swap(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
    block[[1, 2]] = block[[2, 1]]


def _advance(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
    matchers[0].accept(int(bitmask.tokens(block[0], VOCABULARY.size)[0]))


def _close(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
    matchers[3].accept = lambda token: False  # type: ignore[method-assign]


def _leave_out(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
    np.invert(block[4], out=block[4])


@pytest.mark.parametrize(
    ("fault", "row", "message"),
    [
        (_swap, 1, "under policy native_batch is not its serial row"),
        (_leave_out, 4, "under policy native_batch is not its serial row"),
        (_advance, 0, "filled by itself after policy native_batch, which touched its state, is not its serial row"),
        (_close, 3, "after policy native_batch its matcher refuses token"),
    ],
)
def test_a_batch_call_with_a_fault_is_wrong_by_row_and_policy_and_is_not_timed(
    fault: Callable[[Sequence[fake_backends.Matcher], Row], None], row: int, message: str
) -> None:
    asked = {"policy": ("serial", "native_batch", "state_shared"), "mix": ("positions",), "rows": (9,)}
    timed, refused = run(job(Batching(fault), conditions=asked))
    assert [m.conditions["policy"] for m in timed] == ["serial", "state_shared"]  # on matchers that it has not spoiled
    (refusal,) = refused
    assert refusal.kind == "wrong"
    assert refusal.conditions == {"policy": "native_batch", "mix": "positions", "rows": 9}
    assert refusal.reason.startswith(f"row {row} of 9 (test/own, valid/")
    assert message in refusal.reason


def test_a_row_names_the_token_and_the_direction_of_its_fault() -> None:
    def forbid(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
        bitmask.set_bit(block[0], int(bitmask.tokens(block[0], VOCABULARY.size)[0]), False)

    _, (refusal,) = run(job(Batching(forbid), conditions=conditions("native_batch", rows=(3,))))
    token = VOCABULARY.tokens.index(b"n")
    assert refusal.reason.endswith(f"token {token} is too strict; rows that differ: 1")


def test_a_fault_that_comes_with_time_is_found_after_timing() -> None:
    calls: list[None] = []

    def late(matchers: Sequence[fake_backends.Matcher], block: Row) -> None:
        calls.append(None)
        if len(calls) > 5:
            _swap(matchers, block)

    timed, (refusal,) = run(job(Batching(late), conditions=conditions("native_batch", rows=(9,)), plan=SHORT))
    assert timed == []
    assert refusal.kind == "wrong"
    assert "while it was timed, is not its serial row" in refusal.reason


class Leaky(Fake):
    """Every matcher works out its row in the same scratch memory, and lets other threads run before it copies it."""

    def __init__(self) -> None:
        super().__init__(spoil=self._leak)
        self._scratch = bitmask.allocate_row(VOCABULARY.size)

    def _leak(self, row: Row) -> None:
        self._scratch[:] = row
        time.sleep(0.002)
        row[:] = self._scratch


def test_a_library_whose_rows_leak_into_each_other_between_threads_is_wrong_in_the_pool_alone() -> None:
    asked = {
        "policy": ("serial", "vllm_pool"), "mix": ("positions",), "rows": (16,), "threshold": (8,), "chunk": (4,),
        "threads": (4,),
    }  # fmt: skip
    timed, refused = run(job(Leaky(), conditions=asked))
    assert [m.conditions["policy"] for m in timed] == ["serial"]
    (refusal,) = refused
    assert refusal.kind == "wrong"
    assert "under policy vllm_pool is not its serial row" in refusal.reason
