"""What every notation is turned into: expressions over bytes, code points and calls of rules, and their automata.

A ``Chars`` leaf is one code point of a class and is spelled out in bytes only when a rule enters a ``Network``, so that
``pattern``, ``maxLength`` and excluded keys can be intersected as languages of decoded text. Nothing here knows JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UnsupportedError

Ranges = tuple[tuple[int, int], ...]
"""A set of integers: closed intervals, ascending, none touching another. Made by ``union``."""

LIMIT = 100_000
"""States that one constraint may take, before it is refused. Our own choice: about 100 MB and two seconds."""

TOP = 0x10FFFF
SURROGATES: Ranges = ((0xD800, 0xDFFF),)
HIGH: Ranges = ((0xD800, 0xDBFF),)
LOW: Ranges = ((0xDC00, 0xDFFF),)


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    """The union of sets of intervals in any order, as ``Ranges``."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(interval for intervals in sets for interval in intervals):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges, top: int = TOP) -> Ranges:
    """What is in 0 … top (code points, surrogates included, unless told) and not in ``ranges``."""
    out, low = [], 0
    for first, last in ranges:
        if low < first:
            out.append((low, first - 1))
        low = last + 1
    return (*out, (low, top)) if low <= top else tuple(out)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    out = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return union((low, high) for low, high in out if low <= high)


def difference(one: Ranges, other: Ranges) -> Ranges:
    return intersection(one, complement(other))


@dataclass(frozen=True)
class Bytes:
    """One byte of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Chars:
    """One code point of a set; surrogates stand for lone ones and have no UTF-8."""

    ranges: Ranges


@dataclass(frozen=True)
class Call:
    """Whatever the named rule of the network derives."""

    rule: str


@dataclass(frozen=True)
class Seq:
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Alt:
    """One of the parts; of none, the empty language."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Repeat:
    """``low`` to ``high`` times the part; high None: without end."""

    part: Expr
    low: int
    high: int | None


Expr = Bytes | Chars | Call | Seq | Alt | Repeat
Label = Bytes | Chars | Call

EMPTY = Seq(())
NOTHING = Alt(())
ANY_CHAR = Chars(complement(()))


def literal(data: bytes) -> Expr:
    return Seq(tuple(Bytes(((b, b),)) for b in data))


def text(characters: str) -> Expr:
    return Seq(tuple(Chars(((ord(c), ord(c)),)) for c in characters))


class Nfa:
    """A non-deterministic automaton with labels and empty moves. Node 0 is the start."""

    def __init__(self) -> None:
        self.labelled: list[list[tuple[Label, int]]] = [[]]
        self.empty: list[list[int]] = [[]]
        self.finals: set[int] = set()

    def node(self, *, final: bool = False) -> int:
        if len(self.labelled) >= LIMIT:
            raise UnsupportedError(f"needs more than {LIMIT:,} states", keyword="size")
        self.labelled.append([])
        self.empty.append([])
        if final:
            self.finals.add(len(self.labelled) - 1)
        return len(self.labelled) - 1

    def connect(self, source: int, expr: Expr, target: int) -> None:
        """Add paths from ``source`` to ``target`` that read ``expr``. Adds no edge into ``source`` nor out of
        ``target`` (unless they are the same node), so that fragments never leak into each other."""
        match expr:
            case Seq(parts):
                for part in parts[:-1]:
                    after = self.node()
                    self.connect(source, part, after)
                    source = after
                if parts:
                    self.connect(source, parts[-1], target)
                else:
                    self.empty[source].append(target)
            case Alt(parts):
                for part in parts:
                    self.connect(source, part, target)
            case Repeat(part, low, high):
                for _ in range(low):
                    after = self.node()
                    self.connect(source, part, after)
                    source = after
                if high is None:
                    hub = self.node()
                    self.empty[source].append(hub)
                    self.connect(hub, part, hub)
                    source = hub
                for _ in range((high or low) - low):
                    self.empty[source].append(target)
                    after = self.node()
                    self.connect(source, part, after)
                    source = after
                self.empty[source].append(target)
            case _:
                self.labelled[source].append((expr, target))


def automaton(expr: Expr) -> Nfa:
    nfa = Nfa()
    nfa.connect(0, expr, nfa.node(final=True))
    return nfa


def product(one: Nfa, other: Nfa) -> Nfa:
    """The intersection of two automata over code points."""
    out = Nfa()
    index = {(0, 0): 0}
    todo = [(0, 0)]

    def at(pair: tuple[int, int]) -> int:
        if pair not in index:
            index[pair] = out.node()
            todo.append(pair)
        return index[pair]

    while todo:
        pair = todo.pop()
        node, (a, b) = index[pair], pair
        if a in one.finals and b in other.finals:
            out.finals.add(node)
        out.empty[node] += [at((target, b)) for target in one.empty[a]]
        out.empty[node] += [at((a, target)) for target in other.empty[b]]
        for left, after_left in one.labelled[a]:
            for right, after_right in other.labelled[b]:
                assert isinstance(left, Chars) and isinstance(right, Chars), "product is of automata over code points"
                both = intersection(left.ranges, right.ranges)
                if both:
                    out.labelled[node].append((Chars(both), at((after_left, after_right))))
    return out


def words(texts: Iterable[str]) -> Nfa:
    """Exactly these texts: a tree that shares beginnings."""
    nfa = Nfa()
    for characters in texts:
        nfa.finals.add(_grow(nfa, characters)[-1])
    return nfa


def all_but(texts: Iterable[str]) -> Nfa:
    """Every text except these: follow the tree of them, and leave it for good at any other character."""
    nfa = Nfa()
    excluded = {_grow(nfa, characters)[-1] for characters in texts}
    inside = range(len(nfa.labelled))
    outside = nfa.node(final=True)
    for node in inside:
        taken = union(*(label.ranges for label, _ in nfa.labelled[node] if isinstance(label, Chars)))
        nfa.labelled[node].append((Chars(complement(taken)), outside))
    nfa.labelled[outside].append((ANY_CHAR, outside))
    nfa.finals |= set(inside) - excluded
    return nfa


def _grow(nfa: Nfa, characters: str) -> list[int]:
    """The path of ``characters`` in a tree, made where it is missing."""
    path = [0]
    for c in characters:
        label = Chars(((ord(c), ord(c)),))
        found = dict(nfa.labelled[path[-1]]).get(label)
        if found is None:
            found = nfa.node()
            nfa.labelled[path[-1]].append((label, found))
        path.append(found)
    return path
