"""What JSON Schema keywords let through, byte by byte: small claims, each with texts on both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference import compile as compile_
from harness.reference.documents import parse

from .schema_cases import FORBIDDEN

D4, D7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
D2019 = "https://json-schema.org/draft/2019-09/schema"


def accepts(schema: Any, text: str, profile: Profile = FORBIDDEN, **options: Any) -> bool:
    text_of_schema = schema if isinstance(schema, str) else json.dumps(schema)
    return automata.accepts(compile_.schema(parse(text_of_schema), profile, **options), text.encode())


# (schema, texts in the language, texts outside)
CASES: dict[str, tuple[Any, list[str], list[str]]] = {
    "keywords bind their own type only": (
        {"minLength": 2, "minimum": 3, "minItems": 1, "required": ["a"]},
        ['"ab"', "3", "[0]", '{"a":1}', "null", "true"],
        ['"a"', "2", "[]", "{}"],
    ),
    "values compare as numbers": ({"const": 7}, ["7", "7.0", "70e-1", "0.7e1"], ["7.1", "70", '"7"', "-7"]),
    "true is not 1": ({"enum": [1, False]}, ["1", "1.0", "false"], ["true", "0"]),
    "decimals are exact": ('{"const":0.1}', ["0.1", "1e-1"], ["0.10000000000000000001"]),
    "multiples are exact": ('{"multipleOf":0.1}', ["0.3", "1.1", "30e-2"], ["0.35"]),
    "strings compare decoded": ({"const": "a\n"}, ['"a\\n"', '"\\u0061\\u000a"'], ['"a"', '"a\\\\n"']),
    "keys compare decoded": (
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        ['{"a":1}', '{"\\u0061":1}', "{}"],
        ['{"\\u0061":"s"}', '{"b":1}'],
    ),
    "lengths count code points": ({"maxLength": 1}, ['"\\ud83d\\ude00"', '"😀"', '"é"'], ['"ab"']),
    "a pattern is searched": ({"pattern": "b+c"}, ['"abbcd"'], ['"bac"']),
    "a named key obeys its patterns, too": (
        {"properties": {"ab": {"minimum": 1}}, "patternProperties": {"^a": {"maximum": 3}}},
        ['{"ab":2}', '{"ac":0}', '{"b":9}'],
        ['{"ab":0}', '{"ab":4}', '{"ac":4}'],
    ),
    "additional keys are those no pattern matches": (
        {"properties": {"x": {}}, "patternProperties": {"^a": {}}, "additionalProperties": {"type": "null"}},
        ['{"x":1,"a1":1,"y":null}'],
        ['{"y":1}'],
    ),
    "names obey propertyNames": ({"propertyNames": {"maxLength": 1}}, ['{"a":1,"b":2}', "[]"], ['{"ab":1}']),
    "distinct keys are counted": (
        {"propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
        ['{"a":1,"b":1}', '{"b":1,"a":1}'],
        ['{"a":1}', "{}"],
    ),
    "a key that can never come makes nothing": (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3}, [], ["{}", '{"a":1}'],
    ),
    "dependents": (
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}},
        ['{"a":1,"b":1}', '{"b":1}', '{"c":1}'],
        ['{"a":1}', '{"c":1,"d":1}'],
    ),
    "dependencies live on": ({"dependencies": {"a": ["b"]}}, ['{"b":1}'], ['{"a":1}']),
    "tuples": (
        {"prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"}},
        ['["a"]', '["a",null,1,2]', "[]"],
        ['[1]', '["a",1]', '["a",null,"b"]'],
    ),
    "contains within bounds": (
        {"contains": {"const": 1}, "minContains": 2, "maxContains": 3},
        ["[1,0,1]", "[1,1,1,0]"],
        ["[1]", "[]", "[1,1,1,1]"],
    ),
    "minContains 0 asks nothing": ({"contains": {"const": 1}, "minContains": 0}, ["[]", "[2]"], []),
    "items differ by value": (
        {"uniqueItems": True},
        ["[1,2]", '[{"a":1,"b":2},{"a":1}]', "[1,true]", '["1",1]', "[[1],[2]]"],
        ["[1,1.0]", '[{"a":1,"b":2},{"b":2,"a":1}]', '["a","\\u0061"]', "[[1],[1e0]]"],
    ),
    "unique and contained": (
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "contains": {"const": 7}, "maxItems": 4},
        ["[7]", "[1,7,2]"],
        ["[]", "[1,2]", "[7,7]", "[7,7.0]", "[1,2,3,4]"],
    ),
    "not unique": ({"type": "array", "not": {"uniqueItems": True}}, ["[1,2,1]", "[[],[]]"], ["[1,2]", "[]"]),
    "exactly one": (
        {"oneOf": [{"type": "integer", "maximum": 10}, {"type": "integer", "minimum": 5}]},
        ["4", "11"],
        ["5", "7", '"a"'],
    ),
    "exactly one of overlapping records": (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]},
                   {"properties": {"c": {"type": "null"}}, "required": ["c"]}]},
        ['{"a":1}', '{"b":1,"c":2}', '{"c":null}'],
        ["{}", '{"a":1,"b":1}', '{"a":1,"c":null}'],
    ),
    "not negates members": (
        {"type": "object", "not": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        ["{}", '{"a":"x"}', '{"b":1}'],
        ['{"a":1}'],
    ),
    "siblings of a condition": (
        {"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]},
         "else": {"required": ["y"]}, "type": "object"},
        ['{"k":1,"x":0}', '{"k":2,"y":0}', '{"y":0}'],
        ['{"k":1}', '{"k":1,"y":0}', "{}"],
    ),
    "unevaluated members follow what held": (
        {"anyOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"properties": {"b": {}}}],
         "unevaluatedProperties": False},
        ['{"a":null}', '{"b":1}', '{"a":null,"b":1}', "{}"],
        ['{"a":1}', '{"a":1,"b":1}', '{"c":1}'],
    ),
    "contained items are evaluated": (
        {"contains": {"type": "string"}, "unevaluatedItems": {"type": "null"}}, ['["a",null]'], ['["a",1]', "[null]"],
    ),
    "recursion through any pointer": (
        {"properties": {"n": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}, "required": ["n"], "type": "object"},
        ['{"n":null}', '{"n":{"n":null}}'],
        ['{"n":{}}', '{"n":1}'],
    ),
    "a schema that never ends means nothing": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "required": ["a"],
                                              "properties": {"a": {"$ref": "#/$defs/a"}}}}},
        [],
        ["{}", '{"a":{}}'],
    ),
    "anchors and embedded ids": (
        {"$id": "http://x.test/root", "properties": {"a": {"$ref": "inner#s"}},
         "$defs": {"i": {"$id": "inner", "$defs": {"s": {"$anchor": "s", "type": "string"}}}}},
        ['{"a":"x"}'],
        ['{"a":1}'],
    ),
    "draft-04 bounds are exclusive by a boolean": (
        {"$schema": D4, "minimum": 3, "exclusiveMinimum": True}, ["3.1", "4"], ["3", "3.0"],
    ),
    "draft-04 integers are written as such": ({"$schema": D4, "type": "integer"}, ["1", "-0"], ["1.0", "1e0"]),
    "draft-04 numbers that are no integers": (
        {"$schema": D4, "oneOf": [{"type": "integer"}, {"type": "number", "maximum": 5}]},
        ["1.0", "7", "5.0", "1e0"],
        ["5", "-1", "5.5"],
    ),
    "integers by value since": ({"$schema": D7, "type": "integer"}, ["1.0", "1e3", "1000e-3"], ["1000e-4", "1.5"]),
    "siblings of $ref were ignored": (
        {"$schema": D7, "definitions": {"a": {}}, "properties": {"x": {"$ref": "#/definitions/a", "type": "null"}}},
        ['{"x":1}'],
        [],
    ),
    "$recursiveRef": (
        {"$schema": D2019, "$recursiveAnchor": True, "type": "object",
         "additionalProperties": {"$recursiveRef": "#"}},
        ['{"a":{"b":{}}}'],
        ['{"a":1}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_language_of(name: str) -> None:
    schema, inside, outside = CASES[name]
    assert [t for t in inside if not accepts(schema, t)] == []
    assert [t for t in outside if accepts(schema, t)] == []


def test_remote_documents_are_given_never_fetched() -> None:
    schema = {"$ref": "http://x.test/string.json"}
    assert accepts(schema, '"a"', resources={"http://x.test/string.json": {"type": "string"}})
    assert not accepts(schema, "1", resources={"http://x.test/string.json": {"type": "string"}})
    with pytest.raises(UnsupportedError, match="not given") as refused:
        accepts(schema, "1")
    assert refused.value.keyword == "$ref"


def test_a_dynamic_anchor_is_the_outermost_one() -> None:
    tree = {
        "$id": "http://x.test/tree", "$dynamicAnchor": "node", "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }  # fmt: skip
    strict = {
        "$id": "http://x.test/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False,
    }  # fmt: skip
    assert accepts(strict, '{"kids":[{"kids":[]}]}', resources={"http://x.test/tree": tree})
    assert not accepts(strict, '{"kids":[{"kid":[]}]}', resources={"http://x.test/tree": tree})


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "/properties/a/type"),
        ({"required": "a"}, "/required"),
        ({"items": [{}]}, "/items"),
        ({"minLength": -1}, "/minLength"),
        ({"$ref": "#/$defs/none"}, "#/$defs/none"),
        ({"properties": {"p": {"pattern": "("}}}, "/properties/p/pattern"),
        ({"anyOf": []}, "/anyOf"),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(schema: Any, place: str) -> None:
    with pytest.raises(CompileError) as refused:
        accepts(schema, "1")
    assert place in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "pattern"),
        ({"not": {"$ref": "#"}}, "$ref"),
        ({"$schema": "http://x.test/own"}, "$schema"),
    ],
)
def test_what_is_unsupported_is_refused_by_name_before_a_byte_is_read(schema: Any, keyword: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        compile_.schema(schema, FORBIDDEN)
    assert refused.value.keyword == keyword


def test_in_place_recursion_takes_the_least_reading() -> None:
    schema = {"anyOf": [{"$ref": "#"}, {"type": "string"}]}
    assert accepts(schema, '"a"')
    assert not accepts(schema, "1")


def test_formats_bind_by_profile() -> None:
    asserted = Profile(duplicate_keys="forbidden", format="assertion")
    assert accepts({"format": "date"}, '"nope"')
    assert not accepts({"format": "date"}, '"nope"', asserted)
    assert accepts({"format": "date"}, '"2024-02-29"', asserted)
    assert not accepts({"format": "date"}, '"2023-02-29"', asserted)
    with pytest.raises(UnsupportedError, match="regex"):
        accepts({"format": "regex"}, '"a"', asserted)
    with pytest.raises(UnsupportedError, match="contentMediaType"):
        accepts({"$schema": D7, "contentMediaType": "application/json"}, '"{}"', asserted)
    assert accepts({"contentMediaType": "application/json"}, '"{:}"', asserted)


def test_the_other_kinds_of_constraint() -> None:
    choice = compile_.compile(Constraint("choice", '["yes","no\\nplease"]'))
    assert [t for t in ("yes", "no\nplease", "no", "yesno", "") if automata.accepts(choice, t.encode())] == [
        "yes",
        "no\nplease",
    ]
    regex = compile_.compile(Constraint("regex", "ab?"))
    assert [t for t in ("", "a", "ab", "abb", "xa") if automata.accepts(regex, t.encode())] == ["a", "ab"]
    json_object = compile_.compile(Constraint("json_object", ""))
    assert automata.accepts(json_object, b'{"a":[1,{"b":null}]}')
    assert not automata.accepts(json_object, b"[1]")
