"""``rollback``: rewind k accepted tokens.

Inner axis ``rollback_tokens``: k. Column ``position``: tokens accepted before the rewind, so that a cost that grows
with history shows as a slope. A rewound matcher cannot be rewound again, and one rewind lasts less than a clock can
tell: a sample rewinds n matchers that stand at the same position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.backends.protocol import Grammar, NativeMatcher
from harness.cell import Measurement
from harness.errors import UnsupportedError
from harness.measure import measure, merge
from harness.stages import Job, spread, walk

NAME = "rollback"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"rollback_tokens": (1, 4)}
POSITIONS = 5


def run(job: Job) -> list[Measurement]:
    able = job.backend.capabilities
    if not able.rollback:
        raise UnsupportedError(able.notes.get("rollback", "the library has no rollback"))
    tokens = job.longest().tokens
    grammar = job.compile()
    done = []
    for k in job.condition("rollback_tokens", CONDITIONS["rollback_tokens"]):
        if k > len(tokens):
            continue
        positions = [k + p for p in spread(len(tokens) - k, POSITIONS)]
        done.append(
            merge(
                [
                    measure(
                        _rewinds(job, grammar, tokens[:position], k),
                        job.clock,
                        job.plan.share(len(positions)),
                        conditions={"rollback_tokens": k},
                        columns={"position": position},
                    )
                    for position in positions
                ]
            )
        )
    if not done:
        raise UnsupportedError(f"the longest document has {len(tokens)} tokens, fewer than any rewind asked for")
    return done


def _rewinds(job: Job, grammar: Grammar, tokens: tuple[int, ...], k: int) -> Callable[[int], Callable[[], object]]:
    fork = job.backend.capabilities.fork
    origin = walk(grammar, tokens)

    def stand() -> NativeMatcher:
        return origin.fork() if fork else walk(grammar, tokens)

    def make(n: int) -> Callable[[], object]:
        # The matchers are kept alive past the block: freeing them must not be timed.
        matchers = [stand() for _ in range(n)]
        calls = [m.rollback_call() for m in matchers]

        def block() -> object:
            for rewind in calls:
                rewind(k)
            return matchers

        return block

    return make
