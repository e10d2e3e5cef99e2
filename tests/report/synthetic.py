"""Made-up runs for testing the record format and the report. No number here was ever measured.

Every line goes through ``Record.to_json`` of a real ``Cell``, so a change of the format shows here first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cell import Cell, Difference, Document, Measurement, Outcome, Record
from harness.constraint import Constraint
from harness.results import RunStore

BACKENDS = ("xgrammar", "llguidance", "outlines", "lm-format-enforcer")
CONSTRAINTS = {
    "flat": ("user", "order"),
    "nested": ("invoice", "tree-config"),
    "enums": ("countries", "status"),
    "patterns": ("phone", "iso-date"),
    "recursive": ("comment-thread",),
    "tools": ("weather", "search"),
    "regex": ("uuid", "semver"),
}
STAGES = ("compile", "first_mask", "fill", "accept", "validate", "rollback")
VOCABULARIES = {"deepseek": 129_280}

# Invented speeds, microseconds: (compile, fill on a later visit, fill on a first visit, accept).
SPEEDS = {
    "xgrammar": (30_000.0, 3.0, 9.0, 0.9),
    "llguidance": (600.0, 1.5, 14.0, 1.1),
    "outlines": (400_000.0, 2.5, 3.5, 0.4),
    "lm-format-enforcer": (900.0, 40.0, 1_000.0, 17.0),
}


@dataclass(frozen=True)
class Case:
    backend: str
    constraint: str
    vocabulary: str
    process: int


Judge = Callable[[Case, str], Outcome | None]
"""Says what became of a stage of a case; None for ok."""


def difference(constraint: str) -> Difference:
    return Difference(
        document="invalid/1",
        step=17,
        token=4071,
        token_bytes='"<b>\\u00ff',
        direction="too loose",
        judge="invalid document",
        prefix='{"id": 7, "items": [',
        explanation=f"an instance that {constraint} forbids was accepted to its end",
        count=3,
    )


def usual(case: Case, stage: str) -> Outcome | None:
    """Outcomes of every kind, spread over the backends as one would expect to meet them."""
    tier = case.constraint.partition("/")[0]
    if case.backend == "outlines" and tier == "recursive":
        return Outcome("unsupported", f"outlines-core cannot express recursion ($ref at #/properties/{case.process})")
    if case.backend == "outlines" and case.constraint == "nested/tree-config":
        return Outcome("timeout", "120 s for the whole cell", not_reached=stage != "compile")
    if case.backend == "lm-format-enforcer" and tier == "regex":
        return Outcome("compile_error", "RegexParser: unsupported construct in '[0-9a-f]{8}'")
    if case.backend == "lm-format-enforcer" and stage == "rollback":
        return Outcome("unsupported", "lm-format-enforcer keeps no state to rewind")
    if case.backend == "xgrammar" and tier == "patterns":
        return Outcome("wrong", difference=difference(case.constraint))
    if case.backend == "lm-format-enforcer" and case.constraint == "tools/search":
        return Outcome("crash", "signal 11 (SIGSEGV)")
    if case.backend == "lm-format-enforcer" and case.constraint == "nested/invoice":
        return Outcome("out_of_memory", "2.0 GiB for the cell's process group")
    return None


def always_ok(case: Case, stage: str) -> Outcome | None:
    return None


def never_ok(case: Case, stage: str) -> Outcome | None:
    return Outcome("unsupported", f"{case.backend} compiles no such kind")


def cell(case: Case, stages: Sequence[str] = STAGES, scenario: str = "quick") -> Cell:
    tier, _, name = case.constraint.partition("/")
    constraint = Constraint("regex", "[a-z]+") if tier == "regex" else Constraint("json_schema", '{"type": "object"}')
    return Cell(
        id=f"{scenario}/{case.backend}/{case.vocabulary}/{tier}/{name}/{case.process}",
        scenario=scenario,
        backend=case.backend,
        adapter=case.backend,
        environment="default",
        vocabulary=case.vocabulary,
        vocabulary_path=f".cache/vocabularies/{case.vocabulary}.bin",
        vocabulary_sha256="ab" * 32,
        constraint_name=case.constraint,
        constraint=constraint,
        stages=tuple(stages),
        valid=(Document("valid/0", "abc", (1, 2)),),
        invalid=(),
        process=case.process,
    )


def measurements(case: Case, stage: str, rng: random.Random, positions: int) -> Iterator[Measurement]:
    compile_us, later_us, first_us, accept_us = SPEEDS.get(case.backend, (5_000.0, 5.0, 20.0, 2.0))
    size = VOCABULARIES.get(case.vocabulary, 32_000) / 129_280
    hard = 1.0 + 2.5 * (sum(map(ord, case.constraint)) % 7) / 7

    def spread(us: float, n: int, sigma: float = 0.25, tail: float = 0.01) -> tuple[float, ...]:
        return tuple(
            1e3 * us * rng.lognormvariate(0, sigma) * (rng.uniform(5, 30) if rng.random() < tail else 1)
            for _ in range(n)
        )

    def one(
        times: tuple[float, ...],
        reason: str,
        conditions: dict[str, Any],
        columns: dict[str, tuple[Any, ...]] | None = None,
        iterations: int = 1,
    ) -> Measurement:
        limit = 4 * sorted(times)[len(times) // 2]
        labels = tuple("severe" if t > 2 * limit else "mild" if t > limit else "" for t in times)
        return Measurement(conditions, times, (iterations,) * len(times), columns or {}, labels, reason, 3)

    steps = tuple(range(positions))
    documents = ("valid/0",) * positions
    if stage == "compile":
        for cache, factor in (("process_cold", 4.0), ("new_schema", 1.0), ("same_schema", 0.02), ("respelled", 0.98)):
            few = cache == "process_cold"
            times = spread(compile_us * hard * factor, 1 if few else 20, 0.1, 0.0)
            yield one(times, "single shot" if few else "relative interval", {"cache": cache})
    elif stage == "first_mask":
        for cache, factor in (("cold", 3.0), ("warm", 1.0)):
            yield one(spread(first_us * hard * factor, 20), "plateau", {"cache": cache})
    elif stage == "fill":
        for visit, us in (("first", first_us), ("later", later_us)):
            grow = [1.0 + (0.02 * p if case.backend == "lm-format-enforcer" else 0.0) for p in steps]
            times = tuple(t * g for t, g in zip(spread(us * hard * size, positions, 0.5, 0.02), grow, strict=True))
            columns = {"position": steps, "document": documents}
            yield one(times, "single shot" if visit == "first" else "time cap", {"visit": visit}, columns)
    elif stage == "accept":
        columns = {"document": documents}
        yield one(spread(accept_us * hard, positions), "time cap", {}, columns, 10)
    elif stage == "validate":
        for draft in (1, 4, 8):
            yield one(spread(accept_us * draft * hard, 40), "plateau", {"draft_tokens": draft}, {"position": (5,) * 40})
    elif stage == "rollback":
        for count in (1, 4, 16):
            times = spread(0.3 * hard + 0.01 * count, 40)
            yield one(times, "plateau", {"rollback_tokens": count}, {"position": (16,) * 40})
    else:
        yield one(spread(accept_us, 40), "plateau", {})


def records(
    *,
    backends: Sequence[str] = BACKENDS,
    constraints: Sequence[str] | None = None,
    vocabularies: Sequence[str] = ("deepseek",),
    stages: Sequence[str] = STAGES,
    processes: int = 2,
    positions: int = 120,
    judge: Judge = usual,
    timed: bool = True,
    scenario: str = "quick",
    seed: int = 1,
) -> Iterator[dict[str, Any]]:
    names = constraints or [f"{tier}/{name}" for tier, names in CONSTRAINTS.items() for name in names]
    rng = random.Random(seed)
    for vocabulary in vocabularies:
        for constraint in names:
            for backend in backends:
                for process in range(processes):
                    case = Case(backend, constraint, vocabulary, process)
                    for stage in stages:
                        outcome = judge(case, stage) or Outcome("ok")
                        measured = timed and outcome.kind in ("ok", "wrong")
                        record = Record(
                            stage=stage,
                            outcome=outcome,
                            measurements=tuple(measurements(case, stage, rng, positions)) if measured else (),
                            clock={"name": "perf_counter_ns", "resolution_ns": 1.0, "overhead_ns": 41.0},
                            facts={"peak_resident_bytes": 300_000_000 + rng.randrange(10_000_000)},
                        )
                        yield record.to_json(cell(case, stages, scenario)) | {
                            "expected": None,
                            "as_expected": True,
                            "expected_reason": "",
                        }


def run_fields(**fields: Any) -> dict[str, Any]:
    return {
        "command": ["masktax", "run", "quick", "-o", "results/made up"],
        "finished_at": "2020-01-01T00:05:00+00:00",
        "created_at": "2020-01-01T00:00:00+00:00",
        "scenarios": [
            {
                "name": "quick",
                "title": "A made-up run",
                "question": "What would a report of invented numbers look like?",
                "reading": "Not at all: every number is invented.",
                "path": "scenarios/quick.toml",
                "sha256": "cd" * 32,
                "overrides": {},
            }
        ],
        "cells_planned": 0,
        "stages_planned": 0,
        "machine": {
            "cpu": {"model": "Invented CPU", "cores_logical": 4, "quota_cores": 2.0, "governor": None},
            "memory": {"total_bytes": 8 << 30},
            "gpus": [],
        },
        "sessions": [
            {
                "started_at": "2020-01-01T00:00:00+00:00",
                "ended_at": "2020-01-01T00:05:00+00:00",
                "interrupted_by": None,
                "before": {"load_1min": 0.4, "steal_s": 1.0, "throttled_count": 3},
                "after": {"load_1min": 1.2, "steal_s": 1.5, "throttled_count": 10},
            }
        ],
        "environments": {
            "default": {
                "python": "3.11.9",
                "backends": {"xgrammar": {"version": "0.0.1", "reason": ""}},
                "packages": {"xgrammar": {"version": "0.0.1", "record_sha256": "ef" * 32}},
            }
        },
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "vocabularies": {name: {"sha256": "ab" * 32, "size": size} for name, size in VOCABULARIES.items()},
        "seed": 1,
    } | fields


def write_run(path: Path, lines: Sequence[dict[str, Any]], **fields: Any) -> Path:
    """A finished run of these records in folder ``path``."""
    cells = {line["cell"] for line in lines}
    planned = {"cells_planned": len(cells), "stages_planned": len(lines)}
    with RunStore.create(path, run_fields(**(planned | fields))) as store:
        for line in lines:
            store.append(line)
        store.finish()
    return path
