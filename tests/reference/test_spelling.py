"""Spellings in bytes, against Python's own UTF-8 and JSON."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reference import automaton, codepoints, regular
from harness.reference.spelling import JsonString, State, Utf8

NODES = [
    regular.ANY,
    regular.text("é😀"),
    regular.texts(["a", "ab", '"', "\\", "/", "\n", "\x01", "😀", "中文"]),
    regular.complement(regular.text("a")),
    regular.repeat(regular.chars(codepoints.ranges([(0x1F600, 0x1F64F), (0x61, 0x62)])), 1, 2),
    regular.repeat(regular.chars(((0xD7FF, 0xE000),)), 0, 2),
]


def utf8(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=5) | st.text(max_size=3).map(str.encode), st.sampled_from(NODES))
def test_utf8_is_what_python_decodes(text: bytes, node: regular.Node) -> None:
    decoded = utf8(text)
    expected = decoded is not None and regular.matches(node, decoded)
    assert automaton.accepts(Utf8(node), text) == expected


def test_every_character_boundary_of_utf8_is_exact() -> None:
    every = Utf8(regular.ANY_CHAR)
    for c in (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF):
        assert automaton.accepts(every, chr(c).encode())
    for bad in (b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80"):
        assert automaton.run(every, bad) is None


SPELLED = st.lists(
    st.sampled_from(
        ["a", "b", "é", "😀", "中", '\\"', "\\\\", "\\/", "/", "\\n", "\\u000a", "\\u0061", "\\u00E9", "\\ud83d",
         "\\ude00", "\\uD83D\\uDE00", "\\ud83d\\ude4f", "\\u0001", "\n", "\x7f", "\\x", "\\u00", '"', "\\ud7ff",
         "\ue000"]
    ),
    max_size=4,
).map("".join)  # fmt: skip


def decoded(text: str, *, lone: bool) -> str | None:
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        return None
    assert isinstance(value, str)
    return value if lone or not any(0xD800 <= ord(c) <= 0xDFFF for c in value) else None


@settings(max_examples=600, deadline=None)
@given(SPELLED, st.sampled_from(NODES), st.booleans())
def test_json_strings_are_what_python_decodes(text: str, node: regular.Node, lone: bool) -> None:
    value = decoded(text, lone=lone)
    expected = value is not None and regular.matches(node, value)
    assert automaton.accepts(JsonString(node, lone_surrogates=lone), f'"{text}"'.encode()) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=4))
def test_the_minimal_spelling_of_a_text_is_the_one_that_python_writes(text: str) -> None:
    spelled = json.dumps(text, ensure_ascii=False).encode()
    every = JsonString(regular.ANY, escapes="minimal")
    # Python writes DEL raw and a control without a short form as a lower-case \\u escape: so does the policy.
    assert automaton.accepts(every, spelled)
    assert automaton.accepts(JsonString(regular.text(text), escapes="minimal"), spelled)


@pytest.mark.parametrize("text", ['"\\/"', '"\\u0061"', '"\\u000a"', '"\\ud83d\\ude00"'])
def test_a_minimal_spelling_escapes_nothing_that_need_not_be(text: str) -> None:
    assert automaton.run(JsonString(regular.ANY, escapes="minimal"), text.encode()) is None
    assert automaton.accepts(JsonString(regular.ANY), text.encode())


@pytest.mark.parametrize("options", [{}, {"escapes": "minimal"}, {"lone_surrogates": True}])
@pytest.mark.parametrize("node", NODES)
def test_no_state_is_a_dead_end(node: regular.Node, options: dict[str, object]) -> None:
    machine = JsonString(node, **options)  # type: ignore[arg-type]
    generator = random.Random(5)
    for _ in range(40):
        state: State | None = machine.start()
        assert state is not None
        for _ in range(60):
            if machine.accepting(state):
                break
            nexts = [s for b in range(256) if (s := machine.step(state, b)) is not None]
            assert nexts, f"dead end at {state}"
            state = generator.choice(nexts)


@pytest.mark.parametrize("prefix", ['"\\ud83d', '"\\ud83d\\', '"\\ud83d\\u', '"\\ud8'])
def test_the_first_half_of_a_pair_is_viable_only_where_the_pair_can_come(prefix: str) -> None:
    assert automaton.run(JsonString(regular.text("😀")), prefix.encode()) is not None
    assert automaton.run(JsonString(regular.text("a")), prefix.encode()) is None
    assert automaton.run(JsonString(regular.text("𐐷")), b'"\\ud83d') is None
