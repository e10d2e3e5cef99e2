"""Whole languages against judges that share nothing with the engine: ``regex``, ``re``, ``json``, Python's UTF-8,
``lark``, and languages written out in full."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from typing import Any

import lark
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.constraint import Constraint
from harness.errors import CompileError
from harness.profile import Profile
from harness.reference.automaton import Automaton
from harness.reference.compile import compile

from .languages import COMPACT, MINIMAL, accepts, finished, language, schema, strings, verdict


def expression(pattern: str, dialect: Any = "ecma262") -> Automaton[Any]:
    return compile(Constraint("regex", pattern), Profile(regex_dialect=dialect))


# Bytes of characters


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 0x90), (0x7F, 0x80), (0x7F0, 0x810), (0xFF0, 0x1010), (0xD7F0, 0xE010), (0xFFF0, 0x10010),
        (0x3FFF0, 0x40010), (0x10FFF0, 0x10FFFF), (0x61, 0x61), (0x12345, 0x12400), (0xD800, 0xDFFF),
    ],
)  # fmt: skip
def test_the_bytes_of_a_class_are_what_python_encodes(low: int, high: int) -> None:
    expected = {chr(c).encode() for c in range(low, high + 1) if not 0xD800 <= c <= 0xDFFF}
    assert language(expression(f"[\\u{{{low:x}}}-\\u{{{high:x}}}]")) == expected


def test_any_character_is_exactly_one_of_well_formed_utf8() -> None:
    automaton = expression(r"[\s\S]")
    for first in range(256):
        for second in (*range(0, 256, 16), 0x7F, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0):
            for rest in (b"", b"\x80", b"\xbf", b"\x80\x80", b"\xbf\xbf", b"\x7f"):
                data = bytes((first, second)) + rest
                try:
                    whole = len(data.decode()) == 1
                except UnicodeDecodeError:
                    whole = False
                assert accepts(automaton, data) is whole, data


# Regular expressions

PATTERNS = (
    "a", "", "a|b|", "(a|b)*abb", "a*b+a?", "(?:ab){2,3}", "(?<x>a)(?<y>b)", "a{2}", "a{0}", "a{1,}b{0,2}", "(a*)*b",
    "(a?b?)*", "[ab]{3}|c", "[^a]b", "a*?b+?a??(?:ab){1,2}?", "(|a)(|b)", "((a|b)(a|c)){2}", ".a.", "^ab$", "^a|b$",
    r"\x61\u0062|c?", "[a-c-]", "[a\\-c]", "(a{2}){2}", "(a|ab)(c|bc)(b*)", "a{3,5}?b|a{7}",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_prefix_of_an_expression_is_judged_as_by_another_engine(pattern: str) -> None:
    automaton, judge = expression(pattern), regex.compile(pattern)
    # The greedy reading, the same language: ``regex`` takes ``ac`` for a beginning of ``(?:a)*?a``.
    partial = regex.compile(regex.sub(r"([*+?}])\?", r"\1", pattern))
    for text in strings("abc-", 5):
        expected = partial.fullmatch(text, partial=True) is not None, judge.fullmatch(text) is not None
        assert verdict(automaton, text) == expected, text


def expressions() -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "[a-c]", r"[\db]", "é", "[^é]", "[à-é]", ""])
    quantifier = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,3}?", "{0}"])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
            st.tuples(inner, quantifier).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        ),
        max_leaves=10,
    )


@given(expressions())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_what_is_viable_of_a_generated_expression_leads_to_a_match(pattern: str) -> None:
    """``re`` is the judge, because ``regex`` (2026.11.19) finds no ``a`` in ``([^a]|[^é])``."""
    automaton, judge = expression(pattern, "python"), re.compile(pattern)
    texts = list(strings("ab1é", 3))
    whole = {text for text in texts if judge.fullmatch(text)}
    beginnings = {text[:i] for text in whole for i in range(len(text) + 1)}
    for text in texts:
        viable, accepted = verdict(automaton, text)
        assert accepted is (text in whole), text
        assert viable or text not in beginnings, text
        if viable and text not in beginnings:
            assert judge.fullmatch(finished(automaton, text)), text


@pytest.mark.parametrize("letter", "dws")
def test_classes_of_the_python_dialect_are_those_of_re(letter: str) -> None:
    small, large = expression(f"\\{letter}", "python"), expression(f"[^\\{letter.upper()}]", "python")
    judge = re.compile(f"\\{letter}")
    for code in (*range(0x3100), *range(0xFE00, 0x10000), 0x1D7CE, 0x1F600, 0x2FA1D, 0x10FFFF):
        expected = judge.fullmatch(chr(code)) is not None
        assert accepts(small, chr(code)) is accepts(large, chr(code)) is expected, hex(code)


# ECMA-262: \s is WhiteSpace (TAB, VT, FF, ZWNBSP, USP) and LineTerminator (LF, CR, LS, PS).
ECMA_SPACE = (
    "\t\v\f\ufeff \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
    "\n\r\u2028\u2029"
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("pattern", "dialect", "members", "others"),
    [
        (r"\d", "ecma262", "0123456789", None),
        (r"\w", "ecma262", LETTERS + "0123456789_", None),
        (r"\s", "ecma262", ECMA_SPACE, None),
        # Unicode's White_Space, which has NEL and not ZWNBSP.
        (r"\s", "rust", ECMA_SPACE.replace("\ufeff", "\x85"), None),
        ("[^.]", "rust", None, "."),
        (".", "python", None, "\n"),
        (".", "rust", None, "\n"),
        (".", "ecma262", None, "\n\r\u2028\u2029"),
    ],
)
def test_classes_of_a_dialect_are_those_of_its_standard(
    pattern: str, dialect: str, members: str | None, others: str | None
) -> None:
    automaton = expression(pattern, dialect)
    for code in (*range(0x3100), *range(0xFE00, 0x10000), 0xD7FF, 0xE000, 0x1D7CE, 0x1F600, 0x10FFFF):
        c = chr(code)
        expected = c in members if members is not None else c not in str(others)
        assert accepts(automaton, c) is expected, hex(code)


def test_braced_escapes_are_not_pythons() -> None:
    assert accepts(expression(r"\u{1F600}\x41", "rust"), "😀A")
    assert accepts(expression(r"\u{1F600}\u0041", "ecma262"), "😀A")
    with pytest.raises(CompileError):
        expression(r"\u{61}", "python")


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "b$", "^ab$", "^a|b$", "a.b", "^$", "$", "^", "(a|b){2}", "a$|^b", "", "[^a]$"]
)
@pytest.mark.parametrize("how", ["search", "full"])
def test_a_pattern_searches_or_matches_in_full_by_profile(pattern: str, how: Any) -> None:
    profile = replace(MINIMAL, regex_dialect="python", pattern=how)
    automaton = schema({"type": "string", "pattern": pattern}, profile)
    judge = re.compile(pattern).search if how == "search" else re.compile(pattern).fullmatch
    for text in strings("ab\n", 4):
        assert accepts(automaton, json.dumps(text)) is (judge(text) is not None), text


def test_the_end_anchor_stands_before_a_last_newline_only_in_python() -> None:
    for dialect, allowed in (("python", True), ("rust", False), ("ecma262", False)):
        profile = replace(COMPACT, regex_dialect=dialect)  # type: ignore[arg-type]
        assert accepts(schema({"type": "string", "pattern": "a$"}, profile), r'"a\n"') is allowed


# Finite languages, written out


@given(st.sets(st.text("ab中é", max_size=4), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_choice_is_exactly_its_texts(choices: set[str]) -> None:
    automaton = compile(Constraint("choice", json.dumps(sorted(choices))))
    assert language(automaton) == {c.encode() for c in choices}


NULL: Any = {"type": "null"}
PAIR: Any = {"type": "object", "properties": {"b": {"const": "x"}, "a": {"const": "y"}}}
CLOSED: Any = {**PAIR, "additionalProperties": False}


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [
        ({"type": ["null", "boolean"]}, {}, ["null", "true", "false"]),
        ({"enum": ["a", None, True, ["b", {}], "ab"]}, {}, ['"a"', "null", "true", '["b",{}]', '"ab"']),
        ({"enum": ["a", None, True, 1, "b"], "type": ["string", "integer"]}, {}, ['"a"', '"b"', "1"]),
        ({"const": 0, "type": "integer"}, {}, ["0", "-0"]),
        ({"enum": [-12, 1.5, 10.0], "type": "integer"}, {}, ["-12", "10"]),
        # The keys of a value stand in no `properties`, and values compare without an order of keys.
        ({"const": {"b": None, "a": [True]}}, {}, ['{"b":null,"a":[true]}', '{"a":[true],"b":null}']),
        ({"const": {"b": None, "a": [True]}}, {"key_order": "sorted"}, ['{"a":[true],"b":null}']),
        ({"const": {"b": None, "a": 1}, "type": "array"}, {}, []),
        (CLOSED, {}, ["{}", '{"b":"x"}', '{"a":"y"}', '{"b":"x","a":"y"}']),
        (CLOSED, {"key_order": "sorted"}, ["{}", '{"b":"x"}', '{"a":"y"}', '{"a":"y","b":"x"}']),
        (CLOSED, {"key_order": "any"}, ["{}", '{"b":"x"}', '{"a":"y"}', '{"b":"x","a":"y"}', '{"a":"y","b":"x"}']),
        ({**PAIR, "required": ["a"]}, {"additional_properties": False}, ['{"a":"y"}', '{"b":"x","a":"y"}']),
        ({"type": "array", "prefixItems": [{"const": "x"}, {"enum": ["y", "z"]}], "items": False, "minItems": 1}, {},
         ['["x"]', '["x","y"]', '["x","z"]']),
        ({"type": "array", "prefixItems": [{"const": "x"}]}, {"additional_items": False}, ["[]", '["x"]']),
        ({"type": "array", "items": NULL, "maxItems": 2}, {}, ["[]", "[null]", "[null,null]"]),
        ({"type": "array", "items": NULL, "minItems": 2, "maxItems": 2}, {}, ["[null,null]"]),
        ({"type": "array", "items": False}, {}, ["[]"]),
        ({"type": "array", "items": {"const": "i"}, "prefixItems": [{"const": "p"}], "minItems": 2, "maxItems": 3}, {},
         ['["p","i"]', '["p","i","i"]']),
        ({"type": "object", "properties": {"a": False, "b": {"const": None}}, "additionalProperties": False}, {},
         ["{}", '{"b":null}']),
        ({"anyOf": [NULL, {"const": "a"}, {"type": "boolean"}], "type": ["string", "null"]}, {}, ['"a"', "null"]),
        ({"type": "string", "anyOf": [{"anyOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]}]}, {}, ['"a"', '"b"']),
        ({"$defs": {"x": {"enum": ["p", None]}}, "type": "array", "items": {"$ref": "#/$defs/x"}, "maxItems": 1}, {},
         ["[]", '["p"]', "[null]"]),
        ({"type": "integer", "minimum": 8, "maximum": 11}, {}, ["8", "9", "10", "11"]),
        ({"type": "string", "pattern": "^[ab]{1,2}$", "minLength": 2}, {}, ['"aa"', '"ab"', '"ba"', '"bb"']),
        ({"type": "string", "pattern": "^[k-l]*$", "minLength": 1, "maxLength": 1}, {}, ['"k"', '"l"']),
        ({"type": "string", "const": '"\\/\n\x1f'}, {}, [r'"\"\\/\n\u001f"', r'"\"\\/\n\u001F"']),
        (NULL, {"whitespace": "one_space", "outer_whitespace": True}, ["null", " null", "null ", " null "]),
        ({"type": "array", "items": NULL, "minItems": 1, "maxItems": 2},
         {"whitespace": "spaced", "outer_whitespace": True}, ["[null]", "[null, null]"]),
        ({"type": "array", "items": NULL, "uniqueItems": True}, {}, ["[]", "[null]"]),
        ({"enum": ["a", "b", None], "not": {"const": "b"}}, {}, ['"a"', "null"]),
        # Annotations bind nothing.
        ({"type": "null", "title": "t", "$comment": "c", "default": 1, "examples": [2], "format": "date", "x-order": 1,
          "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/x"}, {}, ["null"]),
        # What cannot be met, or never ends, means nothing.
        (False, {}, []),
        ({"$ref": "#"}, {}, []),
        ({"anyOf": [{"$ref": "#"}, NULL]}, {}, ["null"]),
        ({"type": "object", "required": ["a"], "properties": {}, "additionalProperties": False}, {}, []),
    ],
)  # fmt: skip
def test_a_finite_schema_is_exactly_its_documents(value: Any, change: dict[str, Any], expected: list[str]) -> None:
    assert language(schema(value, replace(MINIMAL, **change))) == {text.encode() for text in expected}


@pytest.mark.parametrize(("prefix", "low"), [(0, 0), (0, 1), (0, 7), (2, 0), (2, 1), (2, 7), (3, 3)])
def test_an_array_without_an_upper_bound_has_none(prefix: int, low: int) -> None:
    value: dict[str, Any] = {"type": "array", "items": {"const": "i"}, "minItems": low}
    if prefix:
        value["prefixItems"] = [{"const": "p"}] * prefix
    automaton = schema(value)
    for count in range(20):
        items = ["p"] * min(prefix, count) + ["i"] * (count - prefix)
        assert accepts(automaton, json.dumps(items, separators=(",", ":"))) is (count >= low)
        if 0 < count <= prefix:
            assert not accepts(automaton, json.dumps([*items[:-1], "i"], separators=(",", ":")))
    assert not accepts(automaton, json.dumps(["i"] * (prefix + 8) + ["p"], separators=(",", ":")))


def cases(digits: str) -> set[str]:
    """Hexadecimal digits in either case."""
    return {"".join(each) for each in itertools.product(*({d, d.upper()} for d in digits))}


def test_a_string_has_exactly_its_spellings() -> None:
    found = language(schema({"const": '/"é😀'}))
    spellings = [{f"\\u{h}" for h in cases(f"{ord(c):04x}")} for c in '/"é']
    spellings.append({f"\\u{one}\\u{other}" for one in cases("d83d") for other in cases("de00")})
    for options, more in zip(spellings, (["/", "\\/"], ['\\"'], ["é"], ["😀"]), strict=True):
        options.update(more)
    assert len(found) == math.prod(map(len, spellings))
    assert found == {f'"{"".join(choice)}"'.encode() for choice in itertools.product(*spellings)}
    assert {json.loads(text) for text in found} == {'/"é😀'}


# Grammars

GRAMMARS = {
    "balanced": ('root ::= ("(" root ")" | "[" root "]")*', 'start: ("(" start ")" | "[" start "]")*', "()[]", 4),
    "sums": (
        'root ::= term (("+" | "-") term)*\nterm ::= [0-1]+ | "(" root ")"  # a comment\n',
        'start: term (("+" | "-") term)*\nterm: /[0-1]/+ | "(" start ")"',
        "01+(",
        4,
    ),
    "ambiguous": ('root ::= a a | a\na ::= "x" | "x" "y" | ""', 'start: a a | a\na: "x" | "x" "y" |', "xy", 6),
    "right recursion": ('root ::= "a" root | "b" | ()', 'start: "a" start | "b" |', "ab", 7),
    "counts": (
        'root ::= "a"{2} b{1,3} ("c" "d"){0,1} [d-e]{1,}\nb ::= "b" | "bb"',
        'start: "a"~2 b~1..3 ("c" "d")~0..1 /[d-e]/+\nb: "b" | "bb"',
        "abcde",
        4,
    ),
    "nullable": (
        'root ::= (x? y*)* "e"\nx ::= "a"?\ny ::= x "b" x',
        'start: (x? y*)* "e"\nx: "a"?\ny: x "b" x',
        "abe",
        4,
    ),
    "palindromes": (
        'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',
        'start: "a" start "a" | "b" start "b" | "a" | "b" |',
        "ab",
        6,
    ),
    "useless rules": (
        'root ::= "a" | "b" loop | c\nloop ::= "x" loop\nc ::= "c" (loop | "d")\nleft ::= left "q"',
        'start: "a" | c\nc: "c" "d"',
        "abcdxq",
        3,
    ),
}


def test_grammars_end_what_they_begin() -> None:
    assert language(compile(Constraint("grammar", 'root ::= "a" root', "ebnf"))) == set()


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_prefix_of_a_grammar_is_judged_as_by_another_parser(name: str) -> None:
    source, other, alphabet, longest = GRAMMARS[name]
    automaton = compile(Constraint("grammar", source, "ebnf"))
    judge = lark.Lark(other, parser="earley", lexer="dynamic_complete")
    whole, texts = set(), list(strings(alphabet, longest))
    for text in texts:
        try:
            judge.parse(text)
            whole.add(text)
        except lark.exceptions.LarkError:
            pass
    beginnings = {text[:i] for text in whole for i in range(len(text) + 1)}
    for text in texts:
        viable, accepted = verdict(automaton, text)
        assert accepted is (text in whole), text
        # What only longer texts complete is beyond the list; what it knows to be viable must be.
        assert viable or text not in beginnings, text
        if viable and len(text) <= longest // 2:
            judge.parse(finished(automaton, text))
    assert whole


@pytest.mark.parametrize(
    ("body", "texts", "others"),
    [
        (r'"\x41b\n\"\\\/\?\e"', ['\u041b\n"\\/?\x1b'], ["Ab"]),
        (r'"\u00e9\U0001f600é"', ["é😀é"], []),
        (r'"\x80"', ["\x80"], []),
        (r"[a\-c]", ["a", "-", "c"], ["b"]),
        ("[a-c-]", ["a", "b", "c", "-"], ["d"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[^a-c]", ["d", "\n", "😀", "-"], ["a", "b", ""]),
        (r"[\]\[\"'é-ë]", ["]", "[", '"', "'", "ê"], ["è", "\\"]),
        ('("a" | "b"){2}', ["aa", "ba"], ["a", "aaa"]),
        ('"#" # comment "x"', ["#"], ["#x"]),
    ],
)
def test_strings_and_classes_of_a_grammar_are_read_as_written(body: str, texts: list[str], others: list[str]) -> None:
    automaton = compile(Constraint("grammar", f"root ::= {body}", "ebnf"))
    assert all(accepts(automaton, text) for text in texts)
    assert not any(accepts(automaton, text) for text in others)
    assert not accepts(automaton, b"\x80")
