"""Context-free grammars over bytes, read by an Earley parser over shared stacks. Exact for every grammar: left and
right recursion, nullable loops, ambiguity.

How a grammar becomes an automaton:

1. Parts of a body without recursion are regular languages, and are folded into one terminal (``regular.Node``, spelled
   in UTF-8). A terminal may also be any other automaton (``Embedded``).
2. Every rule becomes a network: states, with edges by a terminal or by a call of another rule. Empty texts are taken
   out first (a call that may be empty is also passed by without a call), so every call reads at least one byte; what no
   text goes through is taken out too, so every state of a network leads to its end.
3. Left recursion is turned into loops, as a left-linear grammar is turned into an automaton: rules that begin with each
   other share one network, which starts at what begins none of them, and goes on where a finished rule is a beginning.
   Calls before the first byte therefore never come round to themselves.
4. A state of the parser is a set of pairs: a place in a network, and the stacks of places to return to (``Stack``, a
   shared graph: a set of frames, each a place and the stacks below it). Equal sets are the same object. A call in last
   position pushes nothing, so neither left nor right recursion lets a stack grow: only nesting does.

A stack holds only what is still to come, so equal futures met again (the next item of a list) are mostly the same
state. Where a grammar is ambiguous about how deep it is nested, sets grow with the text, at most linearly.

This module knows nothing of notations. It never guesses: past a declared bound it raises TooComplex.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from harness.errors import CompileError
from harness.reference import codepoints, regular
from harness.reference.automaton import Automaton, TooComplex, WithViableBytes
from harness.reference.spelling import NOTHING, Utf8
from harness.reference.spelling import State as Spelled

# States of all networks of one grammar before they are made deterministic: {m,n} writes its part out n times.
NETWORK_BOUND = 100_000
# States of one network made deterministic; past it the network is used as it is.
SUBSET_BOUND = 10_000
# Pairs in one state of the parser.
ITEM_BOUND = 100_000
# Remembered steps of one grammar; past it all are forgotten, and found again when needed.
MEMO_BOUND = 200_000
# How far down, and among how many frames, it is looked for stacks that others cover. Leaving some in costs time only.
COVER_DEPTH = 8
COVER_FRAMES = 32
COVER_BOUND = 20_000
# How many nullable parts may be nested in one folded regular language: derivatives recurse over them.
FOLD_BOUND = 100


# --- bodies of rules ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regular:
    """A text of a regular language over code points."""

    node: regular.Node


@dataclass(frozen=True)
class Embedded:
    """A text of another automaton. It need not say where it ends: where it accepts, it may end or go on."""

    automaton: Automaton[Any]


@dataclass(frozen=True)
class Ref:
    """A text of a rule."""

    name: str


@dataclass(frozen=True)
class Cat:
    """One after the other."""

    parts: tuple[Body, ...]


@dataclass(frozen=True)
class Alt:
    """One of several."""

    parts: tuple[Body, ...]


@dataclass(frozen=True)
class Rep:
    """``low`` to ``high`` (None: any number of) texts of ``part``, one after the other."""

    part: Body
    low: int
    high: int | None


Body = Regular | Embedded | Ref | Cat | Alt | Rep
EMPTY_TEXT = Regular(regular.EPSILON)


def automaton(rules: Mapping[str, Body], root: str) -> Automaton[Any]:
    """The language of the rule ``root``. CompileError where a rule is named that does not exist."""
    folded = _fold(rules, root)
    body = folded[root]
    return Utf8(body.node) if isinstance(body, Regular) else Grammar(folded, root)


# --- folding -----------------------------------------------------------------------------------------------------


def _children(body: Body) -> tuple[Body, ...]:
    if isinstance(body, Cat | Alt):
        return body.parts
    return (body.part,) if isinstance(body, Rep) else ()


def _names(body: Body) -> set[str]:
    """The rules that a body names."""
    found: set[str] = set()
    stack = [body]
    while stack:
        part = stack.pop()
        if isinstance(part, Ref):
            found.add(part.name)
        stack.extend(_children(part))
    return found


def _fold(rules: Mapping[str, Body], root: str) -> dict[str, Body]:
    """The rules that ``root`` needs, regular parts folded, repetitions of compounds moved to rules of their own."""
    needed: dict[str, set[str]] = {}
    stack = [root]
    while stack:
        name = stack.pop()
        if name not in needed:
            if name not in rules:
                raise CompileError(f"grammar: rule {name!r} is not defined")
            needed[name] = _names(rules[name])
            stack.extend(needed[name])
    folder = _Folder(set(needed))
    for component in _components(needed):
        for name in component:
            body = folder.fold(rules[name])
            folder.rules[name] = body
            if isinstance(body, Regular) and name not in needed[name] and len(component) == 1:
                folder.regular[name] = body
    return folder.rules


class _Folder:
    def __init__(self, taken: set[str]) -> None:
        self.rules: dict[str, Body] = {}
        self.regular: dict[str, Regular] = {}
        self._taken = taken
        self._depths: dict[int, int] = {}

    def fold(self, body: Body) -> Body:
        if isinstance(body, Ref):
            return self.regular.get(body.name, body)
        if isinstance(body, Cat):
            return self._cat(body)
        if isinstance(body, Alt):
            return self._alt(body)
        if isinstance(body, Rep):
            return self._rep(body)
        return body

    def _cat(self, body: Cat) -> Body:
        parts: list[Body] = []
        for part in (self.fold(p) for p in body.parts):
            if isinstance(part, Regular) and parts and isinstance(parts[-1], Regular):
                joined = self._joined(parts[-1].node, part.node)
                if joined is not None:
                    parts[-1] = joined
                    continue
            if part != EMPTY_TEXT:
                parts.append(part)
        return parts[0] if len(parts) == 1 else Cat(tuple(parts)) if parts else EMPTY_TEXT

    def _joined(self, one: regular.Node, other: regular.Node) -> Regular | None:
        depth = self._depth(other) + (self._depth(one) if one.nullable else 1)
        return self._made(regular.concat(one, other), depth)

    def _alt(self, body: Alt) -> Body:
        parts = [self.fold(p) for p in body.parts]
        plain = [p for p in parts if isinstance(p, Regular)]
        others: list[Body] = [p for p in parts if not isinstance(p, Regular)]
        if plain:
            depth = 1 + max(self._depth(p.node) for p in plain)
            merged = self._made(regular.union(*(p.node for p in plain)), depth)
            others = [*plain, *others] if merged is None else [merged, *others]
        return others[0] if len(others) == 1 else Alt(tuple(others))

    def _rep(self, body: Rep) -> Body:
        part = self.fold(body.part)
        if isinstance(part, Regular):
            made = self._made(regular.repeat(part.node, body.low, body.high), 1 + self._depth(part.node))
            if made is not None:
                return made
        if isinstance(part, Cat | Alt | Rep) and max(body.low, body.high or 0) > 1:
            name = f"{len(self._taken)}"
            while name in self._taken:
                name += "'"
            self._taken.add(name)
            self.rules[name] = part
            part = Ref(name)
        return Rep(part, body.low, body.high)

    def _made(self, node: regular.Node, depth: int) -> Regular | None:
        if depth > FOLD_BOUND:
            return None
        self._depths[node.id] = min(depth, self._depths.get(node.id, depth))
        return Regular(node)

    def _depth(self, node: regular.Node) -> int:
        return self._depths.get(node.id, 1)


def _components(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components, what is reached before what reaches it (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    is_open: set[str] = set()
    done: list[list[str]] = []
    for start in graph:
        if start in order:
            continue
        work = [(start, iter(sorted(graph[start])))]
        order[start] = low[start] = len(order)
        open_.append(start)
        is_open.add(start)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in order:
                    order[other] = low[other] = len(order)
                    open_.append(other)
                    is_open.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in is_open:
                    low[name] = min(low[name], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    component: list[str] = []
                    while not component or component[-1] != name:
                        component.append(open_.pop())
                        is_open.discard(component[-1])
                    done.append(component)
    return done


# --- networks ----------------------------------------------------------------------------------------------------

# What an edge is labelled with: the number of a terminal, or the name of a rule.
Label = int | str


@dataclass
class _Wiring:
    """All rules' networks before they are made deterministic: states with unlabelled and labelled edges."""

    free: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[Label, int]]] = field(default_factory=list)
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    terminals: list[Regular | Embedded] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)

    def state(self) -> int:
        if len(self.free) >= NETWORK_BOUND:
            raise TooComplex(f"a grammar of more than {NETWORK_BOUND} places")
        self.free.append([])
        self.edges.append([])
        return len(self.free) - 1

    def terminal(self, part: Regular | Embedded) -> int:
        key = part.node.id if isinstance(part, Regular) else (id(part.automaton),)
        if key not in self.numbers:
            self.numbers[key] = len(self.terminals)
            self.terminals.append(part)
        return self.numbers[key]

    def wire(self, body: Body, start: int, end: int) -> None:
        """Lead from ``start`` to ``end`` by the texts of ``body``."""
        if isinstance(body, Ref):
            self.edges[start].append((body.name, end))
        elif isinstance(body, Regular):
            if regular.live(body.node):
                self.edges[start].append((self.terminal(body), end))
        elif isinstance(body, Embedded):
            if body.automaton.start() is not None:
                self.edges[start].append((self.terminal(body), end))
        elif isinstance(body, Alt):
            for part in body.parts:
                self.wire(part, start, end)
        elif isinstance(body, Cat):
            at = start
            for part in body.parts:
                following = self.state()
                self.wire(part, at, following)
                at = following
            self.free[at].append(end)
        else:
            self._repeat(body, start, end)
            return
        if not isinstance(body, Alt | Cat) and _is_nullable(body, self.nullable):
            self.free[start].append(end)

    def _repeat(self, body: Rep, start: int, end: int) -> None:
        if max(body.low, body.high or 0) > NETWORK_BOUND:
            raise TooComplex(f"a repetition beyond {NETWORK_BOUND}")
        at = before = self.state()
        self.free[start].append(at)
        for _ in range(body.low):
            before, at = at, self.state()
            self.wire(body.part, before, at)
        if body.high is None:
            if body.low == 0:
                at = self.state()
                self.wire(body.part, before, at)
                self.free[before].append(end)
            self.free[at].append(before)
        else:
            for _ in range(body.high - body.low):
                self.free[at].append(end)
                before, at = at, self.state()
                self.wire(body.part, before, at)
            if body.high < body.low:
                return
        self.free[at].append(end)

    def closure(self, states: Iterable[int]) -> set[int]:
        """What is reached without a label."""
        found = set(states)
        stack = list(found)
        while stack:
            for following in self.free[stack.pop()]:
                if following not in found:
                    found.add(following)
                    stack.append(following)
        return found


def _is_nullable(body: Body, nullable: set[str]) -> bool:
    if isinstance(body, Regular):
        return body.node.nullable
    if isinstance(body, Embedded):
        start = body.automaton.start()
        return start is not None and body.automaton.accepting(start)
    if isinstance(body, Ref):
        return body.name in nullable
    if isinstance(body, Cat):
        return all(_is_nullable(p, nullable) for p in body.parts)
    if isinstance(body, Alt):
        return any(_is_nullable(p, nullable) for p in body.parts)
    return (body.low == 0 or _is_nullable(body.part, nullable)) and (body.high is None or body.low <= body.high)


def _least(rules: Mapping[str, Body], callers: Mapping[str, set[str]], holds: Any) -> set[str]:
    """The least set of rules for which ``holds(name, the set so far)``."""
    found: set[str] = set()
    work = list(rules)
    while work:
        name = work.pop()
        if name not in found and holds(name, found):
            found.add(name)
            work.extend(callers[name])
    return found


def _wiring(rules: Mapping[str, Body]) -> _Wiring:
    """The rules' networks, empty texts and what no text goes through taken out."""
    callers: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for called in _names(body):
            callers[called].add(name)
    wiring = _Wiring()
    wiring.nullable = _least(rules, callers, lambda name, found: _is_nullable(rules[name], found))
    spans: dict[str, range] = {}
    for name, body in rules.items():
        first = len(wiring.free)
        start, end = wiring.state(), wiring.state()
        wiring.ends[name] = (start, end)
        wiring.wire(body, start, end)
        spans[name] = range(first, len(wiring.free))

    def reads(name: str, found: set[str]) -> bool:
        """Whether some text that is not empty leads through the rule, given the rules of which that is known."""
        start, end = wiring.ends[name]
        seen = wiring.closure([start])
        after: set[int] = set()
        stack = list(seen)
        while stack:
            for label, following in wiring.edges[stack.pop()]:
                if (isinstance(label, int) or label in found) and following not in after:
                    new = wiring.closure([following]) - after
                    after |= new
                    stack.extend(new)
        return end in after

    alive = _least(rules, callers, reads)
    for name, span in spans.items():
        into: dict[int, list[int]] = {}
        for state in span:
            wiring.edges[state] = [e for e in wiring.edges[state] if isinstance(e[0], int) or e[0] in alive]
            for following in (*wiring.free[state], *(target for _, target in wiring.edges[state])):
                into.setdefault(following, []).append(state)
        end = wiring.ends[name][1]
        leads, stack = {end}, [end]
        while stack:
            for state in into.get(stack.pop(), ()):
                if state not in leads:
                    leads.add(state)
                    stack.append(state)
        for state in span:
            wiring.free[state] = [s for s in wiring.free[state] if s in leads]
            wiring.edges[state] = [e for e in wiring.edges[state] if e[1] in leads]
    return wiring


class _Place(NamedTuple):
    """A state of a deterministic network. final: a rule may end here. reads: (terminal, place after it). calls:
    (place where the called rule starts, place to return to). jumps: places of rules called in last position."""

    final: bool
    reads: tuple[tuple[int, int], ...]
    calls: tuple[tuple[int, int], ...]
    jumps: tuple[int, ...]


class _Networks:
    """All rules' networks made deterministic, as one numbered list of places."""

    def __init__(self, wiring: _Wiring) -> None:
        self._wiring = wiring
        self._entries: dict[str, int] = {}
        self._final: list[bool] = []
        self._edges: list[list[tuple[Label, int]]] = []
        self._todo: list[str] = []
        self._cycle, self._seeds = self._unwind()

    def build(self, root: str) -> tuple[int, list[_Place]]:
        """The place where ``root`` starts, and all places. A rule's starting place is never final."""
        entry = self._entry(root)
        while self._todo:
            self._network(self._todo.pop())
        ends_there = [final and not edges for final, edges in zip(self._final, self._edges, strict=True)]
        places = []
        for final, edges in zip(self._final, self._edges, strict=True):
            calls = [(self._entries[label], to) for label, to in edges if isinstance(label, str)]
            places.append(
                _Place(
                    final,
                    tuple((label, to) for label, to in edges if isinstance(label, int)),
                    tuple((start, to) for start, to in calls if not ends_there[to]),
                    tuple(start for start, to in calls if ends_there[to]),
                )
            )
        return entry, places

    def _unwind(self) -> tuple[dict[str, frozenset[str]], dict[str, list[tuple[Label, int]]]]:
        """Turn left recursion into loops. For every rule: the rules that it begins with and that begin with it (none
        where it is not left recursive), and the edges at its start."""
        wiring = self._wiring
        before = {name: wiring.closure([start]) for name, (start, _) in wiring.ends.items()}
        first = {name: [e for s in sorted(before[name]) for e in wiring.edges[s]] for name in wiring.ends}
        begins = {name: {label for label, _ in first[name] if isinstance(label, str)} for name in wiring.ends}
        cycle: dict[str, frozenset[str]] = {}
        seeds: dict[str, list[tuple[Label, int]]] = {}
        for component in _components(begins):
            members = frozenset(component)
            if len(members) == 1 and component[0] not in begins[component[0]]:
                cycle[component[0]], seeds[component[0]] = frozenset(), first[component[0]]
                continue
            shared = [e for name in sorted(members) for e in first[name] if e[0] not in members]
            for name in members:
                cycle[name], seeds[name] = members, shared
                for label, target in first[name]:
                    if label in members:
                        wiring.free[wiring.ends[label][1]].append(target)
        return cycle, seeds

    def _entry(self, name: str) -> int:
        if name not in self._entries:
            self._entries[name] = self._place(final=False)
            self._todo.append(name)
        return self._entries[name]

    def _place(self, *, final: bool) -> int:
        self._final.append(final)
        self._edges.append([])
        if len(self._final) > NETWORK_BOUND:
            raise TooComplex(f"a grammar of more than {NETWORK_BOUND} places")
        return len(self._final) - 1

    def _network(self, name: str) -> None:
        if self._subsets(name, merge=True):
            return
        self._subsets(name, merge=False)

    def _subsets(self, name: str, *, merge: bool) -> bool:
        """Build the places of a rule; where there are too many sets of states, one place for each state instead."""
        wiring, end = self._wiring, self._wiring.ends[name][1]
        known: dict[frozenset[int], int] = {}
        todo: list[tuple[int, list[tuple[Label, int]]]] = [(self._entries[name], self._seeds[name])]
        first_new = len(self._final)
        while todo:
            place, edges = todo.pop()
            by_label: dict[Label, set[int]] = {}
            moves: list[tuple[Label, frozenset[int]]] = []
            for label, target in edges:
                if merge:
                    by_label.setdefault(label, set()).add(target)
                else:
                    moves.append((label, frozenset((target,))))
            moves.extend((label, frozenset(targets)) for label, targets in by_label.items())
            found = []
            for label, targets in moves:
                reached = wiring.closure(targets)
                key = frozenset(s for s in reached if wiring.edges[s] or s == end)
                if key not in known:
                    known[key] = self._place(final=end in key)
                    todo.append((known[key], [e for s in sorted(key) for e in wiring.edges[s]]))
                    if merge and len(known) > SUBSET_BOUND:
                        del self._final[first_new:], self._edges[first_new:]
                        return False
                found.append((label, known[key]))
            self._edges[place] = list(dict.fromkeys(found))
        for edges in (self._edges[self._entries[name]], *self._edges[first_new:]):
            for label, _ in edges:
                if isinstance(label, str):
                    self._entry(label)
        return True


# --- the parser --------------------------------------------------------------------------------------------------


class Scan:
    """A terminal partly read. ``accepting``: it may end here; ``more``: it may go on."""

    __slots__ = ("__weakref__", "accepting", "after", "automaton", "more", "state")

    def __init__(self, automaton: Automaton[Any], state: Any, accepting: bool, more: bool) -> None:
        self.automaton = automaton
        self.state = state
        self.accepting = accepting
        self.more = more
        self.after: dict[int, Scan | None] | None = None  # only of regular terminals


Frame = tuple[int, "Stack | None"]


class Stack:
    """The stacks of places to return to: a set of frames, each a place and the stacks below it.

    BOTTOM as a frame stands for the end of the whole text. Compare by identity."""

    __slots__ = ("__weakref__", "frames", "returns")

    def __init__(self, frames: frozenset[Frame]) -> None:
        self.frames = frames
        # Where one may be after the rule on top has ended, places that only end left out; and whether all may end.
        self.returns: tuple[tuple[tuple[int, Stack], ...], bool] | None = None


BOTTOM: Frame = (-1, None)


class State:
    """A state of the parser. Compare by identity: equal states are the same object.

    ``live``: terminals partly read, each with the place after it and the stacks there. ``places``: places reached at
    the end of a terminal, with their stacks."""

    __slots__ = ("__weakref__", "accepting", "after", "live", "places", "reach")

    def __init__(
        self, live: tuple[tuple[Scan, int, Stack], ...], places: tuple[tuple[int, Stack], ...], accepting: bool
    ) -> None:
        self.live = live
        self.places = places
        self.accepting = accepting
        self.reach: tuple[tuple[int, Stack], ...] | None = None
        self.after: dict[int, State | None] | None = None

    def __repr__(self) -> str:
        return f"<State of {len(self.live)} terminals and {len(self.places)} places{', accepting' * self.accepting}>"


class Grammar:
    """A context-free grammar as an automaton over bytes. All ``rules`` must be needed; ``automaton`` also folds them.

    barred: an automaton embedded in the rules that no text may begin with, wherever they would let it; it must always
    be possible to leave it out.
    """

    def __init__(self, rules: Mapping[str, Body], root: str, *, barred: Automaton[Any] | None = None) -> None:
        wiring = _wiring(rules)
        self._barred = barred
        self._empty = root in wiring.nullable
        self._entry, self._places = _Networks(wiring).build(root)
        self._terminals = wiring.terminals
        self._rank = self._ranks()
        self._goes_on = [bool(p.reads or p.calls or p.jumps) for p in self._places]
        self._lock = threading.Lock()
        self._stacks: WeakValueDictionary[frozenset[Frame], Stack] = WeakValueDictionary()
        self._states: WeakValueDictionary[Hashable, State] = WeakValueDictionary()
        self._regular: dict[Hashable, Scan | None] = {}
        self._embedded: WeakValueDictionary[Hashable, Scan] = WeakValueDictionary()
        self._first: dict[int, tuple[tuple[Scan, int], ...]] = {}
        self._covered: dict[tuple[Stack, Stack], bool] = {}
        self._remembering: list[State] = []
        self._remembered = 0
        self._openers = [self._opener(t) for t in self._terminals]
        bottom = self._stack(frozenset((BOTTOM,)))
        self._start = self._state((), ((self._entry, bottom),) if self._goes_on[self._entry] else (), self._empty)

    def _ranks(self) -> dict[int, int]:
        """The places where rules start, in an order in which none calls an earlier one before its first byte."""
        entries = {e for p in self._places for e, _ in p.calls} | {e for p in self._places for e in p.jumps}
        entries.add(self._entry)
        rank: dict[int, int] = {}
        for start in sorted(entries):
            work = [(start, iter(self._called(start)))]
            while work:
                place, following = work[-1]
                for other in following:
                    if other not in rank:
                        work.append((other, iter(self._called(other))))
                        break
                else:
                    work.pop()
                    rank.setdefault(place, -len(rank))
        return rank

    def _called(self, place: int) -> tuple[int, ...]:
        return (*(e for e, _ in self._places[place].calls), *self._places[place].jumps)

    # The protocol

    def start(self) -> State | None:
        return self._start if self._start.places or self._empty else None

    def accepting(self, state: State) -> bool:
        return state.accepting

    def step(self, state: State, byte: int) -> State | None:
        after = state.after
        if after is None:
            after = state.after = {}
            self._remembering.append(state)
        elif byte in after:
            return after[byte]
        following = self._step(state, byte)
        self._remembered += 1
        if self._remembered > MEMO_BOUND:
            self._forget()
        after[byte] = following
        return following

    def _forget(self) -> None:
        with self._lock:
            remembering, self._remembering, self._remembered = self._remembering, [], 0
        for state in remembering:
            state.after = None

    def viable_bytes(self, state: State) -> list[int]:
        """Exactly the bytes that ``step`` does not refuse, in order."""
        found = 0
        for scan, _, _ in state.live:
            found |= self._next_bytes(scan.automaton, scan.state)
        for place, _ in state.reach if state.reach is not None else self._reach(state):
            for terminal, _ in self._places[place].reads:
                automaton, start = self._openers[terminal]
                if start is not None and (automaton is not self._barred or state is not self._start):
                    found |= self._next_bytes(automaton, start)
        return [byte for byte in range(256) if found >> byte & 1]

    def _next_bytes(self, automaton: Automaton[Any], state: Any) -> int:
        """The bytes that an automaton does not refuse, as the bits of a number."""
        if isinstance(automaton, Utf8) and not state.pending:
            return codepoints.leads(regular.live(state.node))
        if isinstance(automaton, WithViableBytes):
            return sum(1 << byte for byte in automaton.viable_bytes(state))
        some = range(0x80, 0xC0) if isinstance(automaton, Utf8) else range(256)
        return sum(1 << byte for byte in some if automaton.step(state, byte) is not None)

    # One byte

    def _step(self, state: State, byte: int) -> State | None:
        read: list[tuple[Scan, int, Stack]] = []
        for scan, target, stack in state.live:
            after = self._scanned(scan, byte)
            if after is not None:
                read.append((after, target, stack))
        for place, stack in state.reach if state.reach is not None else self._reach(state):
            for after, target in self._firsts(place, byte):
                if after.automaton is not self._barred or state is not self._start:
                    read.append((after, target, stack))
        if not read:
            return None
        if len(read) > ITEM_BOUND:
            raise TooComplex(f"a grammar with more than {ITEM_BOUND} ways to read a text at once")
        live: dict[tuple[Scan, int], Stack] = {}
        places: dict[int, Stack] = {}
        accepting = False
        for scan, target, stack in read:
            if scan.more:
                self._add(live, (scan, target), stack)
            if scan.accepting:
                if self._goes_on[target]:
                    self._add(places, target, stack)
                if self._places[target].final:
                    returned, ends = stack.returns or self._returns(stack)
                    accepting |= ends
                    for back, below in returned:
                        self._add(places, back, below)
        return self._state(tuple((*k, s) for k, s in live.items()), tuple(places.items()), accepting)

    def _add(self, found: dict[Any, Stack], key: Any, stack: Stack) -> None:
        known = found.get(key)
        if known is None:
            found[key] = stack
        elif not self._covers(known, stack):
            found[key] = stack if self._covers(stack, known) else self._stack(known.frames | stack.frames)

    def _covers(self, one: Stack, other: Stack, depth: int = 0) -> bool:
        """Whether every stack of ``other`` is seen to be one of ``one``. A no may mean that it was not looked for."""
        if one is other or other.frames <= one.frames:
            return True
        known = self._covered.get((one, other))
        if known is None and depth < COVER_DEPTH:
            known = all(self._has(one, frame, depth) for frame in other.frames)
            if len(self._covered) > COVER_BOUND:
                self._covered.clear()
            self._covered[one, other] = known
        return bool(known)

    def _has(self, stack: Stack, frame: Frame, depth: int) -> bool:
        if frame in stack.frames:
            return True
        place, below = frame
        return below is not None and any(
            p == place and b is not None and self._covers(b, below, depth + 1) for p, b in stack.frames
        )

    def _returns(self, stack: Stack) -> tuple[tuple[tuple[int, Stack], ...], bool]:
        """Fill in ``stack.returns``, those below a place that may end first."""
        work = [stack]
        while work:
            below = [
                b for place, b in work[-1].frames
                if b is not None and b.returns is None and self._places[place].final
            ]  # fmt: skip
            if below:
                work.extend(below)
                continue
            one = work.pop()
            found: dict[int, Stack] = {}
            ends = False
            for place, b in one.frames:
                if b is None:
                    ends = True
                    continue
                if self._goes_on[place]:
                    self._add(found, place, b)
                if self._places[place].final:
                    assert b.returns is not None
                    ends |= b.returns[1]
                    for back, under in b.returns[0]:
                        self._add(found, back, under)
            one.returns = tuple(found.items()), ends
        assert stack.returns is not None
        return stack.returns

    def _reach(self, state: State) -> tuple[tuple[int, Stack], ...]:
        """The places of a state and all that are reached by calls before the next byte."""
        reached = list(state.places)
        waiting: dict[int, set[Frame]] = {}
        for place, stack in reached:
            self._call(place, stack, waiting)
        while waiting:
            entry = min(waiting, key=self._rank.__getitem__)
            stack = self._stack(frozenset(waiting.pop(entry)))
            reached.append((entry, stack))
            self._call(entry, stack, waiting)
        state.reach = tuple(r for r in reached if self._places[r[0]].reads)
        return state.reach

    def _call(self, place: int, stack: Stack, waiting: dict[int, set[Frame]]) -> None:
        _, _, calls, jumps = self._places[place]
        for entry, back in calls:
            waiting.setdefault(entry, set()).add((back, stack))
        for entry in jumps:
            waiting.setdefault(entry, set()).update(stack.frames)

    # Terminals

    def _opener(self, terminal: Regular | Embedded) -> tuple[Automaton[Any], Any]:
        made: Automaton[Any] = Utf8(terminal.node) if isinstance(terminal, Regular) else terminal.automaton
        return made, made.start()

    def _firsts(self, place: int, byte: int) -> tuple[tuple[Scan, int], ...]:
        key = place << 8 | byte
        found = self._first.get(key)
        if found is None:
            opened = []
            for terminal, target in self._places[place].reads:
                automaton, start = self._openers[terminal]
                scan = self._scan(automaton, start, byte) if start is not None else None
                if scan is not None:
                    opened.append((scan, target))
            found = tuple(opened)
            if all(isinstance(scan.automaton, Utf8) for scan, _ in found):  # others come without end
                self._first[key] = found
        return found

    def _scanned(self, scan: Scan, byte: int) -> Scan | None:
        if scan.after is None:
            return self._scan(scan.automaton, scan.state, byte)
        if byte in scan.after:
            return scan.after[byte]
        following = scan.after[byte] = self._scan(scan.automaton, scan.state, byte)
        return following

    def _scan(self, automaton: Automaton[Any], state: Any, byte: int) -> Scan | None:
        after = automaton.step(state, byte)
        if after is None:
            return None
        if isinstance(automaton, Utf8):
            assert isinstance(after, Spelled)
            key: Hashable = (after.node.id, after.pending)
            if key not in self._regular:
                more = after.pending != NOTHING or bool(regular.live(after.node))
                scan = Scan(automaton, after, automaton.accepting(after), more)
                scan.after = {}
                self._regular.setdefault(key, scan)
            return self._regular[key]
        key = (id(automaton), after)
        with self._lock:
            found = self._embedded.get(key)
            if found is None:
                found = self._embedded[key] = Scan(automaton, after, automaton.accepting(after), more=True)
        return found

    # Equal values as the same object

    def _stack(self, frames: frozenset[Frame]) -> Stack:
        if 1 < len(frames) <= COVER_FRAMES:
            kept = set(frames)
            for frame in frames:
                if self._is_covered(frame, kept):
                    kept.discard(frame)
            frames = frozenset(kept)
        if len(frames) > ITEM_BOUND:
            raise TooComplex(f"a grammar with more than {ITEM_BOUND} ways to be nested at once")
        with self._lock:
            found = self._stacks.get(frames)
            if found is None:
                found = self._stacks[frames] = Stack(frames)
        return found

    def _is_covered(self, frame: Frame, frames: Iterable[Frame]) -> bool:
        """Whether another frame has the same place and more stacks below it."""
        place, below = frame
        return below is not None and any(
            p == place and b is not None and b is not below and self._covers(b, below) for p, b in frames
        )

    def _state(
        self, live: tuple[tuple[Scan, int, Stack], ...], places: tuple[tuple[int, Stack], ...], accepting: bool
    ) -> State:
        key = (frozenset(live), frozenset(places), accepting)
        with self._lock:
            found = self._states.get(key)
            if found is None:
                found = self._states[key] = State(live, places, accepting)
        return found
