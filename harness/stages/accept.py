"""``accept``: advance by one token.

One accept lasts less than a clock can tell, so a sample is a whole document accepted token by token by a fresh
matcher, divided by its tokens. Column ``document``. No mask is filled in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.backends.protocol import Grammar
from harness.cell import Document, Measurement
from harness.measure import measure, merge
from harness.stages import Job

NAME = "accept"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {}


def run(job: Job) -> list[Measurement]:
    job.longest()
    grammar = job.compile()
    plan = job.plan.share(len(job.documents))
    return [
        merge(
            [
                measure(
                    _accepts(grammar, document),
                    job.clock,
                    plan,
                    columns={"document": document.name},
                    unit=len(document.tokens),
                )
                for document in job.documents
            ]
        )
    ]


def _accepts(grammar: Grammar, document: Document) -> Callable[[int], Callable[[], object]]:
    tokens = document.tokens

    def make(n: int) -> Callable[[], object]:
        calls = [grammar.native_matcher().accept_call() for _ in range(n)]

        def block() -> None:
            for accept in calls:
                for token in tokens:
                    accept(token)

        return block

    return make
