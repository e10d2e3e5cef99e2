"""Rules of automata that call each other, and the one thing they are stepped by: a set of stacks.

The definition, kept literally: a prefix is viable if some completion is in the language. Whatever cannot finish is
removed before the first step, so every stack that is kept can reach acceptance, and a state is dead exactly if it is
empty. Left recursion is refused by name; every other grammar is followed exactly, ambiguity and all.
"""

from __future__ import annotations

import graphlib
import heapq
from collections.abc import Callable, Iterable
from functools import cached_property

from harness.backends.naive.expressions import (
    LIMIT,
    Bytes,
    Call,
    Chars,
    Expr,
    Label,
    Nfa,
    Ranges,
    automaton,
    union,
)
from harness.backends.naive.spelling import Spelling, utf8
from harness.errors import UnsupportedError

Spell = Callable[[Ranges], list[Spelling]]
"""How a code point of a set is written in bytes."""


class Network:
    """Named rules."""

    def __init__(self) -> None:
        self.rules: dict[str, Nfa] = {}
        self._spelled: dict[tuple[Spell, Ranges], Label | None] = {}
        self._size = 0

    def rule(self, name: str, body: Expr | Nfa, spell: Spell = utf8) -> Call:
        """Define a rule; the call of it. Its ``Chars`` are spelled out now, by ``spell``."""
        assert name not in self.rules, f"rule {name!r} is defined twice"
        nfa = body if isinstance(body, Nfa) else automaton(body)
        self._size += len(nfa.labelled)
        if self._size > LIMIT:
            raise UnsupportedError(f"needs more than {LIMIT:,} states", keyword="size")
        for node, edges in enumerate(nfa.labelled):
            written = (
                (self._bytes(label, spell) if isinstance(label, Chars) else label, after) for label, after in edges
            )
            nfa.labelled[node] = [(label, after) for label, after in written if label is not None]
        self.rules[name] = nfa
        return Call(name)

    def _bytes(self, chars: Chars, spell: Spell) -> Label | None:
        """One byte, or the call of a rule for several; None where the set has no spelling."""
        key = spell, chars.ranges
        if key not in self._spelled:
            spellings = spell(chars.ranges)
            label: Label | None = None
            if spellings and all(len(spelling) == 1 for spelling in spellings):
                label = Bytes(union(*(spelling[0] for spelling in spellings)))
            elif spellings:
                label = self.rule(f"characters {len(self._spelled)}", _tree(spellings))
            self._spelled[key] = label
        return self._spelled[key]


def _tree(spellings: Iterable[Spelling]) -> Nfa:
    """The spellings as an automaton that shares equal beginnings."""
    nfa = Nfa()
    end = nfa.node(final=True)
    index: dict[Spelling, int] = {(): 0}
    for spelling in spellings:
        for i, ranges in enumerate(spelling[:-1]):
            if spelling[: i + 1] not in index:
                index[spelling[: i + 1]] = nfa.node()
                nfa.labelled[index[spelling[:i]]].append((Bytes(ranges), index[spelling[: i + 1]]))
        nfa.labelled[index[spelling[:-1]]].append((Bytes(spelling[-1]), end))
    return nfa


class Stack:
    """A node, and below it the node to go on at when its rule has ended. Interned: equal stacks are the same object."""

    __slots__ = ("below", "node")

    def __init__(self, node: int, below: Stack | None) -> None:
        self.node = node
        self.below = below


State = frozenset[Stack]
"""The stacks that stand before a byte, and the end where it is reached. Empty: dead."""


class Automaton:
    """A network's rule as a byte automaton: ``start``, ``step``, ``accepting``. States are values."""

    def __init__(self, network: Network, root: Call) -> None:
        """UnsupportedError where the language is empty, or a rule calls itself before reading any byte."""
        names = _reachable(network, root.rule)
        first: dict[str, int] = {}
        size = 0
        for name in names:
            first[name] = size
            size += len(network.rules[name].labelled)
        # The last node belongs to no rule: it is the end of the document.
        self._byte: list[list[tuple[Ranges, int]]] = [[] for _ in range(size + 1)]
        self._empty: list[list[int]] = [[] for _ in range(size + 1)]
        self._call: list[list[tuple[int, int]]] = [[] for _ in range(size + 1)]
        self._final = [False] * (size + 1)
        for name in names:
            nfa, base = network.rules[name], first[name]
            for node, edges in enumerate(nfa.labelled):
                for label, after in edges:
                    if isinstance(label, Call):
                        self._call[base + node].append((first[label.rule], base + after))
                    else:
                        self._byte[base + node].append((label.ranges, base + after))
                self._empty[base + node] = [base + after for after in nfa.empty[node]]
                self._final[base + node] = node in nfa.finals
        self._least = _least_bytes(self._byte, self._empty, self._call, self._final)
        self._remove_useless()
        if self._least[first[root.rule]] is None:
            raise UnsupportedError("the language is empty: no document satisfies this constraint", keyword="empty")
        self._refuse_left_recursion({node: name for name, node in first.items()})
        self._tail = self._tails()
        self._moves: list[dict[int, list[int]] | None] = [None] * (size + 1)
        self._stacks: dict[tuple[int, Stack | None], Stack] = {}
        self._end = Stack(size, None)
        self._root = first[root.rule]

    @cached_property
    def start(self) -> State:
        return self._closed([self._stack(self._root, None)])

    def step(self, state: State, byte: int) -> State:
        """The state after one more byte; empty where no document goes on like that."""
        return self._closed(
            [self._stack(after, stack.below) for stack in state for after in self._moves_of(stack.node).get(byte, ())]
        )

    def accepting(self, state: State) -> bool:
        """Whether what was read is a whole document."""
        return self._end in state

    def viable(self, state: State) -> frozenset[int]:
        """The bytes after which some document goes on: those that ``step`` does not answer with a dead state."""
        return frozenset(byte for stack in state for byte in self._moves_of(stack.node))

    def completion(self, state: State) -> bytes:
        """The rest of a shortest document that goes on from a state that is not dead."""
        out = bytearray()
        while not self.accepting(state):
            _, byte = min(self._first_byte(stack) for stack in state)
            out.append(byte)
            state = self.step(state, byte)
        return bytes(out)

    def _first_byte(self, stack: Stack) -> tuple[int, int]:
        """How many bytes a stack needs to the end of the document, at least, and the first of them."""
        below, current = 0, stack.below
        while current is not None:
            below += self._bytes_from(current.node)
            current = current.below
        return min((1 + self._bytes_from(after) + below, ranges[0][0]) for ranges, after in self._byte[stack.node])

    def _bytes_from(self, node: int) -> int:
        least = self._least[node]
        assert least is not None, "a useless node was kept"
        return least

    def forget(self) -> None:
        """Let interned stacks go. States already handed out stay right; they are only no longer recognised as equal
        to new ones."""
        self._stacks.clear()

    def _closed(self, stacks: list[Stack]) -> State:
        """Follow everything that reads no byte."""
        seen: set[Stack] = set()
        out: set[Stack] = set()
        while stacks:
            stack = stacks.pop()
            if stack in seen:
                continue
            seen.add(stack)
            node, below = stack.node, stack.below
            if self._byte[node]:
                out.add(stack)
            stacks += [self._stack(after, below) for after in self._empty[node]]
            for start, after in self._call[node]:
                # Where nothing is left to do after the call, come back directly to below: right recursion, and lists
                # written with it, then need no deeper stack for every element.
                stacks.append(self._stack(start, below if self._tail[after] else self._stack(after, below)))
            if self._final[node]:
                if below is None:
                    out.add(self._end)
                else:
                    stacks.append(below)
        return frozenset(out)

    def _stack(self, node: int, below: Stack | None) -> Stack:
        found = self._stacks.get((node, below))
        if found is None:
            found = self._stacks[node, below] = Stack(node, below)
        return found

    def _moves_of(self, node: int) -> dict[int, list[int]]:
        moves = self._moves[node]
        if moves is None:
            moves = self._moves[node] = {}
            for ranges, after in self._byte[node]:
                for low, high in ranges:
                    for byte in range(low, high + 1):
                        moves.setdefault(byte, []).append(after)
        return moves

    def _remove_useless(self) -> None:
        """Drop every edge and call after which its rule cannot end."""
        least = self._least
        for node in range(len(least)):
            self._byte[node] = [(r, after) for r, after in self._byte[node] if least[after] is not None]
            self._empty[node] = [after for after in self._empty[node] if least[after] is not None]
            self._call[node] = [
                (start, after)
                for start, after in self._call[node]
                if least[start] is not None and least[after] is not None
            ]

    def _refuse_left_recursion(self, rules: dict[int, str]) -> None:
        """``rules``: the name of each rule by its first node."""
        calls: dict[str, set[str]] = {}
        for root, name in rules.items():
            called: set[str] = set()
            todo, seen = [root], {root}
            while todo:
                node = todo.pop()
                called.update(rules[start] for start, _ in self._call[node])
                nexts = [*self._empty[node], *(after for start, after in self._call[node] if self._least[start] == 0)]
                todo += [after for after in nexts if after not in seen]
                seen.update(nexts)
            calls[name] = called
        try:
            graphlib.TopologicalSorter(calls).prepare()
        except graphlib.CycleError as error:
            cycle = " → ".join(reversed(error.args[1]))
            raise UnsupportedError(
                f"left recursion: a rule calls itself before reading a byte ({cycle})", keyword="left recursion"
            ) from error

    def _tails(self) -> list[bool]:
        """Nodes at which nothing is left to do but to end the rule."""
        tail = [False] * len(self._final)
        changed = True
        while changed:
            changed = False
            for node, after in enumerate(self._empty):
                if tail[node] or self._byte[node] or self._call[node] or not (after or self._final[node]):
                    continue
                if all(tail[n] for n in after):
                    tail[node] = changed = True
        return tail


def _reachable(network: Network, root: str) -> list[str]:
    names, todo = {root}, [root]
    while todo:
        for edges in network.rules[todo.pop()].labelled:
            for label, _ in edges:
                if isinstance(label, Call) and label.rule not in names:
                    names.add(label.rule)
                    todo.append(label.rule)
    return sorted(names)


def _least_bytes(
    reading: list[list[tuple[Ranges, int]]],
    empty: list[list[int]],
    calls: list[list[tuple[int, int]]],
    final: list[bool],
) -> list[int | None]:
    """The fewest bytes between each node and the end of its rule; None where it cannot end. Settled in ascending order
    (Knuth, "A generalization of Dijkstra's algorithm", 1977)."""
    before: list[list[tuple[int, int]]] = [[] for _ in final]
    calling: list[list[tuple[int, int]]] = [[] for _ in final]
    for node in range(len(final)):
        for _, after in reading[node]:
            before[after].append((node, 1))
        for after in empty[node]:
            before[after].append((node, 0))
        for start, after in calls[node]:
            calling[start].append((node, after))
            calling[after].append((node, start))
    least: list[int | None] = [None] * len(final)
    todo = [(0, node) for node, is_final in enumerate(final) if is_final]
    while todo:
        bytes_, node = heapq.heappop(todo)
        if least[node] is not None:
            continue
        least[node] = bytes_
        for other, more in before[node]:
            heapq.heappush(todo, (bytes_ + more, other))
        for other, needed in calling[node]:
            also = least[needed]
            if also is not None:
                heapq.heappush(todo, (bytes_ + also, other))
    return least
