"""The reference engine as two backends: the shared contract, the fast rows against the definition, and the canonical
token policy against the library that it describes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness import bitmask, encoders, loaders
from harness.backends import guard, registry
from harness.backends.reference import Naive, Reference
from harness.constraint import Constraint
from harness.errors import MasktaxError, UnsupportedError
from harness.profile import Profile
from harness.reference import completion, regex_syntax, spelling
from harness.reference.masker import Masker, naive_row
from harness.reference.matcher import Grammar
from harness.vocabulary import Vocabulary

from .conformance import (
    CLAIMS,
    SCHEMA,
    VOCABULARY,
    Claim,
    Subject,
    an_unknown_profile_is_unsupported,
    constructing_imports_nothing,
    forced_bytes_start_every_continuation,
    rows_of_json_agree_with_single_bytes,
    rows_split_characters_by_their_bytes,
)

# The engine knows no unknown profile: it follows any, or says which field it cannot.
ALL_CLAIMS = tuple(
    claim
    for claim in (*CLAIMS, rows_split_characters_by_their_bytes, rows_of_json_agree_with_single_bytes)
    if claim is not an_unknown_profile_is_unsupported
)
SCHEMAS: tuple[Any, ...] = (
    {},
    {"type": "object", "properties": {"id": {"enum": ["yes", "no"]}, "na": {"type": "boolean"}}, "required": ["id"]},
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "value": {"type": "number", "minimum": 0}},
        "required": ["name", "value"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "integer", "minimum": -2, "maximum": 12}, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": {"enum": ["ab", "abc", 12, None]}, "uniqueItems": True},
    {"anyOf": [{"type": "string", "pattern": "^(é|😀)+$"}, {"type": "array", "items": {"type": "string"}}]},
    {"type": "object", "patternProperties": {"^id": {"type": "integer"}}, "additionalProperties": {"const": "yes"}},
)


# Where the last of equal keys counts, a value is hardly ever refused, which the contract's claims take for granted.
@pytest.mark.parametrize("profile", [name for name in Reference.profiles if name != "standard"])
@pytest.mark.parametrize("claim", ALL_CLAIMS, ids=lambda c: c.__name__)
def test_keeps_the_contract(claim: Claim, profile: str) -> None:
    asked(claim, Subject(Reference, profile))


@pytest.mark.parametrize("profile", ["default", "minimal", "compact_canonical"])
@pytest.mark.parametrize("claim", ALL_CLAIMS, ids=lambda c: c.__name__)
def test_the_definition_keeps_the_contract(claim: Claim, profile: str) -> None:
    asked(claim, Subject(Naive, profile))


def asked(claim: Claim, subject: Subject) -> None:
    if claim is forced_bytes_start_every_continuation and subject.profile.escapes == "any":
        pytest.skip("where a letter may be written as an escape, no text of a string is forced")
    claim(subject)


def test_is_registered_and_needs_no_library() -> None:
    assert isinstance(registry.create("reference"), Reference)
    assert isinstance(registry.create("naive"), Naive)
    constructing_imports_nothing("harness.backends.reference", "Reference", "jsonschema_rs")


def test_canonical_without_an_encoder_is_unsupported() -> None:
    bare = Vocabulary("bare", VOCABULARY.tokens, VOCABULARY.eos_ids, VOCABULARY.special_ids)
    with pytest.raises(UnsupportedError, match="encoder"):
        Reference().compile(SCHEMA, bare, Reference.profiles["canonical"])


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("profile", ["default", "compact", "minimal"])
def test_fast_rows_are_the_definition_s_along_walks(schema: Any, profile: str) -> None:
    walks(Constraint("json_schema", json.dumps(schema)), Reference.profiles[profile], VOCABULARY, seeds=4, free=25)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_fast_rows_are_the_definition_s_where_the_last_of_equal_keys_counts(schema: Any) -> None:
    constraint = Constraint("json_schema", json.dumps(schema))
    fast, slow = (b.compile(constraint, VOCABULARY, Reference.profiles["standard"]) for b in (Reference(), Naive()))
    for seed in range(3):
        random_ = random.Random(seed)
        one, other = fast.native_matcher(), slow.native_matcher()
        for _ in range(25):
            rows = [bitmask.allocate_row(VOCABULARY.size) for _ in range(2)]
            one.fill(rows[0])
            other.fill(rows[1])
            assert np.array_equal(*rows)  # type: ignore[arg-type]
            allowed = [t for t in bitmask.tokens(rows[0], VOCABULARY.size).tolist() if t not in VOCABULARY.eos_ids]
            if not allowed:
                break
            token = random_.choice(allowed)
            assert one.accept(token)
            assert other.accept(token)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_fast_rows_are_the_definition_s_where_words_have_a_spelling_of_their_own(schema: Any) -> None:
    profile = replace(Reference.profiles["compact"], literal_escapes="minimal")
    walks(Constraint("json_schema", json.dumps(schema)), profile, VOCABULARY, seeds=4, free=25)


def walks(constraint: Constraint, profile: Profile, vocabulary: Vocabulary, *, seeds: int, free: int) -> None:
    """Random walks under the mask, steered to their end: every row is the definition's, and none is a dead end."""
    grammar = Reference().compile(constraint, vocabulary, profile)
    masker = grammar.masker

    def row(state: Any) -> bitmask.Row:
        made = masker.row(masker.cell(state))
        assert np.array_equal(made, naive_row(masker.automaton, state, vocabulary)), state
        return made

    for seed in range(seeds):
        tokens = completion.walk(row, masker.automaton, vocabulary, random.Random(seed), free=free)
        matcher = guard.matcher(grammar, vocabulary, Reference.capabilities)
        assert all(matcher.accept(token) for token in tokens)
        assert matcher.is_accepting
        json.loads(vocabulary.decode(tokens))


@pytest.mark.heavy
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_fast_rows_are_the_definition_s_over_a_large_vocabulary(schema: Any) -> None:
    vocabulary = loaders.load("deepseek")
    walks(Constraint("json_schema", json.dumps(schema)), Reference.profiles["default"], vocabulary, seeds=1, free=6)


# The canonical policy, held against llguidance on languages that both know exactly.

CANONICAL = (
    (r'\{"id":"[a-z ]{0,20}","description":"(yes|no)","ok":(true|false)\}',
     ['{"id":"ab c","description":"yes","ok":true}', '{"id":"","description":"no","ok":false}']),
    (r'\{"name": "[^"\\]*", "coördinaten": \[[0-9]+, [0-9]+\], "größe": (1|12|123)\}',
     ['{"name": "x", "coördinaten": [1, 22], "größe": 123}']),
    (r"(the|a) (quick|quiet) brown fox(es)? jumps? over", ["the quick brown foxes jump over"]),
    (r"😀+ 中文(字|符) und so weiter", ["😀😀 中文字 und so weiter"]),
    (r'<tool>\{"a":  "b"\}</tool>\n\n(x|yy)', ['<tool>{"a":  "b"}</tool>\n\nyy']),
)  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["deepseek", "llama3"])
def test_canonical_rows_are_llguidance_s(name: str) -> None:
    """At every step of a document, spelled by the encoder's tokens and by single bytes: where text is forced and
    where it is not."""
    pytest.importorskip("llguidance")
    try:
        vocabulary = loaders.load(name)
    except MasktaxError as error:  # its package is not installed
        pytest.skip(str(error))
    library = registry.create("llguidance")
    singles = {text[0]: i for i, text in reversed(list(enumerate(vocabulary.tokens))) if len(text) == 1}
    forced = 0
    for pattern, texts in CANONICAL:
        theirs = library.compile(Constraint("regex", pattern), vocabulary, library.profiles["default"])
        node = regex_syntax.compile(pattern, dialect="rust", search=False)
        ours = Grammar(Masker(spelling.Utf8(node), vocabulary), encoders.load(vocabulary).encode)
        for text in texts:
            for tokens in (encoders.encode(vocabulary, text), [singles[byte] for byte in text.encode()]):
                one = guard.matcher(theirs, vocabulary, library.capabilities)
                other = guard.matcher(ours, vocabulary, Reference.capabilities)
                for at in range(len(tokens) + 1):
                    rows = [bitmask.allocate_row(vocabulary.size) for _ in range(2)]
                    one.fill(rows[0])
                    other.fill(rows[1])
                    assert not bitmask.diff(rows[1], rows[0], vocabulary.size), (pattern, tokens[:at])
                    assert one.forced() == other.forced()
                    forced += bool(other.forced())
                    if at < len(tokens):
                        assert one.accept(tokens[at])
                        assert other.accept(tokens[at])
    assert forced > 100
