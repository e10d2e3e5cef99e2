"""A right engine for choices whose rewind, and whose own call for a chain of drafts, can be given a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from harness.bitmask import Row
from harness.constraint import Constraint
from harness.profile import Profile
from harness.speculation import chain
from harness.speculation.chain import Chain
from harness.vocabulary import Vocabulary
from tests.fake_backends import Fake, Matcher

Rewind = Callable[["RewindingMatcher", int], None]
AfterRows = Callable[[Row], object]


class RewindingMatcher(Matcher):
    """``history`` is the tokens accepted; ``rollback`` is left to the backend."""

    def __init__(self, backend: Rewinding, choices: tuple[bytes, ...], vocabulary: Vocabulary) -> None:
        super().__init__(backend, choices, vocabulary)
        self._rewinding = backend

    @property
    def history(self) -> list[int]:
        return self._history

    def rollback(self, count: int) -> None:
        self._rewinding.rewind(self, count)

    def rollback_call(self) -> Callable[[int], object]:
        return self.rollback

    def draft_chain_call(self, drafts: Sequence[int], rows: Row) -> Callable[[], object]:
        walk = chain.rows_call(self, Chain(tuple(drafts), len(drafts), tuple(drafts)), rows)

        def call() -> None:
            walk()
            self._rewinding.after_rows(rows)

        return call


class _Grammar:
    def __init__(self, make: Callable[[], RewindingMatcher]) -> None:
        self._make = make

    def native_matcher(self) -> RewindingMatcher:
        return self._make()


def exactly(matcher: RewindingMatcher, count: int) -> None:
    if count:
        del matcher.history[-count:]


def forgetting_one(matcher: RewindingMatcher, count: int) -> None:
    """One token too few is taken back."""
    exactly(matcher, count - 1)


class Rewinding(Fake):
    """It cannot be copied, so that every matcher is one of these. native: it has a call for chains."""

    capabilities = replace(Fake.capabilities, fork=False, validate=False)

    def __init__(
        self, rewind: Rewind = exactly, after_rows: AfterRows = lambda rows: None, *, native: bool = False
    ) -> None:
        super().__init__()
        self.rewind = rewind
        self.after_rows = after_rows
        if native:
            self.capabilities = replace(type(self).capabilities, native_drafts=frozenset({"chain"}))

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Any:
        choices = tuple(c.encode() for c in constraint.json())
        return _Grammar(partial(RewindingMatcher, self, choices, vocabulary))
