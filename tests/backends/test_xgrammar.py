"""The xgrammar adapter: the shared contract, and what its profiles declare, asked of the library itself."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest

from harness.backends.xgrammar import XGrammar
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile

from .conformance import (
    CLAIMS,
    REGEX,
    SCHEMA,
    VOCABULARY,
    Claim,
    Subject,
    constructing_imports_nothing,
    rows_of_json_agree_with_single_bytes,
    rows_split_characters_by_their_bytes,
    takes,
)

pytest.importorskip("xgrammar")


BYTE_CLAIMS = (rows_split_characters_by_their_bytes, rows_of_json_agree_with_single_bytes)


def schema(value: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(value))


@pytest.mark.parametrize("profile", XGrammar.profiles)
@pytest.mark.parametrize("claim", (*CLAIMS, *BYTE_CLAIMS))
def test_keeps_the_contract(claim: Claim, profile: str) -> None:
    if claim.__name__ == "what_is_not_declared_is_unsupported" and profile in ("compact", "spaced", "open"):
        pytest.skip("structural tags have no such option: see test_a_structural_tag_without_the_option_is_unsupported")
    claim(Subject(XGrammar, profile))


def test_constructing_imports_nothing() -> None:
    constructing_imports_nothing("harness.backends.xgrammar", "XGrammar", "xgrammar")


def test_version_is_the_package_s() -> None:
    assert XGrammar().version == importlib.metadata.version("xgrammar")


def test_without_the_package_it_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UnsupportedError, match="not installed"):
        _ = XGrammar().version


# What a profile declares. Each line: profile, schema, document, whether it is taken.

AB = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}
LIST = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("profile", "value", "text", "taken"),
    [
        # whitespace, outer_whitespace
        ("default", AB, '{ "a"\t:\r\n1 ,"b" : 2\n}', True),
        ("default", AB, '{"a":1,"b":2}', True),
        ("default", AB, "{" + " " * 60 + '"a":1,"b":2}', True),
        ("default", AB, ' {"a":1,"b":2}', False),
        ("default", AB, '{"a":1,"b":2} ', False),
        ("compact", AB, '{"a":1,"b":2}', True),
        ("compact", AB, '{"a": 1,"b":2}', False),
        ("compact", AB, '{"a":1, "b":2}', False),
        ("compact", LIST, "[1,2]", True),
        ("compact", LIST, "[1, 2]", False),
        ("compact", {}, '{"x":[1,{"y":2}]}', True),
        ("compact", {}, '{"x": 1}', False),
        ("spaced", AB, '{"a": 1, "b": 2}', True),
        ("spaced", AB, '{"a":1, "b": 2}', False),
        ("spaced", AB, '{"a": 1,"b": 2}', False),
        ("spaced", LIST, "[1, 2]", True),
        ("spaced", LIST, "[ 1, 2]", False),
        # key_order, duplicate_keys
        ("default", AB, '{"b":2,"a":1}', False),
        ("default", OPEN, '{"a":1,"x":2}', True),
        ("default", OPEN, '{"x":2,"a":1}', False),
        ("default", OPEN, '{"a":1,"a":2}', False),
        ("default", OPEN, '{"x":1,"x":2}', True),
        ("default", OPEN, '{"x":1,"x":"two"}', False),
        ("any_order", AB, '{"b":2,"a":1}', True),
        ("any_order", AB, '{"a":1,"b":2}', True),
        ("any_order", AB, '{"b":2,"b":2}', True),
        ("any_order", AB, '{"b":2,"b":"two"}', False),
        # additional_properties, additional_items
        ("default", {"type": "object", "properties": {"a": True}}, '{"a":1,"x":2}', False),
        ("open", {"type": "object", "properties": {"a": True}}, '{"a":1,"x":2}', True),
        ("default", {"type": "array", "prefixItems": [{}]}, "[1,2]", False),
        ("open", {"type": "array", "prefixItems": [{}]}, "[1,2]", True),
        ("default", {"type": "object"}, '{"x":1}', True),
        # numbers, integer_spelling
        ("default", {"type": "number"}, "-1.5E+3", True),
        ("default", {"type": "number"}, "01", False),
        ("default", {"type": "number", "minimum": 0}, "1e3", False),
        ("default", {"type": "integer"}, "-12", True),
        ("default", {"type": "integer"}, "7.0", False),
        ("default", {"type": "integer"}, "1e3", False),
        # escapes, lone_surrogates
        ("default", {"type": "string"}, r'"\u0061\/\n"', True),
        ("default", {"type": "string"}, r'"\ud800"', True),
        ("default", {"type": "string"}, '"\n"', False),
        # pattern, regex_dialect, format
        ("default", {"type": "string", "pattern": "b"}, '"b"', True),
        ("default", {"type": "string", "pattern": "b"}, '"abc"', False),
        ("default", {"type": "string", "pattern": r"^\d$"}, '"5"', True),
        ("default", {"type": "string", "pattern": r"^\d$"}, '"٣"', False),
        ("default", {"type": "string", "pattern": r"^\w$"}, '"é"', False),
        ("default", {"type": "string", "pattern": r"^\s$"}, '"\ufeff"', True),
        ("default", {"type": "string", "pattern": r"^\s$"}, '"\u0085"', False),
        ("default", {"type": "string", "format": "date"}, '"2024-01-31"', True),
        ("default", {"type": "string", "format": "date"}, '"soon"', False),
        ("default", {"type": "string", "format": "no-such-format"}, '"soon"', True),
    ],
)
def test_a_profile_is_what_the_library_does(profile: str, value: object, text: str, taken: bool) -> None:
    assert takes(Subject(XGrammar, profile), schema(value), text) is taken


@pytest.mark.parametrize(
    ("pattern", "text", "taken"),
    [
        ("b", "abc", False),
        ("^ab$", "ab", True),
        (r"\d", "٣", False),
        (r"\w", "é", False),
        (r"\s", "\ufeff", True),
        (r"\s", "\u0085", False),
        (".", "é", True),
    ],
)
def test_a_regex_is_matched_in_full_and_in_ecma_s_classes(pattern: str, text: str, taken: bool) -> None:
    assert takes(Subject(XGrammar), Constraint("regex", pattern), text) is taken


# The other kinds


def test_a_json_object_is_any_object_and_nothing_else() -> None:
    subject, constraint = Subject(XGrammar), Constraint("json_object", "")
    assert takes(subject, constraint, '{"a": [1, "x", null]}')
    assert not takes(subject, constraint, "[1]")
    assert not takes(Subject(XGrammar, "compact"), constraint, '{"a": 1}')


def test_choices_are_taken_letter_by_letter() -> None:
    choices = ["yes", "é", "😀", 'q"\\\n\t', "\x00", "a|b", "x/y"]
    constraint, subject = Constraint("choice", json.dumps(choices)), Subject(XGrammar)
    assert all(takes(subject, constraint, choice) for choice in choices)
    assert not any(takes(subject, constraint, text) for text in ("ye", "", "b", "yesé", "\\ud83d\\ude00"))


@pytest.mark.parametrize("syntax", ["ebnf", "gbnf"])
def test_ebnf_grammars(syntax: Any) -> None:
    constraint = Constraint("grammar", 'root ::= "a" item*  # pairs\nitem ::= [0-9]{2} | "é"\n', syntax)
    subject = Subject(XGrammar)
    assert takes(subject, constraint, "a12é")
    assert not takes(subject, constraint, "a1")


def test_lark_grammars() -> None:
    constraint = Constraint("grammar", 'start: "a" NUMBER\nNUMBER: /[0-9]+/\n%ignore " "\n', "lark")
    assert takes(Subject(XGrammar), constraint, "a 12")
    assert not takes(Subject(XGrammar), constraint, "a")


TAG = Constraint(
    "structural_tag",
    json.dumps(
        {
            "triggers": ["<c:"],
            "structures": [
                {"begin": "<c:add>", "schema": AB, "end": "</c>"},
                {"begin": "<c:not>", "schema": {"type": "boolean"}, "end": "</c>"},
            ],
        }
    ),
)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", True),
        ("free { text <c", True),
        ('so <c:add>{"a": 1, "b": 2}</c> and <c:not>true</c>!', True),
        ("<c:", False),
        ("<c:div>", False),
        ("<c:not>1</c>", False),
        ("<c:not>true", False),
    ],
)
def test_structural_tags(text: str, taken: bool) -> None:
    assert takes(Subject(XGrammar), TAG, text) is taken


def test_a_structural_tag_keeps_the_key_order_it_is_asked_for() -> None:
    text = '<c:add>{"b": 2, "a": 1}</c>'
    assert not takes(Subject(XGrammar), TAG, text)
    assert takes(Subject(XGrammar, "any_order"), TAG, text)


@pytest.mark.parametrize("profile", ["compact", "spaced", "open"])
def test_a_structural_tag_without_the_option_is_unsupported(profile: str) -> None:
    with pytest.raises(UnsupportedError, match="structural tags"):
        Subject(XGrammar, profile).compile(TAG)


# Refusals, warnings, options


@pytest.mark.parametrize(
    ("constraint", "error", "message"),
    [
        (Constraint("regex", "(?=a)b"), UnsupportedError, "Lookahead is not supported yet"),
        (Constraint("regex", r"\p{L}"), UnsupportedError, "not supported yet"),
        (Constraint("regex", "("), CompileError, "parenthesis is not closed"),
        (schema(False), CompileError, "cannot accept any value"),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), CompileError, "minimum greater than maximum"),
        (Constraint("grammar", "root ::= x", "ebnf"), CompileError, 'Rule "x" is not defined'),
        (Constraint("grammar", 'root ::= "a" .', "gbnf"), CompileError, 'Rule "." is not defined'),
        (Constraint("grammar", 'begin: "a"', "lark"), CompileError, "no start rule"),
    ],
)
def test_a_refusal_is_the_library_s_message(constraint: Constraint, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        Subject(XGrammar).compile(constraint)
    assert "/project/" not in str(caught.value)  # no time of day and no source line, which differ between runs
    assert "\n" not in str(caught.value) or error is CompileError


def test_what_the_library_compiles_weaker_can_be_asked() -> None:
    subject = Subject(XGrammar)
    weaker = subject.compile(schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}))
    (warning,) = weaker.warnings  # type: ignore[attr-defined]
    assert warning.startswith("oneOf with overlapping")
    assert warning.endswith("falling back to anyOf semantics")
    assert subject.compile(SCHEMA).warnings == ()  # type: ignore[attr-defined]
    regex = subject.compile(Constraint("regex", "a|^b"))
    assert len(regex.warnings) == 1  # type: ignore[attr-defined]


def test_asking_for_warnings_leaves_stderr_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    grammar = Subject(XGrammar).compile(schema({"type": "string", "pattern": "^a+$", "maxLength": 3}))
    capfd.readouterr()
    assert grammar.warnings  # type: ignore[attr-defined]
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_forgetting_empties_the_library_s_cache() -> None:
    backend = XGrammar()
    backend.compile(SCHEMA, VOCABULARY, backend.profiles["default"])
    information = backend._information[VOCABULARY.sha256]
    assert backend._compilers[VOCABULARY.sha256].get_cache_size_bytes() > 0
    backend.forget()
    assert backend._compilers[VOCABULARY.sha256].get_cache_size_bytes() == 0
    assert backend._information[VOCABULARY.sha256] is information


def test_options_reach_the_compiler() -> None:
    backend = XGrammar(max_threads=1, cache_enabled=False, cache_limit_bytes=1 << 20, enable_dynamic_compilation=True)
    grammar = backend.compile(REGEX, VOCABULARY, backend.profiles["default"])
    (compiler,) = backend._compilers.values()
    assert compiler.get_cache_size_bytes() == 0
    assert grammar.facts["memory_size_bytes"] > 0
    assert grammar.facts["enable_dynamic_compilation"] is True


def test_dynamic_compilation_changes_no_row() -> None:
    for claim in CLAIMS:
        if claim.__name__.startswith("rows_of"):
            claim(Subject(lambda: XGrammar(enable_dynamic_compilation=True, max_threads=1)))


def test_a_profile_it_does_not_have_is_unsupported() -> None:
    for profile in (Profile(), Profile(tokens="canonical")):
        with pytest.raises(UnsupportedError, match="no such profile"):
            XGrammar().compile(REGEX, VOCABULARY, profile)
