"""The catalogue reads constraint files or says what is wrong with them, chooses by name, and spells documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.catalogue import Entry, Instance, load, read_entry, select, spell, valid_under
from harness.constraint import Constraint
from harness.errors import MasktaxError
from harness.profile import Profile

GOOD: dict[str, Any] = {
    "about": "A point.",
    "kind": "json_schema",
    "constraint": {"type": "object", "properties": {"y": {"type": "integer"}, "x": {"maximum": 0.5}}},
    "valid": [{"y": 1}, {"y": 2, "x": 0}, {}],
    "valid_where": [{"instance": {"z": 1}, "profile": {"additional_properties": True}}],
    "invalid": [
        {"instance": {"y": "1"}, "at": "/properties/y/type", "why": "y is a string"},
        {"instance": {"x": 1}, "at": "/properties/x/maximum", "why": "x is too large"},
        {"instance": [], "at": "/type", "why": "a list"},
    ],
}
CHOICE: dict[str, Any] = {
    "about": "Yes or no.",
    "kind": "choice",
    "constraint": ["yes", "no", "größer"],
    "valid": ["yes", "no", "größer"],
    "invalid": [{"instance": t, "why": "not offered"} for t in ("maybe", "y", "")],
}


def put(root: Path, name: str, data: Any) -> Path:
    path = root / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def entry_of(data: dict[str, Any], tmp_path: Path) -> Entry:
    return read_entry(put(tmp_path, "tier/name", data))


# Reading.


def test_a_file_becomes_an_entry(tmp_path: Path) -> None:
    put(tmp_path, "flat/point", GOOD)
    entry = load(tmp_path)["flat/point"]
    assert (entry.name, entry.tier, entry.about) == ("flat/point", "flat", "A point.")
    text = '{"type":"object","properties":{"y":{"type":"integer"},"x":{"maximum":0.5}}}'
    assert entry.constraint == Constraint("json_schema", text)
    assert [i.name for i in entry.valid] == ["valid/0", "valid/1", "valid/2"]
    assert entry.valid[1].value == {"y": 2, "x": 0}
    assert entry.invalid[1] == Instance({"x": 1}, "x is too large", "/properties/x/maximum", name="invalid/1")
    assert entry.invalid[1].keyword == "maximum"
    assert (entry.features, entry.complexity) == (frozenset(), 0)


def test_the_built_in_folder_is_the_default() -> None:
    entries = load()
    assert "arrays/records" in entries
    assert list(entries) == sorted(entries)
    assert all(entry.features and entry.complexity for entry in entries.values())


def test_constraint_text_keeps_characters_as_they_are(tmp_path: Path) -> None:
    assert entry_of(CHOICE, tmp_path).constraint.text == '["yes","no","größer"]'


def test_a_grammar_may_be_a_file_beside_it(tmp_path: Path) -> None:
    data = {k: v for k, v in CHOICE.items() if k != "constraint"}
    path = put(tmp_path, "grammar/a", {**data, "kind": "grammar", "syntax": "ebnf", "constraint_file": "a.ebnf"})
    (tmp_path / "grammar/a.ebnf").write_text('root ::= "größer" | "yes" | "no"\n', encoding="utf-8")
    assert read_entry(path).constraint == Constraint("grammar", 'root ::= "größer" | "yes" | "no"\n', "ebnf")


def test_features_and_complexity_come_from_the_manifest(tmp_path: Path) -> None:
    put(tmp_path, "flat/point", GOOD)
    manifest = tmp_path / "manifest.toml"
    manifest.write_text('[constraints."flat/point"]\nfeatures = ["type", "maximum"]\ncomplexity = 2\n')
    entry = load(tmp_path)["flat/point"]
    assert (entry.features, entry.complexity) == (frozenset({"type", "maximum"}), 2)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("[constraints]\n", "flat/point is missing"),
        (
            "".join(f'[constraints."flat/{n}"]\nfeatures = []\ncomplexity = 1\n' for n in ("point", "gone")),
            "flat/gone has no file",
        ),
        ('[constraints."flat/point"]\nfeatures = []\n', "need .* features and complexity"),
        ("[constraints\n", "need .* features and complexity"),
    ],
)
def test_a_manifest_that_does_not_fit_the_files_is_refused(tmp_path: Path, manifest: str, said: str) -> None:
    put(tmp_path, "flat/point", GOOD)
    (tmp_path / "manifest.toml").write_text(manifest)
    with pytest.raises(MasktaxError, match=said):
        load(tmp_path)


def test_a_folder_without_constraints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MasktaxError, match="no constraints there"):
        load(tmp_path)


def without(field: str, data: dict[str, Any] = GOOD) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != field}


def bad_invalid(**item: Any) -> dict[str, Any]:
    return {**GOOD, "invalid": [*GOOD["invalid"][:2], {k: v for k, v in item.items() if v is not None}]}


def bad_where(item: Any) -> dict[str, Any]:
    return {**GOOD, "valid_where": [item]}


BAD: list[tuple[Any, str, str]] = [
    ("{", "#:", "not JSON"),
    ('{"about": "a", "about": "b"}', "#:", "'about' is there twice"),
    ([GOOD], "#:", "must be a JSON object"),
    ({**GOOD, "vaild": []}, "#/vaild:", "nearest is 'valid'"),
    (without("about"), "#/about:", "is missing"),
    ({**GOOD, "about": "two\nlines"}, "#/about:", "one line"),
    ({**GOOD, "about": 3}, "#/about:", "must be a string"),
    (without("kind"), "#/kind:", "is missing"),
    ({**GOOD, "kind": "jsonschema"}, "#/kind:", "none of json_schema"),
    ({**GOOD, "syntax": "ebnf"}, "#/syntax:", "a grammar must name its syntax"),
    ({**CHOICE, "kind": "grammar", "constraint": "x"}, "#/syntax:", "a grammar must name its syntax"),
    ({**CHOICE, "kind": "grammar", "constraint": "x", "syntax": "bnf"}, "#/syntax:", "none of ebnf"),
    (without("constraint"), "#:", "exactly one of constraint"),
    ({**GOOD, "constraint_file": "x"}, "#:", "exactly one of constraint"),
    ({**GOOD, "kind": "json_object"}, "#:", "neither of constraint"),
    ({**without("constraint"), "constraint_file": "gone.json"}, "#/constraint_file:", "no file 'gone.json'"),
    ({**without("constraint"), "constraint_file": "../x"}, "#/constraint_file:", "no file '../x'"),
    ({**GOOD, "constraint": 3}, "#/constraint:", "JSON object or a boolean"),
    ({**CHOICE, "kind": "regex"}, "#/constraint:", "must be a string"),
    ({**CHOICE, "constraint": []}, "#/constraint:", "non-empty"),
    (without("valid"), "#/valid:", "is missing"),
    ({**GOOD, "valid": {}}, "#/valid:", "must be a list"),
    ({**GOOD, "valid": [{}, {"y": 1}]}, "#/valid:", "has 2 instances; at least 3"),
    ({**GOOD, "invalid": GOOD["invalid"][:2]}, "#/invalid:", "has 2 instances; at least 3"),
    ({**CHOICE, "valid": ["yes", 3, "no"]}, "#/valid/1:", "is a string"),
    ({**GOOD, "invalid": [*GOOD["invalid"][:2], []]}, "#/invalid/2:", "an object with instance and why"),
    (bad_invalid(instance=1, at="/type"), "#/invalid/2/why:", "is missing"),
    (bad_invalid(instance=1, at="/type", why=""), "#/invalid/2/why:", "must say"),
    (bad_invalid(at="/type", why="w"), "#/invalid/2:", "exactly one of instance and text"),
    (bad_invalid(instance=1, why="w"), "#/invalid/2/at:", "is missing"),
    (bad_invalid(instance=1, at="type", why="w"), "#/invalid/2/at:", "no JSON pointer"),
    (bad_invalid(instance=1, at="/properties/q/type", why="w"), "#/invalid/2/at:", "leads nowhere"),
    (bad_invalid(text="{", at="/type", why="w"), "#/invalid/2/text:", "only a json_object"),
    (bad_invalid(instance=1, at="/type", why="w", when="x"), "#/invalid/2/when:", "unknown field"),
    (bad_where({"instance": 1}), "#/valid_where/0:", "instance and profile"),
    (bad_where({"instance": 1, "profile": {}}), "#/valid_where/0/profile:", "at least one"),
    (bad_where({"instance": 1, "profile": {"number": "plain"}}), "#/valid_where/0/profile/number:", "'numbers'"),
    (bad_where({"instance": 1, "profile": {"numbers": "all"}}), "#/valid_where/0/profile/numbers:", "no value"),
    (bad_where({"instance": 1, "profile": {"lone_surrogates": 1}}), "#/valid_where/0/profile/lone_surr", "no value"),
]


@pytest.mark.parametrize(("data", "where", "said"), BAD, ids=[f"{w} {s}" for _, w, s in BAD])
def test_a_malformed_file_is_refused_with_its_place(tmp_path: Path, data: Any, where: str, said: str) -> None:
    path = put(tmp_path, "flat/point", data)
    with pytest.raises(MasktaxError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}{where}")
    assert said in message
    assert "\n" not in message


def test_a_part_of_a_tagged_text_that_is_neither_text_nor_structure_is_refused(tmp_path: Path) -> None:
    tag = {"triggers": ["<f>"], "structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}]}
    data = {**CHOICE, "kind": "structural_tag", "constraint": tag, "valid": ["a", "b", ["c", {"begin": "<f>"}]]}
    with pytest.raises(MasktaxError, match="#/valid/2/1: a part is a string, or"):
        entry_of(data, tmp_path)


# Choosing.


@pytest.fixture
def several(tmp_path: Path) -> Path:
    for name in ("flat/order", "flat/point", "nested/order", "choice/yes_no"):
        put(tmp_path, name, GOOD)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["*"], ["choice/yes_no", "flat/order", "flat/point", "nested/order"]),
        (["flat/*"], ["flat/order", "flat/point"]),
        (["*/order", "flat/*"], ["flat/order", "flat/point", "nested/order"]),
        (["nested/order"], ["nested/order"]),
        (["flat/[!o]*"], ["flat/point"]),
    ],
)
def test_select_takes_names_and_globs(several: Path, patterns: list[str], names: list[str]) -> None:
    assert [entry.name for entry in select(patterns, several)] == names


@pytest.mark.parametrize(
    ("pattern", "near"), [("flat/ordre", "flat/order"), ("nestd/order", "nested/order"), ("falt/*", "flat/*")]
)
def test_an_unknown_name_is_answered_with_the_nearest(several: Path, pattern: str, near: str) -> None:
    with pytest.raises(MasktaxError, match=r"nearest is '(.*?)'") as caught:
        select(["flat/*", pattern], several)
    assert f"{pattern!r}" in str(caught.value)
    assert f"{near!r}" in str(caught.value)


# Documents that need a profile.


def test_valid_where_counts_only_under_a_profile_that_has_it(tmp_path: Path) -> None:
    entry = entry_of(GOOD, tmp_path)
    assert valid_under(entry, Profile(additional_properties=False)) == entry.valid
    wide = valid_under(entry, Profile())
    assert wide == (*entry.valid, *entry.valid_where)
    assert wide[-1].name == "valid/3"
    assert wide[-1].where == {"additional_properties": True}


# Spelling.

VALUE = {"b": [1, 2.5, {}], "a": {"é\u007f": 'q"\\/\n\u0001\u2028'}, "c": []}


def spelled(profile: Profile, value: Any = VALUE) -> str:
    entry = Entry("t/n", "t", "a", Constraint("json_object", ""), (), (), frozenset(), 0)
    return spell(entry, Instance(value), profile)


@pytest.mark.parametrize(
    "profile",
    [
        Profile(whitespace="compact"),
        Profile(whitespace="any"),
        Profile(whitespace="one_space"),
        Profile(whitespace="bounded", whitespace_limit=2),
    ],
)
def test_free_white_space_is_spelled_compact_with_the_shortest_escapes(profile: Profile) -> None:
    assert spelled(profile) == '{"b":[1,2.5,{}],"a":{"é\u007f":"q\\"\\\\/\\n\\u0001\u2028"},"c":[]}'


def test_spaced_has_one_space_after_commas_and_colons() -> None:
    assert spelled(Profile(whitespace="spaced"), {"b": [1, 2], "a": {}}) == '{"b": [1, 2], "a": {}}'


def test_indented_has_a_line_for_each_element() -> None:
    text = spelled(Profile(whitespace="indented", indent=3), {"b": [1, {"c": None}], "a": {}, "d": []})
    assert text == '{\n   "b": [\n      1,\n      {\n         "c": null\n      }\n   ],\n   "a": {},\n   "d": []\n}'


def test_sorted_keys_go_by_code_point_at_every_depth() -> None:
    value = {"b": [{"z": 1, "A": 2}], "é": 1, "\U00010000": 1, "\uffff": 1, "B": 1}
    text = spelled(Profile(whitespace="compact", key_order="sorted"), value)
    assert text == '{"B":1,"b":[{"A":2,"z":1}],"é":1,"\uffff":1,"\U00010000":1}'


def test_declared_and_free_key_order_leave_keys_as_written() -> None:
    assert spelled(Profile(whitespace="compact", key_order="declared"), {"b": 1, "a": 2}) == '{"b":1,"a":2}'


def test_text_that_is_no_json_stays_as_it_is(tmp_path: Path) -> None:
    entry = entry_of(CHOICE, tmp_path)
    assert spell(entry, entry.valid[2], Profile(whitespace="spaced", key_order="sorted")) == "größer"


def test_a_documents_text_stays_as_it_is_where_it_is_no_json_object_at_all(tmp_path: Path) -> None:
    data = without("constraint") | {"kind": "json_object"}
    data["invalid"] = [{"text": '{"a": 1,}', "why": "comma"}, {"instance": [1, 2], "why": "list"}, *[
        {"text": "{", "why": "cut"}]]  # fmt: skip
    entry = entry_of(data, tmp_path)
    spaced = Profile(whitespace="spaced")
    assert [spell(entry, i, spaced) for i in entry.invalid] == ['{"a": 1,}', "[1, 2]", "{"]


def test_tagged_text_is_spelled_in_parts(tmp_path: Path) -> None:
    tag = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}]}
    part = {"begin": "<f>", "value": {"b": 1, "a": [2, 3]}, "end": "</f>"}
    bad = {**part, "value": [1]}
    data = {
        **CHOICE,
        "kind": "structural_tag",
        "constraint": tag,
        "valid": ["plain, text", [part], ["a, b: ", part, "!"]],
        "invalid": [{"instance": ["x", bad], "at": "/structures/0/schema/type", "why": "list"}] * 3,
    }
    entry = entry_of(data, tmp_path)
    assert spell(entry, entry.valid[0], Profile()) == "plain, text"
    assert spell(entry, entry.valid[2], Profile()) == 'a, b: <f>{"b":1,"a":[2,3]}</f>!'
    sorted_spaced = Profile(whitespace="spaced", key_order="sorted")
    assert spell(entry, entry.valid[1], sorted_spaced) == '<f>{"a": [2, 3], "b": 1}</f>'
    assert entry.invalid[0].keyword == "type"
