"""A tree of drafts: a node is entered exactly where the reference engine accepts it, and everything is taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.backends.protocol import NativeDrafts, NativeMatcher
from harness.bitmask import Row
from harness.speculation import drafts, tree
from harness.speculation.lookahead import row_of
from harness.speculation.tree import DraftTree

from .subjects import EOS, TRACE, VOCABULARY, Subject, every, positions, subject, tokens


@st.composite
def trees(draw: st.DrawFn, position: int) -> DraftTree:
    """Any tree of up to eight drafts; along the first of each node's children the document goes on, mostly."""
    parents, drawn, depth, first = [-1], [-1], [0], [True]
    for node in range(1, 1 + draw(st.integers(0, 8))):
        parent = draw(st.integers(0, node - 1))
        own = first[parent] and parent not in parents[1:] and position + depth[parent] < len(TRACE)
        on_the_way = own and draw(st.integers(0, 4)) > 0
        drawn.append(TRACE[position + depth[parent]] if on_the_way else draw(tokens))
        parents.append(parent)
        depth.append(depth[parent] + 1)
        first.append(on_the_way)
    return DraftTree(tuple(parents), tuple(drawn))


def right_nodes(one: Subject, prefix: Sequence[int], given_tree: DraftTree) -> list[int]:
    """The nodes that the reference engine accepts, token after token from the root."""
    paths = {node: given_tree.path(node) for node in range(1, given_tree.nodes)}
    return [node for node, path in paths.items() if one.right_length(prefix, path) == len(path)]


@every
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_are_the_references_and_the_matcher_is_where_it_was(name: str, data: st.DataObject) -> None:
    one = subject(name)
    at = data.draw(positions)
    given_tree = data.draw(trees(at))
    matcher = one.native(TRACE[:at])
    rows = _block(given_tree)
    _check(one, at, given_tree, matcher, tree.rows_call(matcher, given_tree, rows, EOS), rows)
    reached = tree.reached(given_tree, rows, EOS)
    others = [node for node in range(given_tree.nodes) if node not in reached]
    assert (rows[others] == -1).all(), "rows of nodes that are not entered are left alone"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_librarys_own_traversal_is_the_walk(data: st.DataObject) -> None:
    pytest.importorskip("xgrammar")
    one = subject("xgrammar")
    at = data.draw(positions)
    given_tree = data.draw(trees(at))
    matcher = one.native(TRACE[:at])
    rows = _block(given_tree)
    numbers = np.array((0, *given_tree.tokens[1:]), dtype=np.int64)
    native = cast(NativeDrafts, matcher)
    call = native.draft_tree_call(given_tree.first_child, given_tree.next_sibling, numbers, rows)
    _check(one, at, given_tree, matcher, call, rows)


def _check(
    one: Subject, at: int, given_tree: DraftTree, matcher: NativeMatcher, call: Callable[[], object], rows: Row
) -> None:
    call()
    assert list(tree.legal(given_tree, rows, EOS)) == right_nodes(one, TRACE[:at], given_tree)
    for node in tree.reached(given_tree, rows, EOS):
        assert np.array_equal(rows[node], one.right_row((*TRACE[:at], *given_tree.path(node))))
    assert np.array_equal(row_of(matcher, VOCABULARY.size), one.right_row(TRACE[:at]))
    assert all(map(matcher.accept, (*TRACE[at:], *one.ending)))
    assert matcher.is_accepting()


def _block(given_tree: DraftTree) -> Row:
    return np.full((given_tree.nodes, VOCABULARY.words), -1, dtype=np.int32)


def test_children_and_siblings_are_links_over_the_parents() -> None:
    small = DraftTree((-1, 0, 0, 1, 1, 2), (-1, 10, 11, 12, 13, 14))
    assert small.children == ((1, 2), (3, 4), (5,), (), (), ())
    assert small.first_child.tolist() == [1, 3, 5, -1, -1, -1]
    assert small.next_sibling.tolist() == [-1, 2, -1, 4, -1, -1]
    assert small.path(4) == (10, 13)
    assert small.path(0) == ()


@pytest.mark.parametrize(
    ("parents", "drawn"), [((), ()), ((0,), (1,)), ((-1, 0), (1,)), ((-1, 1), (1, 2)), ((-1, 0, 2), (1, 2, 3))]
)
def test_what_is_no_tree_is_refused(parents: tuple[int, ...], drawn: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        DraftTree(parents, drawn)


def test_accepted_follows_the_models_tokens_down_the_legal_nodes() -> None:
    small = DraftTree(drafts.tree_parents(6), (-1, 10, 11, 12, 13, 14, 15))
    assert tree.accepted(small, (1, 2, 3, 4, 5, 6), (11, 14, 9)) == 2
    assert tree.accepted(small, (1, 2, 3), (11, 14)) == 1
    assert tree.accepted(small, (1, 2), (9,)) == 0
