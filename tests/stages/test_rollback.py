"""The stage rollback: against history, checked before it is timed, and a cost that grows with history shows."""

from __future__ import annotations

import json

import pytest

from harness.cell import Measurement, Refusal
from harness.clocks import FakeClock
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.measure import Plan
from harness.stages import Job, stages
from tests.batch.jobs import job

from .rewinding import Rewinding, RewindingMatcher, exactly, forgetting_one

TEXT = "abqyesno" * 12  # each of its tokens is one of the synthetic vocabulary's own: abq, yes, no
LONG = Constraint("choice", json.dumps([TEXT, "yes"]))
SHORT = Plan(warmup_iterations=0, min_samples=6, max_samples=6)


def run(the_job: Job) -> list[Measurement | Refusal]:
    return list(stages()["rollback"].run(the_job))


def timed(results: list[Measurement | Refusal]) -> dict[tuple[int, int], Measurement]:
    measured = [r for r in results if isinstance(r, Measurement)]
    return {(m.conditions["rollback_tokens"], m.conditions["history"]): m for m in measured}


def test_each_history_is_timed_where_the_document_is_long_enough() -> None:
    asked = {"rollback_tokens": (1, 8), "history": (4, 16, 32, 4_096)}
    results = run(job("naive", LONG, (TEXT,), conditions=asked))
    found = timed(results)
    assert set(found) == {(1, 4), (1, 16), (1, 32), (8, 16), (8, 32)}  # eight of four tokens cannot be taken back
    for (_, history), measurement in found.items():
        assert set(measurement.columns["position"]) == {history}
    refused = [r for r in results if isinstance(r, Refusal)]
    assert [(r.conditions, r.kind) for r in refused] == [
        ({"rollback_tokens": k, "history": 4_096}, "unsupported") for k in (1, 8)
    ]
    assert all("36 tokens" in r.reason for r in refused)


def test_without_a_history_positions_along_the_document_are_taken() -> None:
    (measurement,) = run(job("naive", LONG, (TEXT,), conditions={"rollback_tokens": (4,)}))
    assert isinstance(measurement, Measurement)
    assert measurement.conditions == {"rollback_tokens": 4}
    assert sorted(set(measurement.columns["position"])) == [4, 12, 20, 28, 36]


def test_rewinds_that_are_longer_than_everything_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="longer than any history"):
        run(job("naive", LONG, (TEXT,), conditions={"rollback_tokens": (9,), "history": (4, 8)}))


def test_a_rewind_that_costs_work_proportional_to_history_shows_in_its_columns() -> None:
    clock = FakeClock()

    def copying(matcher: RewindingMatcher, count: int) -> None:
        clock.advance(10 * len(matcher.history))
        exactly(matcher, count)

    def flat(matcher: RewindingMatcher, count: int) -> None:
        clock.advance(50)
        exactly(matcher, count)

    asked = {"rollback_tokens": (1,), "history": (4, 8, 16, 32)}
    for rewind, expected in ((copying, (40, 80, 160, 320)), (flat, (50, 50, 50, 50))):
        found = timed(run(job(Rewinding(rewind), LONG, (TEXT,), conditions=asked, clock=clock, plan=SHORT)))
        medians = [found[1, history].samples_ns[0] for history in asked["history"]]
        assert tuple(medians) == expected


def test_a_rewind_that_forgets_a_token_is_wrong_and_not_timed() -> None:
    asked = {"rollback_tokens": (2,), "history": (4, 16)}
    results = run(job(Rewinding(forgetting_one), LONG, (TEXT,), conditions=asked))
    assert [(r.kind, r.conditions["history"]) for r in results if isinstance(r, Refusal)] == [
        ("wrong", 4),
        ("wrong", 16),
    ]
    assert not timed(results)
