"""Requests that go on: the rows of a batch, each walking along its document. Worker side; nothing here is timed.

A row that has reached its document's end is over, and a new request of the same document takes its place, as in a
server whose batch stays full. What the model would sample is the document's next token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.backends.protocol import Grammar, NativeMatcher
from harness.batch.mixes import Batch, BatchRow
from harness.cell import Document
from harness.stages import walk


@dataclass
class _Request:
    """position: how many tokens of the document come before the mask that is filled next."""

    document: Document
    position: int
    matcher: NativeMatcher


class Requests:
    """``rows`` requests of one grammar, spread evenly over all positions of its documents but their ends.

    behind: whether matchers accept late: each stands one token before its row's position (a new one at the start), and
    ``accept_call`` accepts the token of the step before.
    """

    def __init__(self, grammar: Grammar, documents: Sequence[Document], rows: int, *, behind: bool = False) -> None:
        self._grammar = grammar
        self._behind = behind
        places = [(document, position) for document in documents for position in range(len(document.tokens))]
        self._rows = [self._request(*places[row * len(places) // rows]) for row in range(rows)]

    def _request(self, document: Document, position: int) -> _Request:
        accepted = max(position - 1, 0) if self._behind else position
        return _Request(document, position, walk(self._grammar, document.tokens[:accepted]))

    @property
    def states(self) -> list[tuple[str, int]]:
        """Of each row: its document's name, and its position there."""
        return [(row.document.name, row.position) for row in self._rows]

    def batch(self, constraint: str) -> Batch:
        """The rows as policies want them."""
        return Batch(
            tuple(
                BatchRow(
                    constraint=constraint,
                    document=row.document.name,
                    tokens=row.document.tokens[: row.position],
                    next_token=row.document.tokens[row.position],
                    matcher=row.matcher,
                )
                for row in self._rows
            )
        )

    def accept_call(self) -> Callable[[], object]:
        """A callable that has every matcher accept one token by the library's own call: the one sampled at the row's
        position, or, behind, the one before (none for a new request)."""
        back = 1 if self._behind else 0
        rows = [row for row in self._rows if row.position >= back]
        due = [(row.matcher.accept_call(), row.document.tokens[row.position - back]) for row in rows]

        def accept() -> None:
            for call, token in due:
                call(token)

        return accept

    def advance(self) -> bool:
        """Every row goes on to its next position, after its ``accept_call`` was called once. True where a matcher was
        replaced by that of a new request, so that calls bound to the old one are of no use any more."""
        renewed = False
        for i, row in enumerate(self._rows):
            row.position += 1
            if row.position == len(row.document.tokens):
                self._rows[i] = self._request(row.document, 0)
                renewed = True
        return renewed
