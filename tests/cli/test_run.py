"""``masktax run``: everything is kept, said and resumable; what is not as expected shows in the exit status."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.results import RunStore
from harness.runner import manager
from tests.cli.conftest import World


def test_a_run_says_where_its_results_are_what_came_of_it_and_what_comes_next(world: World) -> None:
    said = world.call("run", world.scenario("Good"))
    folder = world.run_folder()
    assert said.status == 0
    assert folder.name.startswith("small-20")
    assert f"results/{folder.name}: 1 cells, 2 stages" in said.out
    assert "ok 2" in said.out
    assert said.out.endswith(f"next: masktax report results/{folder.name}\n")
    run = harness.load(folder)
    assert list(run.cells["outcome"]) == ["ok", "ok"]
    assert list(run.cells["as_expected"]) == [True, True]
    assert run.run["scenarios"][0]["question"] == "Does the command work?"
    assert run.run["cells_planned"] == 1 and run.run["stages_planned"] == 2
    assert run.run["vocabularies"]["synthetic"]["size"] > 256


def test_an_unexpected_outcome_is_named_and_shows_in_the_status_after_everything_ran(world: World) -> None:
    said = world.call("run", world.scenario("Raises", "Good"), "-o", "here")
    assert said.status == 1
    # The stage that crashed and the one not reached are one surprise.
    assert "unexpected: small/raises/synthetic/choice/answer/default/p0 [compile, accept]" in said.out
    assert "is crash, expected ok" in said.out and "the library broke an invariant" in said.out
    assert set(harness.load("here").cells["backend"]) == {"raises", "good"}


def test_an_expected_outcome_of_any_kind_is_no_surprise(world: World) -> None:
    expect = '[[expect]]\nbackend = "refuses"\noutcome = "unsupported"\nreason = "the fake refuses"'
    said = world.call("run", world.scenario("Refuses", "Good", more=expect))
    assert said.status == 0
    cells = harness.load(world.run_folder()).cells
    refused = cells[cells["backend"] == "refuses"]
    assert set(refused["expected"]) == {"unsupported"}
    assert set(refused["expected_reason"]) == {"the fake refuses"}


def test_set_changes_what_runs_and_is_recorded(world: World) -> None:
    said = world.call("run", world.scenario("Good", "Raises"), "--set", "backend=good", "--set", "stages=accept")
    assert said.status == 0
    run = harness.load(world.run_folder())
    assert list(run.cells["stage"]) == ["accept"]
    assert run.run["scenarios"][0]["overrides"] == {"backend": ["good"], "stages": ["accept"]}


def test_json_is_one_object_on_the_standard_output(world: World) -> None:
    said = world.call("run", world.scenario("Good", "Raises"), "--json")
    result = json.loads(said.out)
    assert said.status == 1
    assert Path(result["run"]) == world.run_folder()
    assert (result["cells"], result["stages"], result["outcomes"]["ok"]) == (2, 4, 2)
    (surprise,) = result["unexpected"]
    assert surprise["stages"] == ["compile", "accept"]
    assert (surprise["outcome"], surprise["expected"]) == ("crash", "ok")


def test_several_scenarios_make_one_run(world: World) -> None:
    names = [world.scenario("Good"), world.scenario("Good", name="other")]
    assert world.call("run", *names).status == 0
    folder = world.run_folder()
    assert folder.name.startswith("small+other-")
    assert set(harness.load(folder).cells["scenario"]) == {"small", "other"}


# --- interruption and resuming -------------------------------------------------------------------------------------


@pytest.fixture
def interrupt_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run stops as on Ctrl-C once one cell is recorded; later ones do not."""
    real, calls = manager.run, []

    def run(cells: Any, store: RunStore, environments: Any, **options: Any) -> manager.Summary:
        calls.append(1)
        if len(calls) > 1:
            return real(cells, store, environments, **options)
        real(cells[:1], store, environments, **options)
        store.update(finished_at=None, interrupted=True)
        raise manager.Interrupted(1, len(cells))

    monkeypatch.setattr(manager, "run", run)


@pytest.mark.usefixtures("interrupt_after_one")
def test_an_interrupted_run_says_how_to_go_on_and_that_command_does(world: World) -> None:
    name = world.scenario("Good", "Raises", "Refuses")
    said = world.call("run", name, "--set", "backend=good,refuses")
    assert said.status == 130
    assert "1 of 2 cells are done" in said.err
    again = shlex.split(said.err.partition("go on with: ")[2])
    assert again[0] == "masktax"
    said = world.call(*again[1:])
    assert said.status == 1  # the refusal was not expected
    cells = harness.load(world.run_folder()).cells
    assert sorted(zip(cells["backend"], cells["stage"], strict=True)) == [
        ("good", "accept"), ("good", "compile"), ("refuses", "accept"), ("refuses", "compile"),
    ]  # fmt: skip


@pytest.mark.usefixtures("interrupt_after_one")
def test_resume_alone_finds_the_newest_unfinished_run_and_what_was_set(world: World) -> None:
    name = world.scenario("Good", "Raises", "Refuses")
    world.call("run", name, "--set", "backend=good,refuses")
    world.call("run", name, "--resume")
    assert set(harness.load(world.run_folder()).cells["backend"]) == {"good", "refuses"}
    said = world.call("run", name, "--resume")
    assert said.status == 2 and "no unfinished run of small" in said.err


@pytest.mark.usefixtures("interrupt_after_one")
def test_a_run_whose_question_changed_is_not_gone_on_with(world: World) -> None:
    world.call("run", world.scenario("Good", "Raises"), "-o", "here")
    said = world.call("run", "small", "--resume", "-o", "here", "--set", "backend=good")
    assert said.status == 2 and "--set says something else than when it was begun" in said.err
    other = world.scenario("Good", "Raises", name="other")
    said = world.call("run", other, "--resume", "-o", "here")
    assert said.status == 2 and "it is a run of small, not of other" in said.err
    answer = world.root / "schemas" / "choice" / "answer.json"
    before = answer.read_text()
    answer.write_text(before.replace('"no"', '"on"', 1))
    said = world.call("run", "small", "--resume", "-o", "here")
    assert said.status == 2 and "constraint choice/answer has changed since" in said.err
    answer.write_text(before)
    world.scenario("Good", "Raises", more="# another text")
    said = world.call("run", "small", "--resume", "-o", "here")
    assert said.status == 2 and "the file of scenario small has changed since" in said.err


# --- mistakes ------------------------------------------------------------------------------------------------------


def _one_line(err: str) -> bool:
    return err.startswith("masktax: ") and err.count("\n") == 1


def test_mistakes_are_one_line_and_status_2(world: World) -> None:
    name = world.scenario("Good")
    (world.root / "file").touch()
    (world.root / "full").mkdir()
    (world.root / "full" / "run.json").touch()
    for arguments, message in (
        (["run", "smal"], "did you mean 'small'"),
        (["run"], "Missing argument"),
        (["run", name, "--frobnicate"], "No such option"),
        (["run", name, "--set", "backend=godo"], "did you mean 'good'"),
        (["run", name, "--set", "backend"], "write axis=value"),
        (["run", name, name], "named twice"),
        (["run", name, "-o", "file"], "file is a file"),
        (["run", name, "-o", "file/below"], "Not a directory"),
        (["run", name, "-o", "full"], "already holds a run"),
        (["run", name, "-o", "absent", "--resume"], "absent holds no run to go on with"),
    ):
        said = world.call(*arguments)
        assert (said.status, said.out) == (2, ""), arguments
        assert message in said.err and _one_line(said.err), said.err
    assert not list(world.results.iterdir())


def test_every_scenario_is_checked_before_any_runs(world: World) -> None:
    good, bad = world.scenario("Good"), world.scenario("Good", name="bad", more="[nonsense]")
    said = world.call("run", good, bad)
    assert said.status == 2 and "scenarios/bad.toml: nonsense: unknown key" in said.err
    assert not list(world.results.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    name = world.scenario("Good")
    monkeypatch.setattr(RunStore, "create", lambda path, _: refuse(path))
    said = world.call("run", name, "-o", "locked")
    assert said.status == 2 and said.err == "masktax: locked: Permission denied\n"


def test_a_full_disk_is_one_line_that_says_how_to_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunStore, record: Any) -> None:
        raise OSError(28, "No space left on device")

    name = world.scenario("Good")
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "append", full)
        said = world.call("run", name, "-o", "here")
    assert said.status == 2 and _one_line(said.err)
    assert "here: No space left on device; make room, then: masktax run small --resume -o here" in said.err
    assert world.call("run", name, "--resume", "-o", "here").status == 0
