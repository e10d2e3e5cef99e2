"""``validate``: how many of the next k tokens would be accepted, the state as before (advance and rewind).

Inner axis ``draft_tokens``: k. Column ``position``: tokens accepted before. The drafts are the document's own next
tokens, so all k are right. Where a library has no such call, its adapter's declared way of doing it is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from harness.cell import Measurement
from harness.errors import UnsupportedError
from harness.measure import loop, measure, merge
from harness.stages import Job, spread, walk

NAME = "validate"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"draft_tokens": (4,)}
POSITIONS = 8


def run(job: Job) -> list[Measurement]:
    able = job.backend.capabilities
    if not (able.validate or able.fork or able.rollback):
        raise UnsupportedError(able.notes.get("validate", "the library can neither validate, fork nor rewind"))
    tokens = job.longest().tokens
    grammar = job.compile()
    done = []
    for k in job.condition("draft_tokens", CONDITIONS["draft_tokens"]):
        positions = [p for p in spread(len(tokens) - k, POSITIONS) if p >= 0] if len(tokens) >= k else []
        parts = []
        for position in positions:
            drafts = list(tokens[position : position + k])
            call = walk(grammar, tokens[:position]).validate_call()
            parts.append(
                measure(
                    loop(partial(call, drafts)),
                    job.clock,
                    job.plan.share(len(positions)),
                    conditions={"draft_tokens": k},
                    columns={"position": position},
                )
            )
        if parts:
            done.append(merge(parts))
    if not done:
        raise UnsupportedError(f"the longest document has {len(tokens)} tokens, fewer than any draft asked for")
    return done
