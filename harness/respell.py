"""The same constraint in other words: a text that differs and means the same, for compile's "spelled otherwise" state.

A cache keyed by the text misses it, a cache keyed by the meaning hits it. Runs in the worker: standard library only.
It must never change the language, nor anything that a backend may take a language from: the order of the names in
``properties`` (declared key order), the spelling of a number, the value of an ``enum`` or ``const`` stay as they are.
"""

from __future__ import annotations

import json
from typing import Any

from harness.constraint import Constraint

# Keywords (JSON Schema 2020-12 and draft-07) whose value is a schema, a list of schemas, a map of names to schemas.
_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
_ORDERED = frozenset({"patternProperties", "properties"})

_COMMENTS = {"ebnf": "# the same, spelled otherwise", "gbnf": "# the same, spelled otherwise",
             "lark": "// the same, spelled otherwise"}  # fmt: skip


class _Number(str):
    """A JSON number as written: reading it as a float could change the schema's meaning."""


def respell(constraint: Constraint) -> Constraint:
    """The same language, another text.

    JSON Schema and structural tags: keywords in reverse order and the text indented otherwise; the names inside
    ``properties`` keep their order. Regex: a non-capturing group around the whole. Grammars: a comment is appended.
    Choice: in reverse order. ``json_object`` has no text, and comes back as it is.
    """
    match constraint.kind:
        case "json_object":
            return constraint
        case "regex":
            text = f"(?:{constraint.text})"
        case "grammar":
            assert constraint.syntax is not None
            text = constraint.text.rstrip("\n") + "\n\n" + _COMMENTS[constraint.syntax] + "\n"
        case "choice":
            text = _write(_read(constraint.text)[::-1])
        case "json_schema":
            text = _write(_schema(_read(constraint.text)))
        case "structural_tag":
            text = _write(_tag(_read(constraint.text)))
    if text == constraint.text:  # what was respelled before, or reads the same in reverse
        text += "\n"
    return Constraint(constraint.kind, text, constraint.syntax)


def _read(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _reversed(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(reversed(value.items()))


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for keyword, value in _reversed(schema):
        if keyword in _NAMED and isinstance(value, dict):
            pairs = iter(value.items()) if keyword in _ORDERED else _reversed(value)
            out[keyword] = {name: _schema(inner) for name, inner in pairs}
        elif keyword in _MANY and isinstance(value, list):
            out[keyword] = [_schema(inner) for inner in value]
        elif keyword in _ONE:
            out[keyword] = _schema(value)
        else:  # data (enum, const, default, bounds), or a keyword nobody knows
            out[keyword] = value
    return out


def _tag(tag: Any) -> Any:
    out: dict[str, Any] = {}
    for field, value in _reversed(tag):
        if field == "structures" and isinstance(value, list):
            out[field] = [
                {k: _schema(v) if k == "schema" else v for k, v in _reversed(structure)} for structure in value
            ]
        else:
            out[field] = value
    return out


def _write(value: Any, indent: int = 3, depth: int = 0) -> str:
    """JSON text, indented; numbers exactly as they were read."""
    outer, inner = "\n" + " " * (indent * depth), "\n" + " " * (indent * (depth + 1))
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict) and value:
        members = (f"{json.dumps(k, ensure_ascii=False)}: {_write(v, indent, depth + 1)}" for k, v in value.items())
        return "{" + inner + ("," + inner).join(members) + outer + "}"
    if isinstance(value, list) and value:
        return "[" + inner + ("," + inner).join(_write(v, indent, depth + 1) for v in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)
