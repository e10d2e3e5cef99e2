"""One file per timed stage. Each has ``NAME``, ``CONDITIONS`` and ``run(job) -> list[Measurement | Refusal]``.

A stage prepares outside the clock, times one thing, and says which. Before any stage runs, ``harness.verify`` has held
the backend against the cell's documents; a stage therefore calls the library's own functions, unguarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness import bitmask
from harness.backends.protocol import Backend, Grammar, NativeMatcher
from harness.cell import Cell, Document, Measurement, Refusal
from harness.clocks import Clock
from harness.errors import UnsupportedError
from harness.measure import Plan
from harness.profile import Profile
from harness.vocabulary import Vocabulary


@dataclass(frozen=True)
class Job:
    """What a stage works on.

    documents: the valid documents, cut to the tokens that the backend accepts (all of them where it is right), never
    empty ones. cold: the measurement of the process's first compile, taken before verification; None where the cell
    did not ask for it. facts: what the running stage saw besides its measurements; they go into its record.
    """

    cell: Cell
    backend: Backend
    vocabulary: Vocabulary
    profile: Profile
    documents: tuple[Document, ...]
    clock: Clock
    plan: Plan
    cold: Measurement | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def condition(self, name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of an inner axis."""
        return self.cell.conditions.get(name, default)

    def chosen(self, name: str, own: tuple[str, ...]) -> tuple[str, ...]:
        """A stage's own values of an inner axis of names: those that the cell asks for, all where it asks for none.
        Stages share an axis's name, but not its values."""
        return tuple(v for v in self.condition(name, ()) if v in own) or own

    def compile(self) -> Grammar:
        return self.backend.compile(self.cell.constraint, self.vocabulary, self.profile)

    def compile_new(self) -> Grammar:
        """Compile with no compiled grammar in any cache."""
        self.backend.forget()
        return self.compile()

    def row(self) -> bitmask.Row:
        return bitmask.allocate_row(self.vocabulary.size)

    def longest(self) -> Document:
        """The longest document; UnsupportedError where there is none, or the backend accepts not even the first token
        of any."""
        if not self.cell.valid:
            raise UnsupportedError("there is no document that is known to be valid here: nothing to walk along")
        if not self.documents:
            raise UnsupportedError("no document of this constraint is accepted beyond its start: nothing to walk along")
        return max(self.documents, key=lambda d: len(d.tokens))


def walk(grammar: Grammar, tokens: tuple[int, ...]) -> NativeMatcher:
    """A fresh matcher that has accepted ``tokens``."""
    matcher = grammar.native_matcher()
    for token in tokens:
        matcher.accept(token)
    return matcher


def stand(job: Job, grammar: Grammar, tokens: tuple[int, ...]) -> Callable[[], NativeMatcher]:
    """Gives matchers that have accepted ``tokens``, each its own: copies of one where the library can, else walked.

    A copy accepts the last token itself: some libraries copy the history when a copy is first changed, which would
    otherwise fall into whatever is timed first.
    """
    if not job.backend.capabilities.fork:
        return lambda: walk(grammar, tokens)
    origin, last = walk(grammar, tokens[:-1]), tokens[-1:]

    def copied() -> NativeMatcher:
        copy = origin.fork()
        for token in last:
            copy.accept(token)
        return copy

    return copied


def spread(length: int, most: int) -> list[int]:
    """Up to ``most`` positions from 0 to ``length``, evenly spread, both ends among them."""
    if length < most:
        return list(range(length + 1))
    return sorted({round(i * length / (most - 1)) for i in range(most)})


@dataclass(frozen=True)
class Stage:
    """A timed stage: its name, the inner axes that label its samples with their values' defaults, and what it does."""

    name: str
    conditions: Mapping[str, tuple[Any, ...]]
    run: Callable[[Job], Sequence[Measurement | Refusal]]


def stages() -> Mapping[str, Stage]:
    """Every stage by name, in the order in which a cell runs them."""
    from harness.stages import (
        accept,
        apply,
        batch_fill,
        compile,
        copy,
        fill,
        first_mask,
        jump_forward,
        rollback,
        serialize,
        speculate,
        step,
        validate,
    )

    modules = (
        compile, first_mask, fill, batch_fill, serialize, copy, apply, accept, validate, rollback, speculate,
        jump_forward, step,
    )  # fmt: skip
    return MappingProxyType({m.NAME: Stage(m.NAME, m.CONDITIONS, m.run) for m in modules})
