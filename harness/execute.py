"""What a worker does with one cell: the cold compile, verification, then each stage. Worker side.

It turns what happens into records: an honest refusal, a library's compile error and a wrong mask are outcomes. Any
other exception passes through to the worker, whose end the manager records.
"""

from __future__ import annotations

import gc
import resource
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from harness import clocks, labels
from harness.backends import registry
from harness.backends.protocol import Backend, Grammar
from harness.cell import Cell, Document, Measurement, Outcome, Record, Refusal
from harness.clocks import Clock
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.measure import Plan, Samples
from harness.profile import Profile
from harness.stages import Job, stages
from harness.verify import Verdict, verify
from harness.vocabulary import Vocabulary


class Emit(Protocol):
    """Told of every step: ``("stage", name)`` when one begins, ``("record", Record)`` when its outcome is known."""

    def __call__(self, event: str, value: Any, /) -> None: ...


def execute(cell: Cell, emit: Emit, *, timed: bool = True, make_clock: Callable[[], Clock] = clocks.wall) -> None:
    """Run one cell: every stage it names gets exactly one record.

    timed: False runs verification and every stage's body once, and records no times. MasktaxError for a cell that
    makes no sense (an unknown stage or backend, another vocabulary than announced).
    """
    known = stages()
    unknown = [s for s in cell.stages if s not in known]
    if unknown:
        raise MasktaxError(f"cell {cell.id}: unknown stage {unknown[0]!r}; known: {', '.join(known)}")
    plan = Plan(**cell.plan)
    clock = make_clock()
    emit("stage", cell.stages[0])
    try:
        prepared = _prepare(cell, clock, plan if timed else plan.once(), timed)
    except (UnsupportedError, CompileError) as error:
        for name in cell.stages:
            emit("record", Record(name, refusal(error), clock=_clock_facts(clock)))
        return
    job, verdict, facts = prepared
    # What the judge and the library have made so far lives on: the collector need not look at it inside a clock again.
    gc.collect()
    gc.freeze()
    try:
        for name in cell.stages:
            if name != cell.stages[0]:
                emit("stage", name)
            emit("record", _stage(job, name, verdict, facts, timed))
    finally:
        gc.unfreeze()


def _prepare(cell: Cell, clock: Clock, plan: Plan, timed: bool) -> tuple[Job, Verdict, dict[str, Any]]:
    vocabulary = Vocabulary.read(Path(cell.vocabulary_path), cell.vocabulary_sha256)
    backend = registry.create(cell.adapter, cell.options)
    if cell.profile not in backend.profiles:
        raise UnsupportedError(
            f"{cell.adapter} has no profile {cell.profile!r}; it declares {', '.join(sorted(backend.profiles))}"
        )
    profile = backend.profiles[cell.profile]
    backend.load()
    cold, grammar = _cold_compile(cell, backend, vocabulary, profile, clock)
    cell, left_out = labels.settle(cell, profile)
    verdict = verify(cell, backend, grammar, vocabulary, profile)
    documents = tuple(
        replace(d, tokens=d.tokens[: verdict.accepted[d.name]]) for d in cell.valid if verdict.accepted[d.name]
    )
    wanted = timed and "compile" in cell.stages and "process_cold" in cell.conditions.get("cache", ("process_cold",))
    job = Job(cell, backend, vocabulary, profile, documents, clock, plan, cold if wanted else None)
    facts = {"backend_version": backend.version, "judge": verdict.judge, "rows_judged": verdict.rows_judged}
    if left_out:
        facts["documents_left_out"] = left_out
    return job, verdict, facts | dict(_own_facts(grammar))


def _cold_compile(
    cell: Cell, backend: Backend, vocabulary: Vocabulary, profile: Profile, clock: Clock
) -> tuple[Measurement, Grammar]:
    """The process's first compile, tokenizer tables included: it can be had once, so it comes before verification,
    which then judges this very grammar."""
    samples = Samples({"cache": "process_cold"})
    before = clock.now_ns()
    grammar = backend.compile(cell.constraint, vocabulary, profile)
    after = clock.now_ns()
    samples.add(after - before)
    return samples.measurement("single_shots"), grammar


def _own_facts(grammar: Grammar) -> Mapping[str, Any]:
    """What the adapter noted about this grammar (warnings of the library, which tokenizer it used), where it did."""
    facts: Mapping[str, Any] = getattr(grammar, "facts", {})
    return facts


def _stage(job: Job, name: str, verdict: Verdict, facts: Mapping[str, Any], timed: bool) -> Record:
    job = replace(job, facts={})
    results: Sequence[Measurement | Refusal] = ()
    wrong = verdict.difference is not None
    outcome = Outcome("wrong", str(verdict.difference), verdict.difference) if wrong else Outcome("ok")
    try:
        results = stages()[name].run(job)
    except (UnsupportedError, CompileError) as error:
        outcome = outcome if wrong else refusal(error)
    measurements = tuple(r for r in results if isinstance(r, Measurement))
    refusals = tuple(r for r in results if isinstance(r, Refusal))
    if refusals and outcome.kind == "ok":
        outcome = _refused(refusals, some_timed=bool(measurements))
    return Record(
        stage=name,
        outcome=outcome,
        measurements=measurements if timed else (),
        refusals=refusals,
        clock=_clock_facts(job.clock),
        facts={
            **facts,
            "documents": _lengths(job.documents),
            "peak_resident_bytes": _peak_resident_bytes(),
            "threads": threading.active_count(),
            **job.facts,
        },
    )


def _refused(refusals: Sequence[Refusal], *, some_timed: bool) -> Outcome:
    """What a stage is whose conditions were refused, some or all: wrong as soon as one of them is."""
    wrong = [r for r in refusals if r.kind == "wrong"]
    if some_timed and not wrong:
        return Outcome("ok")
    return Outcome("wrong" if wrong else "unsupported", "; ".join(dict.fromkeys(r.reason for r in wrong or refusals)))


def refusal(error: UnsupportedError | CompileError) -> Outcome:
    """The outcome that a backend's own no is."""
    if isinstance(error, UnsupportedError):
        place = f" ({error.keyword} at {error.pointer or '#'})" if error.keyword else ""
        return Outcome("unsupported", error.reason + place)
    return Outcome("compile_error", str(error))


def _lengths(documents: tuple[Document, ...]) -> dict[str, int]:
    return {d.name: len(d.tokens) for d in documents}


def _clock_facts(clock: Clock) -> dict[str, Any]:
    return {"name": clock.name, "resolution_ns": clock.resolution_ns, "overhead_ns": clock.overhead_ns}


def _peak_resident_bytes() -> int:
    """Peak resident memory of this process so far; ru_maxrss is in KiB on Linux and in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
