"""The stage apply: real masks, kernels checked before they are timed, what is refused and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from harness import bitmask, kernels
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.device import Device
from harness.kernels.on_numpy import Numpy
from harness.kernels.protocol import Indices, bits
from harness.stages import Job, apply, blocks, stages
from harness.stages.apply import difference
from tests.batch.jobs import job
from tests.fake_backends import Fake
from tests.making import VOCABULARY

QUICK = ("definition", "numpy")


def run(the_job: Job) -> tuple[list[Measurement], list[Refusal]]:
    results = stages()["apply"].run(the_job)
    return [r for r in results if isinstance(r, Measurement)], [r for r in results if isinstance(r, Refusal)]


def make(backend: Any = None, **conditions: tuple[Any, ...]) -> Job:
    asked = {"kernel": QUICK, "dtype": ("float32",), "rows": (3,)} | conditions
    return job(backend or Fake(), conditions=asked)


class Flawed(Numpy):
    """The fast kernel, but for the bit that it does at the end: the logit of one token, in the last row."""

    name = "flawed"

    def __init__(self, spoil: Callable[[Any], None]) -> None:
        self._spoil = spoil
        self.calls = 0

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        right = super().prepare(logits, block, rows, vocabulary_size)

        def body() -> None:
            self.calls += 1
            right()
            self._spoil(bits(logits))

        return body


def with_kernel(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    monkeypatch.setattr(apply, "KERNELS", MappingProxyType({**kernels.KERNELS, kernel.name: kernel}))
    monkeypatch.setattr(apply, "CONDITIONS", {**apply.CONDITIONS, "kernel": (*kernels.KERNELS, kernel.name)})


def test_every_kernel_dtype_and_number_of_rows_is_timed_and_labelled_with_its_device() -> None:
    timed, refused = run(make(dtype=("float32", "bfloat16"), rows=(1, 3)))
    assert refused == []
    assert [dict(m.conditions) for m in timed] == [
        {"kernel": kernel, "dtype": dtype, "rows": rows, "device": "cpu"}
        for rows in (1, 3)
        for dtype in ("float32", "bfloat16")
        for kernel in QUICK
    ]


def test_what_must_move_stands_beside_every_sample() -> None:
    the_job = make()
    (first, _), _ = run(the_job)
    block = blocks.filled(the_job, the_job.compile(), 3)
    allowed = sum(bitmask.count(row, VOCABULARY.size) for row in block)
    tokens = 3 * VOCABULARY.size
    assert set(first.columns["bytes_moved"]) == {block.nbytes + (tokens - allowed) * 4}
    assert set(first.columns["allowed_share"]) == {allowed / tokens}
    (bound,) = set(first.columns["bound_ns"])
    assert bound > 0
    assert {len(c) for c in first.columns.values()} == {len(first.samples_ns)}


def test_the_record_gets_the_bandwidths_that_bounds_were_made_from() -> None:
    the_job = make()
    run(the_job)
    assert set(the_job.facts["host_memory_bandwidth_bytes_per_s"]) == {"read", "write", "copy"}
    assert the_job.facts["host_bandwidth_bytes_per_s"]["write"]
    assert the_job.facts["cpu"]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_masks_are_those_of_positions_spread_over_the_documents(rows: int) -> None:
    the_job = make()
    grammar = the_job.compile()
    block = blocks.filled(the_job, grammar, rows)
    every = []
    for document in the_job.documents:
        for position in range(len(document.tokens) + 1):
            matcher = grammar.native_matcher()
            for token in document.tokens[:position]:
                assert matcher.accept(token)
            row = the_job.row()
            matcher.fill(row)
            every.append(row.tobytes())
    assert block.shape == (rows, bitmask.words(VOCABULARY.size))
    found = [row.tobytes() for row in block]
    assert set(found) <= set(every)
    assert rows < len(every) or set(found) == set(every)


def flip(values: Any, token: int) -> None:
    values[-1, token] ^= 1


def test_a_kernel_that_misses_one_bit_is_wrong_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    flawed = Flawed(partial(flip, token=77))
    with_kernel(monkeypatch, flawed)
    timed, (refusal,) = run(make(kernel=(*QUICK, "flawed")))
    assert {m.conditions["kernel"] for m in timed} == set(QUICK)
    assert refusal.kind == "wrong"
    assert refusal.conditions == {"kernel": "flawed", "dtype": "float32", "rows": 3, "device": "cpu"}
    assert "row 2, token 77 is" in refusal.reason
    assert "1 of" in refusal.reason
    assert flawed.calls == 1


def test_a_kernel_that_forgets_a_forbidden_logit_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(values: Any) -> None:
        values[0, VOCABULARY.size - 2] = 0  # a special token, which no mask allows

    with_kernel(monkeypatch, Flawed(forget))
    timed, (refusal,) = run(make(kernel=("flawed",)))
    assert timed == []
    assert refusal.kind == "wrong"
    assert "and must be 0xff800000" in refusal.reason


def test_a_row_that_forbids_everything_is_said_by_its_number_and_nothing_is_timed() -> None:
    def nothing(row: Row) -> None:
        row[:] = 0

    timed, refused = run(make(Fake(spoil=nothing)))
    assert timed == []
    assert {r.kind for r in refused} == {"wrong"}
    assert {r.reason for r in refused} == {"row 0 of the batch forbids every token: nothing can be sampled"}


def test_a_kernel_of_a_device_that_is_not_here_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "accelerator", lambda: None)
    timed, refused = run(make(kernel=("numpy", "masktax_triton", "xgrammar_triton")))
    assert [m.conditions["kernel"] for m in timed] == ["numpy"]
    assert [(r.kind, r.reason) for r in refused] == [
        ("unsupported", f"{name} needs a CUDA device, and there is none here")
        for name in ("masktax_triton", "xgrammar_triton")
    ]


def test_a_dtype_that_a_kernel_does_not_take_is_refused() -> None:
    reason = kernels.KERNELS["llguidance_numpy"].unavailable(Device("cpu", "cpu", ""))
    if reason:
        pytest.skip(reason)
    timed, (refusal,) = run(make(kernel=("llguidance_numpy",), dtype=("float32", "bfloat16")))
    assert [m.conditions["dtype"] for m in timed] == ["float32"]
    assert (refusal.kind, refusal.conditions["dtype"]) == ("unsupported", "bfloat16")


def test_numpy_kernels_are_run_without_asking_torch_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        pytest.fail("nothing here needs an accelerator")

    monkeypatch.setattr(apply, "accelerator", asked)
    run(make())


def test_difference_names_the_first_logit_and_counts_them_all() -> None:
    expected = np.zeros((2, 4), np.float32)
    got = expected.copy()
    assert difference(got, expected) == ""
    got[1, 2:] = -0.0  # equal as numbers, and not the same bits
    assert difference(got, expected) == "row 1, token 2 is 0x80000000 and must be 0x0 (2 of 8 logits differ)"
