"""The protocol every grammar library is put behind, and how all of them behave through it.

Worker side: numpy and the standard library. Two layers:

* An adapter implements ``Backend``, ``Grammar`` and ``NativeMatcher``: thin, library-shaped, no checks.
* ``harness.backends.guard.Matcher`` wraps a ``NativeMatcher`` and gives every library the same edges: row width,
  padding, special tokens, end-of-sequence, termination, history.

Only native calls (``fill_call``, ``accept_call``, …) are ever put inside a clock, so the guard costs no measured time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from harness.bitmask import Row
from harness.constraint import Constraint, Kind, Syntax
from harness.profile import Profile
from harness.vocabulary import Vocabulary

DraftShape = Literal["chain", "tree"]


@dataclass(frozen=True)
class Capabilities:
    """What a library can do at all, known without importing it. A capability it lacks is answered by
    ``UnsupportedError`` before anything is timed, and shown in every report.

    kinds, syntaxes: constraint kinds, and grammar notations, it compiles. rollback: rewinding k tokens. fork: an
    independent copy of a matcher. reset: back to the start. validate: how many of some tokens would be accepted, the
    state untouched; False where it can only be had by fork or accept-and-rewind, which the guard does. forced:
    jump-forward bytes. native_batch: filling many rows in one call. native_drafts: the shapes of drafts whose rows it
    fills in one call (``NativeDrafts``). notes: ``{capability: reason}`` for what is lacking or done another way, one
    line each.
    """

    kinds: frozenset[Kind]
    syntaxes: frozenset[Syntax] = frozenset()
    rollback: bool = False
    fork: bool = False
    reset: bool = False
    validate: bool = False
    forced: bool = False
    native_batch: bool = False
    native_drafts: frozenset[DraftShape] = frozenset()
    notes: Mapping[str, str] = field(default_factory=dict)


class NativeMatcher(Protocol):
    """One request's mutable state, as the library itself keeps it. No checks: callers stay inside the contract.

    Calls are made only with valid rows and in-range, non-special tokens (or an eos id), and never after an accepted
    eos except ``rollback`` and ``reset``. A method whose capability is declared absent is never called.
    """

    def fill(self, row: Row) -> None:
        """Write this state's mask into ``row`` (shape ``[words]``), with eos as the library itself says it."""
        ...

    def accept(self, token: int) -> bool:
        """Advance by one token (an eos id included). False, and the state untouched, where it is not allowed."""
        ...

    def is_accepting(self) -> bool:
        """Whether the text so far is a whole document, asked of the library without looking at a mask."""
        ...

    def validate(self, tokens: Sequence[int]) -> int:
        """How many leading tokens would be accepted; the state is untouched."""
        ...

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` accepted tokens (an eos included)."""
        ...

    def forced(self) -> bytes:
        """The bytes that every continuation starts with (jump-forward); empty where there is a choice."""
        ...

    def fork(self) -> NativeMatcher:
        """An independent copy."""
        ...

    def reset(self) -> None:
        """Back to the state before any token."""
        ...

    # What the clock surrounds: the shortest path to the library's own call, arguments bound beforehand.

    def fill_call(self, row: Row) -> Callable[[], object]:
        """A callable that fills ``row`` from the state at the time of calling."""
        ...

    def accept_call(self) -> Callable[[int], object]:
        """A callable that accepts one token. A refusal may be a falsy result or an exception."""
        ...

    def validate_call(self) -> Callable[[list[int]], object]:
        """A callable that validates a list of tokens and leaves the state as it was."""
        ...

    def rollback_call(self) -> Callable[[int], object]:
        """A callable that rewinds k tokens."""
        ...


class NativeDrafts(Protocol):
    """A native matcher whose library fills the rows of one sequence's drafts in one call, and leaves the matcher as it
    was. Asked for a shape only where ``Capabilities.native_drafts`` names it. ``rows`` is int32, ``[rows, words(V)]``,
    C-contiguous; of a node that is refused, and of all below it, the row holds anything afterwards.
    """

    def draft_chain_call(self, drafts: Sequence[int], rows: Row) -> Callable[[], object]:
        """A callable that fills row 0 from the state as it is, and row i + 1 from the state after ``drafts[: i + 1]``.
        Every draft is one that the state before it allows."""
        ...

    def draft_tree_call(
        self,
        first_child: npt.NDArray[np.int64],
        next_sibling: npt.NDArray[np.int64],
        tokens: npt.NDArray[np.int64],
        rows: Row,
    ) -> Callable[[], object]:
        """A callable that fills the row of every node of a tree that can be reached. All arrays are of shape [nodes]:
        node 0 is the state as it is (its token is not looked at), the others have the token that leads to them;
        ``first_child`` and ``next_sibling`` hold nodes, -1 for none."""
        ...


class Grammar(Protocol):
    """A compiled constraint; shared by any number of matchers."""

    def native_matcher(self) -> NativeMatcher:
        """A fresh matcher at the start of the document."""
        ...


class Backend(Protocol):
    """A grammar library. Constructing one is cheap and does not import the library.

    name: the adapter's name. capabilities, profiles: static declarations, readable without the library installed;
    ``profiles["default"]`` is how serving engines use the library, further entries are other policies it can be asked
    for.
    """

    name: str
    capabilities: Capabilities
    profiles: Mapping[str, Profile]

    @property
    def version(self) -> str:
        """The library's version, from its package metadata; UnsupportedError where it is not installed."""
        ...

    def load(self) -> None:
        """Import the library; UnsupportedError where it is not installed. Idempotent; ``bind`` does it where it was
        not done."""
        ...

    def bind(self, vocabulary: Vocabulary) -> None:
        """Build the library's tokenizer tables for this vocabulary. Idempotent; ``compile`` does it
        where it was not done."""
        ...

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Grammar:
        """Compile. UnsupportedError for what the library cannot do (a kind, a keyword it names, a profile);
        CompileError with the library's message for what it tried and failed."""
        ...

    def forget(self) -> None:
        """Empty every cache of compiled grammars (not the tokenizer tables): the next compile is of a new schema."""
        ...


@dataclass(frozen=True)
class EngineBatch:
    """How a serving engine uses a library's batch call: for batches of at least ``least_rows`` rows (it loops over the
    rows of smaller ones), on ``threads`` threads of the library's own (None: as many as the library chooses)."""

    least_rows: int = 1
    threads: int | None = None


class NativeBatch(Protocol):
    """A backend whose ``capabilities.native_batch`` is true: its library fills the rows of many matchers in one call.

    engine_batches: ``{engine: how it uses that call}``; an engine that is not named loops over the rows.
    """

    engine_batches: Mapping[str, EngineBatch]

    def batch_fill_call(
        self, matchers: Sequence[NativeMatcher], block: Row, threads: int | None
    ) -> Callable[[], object]:
        """A callable that fills row i of ``block`` from ``matchers[i]``, all of this backend, no two of them the same.

        block: int32, ``[len(matchers), words(V)]``, C-contiguous. threads: of the library's own pool, which is made
        here and lives as long as the callable; None: as many as the library chooses.
        """
        ...
