"""``rollback``: rewind k accepted tokens.

Inner axes. ``rollback_tokens``: k. ``history``: tokens accepted before the rewind; where none is asked for, five
positions along the longest document take its place, in the column ``position``, which is there in either case. A cost
that grows with history shows as a slope.

One rewind lasts less than a clock can tell: a sample rewinds n matchers that stand at the same position, one after
the other, and before the next sample each accepts its k tokens again. The matchers stay the same throughout. New ones
for each sample would be rewound out of cold memory, and copies made for it would first have to copy what they share:
both grow with history, and neither is the rewind's doing. Before it is timed, one rewind is checked: the row after it
is compared with the row that was there on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.backends.protocol import Grammar
from harness.cell import Measurement, Refusal
from harness.errors import UnsupportedError
from harness.measure import measure, merge
from harness.speculation.lookahead import row_of
from harness.stages import Job, spread, stand, walk

NAME = "rollback"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"rollback_tokens": (1, 4), "history": ()}
POSITIONS = 5


def run(job: Job) -> list[Measurement | Refusal]:
    able = job.backend.capabilities
    if not able.rollback:
        raise UnsupportedError(able.notes.get("rollback", "the library has no rollback"))
    tokens = job.longest().tokens
    grammar = job.compile()
    histories = job.condition("history", CONDITIONS["history"])
    done: list[Measurement | Refusal] = []
    for k in job.condition("rollback_tokens", CONDITIONS["rollback_tokens"]):
        if histories:
            done += [_against_history(job, grammar, tokens, k, history) for history in histories if history >= k]
        elif k <= len(tokens):
            positions = [k + p for p in spread(len(tokens) - k, POSITIONS)]
            done.append(_measure(job, grammar, tokens, {"rollback_tokens": k}, positions))
    if not done:
        most = "any history asked for" if histories else f"the longest document, of {len(tokens)} tokens"
        raise UnsupportedError(f"every rewind asked for is longer than {most}")
    return done


def _against_history(
    job: Job, grammar: Grammar, tokens: tuple[int, ...], k: int, history: int
) -> Measurement | Refusal:
    conditions = {"rollback_tokens": k, "history": history}
    if history > len(tokens):
        return Refusal(conditions, "unsupported", f"the longest document has {len(tokens)} tokens")
    return _measure(job, grammar, tokens, conditions, [history])


def _measure(
    job: Job, grammar: Grammar, tokens: tuple[int, ...], conditions: Mapping[str, int], positions: list[int]
) -> Measurement | Refusal:
    k = conditions["rollback_tokens"]
    for position in positions:
        if not _rewinds_exactly(job, grammar, tokens[:position], k):
            reason = f"after {position} tokens and a rewind of {k} the row is not that after {position - k} tokens"
            return Refusal(conditions, "wrong", reason)
    return merge(
        [
            measure(
                _rewinds(job, grammar, tokens[:position], k),
                job.clock,
                job.plan.share(len(positions)),
                conditions=conditions,
                columns={"position": position},
            )
            for position in positions
        ]
    )


def _rewinds_exactly(job: Job, grammar: Grammar, tokens: tuple[int, ...], k: int) -> bool:
    matcher = walk(grammar, tokens[: len(tokens) - k])
    before = row_of(matcher, job.vocabulary.size)
    for token in tokens[len(tokens) - k :]:
        matcher.accept(token)
    matcher.rollback_call()(k)
    return np.array_equal(row_of(matcher, job.vocabulary.size), before)


def _rewinds(job: Job, grammar: Grammar, tokens: tuple[int, ...], k: int) -> Callable[[int], Callable[[], object]]:
    start = len(tokens) - k
    standing, again = stand(job, grammar, tokens[:start]), tokens[start:]
    calls: list[tuple[Callable[[int], object], Callable[[int], object]]] = []

    def make(n: int) -> Callable[[], object]:
        while len(calls) < n:
            matcher = standing()
            calls.append((matcher.accept_call(), matcher.rollback_call()))
        for accept, _ in calls[:n]:
            for token in again:
                accept(token)
        rewinds = [rewind for _, rewind in calls[:n]]

        def block() -> None:
            for rewind in rewinds:
                rewind(k)

        return block

    return make
