"""Boolean operations on expressions, value languages and shapes. Exact; bounded by ``TooComplex``.

Conjunction of two shapes is a shape; the complement of one is a union of few: what every member must satisfy turns
into what some member must violate. ``A ∧ ¬B`` is made by *subtracting*: a shape that cannot meet a shape of B, or that
already excludes it, stays as it is; that keeps ``oneOf`` over tagged records small.

In-place recursion (a schema that leads back to itself without going into a member) takes the least reading; where it
leads back under a negation it has none and is refused. An expansion that rests on such an assumption is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from harness.errors import UnsupportedError
from harness.reference import numbers, regular
from harness.reference.automaton import TooComplex
from harness.reference.numbers import ALL_NUMBERS, NumberSet
from harness.reference.regular import Node
from harness.reference.scalars import NumberUnions, Texts
from harness.reference.terms import (
    NO_STRINGS,
    ArrayShape,
    Counted,
    Debt,
    Expr,
    IndexMap,
    Json,
    KeyMap,
    ObjectShape,
    Strings,
    Value,
    class_of,
)

# Alternatives of one type in one value language, and classes of keys in one object.
SHAPE_BOUND = 1_500
CLASS_BOUND = 300
_NO_TOUCH = 1 << 60


class Algebra:
    """Makes and combines terms. unfold: the expression that a schema's place stands for, one step on.

    repeats: whether a key may occur twice with both values counting (duplicate keys ``any``): then "some member under
    key k" says less than "the member under key k". ordered: whether the order in which a conjunction is written
    matters. apart: whether the strings that a schema writes out are spelled in a way of their own. digits, lexical: see
    ``scalars.NumberUnions``.
    """

    def __init__(
        self, unfold: Callable[[Expr], Expr], *, repeats: bool, ordered: bool, apart: bool, digits: bool, lexical: bool
    ) -> None:
        self._apart = apart
        self._ordered = ordered
        self._unfold = unfold
        self._repeats = repeats
        self._interned: dict[tuple[Any, ...], Any] = {}
        self.texts = Texts()
        self._numbers = NumberUnions(digits=digits, lexical=lexical)
        self._met: dict[tuple[int, int], Any] = {}
        self._open: dict[Expr, tuple[int, bool]] = {}
        self._positive = True
        self._touched = _NO_TOUCH
        self._serial = 0

        # The universal and the empty language of each type; built bottom-up because they contain each other.
        everything = Expr("val", (None,), self._number())
        nothing = Expr("val", (None,), self._number())
        self.true, self.false = everything, nothing
        self.all_keys = self.keys({}, ((regular.ANY, everything),))
        self.no_keys = self.keys({}, ((regular.ANY, nothing),))
        self.all_items = self.index((), everything)
        self.any_object = self._shape(self.all_keys, frozenset(), frozenset(), 0, None, (), frozenset())
        self.any_array = self._array(self.all_items, 0, None, (), None)
        self.anything = self.value(
            True, True, True, Strings(regular.ANY), (ALL_NUMBERS,), (self.any_array,), (self.any_object,)
        )
        self.nothing = self.value()
        for expr, value in ((everything, self.anything), (nothing, self.nothing)):
            expr.args, expr.value = (value,), value
            self._interned[("val", value)] = expr

    def _number(self) -> int:
        self._serial += 1
        return self._serial

    def _intern(self, key: tuple[Any, ...], make: Callable[[int], Any]) -> Any:
        found = self._interned.get(key)
        if found is None:
            found = self._interned.setdefault(key, make(self._number()))
        return found

    # --- making terms ----------------------------------------------------------------------------------------------

    def value(
        self,
        null: bool = False,
        true: bool = False,
        false: bool = False,
        strings: Strings = NO_STRINGS,
        nums: tuple[NumberSet, ...] = (),
        arrays: tuple[ArrayShape, ...] = (),
        objects: tuple[ObjectShape, ...] = (),
    ) -> Value:
        key = ("value", null, true, false, strings, nums, arrays, objects)
        found: Value = self._intern(key, lambda _: Value(null, true, false, strings, nums, arrays, objects))
        return found

    def val(self, value: Value) -> Expr:
        found: Expr = self._intern(("val", value), lambda n: Expr("val", (value,), n))
        return found

    def loc(self, place: Any, scope: Any) -> Expr:
        found: Expr = self._intern(("loc", id(place), scope), lambda n: Expr("loc", (place, scope), n))
        return found

    def keys(self, names: dict[str, Expr], classes: tuple[tuple[Node, Expr], ...]) -> KeyMap:
        kept = {k: e for k, e in names.items() if class_of(classes, k) is not e}
        key = ("keys", frozenset((k, e.id) for k, e in kept.items()), tuple((n.id, e.id) for n, e in classes))
        found: KeyMap = self._intern(key, lambda n: KeyMap(kept, classes, n))
        return found

    def index(self, prefix: tuple[Expr, ...], rest: Expr) -> IndexMap:
        while prefix and prefix[-1] is rest:
            prefix = prefix[:-1]
        found: IndexMap = self._intern(("index", prefix, rest), lambda n: IndexMap(prefix, rest, n))
        return found

    def _shape(
        self,
        every: KeyMap,
        required: frozenset[str],
        some: frozenset[Debt],
        low: int,
        high: int | None,
        order: tuple[str, ...],
        literals: frozenset[str],
    ) -> ObjectShape:
        key = ("object", every, required, some, low, high, order, literals)
        found: ObjectShape = self._intern(
            key, lambda n: ObjectShape(every, required, some, low, high, order, literals, n)
        )
        return found

    def _array(
        self, items: IndexMap, low: int, high: int | None, counted: tuple[Counted, ...], unique: bool | None
    ) -> ArrayShape:
        key = ("array", items, low, high, counted, unique)
        found: ArrayShape = self._intern(key, lambda n: ArrayShape(items, low, high, counted, unique, n))
        return found

    def debt(self, wanted: KeyMap, absent: frozenset[str] = frozenset()) -> Debt:
        found: Debt = self._intern(("debt", wanted, absent), lambda n: Debt(wanted, absent, n))
        return found

    def is_leaf(self, value: Value) -> bool:
        """Whether the language speaks of no member of any container."""
        return value.arrays in ((), (self.any_array,)) and value.objects in ((), (self.any_object,))

    def constant(self, value: Json) -> Expr:
        """The language of one value."""
        if value is None:
            return self.val(self.value(null=True))
        if isinstance(value, bool):
            return self.val(self.value(true=value, false=not value))
        if isinstance(value, str):
            return self.val(self.value(strings=self._written([value])))
        kind, inner = value
        if kind == "number":
            return self.val(self.value(nums=(numbers.exactly(inner),)))
        if kind == "array":
            items = self.index(tuple(self.constant(v) for v in inner), self.false)
            return self.val(self.value(arrays=self.array(items, len(inner), len(inner))))
        members = {k: self.constant(v) for k, v in inner}
        every = self.keys(members, ((regular.ANY, self.false),))
        return self.val(
            self.value(objects=self.object(every, required=frozenset(members), literals=self.written(members)))
        )

    def written(self, texts: Iterable[str]) -> frozenset[str]:
        """Those of the texts that a schema writes out that are spelled in a way of their own: all, or none. A text with
        a lone surrogate is spelled like any other: it has no minimal spelling."""
        return frozenset(t for t in texts if self._apart and not any("\ud800" <= c <= "\udfff" for c in t))

    def _written(self, texts: Iterable[str]) -> Strings:
        known = frozenset(texts)
        apart = self.written(known)
        return Strings(self.texts.of(known - apart), self.texts.of(apart))

    def constants(self, values: Iterable[Json]) -> Expr:
        """The language of some values."""
        texts, found, others = [], set(), []
        null = true = false = False
        for value in values:
            if value is None:
                null = True
            elif isinstance(value, bool):
                true, false = true or value, false or not value
            elif isinstance(value, str):
                texts.append(value)
            elif value[0] == "number":
                found.add(value[1])
            else:
                others.append(self.constant(value))
        points = tuple(numbers.exactly(v) for v in sorted(found))
        return self.or_(self.val(self.value(null, true, false, self._written(texts), points)), *others)

    # --- expressions -----------------------------------------------------------------------------------------------

    def and_(self, *parts: Expr) -> Expr:
        flat: dict[int, Expr] = {}
        values: Value | None = None
        stack = list(reversed(parts))
        while stack:
            part = stack.pop()
            if part.op == "and":
                stack.extend(reversed(part.args))
            elif part.op == "val":
                value = part.args[0]
                if value is self.anything:
                    continue
                if value is self.nothing:
                    return self.false
                if values is None:
                    values = value
                elif self.is_leaf(value) or self.is_leaf(values):
                    values = self.meet(values, value)
                else:
                    flat[part.id] = part
            else:
                flat[part.id] = part
        if values is not None and values is not self.anything:
            if values is self.nothing:
                return self.false
            one = self.val(values)
            flat[one.id] = one
        for part in flat.values():
            if part.op == "not" and part.args[0].id in flat:
                return self.false
        if not flat:
            return self.true
        if len(flat) == 1:
            return next(iter(flat.values()))
        # In the order written, where the order of declared keys follows it.
        members = tuple(flat.values()) if self._ordered else tuple(flat[i] for i in sorted(flat))
        found: Expr = self._intern(("and", tuple(m.id for m in members)), lambda n: Expr("and", members, n))
        return found

    def or_(self, *parts: Expr) -> Expr:
        flat: dict[int, Expr] = {}
        values: Value | None = None
        stack = list(reversed(parts))
        while stack:
            part = stack.pop()
            if part is self.true:
                return self.true
            if part is self.false:
                continue
            if part.op == "or":
                stack.extend(reversed(part.args))
            elif part.op == "val":
                values = part.args[0] if values is None else self.join(values, part.args[0])
            else:
                flat[part.id] = part
        if values is self.anything:
            return self.true
        if values is not None and values is not self.nothing:
            one = self.val(values)
            flat[one.id] = one
        for part in flat.values():
            if part.op == "not" and part.args[0].id in flat:
                return self.true
        if not flat:
            return self.false
        if len(flat) == 1:
            return next(iter(flat.values()))
        members = tuple(flat[i] for i in sorted(flat))
        found: Expr = self._intern(("or", tuple(m.id for m in members)), lambda n: Expr("or", members, n))
        return found

    def not_(self, one: Expr) -> Expr:
        if one.op == "not":
            inner: Expr = one.args[0]
            return inner
        if one.op == "val" and self.is_leaf(one.args[0]):
            return self.val(self.subtract(self.anything, one.args[0]))
        if one.op == "or":
            return self.and_(*(self.not_(a) for a in one.args))
        found: Expr = self._intern(("not", one.id), lambda n: Expr("not", (one,), n))
        return found

    # --- expansion -------------------------------------------------------------------------------------------------

    def expand(self, expr: Expr) -> Value:
        """The value language of an expression, one level deep."""
        if expr.value is not None:
            return expr.value
        saved, self._touched = self._touched, _NO_TOUCH
        try:
            depth = len(self._open)
            value = self._expand(expr)
            if self._touched >= depth:
                expr.value = value
                self._touched = _NO_TOUCH
        finally:
            self._touched = min(saved, self._touched)
        return value

    def expand_apart(self, expr: Expr) -> Value | None:
        """``expand`` for a question about another instance than the one at hand (a key, where an object is); None where
        the answer leads back to a schema that is being expanded: the least reading is for the same instance only."""
        saved, self._touched = self._touched, _NO_TOUCH
        try:
            value = self.expand(expr)
            return value if self._touched == _NO_TOUCH else None
        finally:
            self._touched = saved

    def _expand(self, expr: Expr) -> Value:
        if expr.op == "loc":
            entered = self._open.get(expr)
            if entered is not None:
                depth, positive = entered
                if positive != self._positive:
                    place = expr.args[0]
                    raise UnsupportedError(
                        "ill-founded: the schema is its own negation", keyword="$ref", pointer=place.pointer
                    )
                self._touched = min(self._touched, depth)
                return self.nothing
            self._open[expr] = (len(self._open), self._positive)
            try:
                return self.expand(self._unfold(expr))
            finally:
                del self._open[expr]
        if expr.op == "or":
            value = self.nothing
            for part in expr.args:
                value = self.join(value, self.expand(part))
            return value
        if expr.op == "not":
            return self.subtract(self.anything, self._expand_negated(expr.args[0]))
        value = self.anything
        for part in expr.args:
            if part.op != "not":
                value = self.meet(value, self.expand(part))
        for part in expr.args:
            if part.op == "not" and value is not self.nothing:
                value = self.subtract(value, self._expand_negated(part.args[0]))
        return value

    def _expand_negated(self, expr: Expr) -> Value:
        self._positive = not self._positive
        try:
            return self.expand(expr)
        finally:
            self._positive = not self._positive

    # --- value languages -------------------------------------------------------------------------------------------

    def meet(self, one: Value, other: Value) -> Value:
        if one is other or other is self.anything:
            return one
        if one is self.anything:
            return other
        return self.value(
            one.null and other.null,
            one.true and other.true,
            one.false and other.false,
            self.texts.meet_strings(one.strings, other.strings),
            self._numbers.meet(one.numbers, other.numbers),
            self._product(one.arrays, other.arrays, self.any_array, self.meet_arrays),
            self._product(one.objects, other.objects, self.any_object, self.meet_objects),
        )

    def join(self, one: Value, other: Value) -> Value:
        if one is other or other is self.nothing:
            return one
        if one is self.nothing:
            return other
        return self.value(
            one.null or other.null,
            one.true or other.true,
            one.false or other.false,
            self.texts.join_strings(one.strings, other.strings),
            self._numbers.join(one.numbers, other.numbers),
            self._absorbed([*one.arrays, *other.arrays], self.any_array, self.meet_arrays),
            self._absorbed([*one.objects, *other.objects], self.any_object, self.meet_objects),
        )

    def subtract(self, one: Value, other: Value) -> Value:
        """What is in ``one`` and not in ``other``."""
        return self.value(
            one.null and not other.null,
            one.true and not other.true,
            one.false and not other.false,
            self.texts.subtract_strings(one.strings, other.strings),
            self._numbers.subtract(one.numbers, other.numbers),
            self._subtract_shapes(one.arrays, other.arrays, self.any_array, self.meet_arrays, self._not_array),
            self._subtract_shapes(one.objects, other.objects, self.any_object, self.meet_objects, self._not_object),
        )

    # --- unions of shapes ------------------------------------------------------------------------------------------

    def _product(self, one: Any, other: Any, everything: Any, meet: Callable[[Any, Any], Any]) -> Any:
        if not one or not other:
            return ()
        if one == (everything,):
            return other
        if other == (everything,):
            return one
        shapes = [m for a in one for b in other if (m := meet(a, b)) is not None]
        return self._absorbed(shapes, everything, meet)

    def _subtract_shapes(
        self,
        one: Any,
        other: Any,
        everything: Any,
        meet: Callable[[Any, Any], Any],
        complement: Callable[[Any], Iterable[Any]],
    ) -> Any:
        if not one or not other:
            return one
        done = []
        for shape in one:
            left = [shape]
            for removed in other:
                following = []
                for at in left:
                    if meet(at, removed) is None:
                        following.append(at)
                        continue
                    parts = []
                    for part in complement(removed):
                        met = meet(at, part)
                        if met is at:
                            parts = [at]
                            break
                        if met is not None:
                            parts.append(met)
                    following.extend(parts)
                left = list(self._absorbed(following, everything, meet))
            done.extend(left)
        return self._absorbed(done, everything, meet)

    def _absorbed(self, shapes: list[Any], everything: Any, meet: Callable[[Any, Any], Any]) -> Any:
        """Without repeats, and without shapes that lie in another."""
        distinct = list(dict.fromkeys(shapes))
        if everything in distinct:
            return (everything,)
        if len(distinct) > SHAPE_BOUND:
            raise TooComplex(f"more than {SHAPE_BOUND} alternatives for one value")
        if 1 < len(distinct) <= 32:
            kept: list[Any] = []
            for i, shape in enumerate(distinct):
                # of two that lie in each other, the first goes and the second stays
                rivals = [*kept, *distinct[i + 1 :]]
                if not any(_may_absorb(shape, other) and meet(shape, other) is shape for other in rivals):
                    kept.append(shape)
            distinct = kept
        return tuple(distinct)

    # --- objects ---------------------------------------------------------------------------------------------------

    def object(
        self,
        every: KeyMap,
        *,
        required: frozenset[str] = frozenset(),
        some: Iterable[Debt] = (),
        low: int = 0,
        high: int | None = None,
        order: tuple[str, ...] = (),
        literals: frozenset[str] = frozenset(),
    ) -> tuple[ObjectShape, ...]:
        """A union of at most one shape, in normal form; none where it is plainly empty."""
        shape = self._normal_object(every, required, frozenset(some), low, high, order, literals)
        return () if shape is None else (shape,)

    def _normal_object(
        self,
        every: KeyMap,
        required: frozenset[str],
        some: frozenset[Debt],
        low: int,
        high: int | None,
        order: tuple[str, ...],
        literals: frozenset[str],
    ) -> ObjectShape | None:
        while some:
            before = (every, required)
            kept: set[Debt] = set()
            for debt in some:
                wanted, absent = self.meet_keys(every, debt.wanted), debt.absent - required
                if any(every.at(r) is self.false for r in absent):
                    continue  # that key cannot come
                if any(wanted.at(r) is every.at(r) for r in required):
                    continue  # that key must come, and pays
                if wanted is every:
                    if not absent:
                        low = max(low, 1)
                    continue  # any member pays, and without members the key is absent
                if wanted is self.no_keys:
                    if not absent:
                        return None
                    if len(absent) == 1:
                        every = self._with_name(every, next(iter(absent)), self.false)
                        continue
                only = self._only_name(wanted)
                if only is not None and not self._repeats and absent <= {only}:
                    # only this key can pay: it comes and does, or it is the one that may be absent
                    every = self._with_name(every, only, wanted.at(only))
                    if not absent:
                        required |= {only}
                    continue
                kept.add(self.debt(wanted, absent))
            # who pays the narrower debt pays the wider one
            some = frozenset(d for d in kept if not any(o is not d and self._narrower(o, d) for o in kept))
            if before == (every, required):
                break
        if any(every.at(r) is self.false for r in required):
            return None
        if low <= len(required):
            low = 0
        if high is not None:
            if high < max(len(required), low) or (high == 0 and some):
                return None
            if high == 0:
                every, high = self.no_keys, None
        if all(e is self.false for _, e in every.classes):
            possible = sum(1 for e in every.names.values() if e is not self.false)
            if possible < low:
                return None
            if high is not None and high >= possible:
                high = None
        return self._shape(every, required, some, low, high, order, literals)

    def _narrower(self, one: Debt, other: Debt) -> bool:
        return one.absent <= other.absent and self.meet_keys(one.wanted, other.wanted) is one.wanted

    def _only_name(self, wanted: KeyMap) -> str | None:
        if any(e is not self.false for _, e in wanted.classes):
            return None
        names = [k for k, e in wanted.names.items() if e is not self.false]
        return names[0] if len(names) == 1 else None

    def _with_name(self, keys: KeyMap, name: str, expr: Expr) -> KeyMap:
        return self.keys({**keys.names, name: expr}, keys.classes)

    def meet_keys(self, one: KeyMap, other: KeyMap) -> KeyMap:
        if one is other or other is self.all_keys:
            return one
        if one is self.all_keys:
            return other
        key = (one.id, other.id)
        found: KeyMap | None = self._met.get(key)
        if found is None:
            names = {
                k: self.and_(one.at(k), other.at(k))
                for k in [*one.names, *(n for n in other.names if n not in one.names)]
            }
            found = self._met[key] = self.keys(names, self.cross(one.classes, other.classes))
        return found

    def cross(
        self, one: tuple[tuple[Node, Expr], ...], other: tuple[tuple[Node, Expr], ...]
    ) -> tuple[tuple[Node, Expr], ...]:
        """The common refinement of two partitions of the keys, each part with both expressions."""
        if len(other) == 1:
            return self.merged((n, self.and_(e, other[0][1])) for n, e in one)
        if len(one) == 1:
            return self.merged((n, self.and_(one[0][1], e)) for n, e in other)
        parts = []
        for a, e in one:
            for b, f in other:
                node = a if a is b else regular.intersection(a, b)
                if not regular.is_empty(node):
                    parts.append((node, self.and_(e, f)))
        return self.merged(parts)

    def merged(self, parts: Iterable[tuple[Node, Expr]]) -> tuple[tuple[Node, Expr], ...]:
        """Parts with the same expression are one part."""
        by_expr: dict[Expr, list[Node]] = {}
        for node, expr in parts:
            by_expr.setdefault(expr, []).append(node)
        if len(by_expr) == 1:
            return ((regular.ANY, next(iter(by_expr))),)
        if len(by_expr) > CLASS_BOUND:
            raise TooComplex(f"more than {CLASS_BOUND} kinds of keys in one object")
        return tuple((regular.union(*by_expr[e]), e) for e in sorted(by_expr, key=lambda e: e.id))

    def not_keys(self, keys: KeyMap) -> KeyMap:
        return self.keys(
            {k: self.not_(e) for k, e in keys.names.items()}, self.merged((n, self.not_(e)) for n, e in keys.classes)
        )

    def meet_objects(self, one: ObjectShape, other: ObjectShape) -> ObjectShape | None:
        if one is other or other is self.any_object:
            return one
        if one is self.any_object:
            return other
        key = (one.id, other.id)
        if key not in self._met:
            highs = [h for h in (one.high, other.high) if h is not None]
            order = one.order + tuple(n for n in other.order if n not in one.positions)
            self._met[key] = self._normal_object(
                self.meet_keys(one.every, other.every),
                one.required | other.required,
                one.some | other.some,
                max(one.low, other.low),
                min(highs, default=None),
                order,
                one.literals | other.literals,
            )
        found: ObjectShape | None = self._met[key]
        return found

    def _not_object(self, shape: ObjectShape) -> Iterable[ObjectShape]:
        if shape.every is not self.all_keys or shape.required:
            yield from self.object(self.all_keys, some=[self.debt(self.not_keys(shape.every), shape.required)])
        for debt in sorted(shape.some, key=lambda d: d.id):
            yield from self.object(self.not_keys(debt.wanted), required=debt.absent)
        if shape.low:
            yield from self.object(self.all_keys, high=shape.low - 1)
        if shape.high is not None:
            yield from self.object(self.all_keys, low=shape.high + 1)

    # --- arrays ----------------------------------------------------------------------------------------------------

    def array(
        self,
        items: IndexMap,
        low: int = 0,
        high: int | None = None,
        *,
        counted: Iterable[Counted] = (),
        unique: bool | None = None,
    ) -> tuple[ArrayShape, ...]:
        """A union of at most one shape, in normal form; none where it is plainly empty."""
        shape = self._normal_array(items, low, high, list(counted), unique)
        return () if shape is None else (shape,)

    def _normal_array(
        self, items: IndexMap, low: int, high: int | None, counted: list[Counted], unique: bool | None
    ) -> ArrayShape | None:
        kept: dict[IndexMap, tuple[int, int | None]] = {}
        for wanted, _, most in counted:
            if most == 0:
                items = self.meet_items(items, self._not_items(wanted))
        for wanted, least, most in counted:
            wanted = self.meet_items(wanted, items)
            if least == 0 and most is None:
                continue
            if wanted.rest is self.false and all(e is self.false for e in wanted.prefix):
                if least > 0:
                    return None
            elif wanted is items:
                low, high = max(low, least), _least(high, most)
            else:
                if wanted in kept:
                    least, most = max(least, kept[wanted][0]), _least(most, kept[wanted][1])
                if most is not None and least > most:
                    return None
                kept[wanted] = (least, most)
        prefix, rest = items.prefix, items.rest
        for i, e in enumerate(prefix):
            if e is self.false:
                high = _least(high, i)
                break
        if rest is self.false:
            high = _least(high, len(prefix))
        if high is not None:
            prefix = prefix[:high]
            if high <= len(prefix):
                rest = self.false
        low = max([low, *(least for least, _ in kept.values())])
        if unique is False:
            low = max(low, 2)
        if high is not None and high < low:
            return None
        if unique is True and high is not None and high <= 1:
            unique = None
        final = tuple((w, *kept[w]) for w in sorted(kept, key=lambda w: w.id))
        return self._array(self.index(prefix, rest), low, high, final, unique)

    def meet_items(self, one: IndexMap, other: IndexMap) -> IndexMap:
        if one is other or other is self.all_items:
            return one
        if one is self.all_items:
            return other
        length = max(len(one.prefix), len(other.prefix))
        return self.index(
            tuple(self.and_(one.at(i), other.at(i)) for i in range(length)), self.and_(one.rest, other.rest)
        )

    def _not_items(self, items: IndexMap) -> IndexMap:
        return self.index(tuple(self.not_(e) for e in items.prefix), self.not_(items.rest))

    def meet_arrays(self, one: ArrayShape, other: ArrayShape) -> ArrayShape | None:
        if one is other or other is self.any_array:
            return one
        if one is self.any_array:
            return other
        if one.unique is not None and other.unique is not None and one.unique != other.unique:
            return None
        key = (one.id, other.id)
        if key not in self._met:
            self._met[key] = self._normal_array(
                self.meet_items(one.items, other.items),
                max(one.low, other.low),
                _least(one.high, other.high),
                [*one.counted, *other.counted],
                one.unique if one.unique is not None else other.unique,
            )
        found: ArrayShape | None = self._met[key]
        return found

    def _not_array(self, shape: ArrayShape) -> Iterable[ArrayShape]:
        if shape.items is not self.all_items:
            yield from self.array(self.all_items, counted=[(self._not_items(shape.items), 1, None)])
        if shape.low:
            yield from self.array(self.all_items, 0, shape.low - 1)
        if shape.high is not None:
            yield from self.array(self.all_items, shape.high + 1)
        for wanted, least, most in shape.counted:
            if least:
                yield from self.array(self.all_items, counted=[(wanted, 0, least - 1)])
            if most is not None:
                yield from self.array(self.all_items, counted=[(wanted, most + 1, None)])
        if shape.unique is not None:
            yield from self.array(self.all_items, unique=not shape.unique)


def _may_absorb(shape: Any, other: Any) -> bool:
    """Whether ``other`` asks for no other order of keys, and no other spelling, than ``shape`` does."""
    return isinstance(shape, ArrayShape) or (other.order in ((), shape.order) and other.literals <= shape.literals)


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
