"""The mask of a state: which tokens keep the text viable, and whether it may end. Exact, and made fast.

For a state q of an automaton, ``row(q)`` allows the ordinary token t exactly if stepping the bytes of t from q never
fails, and every end-of-sequence id exactly if q is accepting. That is the definition, and ``naive_row`` is that
definition written down; the ``Masker`` gives the same bits by other ways:

* a row is kept with its state, within a bound on bytes;
* where only one byte can follow, and only one after that, the tokens lie along one path of the tree;
* inside a scalar (``Region``) the machine's own state decides, and what stays inside is shared by all schemas
  (``harness.reference.regions``); only what leaves the scalar is walked with the automaton;
* what follows from the beginning of a member to its end is kept for all members of a kind (``Member``);
* elsewhere the tree is walked along viable bytes only, each (state, byte) stepped once.

Thread safety: ``LOCK`` is held whenever anything shared is computed: steps, rows, the tables of scalars and, below
them, the hash-consed languages. What is already there is read without it: it is a single attribute or dictionary
entry, written once, whole, with a value that never changes (rows are not writable).
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from harness import bitmask
from harness.bitmask import Row
from harness.errors import MasktaxError, UnsupportedError
from harness.reference import regions, spelling, trie
from harness.reference.automaton import (
    Automaton,
    Member,
    Region,
    TooComplex,
    WithMembers,
    WithRegions,
    WithViableBytes,
)
from harness.reference.walk import Beyond, Walk
from harness.vocabulary import Vocabulary

LOCK = threading.RLock()

# Rows kept by one masker, in bytes, and states with their steps (about 1 KB each) before all are forgotten.
ROWS_BYTES = 32 << 20
CELLS = 100_000
# Forced text that is looked ahead for, in bytes.
FORCED_BYTES = 1 << 12
# What walks through members found, in bytes, before all is forgotten.
BEYOND_BYTES = 16 << 20


class Cell:
    """A state as the masker keeps it, with what was found out about it. ``after``: cells by token, for matchers."""

    __slots__ = (
        "_member",
        "_moves",
        "_region",
        "accepting",
        "after",
        "forced",
        "row",
        "state",
        "steps",
        "touched",
        "twins",
    )

    def __init__(self, state: Hashable, accepting: bool) -> None:
        self.state = state
        self.accepting = accepting
        self.steps: dict[int, Cell | None] = {}
        self.after: dict[int, Cell] = {}
        self.row: Row | None = None
        self.touched = False
        self.forced: bytes | None = None
        self.twins: dict[int | None, Cell] | None = None
        self._moves: list[tuple[int, Cell]] | None = None
        self._region: Region[Any] | bool | None = False  # False: not asked yet
        self._member: Member | bool | None = False


class Masker:
    """Masks of one automaton over one vocabulary. Safe to share between threads; see the module's text.

    by_definition: every row is made by ``naive_row`` instead.
    """

    def __init__(self, automaton: Automaton[Any], vocabulary: Vocabulary, *, by_definition: bool = False) -> None:
        self.automaton = automaton
        self._by_definition = by_definition
        self.vocabulary = vocabulary
        self.trie = trie.of(vocabulary)
        self._regions = regions.of(vocabulary)
        self._cells: dict[Hashable, Cell] = {}
        self._kept: deque[Cell] = deque()
        self._most_rows = max(1, ROWS_BYTES // (4 * vocabulary.words))
        self._eos = list(vocabulary.eos_ids)
        self._viable_bytes = automaton.viable_bytes if isinstance(automaton, WithViableBytes) else None
        self._region_of: Callable[[Any], Region[Any] | None] | None = None
        if isinstance(automaton, WithRegions):
            self._region_of = automaton.region
        elif isinstance(automaton, spelling.Utf8 | spelling.JsonString):
            self._region_of = partial(Region, automaton, constant=False, resume=None)
        self._members = automaton if isinstance(automaton, WithMembers) else None
        self._beyond: dict[tuple[Hashable, trie.Place], Beyond] = {}
        self._beyond_bytes = 0
        self._table: regions.Table | None = None

    # States

    def start(self) -> Cell | None:
        """The cell before any byte; None where the language is empty."""
        with LOCK:
            state = self.automaton.start()
            return None if state is None else self.cell(state)

    def cell(self, state: Hashable) -> Cell:
        with LOCK:
            found = self._cells.get(state)
            if found is None:
                if len(self._cells) >= CELLS:
                    self.forget()
                found = self._cells[state] = Cell(state, self.automaton.accepting(state))
            return found

    def forget(self) -> None:
        """Drop every cell and row; cells that someone still holds stay good."""
        with LOCK:
            self._cells.clear()
            for cell in self._kept:
                cell.row = None
            self._kept.clear()
            self._beyond.clear()
            self._beyond_bytes = 0
            self._table = None

    def step(self, cell: Cell, byte: int) -> Cell | None:
        try:
            return cell.steps[byte]
        except KeyError:
            with LOCK:
                if byte not in cell.steps:  # another thread may have been faster
                    # Once all moves are known, a byte without a step is a dead one.
                    state = None if cell._moves is not None else self._stepped(cell, byte)
                    cell.steps[byte] = None if state is None else self.cell(state)
                return cell.steps[byte]

    def _stepped(self, cell: Cell, byte: int) -> Hashable | None:
        try:
            after: Hashable | None = self.automaton.step(cell.state, byte)
        except TooComplex as bound:
            raise UnsupportedError(f"too complex: {bound}") from bound
        return after

    def read(self, cell: Cell, text: bytes) -> Cell | None:
        """The cell after ``text``, or None."""
        at: Cell | None = cell
        for byte in text:
            if at is None:
                return None
            at = self.step(at, byte)
        return at

    def moves(self, cell: Cell) -> list[tuple[int, Cell]]:
        """Every viable byte, with the cell after it."""
        if cell._moves is None:
            with LOCK:
                region = self.region(cell)
                if region is not None:
                    inside = [byte for byte, after in enumerate(self._viable_inside(region)) if after]
                    candidates: Iterable[int] = sorted({*inside, *(region.follow or ())}) if region.open else inside
                elif self._viable_bytes is not None:
                    candidates = sorted(self._viable_bytes(cell.state))
                else:
                    candidates = range(256)
                cell._moves = [(b, after) for b in candidates if (after := self.step(cell, b)) is not None]
        return cell._moves

    def _viable_inside(self, region: Region[Any]) -> array[int]:
        """256 numbers, 0 for each byte that the scalar's machine refuses."""
        table = self._regions.table(region.machine, ends=region.resume is not None, open_=region.open)
        return table.row(table.number(region.state))

    def only_move(self, cell: Cell) -> tuple[int, Cell] | None:
        """The one byte that can follow; None where there are several, or where the text may end."""
        if cell.accepting:
            return None
        if cell._moves is None:
            with LOCK:
                region = self.region(cell)
                # A closing byte may turn out not to be viable outside; two others settle it.
                if region is not None and 256 - self._viable_inside(region).count(regions.DEAD) > 2:
                    return None
        moves = self.moves(cell)
        return moves[0] if len(moves) == 1 else None

    def forced(self, cell: Cell) -> bytes:
        """The bytes that every continuation starts with, ``FORCED_BYTES`` at most; none where the text may end."""
        if cell.forced is None:
            with LOCK:
                text = bytearray()
                at = cell
                while len(text) < FORCED_BYTES and (move := self.only_move(at)) is not None:
                    text.append(move[0])
                    at = move[1]
                cell.forced = bytes(text)
        return cell.forced

    # Rows

    def row(self, cell: Cell) -> Row:
        """The mask in a state: int32 of shape [words], not writable."""
        row = cell.row
        if row is None:
            with LOCK:
                row = cell.row
                if row is None:
                    row = self.keep(cell, self._make(cell))
        cell.touched = True
        return row

    def keep(self, cell: Cell, row: Row) -> Row:
        """Keep a row with its cell, and let go of those that were not asked for lately."""
        with LOCK:
            row.flags.writeable = False
            cell.row = row
            self._kept.append(cell)
            while len(self._kept) > self._most_rows:
                old = self._kept.popleft()
                if old.touched:  # a second chance
                    old.touched = False
                    self._kept.append(old)
                else:
                    old.row = None
            return row

    def _make(self, cell: Cell) -> Row:
        try:
            row = self._definition(cell) if self._by_definition else self._fast(cell)
        except TooComplex as bound:
            raise UnsupportedError(f"too complex: {bound}") from bound
        if not row.any():
            viable = ", ".join(f"0x{byte:02X}" for byte, _ in self.moves(cell))
            raise MasktaxError(
                f"vocabulary {self.vocabulary.name} has no token for what must follow (byte {viable}): a document of "
                "this constraint cannot be finished with it; choose a vocabulary that has every byte"
            )
        return row

    def _definition(self, cell: Cell) -> Row:
        return naive_row(self.automaton, cell.state, self.vocabulary)

    def _fast(self, cell: Cell) -> Row:
        move = self.only_move(cell)
        tokens = self._forced_tokens(cell) if move is not None else None
        if tokens is not None:
            row = bitmask.allocate_row(self.vocabulary.size)
            bitmask.set_bits(row, np.array(tokens, dtype=np.int32))
        else:
            row = Walk(self).row(cell)
        if cell.accepting:
            for eos in self._eos:
                bitmask.set_bit(row, eos)
        return row

    def _forced_tokens(self, cell: Cell) -> list[int] | None:
        """The tokens along the one path that can be gone; None where a token may go past the end of it."""
        found: list[int] = []
        node, at = 0, cell
        while True:
            move = self.only_move(at)
            if move is None:
                return None if self.trie.first_list[node] < self.trie.first_list[node + 1] and self.moves(at) else found
            node = self.trie.child(node, move[0])
            if node < 0:
                return found
            found += self.trie.ids(node)
            at = move[1]

    # What a walk asks (``harness.reference.walk``)

    def region(self, cell: Cell) -> Region[Any] | None:
        if cell._region is False:
            cell._region = None if self._region_of is None else self._region_of(cell.state)
        assert not isinstance(cell._region, bool)
        return cell._region

    def inside(self, region: Region[Any], node: int) -> regions.Inside:
        return self._regions.inside(
            region.machine, region.state, node, ends=region.resume is not None, open_=region.open
        )

    def member(self, cell: Cell) -> Member | None:
        if self._members is None:
            return None
        if cell._member is False:
            cell._member = self._members.member(cell.state)
        assert not isinstance(cell._member, bool)
        return cell._member

    def depth(self, cell: Cell) -> int:
        assert self._members is not None
        return self._members.depth(cell.state)

    def beyond(self, member: Member, place: trie.Place, begin: Callable[[], Cell | None]) -> Beyond | None:
        """What follows from a place in the tree before a member; ``begin`` gives a cell before one of its kind. None
        where there is no such cell."""
        key = (member.kind, place)
        found = self._beyond.get(key)
        if found is None:
            cell = begin()
            if cell is None:
                return None
            member = Member(member.kind, self.depth(cell))
            found = Walk(self, member).beyond(place, cell)
            self._beyond_bytes += found.tokens.nbytes + 500
            if self._beyond_bytes > BEYOND_BYTES:
                self._beyond.clear()
                self._beyond_bytes = found.tokens.nbytes + 500
            self._beyond[key] = found
        return found

    def wide(self, waiting: list[tuple[trie.Place, Cell]]) -> Any:
        """The viable tokens below some places, by arrays."""
        if self._table is None or len(self._table) > regions.TABLE_BOUND:
            self._table = regions.Table(_Keyed(self.automaton), ends=False)
        nodes, numbers = [], []
        for place, cell in waiting:
            for node in (place,) if isinstance(place, int) else place.nodes:
                nodes.append(node)
                numbers.append(self._table.number(cell.state))
        reached = regions.walk(self.trie, self._table, nodes, numbers)
        tokens, _ = regions.tokens_at(self.trie, reached.nodes)
        return tokens


class _Keyed:
    """Any automaton as a machine for a table of its own."""

    def __init__(self, automaton: Automaton[Any]) -> None:
        self._automaton = automaton
        self.start = automaton.start
        self.step = automaton.step
        self.accepting = automaton.accepting
        if isinstance(automaton, WithViableBytes):
            self.viable_bytes = automaton.viable_bytes

    @property
    def key(self) -> Hashable:
        return id(self._automaton)


def naive_row(automaton: Automaton[Any], state: Any, vocabulary: Vocabulary) -> Row:
    """The definition: for every token, step its bytes. It shares nothing with ``Masker`` but the automaton."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    path: list[Any] = [state]
    previous = b""
    # In the order of their bytes, a token steps only what it does not share with the one before.
    for token, text in _sorted(vocabulary):
        common = 0
        while common < len(text) and common < len(previous) and text[common] == previous[common]:
            common += 1
        del path[common + 1 :]
        for byte in text[len(path) - 1 :]:
            at = path[-1]
            path.append(None if at is None else automaton.step(at, byte))
        previous = text
        allowed[token] = path[-1] is not None
    allowed[list(vocabulary.eos_ids)] = automaton.accepting(state)
    return bitmask.pack(allowed)


_sorted_tokens: dict[str, list[tuple[int, bytes]]] = {}


def _sorted(vocabulary: Vocabulary) -> Iterator[tuple[int, bytes]]:
    found = _sorted_tokens.get(vocabulary.sha256)
    if found is None:
        tokens = [(i, text) for i, text in enumerate(vocabulary.tokens) if text]
        if len(_sorted_tokens) >= trie.KEPT:
            _sorted_tokens.clear()
        found = _sorted_tokens[vocabulary.sha256] = sorted(tokens, key=lambda item: item[1])
    return iter(found)
