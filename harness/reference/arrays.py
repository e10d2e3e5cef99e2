"""One array being read against one shape: what the next item must be, whether the array can end.

Counted items (``contains`` and what complements make of it) are followed by choosing, per item, which counts it adds
to. Where all items must differ, the values read are kept, the next item must be none of them, and it may take no value
that a later item cannot do without: that is a matching of positions to values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.reference.automaton import TooComplex
from harness.reference.terms import ArrayShape, Expr, Json

if TYPE_CHECKING:
    from harness.reference.life import Life

# Counted conditions on one array; partial arrays looked at to decide whether one can end; values in one matching.
COUNTED_BOUND = 6
SEARCH_BOUND = 20_000
MATCHING_BOUND = 400
MEMO_BOUND = 100_000


class ArrayAt(NamedTuple):
    """position: how many items were read, as it matters. counts: items that satisfied each counted map, as far as
    it matters. values: the items read, where two must differ or be equal; None where that does not matter (any more).
    """

    shape: ArrayShape
    position: int
    counts: tuple[int, ...]
    values: frozenset[Json] | None


class Arrays:
    def __init__(self, life: Life) -> None:
        self._life = life
        self._finishes: dict[ArrayAt, bool] = {}
        self._options: dict[tuple[Expr, ...], list[tuple[int, Expr]]] = {}

    # --- the protocol ----------------------------------------------------------------------------------------------

    def start(self, shape: ArrayShape) -> ArrayAt | None:
        """Before the first item; None where no array is of this shape."""
        if len(shape.counted) > COUNTED_BOUND:
            raise TooComplex(f"more than {COUNTED_BOUND} counted conditions on one array")
        if shape.unique is False and shape.counted:
            raise TooComplex("an array with two equal items and counted items")
        at = ArrayAt(shape, 0, (0,) * len(shape.counted), None if shape.unique is None else frozenset())
        return at if self.can_finish(at) else None

    def accepts(self, at: ArrayAt) -> bool:
        """Whether the array may end here."""
        return (
            at.position >= at.shape.low
            and (at.shape.unique is not False or at.values is None)
            and all(c >= least for c, (_, least, _) in zip(at.counts, at.shape.counted, strict=True))
        )

    def records(self, at: ArrayAt) -> bool:
        """Whether the value of the next item must be known when it ends."""
        return at.values is not None

    def with_value(self, at: ArrayAt, value: Json) -> ArrayAt:
        """What ``next`` gave, once the item's value is known."""
        return at if at.values is None else at._replace(values=at.values | {value})

    def next(self, at: ArrayAt) -> list[tuple[Expr, ArrayAt]]:
        """What the next item may be, and what the array is then; only what can still end."""
        shape = at.shape
        if shape.high is not None and at.position >= shape.high:
            return []
        if shape.unique is False and at.values is not None:
            return self._next_until_equal(at)
        found: dict[Expr, ArrayAt] = {}
        for mask, expr in self._choices(at):
            after = self._advanced(at, mask)
            if after is None:
                continue
            if at.values is not None:
                expr = self._differing(at, after, expr)
                if not self._life.alive(expr):
                    continue
            elif not self.can_finish(after):
                continue
            found.setdefault(expr, after)
        return list(found.items())

    def _choices(self, at: ArrayAt) -> list[tuple[int, Expr]]:
        """The next item's possibilities: which counts it adds to (bits), and what it must be for that."""
        shape = at.shape
        items = (shape.items.at(at.position), *(w.at(at.position) for w, _, _ in shape.counted))
        key = (*items, *self._bounded(shape))
        found = self._options.get(key)
        if found is None:
            algebra, life = self._life.algebra, self._life
            found = [(0, items[0])]
            for i, (_, _, most) in enumerate(shape.counted):
                wanted = items[i + 1]
                following = []
                for mask, expr in found:
                    following.append((mask | 1 << i, algebra.and_(expr, wanted)))
                    following.append((mask, expr if most is None else algebra.and_(expr, algebra.not_(wanted))))
                found = following
            found = [(mask, expr) for mask, expr in found if life.alive(expr)]
            if life.settled:
                self._options[key] = found
        return found

    def _bounded(self, shape: ArrayShape) -> tuple[Expr, ...]:
        """Which counts have an upper bound, as a part of a key: it decides what not adding to them asks."""
        life = self._life
        return tuple(life.algebra.true if most is None else life.algebra.false for _, _, most in shape.counted)

    def _advanced(self, at: ArrayAt, mask: int) -> ArrayAt | None:
        """One item on; None where a count went past its bound."""
        shape = at.shape
        counts = list(at.counts)
        for i, (_, least, most) in enumerate(shape.counted):
            if mask >> i & 1:
                counts[i] = min(counts[i] + 1, least) if most is None else counts[i] + 1
                if most is not None and counts[i] > most:
                    return None
        index = at.position + 1
        if shape.high is None:
            length = max(len(shape.items.prefix), *(len(w.prefix) for w, _, _ in shape.counted), shape.low)
            index = min(index, length)
        return at._replace(position=index, counts=tuple(counts))

    # --- whether it can end ----------------------------------------------------------------------------------------

    def can_finish(self, at: ArrayAt) -> bool:
        """Whether some further items make the array one of its shape."""
        found = self._finishes.get(at)
        if found is None:
            before = self._life.settled
            found = self._can_finish(at)
            if found or (before and self._life.settled):
                if len(self._finishes) > MEMO_BOUND:
                    self._finishes.clear()
                self._finishes[at] = found
        return found

    def _can_finish(self, at: ArrayAt) -> bool:
        shape = at.shape
        if shape.unique is False and at.values is not None:
            return self._can_equal(at)
        if self.accepts(at):
            return True
        if at.values is not None and not self._plenty(at):
            return self._search(at, matching=True)
        if shape.counted:
            return self._search(at, matching=False)
        return self._length_reachable(at, shape.low)

    def _length_reachable(self, at: ArrayAt, length: int) -> bool:
        """Whether every position up to ``length`` has a value."""
        items, alive = at.shape.items, self._life.alive
        fixed = min(length, len(items.prefix))
        if not all(alive(items.prefix[i]) for i in range(at.position, fixed)):
            return False
        return length <= max(fixed, at.position) or alive(items.rest)

    def _search(self, at: ArrayAt, *, matching: bool) -> bool:
        """Depth first over what further items add to the counts; with ``matching`` the items must differ, too."""
        start: tuple[ArrayAt, tuple[int, ...]] = (at, ())
        seen = {start}
        stack = [start]
        few: dict[int, tuple[Expr, list[Json]]] = {}
        while stack:
            here, used = stack.pop()
            if self.accepts(here):
                return True
            if here.shape.high is not None and here.position >= here.shape.high:
                continue
            for mask, expr in self._choices(here):
                after = self._advanced(here, mask)
                if after is None:
                    continue
                spent = used
                if matching:
                    values = self._few_values(at, expr)
                    if values is not None:
                        few[expr.id] = (expr, values)
                        spent = tuple(sorted((*used, expr.id)))
                        if not _matched([few[i][1] for i in spent]):
                            continue
                step = (after, spent)
                if step not in seen:
                    seen.add(step)
                    stack.append(step)
                    if len(seen) > SEARCH_BOUND:
                        raise TooComplex(f"whether an array can end needs more than {SEARCH_BOUND} partial arrays")
        return False

    # --- items that all differ -------------------------------------------------------------------------------------

    def _needed(self, at: ArrayAt) -> int:
        """At least so many values suffice for an item to differ from all others of a shortest array."""
        shape = at.shape
        return shape.low + sum(least for _, least, _ in shape.counted) + len(shape.items.prefix) + 1

    def _few_values(self, at: ArrayAt, expr: Expr) -> list[Json] | None:
        """The values of an item that were not read yet, where they are few."""
        read = at.values or frozenset()
        most = self._needed(at) + len(read)
        values = self._life.values(expr, most)
        if values is not None and len(values) > MATCHING_BOUND:
            raise TooComplex(f"items that differ, of more than {MATCHING_BOUND} values that matter")
        return None if values is None else [v for v in values if v not in read]

    def _plenty(self, at: ArrayAt) -> bool:
        """Whether values are no concern: nothing is counted and every mandatory item has many."""
        shape = at.shape
        if shape.counted:
            return False
        if at.position >= shape.low:
            return True
        later = {*shape.items.prefix[at.position : shape.low]}
        if shape.low > len(shape.items.prefix):
            later.add(shape.items.rest)
        if all(self._few_values(at, e) is None for e in later):
            return self._length_reachable(at, shape.low)
        return False

    def _critical(self, after: ArrayAt) -> set[Json]:
        """Values that a later item may depend on."""
        shape = after.shape
        if not shape.counted and after.position >= shape.low:
            return set()
        last = max(len(shape.items.prefix), *(len(w.prefix) for w, _, _ in shape.counted), 0) if shape.counted else max(
            min(len(shape.items.prefix), shape.low), 0
        )  # fmt: skip
        found: set[Json] = set()
        for index in range(after.position, max(last, after.position) + 1):
            for _, expr in self._choices(after._replace(position=index)):
                found.update(self._few_values(after, expr) or ())
        if len(found) > MATCHING_BOUND:
            raise TooComplex(f"items that differ, of more than {MATCHING_BOUND} values that matter")
        return found

    def _differing(self, at: ArrayAt, after: ArrayAt, expr: Expr) -> Expr:
        """The item, without the values read before and without those that later items cannot spare."""
        algebra = self._life.algebra
        read = at.values or frozenset()
        critical = self._critical(after) - read
        bad = {v for v in critical if not self.can_finish(self.with_value(after, v))}
        gone = read | bad
        fresh = algebra.and_(expr, algebra.not_(algebra.constants(_ordered(gone)))) if gone else expr
        if self.can_finish(after):
            return fresh
        # only values that make no difference are left out: those that later items depend on were tried one by one
        return algebra.and_(fresh, algebra.constants(_ordered(critical - bad)))

    # --- two equal items -------------------------------------------------------------------------------------------

    def _positions(self, at: ArrayAt) -> list[int]:
        """The positions to come that differ in what they ask, as far as an array can reach."""
        shape = at.shape
        found: list[int] = []
        index = at.position
        while shape.high is None or index < shape.high:
            if not self._life.alive(shape.items.at(index)):
                break
            found.append(index)
            if index > max(len(shape.items.prefix), at.position):
                break  # two places past the prefix stand for all
            index += 1
        if shape.low and not self._length_reachable(at, shape.low):
            return []
        return found

    def _can_equal(self, at: ArrayAt) -> bool:
        algebra, life, items = self._life.algebra, self._life, at.shape.items
        places = self._positions(at)
        read = algebra.constants(_ordered(at.values or frozenset()))
        for n, index in enumerate(places):
            expr = items.at(index)
            if life.alive(algebra.and_(expr, read)):
                return True
            if any(life.alive(algebra.and_(expr, items.at(other))) for other in places[n + 1 :]):
                return True
        return False

    def _next_until_equal(self, at: ArrayAt) -> list[tuple[Expr, ArrayAt]]:
        algebra, life, items = self._life.algebra, self._life, at.shape.items
        expr = items.at(at.position)
        after = self._advanced(at, 0)
        assert after is not None
        found: list[tuple[Expr, ArrayAt]] = []
        read = algebra.constants(_ordered(at.values or frozenset()))
        equal = algebra.and_(expr, read)
        done = after._replace(values=None)
        if life.alive(equal) and self.can_finish(done):
            found.append((equal, done))
        if not self.can_finish(after):
            # what was read finds no equal any more: this item itself must be met again
            later = [items.at(i) for i in self._positions(after)]
            expr = algebra.and_(expr, algebra.or_(*later))
        if life.alive(expr):
            found.append((expr, after))
        return found


def _ordered(values: frozenset[Json] | set[Json]) -> list[Json]:
    return sorted(values, key=repr)


def _matched(lists: list[list[Json]]) -> bool:
    """Whether every list can be given a value of its own, all different."""
    owner: dict[Json, int] = {}

    def place(i: int, tried: set[Json]) -> bool:
        for value in lists[i]:
            if value in tried:
                continue
            tried.add(value)
            if value not in owner or place(owner[value], tried):
                owner[value] = i
                return True
        return False

    return all(place(i, set()) for i in range(len(lists)))
