"""The stage jump_forward: exact counts, times for each mode, and refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from harness import encoders
from harness.cell import Measurement, Refusal
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.speculation.jump_forward import ForcedTextError, Writer
from harness.stages import Job, stages
from harness.vocabulary import Vocabulary
from tests.batch.jobs import job
from tests.fake_backends import Fake, Matcher
from tests.making import VOCABULARY

WORDS = ("yes name", "no value")
CHOICE = Constraint("choice", json.dumps(WORDS))


def run(the_job: Job) -> tuple[list[Measurement], list[Refusal]]:
    results = stages()["jump_forward"].run(the_job)
    return [r for r in results if isinstance(r, Measurement)], [r for r in results if isinstance(r, Refusal)]


def counts(measurement: Measurement, document: str) -> dict[str, Any]:
    at = measurement.columns["document"].index(document)
    return {name: values[at] for name, values in measurement.columns.items() if name != "document"}


def test_every_mode_is_timed_and_the_forced_call_knows_no_prompt() -> None:
    measured, refused = run(job("naive", CHOICE, WORDS))
    assert refused == []
    assert [dict(m.conditions) for m in measured] == [
        {"mode": "forced"},
        *(
            {"mode": mode, "prompt": prompt}
            for prompt in ("none", "trailing_space")
            for mode in ("retokenise", "document")
        ),
    ]


def test_counts_of_a_document_are_exact() -> None:
    measured, _ = run(job("naive", CHOICE, WORDS, conditions={"mode": ("document",), "prompt": ("none",)}))
    (measurement,) = measured
    # "yes" is said by the model, and all that follows is forced: " name", which is "yes| |name" as the trace has it.
    assert encoders.encode(VOCABULARY, "yes name") == tuple(map(VOCABULARY.tokens.index, (b"yes", b" ", b"name")))
    assert counts(measurement, "valid/0") == {
        "document_bytes": 8, "document_tokens": 3, "forced_bytes": 5, "forced_tokens": 2, "jumps": 1, "passes": 1,
        "passes_saved": 2, "positions_invalidated": 0, "fusions": 0,
    }  # fmt: skip


def test_a_jump_that_joins_the_last_token_and_the_forced_text_invalidates_its_place() -> None:
    choices = ("abc12", "q")
    constraint = Constraint("choice", json.dumps(choices))
    # The model says "ab", as the trace of another cut would have it; "c12" is forced, and "abc" is one token.
    one = job("naive", constraint, choices)
    writer = Writer(
        VOCABULARY,
        partial(encoders.encode, VOCABULARY),
        b"abc12",
        [VOCABULARY.tokens.index(piece) for piece in (b"ab", b"c", b"12")],
    )
    written = writer.write(one.compile().native_matcher())
    (jump,) = written.jumps
    assert jump.text == b"c12"
    assert written.tokens == encoders.encode(VOCABULARY, "abc12")
    assert (written.sampled, written.positions_invalidated, written.forced_tokens) == (1, 1, 1)


def test_a_prompt_that_would_be_cut_otherwise_refuses_every_jump_of_the_document() -> None:
    # The synthetic vocabulary has " the" as one token, which a prompt's last space would become part of: whatever is
    # written after it, the whole text cut anew never has the prompt's own tokens again.
    constraint = Constraint("choice", json.dumps(["the value"]))
    one = job("naive", constraint, ("the value",), conditions={"mode": ("document",)})
    before, after = run(one)[0]
    assert (before.conditions["prompt"], after.conditions["prompt"]) == ("none", "trailing_space")
    assert counts(before, "valid/0") == {
        "document_bytes": 9, "document_tokens": 3, "forced_bytes": 9, "forced_tokens": 3, "jumps": 1, "passes": 0,
        "passes_saved": 3, "positions_invalidated": 0, "fusions": 0,
    }  # fmt: skip
    refused = counts(after, "valid/0")
    assert (refused["fusions"], refused["jumps"], refused["forced_bytes"]) == (3, 0, 0)
    assert (refused["passes"], refused["passes_saved"]) == (3, 0)
    measured, refusals = run(job("naive", constraint, ("the value",), conditions={"mode": ("retokenise",)}))
    assert [m.conditions["prompt"] for m in measured] == ["none"]
    (refusal,) = refusals
    assert (refusal.kind, refusal.conditions["prompt"]) == ("unsupported", "trailing_space")
    assert "token fusion" in refusal.reason


def test_nothing_is_jumped_to_from_a_state_in_which_the_document_may_end() -> None:
    choices = ("ab", "ab yes")
    constraint = Constraint("choice", json.dumps(choices))
    (measurement,), _ = run(job("naive", constraint, choices, conditions={"mode": ("document",), "prompt": ("none",)}))
    # "ab" is forced from the start; after it the document may end, so the model has to say the space; then "yes".
    assert counts(measurement, "valid/1") == {
        "document_bytes": 6, "document_tokens": 3, "forced_bytes": 5, "forced_tokens": 2, "jumps": 2, "passes": 1,
        "passes_saved": 2, "positions_invalidated": 0, "fusions": 0,
    }  # fmt: skip


def test_where_nothing_is_forced_there_is_no_jump_to_time() -> None:
    choices = ("yes", "no", "q", "a")
    constraint = Constraint("choice", json.dumps(choices))
    measured, refused = run(job("naive", constraint, ("q",), conditions={"prompt": ("none",)}))
    assert [m.conditions["mode"] for m in measured] == ["forced", "document"]
    (refusal,) = refused
    assert (refusal.kind, refusal.conditions["mode"]) == ("unsupported", "retokenise")


# Libraries that say the wrong thing.


class Forcing(Fake):
    """The right engine for choices, which says what it is told is forced."""

    capabilities = replace(Fake.capabilities, forced=True)

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Any:
        choices = tuple(c.encode() for c in constraint.json())
        return _Grammar(self, choices, vocabulary)


@dataclass(frozen=True)
class _Grammar:
    backend: Forcing
    choices: tuple[bytes, ...]
    vocabulary: Vocabulary

    def native_matcher(self) -> _Matcher:
        return _Matcher(self.backend, self.choices, self.vocabulary)


class _Matcher(Matcher):
    def __init__(self, backend: Forcing, choices: tuple[bytes, ...], vocabulary: Vocabulary) -> None:
        super().__init__(backend, choices, vocabulary)
        self._text_forced = backend.text

    def forced(self) -> bytes:
        return self._text_forced


@pytest.mark.parametrize(
    ("text", "choices", "said"),
    [
        (b"no", ("yes", "no"), "which goes on otherwise"),
        (b"yes", ("yes", "yesyes"), "where the document may end"),
    ],
)
def test_forced_text_that_is_not_forced_is_wrong(text: bytes, choices: Sequence[str], said: str) -> None:
    constraint = Constraint("choice", json.dumps(list(choices)))
    measured, refused = run(job(Forcing(text), constraint, choices[:1] if text == b"no" else choices))
    wrong = [r for r in refused if r.kind == "wrong"]
    assert said in next(r.reason for r in wrong if r.conditions == {"mode": "forced"})
    assert "forced" not in [m.conditions["mode"] for m in measured]


def test_forced_text_that_a_document_does_not_have_stops_the_writer() -> None:
    one = job(Forcing(b"no"), Constraint("choice", '["yes", "no"]'), ("yes",))
    writer = Writer(VOCABULARY, partial(encoders.encode, VOCABULARY), b"yes", encoders.encode(VOCABULARY, "yes"))
    with pytest.raises(ForcedTextError, match="forced at byte 0 of a valid document"):
        writer.write(one.compile().native_matcher())


def test_a_backend_that_does_not_say_what_is_forced_is_unsupported_for_its_own_reason() -> None:
    backend = Fake()
    backend.capabilities = replace(Fake.capabilities, notes={"forced": "the library has no jump-forward"})
    with pytest.raises(UnsupportedError, match="no jump-forward"):
        run(job(backend, CHOICE, WORDS))


def test_a_vocabulary_without_an_encoder_leaves_the_call_alone() -> None:
    one = job("naive", CHOICE, WORDS)
    bare = replace(one, vocabulary=replace(VOCABULARY, encoder=None))
    measured, refused = run(bare)
    assert [m.conditions["mode"] for m in measured] == ["forced"]
    assert {r.kind for r in refused} == {"unsupported"}
    assert all("encoder" in r.reason for r in refused)


@pytest.mark.parametrize("name", ["reference", "xgrammar"])
def test_engines_force_what_the_definition_forces(name: str) -> None:
    if name == "xgrammar":
        pytest.importorskip(name)
    asked = {"mode": ("document",), "prompt": ("none",)}
    (measurement,), refused = run(job(name, CHOICE, WORDS, conditions=asked))
    (defined,), _ = run(job("naive", CHOICE, WORDS, conditions=asked))
    assert refused == []
    for document in ("valid/0", "valid/1"):
        assert counts(measurement, document) == counts(defined, document)
