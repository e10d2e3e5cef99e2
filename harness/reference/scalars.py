"""Boolean operations on the languages of scalars: strings, with enumerations kept finite, and unions of number sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from harness.errors import UnsupportedError
from harness.reference import codepoints, numbers, regular
from harness.reference.automaton import TooComplex
from harness.reference.numbers import ALL_NUMBERS, NumberSet
from harness.reference.regular import Node
from harness.reference.terms import Strings

# Texts without surrogates.
SCALARS = regular.star(regular.chars(codepoints.SCALARS))
# Ranges of numbers in one union.
RANGES_BOUND = 1_500
Union = tuple[NumberSet, ...]


class Texts:
    """Regular languages of which the finite ones are remembered as such: what is built of them by Boolean operations
    is the same node as the enumeration of the same words.

    On ``Strings`` the operations are those of the values meant; of two equal strings that are both meant, the one
    that is a word is met by being spelled like one, and joined by being spelled in any way.
    """

    def __init__(self) -> None:
        self._finite: dict[Node, frozenset[str]] = {}

    def of(self, words: Iterable[str]) -> Node:
        """A finite language."""
        known = frozenset(words)
        node = regular.texts(known)
        self._finite[node] = known
        return node

    def words(self, node: Node) -> frozenset[str]:
        """The words of a finite language made here."""
        return frozenset() if node is regular.EMPTY else self._finite[node]

    def meet_strings(self, one: Strings, other: Strings) -> Strings:
        rest = self.meet(one.rest, other.rest)
        if one.words is regular.EMPTY and other.words is regular.EMPTY:
            return Strings(rest)
        ours = self.meet(one.words, self.join(other.rest, other.words))
        return Strings(rest, self.join(ours, self.meet(other.words, one.rest)))

    def join_strings(self, one: Strings, other: Strings) -> Strings:
        rest = self.join(one.rest, other.rest)
        return Strings(rest, self.subtract(self.join(one.words, other.words), rest))

    def subtract_strings(self, one: Strings, other: Strings) -> Strings:
        gone = self.join(other.rest, other.words)
        return Strings(self.subtract(one.rest, gone), self.subtract(one.words, gone))

    def meet(self, one: Node, other: Node) -> Node:
        for a, b in ((one, other), (other, one)):
            if a in self._finite:
                return a if b is regular.ANY else self._some(a, self._within(self._finite[a], b))
        return regular.intersection(one, other)

    def join(self, one: Node, other: Node) -> Node:
        if one in self._finite and other in self._finite:
            return self.of(self._finite[one] | self._finite[other])
        return regular.union(one, other)

    def subtract(self, one: Node, other: Node) -> Node:
        """What is in ``one`` and not in ``other``."""
        if other is regular.EMPTY or one is regular.EMPTY:
            return one
        if one in self._finite:
            return self._some(one, self._finite[one] - self._within(self._finite[one], other))
        if other in self._finite and one.op in ("inter", "not"):
            # excluded words are gathered in one finite language, so that excluding them one by one stays cheap
            parts = one.args if one.op == "inter" else (one,)
            for part in parts:
                if part.op == "not" and part.args[0] in self._finite:
                    words = self.of(self._finite[part.args[0]] | self._finite[other])
                    rest = [p for p in parts if p is not part]
                    return regular.intersection(*rest, regular.complement(words))
        return regular.difference(one, other)

    def _some(self, node: Node, words: frozenset[str]) -> Node:
        return node if words == self._finite[node] else self.of(words)

    def _within(self, words: frozenset[str], node: Node) -> frozenset[str]:
        """The words that are in a language."""
        if node in self._finite:
            return words & self._finite[node]
        if node is SCALARS:
            return frozenset(w for w in words if w.isascii() or not any("\ud800" <= c <= "\udfff" for c in w))
        if node.op == "not":
            return words - self._within(words, node.args[0])
        if node.op == "inter":
            for part in node.args:
                words = self._within(words, part)
            return words
        return frozenset(w for w in words if regular.matches(node, w))


class NumberUnions:
    """Unions of number sets, single numbers first and apart.

    digits: whether an integer is spelled apart from an equal number, so that the set of integers with one member is not
    that number. lexical: whether what is no integer is so by its spelling, whatever its value (draft-04): then what
    values alone cannot tell is refused.
    """

    def __init__(self, *, digits: bool, lexical: bool) -> None:
        self._digits = digits
        self._lexical = lexical

    def meet(self, one: Union, other: Union) -> Union:
        if one == other or other == (ALL_NUMBERS,):
            return one
        if one == (ALL_NUMBERS,):
            return other
        points_a, sets_a = _split(one)
        points_b, sets_b = _split(other)
        met = [m for a in sets_a for b in sets_b if (m := numbers.intersection(a, b)) is not None]
        points = points_a & points_b
        for some, sets in ((points_a, sets_b), (points_b, sets_a)):
            for s in sets:
                inside = {p for p in some if numbers.contains(s, p)}
                if s.integer is False:
                    self._refuse_spelled(s, some - inside)
                if self._digits and s.integer:
                    met.extend(NumberSet(integer=True, low=p, high=p) for p in inside)
                else:
                    points |= inside
        return self._united(points, met)

    def join(self, one: Union, other: Union) -> Union:
        if one == other or not other:
            return one
        if not one:
            return other
        points_a, sets_a = _split(one)
        points_b, sets_b = _split(other)
        return self._united(points_a | points_b, [*sets_a, *sets_b])

    def subtract(self, one: Union, other: Union) -> Union:
        """What is in ``one`` and not in ``other``."""
        if not one or not other:
            return one
        if other == (ALL_NUMBERS,) or one == other:
            return ()
        points, sets = _split(one)
        gone, removed = _split(other)
        for less in removed:
            if less.integer is not None:
                self._refuse_spelled(less, points)
        points = {p for p in points if p not in gone and not any(numbers.contains(s, p) for s in removed)}
        for less in removed:
            following: list[NumberSet] = []
            for at in sets:
                both = numbers.intersection(at, less)
                if both is None or not any(self._inhabited([both])):
                    following.append(at)
                    continue
                parts = (numbers.intersection(at, part) for part in numbers.complement(less))
                following.extend(left for left in parts if left is not None)
            sets = list(dict.fromkeys(self._inhabited(following)))
            if len(sets) > RANGES_BOUND:
                raise TooComplex(f"more than {RANGES_BOUND} ranges of numbers for one value")
        if gone:
            # only what is in a set needs excluding from it
            sets = [replace(s, excluded=s.excluded | {p for p in gone if numbers.contains(s, p)}) for s in sets]
        return self._united(points, sets)

    def _united(self, points: Iterable[Fraction], sets: Iterable[NumberSet]) -> Union:
        distinct = dict.fromkeys(self._inhabited(sets))
        if ALL_NUMBERS in distinct:
            return (ALL_NUMBERS,)
        if not self._digits:
            # a range of one number is that number: what else it asks is met, for it is not empty
            points = {*points, *(s.low for s in distinct if s.low is not None and s.low == s.high)}
            distinct = {s: None for s in distinct if s.low is None or s.low != s.high}
        covering = [s for s in distinct if not (self._digits and s.integer)]
        loose = {p for p in points if not any(numbers.contains(s, p) for s in covering)}
        return (*(numbers.exactly(p) for p in sorted(loose)), *distinct)

    def _inhabited(self, sets: Iterable[NumberSet]) -> Iterator[NumberSet]:
        for s in sets:
            if not numbers.is_empty(s):
                yield s
            elif self._lexical and s.integer is False and not numbers.is_empty(replace(s, integer=None)):
                raise _spelled()

    def _refuse_spelled(self, one: NumberSet, points: Iterable[Fraction]) -> None:
        if self._lexical and any(numbers.contains(replace(one, integer=None), p) for p in points):
            raise _spelled()


def _spelled() -> UnsupportedError:
    return UnsupportedError("draft-04: single numbers that are no integers by their spelling", keyword="not")


def _split(sets: Union) -> tuple[set[Fraction], list[NumberSet]]:
    """Single numbers, and the other sets."""
    points, others = set(), []
    for s in sets:
        if s.low is not None and s == numbers.exactly(s.low):
            points.add(s.low)
        else:
            others.append(s)
    return points, others
