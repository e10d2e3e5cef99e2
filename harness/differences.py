"""Differences between a backend's masks and a judge's, as data; grouped, so that one fault is one line. Worker side.

A mask that refuses U+007F in strings is wrong in every row inside every string of every document: thousands of bits,
one fault. ``compare`` says in which rows two matchers differ and by which tokens; for each of these tokens it finds the
byte that the stricter side does not take, and where in the document that byte stands. ``group`` puts together what has
the same byte class, place and keywords.

Nothing here decides who is right, and no verdict rests on it: the judge is taken at its word, and what a fault is
grouped by (place, keywords) is a description for people.
"""

from __future__ import annotations

import copy
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from harness import bitmask
from harness.bitmask import Row
from harness.cell import Document
from harness.constraint import Constraint
from harness.vocabulary import Vocabulary

Direction = Literal["too loose", "too strict"]
Place = Literal[
    "in a key",
    "in a string",
    "in an escape",
    "in a number",
    "in a literal",
    "between tokens",
    "after the document",
    "in text",  # of a constraint that is not JSON
]

EOS = "end-of-sequence"
# The stricter side takes every byte of the token, in other tokens, and not the token.
WHOLE_TOKEN = "the whole token"
WHITE_SPACE = "white space"

# What counts as the same keyword when faults are grouped: bounds come in pairs, and a fault seldom depends on which.
_FAMILIES: Mapping[str, str] = {
    "minLength": "length", "maxLength": "length",
    "pattern": "pattern", "format": "format", "enum": "enum", "const": "enum",
    "minimum": "range", "maximum": "range", "exclusiveMinimum": "range", "exclusiveMaximum": "range",
    "multipleOf": "multipleOf",
    "minItems": "item count", "maxItems": "item count", "uniqueItems": "uniqueItems",
    "contains": "contains", "minContains": "contains", "maxContains": "contains",
    "minProperties": "property count", "maxProperties": "property count", "required": "required",
    "propertyNames": "propertyNames", "patternProperties": "patternProperties",
    "dependentRequired": "dependencies", "dependentSchemas": "dependencies", "dependencies": "dependencies",
    "anyOf": "anyOf", "oneOf": "oneOf", "allOf": "allOf", "not": "not", "if": "if",
    "unevaluatedProperties": "unevaluated", "unevaluatedItems": "unevaluated",
}  # fmt: skip
_COMBINED = frozenset({"anyOf", "oneOf", "allOf", "not", "if"})
_OF_STRINGS = _COMBINED | {"length", "pattern", "format", "enum"}
_OF_NUMBERS = _COMBINED | {"range", "multipleOf", "enum", "integer"}
_OF_KEYS = frozenset({"propertyNames", "patternProperties", "unevaluated"})
_BEARS_ON: Mapping[str, frozenset[str]] = {
    "in a string": _OF_STRINGS,
    "in an escape": _OF_STRINGS,
    "in a number": _OF_NUMBERS,
    "in a literal": _COMBINED | {"enum"},
    "between tokens": frozenset(_FAMILIES.values()) | {"integer"},
}
# Where a path cannot be followed further, these say why.
_BRANCHING = _COMBINED | {"patternProperties", "unevaluated"}
_STRINGS = frozenset({"in a key", "in a string", "in an escape", "in text"})
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# References followed on the way to one value: more than that is a circle.
_REFERENCES = 32


class Matcher(Protocol):
    """As much of ``harness.backends.guard.Matcher`` as a comparison needs."""

    def fill(self, row: Row) -> None: ...

    def accept(self, token: int) -> bool: ...


@dataclass(frozen=True)
class Part:
    """The tokens of one row that differ in the same way.

    character: the class of the first byte that the stricter side does not take (``character_class``), ``EOS`` or
    ``WHOLE_TOKEN``. place: where this byte stands. pointer: the schema that the byte is written under, as near as it
    can be told without deciding between branches; "" is the root, and all there is where a constraint is no schema.
    keywords: families of keywords of that schema that bear on the place, sorted. count: how many tokens. token,
    token_bytes: the one with the lowest id, and its bytes (latin-1 text, so that any byte survives JSON).
    """

    direction: Direction
    character: str
    place: Place
    pointer: str
    keywords: tuple[str, ...]
    count: int
    token: int
    token_bytes: str


@dataclass(frozen=True)
class StepDifference:
    """One row that differs from the judge's.

    backend, constraint, document: names. step: tokens accepted before. prefix: the text so far (latin-1 text of its
    bytes). too_loose: ids allowed that the judge forbids; too_strict: ids forbidden that it allows; both ascending.
    parts: the same tokens by what they have in common.
    """

    backend: str
    constraint: str
    document: str
    step: int
    prefix: str
    too_loose: tuple[int, ...]
    too_strict: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """How many bits of the row are wrong."""
        return len(self.too_loose) + len(self.too_strict)

    @property
    def directions(self) -> tuple[Direction, ...]:
        loose: tuple[Direction, ...] = ("too loose",) if self.too_loose else ()
        strict: tuple[Direction, ...] = ("too strict",) if self.too_strict else ()
        return loose + strict

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepDifference:
        parts = tuple(Part(**(part | {"keywords": tuple(part["keywords"])})) for part in data["parts"])
        ids = {name: tuple(data[name]) for name in ("too_loose", "too_strict")}
        return cls(**{f.name: data[f.name] for f in fields(cls)} | ids | {"parts": parts})


@dataclass(frozen=True)
class Example:
    """Where a fault was met first; the fields are those of ``StepDifference`` and ``Part``."""

    constraint: str
    document: str
    step: int
    prefix: str
    token: int
    token_bytes: str
    pointer: str


@dataclass(frozen=True)
class Fault:
    """What one cause looks like from outside; the first five fields are what it is grouped by.

    rows: rows it was seen in; tokens: wrong bits in them; documents, constraints: how many of each it was seen in.
    """

    backend: str
    direction: Direction
    character: str
    place: Place
    keywords: tuple[str, ...]
    rows: int
    tokens: int
    documents: int
    constraints: int
    example: Example

    def __str__(self) -> str:
        under = f" under {', '.join(self.keywords)}" if self.keywords else ""
        seen = ", ".join(
            f"{number:,} {name}{'' if number == 1 else 's'}"
            for name, number in (
                ("constraint", self.constraints),
                ("document", self.documents),
                ("row", self.rows),
                ("token", self.tokens),
            )
        )
        at = self.example
        before, token = (text.encode("latin-1").decode(errors="replace") for text in (at.prefix, at.token_bytes))
        return (
            f"{self.backend}: {self.direction}: {self.character} {self.place}{under}: {seen}; first at step {at.step} "
            f"of {at.constraint} {at.document}: token {at.token} ({token!r}) after {before[-40:]!r}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fault:
        changed = {"keywords": tuple(data["keywords"]), "example": Example(**data["example"])}
        return cls(**{f.name: data[f.name] for f in fields(cls)} | changed)


def compare(
    subject: Matcher,
    judge: Matcher,
    document: Document,
    vocabulary: Vocabulary,
    constraint: Constraint,
    *,
    backend: str = "",
    constraint_name: str = "",
) -> Iterator[StepDifference]:
    """The rows along the document, its end included, in which ``subject`` differs from ``judge``, in order.

    Both must be at the start, and over ``vocabulary`` (guarded ones are: ``harness.backends.guard``). The document may
    be valid or not; the walk ends with it, or at the first token that either of them refuses to accept. It is lazy,
    since a row may differ by all of a large vocabulary: ``next`` gives the first differing step, ``group`` reads it as
    it comes.
    """
    row, expected = (bitmask.allocate_row(vocabulary.size) for _ in range(2))
    order = _order(vocabulary)
    cursor = _start(constraint)
    prefix = b""
    for step in range(len(document.tokens) + 1):
        subject.fill(row)
        judge.fill(expected)
        found = bitmask.diff(row, expected, vocabulary.size)
        if found:
            parts = (
                *_parts("too loose", found.too_loose, expected, vocabulary, order, cursor),
                *_parts("too strict", found.too_strict, row, vocabulary, order, cursor),
            )
            yield StepDifference(
                backend, constraint_name, document.name, step, prefix.decode("latin-1"),
                found.too_loose, found.too_strict, parts,
            )  # fmt: skip
        if step == len(document.tokens):
            return
        token = document.tokens[step]
        # Both are asked, so that neither is left behind the other by a lazy `and`.
        if not all([subject.accept(token), judge.accept(token)]):
            return
        prefix += vocabulary.tokens[token]
        cursor.feed(vocabulary.tokens[token])


class _Key(NamedTuple):
    backend: str
    direction: Direction
    character: str
    place: Place
    keywords: tuple[str, ...]


def group(differences: Iterable[StepDifference]) -> list[Fault]:
    """Differences of any number of backends, constraints and documents → faults, those seen in most rows first."""
    rows: Counter[_Key] = Counter()
    tokens: Counter[_Key] = Counter()
    documents: defaultdict[_Key, set[tuple[str, str]]] = defaultdict(set)
    examples: dict[_Key, Example] = {}
    for d in differences:
        met = set()
        for p in d.parts:
            key = _Key(d.backend, p.direction, p.character, p.place, p.keywords)
            met.add(key)
            tokens[key] += p.count
            documents[key].add((d.constraint, d.document))
            if key not in examples:
                examples[key] = Example(d.constraint, d.document, d.step, d.prefix, p.token, p.token_bytes, p.pointer)
        rows.update(met)
    return [
        Fault(
            **key._asdict(),
            rows=rows[key],
            tokens=tokens[key],
            documents=len(documents[key]),
            constraints=len({constraint for constraint, _ in documents[key]}),
            example=examples[key],
        )
        for key in sorted(rows, key=lambda key: (-rows[key], key))
    ]


def merge(faults: Iterable[Fault]) -> list[Fault]:
    """Faults of one document each → what ``group`` makes of the documents together."""
    merged: dict[_Key, Fault] = {}
    constraints: defaultdict[_Key, set[str]] = defaultdict(set)
    for fault in faults:
        key = _Key(*(getattr(fault, name) for name in _Key._fields))
        constraints[key].add(fault.example.constraint)
        first = merged.setdefault(key, replace(fault, rows=0, tokens=0, documents=0))
        merged[key] = replace(
            first,
            rows=first.rows + fault.rows,
            tokens=first.tokens + fault.tokens,
            documents=first.documents + fault.documents,
            constraints=len(constraints[key]),
        )
    return [merged[key] for key in sorted(merged, key=lambda key: (-merged[key].rows, key))]


def character_class(byte: int, *, in_string: bool) -> str:
    """What kind of byte it is; tab, line feed, carriage return and space are white space outside strings only."""
    match byte:
        case 0x20:
            return "space" if in_string else WHITE_SPACE
        case 0x09 | 0x0A | 0x0D if not in_string:
            return WHITE_SPACE
        case 0x7F:
            return "DEL"
        case 0x22:
            return "quote"
        case 0x5C:
            return "backslash"
    if byte < 0x20:
        return "control character"
    if byte >= 0x80:
        if byte < 0xC0:
            return "later byte of a character"
        return "byte that UTF-8 has not" if byte in (0xC0, 0xC1) or byte > 0xF4 else "first byte beyond ASCII"
    text = chr(byte)
    if text.isdigit():
        return "digit"
    return "letter" if text.isalpha() else f"'{text}'" if text in "{}[],:+-." else "other punctuation"


# --- what the tokens of a row have in common --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Order:
    """A vocabulary in the order of its bytes. ids: token ids, sorted by bytes; place: the inverse; texts: sorted."""

    ids: Any
    place: Any
    texts: Sequence[bytes]


@lru_cache(maxsize=4)
def _order(vocabulary: Vocabulary) -> _Order:
    ids = np.array(sorted(range(vocabulary.size), key=vocabulary.tokens.__getitem__), dtype=np.int64)
    place = np.empty_like(ids)
    place[ids] = np.arange(ids.size)
    return _Order(ids, place, [vocabulary.tokens[i] for i in ids.tolist()])


def _parts(
    direction: Direction, ids: tuple[int, ...], stricter: Row, vocabulary: Vocabulary, order: _Order, cursor: _Cursor
) -> list[Part]:
    """The tokens that only the looser row allows, by the first byte that no token of the stricter row goes on with."""
    if not ids:
        return []
    taken = np.flatnonzero(bitmask.unpack(stricter, vocabulary.size)[order.ids]).tolist()
    places: dict[bytes, _Cursor] = {}
    found: dict[tuple[Any, ...], list[int]] = {}
    for token in ids:
        text = vocabulary.tokens[token]
        if token in vocabulary.eos_ids:
            character, at = EOS, cursor
        else:
            common = _common(text, int(order.place[token]), taken, order.texts)
            at = places.get(text[:common]) or places.setdefault(text[:common], _after(cursor, text[:common]))
            character = WHOLE_TOKEN
            if common < len(text):
                character = character_class(text[common], in_string=at.place in _STRINGS)
        found.setdefault((character, at.place, *at.under(character)), []).append(token)
    return [
        Part(direction, character, place, pointer, keywords, len(tokens), tokens[0],
             vocabulary.tokens[tokens[0]].decode("latin-1"))
        for (character, place, pointer, keywords), tokens in sorted(found.items())
    ]  # fmt: skip


def _common(text: bytes, place: int, taken: Sequence[int], texts: Sequence[bytes]) -> int:
    """How long a beginning ``text`` shares with a token taken: in sorted order, its nearest neighbours share most."""
    after = bisect_left(taken, place)
    return max((_shared(text, texts[taken[i]]) for i in (after - 1, after) if 0 <= i < len(taken)), default=0)


def _shared(one: bytes, other: bytes) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


# --- where in a document a byte stands --------------------------------------------------------------------------------


class _Cursor(Protocol):
    """Knows where the text read so far has come to. It checks nothing: whatever the text is, it stands somewhere."""

    @property
    def place(self) -> Place: ...

    def under(self, character: str) -> tuple[str, tuple[str, ...]]:
        """The pointer of the nearest schema, and the families of its keywords that bear on such a character here."""
        ...

    def feed(self, text: bytes) -> None: ...

    def copy(self) -> _Cursor: ...


def _start(constraint: Constraint) -> _Cursor:
    match constraint.kind:
        case "json_schema":
            return _Json(constraint.json())
        case "json_object":
            return _Json({"type": "object"})
        case "structural_tag":
            return _Tags(constraint.json()["structures"])
    return _Text()


def _after(cursor: _Cursor, text: bytes) -> _Cursor:
    if not text:
        return cursor
    other = cursor.copy()
    other.feed(text)
    return other


class _Text:
    """No JSON: there is nothing to know."""

    place: Place = "in text"

    def under(self, character: str) -> tuple[str, tuple[str, ...]]:
        return "", ()

    def feed(self, text: bytes) -> None:
        """Nothing to keep."""

    def copy(self) -> _Text:
        return self


class _Json:
    """A JSON text under a schema."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        # value: one may begin; key: one may begin; colon: after a key; between: after a value in a container;
        # string, number, literal: in one; end: after the whole text.
        self._mode = "value"
        self._objects: list[bool] = []  # for each container that is open, whether it is an object
        self._path: list[str | int] = []  # of the value being read; between values, of the container
        self._in_key = False
        self._text = bytearray()  # of the string or literal being read
        self._escape = 0  # how many characters of an escape are still to come, one where that is not known yet

    def copy(self) -> _Json:
        other = copy.copy(self)
        other._objects, other._path, other._text = list(self._objects), list(self._path), bytearray(self._text)
        return other

    @property
    def ended(self) -> bool:
        return self._mode == "end"

    @property
    def place(self) -> Place:
        match self._mode:
            case "string":
                return "in an escape" if self._escape else "in a key" if self._in_key else "in a string"
            case "number":
                return "in a number"
            case "literal":
                return "in a literal"
            case "end":
                return "after the document"
        return "between tokens"

    def under(self, character: str) -> tuple[str, tuple[str, ...]]:
        pointer, schema, exact = _nearest(self._root, self._path)
        if not isinstance(schema, dict) or character == WHITE_SPACE or self._mode == "colon":
            return pointer, ()
        present = {_FAMILIES[k] for k in schema if k in _FAMILIES}
        if schema.get("type") == "integer":
            present.add("integer")
        if self._mode == "string" and self._in_key:
            bearing = _OF_KEYS
        elif not exact:
            bearing = _BRANCHING
        else:
            bearing = _BEARS_ON.get(self.place, frozenset())
        return pointer, tuple(sorted(present & bearing))

    def feed(self, text: bytes) -> None:
        for byte in text:
            if self._mode == "string":
                self._in_string(byte)
            elif not self.ended:
                self._outside(byte)

    def _outside(self, byte: int) -> None:
        if self._mode in ("number", "literal"):
            if byte in (b"0123456789+-.eE" if self._mode == "number" else _LETTERS):
                self._text.append(byte)
                if bytes(self._text) in (b"true", b"false", b"null"):
                    self._done()
                return
            self._done()
        match chr(byte):
            case '"':
                self._in_key = self._mode == "key"
                self._mode = "string"
                self._text = bytearray()
            case ":":
                self._mode = "value"
            case "{":
                self._objects.append(True)
                self._mode = "key"
            case "[":
                self._objects.append(False)
                self._path.append(0)
                self._mode = "value"
            case "," if self._objects:
                self._mode = "key" if self._objects[-1] else "value"
                if self._path and not self._objects[-1]:
                    index = self._path[-1]
                    self._path[-1] = index + 1 if isinstance(index, int) else index
            case "]" | "}" if self._objects:
                if not self._objects.pop() and self._path:
                    self._path.pop()
                self._done()
            case c if c in "-0123456789" or c.isalpha():
                self._mode = "literal" if c.isalpha() else "number"
                self._text = bytearray([byte])

    def _in_string(self, byte: int) -> None:
        if self._escape:
            # "\\u" is followed by four digits, any other letter of an escape by none.
            self._escape = 4 if byte == ord("u") and self._text.endswith(b"\\") else self._escape - 1
            self._text.append(byte)
        elif byte != ord('"'):
            self._text.append(byte)
            self._escape = int(byte == ord("\\"))
        elif self._in_key:
            self._path.append(_key(self._text))
            self._in_key = False
            self._mode = "colon"
        else:
            self._done()

    def _done(self) -> None:
        """A value has ended."""
        self._mode = "between" if self._objects else "end"
        if self._objects and self._objects[-1] and self._path:
            self._path.pop()


class _Tags:
    """Free text; and JSON between the ``begin`` and the ``end`` of a structure, from the first ``begin`` read on."""

    def __init__(self, structures: Sequence[Mapping[str, Any]]) -> None:
        self._structures = structures
        self._free = b""  # the text since the last structure, or after the JSON of one
        self._inside: tuple[int, _Json] | None = None

    def copy(self) -> _Tags:
        other = copy.copy(self)
        if self._inside is not None:
            other._inside = (self._inside[0], self._inside[1].copy())
        return other

    @property
    def place(self) -> Place:
        return "in text" if self._inside is None or self._inside[1].ended else self._inside[1].place

    def under(self, character: str) -> tuple[str, tuple[str, ...]]:
        if self._inside is None:
            return "", ()
        number, json_text = self._inside
        pointer, keywords = json_text.under(character)
        return f"/structures/{number}/schema{pointer}", keywords

    def feed(self, text: bytes) -> None:
        for i in range(len(text)):
            self._read(text[i : i + 1])

    def _read(self, byte: bytes) -> None:
        if self._inside is not None and not self._inside[1].ended:
            in_number = self._inside[1].place == "in a number"
            self._inside[1].feed(byte)
            if not (in_number and self._inside[1].ended):  # a number ends with the byte after it
                return
        self._free += byte
        if self._inside is not None:
            if self._free.endswith(self._structures[self._inside[0]]["end"].encode()):
                self._free, self._inside = b"", None
            return
        for number, structure in enumerate(self._structures):
            if self._free.endswith(structure["begin"].encode()):
                self._free, self._inside = b"", (number, _Json(structure["schema"]))
                return


def _key(text: bytearray) -> str:
    try:
        return str(json.loads(b'"' + text + b'"'))
    except ValueError:
        return text.decode(errors="replace")


def _nearest(schema: Any, path: Sequence[str | int]) -> tuple[str, Any, bool]:
    """``(pointer, schema, whether it is the value's own)``: down the path as far as one keyword alone leads on."""
    root, pointer = schema, ""
    for step in (*path, None):
        for _ in range(_REFERENCES):
            target = _local(root, schema)
            if target is None:
                break
            pointer, schema = target
        if step is None or not isinstance(schema, dict):
            return pointer, schema, step is None
        down = _down(schema, step)
        if down is None:
            return pointer, schema, False
        tokens, schema = down
        pointer += tokens
    raise AssertionError("the path ends with None")


def _local(root: Any, schema: Any) -> tuple[str, Any] | None:
    """Where a reference into the same document leads."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    target = root
    for token in reference[2:].split("/") if len(reference) > 1 else ():
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdigit() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return reference[1:], target


def _down(schema: Mapping[str, Any], step: str | int) -> tuple[str, Any] | None:
    if isinstance(step, str):
        declared = schema.get("properties")
        if isinstance(declared, dict) and step in declared:
            return "/properties/" + step.replace("~", "~0").replace("/", "~1"), declared[step]
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and "patternProperties" not in schema:
            return "/additionalProperties", others
        return None
    for keyword in ("prefixItems", "items"):
        items = schema.get(keyword)
        if isinstance(items, list) and step < len(items):
            return f"/{keyword}/{step}", items[step]
        if isinstance(items, dict):
            return f"/{keyword}", items
    return None
