"""A tree of drafts, walked depth-first: accept on the way down, rewind on the way up.

A node stands for the state after the tokens from the root to it. Node 0 is the state as it is; its row says which of
its children are legal, their rows which of theirs. A refused node is not entered, nor is anything below it, and an
end-of-sequence is not entered either, since nothing can follow it: the rows of these nodes are left alone. Nobody reads
them, because a token is only ever sampled where its parent's row allows it. This is what SGLang does with the trees of
its speculative decoding (``spec_utils.traverse_tree``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.backends.protocol import NativeMatcher
from harness.bitmask import Row

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DraftTree:
    """parents: each node's parent, which comes before it; -1 for node 0. tokens: the draft that leads to each node; of
    node 0 it is not looked at. ValueError where the two do not make a tree."""

    parents: tuple[int, ...]
    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.parents or self.parents[0] != -1 or len(self.tokens) != len(self.parents):
            raise ValueError("a draft tree has node 0 without a parent, and one token for each node")
        if any(not 0 <= parent < node for node, parent in enumerate(self.parents) if node):
            raise ValueError("a node's parent comes before it")

    @property
    def nodes(self) -> int:
        return len(self.parents)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Of each node, in the order of their numbers."""
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents):
            if node:
                found[parent].append(node)
        return tuple(map(tuple, found))

    @cached_property
    def first_child(self) -> Indices:
        """Shape [nodes], int64, -1 for none."""
        return np.array([own[0] if own else -1 for own in self.children], dtype=np.int64)

    @cached_property
    def next_sibling(self) -> Indices:
        """Shape [nodes], int64, -1 for none."""
        after = np.full(self.nodes, -1, dtype=np.int64)
        for own in self.children:
            after[list(own[:-1])] = own[1:]
        return after

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the root to ``node``."""
        found: list[int] = []
        while node:
            found.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(found))


def rows_call(matcher: NativeMatcher, tree: DraftTree, rows: Row, eos: frozenset[int]) -> Callable[[], None]:
    """A callable that fills the row of every node that is reached and leaves the matcher where it was.

    rows: int32, ``[nodes, words(V)]``. The matcher's own calls are bound here, so that nothing but they and the walk
    is inside a clock.
    """
    fills = [matcher.fill_call(rows[node]) for node in range(tree.nodes)]
    accept, rewind = matcher.accept_call(), matcher.rollback_call()
    tokens, children, test = tree.tokens, tree.children, bitmask.test

    def visit(node: int) -> None:
        fills[node]()
        row = rows[node]
        for child in children[node]:
            token = tokens[child]
            if token not in eos and test(row, token):
                accept(token)
                visit(child)
                rewind(1)

    def walk() -> None:
        visit(0)

    return walk


def legal(tree: DraftTree, rows: Row, eos: frozenset[int]) -> tuple[int, ...]:
    """The nodes whose draft their parent's row allows, all above them being legal too and no end; ascending, without
    node 0, and with legal ends-of-sequence."""
    entered, found = {0}, []
    for node in range(1, tree.nodes):
        parent, token = tree.parents[node], tree.tokens[node]
        if parent in entered and bitmask.test(rows[parent], token):
            found.append(node)
            if token not in eos:
                entered.add(node)
    return tuple(found)


def reached(tree: DraftTree, rows: Row, eos: frozenset[int]) -> tuple[int, ...]:
    """The nodes whose rows a walk fills: node 0, and the legal ones that are no end-of-sequence; ascending."""
    return (0, *(node for node in legal(tree, rows, eos) if tree.tokens[node] not in eos))


def accepted(tree: DraftTree, nodes: tuple[int, ...], sampled: tuple[int, ...]) -> int:
    """How many of the tokens that the model itself says it finds among the legal ``nodes``, one below the other."""
    ways = {tree.path(node) for node in nodes}
    count = 0
    while count < len(sampled) and sampled[: count + 1] in ways:
        count += 1
    return count
