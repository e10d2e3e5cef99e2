"""``masktax conformance``: what counts as decided, unsupported and wrong; and the official suite itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import conformance, paths
from harness.cli import main
from harness.conformance import DEFAULT_DRAFTS, Verdict, counts, get_suite, run, spellings, to_json
from harness.errors import MasktaxError
from harness.reference import compile as compile_

# By file, below the suite: schemas, each with instances (JSON text) and labels; or a remote document.
Files = dict[str, Any]
MakeSuite = Callable[[Files], Path]

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
SMALL: Files = {
    "tests/draft2020-12/type": [
        (PERSON, [('{"age": 1, "n": "\\u00e9"}', True), ('{"age": 1.5}', False), ("[]", False)]),
    ],
    "tests/draft2020-12/pattern": [({"pattern": "(a)\\1"}, [('"aa"', True), ("1", True)])],
    "tests/draft2020-12/optional/bignum": [({"maximum": 1e3}, [("12345678910111213141516171819202122", False)])],
    "tests/draft2020-12/optional/format/date": [({"format": "date"}, [('"2024-02-30"', False), ("7", True)])],
}


@pytest.fixture
def make_suite(tmp_path: Path) -> MakeSuite:
    def make(files: Files) -> Path:
        folder = tmp_path / "suite"
        (folder / "remotes").mkdir(parents=True)
        for name, content in files.items():
            file = folder / f"{name}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content) if name.startswith("remotes/") else _cases(content))
        return folder

    return make


def _cases(cases: list[tuple[Any, list[tuple[str, bool]]]]) -> str:
    written = []
    for i, (schema, tests) in enumerate(cases):
        inner = (
            f'{{"description": "test {j}", "data": {text}, "valid": {json.dumps(valid)}}}'
            for j, (text, valid) in enumerate(tests)
        )
        written.append(f'{{"description": "case {i}", "schema": {json.dumps(schema)}, "tests": [{",".join(inner)}]}}')
    return "[" + ",".join(written) + "]"


def _outcomes(verdicts: Any) -> list[str]:
    return [v.outcome for v in verdicts]


def test_a_test_is_decided_exactly_where_the_engine_says_what_the_label_says(make_suite: MakeSuite) -> None:
    tests = [('{"age": 1}', True), ('{"age": 1.5}', False), ('{"age": 1.5}', True), ("[]", True), ("{}", False)]
    verdicts = list(run(make_suite({"tests/draft7/type": [(PERSON, tests)]}), ["draft7"]))
    assert _outcomes(verdicts) == ["decided", "decided", "wrong", "wrong", "decided"]
    assert verdicts[2].reason == 'refuses what is valid, as written: {"age": 1.5}'


def test_a_refusal_is_unsupported_and_says_where_and_why(make_suite: MakeSuite) -> None:
    schema = {"properties": {"a": {"pattern": "(a)\\1"}}}
    folder = make_suite({"tests/draft7/pattern": [(schema, [("1", True), ('{"a": "b"}', False)])]})
    for verdict in run(folder, ["draft7"]):
        assert (verdict.outcome, verdict.keyword, verdict.pointer) == (
            "unsupported",
            "pattern",
            "/properties/a/pattern",
        )
        assert verdict.reason


def test_a_failure_of_the_engine_is_wrong_and_ends_nothing(
    make_suite: MakeSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_suite({"tests/draft7/type": [({"minLength": "x"}, [("1", True)]), (PERSON, [("1", False)])]})
    malformed, fine = run(folder, ["draft7"])
    assert malformed.outcome == "wrong" and "malformed" in malformed.reason and "minLength" in malformed.reason
    assert fine.outcome == "decided"

    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(compile_, "schema", fail)
    assert [(v.outcome, v.reason) for v in run(folder, ["draft7"])] == [("wrong", "fails with KeyError: 'x'")] * 2


def test_an_engine_that_does_not_answer_is_stopped_and_named(
    make_suite: MakeSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*arguments: Any, **options: Any) -> None:
        while True:
            time.sleep(0.001)

    monkeypatch.setattr(compile_, "schema", hang)
    (verdict,) = run(make_suite({"tests/draft7/type": [(True, [("1", True)])]}), ["draft7"], limit_s=0.05)
    assert (verdict.outcome, verdict.reason) == ("unsupported", "no answer within 0.05 s")


def test_numbers_are_tried_as_the_suite_writes_them(make_suite: MakeSuite) -> None:
    digits = [("1", True), ("1.0", False), ("1e400", False)]
    decimals = [("0.1", True), ("0.10000000000000000001", False)]
    folder = make_suite({"tests/draft4/type": [({"type": "integer", "maximum": 5}, digits)],
                         "tests/draft6/const": [({"const": 0.1}, decimals)]})  # fmt: skip
    assert _outcomes(run(folder, ["draft4", "draft6"])) == ["decided"] * 5


def test_each_instance_is_tried_in_two_spellings_of_one_value() -> None:
    value = {"é\U0001f600": [1, "a", None, True], "b": {}}
    one, other = spellings(value).values()
    assert json.loads(one) == json.loads(other) == value
    assert list(json.loads(other)) == list(value)[::-1]
    assert b"a" not in other.replace(b"true", b"") and b"\\ud83d\\ude00".lower() in other.lower()


def test_references_reach_the_remote_documents_and_the_meta_schemas(make_suite: MakeSuite) -> None:
    remote = {"$ref": "http://localhost:1234/draft7/small/integer.json"}
    meta = {"$ref": "http://json-schema.org/draft-07/schema#"}
    folder = make_suite({
        "tests/draft7/ref": [
            (remote, [("1", True), ('"a"', False)]),
            (meta, [("{}", True), ('{"minLength": -1}', False)]),
        ],
        "remotes/draft7/small/integer": {"type": "integer"},
    })  # fmt: skip
    assert _outcomes(run(folder, ["draft7"])) == ["decided"] * 4


def test_a_format_binds_in_its_own_folder_alone(make_suite: MakeSuite) -> None:
    schema = {"format": "date"}
    folder = make_suite({"tests/draft7/format": [(schema, [('"x"', True)])],
                         "tests/draft7/optional/format/date": [(schema, [('"x"', False)])]})  # fmt: skip
    assert _outcomes(run(folder, ["draft7"], ["required", "format"])) == ["decided"] * 2


def test_the_command_prints_a_row_for_each_keyword_and_names_what_is_refused_and_wrong(
    make_suite: MakeSuite, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_suite(SMALL)
    arguments = ["conformance", "--suite", str(folder), "--draft", "draft2020-12"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert re.search(r"^type +3 +0 +0 +3 +100\.0 *$", out, re.M) and re.search(
        r"^pattern +0 +2 +0 +2 +0\.0 *$", out, re.M
    )
    assert "bignum" not in out and "draft2020-12/pattern: case 0 (2)" in out
    assert main([*arguments, "--optional", "--format"]) == 0
    assert re.search(r"^total +6 +2 +0 +8 +75\.0 *$", capsys.readouterr().out, re.M)

    file = folder / "tests/draft2020-12/type.json"
    file.write_text(file.read_text().replace('"data": [], "valid": false', '"data": [], "valid": true'))
    assert main(arguments) == 1
    assert "draft2020-12/type: case 0: test 2\n      refuses what is valid, as written: []" in capsys.readouterr().out


def test_json_holds_the_counts_in_total_and_by_keyword(
    make_suite: MakeSuite, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_suite(SMALL)
    status = main(
        ["conformance", "--suite", str(folder), "--draft", "draft2020-12", "--optional", "--format", "--json"]
    )
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert found["total"] == {"decided": 6, "unsupported": 2, "wrong": 0}
    assert found["by_keyword"]["pattern"] == {"decided": 0, "unsupported": 2, "wrong": 0}
    assert list(found["by_keyword"]) == ["pattern", "type", "optional/bignum", "optional/format/date"]
    assert found["by_draft"]["draft2020-12"]["optional"]["decided"] == 1
    assert [u["tests"] for u in found["unsupported"]] == [2] and found["wrong"] == []


def test_what_is_no_suite_is_a_mistake(make_suite: MakeSuite, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_suite(SMALL)
    for arguments, said in (
        (["--suite", str(folder / "tests")], "is no JSON Schema test suite"),
        (["--suite", str(folder), "--draft", "draft7"], "has no folder draft7; it has draft2020-12"),
        (["--suite", str(folder), "--draft", "draft5"], "'draft5' is none of the drafts draft2020-12,"),
    ):
        assert main(["conformance", *arguments]) == 2
        assert said in capsys.readouterr().err
    (folder / "tests/draft2020-12/type.json").write_text('[{"schema": true}]')
    assert main(["conformance", "--suite", str(folder), "--draft", "draft2020-12"]) == 2
    assert "type.json is no file of a JSON Schema test suite" in capsys.readouterr().err


@pytest.mark.parametrize("failure", ["refused", "another archive"])
def test_where_the_suite_cannot_be_had_the_remedy_is_said(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if failure == "refused":
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")
        archive = Path(command[command.index("--dest") + 1]) / "jsonschema-4.26.0.tar.gz"
        archive.write_bytes(b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(paths, "cache", lambda: tmp_path / "cache")
    with pytest.raises(MasktaxError, match="--suite DIR") as caught:
        get_suite()
    assert ("No matching distribution" if failure == "refused" else "sha256") in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []  # nothing half fetched is left


@pytest.fixture(scope="session")
def official() -> Path:
    try:
        return get_suite()
    except MasktaxError as error:
        pytest.skip(str(error))


def _share(verdicts: list[Verdict]) -> float:
    found = counts(verdicts)
    return found["decided"] / sum(found.values())


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_engine_is_wrong_in_no_official_test_and_decides_nearly_all_required_ones(official: Path) -> None:
    verdicts = list(run(official, parts=("required", "optional", "format")))
    found = to_json(verdicts)
    assert found["wrong"] == []
    assert all(refusal["reason"] for refusal in found["unsupported"])
    for draft in DEFAULT_DRAFTS:
        of_draft = [v for v in verdicts if v.test.draft == draft and v.test.part == "required"]
        assert len(of_draft) > 500 and _share(of_draft) >= 0.95

    page = Path(__file__).resolve().parents[1] / "docs" / "REFERENCE.md"
    rows = re.findall(r"^\| (2020-12|\d) ((?:\| [\d,]+ of [\d,]+ \w* ?){3})", page.read_text(encoding="utf-8"), re.M)
    assert len(rows) == len(DEFAULT_DRAFTS)
    for draft, said in rows:
        numbers = [int(n.replace(",", "")) for n in re.findall(r"[\d,]+", said)]
        parts = found["by_draft"][f"draft{draft}"].values()
        assert numbers == [n for part in parts for n in (part["decided"], sum(part.values()))], draft


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_with_every_label_of_the_official_suite_turned_round_nothing_is_decided(official: Path, tmp_path: Path) -> None:
    shutil.copytree(official / "remotes", tmp_path / "remotes")
    for file in (official / "tests/draft7").glob("*.json"):
        target = tmp_path / "tests/draft7" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        turned = re.sub(
            r'"valid": (true|false)', lambda m: f'"valid": {"false" if m[1] == "true" else "true"}', file.read_text()
        )
        target.write_text(turned)
    found = counts(conformance.run(tmp_path, ["draft7"]))
    assert found["decided"] == 0 and found["wrong"] > 500
