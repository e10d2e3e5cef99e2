"""What may be compared with what: only right cells, only on common cases, the process as the unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cell import Outcome
from harness.report.study import Growth, compile_ratio, compile_states, growth, walks, worst
from tests.report.exact import OK, later, line, study, timed
from tests.report.synthetic import difference

WRONG = Outcome("wrong", difference=difference("flat/user"))
LATER = "visit=later"


def test_the_value_of_a_case_is_the_median_over_its_processes_of_their_medians(tmp_path: Path) -> None:
    # Pooling the samples would give 1: most samples are of process 0.
    lines = [
        line("xgrammar", "flat/user", "fill", OK, later(*[1.0] * 50), process=0),
        line("xgrammar", "flat/user", "fill", OK, later(10.0, 20.0, 30.0), process=1),
        line("xgrammar", "flat/user", "fill", OK, later(100.0), process=2),
    ]
    timing = study(tmp_path, *lines).timing
    assert timing[["median_ns", "processes"]].to_numpy().tolist() == [[20.0, 3]]


def test_a_wrong_cell_is_never_ranked_however_fast(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        line("xgrammar", "flat/user", "fill", WRONG, later(1.0)),
        line("llguidance", "flat/user", "fill", OK, later(50.0)),
        line("outlines", "flat/user", "fill", OK, later(60.0)),
    ).ranking("fill", LATER)
    assert found is not None
    assert found.medians_ns == {"llguidance": 50.0, "outlines": 60.0}
    assert found.left_out == ("xgrammar",)


def test_one_wrong_process_takes_the_whole_case_out(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/user", "fill", OK, later(1.0), process=0),
        line("xgrammar", "flat/user", "fill", WRONG, later(1.0), process=1),
        line("llguidance", "flat/user", "fill", OK, later(50.0)),
    )
    assert made.ranking("fill", LATER) is None
    assert set(made.timing["series"]) == {"llguidance"}


def test_backends_are_ranked_on_the_cases_that_all_of_them_have_right(tmp_path: Path) -> None:
    # xgrammar is slow on flat/b, which llguidance cannot do: over all its own cases it would look slower.
    found = study(
        tmp_path,
        line("xgrammar", "flat/a", "fill", OK, later(10.0)),
        line("xgrammar", "flat/b", "fill", OK, later(10_000.0)),
        line("xgrammar", "flat/c", "fill", OK, later(30.0)),
        line("llguidance", "flat/a", "fill", OK, later(40.0)),
        line("llguidance", "flat/b", "fill", Outcome("unsupported", "no")),
        line("llguidance", "flat/c", "fill", OK, later(20.0)),
    ).ranking("fill", LATER)
    assert found is not None
    assert found.cases == ("flat/a", "flat/c")
    assert list(found.medians_ns.items()) == [("xgrammar", 20.0), ("llguidance", 30.0)]
    assert found.quartiles_ns["llguidance"] == (25.0, 35.0)


def test_without_a_common_case_nothing_is_ranked(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/a", "fill", OK, later(10.0)),
        line("llguidance", "flat/b", "fill", OK, later(20.0)),
    )
    assert made.ranking("fill", LATER) is None
    assert made.distribution("later").common is False


def test_one_backend_alone_is_not_ranked(tmp_path: Path) -> None:
    assert study(tmp_path, line("xgrammar", "flat/a", "fill", OK, later(10.0))).ranking("fill", LATER) is None


def test_the_same_constraint_with_another_vocabulary_is_another_case(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/a", "fill", OK, later(10.0), vocabulary="small"),
        line("xgrammar", "flat/a", "fill", OK, later(20.0), vocabulary="large"),
    )
    assert sorted(made.timing["case"]) == ["flat/a · large", "flat/a · small"]


def test_environments_and_profiles_make_series_only_where_there_are_several(tmp_path: Path) -> None:
    one = line("xgrammar", "flat/a", "fill", OK, later(10.0))
    assert study(tmp_path / "one", one).series == ("xgrammar",)
    other = line("xgrammar", "flat/a", "fill", OK, later(10.0), process=1) | {"environment": "old"}
    assert study(tmp_path / "two", one, other).series == ("xgrammar @ default", "xgrammar @ old")
    compact = line("xgrammar", "flat/a", "fill", OK, later(10.0), process=1) | {"profile": "compact"}
    assert study(tmp_path / "three", one, compact).series == ("xgrammar / compact", "xgrammar / default")


def test_a_fill_that_was_cut_short_does_not_stand_for_its_case(tmp_path: Path) -> None:
    # Cheap first steps: with three of them alone, outlines would come out ahead of a walk to the end.
    def walk(backend: str, constraint: str, steps: int) -> dict[str, Any]:
        times = [1.0 if p < 5 else 100.0 for p in range(steps)]
        first = timed(times, {"visit": "first"}, position=range(steps), document=["valid/0"] * steps)
        return line(backend, constraint, "fill", OK, first)

    made = study(
        tmp_path,
        walk("xgrammar", "flat/a", 100),
        walk("outlines", "flat/a", 3),
        walk("xgrammar", "flat/b", 10),
        walk("outlines", "flat/b", 6),
    )
    assert made.cut_short[["series", "case", "visit", "share"]].to_numpy().tolist() == [
        ["outlines", "flat/a", "first", 0.03]
    ]
    found = made.ranking("fill", "visit=first")
    assert found is not None
    assert found.cases == ("flat/b",)
    assert set(made.fills.loc[made.fills["series"] == "outlines", "case"]) == {"flat/b"}


def test_a_distribution_weighs_every_case_the_same(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/a", "fill", OK, later(*[1.0] * 99)),
        line("xgrammar", "flat/b", "fill", OK, later(1_000.0)),
    )
    weighted = made.distribution("later").series["xgrammar"]
    assert weighted.quantile(0.49) == 1.0
    assert weighted.quantile(0.51) == 1_000.0
    assert weighted.samples == 100


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["ok", "unsupported"], "ok"),
        (["unsupported", "unsupported"], "unsupported"),
        (["ok", "wrong", "timeout"], "wrong"),
        (["ok", "timeout"], "timeout"),
        (["ok", "crash", "timeout"], "crash"),
        (["compile_error", "unsupported"], "compile_error"),
    ],
)
def test_a_case_has_the_outcome_that_matters_most(outcomes: list[str], expected: str) -> None:
    assert worst(outcomes) == expected


def along(tmp_path: Path, times: list[float]) -> Growth:
    steps = list(range(len(times)))
    one = timed(times, {"visit": "later"}, position=steps, document=["valid/0"] * len(steps))
    made = study(tmp_path, line("xgrammar", "flat/a", "fill", OK, one))
    (walk,) = walks(made)
    assert (walk.case, walk.document, walk.positions) == ("flat/a", "valid/0", len(times))
    return growth(made, walk)["xgrammar"]


def test_growth_is_the_last_quarter_over_the_first(tmp_path: Path) -> None:
    found = along(tmp_path, [1.0 if p < 25 else 2.0 if p < 75 else 3.0 for p in range(100)])
    assert (found.ratio, found.rises) == (3.0, True)
    assert found.correlation > 0.9


def test_a_document_whose_end_differs_does_not_rise(tmp_path: Path) -> None:
    # Dear and cheap steps in turn; the last quarter just holds more of the dear ones.
    found = along(tmp_path, [9.0 if p % 5 in ((0, 1, 2) if p >= 75 else (0, 1)) else 1.0 for p in range(100)])
    assert (found.ratio, found.rises) == (9.0, False)


def test_times_that_are_all_the_same_do_not_rise(tmp_path: Path) -> None:
    found = along(tmp_path, [5.0] * 100)
    assert (found.ratio, found.correlation, found.rises) == (1.0, 0.0, False)


def test_a_series_that_never_came_to_the_end_of_a_walk_has_no_growth(tmp_path: Path) -> None:
    steps = list(range(100))
    whole = timed([1.0] * 100, {"visit": "later"}, position=steps, document=["valid/0"] * 100)
    part = timed([1.0] * 30, {"visit": "later"}, position=steps[:30], document=["valid/0"] * 30)
    made = study(tmp_path, line("xgrammar", "flat/a", "fill", OK, whole), line("outlines", "flat/a", "fill", OK, part))
    assert set(growth(made, walks(made)[0])) == {"xgrammar"}


def compiled(backend: str, constraint: str, **ns: float) -> dict[str, Any]:
    return line(backend, constraint, "compile", OK, *(timed([t], {"cache": c}) for c, t in ns.items()))


def test_each_compile_state_has_a_common_set_of_its_own(tmp_path: Path) -> None:
    found = compile_states(
        study(
            tmp_path,
            compiled("xgrammar", "flat/a", new_schema=10.0, process_cold=100.0),
            compiled("xgrammar", "flat/b", new_schema=30.0),
            compiled("xgrammar", "flat/c", new_schema=1e9),
            compiled("llguidance", "flat/a", new_schema=5.0, process_cold=500.0),
            compiled("llguidance", "flat/b", new_schema=7.0),
        )
    )
    assert (found["new_schema"].on, found["process_cold"].on) == ("2 common cases", "1 common case")
    assert found["new_schema"].medians_ns == {"llguidance": 6.0, "xgrammar": 20.0}
    assert found["process_cold"].medians_ns == {"xgrammar": 100.0, "llguidance": 500.0}


def test_compile_states_compare_within_a_case(tmp_path: Path) -> None:
    # Medians over all cases would give 1000 / 20.
    made = study(
        tmp_path,
        compiled("xgrammar", "flat/a", new_schema=10.0, same_schema=1.0),
        compiled("xgrammar", "flat/b", new_schema=1_000.0, same_schema=20.0),
        compiled("xgrammar", "flat/c", new_schema=9_000.0, same_schema=100.0),
        compiled("xgrammar", "flat/d", new_schema=9_000.0),
    )
    assert compile_ratio(made, "xgrammar", "new_schema", "same_schema") == 50.0
    assert compile_ratio(made, "xgrammar", "process_cold", "new_schema") is None


def test_an_untimed_run_has_no_times_even_where_bodies_ran_once(tmp_path: Path) -> None:
    made = study(tmp_path, line("xgrammar", "flat/a", "fill", OK, later(10.0)), timed=False)
    assert made.timing.empty
    assert made.headline_of("fill") is None
