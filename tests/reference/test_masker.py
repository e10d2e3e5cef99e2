"""Masks: the fast maker against the definition, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import bitmask
from harness.errors import MasktaxError
from harness.profile import Profile
from harness.reference import compile as compile_
from harness.reference import masker as masker_module
from harness.reference import numbers, regex_syntax, regions, regular, spelling, walk
from harness.reference.automaton import Automaton
from harness.reference.masker import Masker, naive_row
from harness.vocabulary import Vocabulary, synthetic

from .small_automata import (
    Amounts,
    Bytes,
    Listing,
    ListingWithBytes,
    ListingWithFollow,
    ListingWithRegions,
    Telling,
    TellingWithFollow,
    words,
)

VOCABULARY = synthetic()


def expression(pattern: str, *, search: bool = False) -> regular.Node:
    return regex_syntax.compile(pattern, dialect="ecma262", search=search)


def vocabulary(texts: list[bytes]) -> Vocabulary:
    """Every byte, ``texts``, and an end-of-sequence."""
    tokens = (*(bytes([b]) for b in range(256)), *(t for t in texts if t), b"")
    return Vocabulary("small", tokens, (len(tokens) - 1,), frozenset({len(tokens) - 1}))


def by_definition(automaton: Automaton[Any], state: Any, over: Vocabulary) -> set[int]:
    """Token by token, byte by byte, with nothing shared."""
    allowed = set()
    for token, text in enumerate(over.tokens):
        at = state
        for byte in text:
            at = None if at is None else automaton.step(at, byte)
        if text and at is not None:
            allowed.add(token)
    return allowed | (set(over.eos_ids) if automaton.accepting(state) else set())


def agrees(
    automaton: Automaton[Any], over: Vocabulary, texts: Sequence[bytes] = (), *, seed: int = 0, steps: int = 40
) -> None:
    """Rows along some texts and a random walk are the definition's, by all three ways of making them."""
    masker = Masker(automaton, over)
    start = masker.start()
    assert start is not None
    cells = [start]
    for text in texts:
        at = start
        for byte in text:
            after = masker.step(at, byte)
            assert after is not None, text
            at = after
            cells.append(at)
    random_ = random.Random(seed)
    at = start
    for _ in range(steps):
        moves = masker.moves(at)
        if not moves:
            break
        at = random_.choice(moves)[1]
        cells.append(at)
    for cell in dict.fromkeys(cells):
        row = masker.row(cell)
        expected = naive_row(automaton, cell.state, over)
        assert set(bitmask.tokens(expected, over.size).tolist()) == by_definition(automaton, cell.state, over)
        assert not bitmask.diff(row, expected, over.size), cell.state
        assert np.array_equal(row, expected)  # the padding too
        assert {b for b, _ in masker.moves(cell)} == {
            b for b in range(256) if automaton.step(cell.state, b) is not None
        }


NODES = {
    "any": regular.ANY,
    "up to three": regular.repeat(regular.ANY_CHAR, 0, 3),
    "two to five": regular.repeat(regular.ANY_CHAR, 2, 5),
    "three or more": regular.repeat(regular.ANY_CHAR, 3, None),
    "letters": expression("^[a-z]{2,4}$", search=True),
    "searched": expression("ab|é", search=True),
    "words": words("id", "name", "né", "😀"),
    "other words": regular.difference(regular.ANY, words("id", "name", "value")),
    "short other words": regular.intersection(
        regular.difference(regular.ANY, words("id", "name")), regular.repeat(regular.ANY_CHAR, 1, 4)
    ),
    "one text": words("name"),
    "nothing but empty": regular.EPSILON,
    "no spaces": expression("^\\S+$", search=True),
    "astral": expression("^(😀|中)+$", search=True),
}


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("escapes", ["any", "minimal"])
@pytest.mark.parametrize("lone", [False, True])
def test_rows_of_json_strings_are_the_definition(name: str, escapes: str, lone: bool) -> None:
    automaton = spelling.JsonString(NODES[name], escapes=escapes, lone_surrogates=lone)
    for seed in range(3):
        agrees(automaton, VOCABULARY, seed=seed)


@pytest.mark.parametrize("kind", [Listing, ListingWithRegions, ListingWithBytes, ListingWithFollow])
@pytest.mark.parametrize("spaces", [False, True])
def test_rows_over_the_end_of_scalars_are_the_definition(kind: type[Listing], spaces: bool) -> None:
    for name, node in NODES.items():
        automaton = kind([node, NODES["words"], NODES["up to three"]], spaces=spaces)
        agrees(automaton, VOCABULARY, seed=len(name), steps=60)
        agrees(kind([NODES["any"], node], spaces=spaces), VOCABULARY, [b'["a\\u00e9', b'["\\ud83d'], seed=1)


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("kind", [Telling, TellingWithFollow])
def test_rows_that_depend_on_a_scalar_s_text_are_the_definition(name: str, kind: type[Telling]) -> None:
    automaton = kind([NODES[name], regular.ANY])
    for seed in range(3):
        agrees(automaton, VOCABULARY, seed=seed, steps=60)
    over = vocabulary([b'a","a"]', b'["ab","ab', b'","', b'b","ab"]', b'"]', b'["'])
    agrees(kind([NODES["any"], regular.ANY]), over, [b'["ab","ab"]'])


def test_regions_change_no_row() -> None:
    nodes = [NODES["two to five"], NODES["other words"], NODES["any"]]
    with_regions, without = ListingWithRegions(nodes), Listing(nodes)
    one, other = Masker(with_regions, VOCABULARY), Masker(without, VOCABULARY)
    at, same = one.start(), other.start()
    for byte in b'["ab\\u00e9","nam","\\ud83d\\ude00':
        assert at is not None
        assert same is not None
        assert np.array_equal(one.row(at), other.row(same))
        at, same = one.step(at, byte), other.step(same, byte)


@pytest.mark.parametrize(
    "pattern", ["ab(c|q)?(12|yes)*", "[a-z]+", "(é|中|😀)+", "a{2,5}b", ".*", "name", "\\s*id", "x?"]
)
def test_rows_of_expressions_are_the_definition(pattern: str) -> None:
    automaton = spelling.Utf8(expression(pattern))
    for seed in range(4):
        agrees(automaton, VOCABULARY, seed=seed)


SETS = [
    (numbers.ALL_NUMBERS,),
    (numbers.INTEGERS,),
    (numbers.NumberSet(low=Fraction(0)),),
    (numbers.NumberSet(low=Fraction(0), high=Fraction(120)),),
    (numbers.NumberSet(multiples=frozenset({Fraction(1, 4)}), low=Fraction(-3)),),
    (numbers.exactly(Fraction(12)), numbers.exactly(Fraction(3, 2))),
]


@pytest.mark.parametrize("sets", SETS)
def test_rows_of_numbers_are_the_definition(sets: tuple[numbers.NumberSet, ...]) -> None:
    automaton = numbers.Number(sets, numbers="rfc8259", integer_spelling="value")
    for seed in range(3):
        agrees(automaton, VOCABULARY, seed=seed, steps=6)


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("with_regions", [False, True])
def test_rows_over_the_end_of_numbers_are_the_definition(
    sets: tuple[numbers.NumberSet, ...], with_regions: bool
) -> None:
    over = vocabulary([b"12", b"1,", b"12,1", b"0]", b"5,12]", b"1.5,", b",1", b"e1", b"-1,", b"],", b"[1", b"[12]"])
    for seed in range(3):
        agrees(Amounts(sets, regions=with_regions), over, [b"[12,12]"], seed=seed, steps=8)


def test_rows_where_text_is_forced_are_the_definition() -> None:
    agrees(Bytes((b"name", b"name: yes")), VOCABULARY, [b"name: yes"])
    agrees(Bytes((b"ababab",)), VOCABULARY, [b"ababab"])
    agrees(Bytes((b"", b"abc")), VOCABULARY, [b"abc"])
    agrees(Bytes((b"abc", b"abq")), VOCABULARY, [b"abc", b"abq"])


texts = st.text(alphabet='ab"\\é😀 ,[]', max_size=6)


@st.composite
def languages(draw: st.DrawFn) -> regular.Node:
    node = regular.texts(draw(st.lists(texts, min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["not", "length", "any of", "star", "then"])):
            case "not":
                node = regular.complement(node)
            case "length":
                low = draw(st.integers(0, 3))
                node = regular.intersection(node, regular.repeat(regular.ANY_CHAR, low, low + draw(st.integers(0, 4))))
            case "any of":
                node = regular.union(node, regular.repeat(regular.chars(((0x61, 0x1F600),)), 1, 3))
            case "star":
                node = regular.star(node)
            case "then":
                node = regular.concat(node, regular.texts(draw(st.lists(texts, min_size=1, max_size=2))))
    return node


PIECES = [
    b'"',
    b'","',
    b'"]',
    b'["',
    b'a"',
    b'ab","a',
    b"ab",
    b"aba",
    "é".encode(),
    "é".encode()[1:] + b"a",
    b"\\u00",
    b"\\\\",
]
PIECES += [b"\\ud83d\\ude00", "😀".encode()[:2], "b😀".encode(), b"  ", b' "', b"\\u0061b", b"aaaaaaaa", b"a\\u"]


@settings(max_examples=60, deadline=None)
@given(
    languages(),
    languages(),
    st.lists(st.sampled_from(PIECES), max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
def test_rows_of_random_languages_are_the_definition(
    one: regular.Node, other: regular.Node, pieces: list[bytes], minimal: bool, lone: bool, seed: int
) -> None:
    policy: dict[str, Any] = {"escapes": "minimal" if minimal else "any", "lone_surrogates": lone}
    automaton = ListingWithRegions([one, other], spaces=seed % 2 == 0, **policy)
    if automaton.start() is not None:
        agrees(automaton, vocabulary(pieces), seed=seed, steps=25)


# How rows are kept


def test_a_row_is_made_once_and_cannot_be_written() -> None:
    masker = Masker(spelling.Utf8(expression("[a-z]+")), VOCABULARY)
    start = masker.start()
    assert start is not None
    row = masker.row(start)
    assert masker.row(start) is row
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 0


def test_rows_are_kept_within_their_bound_and_made_again_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masker_module, "ROWS_BYTES", 4 * 4 * VOCABULARY.words)
    masker = Masker(Bytes((b"abcdefghijklmnop",)), VOCABULARY)
    cells = [masker.start()]
    for byte in b"abcdefghijklmno":
        cells.append(masker.step(cells[-1], byte))  # type: ignore[arg-type]
    rows = [masker.row(cell).copy() for cell in cells if cell is not None]
    assert sum(cell is not None and cell.row is not None for cell in cells) <= 4
    assert all(np.array_equal(masker.row(c), row) for c, row in zip(cells, rows, strict=True) if c is not None)


def test_forgetting_everything_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masker_module, "CELLS", 5)
    agrees(ListingWithRegions([NODES["any"], NODES["words"]]), VOCABULARY, [b'["abc","name"]'])


def test_a_table_that_starts_anew_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "TABLE_BOUND", 3)
    agrees(ListingWithRegions([NODES["searched"], NODES["two to five"]]), VOCABULARY, [b'["ab\\u00e9'])


def test_wide_walks_by_arrays_change_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "VISITS", 10)
    monkeypatch.setattr(regions, "WIDE", 3)
    agrees(Listing([NODES["searched"], NODES["two to five"]]), VOCABULARY, [b'["ab\\u00e9'])
    agrees(ListingWithRegions([NODES["other words"], NODES["any"]]), VOCABULARY, [b'["name'])


def test_a_vocabulary_without_a_byte_is_an_error_not_an_empty_row() -> None:
    tokens = (*(bytes([b]) for b in range(256) if b != ord("x")), b"")
    lacking = Vocabulary("lacking", tokens, (255,), frozenset({255}))
    masker = Masker(Bytes((b"axb",)), lacking)
    start = masker.start()
    assert start is not None
    at = masker.step(start, ord("a"))
    assert at is not None
    with pytest.raises(MasktaxError, match="0x78"):
        masker.row(at)


MEMBERS: dict[str, dict[str, Any]] = {
    "other keys": {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "two classes of keys": {
        "patternProperties": {"^x": {"enum": [1, [], "a"]}},
        "additionalProperties": {"type": ["integer", "null"]},
        "maxProperties": 2,
    },
    "few keys": {"additionalProperties": {"type": "number", "maximum": 12}, "minProperties": 2, "maxProperties": 3},
    "a debt": {"not": {"additionalProperties": {"type": "integer"}}},
    "two readings": {
        "anyOf": [{"additionalProperties": {"type": "integer"}}, {"additionalProperties": {"type": "array"}}]
    },
    "items": {"additionalProperties": {"items": {"type": ["integer", "object"], "maxProperties": 1}, "maxItems": 2}},
}


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("duplicate_keys", ["forbidden", "last_wins"])
@pytest.mark.parametrize("whitespace", ["any", "indented"])
def test_rows_over_the_end_of_members_are_the_definition(name: str, duplicate_keys: Any, whitespace: Any) -> None:
    indent = 2 if whitespace == "indented" else 0
    profile = Profile(duplicate_keys=duplicate_keys, whitespace=whitespace, indent=indent)
    tree = compile_.schema({"type": "object", **MEMBERS[name]}, profile)
    after = [b"1", b"12", b"[]", b"null", b'"a"', b"{}", b'{"x":1}', b"[1]", b"[{}]", b'{"x":1', b"[1", b"13"]
    ends = [b"", b",", b"}", b"]", b',"', b',"a":1', b',"x":[]', b',"x":1,', b"\n", b",\n  "]
    keys = [b'a":', b'x":', b'":', b'xa": ', b'b":', b'\\u0061":', b'": ']
    texts = [key + value + end for key in keys for value in after for end in ends]
    texts += [value + end for value in after for end in ends]
    over = vocabulary(list(dict.fromkeys(texts)))
    for seed in range(2):
        agrees(tree, over, seed=seed, steps=25)
    if whitespace == "any":
        agrees(tree, over, [b'{"a":1,"x'], steps=0)
