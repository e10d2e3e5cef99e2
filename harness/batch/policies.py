"""How all rows of a batch are filled: the policies of serving engines, of libraries, and one that no engine has yet.

Worker side. A policy prepares, outside the clock, a callable that fills the whole block: its calls are bound, its
threads are running, its rows are grouped. What engines do beside that for each request (looking it up, asking whether
it has ended) is not part of it.

* ``serial``: one row after the other, by the library's own call. What vLLM does up to its threshold and, for any
  number of rows, under speculation; what SGLang does where a library has no batch call.
* ``vllm_pool``: vLLM's ``StructuredOutputManager.grammar_bitmask`` (0.32 was read): above ``threshold`` rows (128),
  chunks of ``chunk`` rows (16) go to a pool of ``threads`` threads (half of the host's CPUs, at least 1 and at most 8:
  whatever a quota or an affinity leaves of them); up to the threshold, ``serial``. Never under speculation.
* ``native_batch``: the library's own batch call, on ``threads`` threads of its own.
* ``sglang_batch``: as SGLang fills a batch: by the library's batch call where it uses that (the adapter says from how
  many rows on, and on how many threads), else by a loop over the rows.
* ``state_shared``: rows at the same state (same constraint, same tokens accepted) are filled once and copied: what
  batching by state would save. The groups are known beforehand; the copies are inside the clock.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np

from harness.backends.protocol import Backend, NativeBatch
from harness.batch.mixes import Batch
from harness.bitmask import Row
from harness.errors import UnsupportedError

Fill = Callable[[], object]

THRESHOLD, CHUNK = 128, 16
"""vLLM's ``fill_bitmask_parallel_threshold`` and ``fill_bitmask_parallel_batch_size``."""


def vllm_workers() -> int:
    """The number of threads of vLLM's pool: its own expression, over the host's CPUs."""
    return max(1, min((os.cpu_count() or 1) // 2, 8))


class Pools:
    """Thread pools by their number of threads: each made once, long-lived as an engine's, and ended by ``with``."""

    def __init__(self, make: Callable[[int], Executor] = ThreadPoolExecutor) -> None:
        self._make = make
        self._pools: dict[int, Executor] = {}

    def of(self, threads: int) -> Executor:
        if threads not in self._pools:
            self._pools[threads] = self._make(threads)
        return self._pools[threads]

    def __enter__(self) -> Pools:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.shutdown()


@dataclass(frozen=True)
class Tools:
    """What policies fill with: the cell's backend, and the pools."""

    backend: Backend
    pools: Pools

    @property
    def native(self) -> NativeBatch | None:
        """The backend's batch call; None where its library has none."""
        return cast(NativeBatch, self.backend) if self.backend.capabilities.native_batch else None


class Policy(ABC):
    """A way to fill a block. name: its value on the axis ``policy``."""

    name: ClassVar[str]

    def settings(self, rows: int, asked: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """The settings under which ``rows`` rows are filled, one for each measurement: of the axes ``threshold``,
        ``chunk`` and ``threads`` those that make a difference here. asked: values by axis; the engine's or library's
        own where an axis is not named."""
        return [{}]

    def refusal(self, tools: Tools) -> str:
        """Why the backend cannot fill a batch so; empty where it can."""
        return ""

    @abstractmethod
    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        """A callable that fills row i of ``block`` (int32, ``[rows, words(V)]``, C-contiguous) from row i of the batch.
        UnsupportedError with the ``refusal`` where there is one."""


class Serial(Policy):
    name = "serial"

    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        return partial(_one_by_one, _fills(batch, block))


class VllmPool(Policy):
    name = "vllm_pool"

    def settings(self, rows: int, asked: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        for threshold in asked.get("threshold") or (THRESHOLD,):
            if rows <= threshold:
                found.append({"threshold": threshold})
            else:
                pairs = product(asked.get("chunk") or (CHUNK,), asked.get("threads") or (vllm_workers(),))
                found += [{"threshold": threshold, "chunk": chunk, "threads": threads} for chunk, threads in pairs]
        return found

    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        fills = _fills(batch, block)
        if len(fills) <= setting["threshold"]:
            return partial(_one_by_one, fills)
        chunks = [fills[i : i + setting["chunk"]] for i in range(0, len(fills), setting["chunk"])]
        submit = tools.pools.of(setting["threads"]).submit

        def fill() -> None:
            for promise in [submit(_one_by_one, chunk) for chunk in chunks]:
                promise.result()

        return fill


class LibraryBatch(Policy):
    name = "native_batch"

    def settings(self, rows: int, asked: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        return [{"threads": threads} for threads in asked.get("threads") or ()] or [{}]

    def refusal(self, tools: Tools) -> str:
        if tools.native is not None:
            return ""
        return tools.backend.capabilities.notes.get("native_batch", "the library fills one row a call")

    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        if tools.native is None:
            raise UnsupportedError(self.refusal(tools))
        return tools.native.batch_fill_call(batch.matchers, block, setting.get("threads"))


class SglangBatch(Policy):
    name = "sglang_batch"

    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        use = None if tools.native is None else tools.native.engine_batches.get("sglang")
        if tools.native is None or use is None or len(batch.rows) < use.least_rows:
            return partial(_one_by_one, _fills(batch, block))
        return tools.native.batch_fill_call(batch.matchers, block, use.threads)


class StateShared(Policy):
    name = "state_shared"

    def prepare(self, batch: Batch, block: Row, tools: Tools, **setting: int) -> Fill:
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(batch.rows):
            groups.setdefault(row.state, []).append(i)
        fills = _fills(batch, block)
        first = [fills[rows[0]] for rows in groups.values()]
        copies = [(np.array(rows[1:]), block[rows[0]]) for rows in groups.values() if len(rows) > 1]

        def fill() -> None:
            _one_by_one(first)
            for others, filled in copies:
                block[others] = filled

        return fill


_ALL: tuple[Policy, ...] = (Serial(), VllmPool(), LibraryBatch(), SglangBatch(), StateShared())
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})


def _fills(batch: Batch, block: Row) -> list[Fill]:
    """The library's own call for each row."""
    return [row.matcher.fill_call(block[i]) for i, row in enumerate(batch.rows)]


def _one_by_one(fills: Sequence[Fill]) -> None:
    for fill in fills:
        fill()
