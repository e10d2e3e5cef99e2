"""One request's state in the reference engine: an ordinary matcher, whose states are never changed.

A matcher is the list of the cells it went through, one for each token, the start's first. So rolling back is dropping
the end of the list, whatever the length of the history; forking is copying it; and nothing is ever undone.

Thread safety: a matcher belongs to one thread at a time; any number of matchers of one grammar may be used from any
number of threads, because all they share are cells, which ``harness.reference.masker`` makes safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.bitmask import Row
from harness.errors import UnsupportedError
from harness.reference.forced import Encode, canonical_row
from harness.reference.masker import LOCK, Cell, Masker

# Cells remembered by token in one cell before it forgets them.
AFTER = 4_096


class Grammar:
    """A compiled constraint over a vocabulary. Its matchers share states and rows.

    encode: the tokenizer, for the canonical policy; None for the definition. UnsupportedError where the language is
    empty.
    """

    def __init__(self, masker: Masker, encode: Encode | None = None) -> None:
        self.masker = masker
        self.encode = encode
        self.tokens = masker.vocabulary.tokens
        self.eos = frozenset(masker.vocabulary.eos_ids)
        self.ended = _ended(masker)
        start = masker.start()
        if start is None:
            raise UnsupportedError("no document satisfies this constraint")
        self.start = start if encode is None else self.twin(start, None)

    def native_matcher(self) -> Matcher:
        return Matcher(self, [self.start])

    def row(self, cell: Cell) -> Row:
        """The mask, int32 of shape [words], not writable."""
        if self.encode is None or not isinstance(cell, _Twin):
            return self.masker.row(cell)
        row = cell.row
        if row is None:
            with LOCK:
                row = self.masker.keep(cell, canonical_row(self.masker, self.encode, cell.plain, cell.last))
        cell.touched = True
        return row

    def after(self, cell: Cell, token: int) -> Cell | None:
        """The cell after a token; None where it is not allowed. An eos leads to the end."""
        found = cell.after.get(token)
        if found is not None:
            return found
        if token in self.eos:
            next_cell = self.ended if cell.accepting else None
        else:
            text = self.tokens[token]
            plain = cell.plain if isinstance(cell, _Twin) else cell
            next_cell = self.masker.read(plain, text) if text else None
            if next_cell is not None and self.encode is not None:
                next_cell = self.twin(next_cell, token)
        if next_cell is not None:
            with LOCK:
                if len(cell.after) >= AFTER:
                    cell.after = {}
                cell.after[token] = next_cell
        return next_cell

    def twin(self, cell: Cell, last: int | None) -> Cell:
        """Under the canonical policy a row is a matter of the state and, where text is forced, of the last token."""
        if not self.masker.forced(cell):
            return cell
        with LOCK:
            if cell.twins is None or len(cell.twins) >= AFTER:
                cell.twins = {}
            found = cell.twins.get(last)
            if found is None:
                found = cell.twins[last] = _Twin(cell, last)
            return found


class _Twin(Cell):
    """A cell together with the token that led to it."""

    __slots__ = ("last", "plain")

    def __init__(self, plain: Cell, last: int | None) -> None:
        super().__init__(plain.state, plain.accepting)
        self.plain = plain
        self.last = last


def _ended(masker: Masker) -> Cell:
    """After an end-of-sequence nothing is allowed."""
    cell = Cell(None, accepting=False)
    cell._moves = []
    cell._region = None
    cell.forced = b""
    cell.row = np.zeros(masker.vocabulary.words, dtype=np.int32)
    cell.row.flags.writeable = False
    return cell


class Matcher:
    """The backend protocol's ``NativeMatcher``."""

    __slots__ = ("_cells", "_grammar")

    def __init__(self, grammar: Grammar, cells: list[Cell]) -> None:
        self._grammar = grammar
        self._cells = cells

    def fill(self, row: Row) -> None:
        row[:] = self._grammar.row(self._cells[-1])

    def accept(self, token: int) -> bool:
        after = self._grammar.after(self._cells[-1], token)
        if after is None:
            return False
        self._cells.append(after)
        return True

    def is_accepting(self) -> bool:
        return self._cells[-1].accepting

    def validate(self, tokens: Sequence[int]) -> int:
        grammar, cell = self._grammar, self._cells[-1]
        for count, token in enumerate(tokens):
            after = cell.after.get(token) or grammar.after(cell, token)
            if after is None:
                return count
            cell = after
        return len(tokens)

    def rollback(self, count: int) -> None:
        if count:
            del self._cells[-count:]

    def forced(self) -> bytes:
        cell = self._cells[-1]
        return self._grammar.masker.forced(cell.plain if isinstance(cell, _Twin) else cell)

    def fork(self) -> Matcher:
        return Matcher(self._grammar, list(self._cells))

    def reset(self) -> None:
        del self._cells[1:]

    def fill_call(self, row: Row) -> Callable[[], object]:
        cells, grammar, copy = self._cells, self._grammar, np.copyto

        def fill() -> None:
            cell = cells[-1]
            kept = cell.row
            if kept is None:
                kept = grammar.row(cell)
            else:
                cell.touched = True
            copy(row, kept)

        return fill

    def accept_call(self) -> Callable[[int], object]:
        cells, grammar = self._cells, self._grammar
        append = cells.append

        def accept(token: int) -> bool:
            cell = cells[-1]
            after = cell.after.get(token)
            if after is None:
                after = grammar.after(cell, token)
                if after is None:
                    return False
            append(after)
            return True

        return accept

    def validate_call(self) -> Callable[[list[int]], object]:
        return self.validate

    def rollback_call(self) -> Callable[[int], object]:
        cells = self._cells

        def rollback(count: int) -> None:
            if count:
                del cells[-count:]

        return rollback
