"""The reference engine's matcher: every earlier state comes back bit for bit, and threads do not disturb each other."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness import bitmask, encoders
from harness.backends import guard
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.errors import MasktaxError, UnsupportedError
from harness.reference import regex_syntax, regular, spelling
from harness.reference.automaton import Automaton
from harness.reference.forced import Retokenised, canonical_token, encode_bytes, retokenise
from harness.reference.masker import Masker, naive_row
from harness.reference.matcher import Grammar, Matcher
from harness.vocabulary import Vocabulary, synthetic

from .small_automata import Bytes, ListingWithRegions, words

VOCABULARY = synthetic()
EOS = VOCABULARY.eos_ids[0]
ABLE = Capabilities(frozenset(), rollback=True, fork=True, reset=True, validate=True, forced=True)


def encode(text: str) -> list[int]:
    return list(encoders.encode(VOCABULARY, text))


def expression(pattern: str) -> Automaton[Any]:
    return spelling.Utf8(regex_syntax.compile(pattern, dialect="ecma262", search=False))


def grammar(automaton: Automaton[Any], *, canonical: bool = False) -> Grammar:
    return Grammar(Masker(automaton, VOCABULARY), encode if canonical else None)


def listing() -> ListingWithRegions:
    return ListingWithRegions([regular.ANY, words("name", "value", "né"), regular.repeat(regular.ANY_CHAR, 0, 3)])


def row_of(matcher: Matcher) -> Row:
    row = bitmask.allocate_row(VOCABULARY.size)
    row[:] = -1
    matcher.fill(row)
    return row


def walk(matcher: Matcher, random_: random.Random, most: int) -> Iterator[int]:
    """Tokens chosen at random under the mask, accepted one by one; never an end."""
    for _ in range(most):
        allowed = [t for t in bitmask.tokens(row_of(matcher), VOCABULARY.size).tolist() if t != EOS]
        if not allowed:
            return
        token = random_.choice(allowed)
        assert matcher.accept(token)
        yield token


@pytest.mark.parametrize("canonical", [False, True])
def test_rolling_back_restores_every_earlier_row(canonical: bool) -> None:
    for seed in range(10):
        random_ = random.Random(seed)
        matcher = grammar(listing(), canonical=canonical).native_matcher()
        rows = [row_of(matcher)]
        rows += [row_of(matcher) for _ in walk(matcher, random_, 20)]
        while len(rows) > 1:
            back = random_.randint(1, len(rows) - 1)
            del rows[-back:]
            matcher.rollback(back)
            assert np.array_equal(row_of(matcher), rows[-1])


def test_an_end_allows_nothing_and_can_be_rolled_back() -> None:
    matcher = grammar(expression("ab?")).native_matcher()
    assert not matcher.accept(EOS)
    assert matcher.accept(encode("a")[0])
    before = row_of(matcher)
    assert matcher.is_accepting()
    assert matcher.accept(EOS)
    assert not row_of(matcher).any()
    assert not any(matcher.accept(token) for token in range(VOCABULARY.size))
    assert matcher.forced() == b""
    matcher.rollback(1)
    assert np.array_equal(row_of(matcher), before)


def test_a_refused_token_and_a_special_one_change_nothing() -> None:
    matcher = grammar(listing()).native_matcher()
    assert matcher.accept(encode("[")[0])
    before = row_of(matcher)
    for token in [0, EOS, *encode("]"), *encode("x")]:
        assert not matcher.accept(token)
        assert matcher.validate([token]) == 0
        assert np.array_equal(row_of(matcher), before)


def test_a_token_is_accepted_exactly_where_its_bit_is_set() -> None:
    for seed in range(4):
        matcher = grammar(listing()).native_matcher()
        for _ in walk(matcher, random.Random(seed), 12):
            row = row_of(matcher)
            for token in range(VOCABULARY.size):
                trial = matcher.fork()
                assert trial.accept(token) is bitmask.test(row, token)


def test_forks_are_independent_and_reset_is_the_start() -> None:
    matcher = grammar(listing()).native_matcher()
    start = row_of(matcher)
    list(walk(matcher, random.Random(1), 5))
    here, copy = row_of(matcher), matcher.fork()
    list(walk(copy, random.Random(2), 5))
    assert np.array_equal(row_of(matcher), here)
    matcher.reset()
    assert np.array_equal(row_of(matcher), start)


def test_calls_follow_their_matcher() -> None:
    matcher = grammar(listing()).native_matcher()
    row = bitmask.allocate_row(VOCABULARY.size)
    fill, accept, rollback = matcher.fill_call(row), matcher.accept_call(), matcher.rollback_call()
    for token in encode('["ab",'):
        assert accept(token)
        fill()
        assert np.array_equal(row, row_of(matcher))
    assert not accept(encode("]")[0])
    rollback(1)
    fill()
    assert np.array_equal(row, row_of(matcher))
    matcher.reset()
    fill()
    assert np.array_equal(row, row_of(matcher))
    assert accept(encode("[")[0])
    assert matcher.validate_call()(encode('"ab"') + encode("]")) == len(encode('"ab"'))


def test_forced_text_stops_before_a_choice_and_before_an_end() -> None:
    assert grammar(Bytes((b"name: yes", b"name: no"))).native_matcher().forced() == b"name: "
    assert grammar(Bytes((b"name", b"name: no"))).native_matcher().forced() == b"name"
    assert grammar(Bytes((b"", b"name"))).native_matcher().forced() == b""
    matcher = grammar(ListingWithRegions([words("name"), words("a", "b")], escapes="minimal")).native_matcher()
    assert matcher.forced() == b'["name","'


def test_an_empty_language_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="no document"):
        grammar(spelling.Utf8(regular.EMPTY))


def test_matchers_of_one_grammar_may_run_in_several_threads() -> None:
    """Rows made by eight threads at once are those made by one."""
    shared = grammar(listing())
    done: list[int] = []

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        for _ in range(6):
            matcher = shared.native_matcher()
            automaton = listing()
            state = automaton.start()
            for token in walk(matcher, random_, 10):
                for byte in VOCABULARY.tokens[token]:
                    state = automaton.step(state, byte)
                assert np.array_equal(row_of(matcher), naive_row(automaton, state, VOCABULARY))
        done.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(8))


# The canonical policy


def allowed(matcher: Matcher) -> list[bytes]:
    return [VOCABULARY.tokens[t] for t in bitmask.tokens(row_of(matcher), VOCABULARY.size).tolist()]


def test_canonical_allows_only_the_encoder_s_first_token_of_forced_text() -> None:
    automaton = Bytes((b"name: yes!", b"name: yes?"))
    assert set(allowed(grammar(automaton).native_matcher())) == {b"n", b"na", b"name"}
    assert allowed(grammar(automaton, canonical=True).native_matcher()) == [b"name"]


def test_canonical_keeps_every_token_where_what_follows_may_change_the_last() -> None:
    # After "a" comes "b" or "a": "ab" and "aaaa" are tokens, so that "a" is not settled.
    automaton = Bytes((b"ab", b"aa"))
    one, other = grammar(automaton).native_matcher(), grammar(automaton, canonical=True).native_matcher()
    assert np.array_equal(row_of(one), row_of(other))


def test_canonical_depends_on_the_token_before() -> None:
    # "na" + "me" is "name" for the encoder: with "na" before, "me" alone is encoded; with "n", "a" too.
    automaton = Bytes((b"the name!", b"the name?"))
    canonical = grammar(automaton, canonical=True)
    matcher = canonical.native_matcher()
    masker = canonical.masker
    assert masker.start() is not None
    for text in (b"the", b" "):
        token = VOCABULARY.tokens.index(text)
        assert matcher.accept(token)
        cell = masker.read(masker.start(), b"the" if text == b"the" else b"the ")  # type: ignore[arg-type]
        assert cell is not None
        settled = canonical_token(masker, encode, cell, token)
        assert settled is not None
        assert allowed(matcher) == [VOCABULARY.tokens[settled]]


def test_canonical_accepts_more_than_it_offers() -> None:
    matcher = grammar(Bytes((b"name: yes!", b"name: yes?")), canonical=True).native_matcher()
    assert matcher.accept(VOCABULARY.tokens.index(b"n"))
    assert matcher.validate(encode("ame: ")) == len(encode("ame: "))


def test_canonical_rows_are_never_larger_than_the_definition_s() -> None:
    for seed in range(10):
        one, other = grammar(listing()).native_matcher(), grammar(listing(), canonical=True).native_matcher()
        for token in walk(other, random.Random(seed), 25):
            assert one.accept(token)
            assert not (row_of(other) & ~row_of(one)).any()
            assert row_of(other).any()


def test_bytes_that_are_no_text_are_encoded_by_the_longest_tokens() -> None:
    masker = Masker(Bytes((b"x",)), VOCABULARY)
    for text in (b"ab\xe4\xb8", b"\xff", "é中".encode(), b"\xb8\xadab", b""):
        assert VOCABULARY.decode(encode_bytes(encode, masker.trie, text)) == text


# Retokenising


def guarded(automaton: Automaton[Any]) -> guard.Matcher:
    return guard.matcher(grammar(automaton), VOCABULARY, ABLE)


def ids(*texts: bytes) -> list[int]:
    return [VOCABULARY.tokens.index(text) for text in texts]


def test_forced_text_is_joined_to_the_tokens_before_it() -> None:
    matcher = guarded(Bytes((b"name!", b"name?")))
    assert matcher.accept(ids(b"na")[0])
    assert retokenise(matcher, VOCABULARY, encode) == Retokenised(1, tuple(ids(b"name")))
    assert matcher.history == tuple(ids(b"name"))
    assert matcher.forced() == b""
    assert retokenise(matcher, VOCABULARY, encode) == Retokenised(0, ())


def test_what_stays_is_not_rolled_back() -> None:
    matcher = guarded(Bytes((b"the name: 1", b"the name: 2")))
    assert matcher.accept(ids(b"the")[0])
    done = retokenise(matcher, VOCABULARY, encode)
    assert done.rolled_back == 0
    assert VOCABULARY.decode(matcher.history) == b"the name: "
    assert list(matcher.history) == encode("the name: ")


def test_a_prompt_whose_last_token_would_change_is_refused() -> None:
    matcher = guarded(Bytes((b"me!", b"me?")))
    with pytest.raises(MasktaxError, match="token 1 of the prompt, of 2"):
        retokenise(matcher, VOCABULARY, encode, prompt=ids(b"the", b"na"))
    assert matcher.history == ()
    # A special token is an edge: nothing joins over it.
    assert retokenise(matcher, VOCABULARY, encode, prompt=[*ids(b"na"), 0]) == Retokenised(0, tuple(ids(b"me")))


def test_a_character_that_is_cut_off_waits() -> None:
    matcher = guarded(Bytes(("the é".encode(), "the è".encode())))
    assert matcher.forced() == b"the \xc3"
    assert retokenise(matcher, VOCABULARY, encode) == Retokenised(0, tuple(encode("the ")))


def test_an_encoder_that_does_not_spell_the_text_is_refused() -> None:
    matcher = guarded(Bytes((b"name!", b"name?")))
    with pytest.raises(MasktaxError, match="do not spell"):
        retokenise(matcher, VOCABULARY, lambda text: ids(b"na"))
    assert matcher.history == ()


def test_two_tokens_of_equal_bytes_lead_to_one_state() -> None:
    same = [i for i, text in enumerate(VOCABULARY.tokens) if text == b"ab"]
    assert len(same) == 2
    rows = []
    for token in same:
        matcher = grammar(expression("ab+c")).native_matcher()
        assert bitmask.test(row_of(matcher), token)
        assert matcher.accept(token)
        rows.append(row_of(matcher))
    assert np.array_equal(rows[0], rows[1])


def test_every_eos_ends() -> None:
    two = Vocabulary("two ends", VOCABULARY.tokens, (EOS, EOS - 1), VOCABULARY.special_ids)
    shared = Grammar(Masker(expression("ab?"), two))
    for eos in two.eos_ids:
        matcher = shared.native_matcher()
        assert matcher.accept(encode("a")[0])
        assert bitmask.test(row_of(matcher), eos)
        assert matcher.accept(eos)
