"""``compile``: constraint text → usable grammar.

Cache states, the inner axis ``cache``:

* ``process_cold``: the process's first compile, the library imported, its tokenizer tables not yet built. Happens
  once in a process; taken by ``harness.execute`` before anything else.
* ``new_schema``: tokenizer tables built, no compiled grammar in any cache.
* ``same_schema``: the same text again, straight after.
* ``respelled``: the same meaning in another text (``harness.respell``), straight after the original; left out where a
  constraint has no other text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harness.cell import Measurement
from harness.measure import loop, measure
from harness.respell import respell
from harness.stages import Job

NAME = "compile"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"cache": ("process_cold", "new_schema", "same_schema", "respelled")}


def run(job: Job) -> list[Measurement]:
    states = job.condition("cache", CONDITIONS["cache"])
    done = [job.cold] if job.cold is not None else []
    # Verification has compiled before: nothing more is warmed up, so that a slow compile is not paid for nothing.
    plan = replace(job.plan, warmup_iterations=0)
    if "new_schema" in states:
        done.append(measure(_new_schema(job), job.clock, plan, conditions={"cache": "new_schema"}, repeatable=False))
    if "same_schema" in states:
        if "new_schema" not in states:
            job.compile_new()
        done.append(measure(loop(job.compile), job.clock, plan, conditions={"cache": "same_schema"}))
    if "respelled" in states and respell(job.cell.constraint) != job.cell.constraint:
        done.append(measure(_respelled(job), job.clock, plan, conditions={"cache": "respelled"}, repeatable=False))
    return done


def _new_schema(job: Job) -> Callable[[int], Callable[[], object]]:
    def make(_: int) -> Callable[[], object]:
        job.backend.forget()
        return job.compile

    return make


def _respelled(job: Job) -> Callable[[int], Callable[[], object]]:
    other = respell(job.cell.constraint)

    def make(_: int) -> Callable[[], object]:
        job.compile_new()
        return lambda: job.backend.compile(other, job.vocabulary, job.profile)

    return make
