"""What a constraint exercises, computed from the constraint: the test's own view of what schemas/manifest.toml says.

Run as a program, it prints the tables of the manifest for the constraints as they are now.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from harness import catalogue, paths
from harness.catalogue import Entry
from harness.profile import Profile

ANNOTATIONS = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "definitions", "description", "examples", "title"}
)
ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
ONE_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("$defs", "dependentSchemas", "patternProperties", "properties")
BOUNDS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
COMPACT = Profile(whitespace="compact")


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it, at schema positions only: a property called ``enum`` is no keyword."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in (*ONE, *ONE_UNEVALUATED):
        yield from subschemas(schema.get(keyword))
    for keyword in MANY:
        for inner in schema.get(keyword, ()):
            yield from subschemas(inner)
    for keyword in NAMED:
        for inner in schema.get(keyword, {}).values():
            yield from subschemas(inner)


def features(entry: Entry) -> frozenset[str]:
    found = set(_documents(entry))
    constraint = entry.constraint
    if not constraint.text.isascii():
        found.add("non_ascii")
    if len(constraint.text.encode()) >= 4096:
        found.add("large_constraint")
    match constraint.kind:
        case "json_schema":
            found |= _schema(constraint.json())
        case "structural_tag":
            tag = constraint.json()
            found |= {"free_text"}
            if len(tag["triggers"]) > 1:
                found.add("several_triggers")
            if len(tag["structures"]) > 1:
                found.add("several_structures")
            for structure in tag["structures"]:
                found |= _schema(structure["schema"])
        case "json_object":
            found.add("free_json")
        case "choice":
            choices = constraint.json()
            if len(choices) >= 50:
                found.add("long_enum")
            if any(a != b and b.startswith(a) for a in choices for b in choices):
                found.add("prefix_choice")
            found.add("choice")
        case "regex":
            found |= _regex(constraint.text)
        case "grammar":
            found |= _grammar(constraint.text)
    return frozenset(found)


def _documents(entry: Entry) -> Iterator[str]:
    for instance in (*entry.valid, *entry.valid_where, *entry.invalid):
        if not catalogue.spell(entry, instance, COMPACT).isascii():
            yield "non_ascii"
    texts = [catalogue.spell(entry, instance, COMPACT) for instance in entry.valid]
    if max(len(text.encode()) for text in texts) >= 1000:
        yield "long_document"
    if entry.constraint.kind in ("json_schema", "json_object", "structural_tag") and any("\\" in t for t in texts):
        yield "escapes"


def _schema(root: Any) -> set[str]:
    found: set[str] = set()
    for schema in subschemas(root):
        found |= schema.keys() - ANNOTATIONS
        if isinstance(schema.get("type"), list):
            found.add("type_list")
        if len(schema.get("enum", ())) >= 50:
            found.add("long_enum")
        if "properties" in schema and set(schema["properties"]) - set(schema.get("required", ())):
            found.add("optional_properties")
        if "properties" in schema and "additionalProperties" not in schema:
            found.add("open_object")
        if "oneOf" in schema and not _exclusive(root, schema["oneOf"]):
            found.add("overlapping_one_of")
        if any(schema.get(bound, 0) >= 200 for bound in BOUNDS):
            found.add("large_bound")
        if "pattern" in schema:
            found |= _pattern(schema["pattern"])
            if schema.keys() & {"minLength", "maxLength"}:
                found.add("pattern_and_length")
        for key in schema.get("patternProperties", ()):
            found |= _pattern(key)
    if _depth(root) >= 4:
        found.add("deep_nesting")
    if _reaches_itself(root):
        found.add("recursion")
    return found


def _pattern(pattern: str) -> set[str]:
    found = set()
    if not (pattern.startswith("^") and pattern.endswith("$")):
        found.add("pattern_search")
    if re.search(r"\(\?[=!<]", pattern):
        found.add("look_around")
    if re.search(r"\\[dDsSwW]", pattern):
        found.add("class_escape")
    return found


def _exclusive(root: Any, branches: list[Any]) -> bool:
    """Whether no value can satisfy two branches, seen by their tags alone: one property, required in all, has a
    different constant in each, or the required properties exclude each other and nothing else is allowed."""
    branches = [_deref(root, b) for b in branches]
    if not all("properties" in b and b.get("additionalProperties") is False for b in branches):
        return False
    tags = set.intersection(*(set(b["required"]) for b in branches))
    for tag in tags:
        constants = [b["properties"][tag].get("const") for b in branches]
        if None not in constants and len(set(constants)) == len(branches):
            return True
    return all(
        set(a["required"]) - set(b["properties"]) or set(b["required"]) - set(a["properties"])
        for i, a in enumerate(branches)
        for b in branches[:i]
    )


def _deref(root: Any, schema: Any) -> Any:
    while "$ref" in schema:
        node = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            node = node[step]
        schema = node
    return schema


def _depth(schema: Any) -> int:
    """Objects and arrays inside each other, references not followed."""
    inner = max((_depth(s) for s in _children(schema)), default=0)
    return inner + (schema.get("type") in ("array", "object") if isinstance(schema, dict) else 0)


def _children(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for keyword in (*ONE, *ONE_UNEVALUATED):
            if keyword in schema:
                yield schema[keyword]
        for keyword in MANY:
            yield from schema.get(keyword, ())
        for keyword in NAMED:
            yield from schema.get(keyword, {}).values()


def _reaches_itself(root: Any) -> bool:
    definitions = root.get("$defs", {})
    edges = {
        name: {s["$ref"].rpartition("/")[2] for s in subschemas(body) if "$ref" in s}
        for name, body in definitions.items()
    }
    return _cyclic(edges)


def _cyclic(edges: dict[str, set[str]]) -> bool:
    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges.get(start, ()))
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += edges.get(node, ())
        return seen

    return any(name in reachable(name) for name in edges)


def _regex(text: str) -> set[str]:
    found = {"regex"}
    bare = re.sub(r"\\.", "x", text)  # an escaped character is a letter
    if re.search(r"\[\^", bare):
        found.add("negated_class")
    bare = re.sub(r"\[[^\]]*\]", "x", bare)  # and so is a class
    if "|" in bare:
        found.add("alternation")
    if re.search(r"[*+]", bare):
        found.add("unbounded_repetition")
    bounded = [False]  # for each open group: is there a counted repetition in it?
    for token in re.finditer(r"\{\d[^}]*\}|\((?:\?:)?|\)(\{\d[^}]*\})?", bare):
        if token[0].startswith("("):
            bounded.append(False)
            continue
        inside = bounded.pop() if token[0].startswith(")") else False
        counted = "{" in token[0]
        if counted:
            found.add("bounded_repetition")
        if counted and inside:
            found.add("nested_repetition")
        bounded[-1] |= inside or counted
    return found


def _grammar(text: str) -> set[str]:
    found = {"rules"}
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "//"))]
    rules = dict(re.split(r"\s*(?:::=|:)\s*", line, maxsplit=1) for line in lines)
    edges: dict[str, set[str]] = {}
    first: dict[str, set[str]] = {}
    for name, body in rules.items():
        if re.search(r"\[\^", body):
            found.add("negated_class")
        symbols = re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|/(?:\\.|[^/\\])+/', " ' ", body)
        if re.search(r"\{\d", symbols):
            found.add("bounded_repetition")
        edges[name] = {word for word in re.findall(r"[A-Za-z_]+", symbols) if word in rules}
        starts = [re.match(r"\s*([A-Za-z_]+)", alternative) for alternative in symbols.split("|")]
        first[name] = {m[1] for m in starts if m and m[1] in rules}
    if _cyclic(edges):
        found.add("recursion")
    if _cyclic(first):
        found.add("left_recursion")
    return found


def main() -> None:
    levels = tomllib.loads((paths.schemas() / catalogue.MANIFEST).read_text(encoding="utf-8"))["levels"]
    for name, entry in _unmanifested().items():
        found = sorted(features(entry))
        unknown = [f for f in found if f not in levels]
        if unknown:
            raise SystemExit(f"{name}: give these a level in [levels] first: {', '.join(unknown)}")
        print(f'[constraints."{name}"]')
        print(f"complexity = {max(levels[f] for f in found)}")
        print("features = [" + ", ".join(f'"{f}"' for f in found) + "]\n")


def _unmanifested() -> dict[str, Entry]:
    """The constraints as their files have them, whatever the manifest says."""
    root = paths.schemas()
    return {f"{p.parent.name}/{p.stem}": catalogue.read_entry(p) for p in sorted(root.glob("*/*.json"))}


if __name__ == "__main__":
    main()
