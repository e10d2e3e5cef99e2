"""A chain of drafts: sentinels from the first refusal on, the reference engine's rows, the matcher where it was."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import bitmask
from harness.backends.protocol import NativeDrafts
from harness.speculation import chain
from harness.speculation.chain import SENTINEL, Acceptance, Chain
from harness.speculation.lookahead import row_of

from .subjects import EOS, TRACE, VOCABULARY, continuations, every, positions, subject

NATIVE = ("xgrammar", "llguidance")


@every
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sentinels_begin_at_the_first_draft_that_the_reference_refuses(name: str, data: st.DataObject) -> None:
    one = subject(name)
    at = data.draw(positions)
    drafts = data.draw(continuations(at, 5))
    kept = chain.filtered(one.guarded(TRACE[:at]), drafts, EOS)
    right = one.right_length(TRACE[:at], drafts)
    assert kept.drafts == (*drafts[:right], *[SENTINEL] * (len(drafts) - right))
    assert kept.kept == right
    assert SENTINEL not in kept.steps
    assert not EOS & set(kept.steps)


@every
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_are_the_references_and_the_matcher_is_where_it_was(name: str, data: st.DataObject) -> None:
    _check_rows(name, data, native=False)


@pytest.mark.parametrize("name", NATIVE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_librarys_own_rows_are_the_references_too(name: str, data: st.DataObject) -> None:
    _check_rows(name, data, native=True)


def _check_rows(name: str, data: st.DataObject, *, native: bool) -> None:
    one = subject(name)
    at = data.draw(positions)
    kept = chain.filtered(one.guarded(TRACE[:at]), data.draw(continuations(at, 5)), EOS)
    matcher = one.native(TRACE[:at])
    rows = np.full((kept.rows + 2, VOCABULARY.words), -1, dtype=np.int32)
    if native:
        call = cast(NativeDrafts, matcher).draft_chain_call(kept.steps, rows)
    else:
        call = chain.rows_call(matcher, kept, rows)
    for _ in range(2):  # the second time, from a state that was rewound
        call()
        for i in range(kept.rows):
            assert np.array_equal(rows[i], one.right_row((*TRACE[:at], *kept.steps[:i])))
        assert (rows[kept.rows :] == -1).all(), "rows behind a sentinel are left alone"
        assert np.array_equal(row_of(matcher, VOCABULARY.size), one.right_row(TRACE[:at]))
    assert all(map(matcher.accept, (*TRACE[at:], *one.ending)))
    assert matcher.is_accepting()


def test_sentinels_are_no_part_of_the_statistics_of_acceptance() -> None:
    refused = Chain((5, 6, SENTINEL, SENTINEL), 2, (5, 6))
    assert chain.acceptance(refused, (5, 6, 7, 8)) == Acceptance(drafted=2, accepted=2)
    assert chain.acceptance(refused, (5, 9, 7, 8)) == Acceptance(drafted=2, accepted=1)
    assert chain.acceptance(refused, (5,)) == Acceptance(drafted=2, accepted=1)


def test_an_end_of_sequence_is_kept_and_nothing_is_filled_behind_it() -> None:
    one = subject("reference")
    (eos,) = EOS
    kept = chain.filtered(one.guarded(TRACE), (eos, *TRACE[:2]), EOS)
    assert kept == Chain((eos, SENTINEL, SENTINEL), 1, ())
    assert kept.rows == 1
    rows = bitmask.allocate(kept.rows, VOCABULARY.size)
    chain.rows_call(one.native(TRACE), kept, rows)()
    assert bitmask.test(rows[0], eos)
