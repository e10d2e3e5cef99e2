"""Mask rows by the definition: a token is allowed exactly if its bytes keep the prefix viable. numpy only.

The vocabulary is a tree of bytes, walked level by level from the state; equal (state, byte) pairs are stepped once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.backends.naive.network import Automaton, State
from harness.bitmask import Row
from harness.vocabulary import Vocabulary

ROWS_LIMIT_BYTES = 64 << 20
STEPS_LIMIT = 500_000
"""Remembered steps of one grammar, about 150 bytes each, before they are forgotten."""

_DEAD = -1


@dataclass(frozen=True)
class Level:
    """The tree's nodes at one depth. parent: index into the level above; byte: what leads here; both of shape [n].
    offset: of the first node among all nodes."""

    offset: int
    parent: npt.NDArray[np.int64]
    byte: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """The bytes of all tokens. node: of shape [V], the node at which a token ends, or ``size`` for tokens without
    bytes, which no mask ever allows."""

    vocabulary: Vocabulary
    levels: tuple[Level, ...]
    node: npt.NDArray[np.int64]
    size: int


def build(vocabulary: Vocabulary) -> Tree:
    parents: list[list[int]] = []
    labels: list[list[int]] = []
    ends: list[tuple[int, int, int]] = []  # token, level, index in the level
    path: list[int] = []
    previous = b""
    ordinary = (token for token in range(vocabulary.size) if vocabulary.tokens[token])
    for token in sorted(ordinary, key=vocabulary.tokens.__getitem__):
        data = vocabulary.tokens[token]
        common = 0
        for a, b in zip(previous, data, strict=False):
            if a != b:
                break
            common += 1
        del path[common:]
        for depth in range(common, len(data)):
            if depth == len(parents):
                parents.append([])
                labels.append([])
            parents[depth].append(path[-1] if path else 0)
            labels[depth].append(data[depth])
            path.append(len(parents[depth]) - 1)
        ends.append((token, len(data) - 1, path[-1]))
        previous = data
    offsets = np.cumsum([0, *map(len, parents)])
    size = int(offsets[-1])
    node = np.full(vocabulary.size, size, dtype=np.int64)
    for token, level, index in ends:
        node[token] = offsets[level] + index
    levels = tuple(
        Level(int(offset), np.array(parent, dtype=np.int64), np.array(label, dtype=np.int64))
        for offset, parent, label in zip(offsets, parents, labels, strict=False)
    )
    return Tree(vocabulary, levels, node, size)


class Masks:
    """The rows of an automaton's states over a vocabulary, remembered while there is room."""

    def __init__(self, automaton: Automaton, tree: Tree) -> None:
        self._automaton = automaton
        self._tree = tree
        self._rows: OrderedDict[State, Row] = OrderedDict()
        self._rows_limit = max(1, ROWS_LIMIT_BYTES // (4 * tree.vocabulary.words))
        self._ids: dict[State, int] = {}
        self._states: list[State] = []
        self._steps: dict[int, int] = {}

    def row(self, state: State) -> Row:
        """The mask after what led to ``state``: int32 of shape ``[words]``, not to be written to."""
        found = self._rows.get(state)
        if found is not None:
            self._rows.move_to_end(state)
            return found
        row = self._rows[state] = self._walk(state)
        if len(self._rows) > self._rows_limit:
            self._rows.popitem(last=False)
        return row

    def _walk(self, state: State) -> Row:
        if len(self._steps) > STEPS_LIMIT:
            self._ids.clear()
            self._states.clear()
            self._steps.clear()
            self._automaton.forget()
        tree = self._tree
        viable = np.zeros(tree.size + 1, dtype=np.bool_)  # the last one stands for tokens without bytes
        here = np.array([self._id(state)])
        for level in tree.levels:
            before = here[level.parent]
            here = np.full(before.size, _DEAD)
            alive = np.flatnonzero(before != _DEAD)
            if not alive.size:
                break
            pairs, which = np.unique(before[alive] << 8 | level.byte[alive], return_inverse=True)
            here[alive] = np.array([self._step(pair) for pair in pairs.tolist()])[which]
            viable[level.offset : level.offset + here.size] = here != _DEAD
        allowed = viable[tree.node]
        allowed[list(tree.vocabulary.eos_ids)] = self._automaton.accepting(state)
        return bitmask.pack(allowed)

    def _id(self, state: State) -> int:
        found = self._ids.get(state)
        if found is None:
            found = self._ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _step(self, pair: int) -> int:
        """One byte, ``pair & 255``, from the state numbered ``pair >> 8``: the state's number, or −1 where dead."""
        found = self._steps.get(pair)
        if found is None:
            after = self._automaton.step(self._states[pair >> 8], pair & 255)
            found = self._steps[pair] = self._id(after) if after else _DEAD
        return found
