"""A run as a whole: what it refuses before anything starts, what it tells, what it writes about itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.cell import Cell
from harness.errors import MasktaxError
from harness.results import RunStore
from harness.runner import manager
from harness.runner.manager import Environment, run
from tests.runner.conftest import MakeCell

Environments = dict[str, Environment]


@pytest.fixture(scope="module", autouse=True)
def probed_once() -> Any:
    """Describing an environment takes a second: once is enough for all of these."""
    probe, known = manager.probe, {}

    def remember(environment: Environment, backends: Any = ()) -> dict[str, Any]:
        key = (environment, tuple(backends))
        if key not in known:
            known[key] = probe(environment, backends)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "probe", remember)
        yield


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.create(tmp_path / "run", {}) as store:
        yield store


def test_an_untimed_run_records_outcomes_and_no_samples(
    store: RunStore, make_cell: MakeCell, environments: Environments
) -> None:
    run([make_cell("Good")], store, environments, timed=False)
    assert [r["outcome"] for r in store.records()] == ["ok"] * 4
    assert not any(r["measurements"] for r in store.records())


def test_annotations_are_stored_with_each_record(
    store: RunStore, make_cell: MakeCell, environments: Environments
) -> None:
    run([make_cell("Exits")], store, environments, annotate=lambda r: {"as_expected": r["outcome"] == "crash"})
    assert [r["as_expected"] for r in store.records()] == [True] * 4


def test_events_tell_the_run_in_order(store: RunStore, make_cell: MakeCell, environments: Environments) -> None:
    seen: list[str] = []

    def note(event: manager.Event) -> None:
        stage = getattr(event, "stage", "") or getattr(event, "record", {}).get("stage", "")
        if not isinstance(event, manager.Tick):
            seen.append(f"{type(event).__name__} {stage}".strip())

    run([make_cell("Good", stages=("compile", "fill"))], store, environments, on_event=note)
    assert seen == [
        "RunStarted", "CellStarted", "StageStarted compile", "StageRecorded compile", "StageStarted fill",
        "StageRecorded fill", "CellFinished", "RunFinished",
    ]  # fmt: skip


def test_a_run_says_on_what_and_with_what_it_was_made(
    store: RunStore, make_cell: MakeCell, environments: Environments
) -> None:
    summary = run([make_cell("Good", stages=("compile",))], store, environments)
    assert (summary.cells, summary.ran, summary.skipped, summary.outcomes) == (1, 1, 0, {"ok": 1})
    told = store.run
    assert told["environments"]["default"]["backends"]["tests.fake_backends:Good"]["version"] == "1.0"
    assert len(told["environments"]["default"]["packages"]["numpy"]["record_sha256"]) == 64
    assert told["machine"]["cpu"]["cores_logical"] == psutil.cpu_count()
    assert told["sessions"][0]["after"]["at"] >= told["sessions"][0]["before"]["at"]
    assert told["finished_at"] and told["interrupted"] is False
    assert (store.path / "samples.parquet").exists()


def test_a_worker_does_not_depend_on_where_one_stands(
    store: RunStore, make_cell: MakeCell, environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trap in ("harness.py", "numpy.py", "json.py"):
        (tmp_path / trap).write_text("raise ImportError('from the current folder')")
    monkeypatch.chdir(tmp_path)
    run([make_cell("Good")], store, environments)
    assert [r["outcome"] for r in store.records()] == ["ok"] * 4


# What is refused before anything runs.


def refusal(store: RunStore, cells: list[Cell], environments: Environments) -> str:
    before = store.recorded()
    with pytest.raises(MasktaxError) as caught:
        run(cells, store, environments)
    assert store.recorded() == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_environment_without_interpreter(store: RunStore, make_cell: MakeCell, tmp_path: Path) -> None:
    told = refusal(store, [make_cell("Good")], {"default": Environment("default", tmp_path / "no" / "python")})
    assert "environment default" in told and f"no interpreter at {tmp_path}/no/python" in told


def test_an_environment_without_numpy(store: RunStore, make_cell: MakeCell, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without site-packages
    python.chmod(0o755)
    told = refusal(store, [make_cell("Good")], {"default": Environment("default", python)})
    assert "cannot run a worker" in told and "No module named 'numpy'" in told


def test_a_program_that_is_no_interpreter(store: RunStore, make_cell: MakeCell) -> None:
    told = refusal(store, [make_cell("Good")], {"default": Environment("default", Path("echo"))})
    assert "does not answer as a worker" in told


def test_a_cell_of_an_unknown_environment(store: RunStore, make_cell: MakeCell) -> None:
    assert "unknown environment 'default'; known: other" in refusal(
        store, [make_cell("Good")], {"other": Environment("other", Path(sys.executable))}
    )


def test_two_cells_of_one_id(store: RunStore, make_cell: MakeCell, environments: Environments) -> None:
    assert "two cells have the id 'Good'" in refusal(store, [make_cell("Good"), make_cell("Good")], environments)


def test_a_store_with_records_unless_resumed(store: RunStore, make_cell: MakeCell, environments: Environments) -> None:
    cell = make_cell("Good", stages=("compile",))
    run([cell], store, environments)
    assert "--resume" in refusal(store, [cell], environments)
    assert run([cell], store, environments, resume=True).skipped == 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("machine", ("cpu", "model"), "unlike machine (cpu model: another against"),
        ("environments", ("default", "numpy"), "environment default has changed since"),
    ],
)
def test_resuming_on_another_machine_or_with_other_packages(
    field: str, value: Any, said: str, store: RunStore, make_cell: MakeCell, environments: Environments
) -> None:
    cell = make_cell("Good", stages=("compile",))
    run([cell], store, environments)
    part, name = value
    store.update(**{field: store.run[field] | {part: store.run[field][part] | {name: "another"}}})
    with pytest.raises(MasktaxError) as caught:
        run([cell], store, environments, resume=True)
    assert said in str(caught.value)


def test_timed_cells_never_run_side_by_side(store: RunStore, make_cell: MakeCell, environments: Environments) -> None:
    with pytest.raises(MasktaxError, match="one at a time"):
        run([make_cell("Good")], store, environments, jobs=2)


def test_untimed_cells_side_by_side_are_recorded_like_cells_one_by_one(
    tmp_path: Path, make_cell: MakeCell, environments: Environments
) -> None:
    cells = [make_cell(name) for name in ("Good", "Exits", "Refuses")]
    recorded = []
    for jobs in (1, 3):
        with RunStore.create(tmp_path / f"jobs{jobs}", {}) as each:
            run(cells, each, environments, timed=False, jobs=jobs)
            recorded.append(sorted((r["cell"], r["stage"], r["outcome"]) for r in each.records()))
    assert recorded[0] == recorded[1]
    assert len(recorded[0]) == 12
