"""The shared corpus of real schemas and the shared cases, judged by jsonschema-rs and by their own labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference import compile as compile_
from harness.reference.documents import parse

from .schema_cases import read

pytestmark = pytest.mark.shared

SERIALISED: dict[str, tuple[Profile, dict[str, Any]]] = {
    "compact": (Profile(duplicate_keys="forbidden", whitespace="compact"), {"separators": (",", ":")}),
    "spaced": (Profile(duplicate_keys="forbidden", whitespace="spaced"), {}),
    "indented": (Profile(duplicate_keys="forbidden", whitespace="indented", indent=2), {"indent": 2}),
}


def files(shared: Path) -> list[dict[str, Any]]:
    index = json.loads((shared / "corpus/maskbench-sample/index.json").read_text())
    found: list[dict[str, Any]] = index["files"]
    return found


def check(shared: Path, entry: dict[str, Any], spelled: str) -> str | None:
    """Every instance of a corpus file against the judge; the reason where the schema is refused."""
    profile, options = SERIALISED[spelled]
    data = json.loads((shared / "corpus/maskbench-sample/data" / entry["file"]).read_text())
    validator = jsonschema_rs.validator_for(data["schema"], validate_formats=False)
    try:
        tree = compile_.schema(parse(json.dumps(data["schema"])), profile)
    except (UnsupportedError, CompileError) as refused:
        return str(refused)
    for test in data["tests"]:
        text = json.dumps(test["data"], **options)
        assert automata.accepts(tree, text.encode()) == validator.is_valid(read(text)), (entry["file"], text[:200])
    return None


def test_a_sample_of_the_corpus_agrees_with_the_judge(shared: Path) -> None:
    small = [e for e in files(shared) if e["schema_bytes"] < 4_000][::6]
    assert len(small) > 20
    assert [r for e in small if (r := check(shared, e, "compact"))] == []


@pytest.mark.heavy
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("spelled", SERIALISED)
def test_the_whole_corpus_agrees_with_the_judge(shared: Path, spelled: str) -> None:
    entries = files(shared)
    refused = {e["file"]: r for e in entries if (r := check(shared, e, spelled))}
    assert len(refused) <= 0.03 * len(entries), refused


def test_every_schema_case_is_decided_right(shared: Path) -> None:
    lines = (shared / "cases/cases.jsonl").read_text().splitlines()
    cases = [c for c in map(json.loads, lines) if c["constraint_type"] == "json_schema"]
    assert len(cases) > 30
    wrong: list[tuple[str, str]] = []
    for case in cases:
        if not case["accept"] and not case["reject"]:
            with pytest.raises(CompileError):
                compile_.schema(parse(json.dumps(case["constraint"])), Profile(duplicate_keys="forbidden"))
            continue
        tree = compile_.schema(parse(json.dumps(case["constraint"])), Profile(duplicate_keys="forbidden"))
        texts = (*case["accept"], *case["reject"])
        wrong += [(case["id"], t) for t in texts if automata.accepts(tree, t.encode()) != (t in case["accept"])]
    assert wrong == []
