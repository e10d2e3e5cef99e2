"""Regular languages over code points, closed under union, concatenation, repetition, intersection and complement.

An expression is a hash-consed node: equal languages that are built alike are the same object. It is read by
derivatives (Brzozowski): the derivative by a code point is the language of what may follow. The derivatives of a node
by all code points at once are a step function over the code points (``moves``), computed once for each node, so a node
is a state of a lazily built deterministic automaton. Text here is *decoded* text; how it is spelled in bytes is
``harness.reference.spelling``.

Lengths count code points. Surrogates are code points of the alphabet: whether they can be spelled is the spelling's.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from harness.reference import codepoints
from harness.reference.automaton import TooComplex
from harness.reference.codepoints import MAX, Ranges

# Nodes that one emptiness question may visit. A language of strings of length n needs n nodes to reach its end.
EMPTINESS_BOUND = 50_000
# How deeply the members of a union are factored: past that the same language is written out longer.
FACTOR_DEPTH = 60
# Step functions that are kept, in their pieces and 20 for each (about 50 bytes a piece): the oldest is forgotten
# first, and worked out again where it is asked for. About 100 MB at the most.
MOVES_BOUND = 2_000_000


class Node:
    """A regular language. Compare by identity. ``nullable``: whether the empty text is in it."""

    __slots__ = ("__weakref__", "_alive", "_live", "_moves", "args", "id", "marks", "nullable", "op", "positive")

    def __init__(self, op: str, args: tuple[Any, ...], nullable: bool, positive: bool, number: int) -> None:
        self.op = op
        self.args = args
        self.nullable = nullable
        # Built without intersection and complement: then it is empty only if it is EMPTY itself.
        self.positive = positive
        self.id = number
        self.marks = _marks_of(op, args)
        self._moves: Moves | None = None
        self._alive: bool | None = True if nullable or (positive and op != "empty") else None
        self._live: Ranges | None = None

    def __repr__(self) -> str:
        return f"<{self.op} {self.args!r}>" if self.op == "chars" else f"<{self.op} #{self.id}>"


# A step function: code points from starts[i] up to starts[i + 1] − 1 lead to targets[i]; starts[0] is 0.
Moves = tuple[tuple[int, ...], tuple[Node, ...]]

# A node lives as long as something refers to it: a compiled constraint, a state, another node, a kept step function.
# Numbers are never given twice, so the key of a node that is gone is never asked for again.
_interned: WeakValueDictionary[tuple[Any, ...], Node] = WeakValueDictionary()
_numbers = itertools.count()
_lock = threading.Lock()


def _node(op: str, args: tuple[Any, ...], nullable: bool, positive: bool = True) -> Node:
    key = (op, *[a.id if isinstance(a, Node) else a for a in args])
    found = _interned.get(key)
    if found is None:
        with _lock:  # two threads agree on one node
            found = _interned.get(key)
            if found is None:
                found = _interned[key] = Node(op, args, nullable, positive, next(_numbers))
    return found


_NO_MARKS: frozenset[int] = frozenset()


def _marks_of(op: str, args: tuple[Any, ...]) -> frozenset[int]:
    """The marks that a text of the language may hold (see ``mark``)."""
    if op == "mark":
        return frozenset(args)
    if op in ("held", "inflate", "chars", "words"):
        return _NO_MARKS
    found = _NO_MARKS
    for part in args:
        if isinstance(part, Node) and part.marks:
            found = found | part.marks
    return found & {SPOT} if op == "erase" else found


# The mark that asks the question of ``held``.
SPOT = -1

EMPTY = _node("empty", (), False)
EPSILON = _node("epsilon", (), True)


def chars(ranges: Ranges) -> Node:
    """One code point out of a set."""
    return _node("chars", (ranges,), False) if ranges else EMPTY


ANY_CHAR = chars(codepoints.ALL)
ANY = _node("star", (ANY_CHAR,), True)  # every text


def text(literal: str) -> Node:
    """Exactly this text."""
    return concat(*(chars(((ord(c), ord(c)),)) for c in literal))


def concat(*parts: Node) -> Node:
    done = EPSILON
    for part in reversed(parts):
        done = _concat(part, done)
    return done


def _concat(one: Node, other: Node) -> Node:
    """Concatenations lean to the right: the first part of one is never one itself."""
    if one.op != "concat":
        return _concat_one(one, other)
    if other is EMPTY or other is EPSILON:
        return one if other is EPSILON else EMPTY
    parts = []
    while one.op == "concat":
        parts.append(one.args[0])
        one = one.args[1]
    other = _concat_one(one, other)
    for part in reversed(parts):
        other = _concat_one(part, other)
    return other


def _concat_one(one: Node, other: Node) -> Node:
    if one is EMPTY or other is EMPTY:
        return EMPTY
    if one is EPSILON:
        return other
    if other is EPSILON:
        return one
    # x{a,b}x{c,d} = x{a+c,b+d}
    head, rest = (other.args[0], other.args[1]) if other.op == "concat" else (other, EPSILON)
    base, low, high = _counted(one)
    if base is _counted(head)[0]:
        _, more, most = _counted(head)
        one = repeat(base, low + more, None if high is None or most is None else high + most)
        if rest is EPSILON:
            return one
        other = rest
    return _node("concat", (one, other), one.nullable and other.nullable, one.positive and other.positive)


def _counted(one: Node) -> tuple[Node, int, int | None]:
    """A node as a repetition: (of what, at least, at most)."""
    if one.op == "repeat":
        base, low, high = one.args
        return base, low, high
    return (one.args[0], 0, None) if one.op == "star" else (one, 1, 1)


def union(*parts: Node) -> Node:
    """The texts of any of several. What begins alike is written once, and counts that meet become one."""
    return _combine("union", parts)


def intersection(*parts: Node) -> Node:
    return _combine("inter", parts)


def _combine(op: str, parts: Iterable[Node], depth: int = 0) -> Node:
    """Union or intersection: flattened, sorted, without repeats; single code points are merged into one set."""
    is_union = op == "union"
    neutral, absorbing = (EMPTY, ANY) if is_union else (ANY, EMPTY)
    flat: dict[int, Node] = {}
    sets: list[Ranges] = []
    stack = list(parts)
    while stack:
        part = stack.pop()
        if part is absorbing:
            return absorbing
        if part.op == op:
            stack.extend(part.args)
        elif part.op == "chars":
            sets.append(part.args[0])
        elif part is not neutral:
            flat[part.id] = part
    if sets:
        merged = sets[0]
        for other in sets[1:]:
            merged = codepoints.union(merged, other) if is_union else codepoints.intersection(merged, other)
        if merged:
            node = chars(merged)
            flat[node.id] = node
        elif not is_union:
            return EMPTY
    if not is_union and EPSILON.id in flat:
        return EPSILON if all(n.nullable for n in flat.values()) else EMPTY
    for node in flat.values():
        if node.op == "not" and node.args[0].id in flat:
            return absorbing
    if is_union and len(flat) > 1:
        _absorb(flat)
        _join_counts(flat)
        if len(flat) > 1 and depth < FACTOR_DEPTH:
            _factor(flat, depth)
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat.values()))
    members = tuple(flat[i] for i in sorted(flat))
    if is_union:
        nullable = any(m.nullable for m in members)
        return _node(op, members, nullable, all(m.positive for m in members))
    return _node(op, members, all(m.nullable for m in members), False)


def _absorb(flat: dict[int, Node]) -> None:
    """T lies in NT where N may be empty. Changes a union's members."""
    for node in list(flat.values()):
        while node.op == "concat" and node.args[0].nullable:
            node = node.args[1]
            flat.pop(node.id, None)


def _join_counts(flat: dict[int, Node]) -> None:
    """x{a,b}T ∪ x{c,d}T = x{a,d}T where the counts overlap or touch; T is x{0,0}T. Changes a union's members."""
    groups: dict[tuple[int, int], list[tuple[int, int | None, Node]]] = {}
    counted = False  # without a true repetition or the empty text there is nothing to join
    for node in flat.values():
        head, rest = (node.args[0], node.args[1]) if node.op == "concat" else (node, EPSILON)
        base, low, high = _counted(head)
        counted = counted or base is not head or node is EPSILON
        groups.setdefault((base.id, rest.id), []).append((low, high, node))
    if not counted and all(len(g) == 1 for g in groups.values()):
        rests = {rest for _, rest in groups}
        if not rests & flat.keys():
            return
    for (base_id, rest_id), group in groups.items():
        node = group[0][2]
        rest = node.args[1] if node.op == "concat" else EPSILON
        if rest_id in flat and rest_id != base_id and rest is not node:
            group.append((0, 0, flat[rest_id]))
        if len(group) == 1:
            continue
        base = _counted(node.args[0] if node.op == "concat" else node)[0]
        group.sort(key=lambda g: g[0])
        low, high, first = group[0]
        members = [first]
        for more, most, other in [*group[1:], (-1, -1, EMPTY)]:
            if other is not EMPTY and (high is None or more <= high + 1):
                high = None if high is None or most is None else max(high, most)
                members.append(other)
                continue
            if len(members) > 1:
                for member in members:
                    flat.pop(member.id, None)
                joined = _concat_one(repeat(base, low, high), rest)
                flat[joined.id] = joined
            low, high, members = more, most, [other]


def _factor(flat: dict[int, Node], depth: int) -> None:
    """xA ∪ xB = x(A ∪ B). Changes a union's members."""
    groups: dict[int, list[Node]] = {}
    for node in flat.values():
        groups.setdefault(node.args[0].id if node.op == "concat" else node.id, []).append(node)
    for group in groups.values():
        if len(group) == 1:
            continue
        heads, rests = [], group
        while all(r.op == "concat" and r.args[0] is rests[0].args[0] for r in rests):
            heads.append(rests[0].args[0])
            rests = [r.args[1] for r in rests]
        if not heads:  # one of them is the head alone
            head = next(r.args[0] for r in rests if r.op == "concat")
            heads, rests = [head], [EPSILON if r is head else r.args[1] for r in rests]
        for node in group:
            del flat[node.id]
        joined = concat(*heads, _combine("union", rests, depth + 1))
        flat[joined.id] = joined


def complement(one: Node) -> Node:
    """Every text that is not in ``one``."""
    if one is EMPTY:
        return ANY
    if one is ANY:
        return EMPTY
    if one.op == "not":
        inner: Node = one.args[0]
        return inner
    return _node("not", (one,), not one.nullable, False)


def difference(one: Node, other: Node) -> Node:
    return intersection(one, complement(other))


def star(one: Node) -> Node:
    if one in (EMPTY, EPSILON):
        return EPSILON
    if one.op == "repeat" and one.args[1] <= 1:
        one = one.args[0]
    if one.op == "star":
        return one
    return _node("star", (one,), True, one.positive)


def repeat(one: Node, low: int, high: int | None) -> Node:
    """``low`` to ``high`` (None: any number of) texts of ``one``, one after the other."""
    if high is not None and low > high:
        return EMPTY
    if high == 0 or one is EPSILON:
        return EPSILON
    if one is EMPTY:
        return EPSILON if low == 0 else EMPTY
    if one.nullable:
        low = 0  # leaving one out is as good as an empty one
    if low == 0 and high is None:
        return star(one)
    if low == 1 and high == 1:
        return one
    base, few, many = _counted(one)
    # (x{a,b}){c,d} is x{ca,db} where the counts of c, c + 1 … repetitions leave no gap
    gapless = low == high or few <= 1 or (low > 0 if many is None else few * (low + 1) <= many * low + 1)
    if base is not one and gapless:
        return repeat(base, few * low, None if high is None or many is None else many * high)
    return _node("repeat", (one, low, high), low == 0, one.positive)


def optional(one: Node) -> Node:
    return union(EPSILON, one)


def texts(literals: Iterable[str]) -> Node:
    """One of several texts. Kept as the list that it is, and opened by first code point as it is read."""
    return _words(tuple(sorted(set(literals))))


def _words(words: tuple[str, ...]) -> Node:
    """``texts`` of a sorted tuple without repeats."""
    if len(words) < 2:
        return text(words[0]) if words else EMPTY
    if len(words[0]) == 1 and all(len(w) == 1 for w in words):
        return chars(codepoints.ranges((ord(w), ord(w)) for w in words))
    return _node("words", (words,), not words[0])


def _derivatives_of_words(words: tuple[str, ...]) -> Moves:
    starts: list[int] = [0]
    targets: list[Node] = [EMPTY]
    at = 1 if not words[0] else 0
    while at < len(words):
        first, end = words[at][0], at + 1
        while end < len(words) and words[end][0] == first:
            end += 1
        place = ord(first)
        if starts[-1] == place:
            starts.pop()
            targets.pop()
        starts += (place, place + 1)
        targets += (_words(tuple(w[1:] for w in words[at:end])), EMPTY)
        at = end
    if starts[-1] > MAX:
        starts.pop()
        targets.pop()
    return _compact(starts, targets)


# --- positions with a condition --------------------------------------------------------------------------------
#
# A look-around is a condition on one position of a text. The expression around it is built over texts with marks:
# mark i stands where condition i must hold. A condition is a language too, of whole texts in which one mark, SPOT,
# stands at the position asked about: so a look-behind inside a look-ahead sees all that stands before it. ``held`` are
# the marked texts in which every mark i has what it asks for; ``erase`` takes the marks out. All of it stays regular,
# inside repetitions too.


def mark(number: int) -> Node:
    """A position, marked; only inside ``erase`` and ``held``."""
    return _node("mark", (number,), False)


def held(number: int, where: Node, *, positive: bool) -> Node:
    """The marked texts of which this holds at every mark ``number``: without marks but with SPOT there, the text is
    (``positive``) or is not in ``where``. Only to be intersected with others, inside ``erase``."""
    if where is EMPTY and not positive:
        return ANY
    return _node("held", (number, where, positive), True, False)


def _inflate(one: Node) -> Node:
    """The texts of ``one`` with any marks in any places; ANY, as it takes part in intersections only, for ANY."""
    return _node("inflate", (one,), one.nullable, False) if one is not EMPTY and one is not ANY else one


def erase(one: Node) -> Node:
    """The texts of ``one``, a language of marked texts, without their marks (SPOT stays)."""
    if one is EMPTY or one is EPSILON:
        return one
    marks = one.marks - {SPOT}
    parts: tuple[Node, ...] = one.args if one.op == "inter" else (one,)
    needed = [p for p in parts if p.op != "held" or p.args[0] in marks]
    if not marks and SPOT not in one.marks:
        needed = [p.args[0] if p.op == "inflate" else p for p in needed]
    one = intersection(*needed)
    if not marks:
        return one
    return _node("erase", (one,), any(n.nullable for n in _past_marks(one)), False)


def _past_marks(one: Node) -> list[Node]:
    """``one`` and everything that it becomes by reading marks alone, SPOT left out."""
    found = {one.id: one}
    stack = [one]
    while stack:
        node = stack.pop()
        for number in node.marks:
            if number == SPOT:
                continue
            after = _read_mark(node, number)
            if after is not EMPTY and after.id not in found:
                found[after.id] = after
                stack.append(after)
    return [found[i] for i in sorted(found)]


def _read_mark(node: Node, number: int) -> Node:
    """The derivative by a mark."""
    op, args = node.op, node.args
    if op == "held":
        if args[0] != number:
            return node
        holds = _read_mark(args[1], SPOT)
        return intersection(node, _inflate(holds if args[2] else complement(holds)))
    if op == "inflate":
        return node
    if op == "inter":
        return _combine(op, [_read_mark(a, number) for a in args])
    if number not in node.marks:
        return EMPTY
    if op == "mark":
        return EPSILON
    if op == "concat":
        found = []
        while node.op == "concat":
            first, rest = node.args
            found.append(_concat(_read_mark(first, number), rest))
            node = rest
            if not first.nullable:
                return union(*found)
        return union(*found, _read_mark(node, number))
    if op == "star":
        return _concat(_read_mark(args[0], number), node)
    if op == "repeat":
        return _concat(_read_mark(args[0], number), _one_less(node))
    if op == "erase":
        return union(*(erase(_read_mark(n, number)) for n in _past_marks(args[0])))
    return union(*(_read_mark(a, number) for a in args))


def _one_less(node: Node) -> Node:
    part, low, high = node.args
    return repeat(part, max(low - 1, 0), None if high is None else high - 1)


# --- derivatives -----------------------------------------------------------------------------------------------


def moves(node: Node) -> Moves:
    """The derivatives of a node by every code point, as a step function."""
    found = node._moves
    return found if found is not None else _work_out(node)


_NOWHERE: Moves = ((0,), (EMPTY,))
_kept: deque[tuple[Node, int]] = deque()
_kept_weight = 0


def _work_out(root: Node) -> Moves:
    """``moves`` of a node and of all that it is made of, without recursion: patterns can be long."""
    known: dict[int, Moves] = {}  # here too, whatever is forgotten meanwhile
    stack = [root]
    while stack:
        node = stack[-1]
        found = known.get(node.id, node._moves)
        if found is None:
            needed = _made_of(node)
            missing = [n for n in needed if n.id not in known and n._moves is None]
            if missing:
                stack.extend(missing)
                continue
            found = node._moves = _derivatives(node, [known.get(n.id) or moves(n) for n in needed])
            _keep(node, found)
        known[node.id] = found
        stack.pop()
    return known[root.id]


def _keep(node: Node, found: Moves) -> None:
    """Count what is kept, and forget the oldest past the bound."""
    global _kept_weight
    weight = 20 + len(found[0])
    with _lock:
        _kept.append((node, weight))
        _kept_weight += weight
        old = []
        while _kept_weight > MOVES_BOUND and len(_kept) > 1:
            old.append(_kept.popleft())
            _kept_weight -= old[-1][1]
    for forgotten, _ in old:
        forgotten._moves = forgotten._live = None


def _made_of(node: Node) -> list[Node]:
    """The nodes whose step functions make up that of ``node``."""
    op, args = node.op, node.args
    if op == "concat":
        return [args[0], args[1]] if args[0].nullable else [args[0]]
    if op in ("star", "repeat", "not", "inflate"):
        return [args[0]]
    if op == "held":
        return [args[1]]
    if op == "erase":
        return _past_marks(args[0])
    return list(args) if op in ("union", "inter") else []


def _derivatives(node: Node, parts: list[Moves]) -> Moves:
    """The step function of a node from those of ``_made_of``."""
    op, args = node.op, node.args
    if op == "chars":
        return _step_function(args[0])
    if op == "words":
        return _derivatives_of_words(args[0])
    if op == "concat":
        first = _map(parts[0], lambda d: _concat(d, args[1]))
        return _merge([first, parts[1]], union) if args[0].nullable else first
    if op == "star":
        return _map(parts[0], lambda d: _concat(d, node))
    if op == "repeat":
        rest = _one_less(node)
        return _map(parts[0], lambda d: _concat(d, rest))
    if op == "not":
        return _map(parts[0], complement)
    if op == "held":
        return _map(parts[0], lambda d: held(args[0], d, positive=args[2]))
    if op == "inflate":
        return _map(parts[0], _inflate)
    if op == "erase":
        return _merge([_map(f, erase) for f in parts], union)
    if op in ("union", "inter"):
        return _merge(parts, union if op == "union" else intersection)
    return _NOWHERE  # empty, epsilon, mark


def _step_function(ranges: Ranges) -> Moves:
    starts: list[int] = []
    targets: list[Node] = []
    at = 0
    for low, high in ranges:
        if low > at:
            starts.append(at)
            targets.append(EMPTY)
        starts.append(low)
        targets.append(EPSILON)
        at = high + 1
    if at <= MAX:
        starts.append(at)
        targets.append(EMPTY)
    return tuple(starts), tuple(targets)


def _map(function: Moves, change: Callable[[Node], Node]) -> Moves:
    changed: dict[int, Node] = {}
    targets = []
    for target in function[1]:
        if target.id not in changed:
            changed[target.id] = change(target)
        targets.append(changed[target.id])
    return _compact(function[0], targets)


def _merge(functions: list[Moves], combine: Callable[..., Node]) -> Moves:
    """The pointwise combination of several step functions."""
    if len(functions) == 1:
        return functions[0]
    cuts = sorted({s for f in functions for s in f[0]})
    at = [0] * len(functions)
    targets: list[Node] = []
    known: dict[tuple[int, ...], Node] = {}
    for cut in cuts:
        for i, (starts, _) in enumerate(functions):
            if at[i] + 1 < len(starts) and starts[at[i] + 1] == cut:
                at[i] += 1
        here = [f[1][i] for f, i in zip(functions, at, strict=True)]
        key = tuple(n.id for n in here)
        if key not in known:
            known[key] = combine(*here)
        targets.append(known[key])
    return _compact(cuts, targets)


def _compact(starts: Iterable[int], targets: list[Node]) -> Moves:
    kept_starts: list[int] = []
    kept: list[Node] = []
    for start, target in zip(starts, targets, strict=True):
        if not kept or kept[-1] is not target:
            kept_starts.append(start)
            kept.append(target)
    return tuple(kept_starts), tuple(kept)


def derive(node: Node, code_point: int) -> Node:
    """The language of what may follow ``code_point``."""
    starts, targets = moves(node)
    return targets[bisect_right(starts, code_point) - 1]


def matches(node: Node, literal: str) -> bool:
    """Whether ``literal`` is in the language."""
    for c in literal:
        node = derive(node, ord(c))
    return node.nullable


# --- questions -------------------------------------------------------------------------------------------------


def is_empty(node: Node) -> bool:
    """Whether the language has no text at all; TooComplex past the declared bound."""
    if node._alive is None:
        _settle(node)
    return not node._alive


def _settle(root: Node) -> None:
    """Find out whether a nullable node can be reached, depth first; what is on a path to one is alive too."""
    entered_from: dict[int, Node | None] = {root.id: None}
    stack = [root]
    seen = [root]
    while stack:
        node = stack.pop()
        for target in sorted(set(moves(node)[1]), key=lambda n: n.id):
            if target.id in entered_from or target._alive is False:
                continue
            entered_from[target.id] = node
            if target._alive:
                at: Node | None = target
                while at is not None:
                    at._alive = True
                    at = entered_from[at.id]
                return
            if target is EMPTY:
                continue
            seen.append(target)
            stack.append(target)
            if len(seen) > EMPTINESS_BOUND:
                raise TooComplex(f"whether a pattern has any text needs more than {EMPTINESS_BOUND} states to decide")
    # Nothing nullable can be reached from anything that was seen.
    for node in seen:
        node._alive = False


def live(node: Node) -> Ranges:
    """The code points by which the language can begin (those after which something can still follow or end)."""
    if node._live is None:
        starts, targets = moves(node)
        ends = (*starts[1:], MAX + 1)
        node._live = codepoints.ranges(
            (start, end - 1) for start, end, target in zip(starts, ends, targets, strict=True) if not is_empty(target)
        )
    return node._live


def is_universal(node: Node) -> bool:
    """Whether every text is in the language."""
    return is_empty(complement(node))


def includes(one: Node, other: Node) -> bool:
    """Whether every text of ``other`` is in ``one``."""
    return is_empty(difference(other, one))


def is_finite(node: Node, limit: int) -> bool:
    """Whether the language has at most ``limit`` texts."""
    return len(enumerate_texts(node, limit + 1)) <= limit


def enumerate_texts(node: Node, most: int) -> list[str]:
    """Up to ``most`` texts of the language, the shortest first."""
    found: list[str] = []
    layer: list[tuple[str, Node]] = [("", node)] if not is_empty(node) else []
    while layer and len(found) < most:
        following: list[tuple[str, Node]] = []
        for prefix, at in layer:
            if at.nullable:
                found.append(prefix)
                if len(found) >= most:
                    return found
        for prefix, at in layer:
            for low, high in live(at):
                some = range(low, min(high, low + most) + 1)
                following.extend((prefix + chr(c), derive(at, c)) for c in some)
                if len(following) > 4 * most:
                    break
        layer = following
    return found


def example(node: Node) -> str | None:
    """A shortest text of the language; None where it is empty."""
    if is_empty(node):
        return None
    entered: dict[Node, tuple[Node, int] | None] = {node: None}
    waiting = [node]
    while waiting:
        following = []
        for at in waiting:
            if at.nullable:
                word = []
                step = entered[at]
                while step is not None:
                    word.append(chr(step[1]))
                    step = entered[step[0]]
                return "".join(reversed(word))
            for start, target in zip(*moves(at), strict=True):
                if target not in entered and not is_empty(target):
                    entered[target] = (at, start)
                    following.append(target)
        waiting = following
    raise AssertionError("a language that is not empty has a text")


def count_texts(node: Node, most: int) -> int:
    """How many texts the language has, ``most`` where it has more. A loop on the way to any text makes them endless;
    without one they are counted from the ends."""
    if most <= 0 or is_empty(node):
        return 0
    counts: dict[Node, int | None] = {}  # None: on the way, not counted yet
    ends = 0
    stack = [node]
    while stack:
        at = stack[-1]
        if at not in counts:
            counts[at] = None
            ends += at.nullable
            if ends >= most:
                return most  # as many different nodes that end, as many texts of different ends or prefixes
            for target in dict.fromkeys(moves(at)[1]):
                if is_empty(target):
                    continue
                if target not in counts:
                    stack.append(target)
                elif counts[target] is None:
                    return most
            if len(counts) > EMPTINESS_BOUND:
                raise TooComplex(f"how many texts a pattern has needs more than {EMPTINESS_BOUND} states to decide")
            continue
        stack.pop()
        if counts[at] is not None:
            continue
        starts, targets = moves(at)
        total = int(at.nullable)
        for start, end, target in zip(starts, (*starts[1:], MAX + 1), targets, strict=True):
            below = counts.get(target) if not is_empty(target) else 0
            total += (end - start) * (below or 0)
        counts[at] = min(total, most)
    return counts[node] or 0
