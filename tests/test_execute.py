"""What a worker does with a cell: one record a stage, whatever happens, and nothing timed that was not verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cell import Cell, Measurement, Outcome, Record, Refusal
from harness.errors import MasktaxError
from harness.execute import execute
from harness.stages import Stage, stages
from tests.making import choice_cell

ALL = tuple(stages())
SHORT = {
    "draft_tokens": (1,), "rollback_tokens": (1,),  # the documents here are words of a token or two
    "kernel": ("numpy",), "rows": (2,),  # torch's compiler takes seconds for a kernel
}  # fmt: skip


def records_of(cell: Cell, **options: Any) -> dict[str, Record]:
    seen: list[tuple[str, Any]] = []
    execute(cell, lambda event, value: seen.append((event, value)), **options)
    records = [value for event, value in seen if event == "record"]
    assert [r.stage for r in records] == list(cell.stages)
    assert [value for event, value in seen if event == "stage"] in (list(cell.stages), [cell.stages[0]])
    return {r.stage: r for r in records}


def test_every_stage_of_a_right_backend_is_ok_and_timed(tmp_path: Path) -> None:
    records = records_of(choice_cell(tmp_path, stages=ALL, conditions=SHORT))
    for record in records.values():
        assert record.outcome.kind == "ok"
        assert record.measurements
        assert record.clock["overhead_ns"] > 0
        for measurement in record.measurements:
            count = len(measurement.samples_ns)
            assert count > 0
            assert all(sample > 0 for sample in measurement.samples_ns)
            assert len(measurement.iterations) == len(measurement.outliers) == count
            assert all(len(column) == count for column in measurement.columns.values())


def test_an_untimed_run_has_outcomes_and_no_times(tmp_path: Path) -> None:
    records = records_of(choice_cell(tmp_path, stages=ALL, conditions=SHORT), timed=False)
    assert {r.outcome.kind for r in records.values()} == {"ok"}
    assert not any(r.measurements for r in records.values())


def test_compile_is_measured_in_every_cache_state_that_is_asked_for(tmp_path: Path) -> None:
    def states(cell: Cell) -> list[str]:
        return [m.conditions["cache"] for m in records_of(cell)["compile"].measurements]

    assert states(choice_cell(tmp_path)) == ["process_cold", "new_schema", "same_schema", "respelled"]
    asked = choice_cell(tmp_path, conditions={"cache": ("process_cold", "same_schema")})
    assert states(asked) == ["process_cold", "same_schema"]


def test_a_first_compile_is_one_single_shot(tmp_path: Path) -> None:
    (cold, *_) = records_of(choice_cell(tmp_path))["compile"].measurements
    assert (len(cold.samples_ns), cold.stop_reason) == (1, "single_shots")


def test_fill_visits_every_position_of_every_document_first_and_later(tmp_path: Path) -> None:
    cell = choice_cell(tmp_path, valid=("yes", "name"))
    first, later = records_of(cell)["fill"].measurements
    every = {(d.name, p) for d in cell.valid for p in range(len(d.tokens) + 1)}
    assert set(zip(first.columns["document"], first.columns["position"], strict=True)) == every
    assert set(zip(later.columns["document"], later.columns["position"], strict=True)) == every
    assert first.conditions == {"visit": "first"}
    assert set(first.iterations) == {1}


def test_rollback_is_measured_by_position_for_each_number_of_tokens(tmp_path: Path) -> None:
    cell = choice_cell(tmp_path, stages=("rollback",), conditions={"rollback_tokens": (1, 99)})
    (measurement,) = records_of(cell)["rollback"].measurements  # no document has 99 tokens
    assert measurement.conditions == {"rollback_tokens": 1}
    assert min(measurement.columns["position"]) >= 1


def test_a_wrong_backend_is_wrong_in_every_stage_and_its_times_are_kept(tmp_path: Path) -> None:
    records = records_of(choice_cell(tmp_path, adapter="tests.fake_backends:Flips", options={"token": 65}))
    for record in records.values():
        assert record.outcome.kind == "wrong"
        assert record.outcome.difference is not None
        assert record.measurements


@pytest.mark.parametrize(("adapter", "kind"), [("Refuses", "unsupported"), ("RefusesToCompile", "compile_error")])
def test_a_refusal_is_the_outcome_of_every_stage(tmp_path: Path, adapter: str, kind: str) -> None:
    try:
        records = records_of(choice_cell(tmp_path, adapter=f"tests.fake_backends:{adapter}"))
    except MasktaxError as error:
        pytest.fail(str(error))
    assert {r.outcome.kind for r in records.values()} == {kind}
    assert all(r.outcome.reason for r in records.values())


def test_a_profile_that_the_backend_does_not_declare_is_unsupported(tmp_path: Path) -> None:
    records = records_of(choice_cell(tmp_path, profile="baroque"))
    assert {r.outcome.kind for r in records.values()} == {"unsupported"}
    assert "baroque" in records["fill"].outcome.reason


def test_an_unknown_stage_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(MasktaxError, match="unknown stage 'polish'"):
        execute(choice_cell(tmp_path, stages=("polish",)), lambda event, value: None)


def test_another_vocabulary_than_announced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MasktaxError, match="fingerprint"):
        records_of(choice_cell(tmp_path, vocabulary_sha256="0" * 64))


def test_conditions_that_a_stage_refuses_are_told_beside_those_it_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(*results: Measurement | Refusal) -> Record:
        stage = Stage("fill", {}, lambda _: list(results))
        monkeypatch.setattr("harness.execute.stages", lambda: {"fill": stage})
        return records_of(choice_cell(tmp_path, stages=("fill",)))["fill"]

    timed = Measurement({"policy": "serial"}, (1.0,), (1,), {}, ("",), "time_cap")
    lacking = Refusal({"policy": "pool"}, "unsupported", "no pool here")
    wrong = Refusal({"policy": "native"}, "wrong", "row 3 differs")
    some = record(timed, lacking)
    assert (some.outcome, some.measurements, some.refusals) == (Outcome("ok"), (timed,), (lacking,))
    assert record(lacking).outcome == Outcome("unsupported", "no pool here")
    assert record(timed, lacking, wrong).outcome == Outcome("wrong", "row 3 differs")
