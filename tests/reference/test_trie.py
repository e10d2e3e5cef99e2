"""The tree of tokens against the tokens themselves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reference import trie
from harness.vocabulary import Vocabulary, synthetic


def spelled(tree: trie.Trie, node: int) -> bytes:
    """The bytes on the way to a node."""
    out = b""
    while node:
        out = tree.labels[node : node + 1] + out
        node = int(tree.parent[node])
    return out


def check(tree: trie.Trie, tokens: dict[int, bytes]) -> None:
    prefixes = {text[:end] for text in tokens.values() for end in range(len(text) + 1)} | {b""}
    assert {spelled(tree, node) for node in range(tree.nodes)} == prefixes
    assert tree.nodes == len(prefixes)
    assert tree.longest == max(map(len, prefixes))
    for node in range(tree.nodes):
        text = spelled(tree, node)
        assert tree.ids(node) == sorted(i for i, t in tokens.items() if t == text)
        assert tree.find(text) == node
        children = range(tree.first_list[node], tree.first_list[node + 1])
        assert [tree.labels[c] for c in children] == sorted({p[-1] for p in prefixes if p[:-1] == text and p})
        assert all(tree.parent[c] == node for c in children)
        assert tree.below(node) == sum(p.startswith(text) and p != text for p in prefixes)
    for depth in range(tree.longest + 1):
        level = range(int(tree.levels[depth]), int(tree.levels[depth + 1]))
        assert all(len(spelled(tree, node)) == depth for node in level)
    assert sorted(tree.tokens.tolist()) == sorted(tokens)
    assert [spelled(tree, node) for node in tree.node_of.tolist()] == [tokens[t] for t in tree.tokens.tolist()]


def test_the_synthetic_vocabulary_s_tree_is_its_tokens_without_special_ones() -> None:
    vocabulary = synthetic()
    check(trie.of(vocabulary), {i: text for i, text in enumerate(vocabulary.tokens) if text})


@given(st.lists(st.binary(min_size=1, max_size=5).map(lambda b: bytes(c % 3 for c in b)), min_size=1, max_size=20))
def test_any_tokens_tree_is_its_tokens(texts: list[bytes]) -> None:
    ids = random.Random(len(texts)).sample(range(100), len(texts))
    check(trie.build(texts, ids, 100), dict(zip(ids, texts, strict=True)))


def test_one_tree_is_kept_for_equal_vocabularies() -> None:
    assert trie.of(synthetic()) is trie.of(synthetic())


def test_no_token_is_found_where_there_is_none() -> None:
    tree = trie.build([b"ab", b"abc"], [4, 7], 8)
    assert tree.find(b"b") == -1
    assert tree.find(b"abcd") == -1
    assert tree.ids(tree.find(b"a")) == []
    assert tree.along(b"abx") == [4]
    assert tree.along(b"abc") == [4, 7]


def test_greedy_takes_the_longest_token_and_names_a_byte_without_one() -> None:
    tree = trie.build([b"a", b"ab", b"abc", b"c"], [0, 1, 2, 3], 4)
    assert list(trie.greedy(tree, b"abcab")) == [2, 1]
    with pytest.raises(ValueError, match="0x62"):
        list(trie.greedy(tree, b"abb"))


def test_a_vocabulary_of_special_tokens_alone_has_a_bare_root() -> None:
    tree = trie.of(Vocabulary("bare", (b"",), (0,), frozenset({0})))
    assert tree.nodes == 1
    assert tree.longest == 0
