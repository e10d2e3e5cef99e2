"""Made-up records with numbers chosen by the test, so that what is computed from them is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cell import Measurement, Outcome, Record
from harness.report.study import Study
from harness.results import load
from tests.report.synthetic import Case, cell, write_run

OK = Outcome("ok")


def timed(times: Sequence[float], conditions: Mapping[str, Any] | None = None, **columns: Sequence[Any]) -> Measurement:
    n = len(times)
    labels = {name: tuple(values) for name, values in columns.items()}
    return Measurement(dict(conditions or {}), tuple(map(float, times)), (1,) * n, labels, ("",) * n, "max_samples")


def later(*times: float) -> Measurement:
    return timed(times, {"visit": "later"})


def line(
    backend: str,
    constraint: str = "flat/user",
    stage: str = "fill",
    outcome: Outcome = OK,
    *measurements: Measurement,
    process: int = 0,
    vocabulary: str = "deepseek",
    scenario: str = "quick",
    overhead_ns: float = 0.0,
    **fields: Any,
) -> dict[str, Any]:
    of = cell(Case(backend, constraint, vocabulary, process), scenario=scenario)
    clock = {"name": "fake", "resolution_ns": 1.0, "overhead_ns": overhead_ns}
    return Record(stage, outcome, measurements, clock).to_json(of) | {"expected": None, "as_expected": True} | fields


def study(path: Path, *lines: dict[str, Any], **fields: Any) -> Study:
    return Study(load(write_run(path / "run", lines, **fields)))
