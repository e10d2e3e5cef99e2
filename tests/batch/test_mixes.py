"""What stands in the rows of a batch."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from harness.batch.mixes import MIXES, Batch, Mixer
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from tests.batch.jobs import companion, job, serial_rows
from tests.fake_backends import Fake
from tests.making import VOCABULARY

TWO = ("yes", "nana")
OTHERS = (
    companion("test/ids", Constraint("choice", '["id", "value"]'), ("id", "value")),
    companion("test/ends", Constraint("choice", '["true"]'), ("true",)),
)


def choice(*texts: str) -> Constraint:
    return Constraint("choice", json.dumps(texts))


def mixer(backend: Fake | None = None) -> Mixer:
    return Mixer(job(backend or Fake(), choice(*TWO), TWO, companions=OTHERS))


def places(batch: Batch) -> list[tuple[str, str, int]]:
    return [(row.constraint, row.document, len(row.tokens)) for row in batch.rows]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_a_mix_has_as_many_matchers_as_rows_each_at_its_own_place_and_the_same_in_every_run(
    mix: str, rows: int
) -> None:
    one, other = mixer().batch(mix, rows), mixer().batch(mix, rows)
    assert places(one) == places(other)
    assert len(one.rows) == len({id(m) for m in one.matchers}) == rows
    assert np.array_equal(serial_rows(one.matchers), serial_rows(other.matchers))
    for row in one.rows:
        assert row.matcher.accept(row.next_token)


def test_identical_rows_stand_in_the_middle_of_the_longest_document() -> None:
    batch = mixer().batch("identical", 5)
    longest = job(Fake(), choice(*TWO), TWO).longest()
    assert set(places(batch)) == {("test/own", longest.name, len(longest.tokens) // 2)}
    assert batch.states == 1


def test_positions_are_spread_over_all_documents_and_repeat_where_rows_are_more() -> None:
    documents = job(Fake(), choice(*TWO), TWO).documents
    every = [("test/own", d.name, position) for d in documents for position in range(len(d.tokens) + 1)]
    assert places(mixer().batch("positions", len(every))) == every
    few = places(mixer().batch("positions", 2))
    assert few == [every[0], every[-1]]
    repeated = Counter(places(mixer().batch("positions", 3 * len(every))))
    assert set(repeated) == set(every)
    assert max(repeated.values()) <= 4


def test_states_are_told_apart_by_constraint_and_tokens_not_by_document() -> None:
    batch = Mixer(job(Fake(), choice("nana", "name"), ("nana", "name"))).batch("positions", 40)
    assert batch.states == len({row.tokens for row in batch.rows}) < len(set(places(batch)))


def test_schemas_alternate_and_each_is_spread_over_its_own_documents() -> None:
    rows = places(mixer().batch("schemas", 30))
    assert [constraint for constraint, *_ in rows[:4]] == ["test/own", "test/ids", "test/ends", "test/own"]
    for name, *_ in rows[:3]:
        mine = [(document, position) for constraint, document, position in rows if constraint == name]
        assert len(mine) == 10
        assert len(set(mine)) > 1


def test_separate_rows_have_a_grammar_each_and_other_rows_share_one() -> None:
    compiled: list[None] = []
    backend = Fake(fault=lambda: compiled.append(None), at="compile")
    made = mixer(backend)
    separate = made.batch("separate", 6)
    assert len(compiled) == 1 + 6
    assert places(separate) == places(made.batch("positions", 6))
    made.batch("identical", 6)
    assert len(compiled) == 1 + 6


def test_a_cell_without_companions_has_no_schemas_to_alternate() -> None:
    alone = companion("test/own", choice(*TWO), TWO)  # the cell's own constraint is no companion to itself
    for companions in ((), (alone,)):
        with pytest.raises(UnsupportedError, match="no companions"):
            Mixer(job(Fake(), choice(*TWO), TWO, companions=companions)).batch("schemas", 4)


def test_a_companion_that_the_backend_refuses_is_named() -> None:
    refused = companion("test/pattern", Constraint("regex", "a+"), ("a",))
    with pytest.raises(UnsupportedError, match="companion test/pattern: the fake compiles choices only"):
        Mixer(job(Fake(), choice(*TWO), TWO, companions=[refused])).batch("schemas", 4)


def test_a_companions_documents_are_cut_to_what_is_accepted_and_named_where_that_is_nothing() -> None:
    half = companion("test/half", choice("yesno"), ("yesyes", "id"))
    rows = Mixer(job(Fake(), choice(*TWO), TWO, companions=[half])).batch("schemas", 40).rows
    assert {row.tokens for row in rows if row.constraint == "test/half"} == {(), (VOCABULARY.tokens.index(b"yes"),)}
    none = companion("test/none", choice("yes"), ("id",))
    with pytest.raises(UnsupportedError, match="companion test/none: no document"):
        Mixer(job(Fake(), choice(*TWO), TWO, companions=[none])).batch("schemas", 4)
