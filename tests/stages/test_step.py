"""The stage step: what a sample is, what stands beside it, and what is called wrong instead of being timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.backends.protocol import Backend
from harness.batch.requests import Requests
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.decode_step import MODES, DecodeStep, Parts
from harness.device import Device
from harness.kernels import KERNELS
from harness.kernels.on_numpy import Numpy
from harness.measure import Plan
from harness.stages import Job, stages, step, walk
from tests.batch.jobs import ORDER, ORDERS, Batching, job
from tests.fake_backends import Fake, Matcher

SHORT = Plan(warmup_iterations=0, min_samples=2, max_samples=3, time_cap_s=60, relative_interval=1e-9)
COLUMNS = {"modelled_ns", "late_ns", "joined_ns", "fill_ns", "copy_ns", "apply_ns", "accept_ns"}


def run(the_job: Job) -> tuple[list[Measurement], list[Refusal]]:
    results = stages()["step"].run(the_job)
    return [r for r in results if isinstance(r, Measurement)], [r for r in results if isinstance(r, Refusal)]


def make(backend: Backend | str | None = None, plan: Plan = SHORT, **conditions: tuple[Any, ...]) -> Job:
    asked = {"rows": (3,), "forward_us": (200,), "wait": ("sleep",), "policy": ("serial",)} | conditions
    return job(backend or Fake(), conditions=asked, plan=plan)


def test_every_mode_wait_size_and_pass_is_timed_and_labelled_with_where_masks_were_applied() -> None:
    timed, refused = run(make(rows=(1, 3), forward_us=(200, 400), wait=("sleep", "spin")))
    assert refused == []
    assert [dict(m.conditions) for m in timed] == [
        {"mode": mode, "wait": wait, "forward_us": us, "rows": rows, "policy": "serial", "device": "cpu"}
        for rows in (1, 3)
        for wait in ("sleep", "spin")
        for us in (200, 400)
        for mode in MODES
    ]
    for measurement in timed:
        assert len(measurement.samples_ns) == 3
        assert measurement.stop_reason == "max_samples"
        assert set(measurement.columns) == COLUMNS


def test_a_sample_is_what_follows_the_forward_pass() -> None:
    for measurement in run(make())[0]:
        columns = measurement.columns
        after = ("late_ns", "joined_ns", "copy_ns", "apply_ns") + (
            () if measurement.conditions["mode"] == "barrier" else ("accept_ns",)
        )
        for i, sample in enumerate(measurement.samples_ns):
            assert sample == pytest.approx(sum(columns[name][i] for name in after), abs=1)


def test_what_is_computed_beside_a_sample_is_of_the_same_round_for_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Parts] = []

    def record(mode: Any, parts: Parts, forward_ns: float, rows: int) -> DecodeStep:
        seen.append(parts)
        return DecodeStep(mode, parts, forward_ns, rows)

    monkeypatch.setattr("harness.stages.step.DecodeStep", record)
    timed, _ = run(make())
    rounds = [seen[i : i + len(MODES)] for i in range(0, len(seen), len(MODES))]
    assert [len(set(parts)) for parts in rounds] == [1, 1, 1]
    for measurement in timed:
        mode = measurement.conditions["mode"]
        expected = [DecodeStep(mode, parts, 200_000.0, 3).exposed_ns for parts, *_ in rounds]
        assert list(measurement.columns["modelled_ns"]) == expected


def test_facts_say_how_replay_and_model_agree_and_which_batch_hides() -> None:
    the_job = make(rows=(1, 3), forward_us=(10_000,))
    timed, _ = run(the_job)
    facts = the_job.facts
    assert [{k: a[k] for k in m.conditions} for a, m in zip(facts["agreement"], timed, strict=True)] == [
        dict(m.conditions) for m in timed
    ]
    for found, measurement in zip(facts["agreement"], timed, strict=True):
        assert found["replay_ns"] == pytest.approx(sorted(measurement.samples_ns)[1], abs=1)
        assert found["modelled_ns"] == sorted(measurement.columns["modelled_ns"])[1]
        assert (found["because"] == "") == (abs(found["ratio"] - 1) <= 0.1)
    assert set(facts["alone_ns"]["serial"]) == {"1", "3"}
    assert set(facts["alone_ns"]["serial"]["1"]) == {"fill_ns", "copy_ns", "apply_ns", "accept_ns", "late_ns"}
    assert [(h["policy"], h["mode"], h["forward_us"]) for h in facts["largest_hidden_batch"]] == [
        ("serial", mode, 10_000) for mode in ("overlapped", "barrier")
    ]
    assert facts["switch_interval_ns"] > 0


def test_an_untimed_run_takes_one_step_and_states_no_times() -> None:
    the_job = make(plan=SHORT.once())
    timed, refused = run(the_job)
    assert {len(m.samples_ns) for m in timed} == {1}
    assert (refused, the_job.facts) == ([], {})


def test_every_policy_of_an_engine_can_fill_and_those_that_a_library_lacks_are_refused() -> None:
    names = ("serial", "vllm_pool", "native_batch", "sglang_batch")
    timed, refused = run(make(Batching(), policy=names))
    assert refused == []
    assert {m.conditions["policy"] for m in timed} == set(names)
    assert {m.conditions.get("threshold") for m in timed if m.conditions["policy"] == "vllm_pool"} == {128}
    _, (refusal,) = run(make(policy=("serial", "native_batch")))
    assert (refusal.kind, refusal.conditions) == ("unsupported", {"policy": "native_batch"})


def test_a_pass_that_is_a_kernel_is_refused_where_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "accelerator", lambda: None)
    timed, (refusal,) = run(make(wait=("device", "spin")))
    assert {m.conditions["wait"] for m in timed} == {"spin"}
    assert (refusal.kind, refusal.conditions) == ("unsupported", {"wait": "device"})
    assert run(make(wait=("device",)))[0] == []


def test_a_pass_on_a_device_is_as_long_as_it_was_measured_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def __init__(self, duration_ns: float, device: Device) -> None:
            self.duration_ns = duration_ns + 5.0

        def start(self) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr(step, "accelerator", lambda: Device("cuda", "a device", "a device"))
    monkeypatch.setattr(step, "OnDevice", Kernel)
    timed, refused = run(make(wait=("device",), forward_us=(1,)))
    assert refused == []
    for measurement in timed:
        assert measurement.conditions["device"] == "cpu"
        assert measurement.columns["late_ns"][0] > -1_005.0


def test_a_policy_that_leaves_a_row_out_is_wrong_and_not_timed() -> None:
    def forget(matchers: Sequence[Matcher], block: Row) -> None:
        block[1] = 0

    timed, (refusal,) = run(make(Batching(forget), policy=("serial", "native_batch")))
    assert {m.conditions["policy"] for m in timed} == {"serial"}
    assert (refusal.kind, refusal.conditions["policy"]) == ("wrong", "native_batch")
    assert "row 1 of 3" in refusal.reason
    assert "is too strict" in refusal.reason


def test_a_row_that_goes_wrong_while_steps_are_timed_is_wrong_too() -> None:
    def later(matchers: Sequence[Matcher], block: Row) -> None:
        calls.append(1)
        if len(calls) > 12:  # two steps in each of three modes were checked before
            block[0] = -1

    calls: list[int] = []
    timed, (refusal,) = run(make(Batching(later), policy=("native_batch",)))
    assert timed == []
    assert refusal.kind == "wrong"
    assert "row 0 of 3" in refusal.reason


def test_a_kernel_that_misses_a_logit_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flawed(Numpy):
        def prepare(self, logits: Any, *arguments: Any) -> Any:
            right = super().prepare(logits, *arguments)

            def body() -> None:
                right()
                logits[2, 77] = 0.5

            return body

    monkeypatch.setattr(step, "KERNELS", {**KERNELS, "numpy": Flawed()})
    timed, (refusal,) = run(make())
    assert timed == []
    assert "numpy differs from the definition: row 2, token 77" in refusal.reason


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance", "naive", "reference"])
def test_a_library_fills_right_rows_in_every_mode_along_whole_documents(backend: str) -> None:
    asked = {"rows": (5,), "forward_us": (100,), "wait": ("sleep",), "policy": ("serial", "sglang_batch")}
    steps = max(len(d.tokens) for d in job("naive", ORDER, ORDERS).documents)
    plan = replace(SHORT, min_samples=steps, max_samples=steps)
    timed, refused = run(job(backend, ORDER, ORDERS, conditions=asked, plan=plan))
    assert refused == []
    assert {len(m.samples_ns) for m in timed} == {steps}


# --- the requests -----------------------------------------------------------------------------------------------------


def made(rows: int, *, behind: bool = False) -> tuple[Requests, Job]:
    the_job = job("naive", ORDER, ORDERS)
    return Requests(the_job.compile(), the_job.documents, rows, behind=behind), the_job


def test_requests_are_spread_over_every_position_and_go_on_until_a_new_one_takes_their_place() -> None:
    lengths = {d.name: len(d.tokens) for d in made(1)[1].documents}
    everywhere = [(name, position) for name, length in lengths.items() for position in range(length)]
    requests, _ = made(len(everywhere))
    assert requests.states == everywhere
    requests.accept_call()()
    assert requests.advance()
    assert requests.states == [(name, (position + 1) % lengths[name]) for name, position in everywhere]


def test_only_an_advance_that_replaces_a_matcher_says_so() -> None:
    requests, the_job = made(1)
    length = len(the_job.documents[0].tokens)
    seen = []
    for _ in range(2 * length):
        requests.accept_call()()
        seen.append(requests.advance())
    assert seen == ([False] * (length - 1) + [True]) * 2


@pytest.mark.parametrize("behind", [False, True])
def test_a_row_stands_at_its_position_when_it_is_filled_whether_it_accepts_before_or_after(behind: bool) -> None:
    requests, the_job = made(4, behind=behind)
    grammar, documents = the_job.compile(), {d.name: d for d in the_job.documents}
    for _ in range(8):
        accept = requests.accept_call()
        if behind:
            accept()
        for row, (name, position) in zip(requests.batch("c").rows, requests.states, strict=True):
            assert row.tokens == documents[name].tokens[:position]
            assert row.next_token == documents[name].tokens[position]
            expected, found = the_job.row(), the_job.row()
            walk(grammar, row.tokens).fill(expected)
            row.matcher.fill(found)
            assert np.array_equal(found, expected)
        if not behind:
            accept()
        requests.advance()
