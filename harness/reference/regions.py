"""Which tokens keep a text inside a scalar, computed once for a vocabulary and shared by every schema and matcher.

Inside a JSON string, what may follow depends on the string's own machine (``spelling.JsonString``) and on nothing
around it. So the whole tree of tokens is walked once for a state of that machine: the tokens that stay inside are a
fact of (machine state, vocabulary), and only the nodes of the tree at which the string ends are left to whoever knows
what comes after it (``harness.reference.masker``).

The machine's steps are kept as a table of numbers that grows as states are met, so that wide states are walked by
numpy, many nodes at a time. Nothing is approximated: every entry of the table is an answer of the machine's ``step``,
or an equal one found faster (``machine_moves``).

Thread safety: callers hold ``masker.LOCK``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.reference import codepoints, numbers, regular, spelling
from harness.reference import trie as tries
from harness.reference.automaton import KeyedAutomaton, WithViableBytes
from harness.reference.codepoints import Ranges
from harness.reference.trie import Trie
from harness.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int32]

# Rows of a table (1 KB in numpy, 2 KB as a list) before it starts anew; rows of masks and ends of scalars in bytes.
TABLE_BOUND = 16_384
CACHE_BYTES = 64 << 20
# A language is taken for near to another if as many first bytes lead to the same state; and is near if its states
# differ at no more nodes of the tree. So many are kept to compare with.
NEAR_BYTES = 32
NEAR_NODES = 4_000
NEAR_KEPT = 6
# Nodes waiting to be walked from which numpy is faster than a loop.
WIDE = 200
FEW = 60
# Bytes that can come first from which a walk through the whole tree is quicker than one that follows what is viable.
BROAD = 48

_SCALARS = regular.star(regular.chars(codepoints.SCALARS))

DEAD = 0
_UNKNOWN = -1
_ALL_DEAD = array("i", [DEAD]) * 256
_ALL_UNKNOWN = array("i", [_UNKNOWN]) * 256
# Bytes asked for at once from which a whole row is found out sooner than one byte after the other.
MANY = 6


class Table:
    """A machine's states as numbers from 1 on, 0 is no state. ends: whether the machine's texts are a scalar, which
    ends in an accepting state; if ``open`` it may go on from there, too."""

    def __init__(self, machine: KeyedAutomaton, *, ends: bool, open_: bool = False) -> None:
        self.machine = machine
        self.ends = ends and not open_
        self.open = open_
        self.states: list[Hashable] = [None]
        # One byte for each state, 0 or 1: whether it is the end, whether it may be, whether a character was started.
        self.final = bytearray(1)
        self.stops = bytearray(1)
        self.pending = bytearray(1)
        self._numbers: dict[Hashable, int] = {}
        # The states after each of the 256 bytes, and whether all of them are known.
        self._rows: list[array[int] | None] = [_ALL_DEAD]
        self._whole = bytearray(b"\x01")
        self._matrix = np.full((64, 256), _UNKNOWN, dtype=np.int32)
        self._matrix[DEAD] = DEAD

    def __len__(self) -> int:
        return len(self.states)

    def number(self, state: Hashable) -> int:
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self.states)
            self.states.append(state)
            self.final.append(self.ends and self.machine.accepting(state))
            self.stops.append(self.open and self.machine.accepting(state))
            self.pending.append(bool(getattr(state, "pending", False)))
            self._rows.append(None)
            self._whole.append(0)
        return found

    def row(self, number: int) -> array[int]:
        """The states after each of the 256 bytes."""
        found = self._rows[number]
        if found is None or not self._whole[number]:
            found = array("i", _ALL_DEAD)
            if not self.final[number]:
                for low, high, state in machine_spans(self.machine, self.states[number]):
                    after = self.number(state)
                    for byte in range(low, high + 1):
                        found[byte] = after
            self._rows[number] = found
            self._whole[number] = 1
        return found

    def known(self, number: int) -> array[int]:
        """The states after the bytes asked for so far; a negative number for the others, see ``after``."""
        found = self._rows[number]
        if found is None:
            found = self._rows[number] = array("i", _ALL_UNKNOWN)
        return found

    def after(self, number: int, byte: int) -> int:
        """The state after one byte, found out and put down in ``known``."""
        state = None if self.final[number] else self.machine.step(self.states[number], byte)
        after = self.known(number)[byte] = DEAD if state is None else self.number(state)
        return after

    def children(self, number: int, many: int) -> array[int]:
        """``known``, or the whole row where that is the quicker way to ``many`` bytes."""
        return self.known(number) if many < MANY or self._costly(number) else self.row(number)

    def _costly(self, number: int) -> bool:
        """Whether a whole row takes many steps."""
        return bool(self.pending[number]) and self.states[number].pending[0] in ("hex", "utf8")  # type: ignore[attr-defined]

    def steps(self, numbers: Numbers, bytes_: npt.NDArray[np.uint8]) -> Numbers:
        """The states after one byte each."""
        top = int(numbers.max(initial=0))
        if top >= len(self._matrix):
            grown = np.full((max(2 * len(self._matrix), top + 1), 256), _UNKNOWN, dtype=np.int32)
            grown[: len(self._matrix)] = self._matrix
            self._matrix = grown
        places = numbers << 8 | bytes_
        after = self._matrix.reshape(-1).take(places)
        if after.min(initial=0) < 0:
            for place in np.unique(places[after < 0]).tolist():
                number, byte = place >> 8, place & 255
                if self._matrix[number, byte] < 0:  # not yet known by an earlier place
                    known = self.known(number) if self._costly(number) else self.row(number)
                    if known[byte] < 0:
                        self.after(number, byte)
                    self._matrix[number] = np.frombuffer(known, dtype=np.int32)
            after = self._matrix.reshape(-1).take(places)
        return after

    def are_final(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        return np.frombuffer(self.final, dtype=np.bool_)[numbers]

    def are_stops(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        return np.frombuffer(self.stops, dtype=np.bool_)[numbers]

    def are_pending(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        return np.frombuffer(self.pending, dtype=np.bool_)[numbers]


# Bytes first to last that lead to one state.
Span = tuple[int, int, Hashable]


def machine_moves(machine: KeyedAutomaton, state: Hashable) -> Iterator[tuple[int, Hashable]]:
    """Every byte that ``machine.step`` does not refuse, with the state after it."""
    for low, high, after in machine_spans(machine, state):
        for byte in range(low, high + 1):
            yield byte, after


def machine_spans(machine: KeyedAutomaton, state: Hashable) -> Iterator[Span]:
    """The same in spans of bytes, which are disjoint."""
    if isinstance(machine, spelling.TwoSpellings):
        yield from _spans_of_two(machine, state)
        return
    if isinstance(machine, spelling.JsonString | spelling.Utf8) and isinstance(state, spelling.State):
        if state.at == "body" and not state.pending:
            yield from _between_characters(machine, state)
            return
        if state.pending[:1] == ("tail",):
            any_tail = machine.step(state, 0x80)
            assert any_tail is not None
            yield 0x80, 0xBF, any_tail
            return
        candidates: Iterable[int] = _candidates(machine, state)
    elif isinstance(machine, numbers.Number):
        candidates = b"0123456789.-+eE"
    elif isinstance(machine, WithViableBytes):
        candidates = machine.viable_bytes(state)
    else:
        candidates = range(256)
    step: Callable[[Any, int], Hashable | None] = machine.step
    for byte in candidates:
        after = step(state, byte)
        if after is not None:
            yield byte, byte, after


def _spans_of_two(machine: spelling.TwoSpellings, state: Hashable) -> Iterator[Span]:
    if isinstance(state, spelling.Word):
        for low, high, after in machine_spans(machine.literal, state.inner):
            yield low, high, spelling.literally(after)  # type: ignore[arg-type]
        return
    if not isinstance(state, spelling.Both):
        yield from machine_spans(machine.free, state)
        return
    literal: dict[int, Any] = {}
    for low, high, after in machine_spans(machine.literal, state.literal):
        literal |= dict.fromkeys(range(low, high + 1), after)
    for low, high, after in machine_spans(machine.free, state.free):
        for byte in range(low, high + 1):
            if byte in literal:
                if low < byte:
                    yield low, byte - 1, after
                yield byte, byte, spelling.both(after, literal.pop(byte))  # type: ignore[arg-type]
                low = byte + 1
        if low <= high:
            yield low, high, after
    for byte, after in literal.items():
        yield byte, byte, spelling.literally(after)


def _candidates(machine: spelling.JsonString | spelling.Utf8, state: spelling.State) -> Iterable[int]:
    """Bytes among which are all that can follow."""
    if state.at == "open":
        return (spelling.QUOTE,)
    match state.pending[:1]:
        case ("utf8",):
            return range(0x80, 0xC0)
        case ("escape",):
            return b'"\\/bfnrtu'
        case ("hex",):
            return b"0123456789abcdefABCDEF"
        case _:
            return range(256)


# First bytes of UTF-8 from … to …, and the characters of all of them together. Of each of these bytes, all second
# bytes can follow; of those between them, not all.
_LEADS = ((0xC2, 0xDF, 0x80, 0x7FF), (0xE1, 0xEC, 0x1000, 0xCFFF), (0xEE, 0xEF, 0xE000, 0xFFFF),
          (0xF1, 0xF3, 0x40000, 0xFFFFF))  # fmt: skip
_LEADS_APART = (0xE0, 0xED, 0xF0, 0xF4)


def _between_characters(machine: spelling.JsonString | spelling.Utf8, state: spelling.State) -> Iterator[Span]:
    """The same answers as ``step``'s, most of them taken from the step function as a whole."""
    starts, targets = regular.moves(state.node)
    # ASCII
    low = 0
    apart: tuple[int, ...] = ()
    if isinstance(machine, spelling.JsonString):
        low, apart = 0x20, (spelling.QUOTE, spelling.BACKSLASH)
    leads = list(_LEADS_APART)
    leads += apart
    for start, end, target in zip(starts, (*starts[1:], 0x80), targets, strict=True):
        if start >= 0x80:
            break
        if regular.is_empty(target):
            continue
        after = spelling.State(target, spelling.NOTHING)
        at, end = max(start, low), min(end, 0x80)
        for byte in apart:
            if at <= byte < end:
                if at < byte:
                    yield at, byte - 1, after
                at = byte + 1
        if at < end:
            yield at, end - 1, after
    # first bytes of longer characters
    for first, last, lowest, highest in _LEADS:
        piece = bisect_right(starts, lowest)
        if piece < len(starts) and starts[piece] <= highest:
            leads += range(first, last + 1)
        elif not regular.is_empty(targets[piece - 1]):
            after_lead = machine.step(state, first)
            assert after_lead is not None
            yield first, last, after_lead
    for byte in leads:
        after_it = machine.step(state, byte)
        if after_it is not None:
            yield byte, byte, after_it


@dataclass(frozen=True, eq=False)
class Reached:
    """What a walk reached. nodes, numbers: the nodes whose bytes are viable and inside, and their states' numbers.
    end_nodes, end_numbers: those at which the scalar ends. counts, end_counts: characters completed on the way."""

    nodes: Numbers
    numbers: Numbers
    counts: Numbers
    end_nodes: Numbers
    end_numbers: Numbers
    end_counts: Numbers


def walk(trie: Trie, table: Table, nodes: Sequence[int], numbers: Sequence[int]) -> Reached:
    """Everything below some nodes that is viable from their states; the nodes themselves are not among it."""
    parts: list[tuple[Numbers, Numbers, Numbers]] = []
    ends: list[tuple[Numbers, Numbers, Numbers]] = []
    reached: list[tuple[int, int, int]] = []
    ended: list[tuple[int, int, int]] = []
    waiting = [(node, number, 0) for node, number in zip(nodes, numbers, strict=True)]
    first, labels = trie.first_list, trie.labels
    # Few nodes at a time: a loop.
    while waiting and len(waiting) < WIDE:
        following: list[tuple[int, int, int]] = []
        for node, number, count in waiting:
            low, high = first[node], first[node + 1]
            if low == high:
                continue
            row = table.children(number, high - low)
            for child in range(low, high):
                after = row[labels[child]]
                if after < 0:
                    after = table.after(number, labels[child])
                if after:
                    if table.final[after]:
                        ended.append((child, after, count))
                    else:
                        following.append((child, after, count + (not table.pending[after])))
                        if table.stops[after] and first[child] < first[child + 1]:
                            ended.append((child, after, count))
        reached += following
        waiting = following
    for some, rows in ((parts, reached), (ends, ended)):
        columns = np.array(rows, dtype=np.int32).reshape(-1, 3)
        some.append((columns[:, 0], columns[:, 1], columns[:, 2]))
    at = np.array(waiting, dtype=np.int32).reshape(-1, 3)
    here, states, counts = at[:, 0], at[:, 1], at[:, 2]
    # Many: arrays.
    while here.size:
        parent, here = _children(trie, here)
        states = table.steps(states[parent], trie.label_array[here])
        alive = np.flatnonzero(states)
        here, states, counts = here[alive], states[alive], counts[parent[alive]]
        if table.ends:
            final = table.are_final(states)
            if final.any():
                ends.append((here[final], states[final], counts[final]))
                here, states, counts = here[~final], states[~final], counts[~final]
        if table.open:
            stops = table.are_stops(states)
            ends.append((here[stops], states[stops], counts[stops]))
        counts = counts + ~table.are_pending(states)
        parts.append((here, states, counts))
    inside = [np.concatenate(column) for column in zip(*parts, strict=True)]
    outside = [np.concatenate(column) for column in zip(*ends, strict=True)]
    return Reached(*inside, *outside)


def walk_whole(trie: Trie, table: Table, number: int, *, counted: bool) -> Reached:
    """The same from the root, for a state from which most of the tree is viable: level by level, without looking for
    what has died. counted: whether the characters are counted; all 0 if not."""
    states = np.zeros(trie.nodes, dtype=np.int32)
    counts = np.zeros(trie.nodes, dtype=np.int32)
    states[0] = number
    for depth in range(1, len(trie.levels) - 1):
        low, high = trie.levels[depth : depth + 2].tolist()
        parents = trie.parent[low:high]
        after = states[low:high] = table.steps(states[parents], trie.label_array[low:high])
        if counted:
            counts[low:high] = counts[parents] + ~table.are_pending(after)
        if not after.any():
            break
    states[0] = DEAD
    final = table.are_final(states)
    ended = np.flatnonzero(final)
    if table.open:
        ended = np.flatnonzero(table.are_stops(states) & (trie.first[1:] > trie.first[:-1]))
    # A scalar's end completes no character.
    end_counts = counts[ended] - (counted and not table.open)
    inside = np.flatnonzero((states != DEAD) & ~final)
    return Reached(
        inside.astype(np.int32), states[inside], counts[inside], ended.astype(np.int32), states[ended], end_counts
    )


def _children(trie: Trie, nodes: Numbers) -> tuple[Numbers, Numbers]:
    """The children of some nodes: for each the index of its parent in ``nodes``, and the child."""
    return _slices(trie.first, nodes)


def tokens_at(trie: Trie, nodes: Numbers) -> tuple[npt.NDArray[np.int32], Numbers]:
    """The tokens that end at some nodes, and for each the index of its node in ``nodes``."""
    if nodes.size < FEW:
        listed = nodes.tolist()
        ids = [trie.ids(node) for node in listed]
        tokens = np.array([token for some in ids for token in some], dtype=np.int32)
        return tokens, np.array([i for i, some in enumerate(ids) for _ in some], dtype=np.int32)
    if 8 * nodes.size > trie.nodes:
        index = np.full(trie.nodes, -1, dtype=np.int32)
        index[nodes] = np.arange(nodes.size, dtype=np.int32)
        which = index[trie.node_of]
        return trie.tokens[which >= 0], which[which >= 0]
    which, places = _slices(trie.token_first, nodes)
    return trie.tokens[places], which


def _slices(first: npt.NDArray[np.int32], nodes: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers first[node] … first[node + 1] − 1 of each node, after one another, and which node they are of."""
    low = first[nodes].astype(np.int64)
    many = first[nodes + 1] - low
    which = np.repeat(np.arange(nodes.size), many)
    return which, np.arange(which.size) + np.repeat(low - (np.cumsum(many) - many), many)


@dataclass(frozen=True, eq=False)
class End:
    """Where scalars end in one state of their machine. nodes: the nodes of the tree at which they do. tokens: the ids
    that end right there. Of an open scalar: all nodes at which it may end; no state, no tokens."""

    state: Hashable
    tokens: npt.NDArray[np.int32]
    nodes: Numbers
    _leaving: dict[bytes | None, list[tuple[int, bytes]]] = field(default_factory=dict)
    _places: dict[bytes | None, tries.Place | None] = field(default_factory=dict)

    def leaving(self, trie: Trie, start: int, follow: bytes | None) -> list[tuple[int, bytes]]:
        """The nodes from which a token goes on by one of the bytes ``follow``, and the text from node ``start``;
        without ``follow``, all nodes."""
        found = self._leaving.get(follow)
        if found is None:
            nodes = self.nodes if follow is None else trie.goes_on(self.nodes, follow)
            found = self._leaving[follow] = [(node, trie.path(start, node)) for node in nodes.tolist()]
        return found

    def place(self, trie: Trie, follow: bytes | None) -> tries.Place | None:
        """The same nodes as one place; None where there is none."""
        if follow not in self._places:
            nodes = self.nodes if follow is None else trie.goes_on(self.nodes, follow)
            self._places[follow] = trie.place(tuple(nodes.tolist())) if nodes.size else None
        return self._places[follow]


@dataclass(frozen=True, eq=False)
class Inside:
    """From a machine state and a node of the tree. tokens: the ids that stay inside (None at the root, where ``row``,
    int32 [words], says the same). ends: one for each state in which scalars end."""

    tokens: npt.NDArray[np.int32] | None
    row: bitmask.Row | None
    ends: tuple[End, ...]

    @property
    def whole_row(self) -> bitmask.Row:
        """``row``, at the root."""
        assert self.row is not None
        return self.row

    @cached_property
    def row_and_ends(self) -> bitmask.Row:
        """At the root: the tokens that stay inside, and those that end the scalar right there."""
        row = self.whole_row.copy()
        for end in self.ends:
            bitmask.set_bits(row, end.tokens)
        return row

    @cached_property
    def tokens_and_ends(self) -> npt.NDArray[np.int32]:
        """The same elsewhere, as ids."""
        assert self.tokens is not None
        return np.concatenate([self.tokens, *(end.tokens for end in self.ends)])

    @property
    def size_bytes(self) -> int:
        own = (0 if self.tokens is None else self.tokens.nbytes) + (0 if self.row is None else 2 * self.row.nbytes)
        return own + sum(e.tokens.nbytes + e.nodes.nbytes for e in self.ends) + 500


@dataclass(frozen=True, eq=False)
class _Counted:
    """From a state whose texts are any number of characters of one set, from the root: the same, by the number of
    characters. needs: for each of ``tokens``, how many characters it takes at least (a started one counts)."""

    tokens: npt.NDArray[np.int32]
    needs: Numbers
    row: bitmask.Row
    end: End
    end_token_counts: Numbers
    end_node_counts: Numbers

    @property
    def size_bytes(self) -> int:
        return 4 * self.tokens.nbytes + self.row.nbytes


class Regions:
    """Everything known of scalars over one vocabulary; see the module's text."""

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self._tables: dict[Hashable, Table] = {}
        self._cache: OrderedDict[Hashable, Inside | _Counted] = OrderedDict()
        self._cached_bytes = 0
        self._walked_from: dict[Hashable, deque[Hashable]] = {}  # by machine, the last states at the root

    def table(self, machine: KeyedAutomaton, *, ends: bool, open_: bool = False) -> Table:
        key = (machine.key, ends, open_)
        table = self._tables.get(key)
        if table is None or len(table) > TABLE_BOUND:
            table = self._tables[key] = Table(machine, ends=ends, open_=open_)
            while len(self._tables) > 1 and sum(map(len, self._tables.values())) > 2 * TABLE_BOUND:
                del self._tables[next(iter(self._tables))]  # the oldest
        return table

    def prepare(self) -> None:
        """Walk the strings of every profile once, which the first schema would have to wait for otherwise."""
        for escapes in ("any", "minimal"):
            machine = spelling.JsonString(regular.ANY, escapes=escapes)
            self._counted(machine, spelling.State(_SCALARS, spelling.NOTHING), ends=True)

    def inside(
        self, machine: KeyedAutomaton, state: Hashable, node: int = 0, *, ends: bool = True, open_: bool = False
    ) -> Inside:
        key = (machine.key, ends, open_, state, node)
        found = self._cached(key)
        if found is None:
            by_count = self._by_count(machine, state, ends) if node == 0 and not open_ else None
            found = by_count or self._walked(machine, state, node, self.table(machine, ends=ends, open_=open_))
            self._keep(key, found)
        assert isinstance(found, Inside)
        return found

    def _walked(self, machine: KeyedAutomaton, state: Hashable, node: int, table: Table) -> Inside:
        if node == 0:
            near = self._near(machine, table, state)
            if near is not None:
                return near
            self._walked_from.setdefault(machine.key, deque(maxlen=NEAR_KEPT)).append(state)
        reached = self._reached(table, state, node)
        tokens, _ = tokens_at(self._trie, reached.nodes)
        found = []
        if table.open:  # whoever asks has to look at the text anyway
            found.append(End(None, np.zeros(0, dtype=np.int32), reached.end_nodes))
        for number in () if table.open else np.unique(reached.end_numbers).tolist():
            nodes = reached.end_nodes[reached.end_numbers == number]
            end_tokens, _ = tokens_at(self._trie, nodes)
            found.append(End(table.states[number], end_tokens, nodes))
        if node:
            return Inside(tokens, None, tuple(found))
        row = bitmask.allocate_row(self._trie.size)
        bitmask.set_bits(row, tokens)
        return Inside(None, row, tuple(found))

    def _reached(self, table: Table, state: Hashable, node: int, *, counted: bool = False) -> Reached:
        number = table.number(state)
        if node == 0 and 256 - table.row(number).count(DEAD) >= BROAD:
            return walk_whole(self._trie, table, number, counted=counted)
        return walk(self._trie, table, [node], [number])

    def _near(self, machine: KeyedAutomaton, table: Table, state: Hashable) -> Inside | None:
        """From the root, for a language that is soon like one that is known: that of all strings (any key but a few),
        or one met before (a pattern, a few characters further on). Only where their states differ need be looked at.
        None where there is none."""
        if not table.ends or not isinstance(state, spelling.State | spelling.Both):
            return None
        if isinstance(machine, spelling.TwoSpellings):
            strings = machine.free
        elif isinstance(machine, spelling.JsonString):
            strings = machine
        else:
            return None
        if state.at != "body" or state.pending:
            return None
        every = spelling.State(regular.ANY if strings.lone else _SCALARS, spelling.NOTHING)
        if state == every:
            return None
        here = np.frombuffer(table.row(table.number(state)), dtype=np.int32)
        most, like = NEAR_BYTES - 1, None
        for known in (every, *self._walked_from.get(machine.key, ())):
            there = np.frombuffer(table.row(table.number(known)), dtype=np.int32)
            alike = int(np.count_nonzero((here == there) & (there != DEAD)))
            if alike > most:
                most, like = alike, known
        if like is None:
            return None
        changed = self._changes(table, table.number(state), table.number(like))
        if changed is None:
            return None
        plain = self.inside(strings if isinstance(like, spelling.State) else machine, like)
        nodes = np.array([node for node, _ in changed], dtype=np.int32)
        numbers = np.array([number for _, number in changed], dtype=np.int32)
        tokens, which = tokens_at(self._trie, nodes)
        stays = ((numbers != DEAD) & ~table.are_final(numbers))[which]
        row = plain.whole_row.copy()
        bitmask.set_bits(row, tokens[stays])
        bitmask.set_bits(row, tokens[~stays], allowed=False)
        gone = {node for node, _ in changed}
        ended = [node for end in plain.ends for node in end.nodes.tolist() if node not in gone]
        ended += [node for node, number in changed if table.final[number]]
        if not ended:
            return Inside(None, row, ())
        end_nodes = np.array(sorted(ended), dtype=np.int32)
        end_tokens, _ = tokens_at(self._trie, end_nodes)
        # A JSON string ends in one state.
        end_state = spelling.State(regular.EPSILON, spelling.NOTHING, "closed")
        return Inside(None, row, (End(end_state, end_tokens, end_nodes),))

    def _changes(self, table: Table, number: int, base: int) -> list[tuple[int, int]] | None:
        """The nodes at which two states have led to different ones, with the first's; None where they are many."""
        first, labels = self._trie.first_list, self._trie.labels
        changed: list[tuple[int, int]] = []
        waiting = [(0, number, base)]
        while waiting:
            node, one, other = waiting.pop()
            low, high = first[node], first[node + 1]
            if low == high:
                continue
            here, there = table.children(one, high - low), table.children(other, high - low)
            for child in range(low, high):
                byte = labels[child]
                after, instead = here[byte], there[byte]
                if after < 0:
                    after = table.after(one, byte)
                if instead < 0:
                    instead = table.after(other, byte)
                if after != instead:
                    changed.append((child, after))
                    waiting.append((child, after, instead))
            if len(changed) > NEAR_NODES:
                return None
        return changed

    def _by_count(self, machine: KeyedAutomaton, state: Hashable, ends: bool) -> Inside | None:
        """Where the texts are ``low`` to ``high`` characters out of one set, a token's fate is a matter of how many
        characters it has, and the walk is shared by all ``low`` and ``high``."""
        if not isinstance(state, spelling.State) or state.at != "body":
            return None
        if isinstance(machine, spelling.JsonString):
            if machine.lone or not ends:
                # Lone surrogates: a started character may turn out to be two. The closing quote is no character.
                return None
        elif not isinstance(machine, spelling.Utf8):
            return None
        limits = repetition(state.node)
        if limits is None:
            return None
        ranges, low, high = limits
        if state.pending[:1] == ("tail",):  # the language is that after the character, which will be counted
            low, high = low + 1, None if high is None else high + 1
        endless = state._replace(node=regular.star(regular.chars(ranges)))
        counted = self._counted(machine, endless, ends)
        most = int(counted.needs.max(initial=0))
        row = counted.row
        if high is not None and high < most:
            row = row.copy()
            bitmask.set_bits(row, counted.tokens[counted.needs > high], allowed=False)
        fits = counted.end_token_counts >= low
        ended = counted.end_node_counts >= low
        if high is not None:
            fits &= counted.end_token_counts <= high
            ended &= counted.end_node_counts <= high
        if not ended.any():
            return Inside(None, row, ())
        if ended.all():
            return Inside(None, row, (counted.end,))
        end = counted.end
        return Inside(None, row, (End(end.state, end.tokens[fits], end.nodes[ended]),))

    def _counted(self, machine: KeyedAutomaton, state: Hashable, ends: bool) -> _Counted:
        key = ("counted", machine.key, ends, state)
        found = self._cached(key)
        if found is None:
            table = self.table(machine, ends=ends)
            reached = self._reached(table, state, 0, counted=True)
            tokens, which = tokens_at(self._trie, reached.nodes)
            needs = reached.counts + table.are_pending(reached.numbers)
            row = bitmask.allocate_row(self._trie.size)
            bitmask.set_bits(row, tokens)
            end_states = {table.states[number] for number in np.unique(reached.end_numbers).tolist()}
            assert len(end_states) <= 1, "the machine ends in several states after texts of one kind"
            end_tokens, end_which = tokens_at(self._trie, reached.end_nodes)
            found = _Counted(
                tokens,
                needs[which],
                row,
                End(next(iter(end_states), None), end_tokens, reached.end_nodes),
                reached.end_counts[end_which],
                reached.end_counts,
            )
            self._keep(key, found)
        assert isinstance(found, _Counted)
        return found

    def _cached(self, key: Hashable) -> Inside | _Counted | None:
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
        return found

    def _keep(self, key: Hashable, value: Inside | _Counted) -> None:
        self._cache[key] = value
        self._cached_bytes += value.size_bytes
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, gone = self._cache.popitem(last=False)
            self._cached_bytes -= gone.size_bytes


def repetition(node: regular.Node) -> tuple[Ranges, int, int | None] | None:
    """(set, low, high) where a language is all texts of ``low`` to ``high`` characters of one set; None where it was
    not built like that."""
    op, args = node.op, node.args
    if op == "epsilon":
        return (), 0, 0
    if op == "chars":
        return args[0], 1, 1
    if op == "star" and args[0].op == "chars":
        return args[0].args[0], 0, None
    if op == "repeat" and args[0].op == "chars":
        return args[0].args[0], args[1], args[2]
    if op != "inter":
        return None
    ranges, low, high = codepoints.ALL, 0, None
    for part in args:
        limits = repetition(part)
        if limits is None:
            return None
        ranges = codepoints.intersection(ranges, limits[0])
        low = max(low, limits[1])
        high = limits[2] if high is None else high if limits[2] is None else min(high, limits[2])
    return (ranges, low, high) if ranges else ((), low, 0)


_kept: OrderedDict[str, Regions] = OrderedDict()


def of(vocabulary: Vocabulary) -> Regions:
    """What is known of scalars over a vocabulary in this process."""
    found = _kept.get(vocabulary.sha256)
    if found is None:
        found = _kept[vocabulary.sha256] = Regions(tries.of(vocabulary))
        while len(_kept) > tries.KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(vocabulary.sha256)
    return found
