"""Completions are shortest, stuck states are found, and no walk under the mask ends in a dead end."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from harness.reference import completion, regex_syntax, regular, spelling
from harness.reference.automaton import TooComplex, accepts, run
from harness.reference.completion import (
    Stuck,
    completable,
    completion_tokens,
    shortest_completion,
    some_completion,
    walk,
)
from harness.reference.masker import Masker
from harness.vocabulary import Vocabulary, synthetic

from . import schema_cases
from .small_automata import Bytes, ListingWithRegions, Telling, words

VOCABULARY = synthetic()


def expression(pattern: str) -> spelling.Utf8:
    return spelling.Utf8(regex_syntax.compile(pattern, dialect="ecma262", search=False))


@pytest.mark.parametrize("pattern", ["ab(c|bbb)", "(ab)*c{3}", "a?b?c", "(aa|b){2,3}c|bbbbbb", "[abc]*cc"])
def test_completions_are_the_shortest_there_are(pattern: str) -> None:
    automaton = expression(pattern)
    for length in range(4):
        for text in map(bytes, itertools.product(b"abc", repeat=length)):
            state = run(automaton, text)
            if state is None:
                continue
            found = shortest_completion(automaton, state)
            assert accepts(automaton, text + found)
            shorter = (bytes(t) for n in range(len(found)) for t in itertools.product(b"abc", repeat=n))
            assert not any(accepts(automaton, text + t) for t in shorter)


def test_a_search_ends_at_its_bound() -> None:
    automaton = expression("[a-z]{40}")
    state = automaton.start()
    assert state is not None
    assert len(shortest_completion(automaton, state)) == 40
    with pytest.raises(TooComplex, match="10 states"):
        shortest_completion(automaton, state, most=10)


def test_some_completion_is_one_even_where_the_shortest_is_too_much() -> None:
    automaton = ListingWithRegions([regular.repeat(regular.ANY_CHAR, 30, None), words("a", "b")])
    state = automaton.start()
    text = some_completion(automaton, state, most=2_000)
    assert accepts(automaton, text)
    assert len(json.loads(text)) == 2


def test_a_key_that_no_schema_requires_is_found_where_only_it_can_pay_what_the_object_owes() -> None:
    tree = schema_cases.automaton(
        {
            "type": "object",
            "required": ["e"],
            "oneOf": [
                {"properties": {"name": {"const": "x"}, "size": {"type": "string"}}},
                {"properties": {"name": {"const": "y"}, "size": {"type": "number"}}},
            ],
        }
    )
    for start in (b" ", b'{"', b'{"e":0', b'{"other":1,'):
        assert accepts(tree, start + some_completion(tree, run(tree, start), most=100))


def test_completions_are_spelled_in_the_fewest_tokens() -> None:
    assert [VOCABULARY.tokens[t] for t in completion_tokens(VOCABULARY, b'name":"abc')] == [b"name", b'":"', b"abc"]
    assert completion_tokens(VOCABULARY, b"") == []
    lacking = Vocabulary("lacking", (b"a", b"ba", b""), (2,), frozenset({2}))
    assert completion_tokens(lacking, b"aba") == [0, 1]
    with pytest.raises(ValueError, match="cannot spell"):
        completion_tokens(lacking, b"ab")


def test_every_byte_makes_everything_completable() -> None:
    assert completable(expression("[a-z]*"), VOCABULARY) == ()


def test_stuck_states_are_found_with_what_is_missing() -> None:
    lacking = Vocabulary("lacking", (b"a", b"b", b"bd", b""), (3,), frozenset({3}))
    assert completable(Bytes((b"ab", b"ba")), lacking) == ()
    # "ac" cannot be spelled; "bcd" neither; "bd" can.
    assert completable(Bytes((b"ac", b"bcd", b"bd")), lacking) == (
        Stuck(b"a", (ord("c"),)),
        Stuck(b"b", (ord("c"), ord("d"))),
    )
    assert completable(Bytes((b"c",)), lacking) == (Stuck(b"", (ord("c"),)),)
    with pytest.raises(TooComplex, match="lacking"):
        completable(expression("a{50}"), lacking, most=10)


@pytest.mark.parametrize("seed", range(20))
def test_walks_under_the_mask_reach_a_document(seed: int) -> None:
    automata = [
        ListingWithRegions([regular.ANY, words("name", "né"), regular.repeat(regular.ANY_CHAR, 2, 3)], spaces=True),
        Telling([regular.repeat(regular.ANY_CHAR, 1, 4), regular.ANY]),
        ListingWithRegions([regular.difference(regular.ANY, words("", "a", "id"))], lone_surrogates=True),
    ]
    random_ = random.Random(seed)
    for automaton in automata:
        masker = Masker(automaton, VOCABULARY)
        tokens = walk(lambda s, m=masker: m.row(m.cell(s)), automaton, VOCABULARY, random_, free=seed)  # type: ignore[misc]
        assert isinstance(json.loads(VOCABULARY.decode(tokens)), list)


def test_a_mask_that_allows_too_much_is_caught() -> None:
    automaton = Bytes((b"ab",))
    masker = Masker(automaton, VOCABULARY)
    too_loose = masker.row(masker.cell(b"")) | -1
    with pytest.raises(AssertionError, match="not viable"):
        walk(lambda _: too_loose, automaton, VOCABULARY, random.Random(0), free=3)
    assert completion.STATES > 0
