"""Blocks of real mask rows, for the stages that work on rows after they are filled. Worker side; never timed."""

from __future__ import annotations

import numpy as np

from harness import bitmask
from harness.backends import guard
from harness.backends.protocol import Grammar
from harness.bitmask import Row
from harness.stages import Job


def filled(job: Job, grammar: Grammar, rows: int) -> Row:
    """``rows`` masks as the backend fills them along the cell's documents, int32 ``[rows, words(V)]``.

    Their positions are spread evenly over all positions of all documents, as requests that started at different times
    stand; where there are fewer positions than rows, some are taken more than once. Rows are the guard's: padding and
    special tokens are 0, whatever the library leaves there.
    """
    documents = [d.tokens for d in job.documents] or [()]
    stops = [(i, position) for i, tokens in enumerate(documents) for position in range(len(tokens) + 1)]
    chosen = [stops[(2 * row + 1) * len(stops) // (2 * rows)] for row in range(rows)]
    seen: dict[tuple[int, int], Row] = {}
    for i, tokens in enumerate(documents):
        last = max((position for document, position in chosen if document == i), default=-1)
        matcher = guard.matcher(grammar, job.vocabulary, job.backend.capabilities)
        for position in range(last + 1):
            if (i, position) in chosen:
                seen[i, position] = job.row()
                matcher.fill(seen[i, position])
            if position < last:
                matcher.accept(tokens[position])
    block = bitmask.allocate(rows, job.vocabulary.size)
    np.stack([seen[stop] for stop in chosen], out=block)
    return block


def allowed(block: Row, vocabulary_size: int) -> int:
    """How many tokens the rows of a block allow, all together."""
    return sum(bitmask.count(row, vocabulary_size) for row in block)
