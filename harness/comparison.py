"""The documents of one cell, walked by its backend and by another side by side, every row compared. Worker side.

For ``masktax differences``. Each document is a stage of its cell, with a record of its own: where a library crashes or
takes too long over one, what the others showed is kept. A record's facts: ``rows`` compared, ``rows_differing``, and
``faults``, the differences grouped (``harness.differences``); its outcome is ``ok`` whatever they are, for nothing is
judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from harness import differences
from harness.backends import guard, registry
from harness.bitmask import Row
from harness.cell import Cell, Document, Outcome, Record
from harness.differences import StepDifference
from harness.errors import CompileError, UnsupportedError
from harness.execute import Emit, refusal
from harness.vocabulary import Vocabulary

START = Document("start", "", ())
"""Stands in where a constraint has no document: its first row is all that can be compared."""


def documents(cell: Cell) -> tuple[Document, ...]:
    """What is walked, each under the name of its stage."""
    return (*cell.valid, *cell.invalid) or (START,)


def compare(cell: Cell, other: str, emit: Emit) -> None:
    """Walk the documents that ``cell.stages`` names. other: a backend, compiled under the profile that the cell's own
    declares; one that refuses the constraint or the profile is the outcome of every stage."""
    emit("stage", cell.stages[0])
    vocabulary = Vocabulary.read(Path(cell.vocabulary_path), cell.vocabulary_sha256)
    subject, beside = registry.create(cell.adapter, cell.options), registry.create(other)
    profile = subject.profiles[cell.profile]
    start: list[Callable[[], guard.Matcher]] = []
    for backend in (subject, beside):
        try:
            backend.load()
            grammar = backend.compile(cell.constraint, vocabulary, profile)
            start.append(partial(guard.matcher, grammar, vocabulary, backend.capabilities))
        except (UnsupportedError, CompileError) as error:
            outcome = refusal(error)
            for stage in cell.stages:
                emit("record", Record(stage, Outcome(outcome.kind, f"{backend.name}: {outcome.reason}")))
            return
    walked = {d.name: d for d in documents(cell)}
    for stage in cell.stages:
        if stage != cell.stages[0]:
            emit("stage", stage)
        rows = _Rows(start[0]())
        found = differences.compare(
            rows, start[1](), walked[stage], vocabulary, cell.constraint,
            backend=cell.backend, constraint_name=cell.constraint_name,
        )  # fmt: skip
        faults = differences.group(rows.differing(found))
        facts = {
            "rows": rows.filled,
            "rows_differing": rows.different,
            "faults": [f.to_json() for f in faults],
            "versions": {b.name: b.version for b in (subject, beside)},
        }
        emit("record", Record(stage, Outcome("ok"), facts=facts))


class _Rows:
    """A matcher that counts the rows it fills, and those of them that differ."""

    def __init__(self, matcher: guard.Matcher) -> None:
        self._matcher = matcher
        self.filled = self.different = 0

    def fill(self, row: Row) -> None:
        self.filled += 1
        self._matcher.fill(row)

    def accept(self, token: int) -> bool:
        return self._matcher.accept(token)

    def differing(self, found: Iterator[StepDifference]) -> Iterator[StepDifference]:
        for each in found:
            self.different += 1
            yield each
