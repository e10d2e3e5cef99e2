"""A label from outside is held against a backend only where it holds under the backend's own policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from harness import labels
from harness.cell import Cell
from harness.constraint import Constraint
from harness.profile import Profile
from tests.making import document

PLAIN = Profile(duplicate_keys="forbidden")
OBJECT = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}


def cell(schema: Any, valid: Sequence[str], invalid: Sequence[str] = (), name: str = "corpus/x") -> Cell:
    return Cell(
        id="i", scenario="s", backend="b", adapter="b", environment="default", vocabulary="v", vocabulary_path="",
        vocabulary_sha256="", constraint_name=name, constraint=Constraint("json_schema", json.dumps(schema)),
        stages=("compile",),
        valid=tuple(document(f"valid/{i}", text) for i, text in enumerate(valid)),
        invalid=tuple(document(f"invalid/{i}", text) for i, text in enumerate(invalid)),
    )  # fmt: skip


def test_labels_that_hold_stay() -> None:
    given = cell(OBJECT, ['{"b":1}', "{}"], ["[]", '{"b":"1"}'])
    assert labels.settle(given, PLAIN) == (given, {})
    assert labels.settle(given, replace(PLAIN, tokens="canonical")) == (given, {})


@pytest.mark.parametrize(
    ("schema", "text", "profile"),
    [
        (OBJECT, '{"a":0,"b":1}', replace(PLAIN, key_order="declared")),
        (OBJECT, '{"c":0}', replace(PLAIN, additional_properties=False)),
        ({"pattern": "b"}, '"abc"', replace(PLAIN, pattern="full")),
        ({"type": "number"}, "1e5", replace(PLAIN, numbers="plain")),
    ],
)
def test_a_valid_document_that_the_policy_shuts_out_is_left_out(schema: Any, text: str, profile: Profile) -> None:
    settled, left_out = labels.settle(cell(schema, [text, '""' if "pattern" in schema else "{}"]), profile)
    assert left_out["valid/0"] == labels.POLICY
    assert "valid/0" not in [d.name for d in settled.valid]


def test_an_invalid_document_that_only_format_refuses_is_left_out_where_format_does_not_bind() -> None:
    given = cell({"format": "date"}, ['"2020-01-01"'], ['"today"'])
    settled, left_out = labels.settle(given, PLAIN)
    assert left_out == {"invalid/0": labels.POLICY}
    assert (settled.valid, settled.invalid) == (given.valid, ())
    assert labels.settle(given, replace(PLAIN, format="assertion")) == (given, {})


def test_a_label_that_is_wrong_is_disputed_and_nobody_is_blamed_by_it() -> None:
    settled, left_out = labels.settle(cell({"type": "integer"}, ['"1"', "1"], ["2"]), PLAIN)
    assert left_out == {"valid/0": labels.DISPUTED, "invalid/0": labels.DISPUTED}
    assert [d.name for d in settled.valid] == ["valid/1"]


def test_what_the_engine_cannot_decide_is_left_out_with_its_reason() -> None:
    remote = cell({"$ref": "elsewhere.json"}, ["1"], ["2"])
    settled, left_out = labels.settle(remote, PLAIN)
    assert (settled.valid, settled.invalid) == ((), ())
    assert all(why.startswith("not decided: ") and len(why) > len("not decided: ") for why in left_out.values())
    malformed = cell({"type": "nonsense"}, ["1"])
    assert labels.settle(malformed, PLAIN)[1]["valid/0"].startswith("not decided: ")


def test_a_cell_that_takes_too_long_keeps_what_was_decided_until_then() -> None:
    ticks = count(step=labels.LIMIT_S / 5)
    settled, left_out = labels.settle(cell(True, ["1", "2", "3", "4444", "5"]), PLAIN, lambda: next(ticks))
    assert [d.name for d in settled.valid] == ["valid/0", "valid/1", "valid/2"]
    assert set(left_out) == {"valid/3", "valid/4"} and all("30 s" in why for why in left_out.values())


def test_built_in_constraints_are_never_touched() -> None:
    wrong = cell({"type": "integer"}, ['"1"'], name="flat/x")
    assert labels.settle(wrong, PLAIN) == (wrong, {})
