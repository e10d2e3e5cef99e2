"""What a person sees while cells run, from made-up events and a clock that the test moves."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cell import Cell
from harness.runner.manager import (
    CellFinished,
    CellStarted,
    RunFinished,
    RunStarted,
    StageRecorded,
    StageStarted,
    Summary,
    Tick,
)
from harness.runner.progress import Progress, TimeLeft, duration
from tests.runner.conftest import MakeCell


def record(cell: Cell, stage: str, outcome: str = "ok", **more: object) -> StageRecorded:
    return StageRecorded(cell, {"cell": cell.id, "stage": stage, "outcome": outcome, "reason": "why", **more})


@pytest.fixture
def cells(make_cell: MakeCell) -> list[Cell]:
    return [make_cell(fake, id=f"{fake} {n}") for n in range(3) for fake in ("Good", "Hang")]


def test_no_estimate_before_the_first_cell_has_finished(cells: list[Cell]) -> None:
    assert TimeLeft(cells).seconds() is None


def test_time_left_is_the_median_of_the_same_backend_or_of_all_where_it_has_none(cells: list[Cell]) -> None:
    left = TimeLeft(cells)
    left.finished(cells[0], 1.0)
    assert left.seconds() == 2 * 1.0 + 3 * 1.0  # two more of Good; Hang is unknown, so the median of all
    left.finished(cells[1], 10.0)
    assert left.seconds() == 2 * 1.0 + 2 * 10.0
    left.finished(cells[2], 3.0)
    assert left.seconds() == 1 * 2.0 + 2 * 10.0


def test_time_spent_in_the_current_cell_is_taken_off_and_never_more_than_it_should_take(cells: list[Cell]) -> None:
    left = TimeLeft(cells[:3:2])
    left.finished(cells[0], 4.0)
    assert left.seconds(cells[2], 1.0) == 3.0
    assert left.seconds(cells[2], 100.0) == 0.0


@pytest.mark.parametrize(("seconds", "said"), [(41.6, "42 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (-1, "0 s")])
def test_durations_are_said_in_the_units_people_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_without_a_terminal_it_is_one_plain_line_a_cell_and_one_for_what_was_not_expected(cells: list[Cell]) -> None:
    text = io.StringIO()
    at = [0.0]
    with Progress(Console(file=text, width=40), clock=lambda: at[0]) as progress:
        progress(RunStarted(3, tuple(cells[:2])))
        for cell, outcome in zip(cells[:2], ("ok", "timeout"), strict=True):
            progress(CellStarted(cell, 2))
            progress(StageStarted(cell, "fill"))
            progress(record(cell, "fill"))
            progress(record(cell, "accept", outcome))
            at[0] += 2.0
            progress(Tick())
            progress(CellFinished(cell, 2.0))
        progress(RunFinished(Summary(3, 2, 1, {}, 4.0)))
    assert text.getvalue().splitlines() == [
        "1 of 3 cells are recorded already",
        "[2/3] Good 0: ok; 2.0 s, about 2 s left",
        "Hang 0, accept: timeout: why",
        "[3/3] Hang 0: fill ok, accept timeout; 2.0 s",
    ]


def test_an_annotated_record_speaks_up_exactly_where_it_was_not_expected(cells: list[Cell]) -> None:
    text = io.StringIO()
    with Progress(Console(file=text)) as progress:
        progress(record(cells[0], "fill", "timeout", as_expected=True))
        progress(record(cells[0], "accept", "ok", as_expected=False))
    assert text.getvalue().splitlines() == ["Good 0, accept: ok: why"]


def test_on_a_terminal_it_shows_cells_done_the_current_stage_and_time_left_and_leaves_no_trace(
    cells: list[Cell],
) -> None:
    text = io.StringIO()
    console = Console(file=text, width=100, force_terminal=True, legacy_windows=False)
    at = [0.0]
    with Progress(console, clock=lambda: at[0]) as progress:
        progress(RunStarted(3, tuple(cells[:3])))
        progress(CellStarted(cells[0], 1))
        progress(record(cells[0], "fill"))
        progress(CellFinished(cells[0], 4.0))
        progress(CellStarted(cells[1], 2))
        progress(StageStarted(cells[1], "accept"))
        at[0] = 75.0
        text.truncate(0)
        progress(Tick())
        shown = text.getvalue()
    for part in ("1/3 cells", "1 ok", "Hang 0", "accept", "1 min 15 s elapsed", "left"):
        assert part in shown


def test_it_redraws_a_few_times_a_second_at_most(cells: list[Cell]) -> None:
    text = io.StringIO()
    at = [0.0]
    with Progress(Console(file=text, force_terminal=True), clock=lambda: at[0]) as progress:
        progress(RunStarted(1, tuple(cells[:1])))
        drawn = len(text.getvalue())
        progress(StageStarted(cells[0], "fill"))
        assert len(text.getvalue()) == drawn
        at[0] = 1.0
        progress(StageStarted(cells[0], "accept"))
        assert len(text.getvalue()) > drawn
