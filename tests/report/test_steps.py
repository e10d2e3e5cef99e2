"""Figures of the decode step: each caption says the numbers of the data, and without data there is no figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cell import Measurement, Outcome, Record, Refusal
from harness.report import style
from harness.report.canvas import Drawn
from harness.report.causes import refusals
from harness.report.page import write
from harness.report.steps import (
    NAMES,
    STEPS,
    against_bound,
    bounded,
    exposed,
    rollback_history,
    share_of_step,
    speculation,
    threshold,
)
from harness.report.study import Study
from harness.results import load
from tests.report.exact import OK, later, line, study, timed
from tests.report.synthetic import Case, cell, difference, write_run

WRONG = Outcome("wrong", difference=difference("flat/user"))


def drawn(make: Callable[[Study], Drawn | None], of: Study) -> Drawn:
    """A figure that there is, laid out; its name is its function's, which the page goes by."""
    with style.context():
        found = make(of)
        assert found is not None
        found.figure.canvas.draw()
    assert found.name == make.__name__
    return found


def batch(policy: str, rows: int, us: float, **setting: int) -> Measurement:
    return timed([us * 1e3] * 5, {"policy": policy, "mix": "positions", "rows": rows, **setting})


def batches(pool_us: Sequence[float]) -> list[Measurement]:
    """Serial at 1 µs a row; the pool, which works from 16 rows on, at the times given."""
    pooled = zip((16, 129, 256), pool_us, strict=True)
    return [
        *(batch("serial", rows, rows) for rows in (1, 16, 129, 256)),
        batch("vllm_pool", 1, 1.0, threshold=15),
        *(batch("vllm_pool", rows, us, threshold=15, chunk=16, threads=2) for rows, us in pooled),
    ]


def test_the_pool_s_caption_says_from_where_on_it_is_faster_and_where_never(tmp_path: Path) -> None:
    made = study(
        tmp_path,
        line("xgrammar", "flat/user", "batch_fill", OK, *batches((32.0, 100.0, 128.0))),
        line("llguidance", "flat/user", "batch_fill", OK, *batches((8.0, 258.0, 512.0))),
    )
    finding = drawn(threshold, made).finding
    assert "xgrammar from 129 rows on (× 0.5 (0.5 to 0.5) at 256 rows)" in finding
    assert "llguidance never (× 2 (2 to 2) at 256 rows)" in finding


def test_a_pool_that_fills_one_by_one_is_not_taken_for_one(tmp_path: Path) -> None:
    below = [batch(p, r, r, **s) for r in (1, 16) for p, s in (("serial", {}), ("vllm_pool", {"threshold": 128}))]
    made = study(tmp_path, line("xgrammar", "flat/user", "batch_fill", OK, *below))
    assert "xgrammar not timed under both" in drawn(threshold, made).finding


def test_the_share_of_a_step_is_said_with_and_without_sharing(tmp_path: Path) -> None:
    measured = [
        batch(policy, rows, us * rows) for rows in (1, 64) for policy, us in (("serial", 100.0), ("state_shared", 25.0))
    ]
    finding = drawn(share_of_step, study(tmp_path, line("xgrammar", "flat/user", "batch_fill", OK, *measured))).finding
    assert "positions, 64 rows: xgrammar 32 % serial, 8 % state shared." in finding


def kernel(name: str, ns: float, device: str = "cpu", dtype: str = "float32") -> Measurement:
    conditions = {"kernel": name, "dtype": dtype, "rows": 64, "device": device}
    return timed([ns] * 3, conditions, bound_ns=[1_000.0] * 3, bytes_moved=[9] * 3)


def test_the_fastest_kernel_is_named_with_its_ratio_to_the_bound(tmp_path: Path) -> None:
    some = [kernel("numpy", 8_000.0), kernel("torch", 2_500.0), kernel("torch", 5_000.0, dtype="bfloat16")]
    finding = drawn(against_bound, study(tmp_path, line("xgrammar", "flat/user", "apply", OK, *some))).finding
    assert (
        "apply on cpu, 64 rows, 1 case, fastest right kernel: torch (float32) 2.50 µs, 2.5 times the bound" in finding
    )
    assert "torch (bfloat16) 5.00 µs, 5.0 times the bound" in finding
    assert "Not run on a GPU." in finding


def test_a_device_has_a_panel_and_a_sentence_of_its_own(tmp_path: Path) -> None:
    some = [kernel("numpy", 8_000.0), kernel("torch", 1_100.0, device="Some GPU")]
    finding = drawn(against_bound, study(tmp_path, line("xgrammar", "flat/user", "apply", OK, *some))).finding
    assert "apply on Some GPU, 64 rows, 1 case, fastest right kernel: torch (float32) 1.10 µs" in finding
    assert "Not run on a GPU" not in finding


def test_growth_with_history_is_said_with_its_exponent(tmp_path: Path) -> None:
    def rewinds(backend: str, slope: float) -> dict[str, Any]:
        sizes = (16, 256, 4096)
        own = [timed([100.0 + slope * n] * 5, {"rollback_tokens": 1, "history": n}) for n in sizes]
        return line(backend, "flat/user", "rollback", OK, *own)

    finding = drawn(rollback_history, study(tmp_path, rewinds("xgrammar", 0.0), rewinds("llguidance", 1.0))).finding
    assert "xgrammar: constant from 16 to 4096" in finding
    assert "llguidance: grows as n^1.00" in finding


def test_drafts_are_said_at_the_largest_number_of_them(tmp_path: Path) -> None:
    own = [
        timed([ns * k] * 3, {"shape": "chain", "policy": policy, "drafts": "right", "draft_tokens": k})
        for policy, ns in (("generic", 1_000.0), ("native", 500.0))
        for k in (1, 8)
    ]
    finding = drawn(speculation, study(tmp_path, line("xgrammar", "flat/user", "speculate", OK, *own))).finding
    assert "chain, right drafts, 8: xgrammar generic 8.00 µs and xgrammar native 4.00 µs." in finding


def fills(ns: float, positions: int) -> Measurement:
    at = range(positions)
    return timed([ns] * positions, {"visit": "later"}, position=at, document=["valid/0"] * positions)


def test_bounded_repetition_is_compared_with_its_twin_where_both_stand(tmp_path: Path) -> None:
    # Past the bounded document's end the twin is a hundred times slower: that is not compared.
    steps = [*[1_000.0] * 10, *[100_000.0] * 30]
    twin = timed(steps, {"visit": "later"}, position=range(40), document=["valid/0"] * 40)
    made = study(
        tmp_path,
        line("xgrammar", "bounded/items_8", "fill", OK, fills(2_000.0, 10)),
        line("xgrammar", "bounded/items_64", "fill", OK, fills(3_000.0, 10)),
        line("xgrammar", "bounded/items_unbounded", "fill", OK, twin),
    )
    assert "items: xgrammar × 3 (3 to 3) at 64." in drawn(bounded, made).finding


def test_exposed_time_is_said_by_mode(tmp_path: Path) -> None:
    own = [
        timed([ns * rows] * 3, {"mode": mode, "wait": "sleep", "forward_us": 20_000, "rows": rows, "policy": "serial"})
        for mode, ns in (("overlapped", 1_000.0), ("serialised", 9_000.0))
        for rows in (1, 16)
    ]
    finding = drawn(exposed, study(tmp_path, line("xgrammar", "flat/user", "step", OK, *own))).finding
    assert "Pass of 20.0 ms, 16 rows: xgrammar overlapped 16.0 µs and xgrammar serialised 144 µs." in finding


ONE_OF_EACH = (
    ("batch_fill", batches((1.0, 1.0, 1.0))),
    ("batch_fill", [batch("serial", 1, 1.0), batch("state_shared", 1, 1.0)]),
    ("apply", [kernel("numpy", 8_000.0)]),
    ("rollback", [timed([1.0], {"rollback_tokens": 1, "history": n}) for n in (16, 256)]),
    ("speculate", [timed([1.0], {"shape": "chain", "policy": "generic", "drafts": "right", "draft_tokens": 1})]),
    ("fill", [fills(1.0, 3)]),
    ("step", [timed([1.0], {"mode": "barrier", "wait": "sleep", "forward_us": 5_000, "rows": 1, "policy": "serial"})]),
)


@pytest.mark.parametrize(("make", "data"), list(zip(STEPS, ONE_OF_EACH, strict=True)), ids=NAMES)
@pytest.mark.parametrize("outcome", [OK, WRONG], ids=["right", "wrong"])
def test_wrong_cells_are_not_drawn(
    tmp_path: Path, make: Callable[[Study], Drawn | None], data: tuple[str, list[Measurement]], outcome: Outcome
) -> None:
    """The least data of which a figure is made, one point of a line included, make none where they are wrong."""
    stage, own = data
    made = study(tmp_path, line("xgrammar", "bounded/items_8", stage, outcome, *own))
    if outcome is OK:
        drawn(make, made)
    else:
        assert make(made) is None


@pytest.mark.parametrize("make", STEPS, ids=NAMES)
def test_there_is_no_figure_without_its_data(tmp_path: Path, make: Callable[[Study], Drawn | None]) -> None:
    assert make(study(tmp_path / "other", line("xgrammar", "flat/user", "fill", OK, later(1_000.0)))) is None
    assert make(study(tmp_path / "none")) is None


def test_refusals_are_gathered_by_cause_and_wrong_ones_come_first(tmp_path: Path) -> None:
    refused = (
        *(Refusal({"kernel": "k", "rows": rows}, "unsupported", "it needs <b>a device</b>") for rows in (1, 64)),
        Refusal({"kernel": "torch", "rows": 1}, "wrong", "row 0, token 7 differs"),
    )
    record = Record("apply", Outcome("wrong", "row 0, token 7 differs"), (kernel("numpy", 8_000.0),), refusals=refused)
    fields = {"expected": None, "as_expected": True}
    path = write_run(tmp_path / "run", [record.to_json(cell(Case("xgrammar", "flat/user", "deepseek", 0))) | fields])
    first, second = refusals(Study(load(path)))
    assert (first.kind, first.text, first.conditions) == ("wrong", "row 0, token 7 differs", "kernel=torch, rows=1")
    assert (second.kind, second.conditions, second.cells) == ("unsupported", "kernel=k, rows=1 64", 1)
    page = write([path], tmp_path / "report").read_text(encoding="utf-8")
    assert "Conditions that were not timed" in page
    assert "it needs &lt;b&gt;a device&lt;/b&gt;" in page


def test_the_figures_of_the_step_are_on_the_page(tmp_path: Path) -> None:
    own = line("xgrammar", "flat/user", "apply", OK, kernel("torch", 2_500.0))
    path = write_run(tmp_path / "run", [own])
    page = write([path], tmp_path / "report").read_text(encoding="utf-8")
    assert 'id="figure-against_bound"' in page
    assert "2.5 times the bound" in page
    assert "2.5 times the bound" in (tmp_path / "report" / "summary.md").read_text(encoding="utf-8")
