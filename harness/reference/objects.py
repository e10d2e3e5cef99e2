"""One object being read against one shape: which keys may come next, what their values must be, whether it can end.

Keys matter by their decoded text. What is kept of the past is only what the future needs: the keys seen where they
may not come again or are counted, the required keys still missing, the debts ("some member …") still owed.

Whether an object can still end is a question about *sets* of keys: the missing ones must come, every debt
needs a member that pays it or a key that stays away, and the number of distinct keys must come out within its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import regular
from harness.reference.automaton import TooComplex
from harness.reference.regular import Node
from harness.reference.terms import Debt, Expr, KeyMap, ObjectShape, Strings

if TYPE_CHECKING:
    from harness.reference.life import Life

# Debts of one object, outcomes of one value, plans tried, answers kept.
OWED_BOUND = 12
OUTCOMES_BOUND = 200
PLANS_BOUND = 500
# Up to so many names the keys that may still come are written out; beyond, those that came are taken away.
FEW_NAMES = 64
MEMO_BOUND = 100_000
# More texts than any object has keys.
ENDLESS = 1 << 62


class ObjectAt(NamedTuple):
    """seen: keys read (empty where they do not matter). missing: required keys to come. owed: debts to be paid.
    last: the position of the last declared key (``declared``), or the last key (``sorted``). bad: keys whose last value
    will not do (``last_wins``). held: (key, what a debt wants) that its last value meets for now (``last_wins``)."""

    shape: ObjectShape
    seen: frozenset[str]
    missing: frozenset[str]
    owed: frozenset[Debt]
    last: int | str | None
    bad: frozenset[str] = frozenset()
    held: frozenset[tuple[str, KeyMap]] = frozenset()


class Objects:
    def __init__(self, life: Life, profile: Profile) -> None:
        self._life = life
        self._duplicates = profile.duplicate_keys
        self._order = profile.key_order
        self._finishes: dict[tuple[ObjectAt, int], bool] = {}
        self._named: dict[tuple[ObjectShape, frozenset[Debt]], set[str] | None] = {}
        self._nodes: dict[ObjectAt, Node] = {}
        self._spelled_keys: dict[ObjectAt, Strings] = {}
        self._outcomes_known: dict[tuple[Expr, tuple[Expr, ...]], list[tuple[Expr, int]]] = {}
        self._free: dict[tuple[frozenset[str], Node, frozenset[str]], Node] = {}
        self._bases: dict[ObjectShape, tuple[frozenset[str], Node]] = {}

    # --- the protocol ----------------------------------------------------------------------------------------------

    def start(self, shape: ObjectShape) -> ObjectAt | None:
        """Before the first key; None where no object is of this shape."""
        if self._order == "sorted" and (shape.some or shape.low > len(shape.required)):
            raise UnsupportedError("key_order 'sorted' with minProperties or with members that must violate a schema")
        if len(shape.some) > OWED_BOUND:
            raise TooComplex(f"more than {OWED_BOUND} members must violate a schema each")
        first: int | str | None = 0 if self._order == "declared" else None
        at = ObjectAt(shape, frozenset(), shape.required, shape.some, first)
        return at if self.can_finish(at) else None

    def accepts(self, at: ObjectAt) -> bool:
        """Whether the object may end here."""
        if at.missing or at.bad or len(at.seen) < at.shape.low:
            return False
        held = {wanted for _, wanted in at.held}
        return all(debt.absent or debt.wanted in held for debt in at.owed)

    def after(self, at: ObjectAt, key: str) -> list[tuple[Expr, ObjectAt]]:
        """What the value of ``key`` may be, and what the object is then; only what can still end."""
        if not self._usable(at, key):
            return []
        shape, algebra = at.shape, self._life.algebra
        expr = shape.every.at(key)
        then = self._with_key(at, key)
        wanted = [d for d in sorted(then.owed, key=lambda d: d.id) if d.wanted.at(key) is not algebra.false]
        if self._duplicates == "last_wins" and self._repeatable(at, key):
            return self._after_revocable(then, key, expr, wanted)
        found = []
        for value, met in self._outcomes(expr, tuple(d.wanted.at(key) for d in wanted)):
            paid = {w for i, w in enumerate(wanted) if met >> i & 1}
            reached = then._replace(owed=then.owed - paid) if paid else then
            if self.can_finish(reached):
                found.append((value, reached))
        return found

    def is_plain(self, at: ObjectAt) -> bool:
        """Whether the value of a key that may come next is just what the shape says of the key: no debt can be paid."""
        return self._duplicates != "last_wins" and not at.owed

    def _allows(self, at: ObjectAt, key: str) -> bool:
        """Whether ``key`` can come next."""
        if not self._usable(at, key):
            return False
        # what pays nothing leaves the most to pay
        if (
            self._duplicates != "last_wins"
            and self._life.alive(at.shape.every.at(key))
            and self.can_finish(self._with_key(at, key))
        ):
            return True
        return bool(self.after(at, key))

    def _after_revocable(self, then: ObjectAt, key: str, expr: Expr, wanted: list[Debt]) -> list[tuple[Expr, ObjectAt]]:
        """The value may be replaced by a later one of the same key: each outcome is followed apart."""
        algebra = self._life.algebra
        held = frozenset((k, w) for k, w in then.held if k != key)
        bad = then.bad - {key}
        outcomes = [(algebra.not_(expr), then._replace(held=held, bad=bad | {key}))]
        for value, met in self._outcomes(expr, tuple(d.wanted.at(key) for d in wanted)):
            now = {(key, d.wanted) for i, d in enumerate(wanted) if met >> i & 1}
            outcomes.append((value, then._replace(held=held | now, bad=bad)))
        return [(value, now) for value, now in outcomes if self._life.alive(value) and self.can_finish(now)]

    def _outcomes(self, expr: Expr, asked: tuple[Expr, ...]) -> list[tuple[Expr, int]]:
        """The values of an expression by which of what is ``asked`` they meet (as bits); only what has a value."""
        if not asked:
            return [(expr, 0)] if self._life.alive(expr) else []
        key = (expr, asked)
        found = self._outcomes_known.get(key)
        if found is None:
            algebra, alive = self._life.algebra, self._life.alive
            found = [(expr, 0)] if alive(expr) else []
            for i, one in enumerate(asked):
                following = []
                for value, met in found:
                    yes = algebra.and_(value, one)
                    if not alive(yes):
                        following.append((value, met))
                        continue
                    # what the value satisfies already need not be denied
                    rest = [p for p in _parts(one) if p not in _parts(value)]
                    no = algebra.and_(value, algebra.not_(algebra.and_(*rest)))
                    if alive(no):
                        following += [(yes, met | 1 << i), (no, met)]
                    else:
                        following.append((value, met | 1 << i))
                found = following
                if len(found) > OUTCOMES_BOUND:
                    raise TooComplex(f"a value with more than {OUTCOMES_BOUND} outcomes for what it must violate")
            if self._life.settled:
                if len(self._outcomes_known) > MEMO_BOUND:
                    self._outcomes_known.clear()
                self._outcomes_known[key] = found
        return found

    def keys(self, at: ObjectAt) -> Node:
        """The language of the keys that may come next."""
        found = self._nodes.get(at)
        if found is None:
            found = self._life.spellable(self._next_keys(at))
            if len(self._nodes) > MEMO_BOUND:
                self._nodes.clear()
            self._nodes[at] = found
        return found

    def keys_by_spelling(self, at: ObjectAt) -> Strings:
        """The same, with the names that a schema writes out apart."""
        literals = at.shape.literals
        if not literals:
            return Strings(self.keys(at))
        found = self._spelled_keys.get(at)
        if found is None:
            node, texts = self.keys(at), self._life.algebra.texts
            words = texts.of(name for name in literals if regular.matches(node, name))
            if len(self._spelled_keys) > MEMO_BOUND:
                self._spelled_keys.clear()
            found = self._spelled_keys[at] = Strings(regular.difference(node, words), words)
        return found

    # --- keys ------------------------------------------------------------------------------------------------------

    def _with_key(self, at: ObjectAt, key: str) -> ObjectAt:
        shape = at.shape
        seen = at.seen
        if (
            self._duplicates == "forbidden"
            or shape.high is not None
            or len(seen) < shape.low
            or self._order == "sorted"
        ) or (self._duplicates == "last_wins" and shape.some):
            seen = seen | {key}
        last = at.last
        if self._order == "declared":
            last = shape.positions[key] + 1 if key in shape.positions else len(shape.order)
        elif self._order == "sorted":
            last, seen = key, (seen if shape.high is not None else frozenset())
        owed = at.owed
        if any(key in d.absent for d in owed):
            owed = frozenset(self._life.algebra.debt(d.wanted, d.absent - {key}) for d in owed)
        return at._replace(seen=seen, missing=at.missing - {key}, owed=owed, last=last)

    def _repeatable(self, at: ObjectAt, key: str) -> bool:
        """Whether a key may come again later."""
        if self._duplicates == "forbidden":
            return False
        return not (self._order == "declared" and key in at.shape.positions)

    def _usable(self, at: ObjectAt, key: str) -> bool:
        """Whether the order and the rule on repeats let a key come next, or later."""
        if not self._life.is_spellable(key):
            return False
        if self._duplicates == "forbidden" and key in at.seen:
            return False
        if self._order == "declared" and at.last is not None:
            position = at.shape.positions.get(key)
            return position is None or position >= at.last  # type: ignore[operator]
        if self._order == "sorted" and at.last is not None:
            return key > at.last or (key == at.last and self._duplicates != "forbidden")  # type: ignore[operator]
        return True

    def _classes(self, at: ObjectAt, names: set[str]) -> Iterator[tuple[Node, Expr]]:
        """The classes of keys that have a value, without ``names`` and without keys that cannot come."""
        gone = names if self._duplicates != "forbidden" else names | at.seen
        for node, expr in at.shape.every.classes:
            if self._life.alive(expr):
                rest = self._life.spellable(node)
                if gone:
                    rest = regular.difference(rest, regular.texts(gone))
                if self._order == "sorted" and isinstance(at.last, str):
                    rest = regular.intersection(rest, _after_text(at.last, equal=self._duplicates != "forbidden"))
                if not regular.is_empty(rest):
                    yield rest, expr

    def _next_keys(self, at: ObjectAt) -> Node:
        shape = at.shape
        spare = None if shape.high is None else shape.high - len(at.seen) - len(at.missing)
        # Where the number of keys leaves room, every key that has a value can come: the object can end now, so there
        # is a plan which keys pay what is owed; a key outside the plan does not disturb it, one of the plan is part of
        # it. Not so for a key that had better stay away, or that closes the way to earlier ones.
        if spare is not None and spare <= len(at.owed):
            return self._tried_keys(at)
        if self._order == "any" or not (at.owed or shape.low > len(at.seen)):
            away = {name for debt in at.owed for name in debt.absent}
            node = self._free_keys(at)
            refused = [n for n in away if regular.matches(node, n) and not self._allows(at, n)]
            return regular.difference(node, regular.texts(refused)) if refused else node
        return self._tried_keys(at)

    def _unordered_keys(self, at: ObjectAt) -> Node:
        alive, classes = self._base(at.shape)
        if self._duplicates != "forbidden" or not at.seen:
            return regular.union(regular.texts(alive), classes)
        if len(alive) <= FEW_NAMES:
            rest = regular.texts(alive - at.seen)
            if classes is regular.EMPTY:
                return rest
            others = at.seen - at.shape.every.names.keys()
            return regular.union(rest, regular.difference(classes, regular.texts(others)) if others else classes)
        return regular.difference(regular.union(regular.texts(alive), classes), regular.texts(at.seen))

    def _free_keys(self, at: ObjectAt) -> Node:
        shape = at.shape
        alive, classes = self._base(shape)
        if self._order == "any":
            key = (alive, classes, at.seen if self._duplicates == "forbidden" else frozenset())
            node = self._free.get(key)
            if node is None:
                if len(self._free) > MEMO_BOUND:
                    self._free.clear()
                node = self._free[key] = self._unordered_keys(at)
            return node
        if self._order == "declared":
            ahead = [shape.positions[m] for m in at.missing if m in shape.positions]
            limit = min(ahead, default=None)
            names = {
                n
                for n in alive | (shape.positions.keys() - shape.every.names.keys())
                if self._usable(at, n)
                and (limit is None or shape.positions.get(n, limit + 1) <= limit)
                and (n in alive or self._life.alive(shape.every.at(n)))
            }
            if limit is not None:
                return regular.texts(names)
            gone = set(shape.positions) | (at.seen if self._duplicates == "forbidden" else set())
            return regular.union(
                regular.texts(names), regular.difference(classes, regular.texts(gone)) if gone else classes
            )
        least = min(at.missing, default=None)
        names = {n for n in alive if self._usable(at, n) and (least is None or n <= least)}
        others = [node for node, _ in self._classes(at, set(shape.every.names))]
        node = regular.union(regular.texts(names), *others)
        if least is not None:
            node = regular.difference(node, _after_text(least, equal=False))
        return node

    def _base(self, shape: ObjectShape) -> tuple[frozenset[str], Node]:
        """The names that have a value, and the language of the other keys that have one."""
        found = self._bases.get(shape)
        if found is None:
            life = self._life
            names = shape.every.names
            alive = frozenset(n for n, e in names.items() if life.is_spellable(n) and life.alive(e))
            nodes = [node for node, e in shape.every.classes if life.alive(e)]
            union = regular.union(*nodes)
            if names and union is not regular.EMPTY:
                union = regular.difference(union, regular.texts(names))
            found = (alive, union)
            if life.settled:
                self._bases[shape] = found
        return found

    def _tried_keys(self, at: ObjectAt) -> Node:
        """Name by name and class by class: whether the object can end after it."""
        shape = at.shape
        names = self._all_names(at)
        good = {n for n in names | at.missing if self._allows(at, n)}
        if self._duplicates != "forbidden":
            good |= {n for n in at.seen if self._allows(at, n)}
        nodes = []
        for node, _, _ in self._cells(at, names | at.missing | at.seen, _ordered(at.owed)):
            example = regular.example(node)
            if example is not None and self._allows(at, example):
                nodes.append(node)
        if self._order == "sorted" and nodes and at.missing:
            bound = _after_text(min(at.missing), equal=False)
            nodes = [
                regular.difference(
                    regular.union(*(n for n, _, _ in self._cells(at, names | at.missing | at.seen, []))), bound
                )
            ]
            if shape.high is not None and shape.high - len(at.seen) - len(at.missing) <= 0:
                nodes = []
        return regular.union(regular.texts(good), *nodes)

    def _all_names(self, at: ObjectAt) -> set[str]:
        names = set(at.shape.every.names)
        for debt in at.owed:
            names |= debt.wanted.names.keys() | debt.absent
        return names | at.shape.positions.keys()

    def _cells(self, at: ObjectAt, names: set[str], owed: list[Debt]) -> list[tuple[Node, Expr, tuple[Expr, ...]]]:
        """The other keys by class and by what each debt asks of them: (keys, value, one per debt)."""
        cells: list[tuple[Node, Expr, tuple[Expr, ...]]] = [(n, e, ()) for n, e in self._classes(at, names)]
        for debt in owed:
            following = []
            for node, expr, asked in cells:
                for other, more in debt.wanted.classes:
                    both = node if len(debt.wanted.classes) == 1 else regular.intersection(node, other)
                    if not regular.is_empty(both):
                        following.append((both, expr, (*asked, more)))
            cells = following
        return cells

    # --- whether it can end ----------------------------------------------------------------------------------------

    def can_finish(self, at: ObjectAt) -> bool:
        """Whether some further members make the object one of its shape."""
        question = self._question(at)
        found = self._finishes.get(question)
        if found is None:
            before = self._life.settled
            found = self._can_finish(at)
            if found or (before and self._life.settled):
                if len(self._finishes) > MEMO_BOUND:
                    self._finishes.clear()
                self._finishes[question] = found
        return found

    def _question(self, at: ObjectAt) -> tuple[ObjectAt, int]:
        """Objects that are alike in this can end alike. Where keys are neither ordered nor repeated, and all keys
        without a name of their own are of endless kinds, those that were seen matter by their number alone."""
        if not at.seen or self._duplicates != "forbidden" or self._order != "any":
            return at, 0
        key = (at.shape, at.owed)
        names = self._named.get(key)
        if names is None and key not in self._named:
            names = self._all_names(at) if self._is_endless(at.shape, at.owed) else None
            if len(self._named) > MEMO_BOUND:
                self._named.clear()
            self._named[key] = names
        if names is None:
            return at, 0
        many = len(at.seen)
        return at._replace(seen=at.seen & names), many if at.shape.high is not None else min(many, at.shape.low)

    def _is_endless(self, shape: ObjectShape, owed: frozenset[Debt]) -> bool:
        """Whether every kind of keys without a name, by the shape and by what each debt asks of them, has no end."""
        before = ObjectAt(shape, frozenset(), frozenset(), owed, None)
        try:
            cells = self._cells(before, self._all_names(before) | shape.required, _ordered(owed))
            return self._life.settled and all(regular.count_texts(node, ENDLESS) >= ENDLESS for node, _, _ in cells)
        except TooComplex:  # then each question is asked for itself, and may be simpler
            return False

    def _can_finish(self, at: ObjectAt) -> bool:
        shape, life = at.shape, self._life
        # Without an order a key that can come stays so until it does: then it is enough to ask before the first.
        if self._order != "any" or len(at.missing) == len(shape.required):
            for name in at.missing:
                if not self._usable(at, name) or not life.alive(shape.every.at(name)):
                    return False
        for name in at.bad:
            if not self._usable(at, name) or not life.alive(shape.every.at(name)):
                return False
        spare = None
        if shape.high is not None:
            spare = shape.high - len(at.seen) - len(at.missing)
            if spare < 0:
                return False
        if not at.owed:
            return self._enough_keys(at, frozenset())
        return self._has_plan(at, spare)

    def _has_plan(self, at: ObjectAt, spare: int | None) -> bool:
        """Whether every debt can be paid: by a member, or by a key that stays away."""
        # a key that cannot come any more stays away for certain
        owed = [d for d in _ordered(at.owed) if all(self._can_come(at, n) for n in d.absent)]
        ways = [[*sorted(debt.absent), None] for debt in owed]
        for tried, plan in enumerate(product(*ways)):
            if tried > PLANS_BOUND:
                raise TooComplex(f"more than {PLANS_BOUND} plans for what an object must show")
            away = frozenset(name for name in plan if name is not None)
            left = [debt for debt in owed if not debt.absent & away]
            if any(name is None and debt.absent & away for name, debt in zip(plan, owed, strict=True)):
                continue  # the same as a plan with fewer members
            if self._enough_keys(at, away) and (not left or self._can_pay(at, spare, left, away)):
                return True
        return False

    def _can_come(self, at: ObjectAt, key: str) -> bool:
        return self._usable(at, key) and self._life.alive(at.shape.every.at(key))

    def _enough_keys(self, at: ObjectAt, away: frozenset[str]) -> bool:
        """Whether as many distinct keys as ``low`` asks for can come."""
        needed = at.shape.low - len(at.seen) - len(at.missing)
        if needed <= 0:
            return True
        names = self._all_names(at)
        for name in names - away:
            if name not in at.missing and name not in at.seen and self._usable(at, name):
                needed -= self._life.alive(at.shape.every.at(name))
                if needed <= 0:
                    return True
        for node, _ in self._classes(at, names | at.missing | at.seen | away):
            needed -= regular.count_texts(node, needed)
            if needed <= 0:
                return True
        return False

    def _can_pay(self, at: ObjectAt, spare: int | None, owed: list[Debt], away: frozenset[str]) -> bool:
        """Whether each debt finds a member to pay it, without the keys that stay ``away`` and with at most ``spare``
        keys beyond the missing ones."""
        every = (1 << len(owed)) - 1
        cost = {0: 0}

        def paid() -> bool:
            return every in cost and (spare is None or cost[every] <= spare)

        def use(sets: list[int], price: int, times: int) -> None:
            for _ in range(times):
                for mask, sofar in list(cost.items()):
                    for some in sets:
                        reached = mask | some
                        if reached != mask and cost.get(reached, 1 << 30) > sofar + price:
                            cost[reached] = sofar + price

        names = self._all_names(at) | at.missing
        if self._duplicates != "forbidden":
            names |= at.seen
        candidates = []
        for name in names - away:
            if self._usable(at, name):
                asked = tuple(d.wanted.at(name) for d in owed)
                absent = name not in at.missing and name not in at.seen
                # first those that cost no key and are quickly decided
                hard = sum(1 for e in asked if e.op != "val")
                candidates.append(((absent, hard, name), name, asked))
        for (absent, _, _), name, asked in sorted(candidates, key=lambda c: c[0]):
            present = not absent
            sets = self._payable(at.shape.every.at(name), asked)
            if sets:
                use(sets, 0 if present else 1, 1)
                if paid():
                    return True
        for node, expr, asked in self._cells(at, names | at.seen | away, owed):
            sets = self._payable(expr, asked)
            if sets:
                use(sets, 1, regular.count_texts(node, len(owed)))
                if paid():
                    return True
        return paid()

    def _payable(self, expr: Expr, asked: tuple[Expr, ...]) -> list[int]:
        """The sets of debts (as bits) that one key can meet: by one value, or, where a key may be repeated with
        every value counting, by several."""
        algebra, life = self._life.algebra, self._life
        useful = [i for i, e in enumerate(asked) if life.alive(algebra.and_(expr, e))]
        if not useful:
            return []
        all_useful = sum(1 << i for i in useful)
        if self._duplicates == "any" or life.alive(algebra.and_(expr, *(asked[i] for i in useful))):
            return [all_useful]
        return [met for _, met in self._outcomes(expr, asked) if met]


def _ordered(owed: frozenset[Debt]) -> list[Debt]:
    return sorted(owed, key=lambda d: d.id)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if expr.op == "and" else (expr,)


def _after_text(text: str, *, equal: bool) -> Node:
    """The texts that come after ``text`` by code points."""
    parts = [regular.concat(regular.text(text), regular.ANY_CHAR, regular.ANY)]
    for i, c in enumerate(text):
        if ord(c) < 0x10FFFF:
            parts.append(regular.concat(regular.text(text[:i]), regular.chars(((ord(c) + 1, 0x10FFFF),)), regular.ANY))
    if equal:
        parts.append(regular.text(text))
    return regular.union(*parts)
