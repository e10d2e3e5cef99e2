"""``unevaluatedProperties`` and ``unevaluatedItems``: which members were looked at depends on which subschemas held.

A place is unfolded into *ways* to satisfy it, each with the keys and items that its subschemas look at; the
unevaluated keyword then binds all others. Looking at fewer members only ever asks more, so each way may claim less
than what really holds: the true set is among the ways, and no other way lets anything more in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.reference import regular
from harness.reference.automaton import TooComplex
from harness.reference.documents import Place
from harness.reference.keywords import Schemas, Scope
from harness.reference.regular import Node
from harness.reference.terms import Expr

WAYS_BOUND = 512


@dataclass(frozen=True)
class Way:
    """expr: what must hold. keys: the keys then evaluated. count: so many first items are (None: all). holding: items
    for which one of these holds are, too."""

    expr: Expr
    keys: Node = regular.EMPTY
    count: int | None = 0
    holding: frozenset[Expr] = frozenset()


def unfold_with_unevaluated(schemas: Schemas, place: Place, scope: Scope) -> Expr:
    return schemas.algebra.or_(*(way.expr for way in _Ways(schemas).of(place, scope)))


class _Ways:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._algebra = schemas.algebra
        self._open: set[tuple[int, Scope]] = set()

    def of(self, place: Place, scope: Scope) -> list[Way]:
        """The ways to satisfy a place."""
        from harness.reference.keywords import entered

        algebra = self._algebra
        if isinstance(place.schema, bool):
            return [Way(algebra.true)] if place.schema else []
        scope = entered(place.resource, scope)
        if not self._evaluates(place, scope, set()):
            return [Way(self._schemas.at(place, scope))]
        key = (id(place), scope)
        if key in self._open:
            return []  # in-place recursion: the least reading
        self._open.add(key)
        try:
            return self._distinct(self._with_own(place, scope, self._below(place, scope)))
        finally:
            self._open.discard(key)

    def _evaluates(self, place: Place, scope: Scope, seen: set[int]) -> bool:
        """Whether anything at a place, or in place below it, can look at members."""
        if isinstance(place.schema, bool) or id(place) in seen:
            return False
        seen.add(id(place))
        words = self._schemas.words(place)
        if _LOOKING & words.keys() or {"$dynamicRef", "$recursiveRef"} & words.keys():
            return True
        if "contains" in words and place.draft.number >= 2020:
            return True
        below = self._schemas.documents.below
        inner = [below(place, k) for k in ("if", "then", "else") if k in words]
        for keyword in ("allOf", "anyOf", "oneOf"):
            inner.extend(below(place, keyword, i) for i in range(len(words.get(keyword, ()))))
        inner.extend(p for _, p in self._schemas.dependent_schemas(place))
        inner.extend(p for p, _ in self._schemas.references(place, scope))
        return any(self._evaluates(p, scope, seen) for p in inner)

    def _below(self, place: Place, scope: Scope) -> list[Way]:
        """The ways by everything but the place's own unevaluated keywords."""
        schemas, a = self._schemas, self._algebra
        words, below = schemas.words(place), schemas.documents.below
        ways = [self._own(place, scope, words)]
        for target, entered in schemas.references(place, scope):
            ways = self._both(ways, self.of(target, entered))
        for i in range(len(words.get("allOf", ()))):
            ways = self._both(ways, self.of(below(place, "allOf", i), scope))
        if "anyOf" in words:
            members = [below(place, "anyOf", i) for i in range(len(words["anyOf"]))]
            ways = self._both(ways, self._any_of(members, scope))
        if "oneOf" in words:
            some: list[Way] = []
            members = [below(place, "oneOf", i) for i in range(len(words["oneOf"]))]
            for i, member in enumerate(members):
                others = a.and_(*(a.not_(schemas.at(m, scope)) for j, m in enumerate(members) if j != i))
                some.extend(self._both(self.of(member, scope), [Way(others)]))
            ways = self._both(ways, some)
        if "not" in words:
            ways = self._both(ways, [Way(a.not_(schemas.at(below(place, "not"), scope)))])
        if "if" in words:
            condition = below(place, "if")
            yes = self.of(condition, scope)
            no = [Way(a.not_(schemas.at(condition, scope)))]
            if "then" in words:
                yes = self._both(yes, self.of(below(place, "then"), scope))
            if "else" in words:
                no = self._both(no, self.of(below(place, "else"), scope))
            ways = self._both(ways, [*yes, *no])
        for name, inner in schemas.dependent_schemas(place):
            has = Way(schemas.only(objects=a.object(a.all_keys, required=frozenset((name,)))))
            is_object = a.val(a.value(objects=(a.any_object,)))
            held = self._both([Way(a.and_(has.expr, is_object))], self.of(inner, scope))
            ways = self._both(ways, [Way(schemas.without(name)), *held])
        return ways

    def _own(self, place: Place, scope: Scope, words: dict[str, Any]) -> Way:
        """What the place's keywords ask and look at that hold no schema for the same value."""
        schemas, a = self._schemas, self._algebra
        if "additionalProperties" in words:
            keys = regular.ANY
        else:
            patterns = [
                schemas.pattern(p, f"{place.pointer}/patternProperties", search=True)
                for p in words.get("patternProperties", ())
            ]
            keys = regular.union(a.texts.of(words.get("properties", ())), *patterns)
        count: int | None = 0
        modern = place.draft.number >= 2020
        prefix = words.get("prefixItems" if modern else "items")
        if isinstance(prefix, list):
            count = None if ("items" if modern else "additionalItems") in words else len(prefix)
        elif "items" in words:
            count = None
        holding: frozenset[Expr] = frozenset()
        if modern and "contains" in words:
            holding = frozenset((schemas.at(schemas.documents.below(place, "contains"), scope),))
        return Way(a.and_(*schemas.members(place, scope)), keys, count, holding)

    def _with_own(self, place: Place, scope: Scope, ways: list[Way]) -> list[Way]:
        """The place's own unevaluated keywords, each binding what a way did not look at."""
        schemas, a = self._schemas, self._algebra
        words, below = schemas.words(place), schemas.documents.below
        if "unevaluatedProperties" in words:
            rest = schemas.at(below(place, "unevaluatedProperties"), scope)
            bound = []
            for way in ways:
                parts = [(way.keys, a.true), (regular.complement(way.keys), rest)]
                keys = a.keys({}, a.merged(p for p in parts if not regular.is_empty(p[0])))
                expr = a.and_(way.expr, schemas.only(objects=a.object(keys)))
                bound.append(Way(expr, regular.ANY, way.count, way.holding))
            ways = bound
        if "unevaluatedItems" in words:
            rest = schemas.at(below(place, "unevaluatedItems"), scope)
            bound = []
            for way in ways:
                expr = way.expr
                if way.count is not None:
                    item = a.or_(rest, *sorted(way.holding, key=lambda e: e.id))
                    items = a.index((a.true,) * way.count, item)
                    expr = a.and_(expr, schemas.only(arrays=a.array(items)))
                bound.append(Way(expr, way.keys, None, frozenset()))
            ways = bound
        return ways

    def _any_of(self, members: list[Place], scope: Scope) -> list[Way]:
        """Some of the members that look at anything, or one that looks at nothing."""
        looking = [m for m in members if self._evaluates(m, scope, set())]
        plain = [self._schemas.at(m, scope) for m in members if m not in looking]
        ways = [Way(self._algebra.or_(*plain))] if plain else []
        if len(looking) > 9:
            raise TooComplex("unevaluated members under an anyOf of more than 9 schemas")
        for chosen in product((True, False), repeat=len(looking)):
            if any(chosen):
                some = [Way(self._algebra.true)]
                for member, taken in zip(looking, chosen, strict=True):
                    if taken:
                        some = self._both(some, self.of(member, scope))
                ways.extend(some)
        return self._distinct(ways)

    def _both(self, one: list[Way], other: list[Way]) -> list[Way]:
        return self._distinct(
            Way(
                self._algebra.and_(a.expr, b.expr),
                regular.union(a.keys, b.keys),
                None if a.count is None or b.count is None else max(a.count, b.count),
                a.holding | b.holding,
            )
            for a in one
            for b in other
        )

    def _distinct(self, ways: Iterable[Way]) -> list[Way]:
        found = [w for w in dict.fromkeys(ways) if w.expr is not self._algebra.false]
        if len(found) > WAYS_BOUND:
            raise TooComplex(f"more than {WAYS_BOUND} ways to evaluate members")
        return found


_LOOKING = frozenset(
    {
        "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems",
        "additionalItems", "unevaluatedItems",
    }
)  # fmt: skip
