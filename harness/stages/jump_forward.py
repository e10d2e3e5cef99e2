"""``jump_forward``: text that the grammar forces, and what it costs to write it without the model.

Inner axes. ``mode``:

* ``forced``: the library's call that says which text is forced, at positions of the longest document. Columns
  ``position``, ``forced_bytes``.
* ``retokenise``: one jump, its text being known: the whole text cut into tokens anew, the longest common prefix found,
  the tokens after it taken back and the new ones accepted. Columns ``position`` (tokens accepted before),
  ``forced_bytes``, ``positions_invalidated`` (tokens taken back, whose places in the model's cache are lost),
  ``tokens_written``.
* ``document``: all that the host does for one document: the look for forced text before every token, jumps, accepts.
  Columns ``document``, ``document_bytes``, ``document_tokens`` (its trace), and exact counts: ``forced_bytes``,
  ``forced_tokens`` (gained by jumps), ``jumps``, ``passes`` (tokens that the model says; the end-of-sequence aside),
  ``passes_saved`` (the trace's tokens less those), ``positions_invalidated``, ``fusions`` (jumps refused because the
  prompt's last token would change).

``prompt``: what stands before the document: ``none``, or ``trailing_space``, a text that ends in a space, which
tokenizers like to join with what follows. ``forced`` knows no prompt.

The model's own work is no part of any time here. Before anything is timed, every document is written once: forced text
must be the document's own, none may be forced where the document may end, and the matcher must stand at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness import encoders
from harness.backends.protocol import Grammar, NativeMatcher
from harness.cell import Document, Measurement, Refusal
from harness.errors import UnsupportedError
from harness.measure import loop, measure, merge
from harness.reference.forced import Encode, recut
from harness.speculation.jump_forward import ForcedTextError, Jump, Writer, Written
from harness.stages import Job, spread, stand, walk

NAME = "jump_forward"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "mode": ("forced", "retokenise", "document"),
    "prompt": ("none", "trailing_space"),
}
PROMPTS: Mapping[str, str] = {"none": "", "trailing_space": "The answer as JSON "}
POSITIONS = 8


def run(job: Job) -> list[Measurement | Refusal]:
    able = job.backend.capabilities
    if not able.forced:
        raise UnsupportedError(able.notes.get("forced", "the library does not say what text is forced"))
    documents = [d for d in job.documents if job.vocabulary.decode(d.tokens) == d.text.encode()]
    if not documents:
        raise UnsupportedError("no document of this constraint is accepted to its end")
    grammar = job.compile()
    modes, prompts = (job.chosen(axis, CONDITIONS[axis]) for axis in ("mode", "prompt"))
    done = [_forced(job, grammar, documents)] if "forced" in modes else []
    for prompt, mode in product(prompts, [m for m in modes if m != "forced"]):
        done.append(_with_prompt(job, grammar, documents, {"mode": mode, "prompt": prompt}))
    return done


def _forced(job: Job, grammar: Grammar, documents: Sequence[Document]) -> Measurement | Refusal:
    conditions = {"mode": "forced"}
    tokens = max(documents, key=lambda d: len(d.tokens)).tokens
    positions = spread(len(tokens), POSITIONS)
    parts = []
    for position in positions:
        matcher = walk(grammar, tokens[:position])
        text = matcher.forced()
        if text and matcher.is_accepting():
            reason = f"text is forced after {position} tokens, where the document may end: {text[:40]!r}"
            return Refusal(conditions, "wrong", reason)
        if not job.vocabulary.decode(tokens[position:]).startswith(text):
            reason = f"{text[:40]!r} is forced after {position} tokens of a valid document, which goes on otherwise"
            return Refusal(conditions, "wrong", reason)
        parts.append(
            measure(
                loop(matcher.forced),
                job.clock,
                job.plan.share(len(positions)),
                conditions=conditions,
                columns={"position": position, "forced_bytes": len(text)},
            )
        )
    return merge(parts)


@dataclass(frozen=True)
class _Written:
    """A document, who writes it, and what was written when it was tried."""

    document: Document
    writer: Writer
    written: Written


def _with_prompt(
    job: Job, grammar: Grammar, documents: Sequence[Document], conditions: Mapping[str, str]
) -> Measurement | Refusal:
    if job.vocabulary.encoder is None:
        return Refusal(conditions, "unsupported", f"vocabulary {job.vocabulary.name} has no encoder to cut text anew")
    if not job.backend.capabilities.rollback:
        return Refusal(conditions, "unsupported", "the library cannot take tokens back")
    encode = encoders.load(job.vocabulary).encode
    prompt = encode(PROMPTS[conditions["prompt"]])
    try:
        tried = [_try(job, grammar, encode, prompt, document) for document in documents]
    except ForcedTextError as error:
        return Refusal(conditions, "wrong", str(error))
    if conditions["mode"] == "document":
        return _documents(job, grammar, tried, conditions)
    longest = max(tried, key=lambda t: len(t.document.tokens))
    if not longest.written.jumps:
        reason = "no text of the longest document is forced under this profile"
        if longest.written.fusions:
            reason = "token fusion: every jump would change the prompt's last token, and is refused"
        return Refusal(conditions, "unsupported", reason)
    return _jumps(job, grammar, encode, prompt, longest.written.jumps, conditions)


def _try(job: Job, grammar: Grammar, encode: Encode, prompt: Sequence[int], document: Document) -> _Written:
    writer = Writer(job.vocabulary, encode, document.text.encode(), document.tokens, prompt)
    matcher = grammar.native_matcher()
    written = writer.write(matcher)
    if not matcher.is_accepting():
        raise ForcedTextError(f"{document.name}, written with jumps, is not at its end")
    return _Written(document, writer, written)


def _documents(job: Job, grammar: Grammar, tried: Sequence[_Written], conditions: Mapping[str, str]) -> Measurement:
    return merge(
        [
            measure(
                _writes(grammar, one.writer),
                job.clock,
                job.plan.share(len(tried)),
                conditions=conditions,
                columns=_counts(one.document, one.written),
            )
            for one in tried
        ]
    )


def _counts(document: Document, written: Written) -> dict[str, Any]:
    return {
        "document": document.name,
        "document_bytes": len(document.text.encode()),
        "document_tokens": len(document.tokens),
        "forced_bytes": written.forced_bytes,
        "forced_tokens": written.forced_tokens,
        "jumps": len(written.jumps),
        "passes": written.sampled,
        "passes_saved": len(document.tokens) - written.sampled,
        "positions_invalidated": written.positions_invalidated,
        "fusions": written.fusions,
    }


def _writes(grammar: Grammar, writer: Writer) -> Callable[[int], Callable[[], object]]:
    def make(n: int) -> Callable[[], object]:
        matchers = [grammar.native_matcher() for _ in range(n)]

        def block() -> object:
            for matcher in matchers:
                writer.write(matcher)
            return matchers

        return block

    return make


def _jumps(
    job: Job,
    grammar: Grammar,
    encode: Encode,
    prompt: Sequence[int],
    jumps: Sequence[Jump],
    conditions: Mapping[str, str],
) -> Measurement:
    chosen = [jumps[i] for i in spread(len(jumps) - 1, POSITIONS)]
    return merge(
        [
            measure(
                _jump(job, grammar, encode, prompt, jump),
                job.clock,
                job.plan.share(len(chosen)),
                conditions=conditions,
                columns={
                    "position": len(jump.history),
                    "forced_bytes": len(jump.text),
                    "positions_invalidated": jump.change.rolled_back,
                    "tokens_written": len(jump.change.accepted),
                },
            )
            for jump in chosen
        ]
    )


def _jump(
    job: Job, grammar: Grammar, encode: Encode, prompt: Sequence[int], jump: Jump
) -> Callable[[int], Callable[[], object]]:
    standing, vocabulary = stand(job, grammar, jump.history), job.vocabulary

    def make(n: int) -> Callable[[], object]:
        matchers: list[NativeMatcher] = [standing() for _ in range(n)]
        calls = [(m.rollback_call(), m.accept_call()) for m in matchers]

        def block() -> object:
            for rewind, accept in calls:
                change = recut(vocabulary, encode, prompt, jump.history, jump.text)
                if change.rolled_back:
                    rewind(change.rolled_back)
                for token in change.accepted:
                    accept(token)
            return matchers

        return block

    return make
