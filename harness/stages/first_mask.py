"""``first_mask``: compiled grammar → first filled row, the matcher's construction included.

Inner axis ``cache``: ``cold``, the first matcher of a grammar just compiled; ``warm``, a further matcher of a grammar
whose first mask was made before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harness.cell import Measurement
from harness.measure import loop, measure
from harness.stages import Job

NAME = "first_mask"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"cache": ("cold", "warm")}


def run(job: Job) -> list[Measurement]:
    # process_cold and its kin belong to compile; a cell that names only those asks for both states here.
    asked = [c for c in job.condition("cache", ()) if c in CONDITIONS["cache"]] or CONDITIONS["cache"]
    row = job.row()
    done = []
    if "cold" in asked:
        done.append(_cold(job, row))
    if "warm" in asked:
        grammar = job.compile()
        first = _first_mask(grammar, row)
        first()
        done.append(measure(loop(first), job.clock, job.plan, conditions={"cache": "warm"}))
    return done


def _cold(job: Job, row: Any) -> Measurement:
    def make(_: int) -> Callable[[], object]:
        return _first_mask(job.compile_new(), row)

    plan = replace(job.plan, warmup_iterations=0)
    return measure(make, job.clock, plan, conditions={"cache": "cold"}, repeatable=False)


def _first_mask(grammar: Any, row: Any) -> Callable[[], object]:
    def body() -> object:
        return grammar.native_matcher().fill_call(row)()

    return body
