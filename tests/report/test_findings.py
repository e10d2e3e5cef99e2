"""Sentences: each is there where the data bear it out, with the numbers of the data, and gone where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cell import Outcome
from harness.report.findings import answer, clock_notes, machine_notes
from harness.report.study import Study
from tests.report.exact import OK, later, line, study, timed
from tests.report.synthetic import difference, run_fields


def said(of: Study) -> str:
    return "\n".join(answer(of))


def two(tmp_path: Path, *, other: Outcome = OK, constraint: str = "flat/a", ns: float = 4_000.0) -> str:
    return said(
        study(
            tmp_path,
            line("xgrammar", "flat/a", "fill", OK, later(1_000.0)),
            line("llguidance", constraint, "fill", other, later(ns)),
        )
    )


def test_backends_are_compared_with_their_numbers_and_the_size_of_the_common_set(tmp_path: Path) -> None:
    text = two(tmp_path)
    assert "over the 1 case on which all of them are right: xgrammar 1.00 µs and llguidance 4.00 µs." in text
    assert "The highest of these (llguidance) is 4.0 times the lowest." in text


def test_the_only_backend_timed_is_not_compared_and_its_time_is_said(tmp_path: Path) -> None:
    text = said(study(tmp_path, line("xgrammar", "flat/a", "fill", OK, later(1_000.0))))
    assert "over 1 right case of xgrammar, the only one timed: 1.00 µs." in text
    assert "The highest of these" not in text


def test_a_small_difference_gets_no_sentence_of_its_own(tmp_path: Path) -> None:
    text = two(tmp_path, ns=1_100.0)
    assert "llguidance 1.10 µs" in text
    assert "The highest of these" not in text


@pytest.mark.parametrize(
    "change", [{"other": Outcome("wrong", difference=difference("flat/a"))}, {"constraint": "flat/other"}]
)
def test_the_comparison_is_gone_where_there_is_no_common_right_case(tmp_path: Path, change: dict[str, Any]) -> None:
    text = two(tmp_path, **change)
    assert "all of them are right:" not in text
    assert "llguidance 4.00 µs" not in text
    assert "The highest" not in text


def test_wrong_masks_are_said_with_their_direction_and_only_where_there_are_any(tmp_path: Path) -> None:
    assert "wrong" not in two(tmp_path / "right")
    text = two(tmp_path / "wrong", other=Outcome("wrong", difference=difference("flat/a")))
    assert "llguidance's masks are wrong on 1 case (too loose): those times are kept" in text
    assert "Right, of 1 case: xgrammar 1 and llguidance 0." in text


def test_unexpected_outcomes_are_counted(tmp_path: Path) -> None:
    assert "expects" not in two(tmp_path / "usual")
    odd = line("outlines", "flat/a", "fill", OK, expected="unsupported", as_expected=False)
    assert "1 cell did not end as the scenario expects" in said(study(tmp_path / "odd", odd))


@pytest.mark.parametrize(
    ("again", "sentence"), [(1.0, "xgrammar (100 times faster)"), (99.0, "about as much as a new")]
)
def test_what_a_second_compile_costs_is_said_both_ways(tmp_path: Path, again: float, sentence: str) -> None:
    states = [timed([100.0], {"cache": "new_schema"}), timed([again], {"cache": "same_schema"})]
    assert sentence in said(study(tmp_path, line("xgrammar", "flat/a", "compile", OK, *states)))


def test_between_the_two_nothing_is_said_of_a_second_compile(tmp_path: Path) -> None:
    states = [timed([100.0], {"cache": "new_schema"}), timed([66.0], {"cache": "same_schema"})]
    assert "same schema again" not in said(study(tmp_path, line("xgrammar", "flat/a", "compile", OK, *states)))


@pytest.mark.parametrize(("slope", "there"), [(0.0, False), (0.05, True)])
def test_growth_with_position_is_said_where_it_is_seen(tmp_path: Path, slope: float, there: bool) -> None:
    steps = list(range(100))
    walk = timed([1.0 + slope * p for p in steps], {"visit": "later"}, position=steps, document=["valid/0"] * 100)
    text = said(study(tmp_path, line("xgrammar", "flat/a", "fill", OK, walk)))
    assert ("from the first to the last quarter of positions: xgrammar (3.3 times)" in text) is there


def test_a_fill_that_was_cut_short_is_said_to_be_left_out(tmp_path: Path) -> None:
    def walk(backend: str, steps: int) -> dict[str, Any]:
        return line(backend, "flat/a", "fill", OK, timed([1.0] * steps, {"visit": "first"}, position=range(steps)))

    text = said(study(tmp_path / "cut", walk("xgrammar", 100), walk("outlines", 3)))
    assert "time ran out before half of the steps: outlines on 1 case (first visit)." in text
    assert "time ran out" not in said(study(tmp_path / "whole", walk("xgrammar", 100), walk("outlines", 100)))


def test_tails_are_said_where_p99_is_known_and_far_from_the_median(tmp_path: Path) -> None:
    def text(name: str, times: list[float]) -> str:
        lines = [line(b, "flat/a", "fill", OK, later(*times)) for b in ("xgrammar", "llguidance")]
        return said(study(tmp_path / name, *lines))

    assert "xgrammar 10.0 µs (10 times its median)" in text("long", [1_000.0] * 195 + [10_000.0] * 5)
    assert "p99" not in text("short", [1_000.0] * 200)
    assert "p99" not in text("few", [1_000.0] * 50 + [10_000.0] * 5)


def test_that_it_was_not_run_on_a_gpu_is_said_unless_it_was(tmp_path: Path) -> None:
    assert "Not run on a GPU" in two(tmp_path / "cpu")
    copied = line("xgrammar", "flat/a", "copy", OK, timed([5.0], {"device": "cuda:0"}))
    assert "GPU" not in said(study(tmp_path / "gpu", copied))


def test_an_untimed_run_says_so_and_gives_no_time(tmp_path: Path) -> None:
    text = said(study(tmp_path, line("xgrammar", "flat/a", "fill", OK), timed=False))
    assert "verified and not timed" in text
    assert "GPU" not in text


def test_how_much_was_judged_is_said_from_the_records(tmp_path: Path) -> None:
    judged = line("xgrammar", "flat/a", "fill", OK, facts={"rows_judged": 24})
    unjudged = line("xgrammar", "flat/b", "fill", OK, facts={"rows_judged": 0})
    assert "in 1 of 2 cells (24 rows)" in said(study(tmp_path / "judged", judged, unjudged))
    assert "judge" not in said(study(tmp_path / "unjudged", unjudged))


def test_a_run_without_records_says_that(tmp_path: Path) -> None:
    assert answer(study(tmp_path)) == ["Nothing is recorded yet."]


def test_the_clock_s_share_is_said_where_it_is_large(tmp_path: Path) -> None:
    heavy = line("xgrammar", "flat/a", "fill", OK, timed([400.0], {"visit": "first"}), overhead_ns=40.0)
    light = line("xgrammar", "flat/a", "fill", OK, timed([4e6], {"visit": "first"}), overhead_ns=40.0)
    notes = clock_notes(study(tmp_path / "heavy", heavy))
    assert any("fill, first visit of xgrammar (10 %)" in n for n in notes)
    assert not any("own cost" in n for n in clock_notes(study(tmp_path / "light", light)))
    assert "Clock fake: resolution 1.00 ns, overhead 40.0 ns per sample" in notes[0]


def test_what_may_have_bent_the_numbers_is_said_from_the_machine_s_facts() -> None:
    text = "\n".join(machine_notes(run_fields()))
    assert "governor cannot be read" in text
    assert "allows 2 of 4 cores" in text
    assert "Load (1 min): 0.40 before, 1.20 after." in text
    assert "not idle" not in text
    assert "in 7 periods" in text
    assert "0.5 s of processor time" in text


def test_a_quiet_machine_has_little_to_say() -> None:
    quiet = {
        "machine": {"cpu": {"governor": "performance", "quota_cores": "unlimited", "cores_logical": 4}, "gpus": []},
        "sessions": [
            {"before": {"load_1min": 0.1, "throttled_count": 3}, "after": {"load_1min": 1.0, "throttled_count": 3}}
        ],
    }
    assert machine_notes(quiet) == ["Load (1 min): 0.10 before, 1.00 after."]
    assert machine_notes({}) == []
