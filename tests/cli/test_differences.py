"""``masktax differences``: every row of both is compared, a fault is one line, and nothing is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import corpora
from harness.results import RunStore
from harness.runner import manager
from tests.cli.conftest import World
from tests.making import write_corpus

GOOD, FLIPS, RAISES = (f"tests.fake_backends:{name}" for name in ("Good", "FlipsZ", "Raises"))


@pytest.fixture(autouse=True)
def no_corpus_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(corpora.VARIABLE, raising=False)


def ask(world: World, *arguments: str) -> Any:
    said = world.call("differences", *arguments, "--vocabulary", "synthetic", "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)


def test_equal_masks_have_no_line_and_every_row_is_counted(world: World) -> None:
    found = ask(world, GOOD)
    assert (found["constraints"], found["documents"]) == (1, 6)  # three valid, three invalid ones
    assert found["rows"] > 6 and found["rows_differing"] == 0
    assert found["faults"] == found["not_compared"] == []
    assert set(found["versions"]) == {"fake", "reference"}


def test_one_fault_is_one_line_with_its_first_example(world: World) -> None:
    found = ask(world, FLIPS, "naive")
    (fault,) = found["faults"]
    assert (fault["direction"], fault["character"], fault["constraints"]) == ("too loose", "letter", 1)
    assert fault["rows"] == fault["tokens"] == found["rows"] == found["rows_differing"]
    assert fault["documents"] == 6
    assert (fault["example"]["step"], fault["example"]["token_bytes"]) == (0, "z")
    said = world.call("differences", FLIPS, "--vocabulary", "synthetic")
    assert said.status == 0
    head, line = said.out.splitlines()
    assert head.startswith(f"{FLIPS} beside reference") and f"{found['rows']} rows compared" in head
    assert line.startswith(f"{FLIPS}: too loose: letter") and "first at step 0 of choice/answer valid/0: token" in line


def test_what_crashes_is_told_and_takes_nothing_along(world: World) -> None:
    found = ask(world, RAISES)
    assert found["documents"] == 0
    assert {n["outcome"] for n in found["not_compared"]} == {"crash"}
    assert sorted(d for n in found["not_compared"] for d in n["documents"]) == [
        "invalid/0", "invalid/1", "invalid/2", "valid/0", "valid/1", "valid/2",
    ]  # fmt: skip
    said = world.call("differences", RAISES, "--vocabulary", "synthetic")
    assert said.status == 0 and "not compared: 1 documents of choice/answer: crash: " in said.out


def test_a_corpus_is_walked_and_what_a_backend_refuses_is_told_by_name(world: World) -> None:
    files = {"count": {"schema": {"type": "integer"}, "tests": [{"valid": True, "data": 12}]}, "bare": {"schema": {}}}
    folder = write_corpus(world.root / "outside", files)
    found = ask(world, "naive", "--corpus", str(folder))
    assert (found["constraints"], found["documents"], found["rows_differing"]) == (2, 2, 0)
    assert found["rows"] > 2  # of the constraint without documents the first row alone
    found = ask(world, "naive", "--corpus", str(folder), "--constraint", "choice/*", "--corpus-sample", "1")
    assert (found["constraints"], found["not_compared"]) == (1, [])
    (refused, _) = ask(world, GOOD, "--corpus", str(folder))["not_compared"]
    assert (refused["constraint"], refused["outcome"]) == ("corpus/bare", "unsupported")
    assert refused["reason"] == "fake: the fake compiles choices only, not json_schema"
    (refused,) = ask(world, "naive", GOOD, "--corpus", str(folder), "--constraint", "corpus/c*")["not_compared"]
    assert refused["reason"].startswith("fake: ")


def test_after_an_interruption_what_was_found_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(world.root / "schemas" / "choice", {"b": json.loads(
        (world.root / "schemas" / "choice" / "answer.json").read_text()
    )})  # fmt: skip
    real = manager.run

    def run(cells: Any, store: RunStore, environments: Any, **options: Any) -> manager.Summary:
        real(cells[:1], store, environments, **options)
        raise manager.Interrupted(1, len(cells))

    monkeypatch.setattr(manager, "run", run)
    said = world.call("differences", FLIPS, "--vocabulary", "synthetic")
    assert said.status == 130
    assert "1 of 2 cells are done" in said.err
    assert "1 constraints, 6 documents" in said.out and "too loose: letter" in said.out


def test_mistakes_are_one_line_and_status_2(world: World) -> None:
    for arguments, message in (
        ([], "Missing argument"),
        (["xgramar"], "unknown backend 'xgramar'"),
        ([GOOD, "refrence"], "unknown backend 'refrence'"),
        ([GOOD, "--constraint", "choice/anwser"], "did you mean 'choice/answer'?"),
        ([GOOD, "--constraint", "corpus/x"], "no outside corpus is given"),
        ([GOOD, "--vocabulary", "sinthetic"], "did you mean 'synthetic'?"),
        ([GOOD, "--profile", "compact"], "declares no profile 'compact'"),
        ([GOOD, "--corpus", "absent"], "there is no corpus"),
    ):
        said = world.call("differences", *arguments)
        assert (said.status, said.out) == (2, ""), arguments
        assert message in said.err and said.err.count("\n") == 1, said.err
