"""The vocabulary of the tree layer: expressions over schemas, and the simple shapes that they are expanded into.

An *expression* is a Boolean combination of schema places and values. A *value language* says, per JSON type, which
values are meant: a regular language of strings, a union of number sets, unions of array and object shapes. A shape
speaks of members only by expressions, so an expansion is one level deep.

Everything is hash-consed by the ``Algebra`` that makes it, and compares by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from harness.reference import regular
from harness.reference.numbers import NumberSet
from harness.reference.regular import Node

# A JSON value that compares by value: numbers and containers are tagged, so that 1, true and [1] differ.
Json = None | bool | str | tuple[str, Any]

Op = Literal["val", "loc", "and", "or", "not"]


class Expr:
    """An expression. ``val``: args = (Value,); ``loc``: (Place, scope); ``and``/``or``: expressions; ``not``: one."""

    __slots__ = ("alive", "args", "id", "op", "value")

    def __init__(self, op: Op, args: tuple[Any, ...], number: int) -> None:
        self.op = op
        self.args = args
        self.id = number
        self.value: Value | None = args[0] if op == "val" else None  # its expansion, once known
        self.alive: bool | None = None  # whether any value is meant, once known

    def __repr__(self) -> str:
        return f"<{self.op} {self.id}>"


class Strings(NamedTuple):
    """A language of decoded strings: ``words`` that a schema writes out (``enum``, ``const``) where the profile spells
    those in a way of their own, and all others. What is in ``rest`` may be spelled in any way and is no word."""

    rest: Node
    words: Node = regular.EMPTY


NO_STRINGS = Strings(regular.EMPTY)


class KeyMap:
    """Keys → expressions: ``names`` one by one; any other key by the class that it is in. The classes are disjoint and
    cover every text (names are looked up first)."""

    __slots__ = ("_found", "classes", "id", "names")

    def __init__(self, names: dict[str, Expr], classes: tuple[tuple[Node, Expr], ...], number: int) -> None:
        self.names = names
        self.classes = classes
        self.id = number
        self._found: dict[str, Expr] = {}

    def at(self, key: str) -> Expr:
        found = self.names.get(key)
        if found is None:
            found = self._found.get(key)
            if found is None:
                found = class_of(self.classes, key)
                if len(self._found) < 4096:
                    self._found[key] = found
        return found

    def expressions(self) -> set[Expr]:
        return {*self.names.values(), *(e for _, e in self.classes)}

    def __repr__(self) -> str:
        return f"<keys {self.names} {self.classes}>"


def class_of(classes: tuple[tuple[Node, Expr], ...], key: str) -> Expr:
    if len(classes) == 1:
        return classes[0][1]
    return next(e for node, e in classes if regular.matches(node, key))


class Debt:
    """What an object must show somewhere: some member satisfies ``wanted``, or one of the keys ``absent`` never comes.
    It is what the negation of an object schema comes to."""

    __slots__ = ("absent", "id", "wanted")

    def __init__(self, wanted: KeyMap, absent: frozenset[str], number: int) -> None:
        self.wanted = wanted
        self.absent = absent
        self.id = number

    def __repr__(self) -> str:
        return f"<some {self.wanted} or no {set(self.absent)}>"


class IndexMap:
    """Indexes → expressions: ``prefix`` one by one, then ``rest``."""

    __slots__ = ("id", "prefix", "rest")

    def __init__(self, prefix: tuple[Expr, ...], rest: Expr, number: int) -> None:
        self.prefix = prefix
        self.rest = rest
        self.id = number

    def at(self, index: int) -> Expr:
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def __repr__(self) -> str:
        return f"<items {self.prefix} {self.rest}>"


class ObjectShape:
    """Objects in which every member satisfies ``every``; the ``required`` keys occur; every debt of ``some`` is paid;
    the number of distinct keys is within ``low`` and ``high`` (None: no end).

    order: names in the order declared, where the profile asks for one. literals: names that a schema writes out, where
    the profile spells those in a way of their own.
    """

    __slots__ = ("every", "high", "id", "literals", "low", "order", "positions", "required", "some")

    def __init__(
        self,
        every: KeyMap,
        required: frozenset[str],
        some: frozenset[Debt],
        low: int,
        high: int | None,
        order: tuple[str, ...],
        literals: frozenset[str],
        number: int,
    ) -> None:
        self.every = every
        self.required = required
        self.some = some
        self.low = low
        self.high = high
        self.order = order
        self.literals = literals
        self.positions = {name: i for i, name in enumerate(order)}
        self.id = number

    def __repr__(self) -> str:
        return f"<object {self.every} required={set(self.required)} some={self.some} {self.low}…{self.high}>"


# How many items must satisfy a map: (map, least, most or None).
Counted = tuple[IndexMap, int, int | None]


class ArrayShape:
    """Arrays whose items satisfy ``items``, whose length is within ``low`` and ``high``, in which as many items satisfy
    each ``counted`` map as it says. unique: True: all items differ; False: some two are equal; None: either."""

    __slots__ = ("counted", "high", "id", "items", "low", "unique")

    def __init__(
        self,
        items: IndexMap,
        low: int,
        high: int | None,
        counted: tuple[Counted, ...],
        unique: bool | None,
        number: int,
    ) -> None:
        self.items = items
        self.low = low
        self.high = high
        self.counted = counted
        self.unique = unique
        self.id = number

    def __repr__(self) -> str:
        return f"<array {self.items} {self.low}…{self.high} {self.counted} unique={self.unique}>"


@dataclass(frozen=True, eq=False)
class Value:
    """A language of JSON values, per type. Interned: compare by identity."""

    null: bool
    true: bool
    false: bool
    strings: Strings
    numbers: tuple[NumberSet, ...]
    arrays: tuple[ArrayShape, ...]
    objects: tuple[ObjectShape, ...]


def canonical(value: Any) -> Json:
    """A parsed JSON value (numbers int, Fraction) in the form that compares by value."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | Fraction):
        return ("number", Fraction(value))
    if isinstance(value, list):
        return ("array", tuple(canonical(v) for v in value))
    return ("object", frozenset((k, canonical(v)) for k, v in value.items()))
