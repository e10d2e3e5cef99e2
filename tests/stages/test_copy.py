"""The stage copy, as far as a machine without a device goes: the staging copy is timed, the rest refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness.cell import Measurement, Refusal
from harness.stages import copy, stages
from tests.batch.jobs import job
from tests.fake_backends import Fake


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "accelerator", lambda: None)


def run(**conditions: tuple[Any, ...]) -> tuple[list[Measurement], list[Refusal], dict[str, Any]]:
    the_job = job(Fake(), conditions={"rows": (2, 5)} | conditions)
    results = stages()["copy"].run(the_job)
    timed = [r for r in results if isinstance(r, Measurement)]
    return timed, [r for r in results if isinstance(r, Refusal)], the_job.facts


@pytest.mark.usefixtures("no_device")
def test_without_a_device_the_staging_copy_is_timed_and_labelled_cpu() -> None:
    timed, _, facts = run()
    assert [dict(m.conditions) for m in timed] == [
        {"memory": "pageable", "mode": "blocking", "rows": rows, "device": "cpu"} for rows in (2, 5)
    ]
    words = 11  # of the synthetic vocabulary's 326 tokens
    assert [set(m.columns["bytes_moved"]) for m in timed] == [{2 * rows * words * 4} for rows in (2, 5)]
    assert all(bound > 0 for m in timed for bound in m.columns["bound_ns"])
    assert "host_bandwidth_bytes_per_s" in facts
    assert not any(name.startswith("link") for name in facts)


@pytest.mark.usefixtures("no_device")
def test_pinned_memory_and_queued_copies_are_refused_without_a_device() -> None:
    _, refused, _ = run(rows=(2,))
    assert {r.kind for r in refused} == {"unsupported"}
    said = {(r.conditions["memory"], r.conditions["mode"]): r.reason for r in refused}
    assert set(said) == {("pageable", "non_blocking"), ("pinned", "blocking"), ("pinned", "non_blocking")}
    assert "there is none here" in said["pinned", "blocking"]
    assert "no queue" in said["pageable", "non_blocking"]


@pytest.mark.usefixtures("no_device")
def test_only_what_is_asked_for_is_looked_at() -> None:
    timed, refused, _ = run(rows=(2,), memory=("pinned",), mode=("blocking",))
    assert timed == []
    assert [r.conditions["memory"] for r in refused] == ["pinned"]
