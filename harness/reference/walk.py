"""One walk down the tree of tokens: which tokens are viable from a cell.

It goes along viable bytes only. Three things are not gone through step by step:

* a scalar (``Region``): what stays inside is known for its machine's state, what leaves it is gone on with;
* nodes from which the same follows in the same state (``Bundle``): they are walked as one;
* a member (``Member``): what follows from its beginning to its end is found out once for all members of a kind. Only
  where a token goes on past the member's end (``Exit``) does it matter whose member it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import bitmask
from harness.bitmask import Row
from harness.reference import regions
from harness.reference.automaton import Member, Region
from harness.reference.trie import Ints, Place

if TYPE_CHECKING:
    from harness.reference.masker import Cell, Masker

# Nodes visited one by one before a walk goes on by arrays, and from how many children on all bytes are stepped at once.
VISITS = 4_000
MANY_CHILDREN = 48


@dataclass(frozen=True)
class Exit:
    """Where a member ends in the middle of a token. place: the nodes reached there. text: what was read of the member.
    open: the member is a number, which ends only by the byte that comes next."""

    place: Place
    text: bytes
    open: bool


@dataclass(frozen=True, eq=False)
class Beyond:
    """What a walk through a member found. tokens: int32, the viable tokens that do not go on past its end."""

    tokens: Ints
    exits: tuple[Exit, ...]


class Walk:
    """member: the member that the walk keeps to; None: none, and there are no exits."""

    def __init__(self, masker: Masker, member: Member | None = None) -> None:
        self._masker = masker
        self._trie = masker.trie
        self._member = member
        self._tokens: list[int] = []
        self._arrays: list[Any] = []
        self._rows: list[Row] = []
        self._exits: list[Exit] = []
        self._stack: list[tuple[Place, Cell, bytes]] = []

    def row(self, cell: Cell) -> Row:
        """The tokens that are viable from ``cell``, as a row."""
        self._run(0, cell)
        row = bitmask.allocate_row(self._trie.size)
        for other in self._rows:
            row |= other
        bitmask.set_bits(row, self._found())
        return row

    def beyond(self, place: Place, cell: Cell) -> Beyond:
        """The same from a place in the tree on, as far as the member goes."""
        self._run(place, cell)
        return Beyond(self._found(), tuple(self._exits))

    def _found(self) -> Ints:
        return np.concatenate([np.array(self._tokens, dtype=np.int32), *self._arrays])

    def _run(self, place: Place, cell: Cell) -> None:
        masker, tree, stack = self._masker, self._trie, self._stack
        member = self._member
        first, labels = tree.first_list, tree.labels
        visits = 0
        stack.append((place, cell, b""))
        while stack:
            place, at, text = stack.pop()
            if isinstance(place, int):
                low, high = first[place], first[place + 1]
                if low == high:
                    continue
            if member is None:
                inner = masker.member(at)
                if inner is not None:
                    self._through(inner, place, at, text)
                    continue
            elif text and masker.depth(at) < member.depth:
                self._exits.append(Exit(place, text, False))
                continue
            region = masker.region(at)
            if region is not None:
                for node in (place,) if isinstance(place, int) else place.nodes:
                    if first[node] < first[node + 1]:
                        self._scalar(region, node, at, text)
                continue
            if not isinstance(place, int):
                for byte, tokens, below in place.children(tree):
                    found = masker.step(at, byte)
                    if found is not None:
                        self._tokens += tokens
                        stack.append((below, found, text + bytes((byte,))))
                continue
            if at._moves is None and high - low > MANY_CHILDREN:
                masker.moves(at)
            if at._moves is not None and len(at._moves) < high - low:
                for byte, after in at._moves:
                    child = labels.find(byte, low, high)
                    if child >= 0:
                        self._tokens += tree.ids(child)
                        stack.append((child, after, text + bytes((byte,))))
            else:
                for child in range(low, high):
                    byte = labels[child]
                    try:
                        found = at.steps[byte]
                    except KeyError:
                        found = masker.step(at, byte)
                    if found is not None:
                        self._tokens += tree.ids(child)
                        stack.append((child, found, text + bytes((byte,))))
            visits += high - low
            if visits > VISITS and member is None:
                self._arrays.append(masker.wide([(p, at) for p, at, _ in stack]))
                break

    def _through(self, inner: Member, place: Place, at: Cell, text: bytes) -> None:
        """A member begins at ``place`` in ``at``."""
        found = self._masker.beyond(inner, place, lambda: at)
        if found is None:
            return
        self._arrays.append(found.tokens)
        for left in found.exits:
            self._leave_member(left, left.place, at, text)

    def _leave_member(self, left: Exit, place: Place, start: Cell, text: bytes) -> None:
        """Go on where a member that began in ``start`` ends."""
        cell = self._masker.read(start, left.text)
        assert cell is not None, "members of one kind are read alike"
        if left.open:
            region = self._masker.region(cell)
            assert region is not None
            self._end_number(region, place, cell, text + left.text)
        else:
            self._stack.append((place, cell, text + left.text))

    # --- scalars ---------------------------------------------------------------------------------------------------

    def _scalar(self, region: Region[Any], node: int, at: Cell, text: bytes) -> None:
        """A scalar, entered at ``node``."""
        inside = self._masker.inside(region, node)
        promised = region.follow is not None and not region.open
        if node:
            self._arrays.append(inside.tokens_and_ends if promised else inside.tokens)
        else:
            self._rows.append(inside.row_and_ends if promised else inside.whole_row)
        if region.open:
            self._end_number(region, node, at, text)
            assert region.follow is not None
            assert region.resume is not None
            for end in inside.ends:
                for place, more in end.leaving(self._trie, node, region.follow):
                    state = region.resume(more)
                    if state is not None:
                        self._end_number(region, place, self._masker.cell(state), text + more)
            return
        for end in inside.ends:
            self._leave(region, node, end, text)

    def _leave(self, region: Region[Any], start: int, end: regions.End, text: bytes) -> None:
        """Where a scalar that was entered at ``start`` ends: where to go on, and, if nothing was promised, what is
        allowed right there."""
        assert region.resume is not None
        tree, follow = self._trie, region.follow
        if region.constant:
            state = region.resume(b"")
            if state is None:
                return
            cell = self._masker.cell(state)
            place = end.place(tree, follow)
            if follow is None:
                for node in end.nodes.tolist():
                    self._tokens += tree.ids(node)
            if place is not None:
                one = place if isinstance(place, int) else place.nodes[0]
                self._stack.append((place, cell, text + tree.path(start, one)))
            return
        alike: dict[Member, list[tuple[int, bytes]]] = {}
        for place, more in end.leaving(tree, start, follow):
            member = None if region.member is None else region.member(more)
            if member is not None:
                alike.setdefault(member, []).append((place, more))
                continue
            state = region.resume(more)
            if state is not None:
                if follow is None:
                    self._tokens += tree.ids(place)
                self._stack.append((place, self._masker.cell(state), text + more))
        for member, some in alike.items():
            self._leave_alike(region, member, some, text)

    def _leave_alike(self, region: Region[Any], member: Member, some: list[tuple[int, bytes]], text: bytes) -> None:
        """The same after several texts, all of which members of one kind follow."""
        assert region.resume is not None
        resume, texts = region.resume, dict(some)

        def begin(more: bytes) -> Cell | None:
            state = resume(more)
            return None if state is None else self._masker.cell(state)

        found = self._masker.beyond(member, self._trie.place(tuple(texts)), lambda: begin(some[0][1]))
        if found is None:
            return
        self._arrays.append(found.tokens)
        for left in found.exits:
            for node in (left.place,) if isinstance(left.place, int) else left.place.nodes:
                origin = node
                while origin not in texts:
                    origin = self._trie.parent_list[origin]
                start = begin(texts[origin])
                if start is not None:
                    self._leave_member(left, node, start, text + texts[origin])

    def _end_number(self, region: Region[Any], place: Place, cell: Cell, text: bytes) -> None:
        """From inside an open scalar: the bytes that end it."""
        assert region.follow is not None
        if self._member is not None and self._masker.depth(cell) <= self._member.depth:
            self._exits.append(Exit(place, text, True))
            return
        for node in (place,) if isinstance(place, int) else place.nodes:
            low, high = self._trie.first_list[node], self._trie.first_list[node + 1]
            for byte in region.follow:
                child = self._trie.labels.find(byte, low, high)
                after = self._masker.step(cell, byte) if child >= 0 else None
                if after is not None:
                    self._tokens += self._trie.ids(child)
                    self._stack.append((child, after, text + bytes((byte,))))
