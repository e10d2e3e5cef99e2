"""The naive engine against judges that share nothing with it: ``regex``, ``re``, ``json``, ``jsonschema_rs``, ``lark``,
and languages written out in full."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import jsonschema_rs
import lark
import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import bitmask, catalogue
from harness.backends import guard, registry
from harness.backends.naive import Naive, NaiveGrammar, compile_automaton, expressions, masks, spelling
from harness.backends.naive.network import Automaton
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.vocabulary import synthetic

from .conformance import CLAIMS, Claim, Subject, constructing_imports_nothing, rows_split_characters_by_their_bytes

VOCABULARY = synthetic()
DIGITS = Profile(key_order="declared", duplicate_keys="any", integer_spelling="digits")
COMPACT = dataclasses.replace(DIGITS, whitespace="compact", outer_whitespace=False)
MINIMAL = dataclasses.replace(COMPACT, escapes="minimal")
PYTHON = dataclasses.replace(COMPACT, regex_dialect="python")


def schema(value: Any, profile: Profile = COMPACT) -> Automaton:
    return compile_automaton(Constraint("json_schema", json.dumps(value)), profile)


def expression(pattern: str, dialect: str = "ecma262") -> Automaton:
    return compile_automaton(Constraint("regex", pattern), Profile(regex_dialect=dialect))  # type: ignore[arg-type]


def grammar(source: str) -> Automaton:
    return compile_automaton(Constraint("grammar", source, "ebnf"), Profile())


def run(automaton: Automaton, data: bytes | str) -> tuple[bool, bool]:
    """Whether the text is viable, and whether it is a whole document."""
    state = automaton.start
    for byte in data.encode() if isinstance(data, str) else data:
        state = automaton.step(state, byte)
        if not state:
            return False, False
    return True, automaton.accepting(state)


def accepts(automaton: Automaton, data: bytes | str) -> bool:
    return run(automaton, data)[1]


def language(automaton: Automaton, limit: int = 200_000) -> set[bytes]:
    """Every document of a finite language."""
    out, todo = set(), [(b"", automaton.start)]
    while todo:
        prefix, state = todo.pop()
        assert len(out) + len(todo) < limit, "not finite, or too large for this test"
        if automaton.accepting(state):
            out.add(prefix)
        for byte in automaton.viable(state):
            after = automaton.step(state, byte)
            assert after, "a viable byte leads to a dead state"
            todo.append((prefix + bytes([byte]), after))
    return out


def finished(automaton: Automaton, data: bytes) -> bytes:
    """A viable prefix and the engine's completion of it; fails where that is no document."""
    state = automaton.start
    for byte in data:
        state = automaton.step(state, byte)
    assert state
    whole = data + automaton.completion(state)
    assert accepts(automaton, whole), f"a dead end after {data!r}"
    return whole


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=length))


# The contract of every backend


@pytest.mark.parametrize("claim", [*CLAIMS, rows_split_characters_by_their_bytes], ids=lambda c: c.__name__)
def test_keeps_the_contract(claim: Claim) -> None:
    claim(Subject(Naive))


def test_is_registered_and_needs_no_library() -> None:
    assert isinstance(registry.create("naive"), Naive)
    constructing_imports_nothing("harness.backends.naive", "Naive", "jsonschema_rs")


# Bytes of characters


@pytest.mark.parametrize(
    "low, high",
    [
        (0, 0x90), (0x7F, 0x80), (0x7F0, 0x810), (0xFF0, 0x1010), (0xD7F0, 0xE010), (0xFFF0, 0x10010),
        (0x3FFF0, 0x40010), (0x10FFF0, 0x10FFFF), (0x61, 0x61), (0x12345, 0x12FFF), (0xD800, 0xDFFF),
    ],
)  # fmt: skip
def test_utf8_of_a_class_is_what_python_encodes(low: int, high: int) -> None:
    expected = {chr(c).encode() for c in range(low, high + 1) if not 0xD800 <= c <= 0xDFFF}
    found = [bytes(b) for seq in spelling.utf8(((low, high),)) for b in itertools.product(*map(members, seq))]
    assert len(found) == len(set(found))
    assert set(found) == expected


def members(ranges: Iterable[tuple[int, int]]) -> list[int]:
    return [value for low, high in ranges for value in range(low, high + 1)]


def test_any_character_is_exactly_one_of_well_formed_utf8() -> None:
    automaton = expression(r"[\s\S]")
    for first in range(256):
        for second in range(0, 256, 5):
            for rest in (b"", b"\x80", b"\xbf", b"\x80\x80", b"\xbf\xbf", b"\x7f", b"\xc0"):
                for data in (bytes([first]), bytes([first, second]) + rest, bytes([first, 0x80, second]) + rest):
                    try:
                        whole = len(data.decode()) == 1
                    except UnicodeDecodeError:
                        whole = False
                    assert accepts(automaton, data) is whole, data


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_sets_of_code_points_behave_as_sets(one: set[int], other: set[int]) -> None:
    a, b = (expressions.union((c, c) for c in s) for s in (one, other))
    assert members(expressions.union(a, b)) == sorted(one | other)
    assert members(expressions.intersection(a, b)) == sorted(one & other)
    assert members(expressions.difference(a, b)) == sorted(one - other)
    assert members(expressions.complement(a, 300)) == sorted(set(range(301)) - one)


# Regular expressions

PATTERNS = (
    "a", "", "a|b|", "(a|b)*abb", "a*b+a?", "(?:ab){2,3}", "(?P<x>a)(?<y>b)", "a{2}", "a{0}", "a{1,}b{0,2}", "(a*)*b",
    "(a?b?)*", "[ab]{3}|c", "[^a]b", "a*?b+?a??(?:ab){1,2}?", "(|a)(|b)", "((a|b)(a|c)){2}", ".a.", "^ab$", "^a|b$",
    r"\x61\u0062|\c?".replace(r"\c", "c"), "[a-c-]", "[a\\-c]", "(a{2}){2}", "(a|ab)(c|bc)(b*)", "a{3,5}?b|a{7}",
)  # fmt: skip


def partial_judge(pattern: str) -> regex.Pattern[str]:
    """The greedy reading, the same language: ``regex`` takes ``ac`` for a beginning of ``(?:a)*?a``."""
    return regex.compile(regex.sub(r"([*+?}])\?", r"\1", pattern))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_short_texts_are_judged_as_by_another_engine(pattern: str) -> None:
    automaton, judge, partial = expression(pattern), regex.compile(pattern), partial_judge(pattern)
    for characters in strings("abc-", 6):
        expected = partial.fullmatch(characters, partial=True) is not None, judge.fullmatch(characters) is not None
        assert run(automaton, characters) == expected, characters


def patterns() -> st.SearchStrategy[str]:
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


@given(patterns())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_generated_expressions_are_judged_as_by_another_engine(pattern: str) -> None:
    """``re`` is the judge, because ``regex`` (2026.11.19) finds no ``a`` in ``([^a]|[^é])``."""
    automaton, judge = expression(pattern, "python"), re.compile(pattern)
    texts = list(strings("ab1é", 4))
    whole = {characters for characters in texts if judge.fullmatch(characters)}
    viable = {characters[:i] for characters in whole for i in range(len(characters) + 1)}
    for characters in texts:
        found = run(automaton, characters)
        assert found[1] is (characters in whole), characters
        assert found[0] or characters not in viable, characters
        if found[0] and characters not in viable:
            assert judge.fullmatch(finished(automaton, characters.encode()).decode()), characters


@given(patterns(), st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_every_viable_prefix_of_an_expression_can_be_finished(pattern: str, data: st.DataObject) -> None:
    automaton = expression(pattern)
    random_ = data.draw(st.randoms(use_true_random=False))
    text = walk(automaton, random_, 12)
    whole = finished(automaton, text)
    assert regex.compile(pattern, regex.ASCII).fullmatch(whole.decode())


def walk(automaton: Automaton, random_: random.Random, length: int) -> bytes:
    """A random viable prefix."""
    state, out = automaton.start, bytearray()
    while len(out) < length and (viable := automaton.viable(state)):
        out.append(random_.choice(sorted(viable)))
        state = automaton.step(state, out[-1])
        assert state
    return bytes(out)


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


@pytest.mark.parametrize(
    "pattern, dialect, expected",
    [
        (r"\d", "ecma262", "0123456789"),
        (r"\w", "ecma262", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"),
        (r"\s", "ecma262", ECMA_SPACE),
        (r"\s", "rust", ECMA_SPACE.replace("\ufeff", "\x85")),
        ("[^.]", "rust", None),
        (".", "python", None),
        (".", "rust", None),
        (".", "ecma262", None),
    ],
)
def test_classes_of_a_dialect_are_those_of_its_standard(pattern: str, dialect: str, expected: str | None) -> None:
    automaton = expression(pattern, dialect)
    newlines = "\n\r\u2028\u2029" if dialect == "ecma262" else "\n"
    excluded = "." if pattern == "[^.]" else newlines
    for code in (*range(0xD800), *range(0xE000, 0x11000), 0x10FFFF):
        c = chr(code)
        assert accepts(automaton, c) is (c not in excluded if expected is None else c in expected), hex(code)


@pytest.mark.parametrize(
    "pattern, construct",
    [
        ("(?=a)b", "(?="), ("(?!a)b", "(?!"), ("(?<=a)b", "(?<="), ("(?<!a)b", "(?<!"), ("(?i)a", "(?i"),
        ("(?>a)", "(?>"), ("(a)(?P=x)", "(?P="), (r"\bfoo", r"\b"), (r"(a)\1", r"\1"), (r"\p{L}", r"\p"),
        (r"\Aa", r"\A"), (r"[\b]", r"\b"),
        ("(^a)", "^"), ("a^b", "^"), ("a$b", "$"), ("(a$)", "$"), ("a++", "+"), ("a**", "*"), ("a{2}{3}", "{"),
        ("*a", "*"), ("a{,3}", "{"), ("a{3,2}", "{"), ("(a", "("), ("a)", ")"), ("[]", "[]"), ("[^]", "[]"),
        ("[a", "["),
        ("[b-a]", "["), ("[a&&b]", "&&"), ("[a--b]", "--"), ("[[:alpha:]]", "[:"), (r"[\d-z]", "["),
        (r"\ud83d", r"\ud83d"),
        ("a\\", "\\"), (r"\0", r"\0"), ("^*", "*"),
    ],
)  # fmt: skip
def test_what_is_outside_the_subset_is_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(UnsupportedError, match="regular expression") as refusal:
        expression(pattern)
    assert refusal.value.keyword == construct
    assert "\n" not in refusal.value.reason


@pytest.mark.parametrize("pattern", [r"\d", r"\W", "[[a]", r"\<"])
def test_rust_constructs_that_depend_on_the_library_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        expression(pattern, "rust")


def test_braced_escapes_are_not_pythons() -> None:
    assert accepts(expression(r"\u{1F600}\x41", "rust"), "😀A")
    assert accepts(expression(r"\u{1F600}\u0041", "ecma262"), "😀A")
    with pytest.raises(UnsupportedError):
        expression(r"\u{61}", "python")


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "b$", "^ab$", "^a|b$", "a.b", "^$", "$", "^", "(a|b){2}", "a$|^b", "", "[^a]$"]
)
@pytest.mark.parametrize("how", ["search", "full"])
def test_a_pattern_searches_or_matches_in_full_by_profile(pattern: str, how: Any) -> None:
    automaton = schema(
        {"type": "string", "pattern": pattern}, dataclasses.replace(PYTHON, pattern=how, escapes="minimal")
    )
    judge = re.compile(pattern).search if how == "search" else re.compile(pattern).fullmatch
    for characters in strings("ab\n", 4):
        assert accepts(automaton, json.dumps(characters)) is (judge(characters) is not None), characters


def test_the_end_anchor_stands_before_a_last_newline_only_in_python() -> None:
    for dialect, allowed in (("python", True), ("rust", False), ("ecma262", False)):
        profile = dataclasses.replace(COMPACT, regex_dialect=dialect)
        assert accepts(schema({"type": "string", "pattern": "a$"}, profile), r'"a\n"') is allowed


# Finite languages, written out


@given(st.sets(st.text("ab中é", max_size=4), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_choice_is_exactly_its_texts(choices: set[str]) -> None:
    automaton = compile_automaton(Constraint("choice", json.dumps(sorted(choices))), Profile())
    assert language(automaton) == {c.encode() for c in choices}


@pytest.mark.parametrize(
    "value, profile, expected",
    [
        (True, MINIMAL, None),
        ({"type": ["null", "boolean"]}, MINIMAL, ["null", "true", "false"]),
        ({"enum": ["a", None, True, ["b", {}], "ab"]}, MINIMAL, ['"a"', "null", "true", '["b",{}]', '"ab"']),
        ({"enum": ["a", None, True, 1, "b"], "type": ["string", "integer"]}, MINIMAL, ['"a"', '"b"', "1"]),
        ({"const": 0, "type": "integer"}, MINIMAL, ["0", "-0"]),
        ({"enum": [-12, 1.5, 10.0], "type": "integer"}, MINIMAL, ["-12", "10"]),
        ({"const": {"b": None, "a": [True]}}, MINIMAL, ['{"b":null,"a":[true]}']),
        (
            {"const": {"b": None, "a": [True]}},
            dataclasses.replace(MINIMAL, key_order="any", duplicate_keys="forbidden"),
            ['{"b":null,"a":[true]}', '{"a":[true],"b":null}'],
        ),
        ({"const": {"b": None, "a": 1}, "type": "array"}, MINIMAL, None),
        (
            {"properties": {"b": {"const": "x"}, "a": {"const": "y"}}, "type": "object", "additionalProperties": False},
            MINIMAL,
            ["{}", '{"b":"x"}', '{"a":"y"}', '{"b":"x","a":"y"}'],
        ),
        (
            {"properties": {"b": {"const": "x"}, "a": {"const": "y"}}, "type": "object", "additionalProperties": False},
            dataclasses.replace(MINIMAL, key_order="sorted"),
            ["{}", '{"b":"x"}', '{"a":"y"}', '{"a":"y","b":"x"}'],
        ),
        (
            {"properties": {"b": {"const": "x"}, "a": {"const": "y"}}, "type": "object", "required": ["a"]},
            dataclasses.replace(MINIMAL, additional_properties=False),
            ['{"a":"y"}', '{"b":"x","a":"y"}'],
        ),
        (
            {"type": "array", "prefixItems": [{"const": "x"}, {"enum": ["y", "z"]}], "items": False, "minItems": 1},
            MINIMAL,
            ['["x"]', '["x","y"]', '["x","z"]'],
        ),
        (
            {"type": "array", "prefixItems": [{"const": "x"}]},
            dataclasses.replace(MINIMAL, additional_items=False),
            ["[]", '["x"]'],
        ),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 2}, MINIMAL, ["[]", "[null]", "[null,null]"]),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}, MINIMAL, ["[null,null]"]),
        ({"type": "array", "items": False}, MINIMAL, ["[]"]),
        (
            {"type": "array", "items": {"const": "i"}, "prefixItems": [{"const": "p"}], "minItems": 2, "maxItems": 3},
            MINIMAL,
            ['["p","i"]', '["p","i","i"]'],
        ),
        (
            {"type": "object", "properties": {"a": False, "b": {"const": None}}, "additionalProperties": False},
            MINIMAL,
            ["{}", '{"b":null}'],
        ),
        (
            {"anyOf": [{"type": "null"}, {"const": "a"}, {"type": "boolean"}], "type": ["string", "null"]},
            MINIMAL,
            ['"a"', "null"],
        ),
        (
            {"$defs": {"x": {"enum": ["p", None]}}, "type": "array", "items": {"$ref": "#/$defs/x"}, "maxItems": 1},
            MINIMAL,
            ["[]", '["p"]', "[null]"],
        ),
        ({"type": "integer", "minimum": 8, "maximum": 11}, MINIMAL, ["8", "9", "10", "11"]),
        ({"type": "string", "pattern": "^[ab]{1,2}$", "minLength": 2}, MINIMAL, ['"aa"', '"ab"', '"ba"', '"bb"']),
        ({"type": "string", "pattern": "^[k-l]*$", "minLength": 1, "maxLength": 1}, MINIMAL, ['"k"', '"l"']),
        ({"type": "string", "const": '"\\/\n\x1f'}, MINIMAL, [r'"\"\\/\n\u001f"', r'"\"\\/\n\u001F"']),
        (
            {"type": "null"},
            dataclasses.replace(MINIMAL, whitespace="one_space", outer_whitespace=True),
            ["null", " null", "null ", " null "],
        ),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
            dataclasses.replace(MINIMAL, whitespace="spaced", outer_whitespace=True),
            ["[null]", "[null, null]"],
        ),
    ],
)  # fmt: skip
def test_a_finite_schema_is_exactly_its_documents(value: Any, profile: Profile, expected: list[str] | None) -> None:
    if expected is None and value is not True:
        with pytest.raises(UnsupportedError, match="language is empty"):
            schema(value, profile)
    elif expected is None:
        assert accepts(schema(value, profile), '{"a":[1,2.5e3,{"b":null}]}')
    else:
        assert language(schema(value, profile)) == {text.encode() for text in expected}


@pytest.mark.parametrize("prefix, low", [(0, 0), (0, 1), (0, 7), (2, 0), (2, 1), (2, 7), (3, 3)])
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


def test_a_schema_behind_two_unions_keeps_its_type_and_its_pattern() -> None:
    value = {"type": "string", "anyOf": [{"anyOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]}]}
    assert language(schema(value, MINIMAL)) == {b'"a"', b'"b"'}


def test_a_string_has_exactly_its_spellings() -> None:
    found = language(schema({"const": 'a/"\né😀'}))
    hexadecimal = {
        c: {"".join(case) for case in itertools.product(*({d, d.upper()} for d in f"{ord(c):04x}"))} for c in 'a/"\né'
    }
    spellings = [{f"\\u{h}" for h in hexadecimal[c]} for c in 'a/"\né']
    halves = [
        {"".join(case) for case in itertools.product(*({d, d.upper()} for d in half))} for half in ("d83d", "de00")
    ]
    spellings.append({f"\\u{one}\\u{other}" for one in halves[0] for other in halves[1]})
    for options, more in zip(spellings, (["a"], ["/", "\\/"], ['\\"'], ["\\n"], ["é"], ["😀"]), strict=True):
        options.update(more)
    assert len(found) == math.prod(map(len, spellings))
    assert found == {f'"{"".join(choice)}"'.encode() for choice in itertools.product(*spellings)}
    assert {json.loads(text) for text in found} == {'a/"\né😀'}


def test_the_schemas_own_strings_have_one_spelling_where_the_profile_says_so() -> None:
    value = {"type": "object", "properties": {"a": {"enum": ["b", "/"]}, "c": {"type": "string"}}, "required": ["a"]}
    automaton = schema(value, dataclasses.replace(COMPACT, literal_escapes="minimal"))
    assert accepts(automaton, '{"a":"b"}')
    assert accepts(automaton, r'{"a":"/","c":"\u0061","\u0064":1}')
    for text in (r'{"\u0061":"b"}', r'{"a":"\u0062"}', r'{"a":"\/"}', r'{"a":"b","\u0063":1}'):
        assert not accepts(automaton, text), text
        assert text.startswith(r'{"a":"b"') or accepts(schema(value), text), text


# Strings, numbers, white space


@pytest.mark.parametrize("escapes", ["any", "minimal"])
@pytest.mark.parametrize("lone", [False, True])
def test_strings_are_read_as_a_parser_reads_them(lone: bool, escapes: Any) -> None:
    """Every text of a few pieces, against ``json.loads``: accepted exactly if it parses, spells what the profile
    allows, and the decoded length fits."""
    profile = dataclasses.replace(COMPACT, lone_surrogates=lone, escapes=escapes)
    bounds = [(0, None), (1, 2), (2, 2), (0, 1)]
    automata = [
        schema({"type": "string", "minLength": low} | ({} if high is None else {"maxLength": high}), profile)
        for low, high in bounds
    ]
    pieces = ["a", "é", "😀", "\\ud83d", "\\uDE00", "\\n", "\\/", "\\u0061", "\x7f", "\n", '"', "\\", "\\u00", "\\x"]
    for count in range(4):
        for parts in itertools.product(pieces, repeat=count):
            text = f'"{"".join(parts)}"'
            value = parsed_string(text)
            if value is not None and not lone and re.search("[\ud800-\udfff]", value):
                value = None
            if value is not None and escapes == "minimal" and lower_escapes(text) != shortest(value):
                value = None
            for automaton, (low, high) in zip(automata, bounds, strict=True):
                fits = value is not None and low <= len(value) <= (99 if high is None else high)
                assert accepts(automaton, text) is fits, (text, low, high)


def parsed_string(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None


def lower_escapes(text: str) -> str:
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", lambda found: found.group().lower(), text)


def shortest(value: str) -> str:
    """Python's own spelling, which escapes what must be; it would write a lone surrogate raw."""
    pieces = (
        f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else json.dumps(c, ensure_ascii=False)[1:-1] for c in value
    )
    return f'"{"".join(pieces)}"'


def number_texts() -> Iterator[str]:
    yield from strings("-.e05", 5)
    yield from (
        "1e5",
        "1E5",
        "1e+5",
        "1E-05",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "12.340e10",
        "-12",
        "1.0",
        "NaN",
        "Infinity",
    )


def json_number(text: str) -> Decimal | None:
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=lambda _: None)
    except ValueError:
        return None
    return value if text.strip() == text else None


@pytest.mark.parametrize(
    "value, change, holds",
    [
        ({"type": "number"}, {}, lambda number, text: True),
        ({"type": "number"}, {"numbers": "plain"}, lambda number, text: "e" not in text.lower()),
        ({"type": "integer"}, {}, lambda number, text: not set(text.lower()) & set(".e")),
        (
            {"type": "integer"},
            {"numbers": "plain", "integer_spelling": "value"},
            lambda number, text: "e" not in text.lower() and number == int(number),
        ),
        ({"type": ["integer", "number"]}, {}, lambda number, text: True),
        ({"const": 5}, {"numbers": "plain"}, lambda number, text: "e" not in text.lower() and number == 5),
        (
            {"const": -0.5},
            {"numbers": "plain"},
            lambda number, text: "e" not in text.lower() and number == -Decimal("0.5"),
        ),
        ({"const": 0}, {"numbers": "plain"}, lambda number, text: "e" not in text.lower() and number == 0),
        (
            {"const": 5e1, "type": "integer"},
            {},
            lambda number, text: not set(text.lower()) & set(".e") and number == 50,
        ),
        (
            {"enum": [5e1, 0.5, "x"], "type": "integer"},
            {"numbers": "plain", "integer_spelling": "value"},
            lambda number, text: "e" not in text.lower() and number == 50,
        ),
    ],
)
def test_numbers_are_spelled_as_the_profile_says(value: Any, change: dict[str, Any], holds: Any) -> None:
    automaton = schema(value, dataclasses.replace(COMPACT, **change))
    found = 0
    for text in number_texts():
        number = json_number(text)
        expected = number is not None and holds(number, text)
        assert accepts(automaton, text) is expected, text
        found += expected
    assert found


def test_a_constant_is_its_value_however_the_schema_writes_it() -> None:
    for text in ("1.50", "15e-1", "0.15E1"):
        automaton = compile_automaton(
            Constraint("json_schema", f'{{"const": {text}}}'), dataclasses.replace(COMPACT, numbers="plain")
        )
        assert [accepts(automaton, spelled) for spelled in ("1.5", "1.50", "1.500", "1.05", "15", "-1.5")] == [
            True, True, True, False, False, False
        ]  # fmt: skip


@given(
    st.one_of(st.none(), st.integers(-130, 1300), st.decimals(-20, 20, places=1)),
    st.one_of(st.none(), st.integers(-130, 1300), st.decimals(-20, 20, places=1)),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_integer_bounds_hold_exactly(low: Any, high: Any, open_below: bool, open_above: bool) -> None:
    bounds = {}
    if low is not None:
        bounds["exclusiveMinimum" if open_below else "minimum"] = low
    if high is not None:
        bounds["exclusiveMaximum" if open_above else "maximum"] = high
    text = json.dumps({"type": "integer"})[:-1] + "".join(f', "{k}": {v}' for k, v in bounds.items()) + "}"
    numbers = (*range(-150, 130), *range(-1310, -1290), *range(985, 1015), *range(1290, 1310), 99999, 10**30, -(10**30))
    numbers += tuple(int(bound) + more for bound in (low, high) if bound is not None for more in range(-3, 4))
    inside = [
        n
        for n in numbers
        if (low is None or n > low or (n == low and not open_below))
        and (high is None or n < high or (n == high and not open_above))
    ]
    if not inside:
        with pytest.raises(UnsupportedError, match="empty"):
            compile_automaton(Constraint("json_schema", text), COMPACT)
        return
    automaton = compile_automaton(Constraint("json_schema", text), COMPACT)
    for n in numbers:
        assert accepts(automaton, str(n)) is (n in inside), n
    assert accepts(automaton, "-0") is (0 in inside)
    assert not accepts(automaton, "01")


GAPS = re.compile(r"(?<=[\[{,:])|(?=[\]},:])")


@pytest.mark.parametrize(
    "change, gap, after",
    [
        ({"whitespace": "any"}, r"[ \t\r\n]*", None),
        ({"whitespace": "bounded", "whitespace_limit": 2}, r"[ \t\r\n]{0,2}", None),
        ({"whitespace": "one_space"}, " ?", None),
        ({"whitespace": "compact"}, "", None),
        ({"whitespace": "spaced"}, "", " "),
    ],
)
@pytest.mark.parametrize("outer", [True, False])
def test_white_space_is_what_the_profile_says(change: dict[str, Any], gap: str, after: str | None, outer: bool) -> None:
    value = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "null"}}, "b": {"type": "object"}},
    }
    profile = dataclasses.replace(COMPACT, outer_whitespace=outer, **change)
    automaton = schema(value, profile)
    pieces = ["{", '"a"', ":", "[", "null", ",", "null", "]", ",", '"b"', ":", "{", "}", "}"]
    random_ = random.Random(1)
    seen = set()
    for _ in range(600):
        fills = [
            random_.choice(["", "", "", " ", "  ", "\n\t ", "\r", "\u00a0"])
            if random_.random() < 0.25
            else (" " if after and i and pieces[i - 1] in ",:" else "")
            for i in range(len(pieces) + 1)
        ]
        text = "".join(f"{fill}{piece}" for fill, piece in zip(fills, [*pieces, ""], strict=True))
        expected = True
        for i, fill in enumerate(fills):
            allowed = gap
            if i in (0, len(pieces)):
                allowed = gap if outer else ""
            elif after and pieces[i - 1] in ",:":
                allowed = after
            expected = expected and re.fullmatch(allowed, fill) is not None
        seen.add(expected)
        assert accepts(automaton, text) is expected, text
    assert seen == {True, False}


# Schemas, against an independent validator

KEYS = "abxy"


def values() -> st.SearchStrategy[Any]:
    scalars = st.sampled_from([None, True, False, 0, 1, -1, 7, 0.5, "", "a", "ab", "b", "aé", "\n"])
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
        max_leaves=6,
    )


def schemas() -> st.SearchStrategy[Any]:
    small = st.integers(0, 3)
    leaf: st.SearchStrategy[Any] = st.one_of(
        st.booleans(),
        st.sampled_from(
            [
                {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {},
                {"type": ["string", "null"]}, {"type": ["integer", "boolean"]}, {"$ref": "#/$defs/tree"},
                {"$ref": "#/$defs/word"},
                {"type": "object"}, {"type": "array"}, {"enum": ["a", "aé", None, True]}, {"const": ["a", {"a": None}]},
                {"enum": [1, "a", 7], "type": ["integer", "string"]} , {"type": "integer", "minimum": 0},
                {"type": "integer", "exclusiveMaximum": 1, "minimum": -5}, {"pattern": "a"},
                {"type": "string", "pattern": "^a.?$"},
            ]
        ),
        st.fixed_dictionaries(
            {},
            optional={
                "minLength": small, "maxLength": small, "type": st.just("string"),
                "pattern": st.sampled_from(["a", "^b|é$", "^[^b]*$"]),
            },
        ),
    )  # fmt: skip

    def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        objects = st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)},
            optional={"additionalProperties": st.one_of(st.booleans(), inner), "type": st.just("object")},
        )
        demanding = st.tuples(objects, st.randoms(use_true_random=False)).map(
            lambda pair: pair[0] | {"required": [key for key in pair[0]["properties"] if pair[1].random() < 0.5]}
        )
        arrays = st.fixed_dictionaries(
            {},
            optional={
                "type": st.just("array"), "items": inner, "prefixItems": st.lists(inner, min_size=1, max_size=2),
                "minItems": small, "maxItems": small,
            },
        )  # fmt: skip
        either = st.fixed_dictionaries(
            {"anyOf": st.lists(inner, min_size=1, max_size=3)},
            optional={"type": st.sampled_from(["string", "object", ["array", "integer"]]), "title": st.just("t")},
        )
        return st.one_of(demanding, arrays, either)

    tree = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    word = {"anyOf": [{"const": "ab"}, {"type": "string", "maxLength": 1}]}
    return st.recursive(leaf, compound, max_leaves=8).map(
        lambda s: s if isinstance(s, bool) else s | {"$defs": {"tree": tree, "word": word}}
    )


def guess(value: Any, root: Any, random_: random.Random, depth: int = 0) -> Any:
    """An instance that is often valid; whether it is, the judge says."""
    if isinstance(value, bool) or depth > 5 or random_.random() < 0.1:
        return random_.choice([None, True, 0, "a", "ab", 0.5, [], {}, [1], {"a": 1}, {"x": "a"}])
    if "$ref" in value:
        return guess(root["$defs"][value["$ref"].rpartition("/")[2]], root, random_, depth + 1)
    if "anyOf" in value:
        return guess(random_.choice(value["anyOf"]), root, random_, depth + 1)
    if "enum" in value or "const" in value:
        return random_.choice(value.get("enum", [value.get("const")]))
    kinds = value.get(
        "type", [k for k in ("object", "array", "string") if VALUE_KEYWORDS[k] & value.keys()] or ["null"]
    )
    match random_.choice(kinds) if isinstance(kinds, list) else kinds:
        case "object":
            declared = value.get("properties", {})
            keys = [key for key in declared if key in value.get("required", ()) or random_.random() < 0.5]
            keys += random_.sample(KEYS, random_.randrange(2))
            further = value.get("additionalProperties", True)
            return {key: guess(declared.get(key, further), root, random_, depth + 1) for key in keys}
        case "array":
            first = value.get("prefixItems", [])
            low = value.get("minItems", 0)
            length = random_.randint(low, max(low, value.get("maxItems", 3)) + 1)
            items = [first[i] if i < len(first) else value.get("items", True) for i in range(length)]
            return [guess(item, root, random_, depth + 1) for item in items]
        case "string":
            return "".join(random_.choices("abé😀", k=random_.randint(value.get("minLength", 0), 3)))
        case "integer":
            return random_.randint(-7, 7)
        case "number":
            return random_.choice([1, -0.5, 3])
        case "boolean":
            return True
    return None


VALUE_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
}


def orders(value: Any) -> Iterator[Any]:
    """The value with the keys of its objects in every order."""
    if isinstance(value, list):
        yield from map(list, itertools.product(*(list(orders(item)) for item in value)))
    elif isinstance(value, dict):
        for keys in itertools.permutations(value):
            for items in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, items, strict=True))
    else:
        yield value


@given(schemas(), st.lists(values(), min_size=4, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_generated_schemas_are_judged_as_by_an_independent_validator(
    value: Any, instances: list[Any], random_: random.Random
) -> None:
    """Under declared order, an instance is valid exactly if some order of its keys is a document; under any order,
    exactly if every order is. (jsonschema_rs searches patterns as ECMA-262 does.)"""
    judge = jsonschema_rs.Draft202012Validator(value)
    instances = [*instances, *(guess(value, value, random_) for _ in range(8))]
    profiles = [
        COMPACT,
        dataclasses.replace(COMPACT, key_order="any"),
        dataclasses.replace(COMPACT, key_order="any", duplicate_keys="last_wins"),
    ]
    for profile in profiles:
        try:
            automaton = schema(value, profile)
        except UnsupportedError as error:
            if error.keyword == "empty":
                assert not any(map(judge.is_valid, instances))
            else:
                assert profile.duplicate_keys == "last_wins"
                assert error.keyword == "additionalProperties"
            continue
        for instance in instances:
            found = {accepts(automaton, json.dumps(order, separators=(",", ":"))) for order in orders(instance)}
            valid = judge.is_valid(instance)
            if profile.key_order == "declared":
                assert any(found) is valid, instance
            else:
                assert found == {valid}, instance


@given(schemas(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_every_document_that_a_walk_makes_is_valid_and_every_walk_can_finish(
    value: Any, random_: random.Random
) -> None:
    judge = jsonschema_rs.Draft202012Validator(value)
    for profile in (DIGITS, dataclasses.replace(DIGITS, key_order="any", escapes="minimal", numbers="plain")):
        try:
            automaton = schema(value, profile)
        except UnsupportedError as error:
            assert error.keyword == "empty"
            continue
        for length in (0, 3, 12, 30):
            document = finished(automaton, walk(automaton, random_, length))
            assert judge.is_valid(json.loads(document)), document


@pytest.mark.parametrize("mode", ["forbidden", "last_wins", "any"])
def test_repeated_keys_read_as_the_profile_says(mode: Any) -> None:
    value = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    automaton = schema(value, dataclasses.replace(COMPACT, key_order="any", duplicate_keys=mode))
    open_ = value | {"additionalProperties": True}
    opened = None
    if mode != "forbidden":
        opened = schema(open_, dataclasses.replace(COMPACT, key_order="any", duplicate_keys=mode))
    members = [("a", "true"), ("a", "null"), ("b", "null"), ("b", "[1]"), ("c", "1"), ("c", "{}")]
    for count in range(5):
        for chosen in itertools.product(members, repeat=count):
            text = "{" + ",".join(f'"{key}":{item}' for key, item in chosen) + "}"
            keys = [key for key, _ in chosen]
            for judge, found in ((value, automaton), (open_, opened)):
                if found is None:
                    continue
                validator = jsonschema_rs.Draft202012Validator(judge)
                if mode == "any":
                    choices = [[json.loads(v) for k, v in chosen if k == key] for key in dict.fromkeys(keys)]
                    readings = [dict(zip(dict.fromkeys(keys), c, strict=True)) for c in itertools.product(*choices)]
                else:
                    readings = [json.loads(text)]  # Python's parser lets the last one win
                expected = all(map(validator.is_valid, readings))
                if mode == "forbidden":
                    expected = expected and len(set(keys)) == len(keys)
                assert accepts(found, text) is expected, text


def test_further_keys_come_after_the_declared_ones_and_are_none_of_them() -> None:
    value = {"type": "object", "properties": {"a": {"const": "A"}, "ab": {"const": "AB"}}, "required": ["a"]}
    automaton = schema(value)
    assert accepts(automaton, '{"a":"A"}')
    assert accepts(automaton, '{"a":"A","abc":1,"":2,"b":3,"abc":4}')
    assert accepts(automaton, '{"a":"A","ab":"AB","c":1}')
    assert accepts(automaton, r'{"\u0061":"A","c":1}')
    for text in (
        '{"c":1,"a":"A"}', '{"a":"A","c":1,"ab":"AB"}', '{"ab":"AB","a":"A"}', '{"a":"A","a":1}', '{"a":"A","ab":1}',
        r'{"a":"A","\u0061b":1}', r'{"a":"A","c":1,"a\u0062":"AB"}', '{"a":"A","a":"A"}',
    ):  # fmt: skip
        assert not accepts(automaton, text), text


def test_a_further_key_is_not_a_declared_one_split_into_surrogates() -> None:
    value = {"type": "object", "properties": {"😀": {"type": "null"}}}
    automaton = schema(value, dataclasses.replace(COMPACT, lone_surrogates=True))
    assert accepts(automaton, '{"😀":null}')
    assert accepts(automaton, r'{"\ud83d\ude00":null}')
    assert not accepts(automaton, r'{"\ud83d\ude00":1}')
    assert accepts(automaton, r'{"\ude00\ud83d":1}')


@pytest.mark.parametrize("backend", ["xgrammar", "lm-format-enforcer"])
def test_the_built_in_constraints_are_judged_as_they_are_labelled(backend: str) -> None:
    """Their labels were checked by other judges. Profiles are read from the adapters; no library is imported."""
    profile = registry.create(backend).profiles["default"]
    covered, entries = 0, catalogue.load()
    for entry in entries.values():
        try:
            automaton = compile_automaton(entry.constraint, profile)
        except UnsupportedError:
            continue
        covered += 1
        for instance in catalogue.valid_under(entry, profile):
            text = catalogue.spell(entry, instance, profile)
            assert accepts(automaton, text), (entry.name, text)
        for instance in entry.invalid:
            text = catalogue.spell(entry, instance, profile)
            assert not accepts(automaton, text), (entry.name, text)
    assert covered >= len(entries) // 3


def test_json_object_is_any_object_and_nothing_else() -> None:
    automaton = compile_automaton(Constraint("json_object", ""), DIGITS)
    for text, whole in (
        ("{}", True),
        (' {"a" : [1.5e3, {"a": {}}]}\n', True),
        ("[]", False),
        ("1", False),
        ("{,}", False),
    ):
        assert accepts(automaton, text) is whole, text


@pytest.mark.parametrize(
    "value, keyword, pointer",
    [
        ({"type": "number", "multipleOf": 2}, "multipleOf", "/multipleOf"),
        ({"properties": {"a/b": {"oneOf": [True]}}}, "oneOf", "/properties/a~1b/oneOf"),
        ({"items": {"not": {}}}, "not", "/items/not"),
        ({"items": [True]}, "items", "/items"),
        ({"prefixItems": [{"if": True}]}, "if", "/prefixItems/0/if"),
        ({"anyOf": [{}, {"allOf": []}]}, "allOf", "/anyOf/1/allOf"),
        ({"anyOf": [True], "minLength": 1}, "anyOf", "/anyOf"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"contains": True}}}, "contains", "/$defs/a/contains"),
        ({"$ref": "#/$defs/a", "properties": {}, "$defs": {"a": True}}, "$ref", "/$ref"),
        ({"$ref": "#/$defs/b", "$defs": {"a": True}}, "$ref", "/$ref"),
        ({"$ref": "other.json"}, "$ref", "/$ref"),
        ({"$ref": "#/$defs/a/items", "$defs": {"a": {"$id": "x", "items": True}}}, "$ref", "/$ref"),
        ({"$ref": "#"}, "empty", ""),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "left recursion", ""),
        ({"enum": ["a"], "minLength": 1}, "enum", "/enum"),
        ({"const": 1}, "const", "/const"),
        ({"enum": [[1]]}, "enum", "/enum"),
        ({"type": "number", "minimum": 0}, "minimum", "/minimum"),
        ({"minimum": 0}, "minimum", "/minimum"),
        ({"type": "integer", "exclusiveMinimum": True}, "exclusiveMinimum", "/exclusiveMinimum"),
        ({"type": "string", "pattern": r"\bx"}, "pattern", "/pattern"),
        ({"type": "string", "minLength": -1}, "minLength", "/minLength"),
        ({"type": "string", "maxLength": 10**9}, "size", ""),
        ({"type": "array", "uniqueItems": True}, "uniqueItems", "/uniqueItems"),
        ({"type": "object", "patternProperties": {}}, "patternProperties", "/patternProperties"),
        ({"type": "object", "required": ["a"]}, "required", "/required"),
        ({"type": "object", "minProperties": 1}, "minProperties", "/minProperties"),
        ({"type": "any"}, "type", "/type"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema", "/$schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": []}, "prefixItems", "/prefixItems"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema", "type": "null", "$ref": "#/title", "title": {}},
            "$ref",
            "/$ref",
        ),
        ({"x-order": 1}, "x-order", "/x-order"),
        ({"properties": 1}, "properties", "/properties"),
        (False, "empty", ""),
        ({"type": "object", "required": ["a"], "properties": {}, "additionalProperties": False}, "empty", ""),
    ],
)  # fmt: skip
def test_what_is_outside_the_subset_is_refused_by_keyword_and_place(value: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        schema(value)
    assert (refusal.value.keyword, refusal.value.pointer) == (keyword, pointer)
    assert refusal.value.reason
    assert "\n" not in refusal.value.reason


@pytest.mark.parametrize(
    "value, change, keyword",
    [
        ({"type": "null"}, {"whitespace": "indented", "indent": 2}, "whitespace"),
        ({"type": "null"}, {"tokens": "canonical"}, "tokens"),
        ({"type": "integer"}, {"integer_spelling": "value"}, "type"),
        ({"type": "object"}, {"duplicate_keys": "forbidden"}, "additionalProperties"),
        (
            {"type": "object", "additionalProperties": {"type": "null"}},
            {"duplicate_keys": "last_wins"},
            "additionalProperties",
        ),
        ({"type": "object"}, {"key_order": "sorted"}, "additionalProperties"),
        ({"type": "string", "format": "date"}, {"format": "assertion"}, "format"),
        (
            {
                "type": "object",
                "properties": {key: {"type": "null"} for key in "abcdefghijk"},
                "additionalProperties": False,
            },
            {"key_order": "any", "duplicate_keys": "forbidden"},
            "properties",
        ),
    ],
)
def test_a_profile_that_cannot_be_followed_exactly_is_refused(value: Any, change: Any, keyword: str) -> None:
    profile = dataclasses.replace(COMPACT, **change)
    with pytest.raises(UnsupportedError) as refusal:
        schema(value, profile)
    assert refusal.value.keyword == keyword


def test_annotations_bind_nothing() -> None:
    value = {"type": "null", "title": "t", "description": "d", "$comment": "c", "default": 1, "examples": [2]}
    value |= {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/x",
        "format": "date",
    }
    assert language(schema(value)) == {b"null"}


def test_a_schema_nested_beyond_reason_is_refused_not_a_crash() -> None:
    text = '{"items":' * 400 + "{}" + "}" * 400
    with pytest.raises(UnsupportedError, match="nested"):
        Naive().compile(Constraint("json_schema", text), VOCABULARY, COMPACT)


# Grammars

GRAMMARS = {
    "balanced": (
        'root ::= ("(" root ")" | "[" root "]")*',
        'start: ("(" start ")" | "[" start "]")*',
        "()[]",
        6,
    ),
    "sums": (
        'root ::= term (("+" | "-") term)*\nterm ::= [0-1]+ | "(" root ")"  # a comment\n',
        'start: term (("+" | "-") term)*\nterm: /[0-1]/+ | "(" start ")"',
        "01+(",
        5,
    ),
    "ambiguous": ('root ::= a a | a\na ::= "x" | "x" "y" | ""', 'start: a a | a\na: "x" | "x" "y" |', "xy", 6),
    "right recursion": ('root ::= "a" root | "b" | ()', 'start: "a" start | "b" |', "ab", 8),
    "counts": (
        'root ::= "a"{2} b{1,3} ("c" "d"){0,1} [d-e]{1,}\nb ::= "b" | "bb"',
        'start: "a"~2 b~1..3 ("c" "d")~0..1 /[d-e]/+\nb: "b" | "bb"',
        "abcde",
        5,
    ),
    "nullable": (
        'root ::= (x? y*)* "e"\nx ::= "a"?\ny ::= x "b" x',
        'start: (x? y*)* "e"\nx: "a"?\ny: x "b" x',
        "abe",
        6,
    ),
    "palindromes": (
        'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',
        'start: "a" start "a" | "b" start "b" | "a" | "b" |',
        "ab",
        8,
    ),
    "useless rules": (
        'root ::= "a" | "b" loop | c\nloop ::= "x" loop\nc ::= "c" (loop | "d")\nleft ::= left "q"',
        'start: "a" | c\nc: "c" "d"',
        "abcdxq",
        4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAMMARS)
def test_grammars_are_judged_as_by_another_parser(name: str) -> None:
    source, other, alphabet, longest = GRAMMARS[name]
    automaton, judge = grammar(source), lark.Lark(other, parser="earley", lexer="dynamic_complete")
    whole, texts = set(), list(strings(alphabet, longest))
    for characters in texts:
        try:
            judge.parse(characters)
            whole.add(characters)
        except lark.exceptions.LarkError:
            pass
    viable = {text[:i] for text in whole for i in range(len(text) + 1)}
    for characters in texts:
        found = run(automaton, characters)
        assert found[1] is (characters in whole), characters
        # What only longer texts complete is beyond this judge; what it knows to be viable must be.
        assert found[0] or characters not in viable, characters
        if found[0] and len(characters) <= longest // 2:
            judge.parse(finished(automaton, characters.encode()).decode())
    assert whole


@pytest.mark.parametrize(
    "body, texts, others",
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
    automaton = grammar(f"root ::= {body}")
    assert all(accepts(automaton, text) for text in texts)
    assert not any(accepts(automaton, text) for text in others)
    assert not accepts(automaton, b"\x80")


@pytest.mark.parametrize(
    "source, keyword",
    [
        ('root ::= root "a" | "b"', "left recursion"),
        ('root ::= x "a" | "b"\nx ::= "c"? root', "left recursion"),
        ('root ::= "a" (= "b")', "(="),
        ('root ::= TagDispatch(("a", b))\nb ::= "x"', "TagDispatch"),
        ('root[max_tokens=3] ::= "a"', "[max_tokens=3]"),
        ("root ::= a", "::="),
        ('a ::= "a"', "::="),
        ('root ::= "a"\nroot ::= "b"', "root"),
        ('root ::= "a" b ::= "c"', "::="),
        ('root ::= "a" |', "::="),
        ('root ::= ("a"', "("),
        (r"root ::= [\d]", r"\d"),
        (r'root ::= "\d"', r"\d"),
        ("root ::= []", "[]"),
        ("root ::= [b-a]", "[b-a]"),
        ('root ::= "a"{3,2}', "{3,2}"),
        ('root ::= "a"{2}{2}', "{2}"),
        ("root ::= 'a'", "'"),
        ('root ::= "a" root', "empty"),
        ('root ::= "a"{300000}', "size"),
    ],
)
def test_what_a_grammar_may_not_hold_is_refused_by_name(source: str, keyword: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        grammar(source)
    assert refusal.value.keyword == keyword
    assert "\n" not in refusal.value.reason


def test_right_recursion_and_lists_need_no_more_stack_for_every_element() -> None:
    automaton = grammar('root ::= "a" root | "b"')
    state = automaton.start
    states = {state := automaton.step(state, ord("a")) for _ in range(50)}
    assert len(states) <= 2


# Masks

CONSTRAINTS = (
    Constraint("regex", "(é|中|😀|ab[cq]?|name)+(12|-1)*"),
    Constraint("choice", '["yes", "no", "name", "na", "value", "  the"]'),
    Constraint("grammar", 'root ::= "[" root "]" | "{" [a-z ]* "}" | "12"+', "ebnf"),
    Constraint("json_object", ""),
    Constraint("json_schema", '{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"}}}'),
    Constraint("json_schema", '{"type":"array","items":{"$ref":"#"}}'),
    Constraint("json_schema", '{"type":"string","maxLength":5}'),
)


def definition(grammar_: NaiveGrammar, prefix: bytes) -> bitmask.Row:
    """The mask word for word: every token's bytes stepped alone, nothing shared."""
    allowed = np.zeros(VOCABULARY.size, dtype=np.bool_)
    for token, data in enumerate(VOCABULARY.tokens):
        allowed[token] = bool(data) and run(grammar_.automaton, prefix + data)[0]
    allowed[list(VOCABULARY.eos_ids)] = run(grammar_.automaton, prefix)[1]
    return bitmask.pack(allowed)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: f"{c.kind}-{c.sha256[:4]}")
def test_rows_are_the_definition_and_a_walk_under_the_mask_finishes(constraint: Constraint) -> None:
    backend = Naive()
    compiled = backend.compile(constraint, VOCABULARY, backend.profiles["default"])
    for seed in range(6):
        random_ = random.Random(seed)
        matcher = guard.matcher(compiled, VOCABULARY, backend.capabilities)
        row = bitmask.allocate_row(VOCABULARY.size)
        for _ in range(8):
            prefix = VOCABULARY.decode(matcher.history)
            matcher.fill(row)
            assert np.array_equal(row, definition(compiled, prefix)), prefix
            choices = [t for t in bitmask.tokens(row, VOCABULARY.size).tolist() if t not in VOCABULARY.eos_ids]
            if not choices:
                break
            assert matcher.accept(random_.choice(choices))
        prefix = VOCABULARY.decode(matcher.history)
        assert all(matcher.accept(1 + byte) for byte in finished(compiled.automaton, prefix)[len(prefix) :])
        matcher.fill(row)
        assert bitmask.test(row, VOCABULARY.eos_ids[0])
        assert matcher.accept(VOCABULARY.eos_ids[0])


def test_forgetting_steps_changes_no_row_and_no_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Naive()
    constraint = CONSTRAINTS[4]

    def rows(compiled: NaiveGrammar) -> list[bytes]:
        matcher = guard.matcher(compiled, VOCABULARY, backend.capabilities)
        row, out = bitmask.allocate_row(VOCABULARY.size), []
        for byte in b'{"id":12,"name":"ab","x":[{}]}':
            matcher.fill(row)
            out.append(row.tobytes())
            assert matcher.accept(1 + byte)
        matcher.rollback(10)
        matcher.fill(row)
        return [*out, row.tobytes()]

    expected = rows(backend.compile(constraint, VOCABULARY, DIGITS))
    monkeypatch.setattr(masks, "STEPS_LIMIT", 0)
    monkeypatch.setattr(masks, "ROWS_LIMIT_BYTES", 0)
    assert rows(backend.compile(constraint, VOCABULARY, DIGITS)) == expected


def test_nothing_validates_after_an_eos() -> None:
    compiled = Naive().compile(Constraint("regex", "a*"), VOCABULARY, DIGITS)
    eos, a = VOCABULARY.eos_ids[0], 1 + ord("a")
    assert compiled.native_matcher().validate([a, eos, a, a]) == 2


def test_forced_bytes_are_what_every_document_goes_on_with() -> None:
    backend = Naive()
    compiled = backend.compile(Constraint("choice", '["abc", "abcde", "abcdx"]'), VOCABULARY, DIGITS)
    matcher = guard.matcher(compiled, VOCABULARY, backend.capabilities)
    assert matcher.forced() == b"abc"
    assert matcher.accept(1 + ord("a"))
    assert matcher.forced() == b"bc"
    assert all(matcher.accept(1 + byte) for byte in b"bc")
    assert matcher.forced() == b""  # it may end here
    assert matcher.accept(1 + ord("d"))
    assert matcher.forced() == b""
