"""Drafts fare as their source says, the same ones every time."""

from __future__ import annotations

import pytest

from harness import bitmask
from harness.speculation import drafts
from harness.speculation.lookahead import Fresh
from harness.speculation.tree import DraftTree, legal, reached
from harness.stages import walk

from .subjects import EOS, TRACE, VOCABULARY, subject

PARENTS = {"chain": drafts.chain_parents(6), "tree": drafts.tree_parents(6)}


def ahead(at: int) -> Fresh:
    grammar = subject("reference").grammar
    return Fresh(lambda: walk(grammar, TRACE[:at]), VOCABULARY.size)


def drawn(source: drafts.Source, shape: str, at: int, seed: str = "seed") -> DraftTree:
    found = drafts.draw(source, PARENTS[shape], TRACE[at:], ahead(at), VOCABULARY, seed)
    assert found is not None
    return found


def kept(tree: DraftTree, at: int) -> list[int]:
    """The legal nodes, by fresh matchers."""
    fresh = ahead(at)
    rows = bitmask.allocate(tree.nodes, VOCABULARY.size)
    for node in range(tree.nodes):
        if node in reached(tree, rows, EOS):
            rows[node] = fresh.row(tree.path(node))
    return list(legal(tree, rows, EOS))


def test_right_drafts_of_a_chain_are_the_documents_own_tokens() -> None:
    for at in range(4):
        assert drawn("right", "chain", at).tokens[1 : 1 + len(TRACE) - at] == TRACE[at:]


def test_right_drafts_of_a_tree_have_the_document_on_the_first_way_and_legal_tokens_beside_it() -> None:
    tree = drawn("right", "tree", 3)
    assert tree.path(3) == TRACE[3:5]
    assert tree.tokens[1] != tree.tokens[2]
    assert {1, 2, 3} <= set(kept(tree, 3))


@pytest.mark.parametrize("shape", PARENTS)
def test_of_wrong_drafts_none_is_kept(shape: str) -> None:
    for at in range(len(TRACE)):
        assert kept(drawn("wrong", shape, at), at) == []


def test_wrong_drafts_are_none_where_nothing_is_refused() -> None:
    class Anything:
        def row(self, path: tuple[int, ...]) -> bitmask.Row:
            return bitmask.from_tokens(range(VOCABULARY.size), VOCABULARY.size)

        def accepts(self, path: tuple[int, ...], token: int) -> bool:
            return True

    assert drafts.draw("wrong", PARENTS["chain"], TRACE, Anything(), VOCABULARY, "") is None
    assert drafts.draw("half_right", PARENTS["chain"], TRACE, Anything(), VOCABULARY, "") is not None


def test_half_right_drafts_are_right_at_half_the_places_and_else_of_both_kinds() -> None:
    right = other_legal = illegal = 0
    for seed in range(400):
        at = 3  # after "abc12": a digit or a word may follow, and so may an end
        tree = drawn("half_right", "chain", at, str(seed))
        if tree.tokens[1] == TRACE[at]:
            right += 1
        elif 1 in kept(tree, at):
            other_legal += 1
        else:
            illegal += 1
    assert 160 < right < 240
    assert 60 < other_legal < 140
    assert 60 < illegal < 140


@pytest.mark.parametrize("shape", PARENTS)
@pytest.mark.parametrize("source", drafts.SOURCES)
def test_drafts_are_the_same_every_time_and_ordinary_tokens(source: drafts.Source, shape: str) -> None:
    for at in range(4):
        tree = drawn(source, shape, at)
        assert tree == drawn(source, shape, at)
        assert not set(tree.tokens[1:]) & VOCABULARY.special_ids
        for own in tree.children:
            assert len({tree.tokens[node] for node in own}) == len(own), "siblings are different tokens"
    if source == "half_right":
        assert len({drawn(source, shape, 2, str(seed)).tokens for seed in range(8)}) > 1


def test_under_the_canonical_policy_a_refused_draft_is_one_that_is_not_accepted_either() -> None:
    """A row under that policy forbids spellings that are accepted nevertheless: they are no wrong drafts."""
    fresh = ahead(0)

    class Narrow:
        def row(self, path: tuple[int, ...]) -> bitmask.Row:
            return bitmask.allocate_row(VOCABULARY.size)

        def accepts(self, path: tuple[int, ...], token: int) -> bool:
            return fresh.accepts(path, token)

    accepted = bitmask.tokens(fresh.row(()), VOCABULARY.size).tolist()
    for seed in range(50):
        tree = drafts.draw("wrong", drafts.chain_parents(1), TRACE, Narrow(), VOCABULARY, str(seed))
        assert tree is not None
        assert tree.tokens[1] not in accepted
