"""The built-in constraints, judged by others: every valid document is valid, every invalid one is invalid for the one
reason that its file gives, and the manifest says what the constraints say.

Judges: jsonschema-rs (numbers as decimals, draft 2020-12), the ``regex`` package, Lark on grammars written again by
hand, and plain code for choices, JSON objects and structural tags.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import regex

from harness import catalogue, paths
from harness.catalogue import Entry, Instance, spell
from harness.constraint import KINDS, Constraint
from harness.profile import Profile
from harness.respell import respell
from tests import lark_grammars, schema_features
from tests.schema_features import subschemas

ENTRIES = catalogue.load()
TIERS = {"arrays", "bounded", "bounds", "choice", "enums", "flat", "grammar", "json_object", "nested", "patterns",
         "recursive", "regex", "structural_tag", "tool_calls", "unions"}  # fmt: skip
COMPACT = Profile(whitespace="compact")
SPELLINGS = (
    COMPACT,
    Profile(),
    Profile(whitespace="one_space"),
    Profile(whitespace="bounded", whitespace_limit=3),
    Profile(whitespace="spaced"),
    Profile(whitespace="indented", indent=2),
    Profile(whitespace="spaced", key_order="sorted"),
)

every = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    chosen = {name: entry for name, entry in ENTRIES.items() if entry.constraint.kind in kinds}
    return pytest.mark.parametrize("entry", chosen.values(), ids=chosen)


def instances(entry: Entry) -> tuple[Instance, ...]:
    return (*entry.valid, *entry.valid_where, *entry.invalid)


# The judges.


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@cache
def validator(schema: str, formats: bool = False) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(exact(schema), validate_formats=formats)


def satisfies(schema: Any, text: str, *, formats: bool = False) -> bool:
    return validator(json.dumps(schema), formats).is_valid(exact(text))


def is_json_object(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except ValueError:
        return False


def follows_tags(tag: dict[str, Any], text: str) -> bool:
    """Free text up to the first trigger, then exactly one structure whose begin starts with it, and so on."""
    while True:
        starts = [at for at in map(text.find, tag["triggers"]) if at >= 0]
        if not starts:
            return True
        text = text[min(starts) :]
        structures = [s for s in tag["structures"] if text.startswith(s["begin"])]
        assert len(structures) < 2, "two structures begin alike: the judge would have to try both"
        if not structures:
            return False
        begin, end = structures[0]["begin"], structures[0]["end"]
        try:
            _, after = json.JSONDecoder().raw_decode(text, len(begin))
        except ValueError:
            return False
        if not text.startswith(end, after) or not satisfies(structures[0]["schema"], text[len(begin) : after]):
            return False
        text = text[after + len(end) :]


def accepts(entry: Entry, text: str) -> bool:
    constraint = entry.constraint
    match constraint.kind:
        case "json_schema":
            return satisfies(constraint.json(), text)
        case "json_object":
            return is_json_object(text)
        case "regex":
            return regex.fullmatch(constraint.text, text) is not None
        case "choice":
            return text in constraint.json()
        case "structural_tag":
            return follows_tags(constraint.json(), text)
        case "grammar":
            return lark_grammars.accepts(lark_grammars.BY_NAME[entry.name], text)


# What the documents claim.


@every
def test_every_valid_document_is_valid(entry: Entry) -> None:
    for instance in (*entry.valid, *entry.valid_where):
        assert accepts(entry, spell(entry, instance, COMPACT)), instance


@every
def test_every_invalid_document_is_invalid(entry: Entry) -> None:
    for instance in entry.invalid:
        assert not accepts(entry, spell(entry, instance, COMPACT)), instance


@of_kind("json_schema", "structural_tag")
def test_without_the_keyword_it_names_an_invalid_document_would_be_valid(entry: Entry) -> None:
    for instance in entry.invalid:
        if not instance.at:  # what is wrong is in the tags around the JSON
            continue
        constraint = copy.deepcopy(entry.constraint.json())
        *way, keyword = (step.replace("~1", "/").replace("~0", "~") for step in instance.at[1:].split("/"))
        holder = constraint
        for step in way:
            holder = holder[int(step) if isinstance(holder, list) else step]
        del holder[keyword]
        text = spell(entry, instance, COMPACT)
        judged = satisfies if entry.constraint.kind == "json_schema" else follows_tags
        assert judged(constraint, text), f"{instance.at} is not all that is wrong with {text}"


@of_kind("json_schema")
def test_the_validator_names_the_keyword_too(entry: Entry) -> None:
    for instance in entry.invalid:
        errors = validator(entry.constraint.text).iter_errors(exact(spell(entry, instance, COMPACT)))
        reported = set(keywords(errors))
        assert instance.keyword in reported, (instance, reported)


def keywords(errors: Any) -> Iterator[str]:
    """The keywords of validation errors, those inside the branches of anyOf and oneOf included."""
    for error in errors:
        yield error.kind.name
        yield str(error.schema_path[-1])
        for branch in getattr(error.kind, "context", None) or ():
            yield from keywords(branch)


@of_kind("grammar")
def test_a_grammars_own_text_gives_the_verdicts_that_its_documents_claim(entry: Entry) -> None:
    for instance in instances(entry):
        assert reads(entry.constraint, spell(entry, instance, COMPACT)) == (not instance.why), instance


def reads(constraint: Constraint, text: str) -> bool:
    """Whether the grammar takes the text, by Lark: as it is where it is in Lark's notation, else sign by sign."""
    if constraint.syntax == "lark":
        return lark_grammars.accepts(constraint.text, text)
    return lark_grammars.accepts(lark_grammars.from_ebnf(constraint.text), text, start="root")


@pytest.mark.parametrize("one", ["grammar/arithmetic_gbnf", "grammar/arithmetic_lark"])
def test_the_arithmetic_grammars_are_one_language_in_three_notations(one: str) -> None:
    first = ENTRIES["grammar/arithmetic"]
    assert [i.value for i in instances(ENTRIES[one])] == [i.value for i in instances(first)]


def test_no_document_stands_twice_in_one_file() -> None:
    for entry in ENTRIES.values():
        texts = [spell(entry, i, COMPACT) for i in instances(entry)]
        assert len(set(texts)) == len(texts), entry.name


# What the documents need of a profile.


def narrowed(schema: Any, *, properties: bool = False, items: bool = False, patterns: bool = False) -> Any:
    """The schema as a narrower profile reads it: silence on further keys or items is a no, patterns match in full."""
    schema = copy.deepcopy(schema)
    for inner in subschemas(schema):
        if properties and "properties" in inner:
            inner.setdefault("additionalProperties", False)
        if items and "prefixItems" in inner:
            inner.setdefault("items", False)
        if patterns and "pattern" in inner:
            inner["pattern"] = f"^(?:{inner['pattern']})$"
        if patterns and "patternProperties" in inner:
            inner["patternProperties"] = {f"^(?:{k})$": v for k, v in inner["patternProperties"].items()}
    return schema


def numbers(text: str) -> list[str]:
    """The numbers in a JSON text that are not written as digits alone."""
    found: list[str] = []
    json.loads(text, parse_float=found.append)
    return found


@of_kind("json_schema")
def test_valid_documents_are_valid_under_the_narrowest_reading(entry: Entry) -> None:
    schema = narrowed(entry.constraint.json(), properties=True, items=True, patterns=True)
    for instance in entry.valid:
        text = spell(entry, instance, COMPACT)
        assert satisfies(schema, text, formats=True), text
        assert not [n for n in numbers(text) if "e" in n or n.endswith(".0")], text


@of_kind("json_schema", "json_object")
def test_what_valid_where_asks_of_a_profile_is_needed(entry: Entry) -> None:
    for instance in entry.valid_where:
        text = spell(entry, instance, COMPACT)
        for name, value in instance.where.items():
            match name, value:
                case "numbers", "rfc8259":
                    assert [n for n in numbers(text) if "e" in n], text
                case "integer_spelling", "value":
                    assert [n for n in numbers(text) if n.endswith(".0")], text
                case "pattern", "search":
                    assert not satisfies(narrowed(entry.constraint.json(), patterns=True), text), text
                case "additional_properties", True:
                    assert not satisfies(narrowed(entry.constraint.json(), properties=True), text), text
                case _:
                    pytest.fail(f"nobody has said how to see that {name} = {value!r} is needed")


@of_kind("json_schema")
def test_keys_come_in_the_order_in_which_the_schema_declares_them(entry: Entry) -> None:
    root = entry.constraint.json()
    for instance in instances(entry):
        in_order(root, root, instance.value)


def in_order(root: Any, schema: Any, value: Any) -> None:
    if not isinstance(schema, dict):
        return
    if isinstance(value, dict):
        names = declared(root, schema)
        ranks = [names.index(key) if key in names else len(names) for key in value]
        assert ranks == sorted(ranks), (list(value), names)
    for part in parts(root, schema):
        for branch in (*part.get("anyOf", ()), *part.get("oneOf", ())):
            if satisfies({**branch, "$defs": root.get("$defs", {})}, json.dumps(value)):
                in_order(root, branch, value)
        if isinstance(value, dict) and "properties" in part:
            for key, inner in value.items():
                in_order(root, part["properties"].get(key, part.get("additionalProperties")), inner)
        if isinstance(value, list):
            first = part.get("prefixItems", [])
            for i, inner in enumerate(value):
                in_order(root, first[i] if i < len(first) else part.get("items"), inner)


def parts(root: Any, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas that all apply to the same value: this one, what it refers to, and what allOf joins."""
    yield schema
    if "$ref" in schema:
        node = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            node = node[step]
        yield from parts(root, node)
    for branch in schema.get("allOf", ()):
        yield from parts(root, branch)


def declared(root: Any, schema: dict[str, Any]) -> list[str]:
    """Property names in the order of their first mention; under allOf, the branches' one after another."""
    return list(dict.fromkeys(name for part in parts(root, schema) for name in part.get("properties", ())))


# How the documents are written and spelled.


def test_files_spell_numbers_as_python_writes_them_back() -> None:
    for path in paths.schemas().glob("*/*.json"):

        def same(spelling: str, path: Any = path) -> float:
            assert repr(float(spelling)) == spelling, (path, spelling)
            return float(spelling)

        json.loads(path.read_text(encoding="utf-8"), parse_float=same)


@of_kind("json_schema", "json_object")
def test_every_spelling_reads_back_as_the_same_value(entry: Entry) -> None:
    for profile in SPELLINGS:
        for instance in instances(entry):
            if instance.literal:
                continue
            text = spell(entry, instance, profile)
            assert exact(text) == exact(json.dumps(instance.value)), (profile, text)
            if profile.key_order == "any":
                assert json.dumps(json.loads(text)) == json.dumps(instance.value), "key order"


@of_kind("structural_tag")
def test_a_tags_documents_keep_their_verdict_however_their_json_is_spelled(entry: Entry) -> None:
    for profile in SPELLINGS:
        for instance in instances(entry):
            text = spell(entry, instance, profile)
            assert accepts(entry, text) == (not instance.why), (profile, text)


@of_kind("regex", "grammar", "choice")
def test_other_texts_are_spelled_as_they_are(entry: Entry) -> None:
    for profile in SPELLINGS:
        for instance in instances(entry):
            assert spell(entry, instance, profile) == instance.value


@every
def test_a_respelled_constraint_gives_the_same_verdicts(entry: Entry) -> None:
    other = respell(entry.constraint)
    if entry.constraint.kind == "json_object":
        assert other == entry.constraint
        return
    assert other.text != entry.constraint.text
    if entry.constraint.kind == "grammar":
        assert all(reads(other, str(i.value)) == (not i.why) for i in instances(entry))
        return
    again = Entry(entry.name, entry.tier, entry.about, other, entry.valid, entry.invalid, entry.features, 0)
    for instance in instances(entry):
        assert accepts(again, spell(again, instance, COMPACT)) == (not instance.why), instance


# What the collection promises.


def test_there_are_enough_constraints_of_every_tier_and_kind() -> None:
    assert len(ENTRIES) >= 48
    assert {entry.tier for entry in ENTRIES.values()} == TIERS
    assert {entry.constraint.kind for entry in ENTRIES.values()} == set(KINDS)
    assert {entry.complexity for entry in ENTRIES.values()} == {1, 2, 3, 4, 5}


def test_schemas_are_schemas() -> None:
    for entry in ENTRIES.values():
        schemas = []
        if entry.constraint.kind == "json_schema":
            schemas = [entry.constraint.json()]
        elif entry.constraint.kind == "structural_tag":
            schemas = [s["schema"] for s in entry.constraint.json()["structures"]]
        for schema in schemas:
            assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
            for inner in subschemas(schema):
                unknown = inner.keys() - schema_features.ANNOTATIONS - set(LEVELS)
                assert not unknown, (entry.name, unknown)


def test_most_objects_are_closed_and_some_are_not_on_purpose() -> None:
    entries = [e for e in ENTRIES.values() if e.constraint.kind == "json_schema"]
    opened = {e.name for e in entries if "open_object" in e.features}
    assert opened == {"flat/open_profile", "arrays/records"}


def test_the_serving_benchmarks_shape_is_there_with_long_documents() -> None:
    entry = ENTRIES["arrays/records"]
    schema = entry.constraint.json()
    item = schema["items"]
    types = sorted(p["type"] for p in item["properties"].values())
    assert schema.keys() == {"type", "items"}
    assert types == ["integer"] + ["string"] * 6
    assert set(item["required"]) == set(item["properties"])
    # A token of English prose is about four bytes: about 500 and about 2,000 tokens.
    sizes = sorted(len(spell(entry, i, COMPACT).encode()) for i in entry.valid)
    assert 1_600 < sizes[-2] < 2_400
    assert 7_000 < sizes[-1] < 9_000


def test_every_regex_means_the_same_to_all_dialects() -> None:
    for entry in ENTRIES.values():
        if entry.constraint.kind == "regex":
            bare = re.sub(r"\\[\\.+*?()\[\]{}|/nr\"-]", "x", entry.constraint.text)  # an escaped sign is itself
            bare = re.sub(r"\[\^?[^\]]*\]", "x", bare)
            assert not re.search(r"\\|\.|\^|\$|\(\?(?!:)|[+*?}][+?]", bare), entry.name


# The manifest.

MANIFEST = tomllib.loads((paths.schemas() / catalogue.MANIFEST).read_text(encoding="utf-8"))
LEVELS: dict[str, int] = MANIFEST["levels"]


@every
def test_the_manifest_says_what_the_constraint_exercises(entry: Entry) -> None:
    found = schema_features.features(entry)
    assert sorted(entry.features) == sorted(found), f"schemas/manifest.toml: {entry.name}: features = {sorted(found)}"
    listed = MANIFEST["constraints"][entry.name]["features"]
    assert listed == sorted(set(listed))
    assert entry.complexity == max(LEVELS[f] for f in found)


def test_every_level_is_used() -> None:
    assert set(LEVELS) == set().union(*(entry.features for entry in ENTRIES.values()))
