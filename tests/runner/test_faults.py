"""Whatever a backend does to its process, the cell gets its own outcome and the other cells finish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cell import Cell
from harness.results import RunStore
from harness.runner import manager
from harness.runner.manager import Environment, run
from harness.vocabulary import Vocabulary
from tests.runner.conftest import MakeCell, is_running

Records = dict[tuple[str, str], dict[str, Any]]


FAULTY = (
    "Hang", "HangWithGil", "Runaway", "RunawayChild", "Segfault", "Killed", "Raises", "BreaksProtocol",
    "ForgesDone", "Exits", "ExitsPolitely", "LeavesFork",
)  # fmt: skip
"""Fakes that end their worker; here in the body of the stage accept."""

NEIGHBOURS = ("HangWithGil", "RunawayChild", "Segfault", "BreaksProtocol", "LeavesFork")
"""Those after which a right cell runs."""

# A worker must be able to start within the time limit on a busy machine.
TIME_LIMIT_S, MEMORY_LIMIT_BYTES = 3.0, 400 << 20


@pytest.fixture(scope="module")
def cells(make_cell: MakeCell, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """Every kind of fault once, right cells between them."""
    flags = tmp_path_factory.mktemp("flags")
    limits = {"Hang": {"time_limit_s": TIME_LIMIT_S}, "Runaway": {"memory_limit_bytes": MEMORY_LIMIT_BYTES}}
    made = []
    for fake in FAULTY:
        fields = next((limit for name, limit in limits.items() if fake.startswith(name)), None)
        made.append(make_cell(fake, at="accept", fields=fields))
        if fake in NEIGHBOURS:
            made.append(make_cell("Good", id=f"after {fake}", stages=("compile",)))
    return [
        make_cell("Good"),
        *made,
        make_cell("Raises", id="raises in compile", at="compile"),
        make_cell("Raises", id="raises in fill", at="fill"),
        make_cell("Refuses"),
        make_cell("RefusesToCompile"),
        make_cell("Flips", id="too strict", token=vocabulary.tokens.index(b"y")),
        make_cell("Flips", id="too loose", token=vocabulary.tokens.index(b"q")),
        make_cell("Garbage", flag=str(flags / "garbage")),  # once: little enough to stay in C's buffer
        make_cell("Flood", flag=str(flags / "flood")),
        make_cell("LeavesChild", stages=("compile",)),
        make_cell("Good", id="odd", stages=("compile", "digest")),
        make_cell("Good", id="last"),
    ]


@pytest.fixture(scope="module")
def records(
    cells: list[Cell], environments: dict[str, Environment], tmp_path_factory: pytest.TempPathFactory
) -> Records:
    """What one run over all of them stored: ``{(cell, stage): record}``, every pair exactly once."""
    with RunStore.create(tmp_path_factory.mktemp("faults") / "run", {}) as store:
        run(cells, store, environments)
        stored = store.records()
    pairs = [(r["cell"], r["stage"]) for r in stored]
    assert sorted(pairs) == sorted((c.id, s) for c in cells for s in c.stages)
    return {(r["cell"], r["stage"]): r for r in stored}


def outcomes(records: Records, cell: str) -> list[str]:
    """The outcome of each stage, in order; ``*`` where it was not reached."""
    return [r["outcome"] + ("*" if r["not_reached"] else "") for (c, _), r in records.items() if c == cell]


@pytest.mark.parametrize("cell", ["Good", "last", *(f"after {fake}" for fake in NEIGHBOURS)])
def test_a_right_backend_is_ok_whatever_ran_before_it(cell: str, records: Records) -> None:
    assert set(outcomes(records, cell)) == {"ok"}
    assert all(m["samples_ns"] for (c, _), r in records.items() if c == cell for m in r["measurements"])
    assert records[cell, "compile"]["measurements"]
    assert "stray_output" not in records[cell, "compile"]["facts"]


@pytest.mark.parametrize("fake", FAULTY)
def test_what_was_recorded_before_the_end_stays_and_what_follows_was_not_reached(fake: str, records: Records) -> None:
    kind = records[fake, "accept"]["outcome"]
    assert outcomes(records, fake) == ["ok", "ok", kind, f"{kind}*"]
    assert records[fake, "fill"]["measurements"]
    assert "ended in stage accept" in records[fake, "validate"]["reason"]
    assert records[fake, "accept"]["facts"]["elapsed_s"] > 0


@pytest.mark.parametrize("fake", ["Hang", "HangWithGil"])
def test_a_hang_is_a_timeout_whether_or_not_it_holds_the_gil(fake: str, records: Records) -> None:
    assert records[fake, "accept"]["outcome"] == "timeout"
    assert records[fake, "accept"]["reason"] == "time limit of 3 s"


@pytest.mark.parametrize("fake", ["Runaway", "RunawayChild"])
def test_runaway_memory_is_out_of_memory_wherever_in_the_group_it_is(fake: str, records: Records) -> None:
    assert records[fake, "accept"]["outcome"] == "out_of_memory"
    assert "memory limit of 400 MiB" in records[fake, "accept"]["reason"]
    # Killed soon after the limit, not at the end of the machine's memory.
    assert MEMORY_LIMIT_BYTES < records[fake, "accept"]["facts"]["peak_resident_bytes"] < 4 << 30


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        ("Segfault", "SIGSEGV"),
        ("Killed", "SIGKILL"),
        ("Raises", "RuntimeError: the library broke an invariant and says so on two lines"),
        ("BreaksProtocol", "protocol: not a JSON line: 'garbage'"),
        ("ForgesDone", "protocol: done without a record of stage 'accept'"),
        ("Exits", "exit status 0"),  # an end is early whatever its status
        ("ExitsPolitely", "exit status 0"),
        ("LeavesFork", "exit status 7"),  # a fork holds the pipes open and does not hide the worker's end
    ],
)
def test_a_crash_says_what_happened(fake: str, reason: str, records: Records) -> None:
    assert records[fake, "accept"]["outcome"] == "crash"
    assert records[fake, "accept"]["reason"] == reason


@pytest.mark.parametrize(("fake", "place"), [("Segfault", "_segfault"), ("Raises", "in _raise")])
def test_a_crash_shows_the_place_by_the_last_lines_of_stderr(fake: str, place: str, records: Records) -> None:
    assert place in "\n".join(records[fake, "accept"]["facts"]["stderr"])


@pytest.mark.parametrize("place", ["compile", "fill"])
def test_an_exception_before_any_stage_is_done_is_charged_to_the_first(place: str, records: Records) -> None:
    # A wrong fill is met by verification, which comes before the first stage is timed.
    assert outcomes(records, f"raises in {place}") == ["crash", "crash*", "crash*", "crash*"]


def test_refusals_are_outcomes_of_their_own_and_no_crashes(records: Records) -> None:
    assert outcomes(records, "Refuses") == ["unsupported"] * 4
    assert records["Refuses", "fill"]["reason"] == "the fake does not do this (uniqueItems at /items)"
    assert outcomes(records, "RefusesToCompile") == ["compile_error"] * 4
    assert records["RefusesToCompile", "fill"]["reason"] == "line 1: no such rule"


@pytest.mark.parametrize(("direction", "text"), [("too strict", b"y"), ("too loose", b"q")])
def test_one_flipped_bit_is_wrong_with_its_token_and_direction(
    direction: str, text: bytes, records: Records, vocabulary: Vocabulary
) -> None:
    assert outcomes(records, direction) == ["wrong"] * 4
    difference = records[direction, "fill"]["difference"]
    assert (difference["direction"], difference["token"]) == (direction, vocabulary.tokens.index(text))
    assert difference["step"] == 0


def test_garbage_on_stdout_is_harmless_and_noted(records: Records) -> None:
    assert outcomes(records, "Garbage") == ["ok"] * 4
    facts = records["Garbage", "compile"]["facts"]
    assert '{"event":"done"} said by a library' in facts["stray_output"]
    assert "raw bytes from C" in facts["stray_output"]
    assert "buffered by C's own stdio" in facts["stray_output"]
    assert "complaint" not in facts["stray_output"]


def test_a_flood_on_stdout_is_counted_and_not_kept(records: Records) -> None:
    assert outcomes(records, "Flood") == ["ok"] * 4
    facts = [r["facts"] for (c, _), r in records.items() if c == "Flood" and "stray_output" in r["facts"]]
    assert sum(f["stray_output_bytes"] for f in facts) == 64 << 20
    assert max(len(f["stray_output"]) for f in facts) <= manager.STRAY_BYTES


def test_a_child_left_behind_is_ended_with_its_cell(records: Records) -> None:
    assert records["LeavesChild", "compile"]["outcome"] == "ok"
    words = records["LeavesChild", "compile"]["facts"]["stray_output"].split()
    children = [int(word) for word in words if word.isdigit()]
    assert children
    assert not any(is_running(child) for child in children)


def test_a_cell_that_makes_no_sense_is_a_crash_that_names_what(records: Records) -> None:
    assert outcomes(records, "odd") == ["crash", "crash*"]
    assert "unknown stage 'digest'" in records["odd", "compile"]["reason"]


def test_a_kill_that_the_kernel_counts_as_one_for_memory_is_out_of_memory(
    tmp_path: Path, make_cell: MakeCell, environments: dict[str, Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(manager, "_kernel_oom_kills", lambda: next(counts))
    with RunStore.create(tmp_path / "run", {}) as store:
        run([make_cell("Killed")], store, environments)
        assert [r["outcome"] for r in store.records()] == ["out_of_memory"] * 4
