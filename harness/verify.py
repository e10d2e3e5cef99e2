"""Whether a backend's masks are right on a cell's documents; asked before anything of the cell is timed. Worker side.

What is held against a backend, in this order at every step, is: the trace (a document known to be valid must be
allowed, token by token, by the mask and by ``accept`` alike), end-of-sequence (allowed exactly where the text is a
whole document), a refusal (it must leave the state as it was), the whole row, bit by bit, against the reference engine
under the backend's declared profile, and invalid documents (each must be refused at some step).

The judges are independent of the backend: the documents' labels, JSON's own grammar, and the reference engine. A
verdict never rests on the backend's own output, except where two of its answers contradict each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness import bitmask
from harness.backends import guard, registry
from harness.backends.guard import Matcher
from harness.backends.protocol import Backend, Grammar
from harness.cell import Cell, Difference, Document
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary

JUDGE = "reference"
# Refused tokens tried in one document: each costs a fill, and a library that mishandles refusal does so everywhere.
REFUSALS_PER_DOCUMENT = 6


@dataclass(frozen=True)
class Verdict:
    """What verification found.

    difference: the first fault, None where there is none. accepted: ``{document name: leading tokens accepted}`` for
    the valid documents (all of them where nothing is wrong), so that a wrong cell can still be timed as far as it goes.
    judge: what whole rows were compared with, or why they were not. rows_judged: how many rows were.
    """

    difference: Difference | None
    accepted: dict[str, int]
    judge: str
    rows_judged: int


def verify(cell: Cell, backend: Backend, grammar: Grammar, vocabulary: Vocabulary, profile: Profile) -> Verdict:
    """Hold a compiled grammar against the cell's documents and the judge. It compiles nothing but the judge's own."""
    judge, judged_by = _judge(cell.constraint, vocabulary, profile)
    check = _Check(cell, backend, grammar, vocabulary, profile, judge, judged_by)
    difference = next(check.faults(), None)
    accepted = {d.name: check.accepted.get(d.name, 0) for d in cell.valid}
    if difference is not None:
        # The walk stopped at the first fault; how far each document goes is asked of the library alone.
        accepted = {d.name: _accepted(grammar, vocabulary, backend, d) for d in cell.valid}
    return Verdict(difference, accepted, check.judged_by, check.rows_judged)


def _judge(constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> tuple[Matcher | None, str]:
    judge = registry.create(JUDGE)
    try:
        grammar = judge.compile(constraint, vocabulary, profile)
    except UnsupportedError as error:
        return None, f"{JUDGE} does not cover it: {error.reason}"
    except CompileError as error:
        return None, f"{JUDGE} does not compile it: {error}"
    return guard.matcher(grammar, vocabulary, judge.capabilities), JUDGE


def _accepted(grammar: Grammar, vocabulary: Vocabulary, backend: Backend, document: Document) -> int:
    matcher = guard.matcher(grammar, vocabulary, backend.capabilities)
    count = 0
    while count < len(document.tokens) and matcher.accept(document.tokens[count]):
        count += 1
    return count


class _Check:
    """One verification under way: the faults it finds, in order, as a generator that stops where the caller does."""

    def __init__(
        self,
        cell: Cell,
        backend: Backend,
        grammar: Grammar,
        vocabulary: Vocabulary,
        profile: Profile,
        judge: Matcher | None,
        judged_by: str,
    ) -> None:
        self._cell = cell
        self._backend = backend
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._profile = profile
        self._judge = judge
        self.judged_by = judged_by
        self._row = bitmask.allocate_row(vocabulary.size)
        self._expected = bitmask.allocate_row(vocabulary.size)
        self._eos = frozenset(vocabulary.eos_ids)
        self.accepted: dict[str, int] = {}
        self.rows_judged = 0

    def faults(self) -> Iterator[Difference]:
        for document in self._cell.valid:
            yield from self._valid(document)
        for document in self._cell.invalid:
            yield from self._invalid(document)

    def _valid(self, document: Document) -> Iterator[Difference]:
        matcher = self._matcher()
        if self._judge is not None:
            self._judge.reset()
        refusal_steps = set(np.linspace(0, len(document.tokens), REFUSALS_PER_DOCUMENT).round().astype(int).tolist())
        for step in range(len(document.tokens) + 1):
            at_end = step == len(document.tokens)
            matcher.fill(self._row)
            if at_end:
                yield from self._end_of_valid(document, step, matcher)
            elif not bitmask.test(self._row, document.tokens[step]):
                yield self._fault(document, step, document.tokens[step], "too strict", "trace",
                                  "the next token of a valid document is forbidden by the mask")  # fmt: skip
            yield from self._specials(document, step, matcher)
            yield from self._eos_within(document, step, matcher)
            yield from self._whole_row(document, step)
            if step in refusal_steps:
                yield from self._refusal(document, step, matcher)
            if at_end:
                break
            token = document.tokens[step]
            if not matcher.accept(token):
                explanation = "the next token of a valid document is allowed by the mask and refused by accept"
                yield self._fault(document, step, token, "too strict", "trace", explanation)
                return
            if not self._judge_takes(document, step):
                raise AssertionError(
                    f"{self._cell.id}: the judge refuses token {token} at step {step} of {document.name}, a valid "
                    "document: the judge or the document is wrong"
                )
            self.accepted[document.name] = step + 1
        yield from self._termination(document, matcher)

    def _end_of_valid(self, document: Document, step: int, matcher: Matcher) -> Iterator[Difference]:
        for eos in self._vocabulary.eos_ids:
            if not bitmask.test(self._row, eos):
                yield self._fault(document, step, eos, "too strict", "trace",
                                  "end-of-sequence is forbidden at the end of a valid document")  # fmt: skip
        if not matcher.is_accepting:
            yield self._fault(document, step, self._vocabulary.eos_ids[0], "too strict", "contract",
                              "is_accepting is False at the end of a valid document")  # fmt: skip

    def _eos_within(self, document: Document, step: int, matcher: Matcher) -> Iterator[Difference]:
        """End-of-sequence at any step: never in the middle of a JSON text, and never at odds with is_accepting."""
        allowed = {bitmask.test(self._row, eos) for eos in self._eos}
        eos = self._vocabulary.eos_ids[0]
        if len(allowed) > 1:
            yield self._fault(
                document, step, eos, "too strict", "contract", "only some end-of-sequence ids are allowed"
            )
        if allowed == {True} and not self._whole_json(self._prefix(document, step)):
            yield self._fault(document, step, eos, "too loose", "json",
                              "end-of-sequence is allowed where the text is not a whole JSON text")  # fmt: skip
        if (True in allowed) != matcher.is_accepting:
            yield self._fault(document, step, eos, "too loose" if True in allowed else "too strict", "contract",
                              "the mask's end-of-sequence bit contradicts is_accepting")  # fmt: skip

    def _whole_json(self, prefix: bytes) -> bool:
        """Whether the prefix may be a whole document as far as JSON's own grammar can tell."""
        if self._cell.constraint.kind not in ("json_schema", "json_object"):
            return True
        try:
            json.loads(prefix)
        except ValueError:
            return False
        return True

    def _whole_row(self, document: Document, step: int) -> Iterator[Difference]:
        if self._judge is None:
            return
        try:
            self._judge.fill(self._expected)
        except UnsupportedError as error:
            self._stop_judging(document, step, error)
            return
        self.rows_judged += 1
        found = bitmask.diff(self._row, self._expected, self._vocabulary.size)
        wrong = len(found.too_loose) + len(found.too_strict)
        if found.too_loose:
            yield self._fault(document, step, found.too_loose[0], "too loose", JUDGE,
                              f"wrong bits in the row: {wrong}, this one allowed", count=wrong)  # fmt: skip
        elif found.too_strict:
            yield self._fault(document, step, found.too_strict[0], "too strict", JUDGE,
                              f"wrong bits in the row: {wrong}, this one forbidden", count=wrong)  # fmt: skip

    def _stop_judging(self, document: Document, step: int, error: UnsupportedError) -> None:
        """The judge comes to a bound of its own in the middle of a document; what it said before stands."""
        self._judge = None
        self.judged_by = f"{JUDGE}, up to step {step} of {document.name}: {error.reason}"

    def _judge_takes(self, document: Document, step: int) -> bool:
        """Move the judge on by a document's token; whether it took it (so too where nobody judges)."""
        if self._judge is None:
            return True
        try:
            return self._judge.accept(document.tokens[step])
        except UnsupportedError as error:
            self._stop_judging(document, step, error)
            return True

    def _specials(self, document: Document, step: int, matcher: Matcher) -> Iterator[Difference]:
        """A special token is never part of a text; the guard clears its bit, but whoever serves has no guard."""
        token = matcher.special_in_row
        if token is not None:
            yield self._fault(document, step, token, "too loose", "contract",
                              "the library's own row allows a special token")  # fmt: skip

    def _refusal(self, document: Document, step: int, matcher: Matcher) -> Iterator[Difference]:
        """A forbidden token is refused, and the state is as it was."""
        before = self._row.copy()
        token = self._forbidden(before, step)
        if token is None:
            return
        if matcher.accept(token):
            yield self._fault(document, step, token, "too loose", "refused token",
                              "accept took a token that the mask forbids")  # fmt: skip
            return
        matcher.fill(self._row)
        found = bitmask.diff(self._row, before, self._vocabulary.size)
        if found:
            direction, ids = ("too loose", found.too_loose) if found.too_loose else ("too strict", found.too_strict)
            yield self._fault(document, step, ids[0], direction, "refused token",
                              f"the mask changed after token {token} was refused", count=len(ids))  # fmt: skip

    def _forbidden(self, row: bitmask.Row, step: int) -> int | None:
        """An ordinary token that the mask forbids, another one at each step; None where all are allowed.

        Under the canonical token policy a forbidden token may still spell legal text, so that taking it is no fault;
        there only tokens whose first byte no allowed token starts with are tried.
        """
        allowed = bitmask.unpack(row, self._vocabulary.size)
        candidates = np.flatnonzero(~allowed)
        ordinary = [t for t in _spread(candidates.tolist(), step, 64) if t not in self._vocabulary.special_ids]
        if self._profile.tokens == "canonical":
            firsts = {self._vocabulary.tokens[t][:1] for t in np.flatnonzero(allowed).tolist()}
            ordinary = [t for t in ordinary if self._vocabulary.tokens[t][:1] not in firsts]
        return next((t for t in ordinary if self._vocabulary.tokens[t]), None)

    def _termination(self, document: Document, matcher: Matcher) -> Iterator[Difference]:
        eos = self._vocabulary.eos_ids[0]
        step = len(document.tokens)
        if not matcher.accept(eos):
            yield self._fault(document, step, eos, "too strict", "trace",
                              "end-of-sequence is allowed by the mask and refused by accept")  # fmt: skip
        elif not matcher.is_terminated:
            yield self._fault(document, step, eos, "too loose", "contract", "not terminated after end-of-sequence")

    def _invalid(self, document: Document) -> Iterator[Difference]:
        matcher = self._matcher()
        if self._judge is not None:
            self._judge.reset()
        for step, token in enumerate(document.tokens):
            matcher.fill(self._row)
            yield from self._specials(document, step, matcher)
            yield from self._eos_within(document, step, matcher)
            yield from self._whole_row(document, step)
            allowed = bitmask.test(self._row, token)
            taken = matcher.accept(token)
            if not allowed and not taken:
                return
            if not taken:
                yield self._fault(document, step, token, "too loose", "contract", "the mask allows what accept refuses")
                return
            if not allowed and self._profile.tokens == "all":
                yield self._fault(document, step, token, "too loose", "refused token",
                                  "accept took a token that the mask forbids")  # fmt: skip
                return
            # Not allowed: never offered under a canonical policy, a model cannot get here. Refused by the judge: the
            # row that allowed it was a fault, and nothing is known of what follows one.
            if not allowed or not self._judge_takes(document, step):
                return
        step = len(document.tokens)
        matcher.fill(self._row)
        eos = self._vocabulary.eos_ids[0]
        if bitmask.test(self._row, eos):
            yield self._fault(document, step, eos, "too loose", "invalid document",
                              "an invalid document is allowed to its end")  # fmt: skip
        yield from self._specials(document, step, matcher)
        yield from self._eos_within(document, step, matcher)
        yield from self._whole_row(document, step)

    def _matcher(self) -> Matcher:
        return guard.matcher(self._grammar, self._vocabulary, self._backend.capabilities)

    def _prefix(self, document: Document, step: int) -> bytes:
        return self._vocabulary.decode(document.tokens[:step])

    def _fault(
        self,
        document: Document,
        step: int,
        token: int,
        direction: str,
        judge: str,
        explanation: str,
        count: int = 1,
    ) -> Difference:
        text = "<eos>" if token in self._eos else self._vocabulary.tokens[token].decode("latin-1")
        return Difference(
            document=document.name,
            step=step,
            token=token,
            token_bytes=text,
            direction="too loose" if direction == "too loose" else "too strict",
            judge=judge,
            prefix=self._prefix(document, step).decode(errors="replace"),
            explanation=explanation,
            count=count,
        )


def _spread(values: Sequence[int], offset: int, most: int) -> list[int]:
    """Up to ``most`` of the values, evenly spread, another selection for another ``offset``."""
    if len(values) <= most:
        return list(values)
    stride = len(values) // most
    return [values[(offset + i * stride) % len(values)] for i in range(most)]
