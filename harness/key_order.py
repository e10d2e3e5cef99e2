"""A JSON value with its keys in the order in which its schema declares them, for documents that were written otherwise.

Manager side. It only arranges what is there: which order a profile asks for where schemas overlap is the judges'
business, so this is a best effort, and whoever needs to know whether the result is in the language asks a judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "number": (int, float), "integer": (int, float),
}  # fmt: skip


def declared(value: Any, schema: Any) -> Any:
    """The value with the keys of every object in the order of ``properties``, others after them as they came.

    schema: a parsed JSON Schema. References are followed within it; what leads elsewhere arranges nothing.
    """
    try:
        return _arranged(value, [schema], schema)
    except RecursionError:  # nested deeper than Python goes: as it came
        return value


def _arranged(value: Any, schemas: Iterable[Any], root: Any) -> Any:
    match value:
        case dict():
            applied = list(_applied(schemas, value, root))
            named = dict.fromkeys(name for s in applied for name in _named(s, "properties") if name in value)
            keys = (*named, *(key for key in value if key not in named))
            return {key: _arranged(value[key], _of_member(applied, key), root) for key in keys}
        case list():
            applied = list(_applied(schemas, value, root))
            return [_arranged(item, _of_item(applied, i), root) for i, item in enumerate(value)]
        case _:
            return value


def _applied(schemas: Iterable[Any], value: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Each schema, followed by those that it applies to the same value as they are written; each once."""
    seen: set[int] = set()

    def go(schema: Any) -> Iterator[Mapping[str, Any]]:
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        seen.add(id(schema))
        yield schema
        for keyword, inner in schema.items():
            if keyword == "$ref":
                yield from go(_resolved(inner, root))
            elif keyword in ("then", "else"):
                yield from go(inner)
            elif keyword == "allOf" and isinstance(inner, list):
                for each in inner:
                    yield from go(each)
            elif keyword in ("anyOf", "oneOf") and isinstance(inner, list):
                for each in inner:
                    if _may_hold(each, value, root):
                        yield from go(each)
            elif keyword == "dependentSchemas" and isinstance(inner, dict):
                for each in inner.values():
                    yield from go(each)

    for schema in schemas:
        yield from go(schema)


def _may_hold(branch: Any, value: Any, root: Any) -> bool:
    """Whether nothing at the top of a branch speaks against it: its type, its required keys, the tags it fixes."""
    if isinstance(branch, dict) and "$ref" in branch:
        branch = _resolved(branch["$ref"], root)
    if not isinstance(branch, dict):
        return True
    kinds = branch.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and kinds and not any(isinstance(value, _TYPES.get(str(k), object)) for k in kinds):
        return False
    if not isinstance(value, dict):
        return True
    required = branch.get("required", [])
    if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
        return False
    for name, schema in _named(branch, "properties").items():
        if name not in value or not isinstance(schema, dict):
            continue
        if "const" in schema and value[name] != schema["const"]:
            return False
        if isinstance(schema.get("enum"), list) and value[name] not in schema["enum"]:
            return False
    return True


def _of_member(applied: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    found: list[Any] = []
    for schema in applied:
        properties = _named(schema, "properties")
        if key in properties:
            found.append(properties[key])
        else:
            # Which pattern a key matches is left to the judges: all of them can only arrange more.
            found += [*_named(schema, "patternProperties").values(), schema.get("additionalProperties")]
    return found


def _of_item(applied: Iterable[Mapping[str, Any]], place: int) -> list[Any]:
    found: list[Any] = []
    for schema in applied:
        items = schema.get("items")
        first = schema.get("prefixItems", items)
        if isinstance(first, list) and place < len(first):
            found.append(first[place])
        else:
            found.append(schema.get("additionalItems") if isinstance(items, list) else items)
        found.append(schema.get("contains"))
    return found


def _named(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    inner = schema.get(keyword)
    return inner if isinstance(inner, dict) else {}


def _resolved(reference: Any, root: Any) -> Any:
    """What a reference within the document leads to; None where it leads elsewhere, or nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
