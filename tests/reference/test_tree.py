"""The pushdown automaton itself: viability at every byte, what the profile leaves open, depth, bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference.tree import Tree

from .schema_cases import FORBIDDEN, automaton


def dies_at(schema: Any, text: str, profile: Profile = FORBIDDEN) -> int | None:
    """The index of the first byte after which nothing can follow; None: the whole text is viable."""
    tree = automaton(schema, profile)
    state = tree.start()
    for i, byte in enumerate(text.encode()):
        assert state is not None
        state = tree.step(state, byte)
        if state is None:
            return i
    return None


def accepts(schema: Any, text: str, profile: Profile = FORBIDDEN) -> bool:
    return automata.accepts(automaton(schema, profile), text.encode())


@pytest.mark.parametrize(
    ("schema", "text", "place"),
    [
        # the first item takes the only value that the second can have
        ({"prefixItems": [{"enum": [1, 2]}, {"const": 2}], "minItems": 2, "uniqueItems": True}, "[2", 1),
        ({"prefixItems": [{"enum": [1, 2]}, {"const": 2}], "minItems": 2, "uniqueItems": True}, "[1,2]", None),
        ({"items": {"enum": ["ab", "ac"]}, "uniqueItems": True}, '["ab","ab', 8),
        ({"items": {"enum": ["ab", "ac"]}, "uniqueItems": True, "minItems": 2}, '["ab"]', 5),
        ({"items": {"enum": [1, 2]}, "uniqueItems": True}, "[1,2,", 4),
        ({"contains": {"const": "b"}, "maxItems": 2}, '["a","a', 6),
        ({"contains": {"const": 1}, "maxItems": 2}, "[0,0", None),  # 0.1e1 is 1
        ({"contains": {"const": 1}, "maxItems": 2}, "[0,0,", 4),
        ({"required": ["a"], "maxProperties": 1}, '{"b', 2),
        ({"required": ["a"], "additionalProperties": False, "properties": {"b": {}}}, "{", 0),
        ({"properties": {"abc": False}, "additionalProperties": False}, '{"', 1),
        ({"properties": {"abc": {}}, "additionalProperties": False}, '{"abd', 4),
        ({"properties": {"abc": {}}, "additionalProperties": False}, '{"abc":1,', 8),
        ({"type": "integer", "minimum": 10, "maximum": 12}, "13", 1),
        ({"not": {"uniqueItems": True}, "maxItems": 2, "prefixItems": [{}, {"const": 1}], "type": "array"}, "[2", 1),
        ({"oneOf": [{"const": "ab"}, {"enum": ["ab", "cd"]}]}, '"a', 1),
    ],
)
def test_a_prefix_dies_at_the_first_byte_that_nothing_can_follow(schema: Any, text: str, place: int | None) -> None:
    assert dies_at(schema, text) == place


def test_an_empty_language_has_no_start() -> None:
    assert automaton({"type": "string", "minLength": 2, "maxLength": 1}).start() is None
    few = {"items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3, "type": "array"}
    assert automaton(few).start() is None
    assert (
        automaton(
            {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "minItems": 1, "type": "array"}}}
        ).start()
        is None
    )


COMPACT, SPACED, INDENTED = (
    '{"a":[1,{}],"b":[]}',
    '{"a": [1, {}], "b": []}',
    '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}',
)


@pytest.mark.parametrize(
    ("profile", "inside", "outside"),
    [
        (Profile(whitespace="compact", duplicate_keys="any"), [COMPACT], [SPACED, INDENTED, COMPACT + " "]),
        (Profile(whitespace="spaced", duplicate_keys="any"), [SPACED], [COMPACT, INDENTED, SPACED + " "]),
        (
            Profile(whitespace="indented", indent=2, duplicate_keys="any"),
            [INDENTED, "{}", "[]"],
            [COMPACT, SPACED, "{\n}", '{\n "a": 1\n}', '{\n  "a":1\n}', '{\n  "a": 1}'],
        ),
        (
            Profile(whitespace="one_space", duplicate_keys="any"),
            [COMPACT, SPACED, " { } ", '{ "a" : 1 , "b":[ ] }'],
            [INDENTED, "{  }", "\n{}"],
        ),
        (
            Profile(whitespace="bounded", whitespace_limit=2, duplicate_keys="any"),
            [COMPACT, " \n{ \t}\r\n", '{"a"  :  1}'],
            ["{   }", '{"a":   1}', "   {}"],
        ),
        (Profile(duplicate_keys="any"), [COMPACT, SPACED, INDENTED, "\n\n {\t\r}    "], ["{\u00a0}", "{\x0b}"]),
        (Profile(outer_whitespace=False, duplicate_keys="any"), [INDENTED], [" {}", "{} ", "{}\n"]),
    ],
)
def test_white_space_follows_the_profile(profile: Profile, inside: list[str], outside: list[str]) -> None:
    assert [t for t in inside if not accepts(True, t, profile)] == []
    assert [t for t in outside if accepts(True, t, profile)] == []


def test_the_serialisers_of_python_speak_the_exact_policies() -> None:
    value = {"a": [1, [], {}, {"b": [None, "x"]}], "c": {"d": {"e": 1.5}}}
    for profile, options in (
        (Profile(whitespace="compact", duplicate_keys="forbidden"), {"separators": (",", ":")}),
        (Profile(whitespace="spaced", duplicate_keys="forbidden"), {}),
        (Profile(whitespace="indented", indent=4, duplicate_keys="forbidden"), {"indent": 4}),
    ):
        assert accepts(True, json.dumps(value, **options), profile)  # type: ignore[arg-type]


RECORD = {"properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("order", "inside", "outside"),
    [
        ("any", ['{"a":"","b":1}', '{"b":1,"a":""}', '{"z":0,"a":""}'], ['{"b":1}']),
        ("declared", ['{"b":1,"a":""}', '{"a":""}', '{"a":"","z":0,"c":0}'], ['{"a":"","b":1}', '{"z":0,"a":""}']),
        ("sorted", ['{"a":"","b":1}', '{"a":"","z":0}', '{"A":0,"a":""}'], ['{"b":1,"a":""}', '{"a":"","z":0,"c":0}']),
    ],
)
def test_keys_come_in_the_order_of_the_profile(order: Any, inside: list[str], outside: list[str]) -> None:
    profile = Profile(duplicate_keys="forbidden", key_order=order)
    assert [t for t in inside if not accepts(RECORD, t, profile)] == []
    assert [t for t in outside if accepts(RECORD, t, profile)] == []


def test_an_order_that_loses_a_required_key_dies_at_once() -> None:
    assert dies_at(RECORD, '{"z', Profile(duplicate_keys="forbidden", key_order="declared")) == 2
    assert dies_at(RECORD, '{"b":1,"z', Profile(duplicate_keys="forbidden", key_order="declared")) == 8
    assert dies_at(RECORD, '{"b', Profile(duplicate_keys="forbidden", key_order="sorted")) == 2


def test_declared_order_under_all_of_is_the_first_then_what_is_new() -> None:
    schema = {"allOf": [{"properties": {"b": {}, "a": {}}}, {"properties": {"c": {}, "b": {}}}]}
    profile = Profile(duplicate_keys="forbidden", key_order="declared")
    assert accepts(schema, '{"b":1,"a":1,"c":1}', profile)
    assert not accepts(schema, '{"c":1,"b":1}', profile)


def test_each_alternative_has_its_own_order() -> None:
    schema = {"anyOf": [{"properties": {"b": {}, "a": {}}}, {"properties": {"a": {}, "b": {}}}]}
    profile = Profile(duplicate_keys="forbidden", key_order="declared")
    assert accepts(schema, '{"b":1,"a":1}', profile)
    assert accepts(schema, '{"a":1,"b":1}', profile)


NUMBER_A = {"properties": {"a": {"type": "integer"}}, "maxProperties": 1}


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("forbidden", ['{"a":1}'], ['{"a":1,"a":1}', '{"a":1,"\\u0061":1}', '{"a":"x","a":1}']),
        ("any", ['{"a":1}', '{"a":1,"a":2}'], ['{"a":1,"a":"x"}', '{"a":"x","a":1}', '{"a":1,"b":1}']),
        ("last_wins", ['{"a":1}', '{"a":1,"a":2}', '{"a":"x","a":1}'], ['{"a":1,"a":"x"}', '{"a":1,"b":1}']),
    ],
)
def test_repeated_keys_follow_the_profile(rule: Any, inside: list[str], outside: list[str]) -> None:
    profile = Profile(duplicate_keys=rule)
    assert [t for t in inside if not accepts(NUMBER_A, t, profile)] == []
    assert [t for t in outside if accepts(NUMBER_A, t, profile)] == []


def test_the_last_value_decides_for_negations_too() -> None:
    schema = {"type": "object", "not": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}
    profile = Profile(duplicate_keys="last_wins")
    assert accepts(schema, '{"a":1,"a":"x"}', profile)
    assert not accepts(schema, '{"a":"x","a":1}', profile)
    assert accepts(schema, '{"a":"x","b":"y","a":1}', profile)


def test_defaults_of_additional_members_follow_the_profile() -> None:
    profile = Profile(duplicate_keys="forbidden", additional_properties=False, additional_items=False)
    schema = {"properties": {"a": {"prefixItems": [{}]}}}
    assert accepts(schema, '{"a":[1]}', profile)
    assert not accepts(schema, '{"b":1}', profile)
    assert not accepts(schema, '{"a":[1,2]}', profile)
    assert accepts({"required": ["b"]}, '{"b":1}', profile)


def test_scalars_are_spelled_as_the_profile_says() -> None:
    minimal = Profile(duplicate_keys="forbidden", escapes="minimal")
    assert accepts({"const": "a\n"}, '"a\\n"', minimal)
    assert not accepts({"const": "a\n"}, '"\\u0061\\n"', minimal)
    # values are negated, never spellings
    assert not accepts({"not": {"const": "a"}}, '"\\u0061"', minimal)
    plain = Profile(duplicate_keys="forbidden", numbers="plain")
    assert accepts(True, "[1,2.5]", plain)
    assert not accepts(True, "[1e2]", plain)
    digits = Profile(duplicate_keys="forbidden", integer_spelling="digits")
    assert accepts({"type": "integer"}, "7", digits)
    assert not accepts({"type": "integer"}, "7.0", digits)
    assert accepts({"type": "integer", "enum": [7, 8]}, "7", digits)
    assert not accepts({"type": "integer", "enum": [7, 8]}, "7.0", digits)
    assert accepts({"enum": [7, 8]}, "7.0", digits)
    full = Profile(duplicate_keys="forbidden", pattern="full")
    assert accepts({"pattern": "b+"}, '"bb"', full)
    assert not accepts({"pattern": "b+"}, '"abb"', full)
    lone = Profile(duplicate_keys="forbidden", lone_surrogates=True)
    assert accepts({"maxLength": 1}, '"\\ud800"', lone)
    assert not accepts({"maxLength": 1}, '"\\ud800"')


def test_deep_documents_do_not_recurse() -> None:
    tree = automaton(True)
    assert automata.accepts(tree, b"[" * 3_000 + b"]" * 3_000)
    nested = b'{"a":' * 2_000 + b"1" + b"}" * 2_000
    assert automata.accepts(tree, nested)
    assert not automata.accepts(tree, nested + b"}")
    recursive = automaton(
        {
            "$ref": "#/$defs/n",
            "$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}, "type": ["object", "number"]}},
        }
    )
    assert automata.accepts(recursive, nested)


@pytest.mark.parametrize("keyword", ["items", "allOf", "not", "properties"])
def test_deep_schemas_compile(keyword: str) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(200):
        inner = {"items": schema, "allOf": [schema], "not": schema, "properties": {"a": schema}}[keyword]
        schema = {keyword: inner, "required": ["a"]} if keyword == "properties" else {keyword: inner}
    tree = automaton(schema)
    if keyword == "items":
        assert automata.accepts(tree, b"[" * 200 + b"1" + b"]" * 200)
        assert not automata.accepts(tree, b"[" * 200 + b'"a"' + b"]" * 200)
    elif keyword in ("allOf", "not"):
        assert automata.accepts(tree, b"1")
        assert not automata.accepts(tree, b"1.5")
    else:
        assert automata.accepts(tree, b'{"a":' * 200 + b"1" + b"}" * 200)
        assert not automata.accepts(tree, b'{"a":' * 200 + b"{}" + b"}" * 200)


@pytest.mark.parametrize(
    "schema",
    [
        {"minLength": 100_000_000},
        {
            "oneOf": [
                {"properties": {f"p{i}": {"minimum": i}, f"q{i}": {"maximum": i}}, "minProperties": 1}
                for i in range(40)
            ]
        },
        {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(30)]},
        {"type": "array", "allOf": [{"contains": {"const": i}, "maxContains": 50 + i} for i in range(12)]},
    ],
)
def test_what_is_too_complex_ends_at_a_declared_bound(schema: Any) -> None:
    began = time.process_time()
    with pytest.raises(UnsupportedError, match="too complex"):
        tree = automaton(schema)
        automata.accepts(tree, b'{"p1":1,"p2":2,"a1":1,"b2":3}')
        automata.accepts(tree, b"[1,2,3,4,5]")
    # a bound that is reached in reasonable time: far from the hours that these would take without one
    assert time.process_time() - began < 120


def test_states_are_shared_where_the_future_is() -> None:
    tree = automaton({"type": "array", "items": {"type": "object"}})
    one, other = automata.run(tree, b'[{"a":1},'), automata.run(tree, b'[{"b":[2]},{"c":3},')
    assert one is other
    spelled = automaton({"type": "object"})
    assert automata.run(spelled, b'{"a":1,"b":2') is automata.run(spelled, b'{"b":[], "\\u0061":2')


def test_forgetting_what_was_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.reference.tree.MEMO_BOUND", 10)
    tree = automaton({"type": "array", "items": {"enum": ["ab", "cd", 1]}, "uniqueItems": True})
    assert automata.accepts(tree, b'["ab", 1, "cd"]')
    assert not automata.accepts(tree, b'["ab", 1, "ab"]')


@pytest.mark.parametrize(
    ("schema", "prefix"),
    [
        ({"type": "string", "pattern": "^[ab]*$"}, b'"a'),
        ({"properties": {"ab": {"type": "null"}}, "additionalProperties": False}, b'{"a'),
        ({"type": "object"}, b'{"a":"x'),
        ({"items": {"enum": ["ab", "ac", "b"]}, "uniqueItems": True}, b'["ab","'),
        ({"anyOf": [{"prefixItems": [{"pattern": "^a"}, {"const": 1}]}, {"prefixItems": [{"minLength": 2}]}]}, b'["'),
    ],
)
def test_a_region_is_viable_exactly_where_the_state_is(schema: Any, prefix: bytes) -> None:
    tree: Tree = automaton(schema)
    state = automata.run(tree, prefix)
    region = tree.region(state)  # type: ignore[arg-type]
    assert region is not None and region.resume is not None
    for text in (
        b"b",
        b"a",
        b"ab",
        b"c",
        b"\\u0061",
        b"\xc3\xa9",
        b"\n",
        b'"',
        b'b"',
        b'c"',
        b'ab"',
        b'abc"',
        b"\\u00",
    ):
        inside: Any = region.state
        whole: Any = state
        for byte in text:
            inside = None if inside is None else region.machine.step(inside, byte)
            whole = None if whole is None else tree.step(whole, byte)
        if inside is not None and region.machine.accepting(inside):
            assert region.resume(text) is whole
        else:
            assert (inside is None) == (whole is None)


def test_no_region_outside_scalars() -> None:
    tree = automaton(True)
    for prefix in (b"", b"[", b"[1,", b"tru", b'{"a"', b'"a"'):
        assert tree.region(automata.run(tree, prefix)) is None  # type: ignore[arg-type]
