"""``speculate``: the rows of one sequence's drafts at one position, the matcher rewound to where it was.

Inner axes. ``shape``: ``chain``, a row before each draft and one after the last, as in vLLM; ``tree``, drafts two by
two below each other, as in SGLang. ``policy``: ``generic``, a walk by the library's own fill, accept and rewind;
``native``, the library's one call for it. ``drafts``: where they come from (``harness.speculation.drafts``).
``draft_tokens``: k, how many. Columns: ``position`` (tokens accepted before), ``rows_filled``, ``drafts_kept`` (those
the grammar allows; the others are sentinels, or not entered), ``drafts_accepted`` (those kept that are the document's
own next tokens).

What is timed is the walk and nothing else: the drafts of a chain were held against the grammar before (the stage
``validate`` times that), and rows that nobody fills were set to ones before. A state is visited again and again, so
these are later visits. Every walk is checked before it is timed: each row against that of a fresh matcher which
accepted the same tokens, the row after the rewind against the row before, and the document's next token, which must be
accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import numpy as np

from harness import bitmask
from harness.backends import guard
from harness.backends.protocol import DraftShape, Grammar, NativeDrafts, NativeMatcher
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.errors import UnsupportedError
from harness.measure import loop, measure, merge
from harness.speculation import chain, drafts, tree
from harness.speculation.lookahead import Fresh, row_of
from harness.stages import Job, spread, stand

NAME = "speculate"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "shape": ("chain", "tree"),
    "policy": ("generic", "native"),
    "drafts": drafts.SOURCES,
    "draft_tokens": (1, 2, 4, 8),
}
POSITIONS = 5


def run(job: Job) -> list[Measurement | Refusal]:
    able = job.backend.capabilities
    if not able.rollback:
        raise UnsupportedError(able.notes.get("rollback", "the library has no rollback"))
    tokens = job.longest().tokens
    counts = [k for k in job.condition("draft_tokens", CONDITIONS["draft_tokens"]) if k <= len(tokens)]
    if not counts:
        raise UnsupportedError(f"the longest document has {len(tokens)} tokens, fewer than any number of drafts")
    grammar = job.compile()
    places = [_Place(job, grammar, tokens, at) for at in spread(len(tokens) - max(counts), POSITIONS)]
    shapes, policies, sources = (job.chosen(axis, CONDITIONS[axis]) for axis in ("shape", "policy", "drafts"))
    return [
        _measure(job, places, {"shape": shape, "policy": policy, "drafts": source, "draft_tokens": k})
        for shape, source, k, policy in product(shapes, sources, counts, policies)
    ]


@dataclass(frozen=True)
class _Walk:
    """One sequence's drafts: what is to be filled, and the columns that say how they fared.

    rows_at: the places of the rows that are filled, in a block of ``height`` rows. paths: the tokens after which each
    of them stands. bind: makes the callable that fills the block from a matcher.
    """

    height: int
    rows_at: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    bind: Callable[[NativeMatcher, Row], Callable[[], object]]
    columns: Mapping[str, int]


class _Place:
    """A position of the document, and fresh matchers there."""

    def __init__(self, job: Job, grammar: Grammar, tokens: tuple[int, ...], position: int) -> None:
        self.position = position
        self.upcoming = tokens[position:]
        self.stand = stand(job, grammar, tokens[:position])
        self.fresh = Fresh(self.stand, job.vocabulary.size)
        self._job = job
        self._eos = frozenset(job.vocabulary.eos_ids)

    def walk(self, shape: DraftShape, policy: str, source: drafts.Source, k: int) -> _Walk | None:
        """None where there are no such drafts here."""
        parents = drafts.chain_parents(k) if shape == "chain" else drafts.tree_parents(k)
        seed = f"{shape} {k} {self.position}"
        drawn = drafts.draw(source, parents, self.upcoming, self.fresh, self._job.vocabulary, seed)
        if drawn is None:
            return None
        native = policy == "native"
        return self._chain(drawn.tokens[1:], native) if shape == "chain" else self._tree(drawn, native)

    def _chain(self, drawn: tuple[int, ...], native: bool) -> _Walk:
        # A matcher of its own: a library that validates by accepting may be one whose rewind is at fault.
        matcher = guard.Matcher(self.stand(), self._job.vocabulary, self._job.backend.capabilities)
        kept = chain.filtered(matcher, drawn, self._eos)

        def bind(matcher: NativeMatcher, rows: Row) -> Callable[[], object]:
            if native:
                return cast(NativeDrafts, matcher).draft_chain_call(kept.steps, rows)
            return chain.rows_call(matcher, kept, rows)

        accepted = chain.acceptance(kept, self.upcoming).accepted
        return _Walk(
            height=len(drawn) + 1,
            rows_at=tuple(range(kept.rows)),
            paths=tuple(kept.steps[:i] for i in range(kept.rows)),
            bind=bind,
            columns=self._columns(kept.rows, kept.kept, accepted),
        )

    def _tree(self, drawn: tree.DraftTree, native: bool) -> _Walk:
        rows = np.full((drawn.nodes, bitmask.words(self._job.vocabulary.size)), -1, dtype=np.int32)
        # Which nodes are reached is asked of fresh matchers, parents first.
        for node in range(drawn.nodes):
            if node in tree.reached(drawn, rows, self._eos):
                rows[node] = self.fresh.row(drawn.path(node))
        reached, legal = tree.reached(drawn, rows, self._eos), tree.legal(drawn, rows, self._eos)

        def bind(matcher: NativeMatcher, rows: Row) -> Callable[[], object]:
            if native:
                tokens = np.array((0, *drawn.tokens[1:]), dtype=np.int64)
                return cast(NativeDrafts, matcher).draft_tree_call(drawn.first_child, drawn.next_sibling, tokens, rows)
            return tree.rows_call(matcher, drawn, rows, self._eos)

        return _Walk(
            height=drawn.nodes,
            rows_at=reached,
            paths=tuple(map(drawn.path, reached)),
            bind=bind,
            columns=self._columns(len(reached), len(legal), tree.accepted(drawn, legal, self.upcoming)),
        )

    def _columns(self, rows: int, kept: int, accepted: int) -> dict[str, int]:
        return {"position": self.position, "rows_filled": rows, "drafts_kept": kept, "drafts_accepted": accepted}


def _measure(job: Job, places: list[_Place], conditions: Mapping[str, Any]) -> Measurement | Refusal:
    shape, policy = conditions["shape"], conditions["policy"]
    able = job.backend.capabilities
    if policy == "native" and shape not in able.native_drafts:
        reason = able.notes.get("native_drafts", "the library has no call that fills the rows of drafts")
        return Refusal(conditions, "unsupported", reason)
    walks = [(place, place.walk(shape, policy, conditions["drafts"], conditions["draft_tokens"])) for place in places]
    found = [(place, walk) for place, walk in walks if walk is not None]
    if not found:
        return Refusal(conditions, "unsupported", "the grammar refuses no ordinary token at any of the positions")
    for place, walk in found:
        fault = _fault(place, walk, job.vocabulary.size)
        if fault:
            return Refusal(conditions, "wrong", f"{shape} of drafts at position {place.position}: {fault}")
    return merge(
        [
            measure(
                loop(walk.bind(place.stand(), _block(walk, job.vocabulary.size))),
                job.clock,
                job.plan.share(len(found)),
                conditions=conditions,
                columns=walk.columns,
            )
            for place, walk in found
        ]
    )


def _fault(place: _Place, walk: _Walk, size: int) -> str:
    """What is wrong with a walk's rows or with the state it leaves; empty where nothing is."""
    matcher, rows = place.stand(), _block(walk, size)
    walk.bind(matcher, rows)()
    for at, path in zip(walk.rows_at, walk.paths, strict=True):
        if bits := _differing(rows[at], place.fresh.row(path), size):
            return f"row {at} is not that of a fresh matcher after the same {len(path)} drafts: {bits}"
    if bits := _differing(row_of(matcher, size), place.fresh.row(()), size):
        return f"the row after the rewind is not the row before: {bits}"
    if not matcher.accept(place.upcoming[0]):
        return f"after the rewind the document's next token, {place.upcoming[0]}, is refused"
    return ""


def _differing(row: Row, expected: Row, size: int) -> str:
    """Which bits differ; empty where none does."""
    if np.array_equal(row, expected):
        return ""
    found = bitmask.diff(row, expected, size)
    kinds = (("too loose", found.too_loose), ("too strict", found.too_strict))
    said = [f"{len(tokens)} bits {what} (token {tokens[0]} …)" for what, tokens in kinds if tokens]
    return ", ".join(said) or "the padding"


def _block(walk: _Walk, size: int) -> Row:
    """Rows of ones: a row that nobody fills constrains nothing."""
    return np.full((walk.height, bitmask.words(size)), -1, dtype=np.int32)
