"""Coverage and causes: one cause is one line, with a count, and says which stage it befell."""

from __future__ import annotations

from pathlib import Path

from harness.cell import Difference, Outcome
from harness.report.causes import causes, coverage, faults, surprises
from tests.report.exact import OK, later, line, study
from tests.report.synthetic import difference


def test_reasons_that_differ_by_place_number_and_quotation_are_one_cause(tmp_path: Path) -> None:
    reasons = [
        "ignores multipleOf (multipleOf at #/properties/id)",
        "ignores multipleOf (multipleOf at #/items/0/properties/price~1eur)",
        "ignores multipleOf (multipleOf at #)",
    ]
    made = [
        line("outlines", f"flat/c{n}", "compile", Outcome("unsupported", reason))
        for n, reason in enumerate(reasons[:2])
    ]
    made.append(line("outlines", "flat/d", "compile", Outcome("unsupported", "ignores uniqueItems (at #/items)")))
    one, other = causes(study(tmp_path, *made))
    assert (one.text, one.cells, one.constraints) == (reasons[0], 2, ("flat/c0", "flat/c1"))
    assert (other.cells, other.outcome, other.series) == (1, "unsupported", "outlines")


def test_stages_that_were_not_reached_are_charged_to_the_one_that_was(tmp_path: Path) -> None:
    (found,) = causes(
        study(
            tmp_path,
            line("outlines", "flat/a", "compile", OK),
            line("outlines", "flat/a", "fill", Outcome("timeout", "time limit of 120 s")),
            line(
                "outlines",
                "flat/a",
                "accept",
                Outcome("timeout", "time limit of 120 s; the cell ended in stage fill", not_reached=True),
            ),
        )
    )
    assert (found.stages, found.cells, found.text) == (("fill",), 1, "time limit of 120 s")


def test_a_crash_shows_the_last_words_of_its_worker(tmp_path: Path) -> None:
    crash = line("xgrammar", "flat/a", "fill", Outcome("crash", "signal 11 (SIGSEGV)"))
    crash["facts"] = {"stderr": ["first", "terminate called after throwing"]}
    (found,) = causes(study(tmp_path, crash))
    assert found.detail == "terminate called after throwing"


def test_backends_never_share_a_line(tmp_path: Path) -> None:
    same = Outcome("unsupported", "no recursion")
    found = causes(study(tmp_path, line("outlines", outcome=same), line("lm-format-enforcer", outcome=same)))
    assert [(c.series, c.cells) for c in found] == [("outlines", 1), ("lm-format-enforcer", 1)]


def test_faults_are_grouped_by_direction_judge_and_explanation(tmp_path: Path) -> None:
    def wrong(constraint: str, step: int, direction: str) -> dict[str, object]:
        first = Difference("valid/0", step, 5, "x", direction, "naive", "ab", f"token {step} is not in the mask")  # type: ignore[arg-type]
        return line("xgrammar", constraint, "fill", Outcome("wrong", str(first), first))

    loose, strict = faults(
        study(
            tmp_path, wrong("flat/a", 3, "too loose"), wrong("flat/b", 9, "too loose"), wrong("flat/c", 1, "too strict")
        )
    )
    assert (loose.cells, loose.constraints, loose.direction) == (2, ("flat/a", "flat/b"), "too loose")
    assert (loose.example["constraint"], loose.example["step"], loose.example["token"]) == ("flat/a", 3, 5)
    assert (strict.cells, strict.direction) == (1, "too strict")


def test_a_fault_counts_cells_and_not_stages(tmp_path: Path) -> None:
    wrong = Outcome("wrong", difference=difference("flat/user"))
    (found,) = faults(
        study(tmp_path, *(line("xgrammar", stage=s, outcome=wrong) for s in ("compile", "fill", "accept")))
    )
    assert found.cells == 1


def test_surprises_say_what_was_expected_and_what_came(tmp_path: Path) -> None:
    odd = {"expected": "unsupported", "as_expected": False, "expected_reason": "no recursion"}
    (found,) = surprises(
        study(
            tmp_path,
            line("outlines", "flat/a", "compile", OK, **odd),
            line("outlines", "flat/a", "fill", OK, **odd),
            line("outlines", "flat/b", "fill", OK),
        )
    )
    assert (found.constraint, found.expected, found.outcome, found.cells) == ("flat/a", "unsupported", "ok", 1)
    assert (found.stages, found.reason) == (("compile", "fill"), "no recursion")


def test_coverage_counts_cases_once_and_times_the_right_ones(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/a", "fill", OK, later(10.0), process=0),
        line("xgrammar", "flat/a", "fill", OK, later(30.0), process=1),
        line("xgrammar", "flat/b", "fill", OK, later(40.0)),
        line("xgrammar", "flat/c", "fill", Outcome("wrong", difference=difference("x")), later(1.0)),
        line("xgrammar", "regex/d", "fill", Outcome("unsupported", "no")),
    )
    flat = coverage(made, "xgrammar", "flat")
    assert (flat.counts, flat.fill_median_ns, flat.right, flat.total) == ({"ok": 2, "wrong": 1}, 30.0, 2, 3)
    assert coverage(made, "xgrammar").counts == {"ok": 2, "unsupported": 1, "wrong": 1}
