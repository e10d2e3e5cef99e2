"""Jobs over the synthetic vocabulary for tests of batches, and a backend whose batch call can be given a fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from harness import bitmask, clocks
from harness.backends import registry
from harness.backends.protocol import Backend, EngineBatch
from harness.bitmask import Row
from harness.cell import Cell, Companion
from harness.clocks import Clock
from harness.constraint import Constraint
from harness.measure import Plan
from harness.stages import Job
from tests.fake_backends import Fake, Matcher
from tests.making import CHOICES, VOCABULARY, document

ORDER = Constraint(
    "json_schema",
    json.dumps(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
            "required": ["name", "id"],
            "additionalProperties": False,
        }
    ),
)
ORDERS = ('{"name":"abc","id":12}', '{"name":"the value","id":-100}')
WORDS = Constraint("choice", json.dumps(CHOICES))
ONCE = Plan().once()


def companion(name: str, constraint: Constraint, texts: Sequence[str]) -> Companion:
    return Companion(name, constraint, tuple(document(f"valid/{i}", text) for i, text in enumerate(texts)))


def job(
    backend: Backend | str,
    constraint: Constraint = WORDS,
    texts: Sequence[str] = CHOICES,
    *,
    companions: Sequence[Companion] = (),
    conditions: Mapping[str, tuple[Any, ...]] | None = None,
    plan: Plan = ONCE,
    clock: Clock | None = None,
) -> Job:
    """What a stage is handed for a cell of this constraint, whose documents are all accepted."""
    made = registry.create(backend) if isinstance(backend, str) else backend
    valid = tuple(document(f"valid/{i}", text) for i, text in enumerate(texts))
    cell = Cell(
        id="test", scenario="test", backend=made.name, adapter=made.name, environment="default",
        vocabulary="synthetic", vocabulary_path="", vocabulary_sha256=VOCABULARY.sha256, constraint_name="test/own",
        constraint=constraint, stages=("batch_fill",), valid=valid, invalid=(), conditions=dict(conditions or {}),
        companions=tuple(companions),
    )  # fmt: skip
    return Job(cell, made, VOCABULARY, made.profiles["default"], valid, clock or clocks.wall(100), plan)


class Batching(Fake):
    """The right engine for choices, with a batch call of its own, which loops; ``after`` is what it does at the end of
    each call, to all matchers and the block."""

    capabilities = replace(Fake.capabilities, native_batch=True)
    engine_batches: Mapping[str, EngineBatch] = MappingProxyType({"sglang": EngineBatch(least_rows=4, threads=3)})

    def __init__(self, after: Callable[[Sequence[Matcher], Row], object] = lambda matchers, block: None) -> None:
        super().__init__()
        self._after = after
        self.threads: list[int | None] = []
        """What each call was prepared with."""

    def batch_fill_call(self, matchers: Sequence[Any], block: Row, threads: int | None) -> Callable[[], object]:
        self.threads.append(threads)
        return partial(self._fill_all, matchers, block)

    def _fill_all(self, matchers: Sequence[Matcher], block: Row) -> None:
        for matcher, row in zip(matchers, block, strict=True):
            matcher.fill(row)
        self._after(matchers, block)


class Counting(Fake):
    """The right engine, which counts its fills."""

    def __init__(self) -> None:
        super().__init__(spoil=self._count)
        self.fills = 0

    def _count(self, row: Row) -> None:
        self.fills += 1


def serial_rows(matchers: Sequence[Any]) -> Row:
    """The rows of matchers, each by the library's own call."""
    block = bitmask.allocate(len(matchers), VOCABULARY.size)
    for matcher, row in zip(matchers, block, strict=True):
        matcher.fill_call(row)()
    return block
