"""What the drafts of JSON Schema differ in: which keywords hold subschemas, and what shape a keyword's value must have.

Data only; meaning is in ``keywords``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.errors import CompileError


@dataclass(frozen=True)
class Draft:
    """name: as people write it. number: for comparisons. single, many, named: keywords whose value is a subschema, a
    list of them, an object of them."""

    name: str
    number: int
    single: frozenset[str]
    many: frozenset[str]
    named: frozenset[str]

    @property
    def id_keyword(self) -> str:
        return "id" if self.number == 4 else "$id"


_SINGLE_4 = {"additionalItems", "items", "additionalProperties", "not"}
_MANY_4 = {"allOf", "anyOf", "oneOf", "items"}
_NAMED_4 = {"properties", "patternProperties", "definitions", "dependencies"}
_SINGLE_6 = _SINGLE_4 | {"contains", "propertyNames"}
_SINGLE_7 = _SINGLE_6 | {"if", "then", "else"}
_SINGLE_2019 = _SINGLE_7 | {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
_NAMED_2019 = _NAMED_4 | {"$defs", "dependentSchemas"}


def _draft(name: str, number: int, single: set[str], many: set[str], named: set[str]) -> Draft:
    return Draft(name, number, frozenset(single), frozenset(many), frozenset(named))


DRAFT4 = _draft("draft-04", 4, _SINGLE_4, _MANY_4, _NAMED_4)
DRAFT6 = _draft("draft-06", 6, _SINGLE_6, _MANY_4, _NAMED_4)
DRAFT7 = _draft("draft-07", 7, _SINGLE_7, _MANY_4, _NAMED_4)
DRAFT2019 = _draft("2019-09", 2019, _SINGLE_2019, _MANY_4, _NAMED_2019)
DRAFT2020 = _draft(
    "2020-12", 2020, _SINGLE_2019 - {"additionalItems"}, (_MANY_4 - {"items"}) | {"prefixItems"}, _NAMED_2019
)

BY_URI = {
    "http://json-schema.org/draft-04/schema": DRAFT4,
    "http://json-schema.org/draft-06/schema": DRAFT6,
    "http://json-schema.org/draft-07/schema": DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": DRAFT2019,
    "https://json-schema.org/draft/2020-12/schema": DRAFT2020,
}
BY_NAME = {d.name: d for d in BY_URI.values()} | {"draft4": DRAFT4, "draft6": DRAFT6, "draft7": DRAFT7}

# Keywords that assert something, by the vocabulary (2019-09 on) that brings them. Absent vocabularies switch them off.
VOCABULARY = {
    "validation": frozenset(
        {
            "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
            "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
            "maxProperties", "minProperties", "required", "dependentRequired",
        }
    ),
    "applicator": frozenset(
        {
            "prefixItems", "items", "additionalItems", "contains", "additionalProperties", "properties",
            "patternProperties", "dependentSchemas", "propertyNames", "if", "then", "else", "allOf", "anyOf", "oneOf",
            "not",
        }
    ),
    "unevaluated": frozenset({"unevaluatedItems", "unevaluatedProperties"}),
}  # fmt: skip

TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


def _is_schema(value: Any, draft: Draft) -> bool:
    return isinstance(value, dict) or (isinstance(value, bool) and draft.number >= 6)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and Fraction(value).denominator == 1


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def check(schema: dict[str, Any], draft: Draft, pointer: str) -> None:
    """CompileError naming the place, where a keyword's value is none that the draft's meta-schema allows."""

    def need(keyword: str, fine: bool, wanted: str) -> None:
        if not fine:
            raise CompileError(f"{pointer}/{keyword}: must be {wanted}")

    for keyword, value in schema.items():
        if keyword in draft.named and keyword != "dependencies":
            need(keyword, isinstance(value, dict), "an object of schemas")
            for name, inner in value.items():
                need(f"{keyword}/{escape(name)}", _is_schema(inner, draft), "a schema")
        elif keyword in draft.many and (isinstance(value, list) or keyword not in draft.single):
            need(keyword, isinstance(value, list) and (bool(value) or keyword == "items"), "a list of schemas")
            for i, inner in enumerate(value):
                need(f"{keyword}/{i}", _is_schema(inner, draft), "a schema")
        elif keyword in draft.single:
            also_boolean = draft.number == 4 and keyword in ("additionalItems", "additionalProperties")
            need(keyword, _is_schema(value, draft) or (also_boolean and isinstance(value, bool)), "a schema")
    if "dependencies" in schema:
        value = schema["dependencies"]
        need("dependencies", isinstance(value, dict), "an object")
        for name, inner in value.items():
            need(f"dependencies/{escape(name)}", _is_schema(inner, draft) or _is_texts(inner), "a schema or names")
    for keyword, (fine, wanted) in _SHAPES.items():
        if keyword in schema and _since(keyword) <= draft.number:
            need(keyword, fine(schema[keyword], draft), wanted)


def _since(keyword: str) -> int:
    if keyword in ("const",):
        return 6
    return 2019 if keyword in ("minContains", "maxContains", "dependentRequired", "$anchor") else 4


def _type_fits(value: Any, draft: Draft) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) and v in TYPES for v in value)


def _exclusive_fits(value: Any, draft: Draft) -> bool:
    return isinstance(value, bool) if draft.number == 4 else _is_number(value)


_SHAPES: dict[str, tuple[Any, str]] = {
    "type": (_type_fits, f"one or a list of {', '.join(sorted(TYPES))}"),
    "enum": (lambda v, d: isinstance(v, list), "a list"),
    "multipleOf": (lambda v, d: _is_number(v) and v > 0, "a number above 0"),
    "maximum": (lambda v, d: _is_number(v), "a number"),
    "minimum": (lambda v, d: _is_number(v), "a number"),
    "exclusiveMaximum": (_exclusive_fits, "a number (in draft-04, a boolean)"),
    "exclusiveMinimum": (_exclusive_fits, "a number (in draft-04, a boolean)"),
    **{
        k: (lambda v, d: is_count(v), "a whole number of 0 or more")
        for k in ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties",
                  "maxContains", "minContains")
    },
    "pattern": (lambda v, d: isinstance(v, str), "a regular expression"),
    "uniqueItems": (lambda v, d: isinstance(v, bool), "a boolean"),
    "required": (lambda v, d: _is_texts(v), "a list of names"),
    "dependentRequired": (
        lambda v, d: isinstance(v, dict) and all(_is_texts(names) for names in v.values()),
        "an object of lists of names",
    ),
    "$ref": (lambda v, d: isinstance(v, str), "a URI reference"),
    "$dynamicRef": (lambda v, d: isinstance(v, str) or d.number < 2020, "a URI reference"),
    "$anchor": (lambda v, d: isinstance(v, str), "a name"),
    "format": (lambda v, d: isinstance(v, str), "a name"),
}  # fmt: skip


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
