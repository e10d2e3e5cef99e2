"""Every policy fills the rows that the library itself would fill, and leaves the matchers as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

from harness import bitmask
from harness.backends import registry
from harness.batch.mixes import Mixer
from harness.batch.policies import POLICIES, Pools, Tools, vllm_workers
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from tests.batch.jobs import ORDER, ORDERS, Batching, Counting, companion, job, serial_rows
from tests.making import VOCABULARY

LIBRARIES = {
    "xgrammar": "xgrammar",
    "llguidance": "llguidance",
    "outlines": "outlines_core",
    "lm-format-enforcer": "lmformatenforcer",
    "reference": "numpy",
    "naive": "numpy",
}
COMPANION = companion("test/words", Constraint("regex", "(yes|no|name)+"), ("yesnoname", "namename"))
ROWS = (1, 127, 128, 129, 160)


def _settings(policy: str, rows: int) -> list[dict[str, int]]:
    """Those of the policy's own, and two threads."""
    return [*POLICIES[policy].settings(rows, {}), *POLICIES[policy].settings(rows, {"threads": (2,)})]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("backend", "mix"),
    [
        *((backend, mix) for backend in LIBRARIES for mix in ("positions", "schemas")),
        *((backend, "separate") for backend in ("xgrammar", "llguidance")),
    ],
)
def test_every_row_is_the_serial_row_and_every_matcher_goes_on_as_before(backend: str, policy: str, mix: str) -> None:
    pytest.importorskip(LIBRARIES[backend])
    made = registry.create(backend)
    mixer = Mixer(job(made, ORDER, ORDERS, companions=[COMPANION]))
    with Pools() as pools:
        tools = Tools(made, pools)
        if POLICIES[policy].refusal(tools):
            assert policy == "native_batch" and not made.capabilities.native_batch
            return
        for rows in (1, 129) if mix == "separate" else ROWS:
            untouched = mixer.batch(mix, rows)
            expected = serial_rows(untouched.matchers)
            if rows > 1:  # a mix-up of rows would show
                assert len({row.tobytes() for row in expected}) > 1
            batch = mixer.batch(mix, rows)
            block = np.invert(expected)
            for setting in _settings(policy, rows):
                fill = POLICIES[policy].prepare(batch, block, tools, **setting)
                fill()
                assert np.array_equal(block, expected)
                assert np.array_equal(serial_rows(batch.matchers), expected)
            for row, other in zip(batch.rows, untouched.rows, strict=True):
                assert row.matcher.accept(row.next_token) == other.matcher.accept(other.next_token)
            assert np.array_equal(
                serial_rows([r.matcher for r in batch.rows if r.next_token not in VOCABULARY.eos_ids]),
                serial_rows([r.matcher for r in untouched.rows if r.next_token not in VOCABULARY.eos_ids]),
            )


class Spy(Executor):
    """A pool that runs what it is given at once, and writes down how many rows each submission held."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.submitted: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted.append(len(args[0]))
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _submitted(rows: int, **setting: int) -> dict[int, list[int]]:
    """By a pool's number of threads: how many rows each submission of one fill held."""
    made: list[Spy] = []

    def spy(threads: int) -> Spy:
        made.append(Spy(threads))
        return made[-1]

    with Pools(spy) as pools:
        the_job = job("naive")
        (own,) = POLICIES["vllm_pool"].settings(rows, {axis: (value,) for axis, value in setting.items()})
        block = bitmask.allocate(rows, VOCABULARY.size)
        batch = Mixer(the_job).batch("positions", rows)
        POLICIES["vllm_pool"].prepare(batch, block, Tools(the_job.backend, pools), **own)()
        assert np.array_equal(block, serial_rows(batch.matchers))
    return {pool.threads: pool.submitted for pool in made}


def test_the_pool_is_engaged_above_the_threshold_only_in_chunks_of_sixteen() -> None:
    for rows in (1, 127, 128):
        assert _submitted(rows) == {}
    assert _submitted(129) == {vllm_workers(): [16] * 8 + [1]}
    assert _submitted(160) == {vllm_workers(): [16] * 10}


def test_threshold_chunk_and_threads_can_be_set() -> None:
    assert _submitted(9, threshold=8, chunk=4, threads=3) == {3: [4, 4, 1]}
    assert _submitted(8, threshold=8, chunk=4, threads=3) == {}


@pytest.mark.parametrize(("cpus", "workers"), [(None, 1), (1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (16, 8), (64, 8)])
def test_vllms_pool_has_half_the_hosts_cpus_at_least_one_at_most_eight(
    cpus: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert vllm_workers() == workers


def test_settings_are_no_product_over_axes_that_a_policy_ignores() -> None:
    asked = {"threshold": (8, 64), "chunk": (4, 16), "threads": (1, 2)}
    assert POLICIES["serial"].settings(32, asked) == [{}]
    assert POLICIES["state_shared"].settings(32, asked) == [{}]
    assert POLICIES["sglang_batch"].settings(32, asked) == [{}]
    assert POLICIES["native_batch"].settings(32, asked) == [{"threads": 1}, {"threads": 2}]
    assert POLICIES["native_batch"].settings(32, {}) == [{}]
    assert POLICIES["vllm_pool"].settings(32, asked) == [
        *({"threshold": 8, "chunk": chunk, "threads": threads} for chunk in (4, 16) for threads in (1, 2)),
        {"threshold": 64},
    ]


def test_a_pool_is_made_once_for_a_number_of_threads_and_lives_until_the_end() -> None:
    with Pools() as pools:
        assert pools.of(2) is pools.of(2)
        assert pools.of(2) is not pools.of(1)
        assert pools.of(2).submit(str, 7).result() == "7"
    with pytest.raises(RuntimeError, match="shutdown"):
        pools.of(2).submit(str, 7)


@pytest.mark.parametrize(("mix", "rows"), [("identical", 40), ("positions", 3), ("positions", 40)])
def test_state_shared_fills_one_row_for_each_distinct_state(mix: str, rows: int) -> None:
    backend = Counting()
    batch = Mixer(job(backend)).batch(mix, rows)
    block = bitmask.allocate(rows, VOCABULARY.size)
    with Pools() as pools:
        fill = POLICIES["state_shared"].prepare(batch, block, Tools(backend, pools))
    backend.fills = 0
    fill()
    assert backend.fills == batch.states
    assert np.array_equal(block, serial_rows(batch.matchers))


def test_sglang_takes_the_librarys_batch_call_from_as_many_rows_on_as_the_adapter_says() -> None:
    backend = Batching()
    mixer = Mixer(job(backend))
    with Pools() as pools:
        for rows in (3, 4, 5):
            block = bitmask.allocate(rows, VOCABULARY.size)
            POLICIES["sglang_batch"].prepare(mixer.batch("positions", rows), block, Tools(backend, pools))
    assert backend.threads == [3, 3]
    backend.engine_batches = {}
    with Pools() as pools:
        block = bitmask.allocate(5, VOCABULARY.size)
        POLICIES["sglang_batch"].prepare(mixer.batch("positions", 5), block, Tools(backend, pools))
    assert backend.threads == [3, 3]


@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_library_without_a_batch_call_is_refused_by_its_adapters_reason(backend: str) -> None:
    made = registry.create(backend)
    tools = Tools(made, Pools())
    if made.capabilities.native_batch:
        assert POLICIES["native_batch"].refusal(tools) == ""
        return
    reason = made.capabilities.notes.get("native_batch", "the library fills one row a call")
    assert POLICIES["native_batch"].refusal(tools) == reason
    batch = Mixer(job("naive")).batch("positions", 2)
    with pytest.raises(UnsupportedError, match=reason):
        POLICIES["native_batch"].prepare(batch, bitmask.allocate(2, VOCABULARY.size), tools)


def test_the_librarys_own_number_of_threads_is_used_where_none_is_asked_for() -> None:
    backend = Batching()
    block = bitmask.allocate(2, VOCABULARY.size)
    batch = Mixer(job(backend)).batch("positions", 2)
    with Pools() as pools:
        for setting in ({}, {"threads": 5}):
            POLICIES["native_batch"].prepare(batch, block, Tools(backend, pools), **setting)
    assert backend.threads == [None, 5]
