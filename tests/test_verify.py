"""Verification finds each kind of fault, at its first place, by the judge that can know it, and accuses nobody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import bitmask
from harness.backends.protocol import NativeMatcher
from harness.backends.registry import create
from harness.bitmask import Row
from harness.cell import Cell, Difference
from harness.constraint import Constraint
from harness.profile import Profile
from harness.verify import Verdict, verify
from tests.fake_backends import Fake
from tests.making import VOCABULARY, choice_cell

EOS = VOCABULARY.eos_ids[0]
(YES,) = (t for t, b in enumerate(VOCABULARY.tokens) if b == b"yes")


def verdict_of(backend: Any, cell: Cell) -> Verdict:
    profile = backend.profiles["default"]
    return verify(cell, backend, backend.compile(cell.constraint, VOCABULARY, profile), VOCABULARY, profile)


def fault_of(backend: Any, cell: Cell) -> Difference:
    difference = verdict_of(backend, cell).difference
    assert difference is not None
    return difference


def spoiled(change: Callable[[Row], object]) -> Fake:
    return Fake(spoil=change)


def test_a_right_backend_is_found_right_and_its_rows_were_judged(tmp_path: Path) -> None:
    verdict = verdict_of(Fake(), choice_cell(tmp_path))
    assert verdict.difference is None
    assert verdict.judge == "reference"
    assert verdict.rows_judged >= 6
    assert verdict.accepted == {
        "valid/0": len(choice_cell(tmp_path).valid[0].tokens),
        "valid/1": len(choice_cell(tmp_path).valid[1].tokens),
        "valid/2": len(choice_cell(tmp_path).valid[2].tokens),
    }


def test_the_judge_finds_itself_right(tmp_path: Path) -> None:
    assert verdict_of(create("reference"), choice_cell(tmp_path)).difference is None


def test_a_token_of_the_trace_that_the_mask_forbids_is_too_strict(tmp_path: Path) -> None:
    fault = fault_of(spoiled(lambda row: bitmask.set_bit(row, YES, False)), choice_cell(tmp_path))
    assert (fault.document, fault.step, fault.token, fault.direction) == ("valid/0", 0, YES, "too strict")
    assert fault.judge == "trace"
    assert fault.token_bytes == "yes"


@pytest.mark.parametrize("token", [t for t, b in enumerate(VOCABULARY.tokens) if b in (b"z", b"00", b"\xf0")])
def test_any_bit_of_a_judged_row_counts(tmp_path: Path, token: int) -> None:
    fault = fault_of(spoiled(lambda row: bitmask.set_bit(row, token)), choice_cell(tmp_path))
    assert (fault.step, fault.token, fault.direction, fault.judge) == (0, token, "too loose", "reference")


def test_an_end_of_sequence_that_is_allowed_too_early_is_too_loose(tmp_path: Path) -> None:
    fault = fault_of(spoiled(lambda row: bitmask.set_bit(row, EOS)), choice_cell(tmp_path))
    assert (fault.step, fault.token, fault.token_bytes, fault.direction) == (0, EOS, "<eos>", "too loose")


def test_an_end_of_sequence_that_is_forbidden_at_the_end_is_too_strict(tmp_path: Path) -> None:
    fault = fault_of(spoiled(lambda row: bitmask.set_bit(row, EOS, False)), choice_cell(tmp_path))
    assert (fault.document, fault.token, fault.direction) == ("valid/0", EOS, "too strict")
    assert fault.step == len(choice_cell(tmp_path).valid[0].tokens)


def test_a_special_token_in_the_librarys_own_row_is_too_loose_though_the_guard_clears_it(tmp_path: Path) -> None:
    special = min(VOCABULARY.special_ids - {EOS})
    fault = fault_of(spoiled(lambda row: bitmask.set_bit(row, special)), choice_cell(tmp_path))
    assert (fault.document, fault.step, fault.token) == ("valid/0", 0, special)
    assert (fault.direction, fault.judge) == ("too loose", "contract")


@pytest.mark.parametrize("tokens", ["all", "canonical"])
def test_a_token_that_is_left_out_counts_under_the_token_policy_that_offers_it(tmp_path: Path, tokens: Any) -> None:
    class Declaring(Fake):
        profiles: Mapping[str, Profile] = {"default": Profile(tokens=tokens)}

    (na,) = (t for t, b in enumerate(VOCABULARY.tokens) if b == b"na")
    fault = fault_of(Declaring(spoil=lambda row: bitmask.set_bit(row, na, False)), choice_cell(tmp_path))
    assert (fault.step, fault.token, fault.direction, fault.judge) == (0, na, "too strict", "reference")


def test_a_canonical_policy_forbids_other_tokens_for_a_text_that_is_forced(tmp_path: Path) -> None:
    class Declaring(Fake):
        profiles: Mapping[str, Profile] = {"default": Profile(tokens="canonical")}

    cell = choice_cell(tmp_path, constraint=Constraint("choice", '["name"]'), valid=("name",), invalid=())
    fault = fault_of(Declaring(), cell)
    others = [t for t, b in enumerate(VOCABULARY.tokens) if b and b"name".startswith(b) and b != b"name"]
    assert (fault.step, fault.direction, fault.judge, fault.count) == (0, "too loose", "reference", len(others))


class Refusing:
    """A grammar whose matcher answers otherwise in one respect; everything else is the fake engine's."""

    def __init__(self, grammar: Any, change: Callable[[Any], object]) -> None:
        self._grammar = grammar
        self._change = change

    def native_matcher(self) -> NativeMatcher:
        matcher: NativeMatcher = self._grammar.native_matcher()
        self._change(matcher)
        return matcher


class Changed(Fake):
    """The fake engine with matchers changed as given."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        super().__init__()
        self._change = change

    def compile(self, *arguments: Any) -> Any:
        return Refusing(super().compile(*arguments), self._change)


def test_accept_may_not_refuse_what_the_mask_allows(tmp_path: Path) -> None:
    def refuse_all(matcher: Any) -> None:
        matcher.accept = lambda token: False

    fault = fault_of(Changed(refuse_all), choice_cell(tmp_path))
    assert (fault.document, fault.step, fault.judge, fault.direction) == ("valid/0", 0, "trace", "too strict")


def test_accept_may_not_take_what_the_mask_forbids(tmp_path: Path) -> None:
    def take_all(matcher: Any) -> None:
        matcher.accept = lambda token: True

    fault = fault_of(Changed(take_all), choice_cell(tmp_path))
    assert (fault.step, fault.judge, fault.direction) == (0, "refused token", "too loose")


def test_a_refused_token_must_leave_the_state_as_it_was(tmp_path: Path) -> None:
    def lose_the_state(matcher: Any) -> None:
        accept = matcher.accept

        def careless(token: int) -> bool:
            taken = accept(token)
            if not taken:
                matcher._choices = (b"no",)
            return bool(taken)

        matcher.accept = careless

    fault = fault_of(Changed(lose_the_state), choice_cell(tmp_path))
    assert (fault.step, fault.judge) == (0, "refused token")
    assert "changed after token" in fault.explanation


def test_is_accepting_may_not_contradict_the_mask(tmp_path: Path) -> None:
    def never_accepting(matcher: Any) -> None:
        matcher.is_accepting = lambda: False

    fault = fault_of(Changed(never_accepting), choice_cell(tmp_path))
    assert (fault.document, fault.judge, fault.direction) == ("valid/0", "contract", "too strict")


def test_an_invalid_document_that_is_allowed_to_its_end_is_too_loose(tmp_path: Path) -> None:
    cell = choice_cell(tmp_path, invalid=("yes",))  # labelled invalid, though the choice takes it
    fault = fault_of(Fake(), cell)
    assert (fault.document, fault.token, fault.judge) == ("invalid/0", EOS, "invalid document")
    assert fault.step == len(cell.invalid[0].tokens)


def test_a_wrong_backend_says_how_far_each_document_goes(tmp_path: Path) -> None:
    def stop_at_second(matcher: Any) -> None:
        accept = matcher.accept
        matcher.accept = lambda token: not matcher._history and accept(token)

    cell = choice_cell(tmp_path, valid=("name", "yes"))
    assert len(cell.valid[0].tokens) == 1  # one token, so that only its end is refused
    verdict = verdict_of(Changed(stop_at_second), cell)
    assert verdict.difference is not None
    assert verdict.accepted == {"valid/0": 1, "valid/1": 1}


def test_a_difference_reads_as_one_line(tmp_path: Path) -> None:
    line = str(fault_of(spoiled(lambda row: bitmask.set_bit(row, EOS)), choice_cell(tmp_path)))
    assert "\n" not in line
    assert "step 0 of valid/0: token" in line
    assert "too loose" in line


def test_the_row_after_the_last_token_of_an_invalid_document_is_judged_too(tmp_path: Path) -> None:
    fills: list[Row] = []
    cell = choice_cell(tmp_path)
    assert verdict_of(spoiled(fills.append), cell).difference is None
    last = len(fills)
    (wrong,) = (t for t, b in enumerate(VOCABULARY.tokens) if b == b"00")

    def spoil(row: Row) -> None:
        fills.append(row)
        if len(fills) == 2 * last:
            bitmask.set_bit(row, wrong)

    fault = fault_of(spoiled(spoil), cell)
    assert fault.document.startswith("invalid/")
    assert (fault.token, fault.direction, fault.judge) == (wrong, "too loose", "reference")
