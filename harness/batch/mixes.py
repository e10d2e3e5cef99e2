"""What stands in the rows of a batch: matchers of a cell's constraint, and of its companions. Worker side.

The mixes, each the same in every run:

* ``identical``: every row at the middle of the longest document of the cell's constraint.
* ``positions``: rows spread over every position of the constraint's documents, both ends among them.
* ``separate``: as ``positions``, each row's grammar compiled for it alone, as vLLM does it for llguidance: such rows
  share none of the locks and caches that matchers of one compiled grammar may share.
* ``schemas``: rows alternate over the cell's constraint and its companions, each constraint's own spread as above.

The matchers have walked their documents before: what is filled afterwards are states that were met already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.backends.protocol import Grammar, NativeMatcher
from harness.cell import Companion, Document
from harness.errors import CompileError, UnsupportedError
from harness.stages import Job, walk

MIXES = ("identical", "positions", "separate", "schemas")


@dataclass(frozen=True)
class BatchRow:
    """One request of a batch. tokens: those its matcher has accepted, of the named document of the named constraint.
    next_token: the one that the document goes on with, an eos id at its end."""

    constraint: str
    document: str
    tokens: tuple[int, ...]
    next_token: int
    matcher: NativeMatcher

    @property
    def state(self) -> tuple[str, tuple[int, ...]]:
        """Rows of equal state have the same mask: the same tokens were accepted under the same constraint."""
        return self.constraint, self.tokens


@dataclass(frozen=True)
class Batch:
    rows: tuple[BatchRow, ...]

    @property
    def matchers(self) -> tuple[NativeMatcher, ...]:
        return tuple(row.matcher for row in self.rows)

    @property
    def states(self) -> int:
        """How many distinct states the rows are in."""
        return len({row.state for row in self.rows})


@dataclass(frozen=True)
class _Source:
    """A constraint of which rows are made: its grammar, and the documents along which its matchers can walk."""

    constraint: str
    grammar: Grammar
    documents: tuple[Document, ...]


class Mixer:
    """Makes the batches of one cell. Each constraint is compiled once, when a mix first needs it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._own: _Source | None = None
        self._all: tuple[_Source, ...] | None = None

    def batch(self, mix: str, rows: int) -> Batch:
        """``rows`` fresh matchers of a mix. UnsupportedError where the cell has no companions for ``schemas``, or where
        the backend refuses a companion or all of its documents."""
        if mix == "schemas":
            return _alternating(self._sources(), rows, self._end)
        own = self._source()
        if mix == "identical":
            document = self._job.longest()
            place = (document, len(document.tokens) // 2)
            return Batch(tuple(_row(own, *place, self._end) for _ in range(rows)))
        places = _spread(own.documents, rows)
        if mix == "positions":
            return Batch(tuple(_row(own, *place, self._end) for place in places))
        return Batch(tuple(_row(replace(own, grammar=self._job.compile()), *place, self._end) for place in places))

    @property
    def _end(self) -> int:
        return self._job.vocabulary.eos_ids[0]

    def _source(self) -> _Source:
        if self._own is None:
            self._own = _Source(self._job.cell.constraint_name, self._job.compile(), self._job.documents)
        return self._own

    def _sources(self) -> tuple[_Source, ...]:
        """The cell's own constraint and its companions."""
        if self._all is None:
            others = [c for c in self._job.cell.companions if c.name != self._job.cell.constraint_name]
            if not others:
                raise UnsupportedError("the cell has no companions to alternate with: name some under workload")
            self._all = (self._source(), *(self._companion(c) for c in others))
        return self._all

    def _companion(self, companion: Companion) -> _Source:
        try:
            grammar = self._job.backend.compile(companion.constraint, self._job.vocabulary, self._job.profile)
        except (UnsupportedError, CompileError) as error:
            raise UnsupportedError(f"companion {companion.name}: {error}") from error
        documents = tuple(d for d in (_accepted(grammar, d) for d in companion.documents) if d.tokens)
        if not documents:
            raise UnsupportedError(f"companion {companion.name}: no document is accepted beyond its start")
        return _Source(companion.name, grammar, documents)


def _accepted(grammar: Grammar, document: Document) -> Document:
    """The document, cut to the tokens that the backend accepts."""
    matcher = grammar.native_matcher()
    count = 0
    while count < len(document.tokens) and matcher.accept(document.tokens[count]):
        count += 1
    return replace(document, tokens=document.tokens[:count])


def _alternating(sources: Sequence[_Source], rows: int, end: int) -> Batch:
    """Row i is of source ``i mod n``; each source's rows are spread over its own places."""
    made: list[BatchRow | None] = [None] * rows
    for first, source in enumerate(sources):
        own = range(first, rows, len(sources))
        for i, place in zip(own, _spread(source.documents, len(own)), strict=True):
            made[i] = _row(source, *place, end)
    return Batch(tuple(row for row in made if row is not None))


def _spread(documents: Sequence[Document], count: int) -> list[tuple[Document, int]]:
    """``count`` places (a document, and how many of its tokens come before), evenly spread over all there are, both
    ends among them where there is more than one; with more rows than places each is taken several times."""
    places = [(document, position) for document in documents for position in range(len(document.tokens) + 1)]
    last, steps = len(places) - 1, max(count - 1, 1)
    return [places[i * last // steps] for i in range(count)]


def _row(source: _Source, document: Document, position: int, end: int) -> BatchRow:
    tokens = document.tokens
    return BatchRow(
        constraint=source.constraint,
        document=document.name,
        tokens=tokens[:position],
        next_token=tokens[position] if position < len(tokens) else end,
        matcher=walk(source.grammar, tokens[:position]),
    )
