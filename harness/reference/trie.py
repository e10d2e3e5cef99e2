"""The bytes of a vocabulary's tokens as a tree, in flat arrays.

Nodes are numbered breadth first, the children of a node by byte. So the nodes of one depth lie next to each other, so
do the children of a node, and so do the nodes of one depth below a node. Tokens without bytes (special ones) are not
in the tree. Built level by level with numpy; nothing here knows what a token means.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from harness.vocabulary import Vocabulary

Ints = npt.NDArray[np.int32]

# Trees kept in a process: a run uses one or two vocabularies, a tree of 129,280 tokens takes about 10 MB.
KEPT = 4
# Bundles kept with a tree (1 KB and more each) before all are forgotten.
BUNDLES = 4_096


class Bundle:
    """Several nodes as one: a text leads from it to wherever it leads from any of them."""

    __slots__ = ("_children", "nodes")

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self._children: list[tuple[int, list[int], Place]] | None = None

    def children(self, trie: Trie) -> list[tuple[int, list[int], Place]]:
        """By each byte: the byte, the tokens that end there, and where it leads."""
        if self._children is None:
            below: dict[int, list[int]] = {}
            for node in self.nodes:
                for child in range(trie.first_list[node], trie.first_list[node + 1]):
                    below.setdefault(trie.labels[child], []).append(child)
            self._children = [
                (
                    byte,
                    [t for node in nodes for t in trie.ids(node)],
                    nodes[0] if len(nodes) == 1 else Bundle(tuple(nodes)),
                )
                for byte, nodes in below.items()
            ]
        return self._children


# A node, or several as one.
Place = int | Bundle


@dataclass(frozen=True, eq=False)
class Trie:
    """n nodes, the root is node 0.

    levels: int32 [depth + 2]: the nodes of depth d are levels[d] … levels[d + 1] − 1. parent: int32 [n]. labels: the
    byte that leads to each node (0 for the root), n bytes. first: int32 [n + 1]: the children of node i are
    first[i] … first[i + 1] − 1. token_first: int32 [n + 1] and tokens: int32: the ids whose bytes lead to node i are
    tokens[token_first[i]:token_first[i + 1]], ascending. size: the vocabulary's size V.
    """

    levels: Ints
    parent: Ints
    labels: bytes
    first: Ints
    token_first: Ints
    tokens: Ints
    size: int

    @property
    def nodes(self) -> int:
        return len(self.labels)

    @cached_property
    def label_array(self) -> npt.NDArray[np.uint8]:
        """``labels`` as an array."""
        return np.frombuffer(self.labels, dtype=np.uint8)

    @cached_property
    def first_list(self) -> list[int]:
        """``first`` as a list, which Python reads faster."""
        listed: list[int] = self.first.tolist()
        return listed

    @cached_property
    def token_first_list(self) -> list[int]:
        listed: list[int] = self.token_first.tolist()
        return listed

    @cached_property
    def parent_list(self) -> list[int]:
        listed: list[int] = self.parent.tolist()
        return listed

    @cached_property
    def node_of(self) -> Ints:
        """int32 [len(tokens)]: the node of each entry of ``tokens``."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.token_first))

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return len(self.levels) - 2

    def child(self, node: int, byte: int) -> int:
        """The child by a byte, or −1."""
        return self.labels.find(byte, self.first_list[node], self.first_list[node + 1])

    def find(self, text: bytes, start: int = 0) -> int:
        """The node that ``text`` leads to, or −1."""
        node = start
        for byte in text:
            node = self.child(node, byte)
            if node < 0:
                return -1
        return node

    @cached_property
    def token_list(self) -> list[int]:
        listed: list[int] = self.tokens.tolist()
        return listed

    def ids(self, node: int) -> list[int]:
        """The tokens that end at a node, ascending."""
        return self.token_list[self.token_first_list[node] : self.token_first_list[node + 1]]

    def along(self, text: bytes) -> list[int]:
        """The tokens that are prefixes of ``text``, itself included, the shortest first."""
        found: list[int] = []
        node = 0
        for byte in text:
            node = self.child(node, byte)
            if node < 0:
                break
            found.extend(self.ids(node))
        return found

    def path(self, start: int, node: int) -> bytes:
        """The bytes that lead from one node to another below it."""
        out = bytearray()
        while node != start:
            out.append(self.labels[node])
            node = self.parent_list[node]
        out.reverse()
        return bytes(out)

    def place(self, nodes: tuple[int, ...]) -> Place:
        """Some nodes as one; the same object for the same nodes."""
        if len(nodes) == 1:
            return nodes[0]
        found = self._bundles.get(nodes)
        if found is None:
            if len(self._bundles) >= BUNDLES:
                self._bundles.clear()
            found = self._bundles[nodes] = Bundle(nodes)
        return found

    @cached_property
    def _bundles(self) -> dict[tuple[int, ...], Bundle]:
        return {}

    def goes_on(self, nodes: Ints, follow: bytes) -> Ints:
        """Those of some nodes that have a child by one of the bytes ``follow``."""
        found = self._going_on.get(follow)
        if found is None:
            found = np.zeros(self.nodes, dtype=np.bool_)
            found[self.parent[1:][np.isin(self.label_array[1:], np.frombuffer(follow, dtype=np.uint8))]] = True
            self._going_on[follow] = found
        return nodes[found[nodes]]

    @cached_property
    def _going_on(self) -> dict[bytes, npt.NDArray[np.bool_]]:
        return {}

    def below(self, node: int) -> int:
        """How many nodes lie below a node."""
        count, low, high = 0, node, node + 1
        while low < high:
            low, high = self.first_list[low], self.first_list[high]
            count += high - low
        return count


def build(texts: Sequence[bytes], ids: Sequence[int] | Ints, size: int) -> Trie:
    """The tree of some texts, text i standing for token ids[i]; several may be equal, empty ones end at the root."""
    lengths = np.fromiter((len(text) for text in texts), dtype=np.int64, count=len(texts))
    starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    order = np.arange(len(texts))  # the texts that are longer than the depth reached
    node_of = np.zeros(len(texts), dtype=np.int64)
    levels, parents, labels = [0, 1], [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.uint8)]
    depth = 0
    while True:
        order = order[lengths[order] > depth]
        if not order.size:
            break
        keys = node_of[order] << 8 | data[starts[order] + depth]
        found, which = np.unique(keys, return_inverse=True)
        parents.append(found >> 8)
        labels.append((found & 255).astype(np.uint8))
        node_of[order] = levels[-1] + which
        levels.append(levels[-1] + found.size)
        depth += 1
    parent = np.concatenate(parents).astype(np.int32)
    nodes = parent.size
    # Nodes are in the order of their parents, so a parent's children begin where its first one stands.
    first = (1 + np.searchsorted(parent[1:], np.arange(nodes + 1))).astype(np.int32)
    numbers = np.asarray(ids, dtype=np.int32)
    by_node = np.lexsort((numbers, node_of))
    token_first = np.searchsorted(node_of[by_node], np.arange(nodes + 1)).astype(np.int32)
    return Trie(
        levels=np.asarray(levels, dtype=np.int32),
        parent=parent,
        labels=np.concatenate(labels).tobytes(),
        first=first,
        token_first=token_first,
        tokens=numbers[by_node],
        size=size,
    )


_kept: OrderedDict[str, Trie] = OrderedDict()
_lock = threading.Lock()


def of(vocabulary: Vocabulary) -> Trie:
    """The tree of a vocabulary's tokens, kept for the next call."""
    with _lock:
        trie = _kept.get(vocabulary.sha256)
        if trie is None:
            ids = [i for i, token in enumerate(vocabulary.tokens) if token]
            trie = _kept[vocabulary.sha256] = build([vocabulary.tokens[i] for i in ids], ids, vocabulary.size)
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(vocabulary.sha256)
        return trie


def greedy(trie: Trie, text: bytes) -> Iterable[int]:
    """Longest match first, of equal tokens the lowest id; ValueError at a byte that begins no token."""
    at = 0
    while at < len(text):
        node, best, end = 0, -1, at
        for i in range(at, len(text)):
            node = trie.child(node, text[i])
            if node < 0:
                break
            if trie.token_first_list[node] < trie.token_first_list[node + 1]:
                best, end = int(trie.tokens[trie.token_first_list[node]]), i + 1
        if best < 0:
            raise ValueError(f"no token begins with byte 0x{text[at]:02X}")
        yield best
        at = end
