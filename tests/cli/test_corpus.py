"""An outside corpus on the command line: named, sampled, recorded, found again; its outcomes change no exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import corpora
from harness.cli import session
from harness.results import RunStore
from harness.runner import manager
from tests.cli.conftest import World
from tests.making import write_corpus

INCLUDE = """
[variants.engine]
adapter = "naive"
[[include]]
reason = "schemas from outside"
constraint = ["corpus/*"]
backend = {backends}
stages = ["compile", "accept"]
"""

COUNT = {
    "schema": {"type": "integer"},
    "tests": [{"valid": True, "data": 12}, {"valid": False, "data": "x"}, {"valid": True, "data": "mislabelled"}],
}
# An honest refusal of a schema that nobody here chose.
BEYOND = {"schema": {"$ref": "elsewhere.json"}, "tests": [{"valid": True, "data": {}}]}


@pytest.fixture(autouse=True)
def no_corpus_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(corpora.VARIABLE, raising=False)


def scenario(world: World, backends: str = '["engine"]', more: str = "") -> str:
    return world.scenario("Good", more=INCLUDE.format(backends=backends) + more)


def corpus(world: World, **files: Any) -> Path:
    return write_corpus(world.root / "schemas-from-outside" / "data", files).parent


def cells(folder: Path) -> set[str]:
    return set(harness.load(folder).cells["constraint"])


def test_without_a_corpus_its_cells_are_left_out_and_one_line_says_which_and_how_to_give_one(world: World) -> None:
    said = world.call("run", scenario(world))
    assert said.status == 0 and cells(world.run_folder()) == {"choice/answer"}
    (line,) = [line for line in said.err.splitlines() if line.startswith("masktax: ")]
    assert line.startswith("masktax: scenarios/small.toml: include[0]: ")
    assert "--corpus DIR" in line and "MASKTAX_CORPUS" in line
    assert harness.load(world.run_folder()).run["corpus"] is None
    # Who asked for other constraints misses nothing.
    said = world.call("verify", "small", "--set", "constraint=choice/answer")
    assert said.status == 0 and "include[0]" not in said.err


def test_a_corpus_is_run_recorded_and_expected_nothing_of(world: World) -> None:
    folder = corpus(world, count=COUNT, beyond=BEYOND)
    said = world.call("run", scenario(world), "--corpus", str(folder), "-o", "here")
    assert said.status == 0 and "include[0]" not in said.err
    run = harness.load("here")
    assert cells(Path("here")) == {"choice/answer", "corpus/count", "corpus/beyond"}
    outside = run.cells[run.cells["tier"] == "corpus"]
    assert outside["expected"].isna().all() and outside["as_expected"].all()
    assert run.run["corpus"] == {
        "path": str(folder.resolve()), "files": 2, "sample": None, "used": 2, "instances_left_out": {},
        "sha256": corpora.find(folder).read(["corpus/beyond", "corpus/count"]).sha256,
    }  # fmt: skip
    lines = [line for line in said.out.splitlines() if line.startswith("corpus: ")]
    assert lines[0] == "corpus: 2 cells, 4 stages carry no expectation: ok 2, unsupported 2"
    assert lines[1] == "corpus: 1 documents left out: the reference engine disputes its label"
    assert "small/engine/synthetic/corpus/beyond/default/p0" in lines[2] and "is unsupported: " in lines[2]
    assert len(lines) == 3


def test_a_wrong_mask_over_a_foreign_schema_is_told_and_changes_no_status(world: World) -> None:
    folder = corpus(world, words={"schema": {"enum": ["yes"]}, "tests": [{"valid": True, "data": "yes"}]})
    wrong = '[variants.raises]\nadapter = "tests.fake_backends:Raises"\n'
    name = scenario(world, '["raises"]', wrong)
    said = world.call("verify", name, "--corpus", str(folder), "--json")
    assert said.status == 0
    found = json.loads(said.out)
    assert found["unexpected"] == []
    (odd,) = found["without_expectation"]
    assert odd["cell"].startswith("small/raises/synthetic/corpus/words/") and odd["expected"] is None
    # Who expects something of a foreign schema is held to it.
    expect = '[[expect]]\nconstraint = "corpus/words"\noutcome = "ok"\nreason = "we know it"\n'
    said = world.call("verify", scenario(world, '["raises"]', wrong + expect), "--corpus", str(folder))
    assert said.status == 1 and "expected ok (we know it)" in said.out


def test_the_environment_may_name_it_and_a_sample_is_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpus(world, **dict.fromkeys("abcd", COUNT))
    monkeypatch.setenv(corpora.VARIABLE, str(folder))
    assert world.call("run", scenario(world), "--corpus-sample", "2", "-o", "here").status == 0
    assert cells(Path("here")) == {"choice/answer", "corpus/a", "corpus/c"}
    recorded = harness.load("here").run["corpus"]
    assert (recorded["files"], recorded["sample"], recorded["used"]) == (4, 2, 2)


def test_a_corpus_that_no_scenario_names_is_not_read(world: World) -> None:
    folder = corpus(world, broken="{")
    name = world.scenario("Good", more='[variants.other]\nadapter = "tests.fake_backends:Good"\n')
    path = world.root / "scenarios" / f"{name}.toml"
    path.write_text(path.read_text().replace('["choice/answer"]', '["*"]'))
    said = world.call("verify", name, "--corpus", str(folder))
    assert said.status == 0 and said.out == "1 cells, 2 stages: as expected (ok 2)\n"


def test_list_shows_its_schemas_and_the_cells_over_them(world: World) -> None:
    folder = corpus(world, count=COUNT, beyond=BEYOND)
    scenario(world)
    (row,) = json.loads(world.call("list", "--json").out)
    assert row["cells"] == 1
    (row,) = json.loads(world.call("list", "--corpus", str(folder), "--json").out)
    assert row["cells"] == 3
    rows = {r["name"]: r for r in json.loads(world.call("list", "schemas", "--corpus", str(folder), "--json").out)}
    assert list(rows) == ["choice/answer", "corpus/beyond", "corpus/count"]
    assert (rows["corpus/count"]["valid"], rows["corpus/count"]["invalid"]) == (2, 1)


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run over a corpus that was interrupted before anything was recorded; the corpus's folder."""
    folder = corpus(world, **dict.fromkeys("abcd", COUNT))

    def stop(cells: Any, store: RunStore, environments: Any, **options: Any) -> manager.Summary:
        store.update(finished_at=None, interrupted=True)
        raise manager.Interrupted(0, len(cells))

    with monkeypatch.context() as patch:
        patch.setattr(manager, "run", stop)
        said = world.call(
            "run", scenario(world), "--corpus", "schemas-from-outside", "--corpus-sample", "2", "-o", "here"
        )
    assert said.status == 130
    return folder


def test_a_resumed_run_finds_its_corpus_and_its_sample_again(
    world: World, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(corpora.VARIABLE, str(write_corpus(world.root / "another", {"x": COUNT})))
    assert world.call("run", "small", "--resume", "-o", "here").status == 0
    assert cells(Path("here")) == {"choice/answer", "corpus/a", "corpus/c"}


def test_a_corpus_that_moved_can_be_named_again(world: World, begun: Path) -> None:
    begun.rename(world.root / "moved")
    said = world.call("run", "small", "--resume", "-o", "here")
    assert said.status == 2 and "is not there; say where it is now by --corpus DIR" in said.err
    assert world.call("run", "small", "--resume", "-o", "here", "--corpus", "moved").status == 0


def test_a_run_whose_corpus_changed_is_not_gone_on_with(world: World, begun: Path) -> None:
    for change in (
        ["--corpus-sample", "3"],
        ["--corpus", str(write_corpus(world.root / "another", dict.fromkeys("abcd", BEYOND)))],
    ):
        said = world.call("run", "small", "--resume", "-o", "here", *change)
        assert said.status == 2 and "what it uses of the corpus is not what it was" in said.err
    write_corpus(begun / "data", {"b": BEYOND})  # not in the sample
    write_corpus(begun / "data", {"c": COUNT | {"tests": []}})
    said = world.call("run", "small", "--resume", "-o", "here")
    assert said.status == 2 and "what it uses of the corpus is not what it was" in said.err


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_line_and_status_2(world: World) -> None:
    folder = corpus(world, count=COUNT, broken="{")
    name = scenario(world)
    for arguments, message in (
        (["--corpus", "absent"], "absent: there is no corpus: no such folder"),
        (["--corpus", str(folder)], "broken.json#: not JSON"),
        (["--corpus-sample", "2"], "there is no corpus; name one by --corpus DIR"),
        (["--corpus", str(folder), "--corpus-sample", "0"], "Invalid value for '--corpus-sample'"),
        (["--set", "constraint=corpus/count"], "--set constraint=corpus/count: constraint: no outside corpus is given"),
        (["--set", "constraint=corpus/cuont", "--corpus", str(folder)], "did you mean 'corpus/count'?"),
    ):
        said = world.call("verify", name, *arguments)
        assert (said.status, said.out) == (2, ""), arguments
        assert message in said.err and said.err.count("\n") == 1, said.err


def test_a_scenario_of_which_nothing_is_left_says_why(world: World) -> None:
    path = world.root / "scenarios" / f"{world.scenario('Good')}.toml"
    path.write_text(path.read_text().replace('["choice/answer"]', '["corpus/*"]'))
    said = world.call("verify", "small")
    assert said.status == 2
    because = "no outside corpus is given; name one with --corpus DIR"
    assert said.err == f"masktax: scenarios/small.toml: no cell is left to run: {because}\n"


def test_companions_are_built_in_constraints(world: World) -> None:
    folder = corpus(world, count=COUNT)
    name = scenario(world, more='companions = ["corpus/count"]\n')
    said = world.call("verify", name, "--corpus", str(folder))
    assert said.status == 2 and "include[0].companions: 'corpus/count' is of an outside corpus" in said.err


def test_setting_outside_constraints_keeps_to_the_include_that_has_them(world: World) -> None:
    folder = corpus(world, count=COUNT, more=COUNT)
    scenario(world)
    said = world.call("verify", "small", "--corpus", str(folder), "--set", "constraint=corpus/count", "--json")
    assert (said.status, json.loads(said.out)["cells"]) == (0, 1)
    # A scenario without such an include takes them into its own axes.
    world.scenario("Good", name="plain")
    said = world.call("verify", "plain", "--corpus", str(folder), "--set", "constraint=corpus/*", "--json")
    assert (said.status, json.loads(said.out)["cells"]) == (0, 2)


def test_an_include_may_measure_for_a_shorter_time(world: World) -> None:
    folder = corpus(world, count=COUNT)
    name = scenario(world, more="time_cap_s = 0.01\n")
    assert world.call("run", name, "--corpus", str(folder), "-o", "here").status == 0
    batch = session.plan([name], {}, corpora.find(folder))
    caps = {cell.constraint_name: cell.plan["time_cap_s"] for cell in batch.cells}
    assert caps == {"choice/answer": 0.02, "corpus/count": 0.01}
