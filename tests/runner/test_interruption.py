"""A manager that is killed or interrupted in mid-run: nothing recorded is lost, nothing is recorded twice or by halves,
and no worker outlives it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cell import Cell
from harness.results import RunStore
from tests.runner.conftest import ROOT, MakeCell, is_running

Pairs = list[tuple[str, str]]


@dataclass
class Managed:
    """A run by a manager in a process of its own, over ``cells``."""

    run: Path
    cells: Path

    def start(self, *, resume: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.runner.managed", str(self.run), str(self.cells)]
        return subprocess.Popen(
            command + ["--resume"] * resume, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def pairs(self) -> Pairs:
        """(cell, stage) of every whole line, as they stand in the file."""
        lines = (self.run / "cells.jsonl").read_text().splitlines(keepends=True)
        return [(r["cell"], r["stage"]) for r in map(json.loads, (s for s in lines if s.endswith("\n")))]


@pytest.fixture
def managed(tmp_path: Path) -> Callable[[list[Cell]], Managed]:
    def prepare(cells: list[Cell]) -> Managed:
        file = tmp_path / "cells.json"
        file.write_text(json.dumps([c.to_json() for c in cells]))
        return Managed(tmp_path / "run", file)

    return prepare


def until(process: subprocess.Popen[str], *words: str) -> list[str]:
    """Read the manager's events up to the one that starts with ``words``; its remaining words."""
    assert process.stdout
    for line in process.stdout:
        if line.split()[: len(words)] == list(words):
            return line.split()[len(words) :]
    raise AssertionError(f"the manager ended without {words}")


def all_end(pids: list[int], within_s: float = 10.0) -> bool:
    give_up = time.monotonic() + within_s
    while any(is_running(p) for p in pids):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def eventually(file: Path, *, with_text: bool = False, within_s: float = 10.0) -> str:
    """The text of a file that somebody is about to make."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if file.exists() and (file.read_text() or not with_text):
            return file.read_text()
        time.sleep(0.01)
    raise AssertionError(f"nobody made {file}")


def three(make_cell: MakeCell, fake: str, tmp_path: Path) -> list[Cell]:
    """A right cell, one that hangs in its third stage at the first attempt, and a right cell."""
    hanging = make_cell(fake, id="hangs", at="accept", flag=str(tmp_path / "hung"))
    return [make_cell("Good", id="before", stages=("compile", "fill")), hanging, make_cell("Good", id="after")]


def expected(cells: list[Cell]) -> Pairs:
    return sorted((c.id, s) for c in cells for s in c.stages)


@pytest.mark.parametrize("fake", ["Hang", "HangBusy", "HangWithGil", "HangWithChild"])
def test_a_killed_manager_loses_what_was_in_flight_at_most_and_its_worker_ends_by_itself(
    fake: str, make_cell: MakeCell, managed: Callable[[list[Cell]], Managed], tmp_path: Path
) -> None:
    cells = three(make_cell, fake, tmp_path)
    it = managed(cells)
    process = it.start()
    (worker,) = map(int, until(process, "StageStarted", "hangs", "accept"))
    orphans = [worker]
    hung = eventually(tmp_path / "hung", with_text=fake == "HangWithChild")
    orphans += [int(hung)] if hung else []
    assert all(is_running(p) for p in orphans)
    process.kill()
    process.wait()
    assert all_end(orphans)

    recorded = [("before", "compile"), ("before", "fill"), ("hangs", "compile"), ("hangs", "fill")]
    assert it.pairs() == recorded
    again = it.start(resume=True)
    assert again.wait(60) == 0
    assert it.pairs()[:4] == recorded  # what was there is untouched, and not run again
    assert sorted(it.pairs()) == expected(cells)
    with RunStore.open(it.run) as store:
        assert {r["outcome"] for r in store.records()} == {"ok"}
        assert [s["ended_at"] is not None for s in store.run["sessions"]] == [False, True]
        assert store.run["finished_at"]


def test_a_manager_killed_again_and_again_comes_to_the_same_pairs_as_one_left_alone(
    make_cell: MakeCell, managed: Callable[[list[Cell]], Managed]
) -> None:
    cells = [make_cell("Good", id=f"cell {n}", stages=("compile", "fill")) for n in range(4)]
    it = managed(cells)
    for attempt, moment in enumerate(("CellStarted", "StageRecorded", "StageStarted", "CellFinished")):
        process = it.start(resume=attempt > 0)
        before = len(it.pairs()) if attempt else 0
        until(process, moment)
        process.kill()
        process.wait()
        assert len(it.pairs()) >= before
    assert it.pairs(), "no kill came after a record: the test shows nothing"
    assert len(it.pairs()) < len(expected(cells)), "no kill came before the end: the test shows nothing"
    assert it.start(resume=True).wait(60) == 0
    assert sorted(it.pairs()) == expected(cells)


@pytest.mark.parametrize(("sent", "fake"), [(signal.SIGINT, "HangBusy"), (signal.SIGTERM, "HangWithGil")])
def test_an_interrupted_run_ends_its_cell_writes_what_there_is_and_says_how_far_it_came(
    sent: signal.Signals, fake: str, make_cell: MakeCell, managed: Callable[[list[Cell]], Managed], tmp_path: Path
) -> None:
    cells = three(make_cell, fake, tmp_path)
    it = managed(cells)
    process = it.start()
    (worker,) = map(int, until(process, "StageStarted", "hangs", "accept"))
    eventually(tmp_path / "hung")
    process.send_signal(sent)
    said = until(process, "Interrupted")
    assert process.wait(30) == 130
    assert " ".join(said) == f"1 3 interrupted by {sent.name}: 1 of 3 cells are done and stored"
    assert not is_running(worker)

    assert it.pairs() == [("before", "compile"), ("before", "fill"), ("hangs", "compile"), ("hangs", "fill")]
    assert (it.run / "samples.parquet").exists()
    with RunStore.open(it.run) as store:
        assert store.run["interrupted"] is True
        assert store.run["sessions"][0]["interrupted_by"] == sent.name
    assert it.start(resume=True).wait(60) == 0
    assert sorted(it.pairs()) == expected(cells)
    with RunStore.open(it.run) as store:
        assert store.run["interrupted"] is False
