"""What the schema tests share: generated schemas and documents, and the independent judge."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any

import jsonschema_rs
from hypothesis import assume
from hypothesis import strategies as st

from harness.profile import Profile
from harness.reference import compile as compile_
from harness.reference.documents import parse
from harness.reference.tree import Tree

FORBIDDEN = Profile(duplicate_keys="forbidden")
# The bytes that walks use: enough to spell every document below, few enough to get somewhere.
BYTES = b'{}[]:,"abcx0123.-etrufalsn '

KEYS = st.sampled_from(["a", "b", "c", "ab", "ba", "x"])
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, -1, Decimal("0.5"), Decimal("1.5"), Decimal("2.0"), 10])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "b", "ab", "abc", "ba", "x"]))
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=8,
)
SMALL = st.integers(0, 3)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
PATTERNS = st.sampled_from(["^a", "b$", "^[ab]+$", "a|x", "^.$", "^$", "^(ab)*$"])


def _some(options: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the keywords, with values."""
    return st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=most, unique=True).flatmap(
        lambda keys: st.fixed_dictionaries({k: options[k] for k in keys})
    )


_LEAVES = st.one_of(
    st.booleans(),
    st.just({}),
    st.builds(lambda t: {"type": t}, TYPES),
    st.builds(lambda t: {"type": t}, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
    st.builds(lambda v: {"const": v}, DOCUMENTS),
    st.builds(lambda v: {"enum": v}, st.lists(DOCUMENTS, min_size=1, max_size=4)),
    _some(
        {
            "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 3, Decimal("0.5")]), "type": TYPES,
        }, 3,
    ),
    _some({"minLength": SMALL, "maxLength": SMALL, "pattern": PATTERNS, "type": st.just("string")}, 3),
    st.just({"$ref": "#/$defs/r"}),
    st.just({"$ref": "#/$defs/s"}),
)  # fmt: skip


def _extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    arrays = _some(
        {
            "items": inner, "prefixItems": some, "minItems": SMALL, "maxItems": SMALL, "uniqueItems": st.booleans(),
            "contains": inner, "minContains": SMALL, "maxContains": SMALL, "unevaluatedItems": inner,
            "type": st.just("array"),
        }, 5,
    )  # fmt: skip
    objects = _some(
        {
            "properties": st.dictionaries(KEYS, inner, max_size=3),
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": inner, "propertyNames": inner, "minProperties": SMALL, "maxProperties": SMALL,
            "required": st.lists(KEYS, max_size=2, unique=True), "unevaluatedProperties": inner,
            "dependentRequired": st.dictionaries(KEYS, st.lists(KEYS, max_size=2, unique=True), max_size=2),
            "dependentSchemas": st.dictionaries(KEYS, inner, max_size=1), "type": st.just("object"),
        }, 5,
    )  # fmt: skip
    combined = _some(
        {"allOf": some, "anyOf": some, "oneOf": some, "not": inner, "if": inner, "then": inner, "else": inner,
         "$ref": st.sampled_from(["#/$defs/r", "#/$defs/s"]), "required": st.lists(KEYS, max_size=1),
         "properties": st.dictionaries(KEYS, inner, max_size=2), "unevaluatedProperties": inner}, 4,
    )  # fmt: skip
    return st.one_of(arrays, objects, combined, combined)


SUBSCHEMAS = st.recursive(_LEAVES, _extended, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A 2020-12 schema with two definitions that may lead back to it through members."""
    root = draw(SUBSCHEMAS.filter(lambda s: isinstance(s, dict)))
    definitions = {"r": draw(SUBSCHEMAS), "s": draw(SUBSCHEMAS)}
    assume(not any(_leads_back(name, definitions[name], definitions, set()) for name in definitions))
    return {**root, "$defs": definitions}


def _leads_back(name: str, schema: Any, definitions: dict[str, Any], seen: set[str]) -> bool:
    """Whether a definition refers to itself without going into a member: the standard gives that no meaning."""
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema:
        target = schema["$ref"].rsplit("/", 1)[-1]
        if target == name:
            return True
        if target not in seen and _leads_back(name, definitions[target], definitions, seen | {target}):
            return True
    inner = [schema.get(k) for k in ("not", "if", "then", "else")]
    inner += [s for k in ("allOf", "anyOf", "oneOf") for s in schema.get(k, ())]
    inner += schema.get("dependentSchemas", {}).values()
    return any(_leads_back(name, s, definitions, seen) for s in inner)


def dumps(value: Any, **options: Any) -> str:
    """JSON text with decimals written out."""
    text = json.dumps(value, default=lambda d: f"@{d}@", **options)
    return text.replace('"@', "").replace('@"', "")


def automaton(schema: Any, profile: Profile = FORBIDDEN, **options: Any) -> Tree:
    return compile_.schema(parse(dumps(schema)), profile, **options)


def judge(schema: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(dumps(schema), parse_float=Decimal), validate_formats=False)


def read(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


# Numbers that the judge cannot hold.
_HUGE = re.compile(rb"\d[eE][+-]?\d{3}")
# What ends things first, then what is short.
_SHORT = b'"}]:0n1tf23456789.-+e,['


def random_walk(tree: Tree, seed: int, longest: int = 40) -> bytes | None:
    """Some viable prefix, and a document that it leads to by closing what is open; None for an empty language, or
    where the walk does not come to an end in time. It fails where it comes to a dead end."""
    rng = random.Random(seed)
    state = tree.start()
    if state is None:
        return None
    text = bytearray()
    wander = rng.randrange(longest)
    for step in range(wander + 400):
        if step >= wander and tree.accepting(state):
            return None if _HUGE.search(text) else bytes(text)
        order = list(BYTES) if step < wander else list(_SHORT) + rng.sample(BYTES, len(BYTES))
        if step < wander:
            rng.shuffle(order)
        for byte in [*order, *range(256)]:
            after = tree.step(state, byte)
            if after is not None:
                break
        else:
            assert tree.accepting(state), f"dead end after {bytes(text)!r}"
            return None if _HUGE.search(text) else bytes(text)
        text.append(byte)
        state = after
    return None
