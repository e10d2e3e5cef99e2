"""``fill``: one row from one matcher.

Condition ``visit``: ``first``, the first time that a grammar's matchers come to this position of this document, a
single shot on a freshly compiled grammar; ``later``, on a further walk along the same document. Columns: ``position``
(tokens accepted before), ``document``. Several documents of one constraint share states: a position counts as a first
visit only in the document that is walked first on its grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

from harness.backends.protocol import Grammar
from harness.cell import Document, Measurement
from harness.measure import Samples, enough
from harness.stages import Job

NAME = "fill"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"visit": ("first", "later")}


def run(job: Job) -> list[Measurement]:
    job.longest()
    visits = job.condition("visit", CONDITIONS["visit"])
    documents = sorted(job.documents, key=lambda d: -len(d.tokens))
    grammar, first = _first(job, documents)
    done = [first] if "first" in visits else []
    if "later" in visits:
        done.append(_later(job, grammar, documents))
    return done


def _first(job: Job, documents: list[Document]) -> tuple[Grammar, Measurement]:
    """One walk along each document, each on a grammar of its own, as long as the plan's time allows."""
    samples = Samples({"visit": "first"})
    cap_ns = job.clock.now_ns() + job.plan.time_cap_s * 1e9
    reason = "single_shots"
    for document in documents:
        grammar = job.compile_new()
        if not _walk(job, grammar, document, samples, cap_ns):
            reason = "time_cap"
        if job.clock.now_ns() >= cap_ns or job.plan.max_samples == 1:
            break
    return grammar, samples.measurement(reason)


def _later(job: Job, grammar: Grammar, documents: list[Document]) -> Measurement:
    """Walk every document again and again; the first walk warms up, estimates, and is not recorded."""
    samples = Samples({"visit": "later"})
    cap_ns = job.clock.now_ns() + job.plan.time_cap_s * 1e9
    estimates: dict[str, list[float]] = {}
    warmed = 0
    walked = []
    for document in documents:
        estimate = Samples({})
        complete = _walk(job, grammar, document, estimate, cap_ns)
        warmed += len(estimate.samples_ns)
        estimates[document.name] = estimate.samples_ns
        walked.append(document)
        if not complete:
            break
    # The cap starts anew: a warm-up that used it up must not leave the walk without samples.
    cap_ns = job.clock.now_ns() + job.plan.time_cap_s * 1e9
    while True:
        for document in walked:
            if not _walk(job, grammar, document, samples, cap_ns, estimates[document.name]):
                return samples.measurement("time_cap", warmed)
            if len(samples.samples_ns) >= job.plan.max_samples:
                return samples.measurement("max_samples", warmed)


def _walk(
    job: Job,
    grammar: Grammar,
    document: Document,
    samples: Samples,
    cap_ns: float,
    estimates: list[float] | None = None,
) -> bool:
    """Walk a document, timing the fill at each position; False where time ran out on the way.

    With estimates, a fill shorter than a sample must last is repeated at its position, within one sample.
    """
    row, now = job.row(), job.clock.now_ns
    matcher = grammar.native_matcher()
    fill, accept = matcher.fill_call(row), matcher.accept
    # Between two fills as little as can be: what runs there would push the library's data out of the CPU's caches.
    counts = [enough(e, job.clock, job.plan) for e in estimates] if estimates is not None else []
    counts += [1] * (len(document.tokens) + 1 - len(counts))
    seen: list[tuple[int, int]] = []
    for position, count in enumerate(counts):
        if count == 1:
            before = now()
            fill()
            after = now()
        else:
            before = now()
            for _ in repeat(None, count):
                fill()
            after = now()
        seen.append((before, after))
        if after >= cap_ns:
            break
        if position < len(document.tokens):
            accept(document.tokens[position])
    for position, (before, after) in enumerate(seen):
        samples.add(after - before, counts[position], position=position, document=document.name)
    return len(seen) == len(counts)
