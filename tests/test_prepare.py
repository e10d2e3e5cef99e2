"""Points become cells that a worker can run without asking anybody anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import prepare as prepare_module
from harness import scenario as scenarios
from harness.backends import registry
from harness.cell import Cell
from harness.errors import MasktaxError
from harness.prepare import prepare
from harness.profile import Profile
from harness.scenario import Known, Scenario
from harness.vocabulary import Vocabulary

KNOWN = Known(("flat/pair", "choice/answer"), ("synthetic",), ("spaced", "compact"), {})

SCENARIO = """
format = 1
name = "demo"
title = "t"
[analysis]
question = "q"
reading = "r"
[workload]
stages = ["compile", "fill"]
memory_limit_mb = 512
time_limit_s = 7
[measure]
min_samples = 3
[axes]
backend = ["spaced", "compact"]
vocabulary = ["synthetic"]
constraint = ["*"]
cache = ["new_schema"]
"""

FILES: Mapping[str, dict[str, Any]] = {
    "flat/pair": {
        "about": "a",
        "kind": "json_schema",
        "constraint": {"type": "object", "properties": {"b": {}, "a": {}}},
        "valid": [{"b": 1, "a": [1, 2]}, {"b": 2}, {"a": "é"}],
        "valid_where": [{"instance": {"c": 1}, "profile": {"additional_properties": True}}],
        "invalid": [{"instance": [n], "at": "/type", "why": "no object"} for n in range(3)],
    },
    "choice/answer": {
        "about": "a",
        "kind": "choice",
        "constraint": ["yes", "no", "add"],
        "valid": ["yes", "no", "add"],
        "invalid": [{"instance": text, "why": "no choice"} for text in ("y", "nay", "adds")],
    },
}


class _Backend:
    """As much of a backend as preparing needs: its declared profiles."""

    def __init__(self, **profile: Any) -> None:
        self.profiles = {"default": Profile(**profile)}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the registry; the names that were asked for."""
    asked: list[str] = []
    backends = {
        "spaced": _Backend(whitespace="spaced", additional_properties=False),
        "compact": _Backend(whitespace="compact", key_order="sorted"),
    }

    def create(name: str, options: Mapping[str, Any] | None = None) -> Any:
        asked.append(name)
        if name not in backends:
            raise MasktaxError(f"unknown backend {name!r}")
        return backends[name]

    monkeypatch.setattr(registry, "create", create)
    return asked


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    root = tmp_path / "schemas"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return root


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "demo.toml").write_text(SCENARIO, encoding="utf-8")
    return scenarios.load(tmp_path / "demo.toml", KNOWN)


@pytest.fixture
def make(
    scenario: Scenario, schemas: Path, tmp_path: Path, declared: list[str]
) -> Callable[..., dict[tuple[str, str], Cell]]:
    def make(**workload: Any) -> dict[tuple[str, str], Cell]:
        points = [replace(p, workload=replace(p.workload, **workload)) for p in scenarios.expand(scenario)]
        cells = prepare(scenario, points, schemas=schemas, cache=tmp_path / "cache")
        assert [c.id for c in cells] == [p.id for p in points]
        return {(c.backend, c.constraint_name): c for c in cells}

    return make


Make = Callable[..., dict[tuple[str, str], Cell]]


def test_documents_are_spelled_as_the_backends_own_profile_writes_them(make: Make) -> None:
    cells = make()
    assert cells["spaced", "flat/pair"].valid[0].text == '{"b": 1, "a": [1, 2]}'
    assert cells["compact", "flat/pair"].valid[0].text == '{"a":[1,2],"b":1}'
    assert cells["spaced", "choice/answer"].valid[0].text == "yes"


def test_a_document_outside_a_narrower_profile_is_not_asked_of_it(make: Make) -> None:
    cells = make()
    assert [d.text for d in cells["compact", "flat/pair"].valid] == [
        '{"a":[1,2],"b":1}', '{"b":2}', '{"a":"é"}', '{"c":1}',
    ]  # fmt: skip
    assert [d.name for d in cells["spaced", "flat/pair"].valid] == ["valid/0", "valid/1", "valid/2"]


def test_traces_spell_the_documents_byte_for_byte(make: Make) -> None:
    for cell in make().values():
        vocabulary = Vocabulary.read(Path(cell.vocabulary_path), cell.vocabulary_sha256)
        for document in (*cell.valid, *cell.invalid):
            assert vocabulary.decode(document.tokens) == document.text.encode()


def test_as_many_instances_as_asked_for_from_the_first_on(make: Make) -> None:
    cell = make(valid=2, invalid=1)["compact", "flat/pair"]
    assert [d.name for d in cell.valid] == ["valid/0", "valid/1"]
    assert [d.name for d in cell.invalid] == ["invalid/0"]


def test_limits_plan_and_conditions_arrive_in_the_cell(make: Make) -> None:
    cell = make()["spaced", "flat/pair"]
    assert (cell.time_limit_s, cell.memory_limit_bytes) == (7.0, 512 << 20)
    assert cell.plan == {"min_samples": 3}
    assert cell.conditions == {"cache": ("new_schema",), "visit": ("first", "later")}
    assert cell.stages == ("compile", "fill")
    assert Cell.from_json(json.loads(json.dumps(cell.to_json()))) == cell


def test_nothing_is_worked_out_twice(make: Make, declared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = prepare_module.encoders.encode

    def counting(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
        encoded.append(text)
        return encode(vocabulary, text)

    monkeypatch.setattr(prepare_module.encoders, "encode", counting)
    cells = make()
    assert sorted(declared) == ["compact", "spaced"]
    # Both backends spell a choice alike: its six documents are encoded once, and shared.
    assert sum(text in ("yes", "no", "add", "y", "nay", "adds") for text in encoded) == 6
    assert cells["spaced", "choice/answer"].valid[0] is cells["compact", "choice/answer"].valid[0]


def test_a_profile_or_an_adapter_that_is_not_here_still_makes_a_cell(
    scenario: Scenario, schemas: Path, tmp_path: Path, declared: list[str]
) -> None:
    (point, *_) = scenarios.expand(scenario)
    points = [replace(point, id="a", profile="other"), replace(point, id="b", adapter="elsewhere:Backend")]
    lacking, elsewhere = prepare(scenario, points, schemas=schemas, cache=tmp_path / "cache")
    # The worker will say unsupported, or find the adapter in its own environment.
    assert lacking.profile == "other" and elsewhere.adapter == "elsewhere:Backend"
    assert lacking.valid[0].text == elsewhere.valid[0].text == '{"b":1,"a":[1,2]}'


def test_a_document_that_cannot_be_encoded_is_named(make: Make, schemas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
        raise MasktaxError("no such character")

    monkeypatch.setattr(prepare_module.encoders, "encode", refuse)
    with pytest.raises(MasktaxError, match="flat/pair, valid/0: no such character"):
        make()


def test_companions_travel_with_documents_of_their_own(make: Make) -> None:
    cell = make(companions=("choice/answer",), valid=2)["spaced", "flat/pair"]
    (companion,) = cell.companions
    assert (companion.name, [d.text for d in companion.documents]) == ("choice/answer", ["yes", "no"])
    assert Cell.from_json(json.loads(json.dumps(cell.to_json()))) == cell
