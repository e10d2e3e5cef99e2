"""The stage speculate: what is timed, how drafts fared, and what is called wrong instead of timed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.stages import Job, stages
from tests.batch.jobs import job
from tests.fake_backends import Fake

from .rewinding import Rewinding, forgetting_one

TEXT = "abqyesno" * 4
OTHER = "abq" + "abyesno" * 4
CHOICE = Constraint("choice", json.dumps([TEXT, OTHER]))
ALL = {"shape": ("chain", "tree"), "drafts": ("right", "half_right", "wrong"), "draft_tokens": (1, 4)}


def run(the_job: Job) -> tuple[list[Measurement], list[Refusal]]:
    results = stages()["speculate"].run(the_job)
    return [r for r in results if isinstance(r, Measurement)], [r for r in results if isinstance(r, Refusal)]


def of(measured: list[Measurement], **conditions: Any) -> Measurement:
    (found,) = [m for m in measured if conditions.items() <= m.conditions.items()]
    return found


def columns(measured: list[Measurement], **conditions: Any) -> Mapping[str, tuple[Any, ...]]:
    return of(measured, **conditions).columns


def test_every_shape_source_and_number_of_drafts_is_timed_by_the_generic_walk() -> None:
    measured, refused = run(job("naive", CHOICE, (TEXT,), conditions=ALL))
    assert len(measured) == 12
    assert {m.conditions["policy"] for m in measured} == {"generic"}
    assert len(refused) == 12
    assert {(r.kind, r.conditions["policy"]) for r in refused} == {("unsupported", "native")}
    for measurement in measured:
        positions = measurement.columns["position"]
        assert positions == tuple(sorted(positions))
        assert set(positions) == {0, 2, 4, 6, 8}


def test_columns_say_how_many_rows_were_filled_and_how_the_drafts_fared() -> None:
    measured, _ = run(job("naive", CHOICE, (TEXT,), conditions=ALL))
    right = columns(measured, shape="chain", drafts="right", draft_tokens=4)
    assert set(right["rows_filled"]) == {5}
    assert set(right["drafts_kept"]) == set(right["drafts_accepted"]) == {4}
    for shape in ("chain", "tree"):
        wrong = columns(measured, shape=shape, drafts="wrong", draft_tokens=4)
        assert set(wrong["rows_filled"]) == {1}
        assert set(wrong["drafts_kept"]) == set(wrong["drafts_accepted"]) == {0}
        half = columns(measured, shape=shape, drafts="half_right", draft_tokens=4)
        for rows, kept, accepted in zip(half["rows_filled"], half["drafts_kept"], half["drafts_accepted"], strict=True):
            assert rows == kept + 1
            assert 0 <= accepted <= kept <= 4


def test_the_axes_that_a_cell_names_are_all_that_is_timed() -> None:
    asked = {"shape": ("tree",), "policy": ("generic", "serial"), "drafts": ("right",), "draft_tokens": (2, 99)}
    measured, refused = run(job("naive", CHOICE, (TEXT,), conditions=asked))
    assert [m.conditions for m in measured] == [
        {"shape": "tree", "policy": "generic", "drafts": "right", "draft_tokens": 2}
    ]
    assert refused == []


def test_a_rewind_that_forgets_a_token_is_wrong_wherever_drafts_are_accepted() -> None:
    measured, refused = run(job(Rewinding(forgetting_one), CHOICE, (TEXT,), conditions=ALL | {"policy": ("generic",)}))
    assert {m.conditions["drafts"] for m in measured} <= {"wrong", "half_right"}, "nothing moved, nothing to forget"
    wrong = {
        (r.conditions["shape"], r.conditions["draft_tokens"]) for r in refused if r.conditions["drafts"] == "right"
    }
    assert wrong == {("chain", 1), ("chain", 4), ("tree", 1), ("tree", 4)}
    for refusal in refused:
        assert refusal.kind == "wrong"
        assert "row" in refusal.reason
    chain = next(r for r in refused if r.conditions["shape"] == "chain" and r.conditions["drafts"] == "right")
    assert "the row after the rewind is not the row before" in chain.reason


def test_a_librarys_own_call_is_timed_where_it_gives_the_same_rows_and_wrong_where_one_bit_differs() -> None:
    asked = {"shape": ("chain",), "policy": ("native",), "drafts": ("right", "wrong"), "draft_tokens": (1, 4)}
    measured, refused = run(job(Rewinding(native=True), CHOICE, (TEXT,), conditions=asked))
    assert (len(measured), refused) == (4, [])

    def spoil_the_last(rows: Row) -> None:
        if len(rows) == 5:
            rows[4][2] ^= 1 << 7

    measured, refused = run(job(Rewinding(after_rows=spoil_the_last, native=True), CHOICE, (TEXT,), conditions=asked))
    assert [dict(r.conditions) for r in refused] == [
        {"shape": "chain", "policy": "native", "drafts": "right", "draft_tokens": 4}
    ]
    assert refused[0].kind == "wrong"
    assert "row 4" in refused[0].reason
    assert "1 bits too loose (token 71 …)" in refused[0].reason
    assert len(measured) == 3


def test_a_backend_without_rewind_is_unsupported_for_its_own_reason() -> None:
    backend = Fake()
    backend.capabilities = replace(Fake.capabilities, rollback=False, notes={"rollback": "its states cannot be left"})
    with pytest.raises(UnsupportedError, match="its states cannot be left"):
        run(job(backend, CHOICE, (TEXT,)))


def test_documents_shorter_than_any_number_of_drafts_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="fewer than any number of drafts"):
        run(job("naive", CHOICE, (TEXT,), conditions={"draft_tokens": (13,)}))


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
def test_real_libraries_fill_the_rows_of_drafts_rightly_by_either_policy(name: str) -> None:
    pytest.importorskip(name)
    measured, refused = run(job(name, CHOICE, (TEXT,), conditions=ALL))
    assert {r.kind for r in refused} <= {"unsupported"}
    chains = {(m.conditions["policy"], m.conditions["drafts"]) for m in measured if m.conditions["shape"] == "chain"}
    assert chains == {(policy, source) for policy in ("generic", "native") for source in ALL["drafts"]}
