"""An outside corpus becomes entries, or one line naming file and place; its labels are taken as far as they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import catalogue, corpora, key_order
from harness.backends import registry
from harness.constraint import Constraint
from harness.errors import MasktaxError
from harness.profile import Profile
from tests.making import write_corpus

POINT: dict[str, Any] = {
    "description": "a point\n of two numbers",
    "meta": {"full_size": 1, "features": ["properties"]},
    "schema": {"type": "object", "properties": {"y": {"type": "integer"}, "x": {"maximum": 0.5}}},
    "tests": [
        {"description": "whole", "valid": True, "data": {"x": 0, "y": 1}},
        {"description": "y is\n text", "valid": False, "data": {"y": "1"}, "rust_error": "not looked at"},
        {"valid": True, "data": {}},
    ],
}
BARE: dict[str, Any] = {"schema": True}


def read(folder: Path, **options: Any) -> dict[str, catalogue.Entry]:
    corpus = corpora.find(folder, **options)
    return dict(corpus.read(corpus.files).entries)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_file_becomes_an_entry(tmp_path: Path) -> None:
    entry = read(write_corpus(tmp_path, {"point": POINT}))["corpus/point"]
    assert (entry.name, entry.tier, entry.about) == ("corpus/point", "corpus", "a point of two numbers")
    assert entry.constraint == Constraint("json_schema", json.dumps(POINT["schema"]))
    assert entry.features == {"properties"}
    # Named by place in the file's tests, so that a document can be found again.
    assert [(i.name, i.value) for i in entry.valid] == [("valid/0", {"x": 0, "y": 1}), ("valid/2", {})]
    assert [(i.name, i.value, i.why) for i in entry.invalid] == [("invalid/1", {"y": "1"}, "y is text")]


def test_the_files_may_lie_in_a_folder_data(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"b": BARE, "a": BARE})
    (tmp_path / "README.json").write_text("not looked at")
    corpus = corpora.find(tmp_path)
    assert list(corpus.files) == ["corpus/a", "corpus/b"]
    assert corpus.path == tmp_path.resolve()


def test_an_entry_without_tests_or_without_valid_ones_can_still_be_compiled(tmp_path: Path) -> None:
    refused = {"schema": False, "tests": [{"valid": False, "data": None}]}
    entries = read(write_corpus(tmp_path, {"bare": BARE, "refused": refused}))
    assert (entries["corpus/bare"].valid, entries["corpus/bare"].invalid) == ((), ())
    assert (entries["corpus/refused"].valid, len(entries["corpus/refused"].invalid)) == ((), 1)


def test_a_schema_is_taken_exactly_as_it_is_written(tmp_path: Path) -> None:
    text = '{"minimum": 1.50,\n  "maximum" :1E400, "const": "\\ud800", "tests": [{"]}":0}]}'
    file = f'\n{{"tests" :[ ], "a":"{{\\"schema\\":1}}", "schema" : {text} , "z": [{{"schema": 2}}]}}'
    (entry,) = read(write_corpus(tmp_path, {"numbers": file})).values()
    assert entry.constraint.text == text


def test_disputed_labels_are_left_out_and_counted(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"point": POINT, "bare": BARE})
    index = {"files": [{"file": "point.json", "label_disputed": [0]}, {"file": "gone.json"}, {"file": "bare.json"}]}
    write_corpus(tmp_path, {"index": index})
    corpus = corpora.find(tmp_path)
    selection = corpus.read(corpus.files)
    assert [i.name for i in selection.entries["corpus/point"].valid] == ["valid/2"]
    assert dict(selection.left_out) == {"its label is disputed": 1}


def test_what_has_no_spelling_in_utf_8_is_left_out_and_counted(tmp_path: Path) -> None:
    data = ['"\\ud83d"', "1e999", '{"k\\udc00":0}', '"\\ud83d\\ude00"']
    tests = ",".join(f'{{"valid": true, "data": {text}}}' for text in data)
    write_corpus(tmp_path, {"odd": f'{{"schema": {{}}, "tests": [{tests}]}}'})
    corpus = corpora.find(tmp_path)
    selection = corpus.read(corpus.files)
    (entry,) = selection.entries.values()
    assert [i.name for i in entry.valid] == ["valid/3"]
    assert list(selection.left_out.values()) == [3]


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ('{"schema": {}', "bad.json#: not JSON"),
        ('{"schema": NaN}', "bad.json#: not JSON: NaN is no JSON value"),
        ("[]", "bad.json#: must be a JSON object"),
        ("{}", "bad.json#/schema: is missing"),
        ({"schema": [1]}, "bad.json#/schema: a json_schema constraint's text must be a JSON object or a boolean"),
        ({"schema": {}, "tests": {}}, "bad.json#/tests: must be a list"),
        ({"schema": {}, "tests": [{"valid": True, "data": 0}, {"data": 0}]}, "bad.json#/tests/1: must be an object"),
        ({"schema": {}, "tests": [{"valid": "yes", "data": 0}]}, "bad.json#/tests/0: must be an object with valid"),
        ({"schema": {}, "tests": [{"valid": True}]}, "bad.json#/tests/0: must be an object with valid"),
        ({"schema": {}, "meta": {"features": "all"}}, "bad.json#/meta/features: must be a list of names"),
        ({"schema": {}, "meta": 3}, "bad.json#/meta/features: must be a list of names"),
    ],
)
def test_what_is_malformed_is_named_with_file_and_place(tmp_path: Path, file: Any, complaint: str) -> None:
    write_corpus(tmp_path, {"bad": file, "good": BARE})
    with pytest.raises(MasktaxError) as error:
        read(tmp_path)
    assert complaint in str(error.value) and "\n" not in str(error.value)
    # What is not asked for is not read.
    corpus = corpora.find(tmp_path)
    assert list(corpus.read(["corpus/good"]).entries) == ["corpus/good"]


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ("{", "index.json#: not JSON"),
        ({"files": {}}, "index.json#/files: must be a list"),
        ({"files": ["a.json"]}, "index.json#/files/0: must be an object with file"),
        ({"files": [{"file": "a.json", "label_disputed": [True]}]}, "index.json#/files/0/label_disputed: must be"),
        ({"files": [{"file": "a.json", "label_disputed": [3]}]}, "a.json#/tests: index.json calls the label of test 3"),
    ],
)
def test_a_malformed_index_is_named_with_its_place(tmp_path: Path, index: Any, complaint: str) -> None:
    write_corpus(tmp_path, {"a": POINT, "index": index})
    with pytest.raises(MasktaxError) as error:
        read(tmp_path)
    assert complaint in str(error.value)


def test_a_folder_without_a_corpus_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, complaint in (("absent", "no such folder"), ("file", "not a folder"), (".", "neither data/")):
        with pytest.raises(MasktaxError, match=complaint):
            corpora.find(tmp_path / folder)


# --- choosing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sample", "expected"), [(1, "a"), (2, "ad"), (3, "ace"), (6, "abcdef"), (9, "abcdef")])
def test_a_sample_is_spread_evenly_over_the_sorted_names(tmp_path: Path, sample: int, expected: str) -> None:
    write_corpus(tmp_path, dict.fromkeys("fbdcea", BARE))
    corpus = corpora.find(tmp_path, sample)
    assert [name.removeprefix("corpus/") for name in corpus.files] == list(expected)
    assert (corpus.found, corpus.sample) == (6, sample)


def test_the_corpus_is_the_one_given_else_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (write_corpus(tmp_path / name, {name: BARE}) for name in ("one", "other"))
    monkeypatch.delenv(corpora.VARIABLE, raising=False)
    assert corpora.given(None, None) is None
    with pytest.raises(MasktaxError, match="--corpus-sample 3: there is no corpus"):
        corpora.given(None, 3)
    monkeypatch.setenv(corpora.VARIABLE, str(one))
    for folder, expected in ((None, "corpus/one"), (other, "corpus/other")):
        corpus = corpora.given(folder, None)
        assert corpus is not None and list(corpus.files) == [expected]


def test_the_hash_is_over_what_is_used_and_nothing_else(tmp_path: Path) -> None:
    def sha256(*names: str, **changes: Any) -> str:
        write_corpus(tmp_path, {"point": POINT | changes, "bare": BARE})
        return corpora.find(tmp_path).read([f"corpus/{name}" for name in names]).sha256

    same = sha256("point")
    assert sha256("point", description="another", meta={}) == same
    assert sha256("point", "bare") == sha256("bare", "point") != same
    assert sha256("point", schema={}) != same
    assert sha256("point", tests=POINT["tests"][:2]) != same
    relabelled = [POINT["tests"][0] | {"valid": False}, *POINT["tests"][1:]]
    assert sha256("point", tests=relabelled) != same


# --- spelling: documents come in any order of keys -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "arranged"),
    [
        ({"properties": {"b": {}, "a": {}}}, '{"z":0,"a":1,"y":2,"b":3}', '{"b":3,"a":1,"z":0,"y":2}'),
        (
            {"items": {"$ref": "#/$defs/p/x~1y"}, "$defs": {"p": {"x/y": {"properties": {"b": {}, "a": {}}}}}},
            '[{"a":1,"b":2},0]',
            '[{"b":2,"a":1},0]',
        ),
        (
            {"prefixItems": [{}, {"properties": {"b": {}}}], "items": {"properties": {"c": {}}}},
            '[{"a":1,"b":2},{"a":1,"b":2},{"a":1,"c":2}]',
            '[{"a":1,"b":2},{"b":2,"a":1},{"c":2,"a":1}]',
        ),
        (
            {"allOf": [{"properties": {"c": {}}}], "properties": {"b": {}}, "additionalProperties": {"$ref": "#"}},
            '{"a":{"b":1,"c":2},"b":0,"c":0}',
            '{"b":0,"c":0,"a":{"b":1,"c":2}}',
        ),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": "x"}, "a": {}, "b": {}}},
                    {"properties": {"b": {}, "kind": {"enum": ["y"]}, "a": {}}},
                ]
            },
            '{"a":0,"kind":"y","b":0}',
            '{"b":0,"kind":"y","a":0}',
        ),
        ({"$ref": "#"}, '{"b":1,"a":2}', '{"b":1,"a":2}'),
        ({"$ref": "elsewhere.json"}, '{"b":1,"a":2}', '{"b":1,"a":2}'),
        (True, '{"b":1,"a":2}', '{"b":1,"a":2}'),
        ({"properties": {"s": {}}}, '"s"', '"s"'),
    ],
)
def test_keys_are_put_into_declared_order(schema: Any, value: str, arranged: str) -> None:
    done = key_order.declared(json.loads(value), schema)
    assert json.dumps(done, separators=(",", ":")) == arranged
    assert done == json.loads(value)


def test_the_built_in_documents_are_in_declared_order_already() -> None:
    for entry in catalogue.load().values():
        if entry.constraint.kind == "json_schema":
            for instance in (*entry.valid, *entry.valid_where):
                done = key_order.declared(instance.value, entry.constraint.json())
                assert json.dumps(done) == json.dumps(instance.value), (entry.name, instance.name)


def test_a_document_is_spelled_as_its_profile_orders_keys(tmp_path: Path) -> None:
    (entry,) = read(write_corpus(tmp_path, {"point": POINT})).values()
    for order, text in (("declared", '{"y":1,"x":0}'), ("sorted", '{"x":0,"y":1}'), ("any", '{"x":0,"y":1}')):
        profile = Profile.from_json({"key_order": order})
        assert catalogue.spell(entry, entry.valid[0], profile) == text


# --- the sample beside the checkout ----------------------------------------------------------------------------------


@pytest.mark.shared
def test_every_file_of_the_shared_sample_is_an_entry(shared: Path) -> None:
    corpus = corpora.find(shared / "corpus/maskbench-sample")
    selection = corpus.read(corpus.files)
    assert len(selection.entries) == corpus.found == 300
    assert dict(selection.left_out) == {"its label is disputed": 2}
    assert sum(len(e.valid) + len(e.invalid) for e in selection.entries.values()) == 1226
    assert all(e.valid and e.constraint.json() is not None for e in selection.entries.values())


@pytest.mark.shared
def test_most_documents_of_the_shared_sample_can_be_put_into_declared_order(shared: Path) -> None:
    from harness.errors import UnsupportedError
    from harness.reference import automaton as automata
    from harness.reference import compile as compiler

    corpus = corpora.find(shared / "corpus/maskbench-sample", sample=60)
    declared = Profile(duplicate_keys="forbidden", key_order="declared")
    decided = 0
    out_of_order = []
    for entry in corpus.read(corpus.files).entries.values():
        if len(entry.constraint.text) > 4_000:
            continue
        try:
            automaton = compiler.compile(entry.constraint, declared)
        except UnsupportedError:
            continue
        for instance in entry.valid:
            decided += 1
            if not automata.accepts(automaton, catalogue.spell(entry, instance, declared).encode()):
                out_of_order.append((entry.name, instance.name))
    assert decided > 40
    assert len(out_of_order) <= 0.03 * decided, out_of_order


def test_every_backend_profile_can_spell_an_outside_document(tmp_path: Path) -> None:
    (entry,) = read(write_corpus(tmp_path, {"point": POINT})).values()
    for name in registry.BUILT_IN:
        for profile in registry.create(name).profiles.values():
            for instance in (*entry.valid, *entry.invalid):
                assert json.loads(catalogue.spell(entry, instance, profile)) == instance.value
