"""Respelling changes the text and nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.constraint import Constraint
from harness.respell import respell

names = st.sampled_from(["a", "b", "c", "type", "properties", "enum", "é"])
data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
schemas = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional={"enum": st.lists(data, max_size=3), "const": data}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(names, inner, max_size=3),
            "$defs": st.dictionaries(names, inner, max_size=3),
            "anyOf": st.lists(inner, max_size=3),
            "items": inner,
            "maxLength": st.integers(0, 9),
            "x-unknown": data,
        },
    ),
    max_leaves=8,
)


def dump(value: Any) -> str:
    """JSON text of a value with Decimals, written independently of the module under test."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return str(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else json.dumps(value)


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@settings(max_examples=150, deadline=None)
@given(schemas)
def test_a_respelled_schema_is_another_text_of_an_equal_schema(schema: Any) -> None:
    constraint = Constraint("json_schema", dump(schema))
    again = respell(constraint)
    assert again.text != constraint.text
    assert read(again.text) == read(constraint.text)
    assert respell(again).text != again.text


@pytest.mark.parametrize(
    ("kind", "text"),
    [("json_schema", "true"), ("json_schema", "{}"), ("choice", '["a"]'), ("choice", '["a", "b", "a"]')],
)
def test_even_the_smallest_text_changes(kind: Any, text: str) -> None:
    again = respell(Constraint(kind, text))
    assert again.text != text
    assert json.loads(again.text) == json.loads(text)


def test_keywords_are_reversed_and_property_names_are_not() -> None:
    text = json.dumps({
        "type": "object",
        "properties": {"b": {"type": "string", "maxLength": 3}, "a": {"properties": {"y": {}, "x": {}}}},
        "required": ["b", "a"],
    })  # fmt: skip
    again = json.loads(respell(Constraint("json_schema", text)).text)
    assert list(again) == ["required", "properties", "type"]
    assert list(again["properties"]) == ["b", "a"]
    assert list(again["properties"]["b"]) == ["maxLength", "type"]
    assert list(again["properties"]["a"]["properties"]) == ["y", "x"]
    assert again["required"] == ["b", "a"]


def test_a_property_called_properties_is_a_schema_like_any_other() -> None:
    text = json.dumps({"properties": {"properties": {"type": "object", "properties": {"b": {}, "a": {}}}}})
    again = json.loads(respell(Constraint("json_schema", text)).text)
    assert list(again["properties"]["properties"]) == ["properties", "type"]
    assert list(again["properties"]["properties"]["properties"]) == ["b", "a"]


def test_enum_values_keep_their_key_order() -> None:
    again = respell(Constraint("json_schema", '{"enum":[{"b":1,"a":{"d":1,"c":2}}]}'))
    assert json.dumps(json.loads(again.text)) == '{"enum": [{"b": 1, "a": {"d": 1, "c": 2}}]}'


def test_numbers_keep_their_spelling() -> None:
    again = respell(Constraint("json_schema", '{"const":0.10000000000000000001,"maximum":1e400}'))
    assert "0.10000000000000000001" in again.text
    assert "1e400" in again.text


def test_a_structural_tag_keeps_its_structures_in_order() -> None:
    tag = {
        "triggers": ["<f="],
        "structures": [
            {"begin": "<f=a>", "schema": {"properties": {"z": {}, "y": {}}, "type": "object"}, "end": "</f>"},
            {"begin": "<f=b>", "schema": {"type": "string"}, "end": "</f>"},
        ],
    }
    constraint = Constraint("structural_tag", json.dumps(tag))
    again = respell(constraint)
    assert again.text != constraint.text
    assert again.json() == tag
    assert [s["begin"] for s in again.json()["structures"]] == ["<f=a>", "<f=b>"]
    assert list(again.json()["structures"][0]["schema"]) == ["type", "properties"]
    assert list(again.json()["structures"][0]["schema"]["properties"]) == ["z", "y"]


def test_the_other_kinds() -> None:
    assert respell(Constraint("regex", "a|b")).text == "(?:a|b)"
    assert json.loads(respell(Constraint("choice", '["a", "b"]')).text) == ["b", "a"]
    ebnf = respell(Constraint("grammar", 'root ::= "a"', "ebnf"))
    assert ebnf.syntax == "ebnf"
    assert ebnf.text.startswith('root ::= "a"\n\n#')
    assert respell(Constraint("grammar", 'start: "a"\n', "lark")).text.startswith('start: "a"\n\n//')
    assert respell(Constraint("json_object", "")) == Constraint("json_object", "")
