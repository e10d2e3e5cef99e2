"""JSON Schema under a profile, as rules that derive the documents' bytes: a written-down subset, exactly.

In it: boolean schemas, ``type``, ``enum``, ``const``, ``anyOf``, ``$ref`` into the document (recursion too),
``minLength``, ``maxLength``, ``pattern``, ``minimum`` and its like for integers, ``properties``, ``required``,
``additionalProperties``, ``items``, ``prefixItems``, ``minItems``, ``maxItems``, and annotations. Any other keyword is
refused by name and place, and so is what a profile makes impossible for a machine with nothing but a stack (numbers
equal by value under RFC 8259 spellings, further keys that must not repeat).

Two readings of ours. Keys that a schema writes down (``properties``; the keys of a ``const``) stand at most once and in
the order written under ``key_order = "declared"``; other keys come after them. An instance is what a parser makes of
the text: under ``duplicate_keys = "last_wins"`` an earlier value of a key may be any JSON value.
"""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from harness.backends.naive import regular_expression
from harness.backends.naive.expressions import (
    ANY_CHAR,
    EMPTY,
    HIGH,
    NOTHING,
    SURROGATES,
    Alt,
    Bytes,
    Call,
    Chars,
    Expr,
    Nfa,
    Repeat,
    Seq,
    all_but,
    automaton,
    complement,
    literal,
    product,
    words,
)
from harness.backends.naive.network import Network, Spell
from harness.backends.naive.spelling import digit_ranges, json_string
from harness.errors import UnsupportedError
from harness.profile import Profile

ANNOTATIONS = frozenset(
    {"title", "description", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
_EVERYWHERE = ANNOTATIONS | {"$schema", "$defs", "definitions", "format"}
_BINDING = frozenset(
    {"type", "enum", "const", "anyOf", "$ref", "minLength", "maxLength", "pattern", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "properties", "required", "additionalProperties"}
    | {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}
)
# Drafts in which the subset means the same; $ref beside other keywords and prefixItems do not in the older ones.
_NEW_DRAFTS = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema")
_OLD_DRAFTS = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema")

# "number" includes "integer", so that types intersect as sets.
TYPES = frozenset({"null", "boolean", "string", "number", "integer", "array", "object"})
NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ORDERINGS_LIMIT = 1024
"""Steps of an object whose keys come in any order: which keys were seen. Six keys of which an earlier value may be
anything take 3^6 = 729. Our own choice."""
DIGITS_LIMIT = 100
"""Digits of a constant or bound, before or after the point. Our own choice."""

_DIGIT = Bytes(((0x30, 0x39),))
_FIRST_DIGIT = Bytes(((0x31, 0x39),))
_DIGITS = Repeat(_DIGIT, 1, None)
_MINUS = Repeat(literal(b"-"), 0, 1)
_INTEGER = Seq((_MINUS, Alt((literal(b"0"), Seq((_FIRST_DIGIT, Repeat(_DIGIT, 0, None)))))))
_ZERO_FRACTION = Repeat(Seq((literal(b"."), Repeat(literal(b"0"), 1, None))), 0, 1)
_SIGN = Repeat(Bytes(((0x2B, 0x2B), (0x2D, 0x2D))), 0, 1)
_EXPONENT = Seq((Bytes(((0x45, 0x45), (0x65, 0x65))), _SIGN, _DIGITS))

Progress = TypeVar("Progress", bound=Hashable)


def compile_schema(document: str, profile: Profile, network: Network) -> Call:
    """Add the rules of a schema's documents to ``network``; the call of the whole document's rule."""
    schema = json.loads(document, parse_float=Decimal)
    return _Schema(schema, profile, network).document()


class _Schema:
    def __init__(self, root: Any, profile: Profile, network: Network) -> None:
        self._root = root
        self._profile = profile
        self._network = network
        self._new_draft = True
        self._begun: set[str] = set()
        if profile.whitespace == "indented":
            raise UnsupportedError("profile whitespace = 'indented' needs the depth", keyword="whitespace")
        blank = Bytes(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))
        between: Expr = {
            "any": Repeat(blank, 0, None),
            "bounded": Repeat(blank, 0, profile.whitespace_limit),
            "one_space": Repeat(literal(b" "), 0, 1),
        }.get(profile.whitespace, EMPTY)
        self._space = network.rule("white space", between)
        after = literal(b" ") if profile.whitespace == "spaced" else self._space
        lone, minimal = profile.lone_surrogates, profile.escapes == "minimal"
        self._spell = partial(json_string, minimal=minimal, lone_surrogates=lone)
        literals_minimal = minimal or profile.literal_escapes == "minimal"
        self._spell_literal = partial(json_string, minimal=literals_minimal, lone_surrogates=lone)
        self._comma = Seq((self._space, literal(b","), after))
        self._colon = Seq((self._space, literal(b":"), after))

    def document(self) -> Call:
        root = self._root
        if isinstance(root, dict) and "$schema" in root:
            draft = str(root["$schema"]).removesuffix("#")
            if draft not in (*_NEW_DRAFTS, *_OLD_DRAFTS):
                raise _refusal("an unknown or older draft", "$schema", "")
            self._new_draft = draft in _NEW_DRAFTS
        outer = self._space if self._profile.outer_whitespace else EMPTY
        return self._network.rule("document", Seq((outer, self._value(root, "", TYPES), outer)))

    def _value(self, schema: Any, place: str, types: frozenset[str]) -> Call:
        """The rule of the schema's values of these types. ``place``: JSON pointer to the schema."""
        if not isinstance(schema, bool | dict):
            raise _refusal("a schema must be an object or a boolean", "", place)
        name = f"{'any value' if _is_open(schema) else '#' + place} {','.join(sorted(types))}"
        if name not in self._begun:
            self._begun.add(name)  # before its body, so that a recursive reference finds it
            self._network.rule(name, self._body(schema, place, types))
        return Call(name)

    def _body(self, schema: Any, place: str, types: frozenset[str]) -> Expr:
        if schema is False:
            return NOTHING
        if schema is True:
            schema = {}
        self._check_keywords(schema, place)
        types &= _declared_types(schema, place)
        for keyword in ("$ref", "anyOf"):
            if keyword in schema:
                beside = schema.keys() & (_BINDING - {keyword, "type"})
                if not self._new_draft and keyword == "$ref":
                    beside = schema.keys() & (_BINDING - {keyword})
                if beside:
                    raise _refusal(f"beside {min(beside)}: a conjunction", keyword, place)
        if "$ref" in schema:
            target, at = self._resolve(schema["$ref"], place)
            return self._value(target, at, types)
        if "anyOf" in schema:
            branches = schema["anyOf"]
            if not isinstance(branches, list) or not branches:
                raise _refusal("must be a non-empty array", "anyOf", place)
            return Alt(tuple(self._value(b, f"{place}/anyOf/{i}", types) for i, b in enumerate(branches)))
        if "enum" in schema or "const" in schema:
            return self._enumeration(schema, place, types)
        parts: list[Expr] = []
        if "null" in types:
            parts.append(literal(b"null"))
        if "boolean" in types:
            parts += [literal(b"true"), literal(b"false")]
        if "string" in types:
            parts.append(self._string(schema, place))
        if "integer" in types:
            parts.append(self._number(schema, place, "number" in types))
        if "array" in types:
            parts.append(self._array(schema, place))
        if "object" in types:
            parts.append(self._object(schema, place))
        return Alt(tuple(parts))

    def _check_keywords(self, schema: dict[str, Any], place: str) -> None:
        for keyword in schema:
            if keyword == "$id" and not place:
                continue
            if keyword == "$schema" and place:
                raise _refusal("only at the root", keyword, place)
            if keyword not in _BINDING and keyword not in _EVERYWHERE:
                raise _refusal("not in the subset", keyword, place)
        if "format" in schema and self._profile.format == "assertion":
            raise _refusal("not in the subset under format = 'assertion'", "format", place)
        if "prefixItems" in schema and not self._new_draft:
            raise _refusal("no keyword of this draft", "prefixItems", place)
        if schema.get("uniqueItems", False) is not False:
            raise _refusal("needs a memory of the items", "uniqueItems", place)

    def _resolve(self, reference: Any, place: str) -> tuple[Any, str]:
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise _refusal(f"{reference!r} is no pointer into the document", "$ref", place)
        pointer = urllib.parse.unquote(reference[1:])
        target = self._root
        for raw in pointer.split("/")[1:]:
            key = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise _refusal(f"{reference!r} points nowhere", "$ref", place)
            if isinstance(target, dict) and "$id" in target:
                raise _refusal(f"{reference!r} crosses a schema with its own $id", "$ref", place)
        return target, pointer

    # Constants

    def _enumeration(self, schema: dict[str, Any], place: str, types: frozenset[str]) -> Expr:
        keyword = "enum" if "enum" in schema else "const"
        beside = schema.keys() & (_BINDING - {keyword, "type"})
        if beside:
            raise _refusal(f"beside {min(beside)}: a conjunction", keyword, place)
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        if not isinstance(values, list):
            raise _refusal("must be an array", keyword, place)
        chosen = [value for value in values if _type_of(value) in types]
        strings = [value for value in chosen if isinstance(value, str)]
        others = [value for value in chosen if not isinstance(value, str)]
        parts = [self._constant(value, keyword, place, "number" in types) for value in others]
        if strings:
            parts.append(self._text_rule(f"text of {keyword} #{place}", words(strings), self._spell_literal))
        return Alt(tuple(parts))

    def _constant(self, value: Any, keyword: str, place: str, as_number: bool = True) -> Expr:
        """Every spelling of a value. as_number: not known to be an integer by ``type``, so spelled as any number."""
        match value:
            case None:
                return literal(b"null")
            case bool():
                return literal(b"true" if value else b"false")
            case str():
                return self._key(value)
            case int() | Decimal():
                return self._constant_number(Decimal(value), keyword, place, as_number)
            case list():
                items = [self._constant(item, keyword, place) for item in value]
                return self._sequence(b"[]", 0, lambda i: [(items[i], i + 1)] if i < len(items) else [], len(items))
        members = {key: self._constant(item, keyword, place) for key, item in value.items()}
        return self._members(members, frozenset(members), None, keyword, place, open_values=False)

    def _constant_number(self, value: Decimal, keyword: str, place: str, as_number: bool) -> Expr:
        if not value:
            value = Decimal(0)
        if as_number or self._profile.integer_spelling == "value":
            if self._profile.numbers == "rfc8259":
                raise _refusal("a number equal by value has endless RFC 8259 spellings", keyword, place)
            tail: Expr = _ZERO_FRACTION
        else:
            tail = EMPTY
        _check_size(value, keyword, place)
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
        whole, fraction = divmod(number, 10 ** max(-exponent, 0))
        if fraction:
            written = f"{fraction:0{-exponent}d}".rstrip("0")
            tail = Seq((literal(f".{written}".encode()), Repeat(literal(b"0"), 0, None)))
        minus = _MINUS if not value else literal(b"-" if sign else b"")
        return Seq((minus, literal(str(whole).encode()), tail))

    # Strings and numbers

    def _text_rule(self, name: str, characters: Nfa, spell: Spell) -> Call:
        """The rule of JSON strings whose decoded text is in the language of ``characters``, in all its spellings."""
        if self._profile.lone_surrogates:
            characters = product(characters, _no_split_pairs())
        inside = self._network.rule(f"{name} text", characters, spell)
        return self._network.rule(name, Seq((literal(b'"'), inside, literal(b'"'))))

    def _key(self, key: str) -> Call:
        name = f"key {json.dumps(key)}"
        return Call(name) if name in self._network.rules else self._text_rule(name, words([key]), self._spell_literal)

    def _any_string(self) -> Call:
        name = "any string"
        if name not in self._network.rules:
            self._text_rule(name, automaton(Repeat(ANY_CHAR, 0, None)), self._spell)
        return Call(name)

    def _string(self, schema: dict[str, Any], place: str) -> Expr:
        low, high = _count(schema, "minLength", place), _count(schema, "maxLength", place)
        if not low and high is None and "pattern" not in schema:
            return self._any_string()
        name = f"text of #{place}"
        if name in self._network.rules:
            return Call(name)
        if high is not None and high < (low or 0):
            return NOTHING
        length = automaton(Repeat(ANY_CHAR, low or 0, high))
        if "pattern" not in schema:
            return self._text_rule(name, length, self._spell)
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            raise _refusal("must be a string", "pattern", place)
        read = regular_expression.search if self._profile.pattern == "search" else regular_expression.full_match
        try:
            characters = automaton(read(pattern, self._profile.regex_dialect))
        except UnsupportedError as error:
            raise _refusal(error.reason, "pattern", place) from error
        if low or high is not None:
            characters = product(characters, length)
        return self._text_rule(name, characters, self._spell)

    def _number(self, schema: dict[str, Any], place: str, fractions: bool) -> Expr:
        """fractions: every number, not only integers."""
        bounds = [keyword for keyword in NUMBER_BOUNDS if keyword in schema]
        if fractions:
            if bounds:
                raise _refusal("in the subset for integers only", bounds[0], place)
            exponent = Repeat(_EXPONENT, 0, 1) if self._profile.numbers == "rfc8259" else EMPTY
            return Seq((_INTEGER, Repeat(Seq((literal(b"."), _DIGITS)), 0, 1), exponent))
        if self._profile.integer_spelling == "digits":
            tail: Expr = EMPTY
        elif self._profile.numbers == "plain":
            tail = _ZERO_FRACTION
        else:
            raise _refusal("integers by value under RFC 8259 spellings are not regular", "type", place)
        if not bounds:
            return Seq((_INTEGER, tail))
        low: int | None = None
        high: int | None = None
        for keyword in bounds:
            value = schema[keyword]
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                raise _refusal("must be a number", keyword, place)
            _check_size(Decimal(value), keyword, place)
            exclusive = keyword.startswith("exclusive")
            if keyword.lower().endswith("minimum"):
                bound = math.floor(value) + 1 if exclusive else math.ceil(value)
                low = bound if low is None else max(low, bound)
            else:
                bound = math.ceil(value) - 1 if exclusive else math.floor(value)
                high = bound if high is None else min(high, bound)
        return Seq((_integers(low, high), tail))

    # Containers

    def _array(self, schema: dict[str, Any], place: str) -> Expr:
        prefix = schema.get("prefixItems", [])
        if not isinstance(prefix, list):
            raise _refusal("must be an array", "prefixItems", place)
        default = self._profile.additional_items if "prefixItems" in schema else True
        rest = schema.get("items", default)
        if isinstance(rest, list):
            raise _refusal("a list is the older drafts' prefixItems", "items", place)
        low, high = _count(schema, "minItems", place) or 0, _count(schema, "maxItems", place)
        items = [self._value(item, f"{place}/prefixItems/{i}", TYPES) for i, item in enumerate(prefix)]
        reached = high is None or high > len(items)
        further: Expr = self._value(rest, f"{place}/items", TYPES) if reached else NOTHING
        # From here on, every position is like every other.
        settled = max(len(items), low) if high is None else high

        def nexts(i: int) -> list[tuple[Expr, int]]:
            if high is not None and i >= high:
                return []
            return [(items[i] if i < len(items) else further, min(i + 1, settled) if high is None else i + 1)]

        return self._sequence(b"[]", 0, nexts, low)

    def _object(self, schema: dict[str, Any], place: str) -> Expr:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict):
            raise _refusal("must be an object", "properties", place)
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise _refusal("must be an array of strings", "required", place)
        default = self._profile.additional_properties if "properties" in schema else True
        further = schema.get("additionalProperties", default)
        undeclared = set(required) - properties.keys()
        if undeclared and further is False:
            return NOTHING
        if undeclared:
            raise _refusal(f"{min(undeclared)!r} is not among the properties", "required", place)
        members: dict[str, Expr] = {
            key: self._value(value, f"{place}/properties/{_escaped(key)}", TYPES) for key, value in properties.items()
        }
        other = None if further is False else self._value(further, f"{place}/additionalProperties", TYPES)
        return self._members(
            members, frozenset(required), other, "additionalProperties", place, open_values=_is_open(further)
        )

    def _members(
        self,
        values: dict[str, Expr],
        required: frozenset[str],
        other: Expr | None,
        keyword: str,
        place: str,
        *,
        open_values: bool,
    ) -> Expr:
        """An object. values: of the keys written down. other: the value of any further key, None where there is none.
        open_values: ``other`` is any value. keyword: the one to name in a refusal."""
        profile = self._profile
        once = profile.duplicate_keys == "forbidden"
        if other is not None:
            if once or (profile.duplicate_keys == "last_wins" and not open_values):
                raise _refusal(f"further keys under duplicate_keys = {profile.duplicate_keys!r}", keyword, place)
            if profile.key_order == "sorted":
                raise _refusal("further keys under key_order = 'sorted'", keyword, place)
            key = self._any_string()
            if values:
                key = self._text_rule(f"text of other keys #{place}", all_but(values), self._spell)
            other = self._rule(Seq((key, self._colon, other)))
        keys = sorted(values) if profile.key_order == "sorted" else list(values)
        members: list[Expr] = [self._rule(Seq((self._key(key), self._colon, values[key]))) for key in keys]
        needed = [key in required for key in keys]
        if profile.key_order == "any":
            return self._in_any_order(keys, members, needed, other, keyword, place)

        def nexts(at: int) -> list[tuple[Expr, int]]:
            """From key number ``at`` on: any key up to the next needed one."""
            end = next((i for i in range(at, len(keys)) if needed[i]), len(keys))
            out: list[tuple[Expr, int]] = [(members[i], i + 1) for i in range(at, min(end + 1, len(keys)))]
            return [*out, (other, len(keys))] if end == len(keys) and other is not None else out

        return self._sequence(b"{}", 0, nexts, next((i + 1 for i in reversed(range(len(keys))) if needed[i]), 0))

    def _in_any_order(
        self,
        keys: list[str],
        members: list[Expr],
        needed: list[bool],
        other: Expr | None,
        keyword: str,
        place: str,
    ) -> Expr:
        """Progress is one mark per key: ``-`` not seen, ``?`` seen with a value that another must replace, ``+`` seen
        (or, where repetition is free, nothing left to ask)."""
        mode = self._profile.duplicate_keys
        start = "".join("+" if mode == "any" and not need else "-" for need in needed)
        choices = 3 if mode == "last_wins" else 2
        if choices ** start.count("-") > ORDERINGS_LIMIT:
            raise _refusal(f"{len(keys)} keys in any order", "properties" if keyword != "const" else keyword, place)
        anything: list[Expr] = []
        if mode == "last_wins":
            value = self._value(True, "", TYPES)
            anything = [self._rule(Seq((self._key(key), self._colon, value))) for key in keys]

        def nexts(seen: str) -> list[tuple[Expr, str]]:
            out: list[tuple[Expr, str]] = [] if other is None else [(other, seen)]
            for i, mark in enumerate(seen):
                if mark != "+" or mode == "any":
                    out.append((members[i], f"{seen[:i]}+{seen[i + 1 :]}"))
                if mark != "+" and mode == "last_wins":
                    out.append((anything[i], f"{seen[:i]}?{seen[i + 1 :]}"))
            return out

        def done(seen: str) -> bool:
            return all(mark == "+" or (mark == "-" and not need) for mark, need in zip(seen, needed, strict=True))

        return self._container(b"{}", start, nexts, done)

    def _sequence(
        self, brackets: bytes, start: int, nexts: Callable[[int], Sequence[tuple[Expr, int]]], low: int
    ) -> Expr:
        return self._container(brackets, start, nexts, lambda at: at >= low)

    def _container(
        self,
        brackets: bytes,
        start: Progress,
        nexts: Callable[[Progress], Iterable[tuple[Expr, Progress]]],
        done: Callable[[Progress], bool],
    ) -> Expr:
        """Brackets around elements. nexts: what may come at some progress, and the progress after it. done: whether
        the closing bracket may."""
        nfa = Nfa()
        opened, first, end = nfa.node(), nfa.node(), nfa.node(final=True)
        closing = literal(brackets[1:])
        nfa.connect(0, literal(brackets[:1]), opened)
        nfa.connect(opened, self._space, first)
        if done(start):
            nfa.connect(first, closing, end)
        # Of every progress: the node after an element, and the node after the comma that may follow it.
        nodes: dict[Progress, tuple[int, int]] = {}
        todo: list[tuple[int, Progress]] = [(first, start)]
        while todo:
            node, progress = todo.pop()
            for element, following in nexts(progress):
                if following not in nodes:
                    after, comma = nodes[following] = nfa.node(), nfa.node()
                    nfa.connect(after, self._comma, comma)
                    if done(following):
                        nfa.connect(after, Seq((self._space, closing)), end)
                    todo.append((comma, following))
                nfa.connect(node, element, nodes[following][0])
        return self._rule(nfa)

    def _rule(self, body: Expr | Nfa) -> Call:
        """A rule without a name to speak of, so that what is used in many places is built once."""
        return self._network.rule(f"part {len(self._network.rules)}", body)


def _no_split_pairs() -> Nfa:
    """With lone surrogates in a string, a high one followed by a low one is their pair, never two characters."""
    nfa = Nfa()
    after_high = nfa.node()
    nfa.labelled[0] = [(Chars(complement(HIGH)), 0), (Chars(HIGH), after_high)]
    nfa.labelled[after_high] = [(Chars(complement(SURROGATES)), 0), (Chars(HIGH), after_high)]
    nfa.finals = {0, after_high}
    return nfa


def _integers(low: int | None, high: int | None) -> Expr:
    """The integers low … high in digits; None: without that bound. ``-0`` is a spelling of 0."""
    parts: list[Expr] = []
    if high is None or high >= 0:
        parts.append(_naturals(max(low or 0, 0), high))
        if low is None or low <= 0:
            parts.append(literal(b"-0"))
    if low is None or low < 0:
        parts.append(
            Seq((literal(b"-"), _naturals(max(1, -high) if high is not None else 1, None if low is None else -low)))
        )
    return Alt(tuple(parts))


def _naturals(low: int, high: int | None) -> Expr:
    """The numbers low … high, low ≥ 0, without leading zeros."""
    parts: list[Expr] = []
    most = len(str(low)) if high is None else len(str(high))
    for length in range(len(str(low)), most + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = 10**length - 1 if high is None else min(high, 10**length - 1)
        parts += [
            Seq(tuple(Bytes(((d[0][0] + 0x30, d[0][1] + 0x30),)) for d in digits))
            for digits in digit_ranges(first, last, (10,) * length)
        ]
    if high is None:
        parts.append(Seq((_FIRST_DIGIT, Repeat(_DIGIT, most, None))))
    return Alt(tuple(parts))


def _declared_types(schema: dict[str, Any], place: str) -> frozenset[str]:
    if "type" not in schema:
        return TYPES
    declared = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not all(isinstance(name, str) and name in TYPES for name in declared):
        raise _refusal("must be one or several of the seven types", "type", place)
    return frozenset(declared) | ({"integer"} if "number" in declared else set())


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | Decimal():
            return "integer" if value == math.floor(value) else "number"
        case list():
            return "array"
    return "object"


def _is_open(schema: Any) -> bool:
    """Whether every value is an instance, by the look of it."""
    return schema is True or (isinstance(schema, dict) and schema.keys() <= ANNOTATIONS)


def _count(schema: dict[str, Any], keyword: str, place: str) -> int | None:
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0 or value != int(value):
        raise _refusal("must be a non-negative integer", keyword, place)
    return int(value)


def _check_size(value: Decimal, keyword: str, place: str) -> None:
    if value and not (
        -DIGITS_LIMIT <= value.adjusted() <= DIGITS_LIMIT and len(value.as_tuple().digits) <= DIGITS_LIMIT
    ):
        raise _refusal(f"a number of more than {DIGITS_LIMIT} digits", keyword, place)


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _refusal(why: str, keyword: str, place: str) -> UnsupportedError:
    return UnsupportedError(
        f"{keyword or 'schema'} at {place or 'the root'}: {why}",
        keyword=keyword,
        pointer=f"{place}/{_escaped(keyword)}" if keyword else place,
    )
