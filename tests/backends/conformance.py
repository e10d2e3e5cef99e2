"""What every backend promises through ``harness.backends.guard.matcher``, as claims over the synthetic vocabulary.

A claim is a plain function of a ``Subject`` (a backend and the name of one of its profiles); it knows no library. Use:

    from .conformance import CLAIMS, Claim, Subject

    @pytest.mark.parametrize("profile", Adapter.profiles)
    @pytest.mark.parametrize("claim", CLAIMS)
    def test_keeps_the_contract(claim: Claim, profile: str) -> None:
        claim(Subject(Adapter, profile))

The judge is never the backend itself: rows of the regular expression are computed from its definition by the ``regex``
module's partial matching. Under ``tokens = "canonical"`` a row may be smaller than that, never larger.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
import regex

from harness import bitmask
from harness.backends import guard
from harness.backends.protocol import Backend, Grammar
from harness.bitmask import Row
from harness.constraint import KINDS, Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary, synthetic

VOCABULARY = synthetic()
TWO_ENDS = dataclasses.replace(VOCABULARY, name="two ends", eos_ids=(VOCABULARY.size - 1, VOCABULARY.size - 2))

BYTES = tuple(VOCABULARY.tokens.index(bytes([byte])) for byte in range(256))

PATTERN = "ab(c|q)?(12|yes)*"
REGEX = Constraint("regex", PATTERN)
# A text of PATTERN whose prefixes are accepting, not accepting and accepting again.
TEXT = b"abc12yes"

SCHEMA = Constraint(
    "json_schema",
    '{"type":"object","properties":{"id":{"enum":["yes","no"]},"value":{"type":"boolean"}},'
    '"required":["id","value"],"additionalProperties":false}',
)
DOCUMENT = b'{"id":"yes","value":true}'
SPACED_DOCUMENT = b'{"id": "yes", "value": true}'

CHARACTERS = Constraint("regex", "(é|中|😀)+")

# Asked of no library: an order, an indent and a number spelling that none has together.
IMPOSSIBLE = Profile(whitespace="indented", indent=7, key_order="sorted", numbers="plain", escapes="minimal")


def encode(text: bytes, vocabulary: Vocabulary = VOCABULARY) -> tuple[int, ...]:
    """Greedy, longest token first and lowest id among equals: what ``EncoderSpec("greedy")`` means."""
    ids: dict[bytes, int] = {}
    for token, piece in enumerate(vocabulary.tokens):
        if piece:
            ids.setdefault(piece, token)
    found, at = [], 0
    while at < len(text):
        piece = next(text[at:end] for end in range(len(text), at, -1) if text[at:end] in ids)
        found.append(ids[piece])
        at += len(piece)
    return tuple(found)


def defined_row(pattern: str, prefix: bytes, vocabulary: Vocabulary = VOCABULARY) -> Row:
    """The row after ``prefix`` by definition: a token is allowed where some continuation matches in full, an eos
    where the prefix itself does."""
    compiled = regex.compile(pattern.encode())
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, piece in enumerate(vocabulary.tokens):
        if piece:
            allowed[token] = compiled.fullmatch(prefix + piece, partial=True) is not None
    allowed[list(vocabulary.eos_ids)] = compiled.fullmatch(prefix) is not None
    return bitmask.pack(allowed)


@dataclass(frozen=True)
class Subject:
    """A backend under one of its profiles. make: the adapter's class, or any callable that gives a fresh backend."""

    make: Callable[[], Backend]
    profile_name: str = "default"

    @cached_property
    def backend(self) -> Backend:
        return self.make()

    @property
    def profile(self) -> Profile:
        return self.backend.profiles[self.profile_name]

    @property
    def document(self) -> bytes:
        """A document of ``SCHEMA``, with the white space that the profile demands."""
        return SPACED_DOCUMENT if self.profile.whitespace == "spaced" else DOCUMENT

    def compile(self, constraint: Constraint, vocabulary: Vocabulary = VOCABULARY) -> Grammar:
        return self.backend.compile(constraint, vocabulary, self.profile)

    def start(self, constraint: Constraint, vocabulary: Vocabulary = VOCABULARY) -> guard.Matcher:
        return guard.matcher(self.compile(constraint, vocabulary), vocabulary, self.backend.capabilities)


Claim = Callable[[Subject], None]


def row_of(matcher: guard.Matcher, vocabulary: Vocabulary = VOCABULARY) -> Row:
    """The guarded row, written over a row full of ones, so that a word left alone shows."""
    row = bitmask.allocate_row(vocabulary.size)
    row[:] = -1
    matcher.fill(row)
    return row


def native_row(matcher: guard.Matcher) -> Row:
    row = bitmask.allocate_row(VOCABULARY.size)
    row[:] = -1
    matcher.native.fill(row)
    return row


def walk(matcher: guard.Matcher, text: bytes, vocabulary: Vocabulary = VOCABULARY) -> Iterator[bytes]:
    """Accept ``text`` token by token, reading each token's bit first; yields the prefix before each and at the end."""
    prefix = b""
    for token in encode(text, vocabulary):
        yield prefix
        assert bitmask.test(row_of(matcher, vocabulary), token), (prefix, vocabulary.tokens[token])
        assert matcher.accept(token), (prefix, vocabulary.tokens[token])
        prefix += vocabulary.tokens[token]
    yield prefix


def walked(matcher: guard.Matcher, text: bytes) -> guard.Matcher:
    for _ in walk(matcher, text):
        pass
    return matcher


def takes(subject: Subject, constraint: Constraint, text: str | bytes) -> bool:
    """Whether the whole text, spelled by single-byte tokens, is accepted and is a whole document."""
    matcher = subject.start(constraint)
    data = text.encode() if isinstance(text, str) else text
    return all(matcher.accept(BYTES[byte]) for byte in data) and matcher.is_accepting


def same(one: Row, other: Row) -> bool:
    return bool(np.array_equal(one, other))


# Masks


def rows_of_a_regex_are_its_definition(subject: Subject) -> None:
    matcher = subject.start(REGEX)
    for prefix in walk(matcher, TEXT):
        difference = bitmask.diff(row_of(matcher), defined_row(PATTERN, prefix), VOCABULARY.size)
        assert not difference.too_loose, (prefix, [VOCABULARY.tokens[t] for t in difference.too_loose])
        if subject.profile.tokens == "all":
            assert not difference.too_strict, (prefix, [VOCABULARY.tokens[t] for t in difference.too_strict])


def every_token_of_a_regex_is_accepted_exactly_where_its_bit_is_set(subject: Subject) -> None:
    if subject.profile.tokens != "all":
        pytest.skip("under tokens = 'canonical' a library may accept what its mask does not offer")
    grammar = subject.compile(REGEX)
    prefix = encode(b"ab")
    for token in range(VOCABULARY.size):
        matcher = guard.matcher(grammar, VOCABULARY, subject.backend.capabilities)
        assert all(matcher.accept(t) for t in prefix)
        expected = bitmask.test(row_of(matcher), token)
        assert matcher.accept(token) is expected, VOCABULARY.tokens[token]


def eos_is_allowed_exactly_in_accepting_states_of_a_regex(subject: Subject) -> None:
    matcher, seen = subject.start(REGEX), set()
    for prefix in walk(matcher, TEXT):
        whole = regex.fullmatch(PATTERN.encode(), prefix) is not None
        seen.add(whole)
        assert bitmask.test(row_of(matcher), VOCABULARY.eos_ids[0]) is whole, prefix
        assert matcher.is_accepting is whole, prefix
        assert (matcher.validate([VOCABULARY.eos_ids[0]]) == 1) is whole, prefix
    assert seen == {True, False}


def eos_is_allowed_only_at_the_end_of_a_json_document(subject: Subject) -> None:
    matcher = subject.start(SCHEMA)
    for prefix in walk(matcher, subject.document):
        whole = prefix == subject.document
        assert bitmask.test(row_of(matcher), VOCABULARY.eos_ids[0]) is whole, prefix
        assert matcher.is_accepting is whole, prefix
        if not whole:
            assert not matcher.accept(VOCABULARY.eos_ids[0])
    assert not matcher.is_terminated
    assert matcher.accept(VOCABULARY.eos_ids[0])
    assert matcher.is_terminated
    assert matcher.is_accepting


def accepting_is_known_without_a_mask(subject: Subject) -> None:
    matcher = subject.start(SCHEMA)
    for token in encode(subject.document):
        assert not matcher.is_accepting
        assert matcher.accept(token)
    assert matcher.is_accepting


def every_eos_id_ends(subject: Subject) -> None:
    for eos in TWO_ENDS.eos_ids:
        for constraint, text in ((REGEX, b"ab"), (SCHEMA, subject.document)):
            matcher = subject.start(constraint, TWO_ENDS)
            row = row_of(matcher, TWO_ENDS)
            assert not any(bitmask.test(row, e) for e in TWO_ENDS.eos_ids)
            assert not matcher.accept(eos)
            for token in encode(text):
                assert matcher.accept(token)
            row = row_of(matcher, TWO_ENDS)
            assert all(bitmask.test(row, e) for e in TWO_ENDS.eos_ids)
            assert matcher.validate([eos]) == 1
            assert matcher.accept(eos)
            assert matcher.is_terminated


def special_tokens_are_never_allowed(subject: Subject) -> None:
    specials = sorted(VOCABULARY.special_ids - set(VOCABULARY.eos_ids))
    assert specials[0] == 0
    for constraint, text in ((REGEX, TEXT), (SCHEMA, subject.document)):
        matcher = subject.start(constraint)
        for prefix in walk(matcher, text):
            row = row_of(matcher)
            assert not any(bitmask.test(row, t) for t in specials), prefix
            assert not any(matcher.accept(t) for t in specials), prefix
            assert all(matcher.validate([t]) == 0 for t in specials), prefix


def padding_is_zero(subject: Subject) -> None:
    assert VOCABULARY.size % 32
    matcher = subject.start(REGEX)
    for _ in walk(matcher, TEXT):
        assert not np.unpackbits(row_of(matcher).view(np.uint8), bitorder="little")[VOCABULARY.size :].any()


def a_row_is_written_whole(subject: Subject) -> None:
    matcher = walked(subject.start(SCHEMA), subject.document[:2])
    zeros = bitmask.allocate_row(VOCABULARY.size)
    matcher.fill(zeros)
    assert same(zeros, row_of(matcher))


def filling_twice_changes_nothing(subject: Subject) -> None:
    matcher = walked(subject.start(SCHEMA), subject.document[:2])
    assert same(row_of(matcher), row_of(matcher))


def a_row_of_a_block_is_filled_alone(subject: Subject) -> None:
    matcher = subject.start(REGEX)
    block = bitmask.allocate(3, VOCABULARY.size)
    matcher.fill(block[1])
    assert same(block[1], row_of(matcher))
    assert not block[0].any()
    assert not block[2].any()


def a_wrong_row_is_a_value_error_and_stays_untouched(subject: Subject) -> None:
    matcher = subject.start(REGEX)
    width = VOCABULARY.words
    wrong = (
        np.zeros(width - 1, dtype=np.int32),
        np.zeros(width + 1, dtype=np.int32),
        np.zeros((1, width), dtype=np.int32),
        np.zeros(width, dtype=np.int64),
        np.zeros(width, dtype=np.uint32),
        np.zeros(width * 2, dtype=np.int32)[::2],
    )
    for row in wrong:
        with pytest.raises(ValueError, match="mask row"):
            matcher.fill(row)
        assert not row.any()
    frozen = np.zeros(width, dtype=np.int32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        matcher.fill(frozen)


# Accepting, refusing, the end


def a_refused_token_leaves_row_and_history_untouched(subject: Subject) -> None:
    for constraint, text, wrong in ((REGEX, TEXT, b"]"), (SCHEMA, subject.document, b"!")):
        matcher = subject.start(constraint)
        for prefix in walk(matcher, text):
            before, history, accepting = row_of(matcher), matcher.history, matcher.is_accepting
            refused = [encode(wrong)[0], *([] if accepting else VOCABULARY.eos_ids)]
            for token in refused:
                assert not bitmask.test(before, token), prefix
                assert matcher.accept(token) is False, prefix
                assert matcher.history == history
                assert matcher.is_accepting is accepting
                assert same(row_of(matcher), before), prefix


def a_token_outside_the_vocabulary_is_a_value_error(subject: Subject) -> None:
    matcher = subject.start(REGEX)
    for token in (-1, VOCABULARY.size, 1 << 40):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            matcher.accept(token)
        with pytest.raises(ValueError, match="outside the vocabulary"):
            matcher.validate([token])


def nothing_follows_the_end(subject: Subject) -> None:
    matcher = walked(subject.start(REGEX), b"ab")
    assert matcher.accept(VOCABULARY.eos_ids[0])
    history = matcher.history
    assert not row_of(matcher).any()
    assert not any(matcher.accept(token) for token in range(VOCABULARY.size))
    assert matcher.validate(encode(b"12")) == 0
    assert matcher.validate([VOCABULARY.eos_ids[0]]) == 0
    assert matcher.history == history
    assert matcher.is_terminated
    if subject.backend.capabilities.forced:
        assert matcher.forced() == b""


def two_matchers_of_a_grammar_are_independent(subject: Subject) -> None:
    grammar = subject.compile(REGEX)
    one, other = (guard.matcher(grammar, VOCABULARY, subject.backend.capabilities) for _ in range(2))
    start = row_of(other)
    walked(one, TEXT)
    assert same(row_of(other), start)
    assert other.history == ()
    walked(other, b"ab")
    assert same(row_of(other), row_of(walked(guard.matcher(grammar, VOCABULARY, subject.backend.capabilities), b"ab")))


def two_vocabularies_keep_their_own_rows(subject: Subject) -> None:
    smaller = Vocabulary(
        "smaller", (*VOCABULARY.tokens[:257], b""), (257,), frozenset({0, 257}), encoder=VOCABULARY.encoder
    )
    first = row_of(subject.start(REGEX))
    row = row_of(subject.start(REGEX, smaller), smaller)
    assert list(bitmask.tokens(row, smaller.size)) == [1 + ord("a")]
    assert same(row_of(subject.start(REGEX)), first)


# Validate, rollback, fork, reset


def validate_counts_and_changes_nothing(subject: Subject) -> None:
    matcher = walked(subject.start(REGEX), b"ab")
    before, history = row_of(matcher), matcher.history
    good, bad, eos = list(encode(b"12yes")), encode(b"]")[0], VOCABULARY.eos_ids[0]
    for tokens, count in (
        ([], 0),
        (good, len(good)),
        ([*good, eos], len(good) + 1),
        ([*good, eos, *good], len(good) + 1),
        ([eos], 1),
        ([bad], 0),
        ([*good, bad, *good], len(good)),
        ([good[0], 0, good[1]], 1),
    ):
        assert matcher.validate(tokens) == count, tokens
        assert same(row_of(matcher), before), tokens
        assert matcher.history == history
    walked_on = all(matcher.accept(t) for t in good)
    assert walked_on


def rollback_restores_every_earlier_row(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    for constraint, text in ((REGEX, TEXT), (SCHEMA, subject.document)):
        tokens = encode(text)
        for count in range(len(tokens) + 1):
            matcher = subject.start(constraint)
            rows = [row_of(matcher) for _ in walk(matcher, text)]
            matcher.rollback(count)
            left = len(tokens) - count
            assert matcher.history == tokens[:left]
            assert same(row_of(matcher), rows[left])
            for token, row in zip(tokens[left:], rows[left + 1 :], strict=True):
                assert matcher.accept(token)
                assert same(row_of(matcher), row)


def rollback_over_the_end_restores_rows_bit_for_bit(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    # "ab" may go on after its end, the document may not: libraries keep these two kinds of end differently
    for constraint, text in ((REGEX, b"ab"), (SCHEMA, subject.document)):
        tokens = encode(text)
        for count in range(1, len(tokens) + 2):
            matcher = subject.start(constraint)
            rows = [row_of(matcher) for _ in walk(matcher, text)]
            assert matcher.accept(VOCABULARY.eos_ids[0])
            matcher.rollback(count)
            assert not matcher.is_terminated
            left = len(tokens) + 1 - count
            assert matcher.history == tokens[:left]
            assert same(row_of(matcher), rows[left]), (text, count)
            for token in tokens[left:]:
                assert matcher.accept(token)
            assert same(row_of(matcher), rows[-1])
            assert matcher.accept(VOCABULARY.eos_ids[0])


def rollback_over_the_end_works_twice(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    matcher = walked(subject.start(SCHEMA), subject.document)
    before = row_of(matcher)
    for _ in range(3):
        assert matcher.accept(VOCABULARY.eos_ids[0])
        matcher.rollback(1)
        assert same(row_of(matcher), before)


def rollback_past_the_start_is_a_value_error(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    matcher = walked(subject.start(REGEX), b"ab")
    history, row = matcher.history, row_of(matcher)
    for count in (len(history) + 1, -1):
        with pytest.raises(ValueError, match="roll back"):
            matcher.rollback(count)
        assert matcher.history == history
        assert same(row_of(matcher), row)
    matcher.rollback(0)
    assert same(row_of(matcher), row)


def rollback_has_no_limit(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    matcher = subject.start(REGEX)
    start, rounds = row_of(matcher), 400
    walked(matcher, b"ab" + b"12" * rounds)
    matcher.rollback(len(matcher.history))
    assert matcher.history == ()
    assert same(row_of(matcher), start)


def a_fork_is_independent(subject: Subject) -> None:
    if not subject.backend.capabilities.fork:
        pytest.skip("no fork")
    matcher = walked(subject.start(REGEX), b"ab")
    before = row_of(matcher)
    copy = matcher.fork()
    assert same(row_of(copy), before)
    assert copy.history == matcher.history
    assert copy.accept(encode(b"c")[0])
    assert same(row_of(matcher), before)
    assert matcher.accept(encode(b"12")[0])
    assert bytes(VOCABULARY.decode(copy.history)) == b"abc"
    assert bytes(VOCABULARY.decode(matcher.history)) == b"ab12"
    assert not same(row_of(copy), before)
    assert copy.accept(VOCABULARY.eos_ids[0])
    assert copy.is_terminated
    assert not matcher.is_terminated
    if subject.backend.capabilities.rollback:
        again = copy.fork()
        again.rollback(2)
        assert same(row_of(again), before)
        assert copy.is_terminated


def reset_is_the_start(subject: Subject) -> None:
    if not subject.backend.capabilities.reset:
        pytest.skip("no reset")
    for constraint, text in ((REGEX, b"ab"), (SCHEMA, subject.document)):
        matcher = subject.start(constraint)
        start = row_of(matcher)
        for end in (False, True):
            walked(matcher, text)
            if end:
                assert matcher.accept(VOCABULARY.eos_ids[0])
            matcher.reset()
            assert matcher.history == ()
            assert not matcher.is_terminated
            assert same(row_of(matcher), start)
        walked(matcher, text)


def forced_bytes_start_every_continuation(subject: Subject) -> None:
    if not subject.backend.capabilities.forced:
        pytest.skip("no jump-forward")
    matcher = subject.start(REGEX)
    assert matcher.forced() in (b"a", b"ab")
    walked(matcher, b"ab")
    assert matcher.forced() == b""
    matcher = subject.start(SCHEMA)
    begun = subject.document[: subject.document.index(b"es")]
    walked(matcher, begun)
    assert matcher.forced()
    assert subject.document[len(begun) :].startswith(matcher.forced())


def a_missing_capability_is_an_unsupported_error(subject: Subject) -> None:
    matcher = walked(subject.start(REGEX), b"ab")
    row, capabilities = row_of(matcher), subject.backend.capabilities
    calls: dict[str, Callable[[], object]] = {
        "rollback": lambda: matcher.rollback(1),
        "fork": matcher.fork,
        "reset": matcher.reset,
        "forced": matcher.forced,
    }
    for name, call in calls.items():
        if not getattr(capabilities, name):
            with pytest.raises(UnsupportedError):
                call()
            assert same(row_of(matcher), row)
    assert not capabilities.notes.keys() - {f.name for f in dataclasses.fields(capabilities)}
    for text in capabilities.notes.values():
        assert text
        assert "\n" not in text


# What the clocks surround


def fill_call_fills_the_current_state(subject: Subject) -> None:
    matcher = subject.start(REGEX)
    row = bitmask.allocate_row(VOCABULARY.size)
    call = matcher.native.fill_call(row)
    for _ in walk(matcher, TEXT):
        expected = native_row(matcher)
        row[:] = -1
        call()
        assert same(row, expected)


def accept_call_accepts(subject: Subject) -> None:
    for constraint, text in ((REGEX, TEXT), (SCHEMA, subject.document)):
        matcher, other = subject.start(constraint), subject.start(constraint)
        call = other.native.accept_call()
        for token in encode(text):
            assert matcher.accept(token)
            call(token)
            assert same(native_row(other), native_row(matcher))
            assert other.is_accepting is matcher.is_accepting
        call(VOCABULARY.eos_ids[0])


def accept_call_shows_a_refusal(subject: Subject) -> None:
    call = walked(subject.start(REGEX), b"ab").native.accept_call()
    try:
        refused = not call(encode(b"]")[0])
    except Exception:  # noqa: BLE001 - the protocol allows any exception of the library here
        refused = True
    assert refused


def validate_call_leaves_the_state(subject: Subject) -> None:
    capabilities = subject.backend.capabilities
    if not (capabilities.validate or capabilities.rollback or capabilities.fork):
        pytest.skip("validating needs validate, rollback or fork")
    matcher = walked(subject.start(REGEX), b"ab")
    before = row_of(matcher)
    call = matcher.native.validate_call()
    good, bad = list(encode(b"12yes")), encode(b"]")[0]
    for tokens in (good, good[:1], [*good, bad], [bad], []):
        for _ in range(2):
            call(list(tokens))
            assert same(row_of(matcher), before), tokens
    assert matcher.validate(good) == len(good)
    walked(matcher, b"12")


def rollback_call_rewinds(subject: Subject) -> None:
    if not subject.backend.capabilities.rollback:
        pytest.skip("no rollback")
    for count in range(1, len(encode(subject.document)) + 1):
        matcher = subject.start(SCHEMA)
        rows = [native_row(matcher) for _ in walk(matcher, subject.document)]
        matcher.native.rollback_call()(count)
        assert same(native_row(matcher), rows[-1 - count])


# Compiling


def what_is_not_declared_is_unsupported(subject: Subject) -> None:
    samples = {
        "json_schema": SCHEMA,
        "json_object": Constraint("json_object", ""),
        "regex": REGEX,
        "choice": Constraint("choice", '["yes", "no"]'),
        "structural_tag": Constraint(
            "structural_tag", '{"triggers":["<c:"],"structures":[{"begin":"<c:add>","schema":{},"end":"</c>"}]}'
        ),
    }
    capabilities = subject.backend.capabilities
    for kind, constraint in samples.items():
        if kind in capabilities.kinds:
            subject.start(constraint).fill(bitmask.allocate_row(VOCABULARY.size))
        else:
            with pytest.raises(UnsupportedError):
                subject.compile(constraint)
    grammars = {
        "ebnf": Constraint("grammar", 'root ::= "yes" | "no"', syntax="ebnf"),
        "gbnf": Constraint("grammar", 'root ::= "yes" | "no"', syntax="gbnf"),
        "lark": Constraint("grammar", 'start: "yes" | "no"', syntax="lark"),
    }
    for syntax, constraint in grammars.items():
        if "grammar" in capabilities.kinds and syntax in capabilities.syntaxes:
            subject.start(constraint).fill(bitmask.allocate_row(VOCABULARY.size))
        else:
            with pytest.raises(UnsupportedError):
                subject.compile(constraint)
    assert capabilities.kinds <= set(KINDS)
    assert ("grammar" in capabilities.kinds) is bool(capabilities.syntaxes)


def an_unknown_profile_is_unsupported(subject: Subject) -> None:
    with pytest.raises(UnsupportedError):
        subject.backend.compile(SCHEMA, VOCABULARY, IMPOSSIBLE)


def a_profile_read_back_from_json_is_the_same_profile(subject: Subject) -> None:
    again = Profile.from_json(subject.profile.to_json())
    subject.backend.compile(SCHEMA, VOCABULARY, again)


def binding_twice_and_forgetting_change_no_row(subject: Subject) -> None:
    subject.backend.bind(VOCABULARY)
    first = row_of(subject.start(SCHEMA))
    subject.backend.bind(VOCABULARY)
    assert same(row_of(subject.start(SCHEMA)), first)
    subject.backend.forget()
    assert same(row_of(subject.start(SCHEMA)), first)


def forgetting_before_anything_is_harmless(subject: Subject) -> None:
    subject.make().forget()


CLAIMS: tuple[Claim, ...] = (
    rows_of_a_regex_are_its_definition,
    every_token_of_a_regex_is_accepted_exactly_where_its_bit_is_set,
    eos_is_allowed_exactly_in_accepting_states_of_a_regex,
    eos_is_allowed_only_at_the_end_of_a_json_document,
    accepting_is_known_without_a_mask,
    every_eos_id_ends,
    special_tokens_are_never_allowed,
    padding_is_zero,
    a_row_is_written_whole,
    filling_twice_changes_nothing,
    a_row_of_a_block_is_filled_alone,
    a_wrong_row_is_a_value_error_and_stays_untouched,
    a_refused_token_leaves_row_and_history_untouched,
    a_token_outside_the_vocabulary_is_a_value_error,
    nothing_follows_the_end,
    two_matchers_of_a_grammar_are_independent,
    two_vocabularies_keep_their_own_rows,
    validate_counts_and_changes_nothing,
    rollback_restores_every_earlier_row,
    rollback_over_the_end_restores_rows_bit_for_bit,
    rollback_over_the_end_works_twice,
    rollback_past_the_start_is_a_value_error,
    rollback_has_no_limit,
    a_fork_is_independent,
    reset_is_the_start,
    forced_bytes_start_every_continuation,
    a_missing_capability_is_an_unsupported_error,
    fill_call_fills_the_current_state,
    accept_call_accepts,
    accept_call_shows_a_refusal,
    validate_call_leaves_the_state,
    rollback_call_rewinds,
    what_is_not_declared_is_unsupported,
    an_unknown_profile_is_unsupported,
    a_profile_read_back_from_json_is_the_same_profile,
    binding_twice_and_forgetting_change_no_row,
    forgetting_before_anything_is_harmless,
)


# Claims that not every adapter can be asked: add them where they hold.


def rows_split_characters_by_their_bytes(subject: Subject) -> None:
    """Tokens that are parts of UTF-8 characters are allowed by their bytes (not so where a library works on text)."""
    matcher = subject.start(CHARACTERS)
    for prefix in walk(matcher, "é中😀".encode()):
        difference = bitmask.diff(row_of(matcher), defined_row(CHARACTERS.text, prefix), VOCABULARY.size)
        assert not difference.too_loose, (prefix, [VOCABULARY.tokens[t] for t in difference.too_loose])
        if subject.profile.tokens == "all":
            assert not difference.too_strict, (prefix, [VOCABULARY.tokens[t] for t in difference.too_strict])
    parts = [encode("😀".encode()[:1])[0], encode("😀".encode()[1:])[0]]
    if subject.profile.tokens == "all":
        assert all(matcher.accept(t) for t in parts)


def rows_of_json_agree_with_single_bytes(subject: Subject) -> None:
    """Under ``tokens = "all"`` a token is allowed exactly where its bytes, one by one, are accepted. (Whether the bytes
    themselves are right is not asked here.)"""
    if subject.profile.tokens != "all":
        pytest.skip("under tokens = 'canonical' rows are smaller")
    value = '{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"number"}},"required":["id","n"]}'
    matcher = subject.start(Constraint("json_schema", value))
    text = '{"id": "é\\n😀", "n": -1.5}' if subject.profile.whitespace != "compact" else '{"id":"é\\n😀","n":-1.5}'
    for prefix in walk(matcher, text.encode()):
        row = row_of(matcher)
        for token, piece in enumerate(VOCABULARY.tokens):
            if piece:
                trial = matcher.fork()
                spelled = all(trial.accept(BYTES[byte]) for byte in piece)
                assert bitmask.test(row, token) is spelled, (prefix, piece)


def constructing_imports_nothing(module: str, name: str, library: str) -> None:
    """``module.name()`` and its declarations load neither ``library`` nor torch. A fresh interpreter."""
    code = (
        f"import sys; from {module} import {name} as A; a = A(); a.capabilities, a.profiles['default'], a.name\n"
        f"loaded = sorted({{{library!r}, 'torch'}} & sys.modules.keys()); assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
