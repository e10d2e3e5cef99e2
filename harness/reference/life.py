"""Whether an expression means any value at all, by least fixpoint, and which values where they are few.

A schema that can only be satisfied by values of infinite depth means nothing. "Means something" is kept as soon as it
is known; "means nothing" only where it rests on no assumption about a question still open.
"""

from __future__ import annotations

from itertools import product

from harness.profile import Profile
from harness.reference import numbers, regular
from harness.reference.algebra import Algebra
from harness.reference.arrays import Arrays
from harness.reference.automaton import TooComplex
from harness.reference.objects import Objects
from harness.reference.regular import Node
from harness.reference.scalars import SCALARS
from harness.reference.terms import ArrayShape, Expr, Json, ObjectShape, Value

_NO_TOUCH = 1 << 60


class Life:
    """Questions of inhabitation under a profile."""

    def __init__(self, algebra: Algebra, profile: Profile) -> None:
        self.algebra = algebra
        self.lone = profile.lone_surrogates and profile.escapes == "any"
        self.objects = Objects(self, profile)
        self.arrays = Arrays(self)
        self._open: dict[Expr, int] = {}
        self._touched = _NO_TOUCH

    def spellable(self, node: Node) -> Node:
        """The texts of a language that the profile can spell: lone surrogates only where it allows them."""
        return node if self.lone else self.algebra.texts.meet(node, SCALARS)

    def is_spellable(self, text: str) -> bool:
        return self.lone or not any(0xD800 <= ord(c) <= 0xDFFF for c in text)

    @property
    def settled(self) -> bool:
        """Whether an answer found now rests on no open assumption made since the last question began."""
        return self._touched == _NO_TOUCH

    def alive(self, expr: Expr) -> bool:
        """Whether the expression means any value."""
        if expr.alive is not None:
            return expr.alive
        if expr in self._open:
            self._touched = min(self._touched, self._open[expr])
            return False
        depth = len(self._open)
        saved, self._touched = self._touched, _NO_TOUCH
        self._open[expr] = depth
        try:
            found = self._lives(self.algebra.expand(expr))
        finally:
            del self._open[expr]
            touched, self._touched = self._touched, saved
        if found or touched >= depth:
            expr.alive = found
        else:
            self._touched = min(saved, touched)
        return found

    def _lives(self, value: Value) -> bool:
        if value.null or value.true or value.false or value.numbers:
            return True
        if value.strings.words is not regular.EMPTY or not regular.is_empty(self.spellable(value.strings.rest)):
            return True
        for array in value.arrays:
            if not array.low:
                return True
        for shape in value.objects:
            if not shape.required and not shape.some and not shape.low:
                return True
        for array in value.arrays:
            if self.arrays.start(array) is not None:
                return True
        return any(self.objects.start(shape) is not None for shape in value.objects)

    # --- counting --------------------------------------------------------------------------------------------------

    def values(self, expr: Expr, most: int, depth: int = 0) -> list[Json] | None:
        """All values that are meant, where there are at most ``most``; None where there are more."""
        if depth > 30:
            raise TooComplex("the values of a deeply nested schema cannot be counted")
        value = self.algebra.expand(expr)
        found: list[Json] = []
        if value.null:
            found.append(None)
        if value.true:
            found.append(True)
        if value.false:
            found.append(False)
        strings = self.spellable(self.algebra.texts.join(*value.strings))
        if regular.count_texts(strings, most + 1) > most:
            return None
        found.extend(regular.enumerate_texts(strings, most + 1))
        seen = set()
        for numbers_ in value.numbers:
            some = numbers.enumerate_values(numbers_, most)
            if some is None:
                return None
            seen.update(some)
        found.extend(("number", v) for v in sorted(seen))
        if len(found) > most:
            return None
        containers: set[Json] = set()
        for array in value.arrays:
            inner = self._values_of_array(array, most, depth + 1)
            if inner is None:
                return None
            containers |= inner
        for shape in value.objects:
            inner = self._values_of_object(shape, most, depth + 1)
            if inner is None:
                return None
            containers |= inner
        if len(found) + len(containers) > most:
            return None
        return [*found, *sorted(containers, key=repr)]

    def _values_of_array(self, array: ArrayShape, most: int, depth: int) -> set[Json] | None:
        if self.arrays.start(array) is None:
            return set()
        if array.counted or array.unique is not None:
            raise TooComplex("the values of an array with contains or uniqueItems cannot be counted")
        if array.high is None:
            if self.alive(array.items.rest) and all(self.alive(e) for e in array.items.prefix):
                return None
            highest = len(array.items.prefix)
        else:
            highest = array.high
        found: set[Json] = set()
        columns: list[list[Json]] = []
        for length in range(highest + 1):
            if length:
                column = self.values(array.items.at(length - 1), most, depth)
                if column is None:
                    if length <= array.low or self._reaches(array, length):
                        return None
                    break
                columns.append(column)
            if length >= array.low:
                total = 1
                for column in columns:
                    total *= len(column)
                if len(found) + total > most:
                    return None
                found.update(("array", items) for items in product(*columns))
            if columns and not columns[-1]:
                break
        return found

    def _reaches(self, array: ArrayShape, length: int) -> bool:
        return all(self.alive(array.items.at(i)) for i in range(length))

    def _values_of_object(self, shape: ObjectShape, most: int, depth: int) -> set[Json] | None:
        if self.objects.start(shape) is None:
            return set()
        if shape.some or shape.low or shape.high is not None:
            raise TooComplex("the values of an object with counted or violated members cannot be counted")
        names: dict[str, Expr] = dict(shape.every.names)
        for node, expr in shape.every.classes:
            if self.alive(expr):
                rest = self.spellable(regular.difference(node, regular.texts(shape.every.names)))
                if regular.count_texts(rest, most + 1) > most:
                    return None
                more = regular.enumerate_texts(rest, most + 1)
                names |= dict.fromkeys(more, expr)
        found: list[dict[str, Json]] = [{}]
        for name, expr in names.items():
            if not self.is_spellable(name):
                continue
            column = self.values(expr, most, depth)
            if column is None:
                return None
            following = [{**f, name: v} for f in found for v in column]
            found = following if name in shape.required else found + following
            if len(found) > most:
                return None
        return {("object", frozenset(f.items())) for f in found}
