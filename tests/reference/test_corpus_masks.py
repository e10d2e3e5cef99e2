"""Masks over the shared corpus of real schemas and a vocabulary of 129,280 tokens: the fast rows are the definition's,
no walk under them meets a dead end, and what walks end in satisfies an independent validator."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from harness import bitmask, encoders, loaders
from harness.backends.reference import Naive, Reference
from harness.backends.xgrammar import XGrammar
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference import completion
from harness.reference.masker import Cell, Masker
from harness.vocabulary import Vocabulary

from .schema_cases import read
from .test_schema_shared import files

pytestmark = [pytest.mark.shared, pytest.mark.heavy, pytest.mark.timeout(3600)]

PROFILES: dict[str, Profile] = {
    "default": Reference.profiles["default"],
    "declared": Reference.profiles["declared"],
    "a library's": XGrammar.profiles["compact"],
}
# Corpus schemas that the engine refuses by name, all of them for a declared bound or by nature, as a share.
MOST_REFUSED = 0.03
# Places of a JSON text (``tree.Mode``), in the order in which schemas take turns to have a state sampled from them.
PLACES = ("value", "key", "string", "in object", "number", "after key", "before key", "in array", "end", "literal",
          "open object", "open array")  # fmt: skip
# Bytes read at random after the sampled place.
MOST_RANDOM_BYTES = 3
# Tokens chosen freely in a walk before it is steered to its end.
MOST_FREE_TOKENS = 24

# What the validator cannot be asked: it holds numbers with long exponents as infinite or none, and answers multipleOf
# in floating point where a number has more digits than a double.
HUGE = re.compile(r"\d[eE][+-]?\d{3}")
LONG = re.compile(r"[0-9][0-9.]{14}")


@dataclass(frozen=True)
class Entry:
    """A schema of the corpus with its valid instances; ``number``: its place in the corpus."""

    name: str
    number: int
    schema: Any
    instances: tuple[Any, ...]


def corpus(shared: Path) -> Iterator[Entry]:
    for number, entry in enumerate(files(shared)):
        data = json.loads((shared / "corpus/maskbench-sample/data" / entry["file"]).read_text())
        instances = tuple(test["data"] for test in data["tests"] if test["valid"])
        yield Entry(entry["file"], number, data["schema"], instances)


@cache
def vocabulary() -> Vocabulary:
    return loaders.load("deepseek")


def masker_of(backend: Reference, entry: Entry, profile: Profile) -> Masker | None:
    """None where the schema is refused."""
    try:
        return backend.compile(Constraint("json_schema", json.dumps(entry.schema)), vocabulary(), profile).masker
    except UnsupportedError:
        return None


def written(value: Any, profile: Profile, random_: random.Random) -> bytes:
    """An instance in one of the spellings of a profile."""
    if profile.whitespace == "any" and random_.random() < 0.5:
        return json.dumps(value, indent=2, ensure_ascii=random_.random() < 0.5).encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sampled_prefix(masker: Masker, text: bytes, place: str, random_: random.Random) -> bytes:
    """A viable prefix of ``text`` that ends in ``place``, if there is one, and some viable bytes after it."""
    start = masker.start()
    assert start is not None
    cells: list[Cell] = [start]
    for byte in text:
        after = masker.step(cells[-1], byte)
        if after is None:  # the profile does not have this instance
            break
        cells.append(after)
    there = [i for i, cell in enumerate(cells) if cell.state.mode == place]  # type: ignore[attr-defined]
    length = random_.choice(there or range(len(cells)))
    out, cell = bytearray(text[:length]), cells[length]
    for _ in range(random_.randrange(MOST_RANDOM_BYTES + 1)):
        moves = masker.moves(cell)
        if not moves:
            break
        byte, cell = random_.choice(moves)
        out.append(byte)
    return bytes(out)


def compare_rows(entry: Entry, profile: Profile, place: str, seed: int) -> bool:
    """One sampled state of a schema: the fast row is the definition's, made by an automaton of its own. False where
    the schema is refused."""
    random_ = random.Random(f"{seed} {entry.name}")
    fast = masker_of(Reference(), entry, profile)
    if fast is None:
        return False
    text = written(random_.choice(entry.instances), profile, random_)
    prefix = sampled_prefix(fast, text, place, random_)
    plain = masker_of(Naive(), entry, profile)
    assert plain is not None
    rows = []
    for masker in (fast, plain):
        start = masker.start()
        assert start is not None
        cell = masker.read(start, prefix)
        assert cell is not None
        rows.append(masker.row(cell))
    assert not bitmask.diff(rows[0], rows[1], vocabulary().size), (entry.name, prefix)
    assert rows[0].tobytes() == rows[1].tobytes()  # the padding too
    return True


@pytest.mark.parametrize("name", ["default", "a library's"])
def test_fast_rows_are_the_definition_s_over_the_corpus(name: str, shared: Path, seed: int = 0, share: int = 4) -> None:
    """A state of every fourth schema, other schemas for each profile; places take turns."""
    entries = [e for e in corpus(shared) if e.number % share == list(PROFILES).index(name) % share]
    compared = [compare_rows(e, PROFILES[name], PLACES[i % len(PLACES)], seed) for i, e in enumerate(entries)]
    assert compared.count(False) <= MOST_REFUSED * len(entries)


def words(entry: Entry) -> tuple[bytes, ...]:
    """Keys and scalars that a schema and its instances write out, as JSON text, keys with their colon: without them,
    a walk at random would hardly ever come to a declared member."""
    found: set[str] = set()
    waiting = [entry.schema, *entry.instances]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update(json.dumps(key, ensure_ascii=False) + ":" for key in value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        else:
            found.add(json.dumps(value, ensure_ascii=False))
    return tuple(text.encode() for text in sorted(found))


class Chooser:
    """Chooses tokens of a walk: first those of ``opening``, for as long as they are allowed; then now and then a word
    that is viable, spelled out; otherwise any allowed token."""

    def __init__(self, masker: Masker, opening: Sequence[int], listed: Sequence[bytes], random_: random.Random) -> None:
        self._automaton = masker.automaton
        self._planned = list(opening)
        self._words = listed
        self._random = random_

    def __call__(self, state: Any, allowed: Sequence[int]) -> int:
        if not self._planned and self._random.random() < 0.5:
            shuffled = self._random.sample(self._words, len(self._words))
            word = next((word for word in shuffled if self._is_viable(state, word)), b"")
            self._planned = completion.completion_tokens(vocabulary(), word)
        if self._planned and self._planned[0] in allowed:
            return self._planned.pop(0)
        self._planned = []
        return self._random.choice(allowed)

    def _is_viable(self, state: Any, text: bytes) -> bool:
        at = state
        for byte in text:
            at = self._automaton.step(at, byte)
            if at is None:
                return False
        return True


def walk(entry: Entry, masker: Masker, profile: Profile, random_: random.Random) -> str:
    """A document made under the mask, every other one beginning like an instance."""
    opening: tuple[int, ...] = ()
    if random_.random() < 0.5:
        text = written(random_.choice(entry.instances), profile, random_).decode()
        tokens = encoders.encode(vocabulary(), text)
        opening = tokens[: random_.randrange(len(tokens) + 1)]
    chooser = Chooser(masker, opening, words(entry), random_)
    tokens_ = completion.walk(
        lambda state: masker.row(masker.cell(state)),
        masker.automaton,
        vocabulary(),
        random_,
        free=len(opening) + random_.randrange(MOST_FREE_TOKENS),
        choose=chooser,
    )
    return vocabulary().decode(tokens_).decode()


def can_be_judged(entry: Entry, text: str) -> bool:
    return not HUGE.search(text) and not ('"multipleOf"' in json.dumps(entry.schema) and LONG.search(text))


def walk_and_judge(entry: Entry, profile: Profile, walks: int, seed: int) -> tuple[int, int]:
    """How many walks of a schema came to their end, and how many of their documents were judged."""
    masker = masker_of(Reference(), entry, profile)
    if masker is None:
        return 0, 0
    validator = jsonschema_rs.validator_for(entry.schema, validate_formats=False)
    random_ = random.Random(f"{seed} {entry.name}")
    judged = 0
    for _ in range(walks):
        text = walk(entry, masker, profile, random_)
        assert automata.accepts(masker.automaton, text.encode()), (entry.name, text)
        if can_be_judged(entry, text):
            assert validator.is_valid(read(text)), (entry.name, text)
            judged += 1
    return walks, judged


def test_walks_over_the_corpus_end_in_valid_documents(shared: Path, seed: int = 0, walks: int = 2) -> None:
    made = judged = schemas = 0
    for entry in corpus(shared):
        ended, valid = walk_and_judge(entry, PROFILES["default"], walks, seed)
        made, judged, schemas = made + ended, judged + valid, schemas + 1
    assert made >= (1 - MOST_REFUSED) * walks * schemas
    assert judged >= 0.9 * made
