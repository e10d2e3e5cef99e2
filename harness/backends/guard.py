"""The same edges for every library: the guard around a ``NativeMatcher``. Worker side; never inside a clock.

Through it, whatever the library does:

* a row of the wrong shape, dtype or layout is a ValueError and nothing is written;
* padding bits are 0, special tokens are 0, and after the end every bit is 0;
* a special token is refused, an id outside the vocabulary is a ValueError, anything after the end is refused;
* ``rollback`` past the start is a ValueError; a capability that is missing is an UnsupportedError.

What it never does is decide: which ordinary tokens and whether eos are allowed is the library's word, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness import bitmask
from harness.backends.protocol import Capabilities, Grammar, NativeMatcher
from harness.bitmask import Row
from harness.errors import UnsupportedError
from harness.vocabulary import Vocabulary


class Matcher:
    """One request's state, guarded. ``native`` is the library's own matcher, for the stages' clocks."""

    def __init__(self, native: NativeMatcher, vocabulary: Vocabulary, capabilities: Capabilities) -> None:
        self.native = native
        self._vocabulary = vocabulary
        self._capabilities = capabilities
        self._history: list[int] = []
        self._eos = frozenset(vocabulary.eos_ids)
        self._never = bitmask.from_tokens(vocabulary.special_ids - self._eos, vocabulary.size)
        self.special_in_row: int | None = None
        """Of the last fill: the first special token (eos aside) that the library's own row allowed. None: none."""

    @property
    def history(self) -> tuple[int, ...]:
        """The tokens accepted so far, an eos included."""
        return tuple(self._history)

    @property
    def is_terminated(self) -> bool:
        """Whether an end-of-sequence token was accepted."""
        return bool(self._history) and self._history[-1] in self._eos

    @property
    def is_accepting(self) -> bool:
        """Whether the text so far is a whole document (still true after its eos)."""
        return self.is_terminated or self.native.is_accepting()

    def fill(self, row: Row) -> None:
        """Write this state's mask into ``row``, int32 of shape ``[words(V)]``."""
        bitmask.check(row, self._vocabulary.size)
        if self.is_terminated:
            row[:] = 0
            self.special_in_row = None
            return
        self.native.fill(row)
        specials = row & self._never
        self.special_in_row = _first(specials) if specials.any() else None
        np.bitwise_and(row, ~self._never, out=row)
        bitmask.clear_padding(row, self._vocabulary.size)

    def accept(self, token: int) -> bool:
        """Advance by one token; False, with the state as it was, where the token is not allowed."""
        if not self._possible(token) or not self.native.accept(token):
            return False
        self._history.append(token)
        return True

    def validate(self, tokens: Sequence[int]) -> int:
        """How many leading tokens would be accepted; the state is untouched."""
        end = 0
        while end < len(tokens) and self._possible(tokens[end]):
            end += 1
            if tokens[end - 1] in self._eos:  # nothing follows the end
                break
        if end == 0:
            return 0
        if self._capabilities.validate:
            return self.native.validate(tokens[:end])
        if self._capabilities.fork:
            trial, count = self.native.fork(), 0
            while count < end and trial.accept(tokens[count]):
                count += 1
            return count
        self._need("rollback", "validate")
        count = 0
        while count < end and self.native.accept(tokens[count]):
            count += 1
        if count:
            self.native.rollback(count)
        return count

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` accepted tokens."""
        self._need("rollback")
        if not 0 <= count <= len(self._history):
            raise ValueError(f"cannot roll back {count} tokens: {len(self._history)} were accepted")
        if count:
            self.native.rollback(count)
            del self._history[-count:]

    def forced(self) -> bytes:
        """The bytes that every continuation starts with; empty where there is a choice, and after the end."""
        self._need("forced")
        return b"" if self.is_terminated else self.native.forced()

    def fork(self) -> Matcher:
        """An independent copy."""
        self._need("fork")
        copy = Matcher.__new__(Matcher)
        copy.__dict__.update(self.__dict__)
        copy.native = self.native.fork()
        copy._history = list(self._history)
        return copy

    def reset(self) -> None:
        """Back to the state before any token."""
        self._need("reset")
        self.native.reset()
        self._history.clear()

    def _possible(self, token: int) -> bool:
        if not 0 <= token < self._vocabulary.size:
            raise ValueError(f"token {token} is outside the vocabulary of {self._vocabulary.size}")
        if self.is_terminated:
            return False
        return token in self._eos or token not in self._vocabulary.special_ids

    def _need(self, capability: str, purpose: str = "") -> None:
        if not getattr(self._capabilities, capability):
            reason = self._capabilities.notes.get(capability, f"the library has no {capability}")
            raise UnsupportedError(f"{purpose}: {reason}" if purpose else reason)


def _first(row: Row) -> int:
    """The first set bit of a row that has one."""
    return int(np.flatnonzero(bitmask.unpack(row, row.size * 32))[0])


def matcher(grammar: Grammar, vocabulary: Vocabulary, capabilities: Capabilities) -> Matcher:
    """A guarded matcher at the start of the document."""
    return Matcher(grammar.native_matcher(), vocabulary, capabilities)
