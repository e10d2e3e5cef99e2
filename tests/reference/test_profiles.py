"""What a profile leaves open, text by text: against ``json``, ``jsonschema_rs``, and the adapters' own profiles."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness import catalogue
from harness.backends import registry
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference.compile import compile

from .languages import COMPACT, accepts, schema, strings
from .schema_cases import DOCUMENTS, automaton, dumps, judge, random_walk, read, schemas

# Strings


@pytest.mark.parametrize("escapes", ["any", "minimal"])
@pytest.mark.parametrize("lone", [False, True])
def test_strings_are_read_as_a_parser_reads_them(lone: bool, escapes: Any) -> None:
    """Every text of a few pieces, against ``json.loads``: accepted exactly if it parses, spells what the profile
    allows, and the decoded length fits. RFC 8259 demands no escape that gives half of a pair, so ``minimal`` has none.
    """
    profile = replace(COMPACT, lone_surrogates=lone, escapes=escapes)
    bounds = [(0, None), (1, 2), (2, 2), (0, 1)]
    automata = [
        schema({"type": "string", "minLength": low} | ({} if high is None else {"maxLength": high}), profile)
        for low, high in bounds
    ]
    pieces = ["a", "é", "😀", "\\ud83d", "\\uDE00", "\\n", "\\/", "\\u0061", "\x7f", "\n", '"', "\\", "\\u00", "\\x"]
    for count in range(4):
        for parts in itertools.product(pieces, repeat=count):
            text = f'"{"".join(parts)}"'
            value = parsed_string(text)
            if value is not None and re.search("[\ud800-\udfff]", value) and (not lone or escapes == "minimal"):
                value = None
            if value is not None and escapes == "minimal" and text != json.dumps(value, ensure_ascii=False):
                value = None
            for machine, (low, high) in zip(automata, bounds, strict=True):
                fits = value is not None and low <= len(value) <= (99 if high is None else high)
                assert accepts(machine, text) is fits, (text, low, high)


def parsed_string(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None


# Numbers


def number_texts() -> Iterator[str]:
    yield from strings("-.e05", 5)
    yield from ("1e5", "1E5", "1e+5", "1E-05", "+1", "01", "1.", ".5", "1e", "12.340e10", "-12", "1.0", "NaN",
                "Infinity", "500e-2", "0.05e2", "0x5")  # fmt: skip


def json_number(text: str) -> Decimal | None:
    try:
        value: Decimal | None = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=lambda _: None)
    except ValueError:
        return None
    return value if text.strip() == text else None


def plain(text: str) -> bool:
    return "e" not in text.lower()


def digits(text: str) -> bool:
    return not set(text.lower()) & set(".e")


BY_VALUE = {"integer_spelling": "value"}
PLAIN = {"numbers": "plain"}


@pytest.mark.parametrize(
    ("value", "change", "holds"),
    [
        ({"type": "number"}, {}, lambda number, text: True),
        ({"type": "number"}, PLAIN, lambda number, text: plain(text)),
        ({"type": "integer"}, {}, lambda number, text: digits(text)),
        ({"type": "integer"}, BY_VALUE, lambda number, text: number == int(number)),
        ({"type": "integer"}, PLAIN | BY_VALUE, lambda number, text: plain(text) and number == int(number)),
        ({"type": ["integer", "number"]}, {}, lambda number, text: True),
        ({"const": 5}, {}, lambda number, text: number == 5),
        ({"const": 5}, PLAIN, lambda number, text: plain(text) and number == 5),
        ({"const": -0.5}, PLAIN, lambda number, text: plain(text) and number == -Decimal("0.5")),
        ({"const": 0}, {}, lambda number, text: number == 0),
        ({"const": 5e1, "type": "integer"}, {}, lambda number, text: digits(text) and number == 50),
        ({"enum": [5e1, 0.5, "x"], "type": "integer"}, BY_VALUE, lambda number, text: number == 50),
    ],
)
def test_numbers_are_spelled_as_the_profile_says(
    value: Any, change: dict[str, Any], holds: Callable[[Decimal, str], bool]
) -> None:
    machine = schema(value, replace(COMPACT, **change))
    found = 0
    for text in number_texts():
        number = json_number(text)
        expected = number is not None and holds(number, text)
        assert accepts(machine, text) is expected, text
        found += expected
    assert found


def test_a_constant_is_its_value_however_the_schema_writes_it() -> None:
    for text in ("1.50", "15e-1", "0.15E1"):
        machine = compile(Constraint("json_schema", f'{{"const": {text}}}'), replace(COMPACT, numbers="plain"))
        spelled = ("1.5", "1.50", "1.500", "1.05", "15", "-1.5")
        assert [accepts(machine, one) for one in spelled] == [True, True, True, False, False, False]


BOUNDS = st.one_of(st.none(), st.integers(-130, 1300), st.decimals(-20, 20, places=1))


@given(BOUNDS, BOUNDS, st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_integer_bounds_hold_exactly(low: Any, high: Any, open_below: bool, open_above: bool) -> None:
    bounds = {}
    if low is not None:
        bounds["exclusiveMinimum" if open_below else "minimum"] = low
    if high is not None:
        bounds["exclusiveMaximum" if open_above else "maximum"] = high
    numbers = [*range(-135, 25), *range(-1305, -1295), *range(995, 1005), *range(1295, 1305), 99999, 10**30, -(10**30)]
    numbers += [int(bound) + more for bound in (low, high) if bound is not None for more in range(-3, 4)]
    inside = [
        n
        for n in numbers
        if (low is None or n > low or (n == low and not open_below))
        and (high is None or n < high or (n == high and not open_above))
    ]
    machine = automaton({"type": "integer", **bounds}, COMPACT)
    assert (machine.start() is not None) is bool(inside)
    for n in numbers:
        assert accepts(machine, str(n)) is (n in inside), n
    assert accepts(machine, "-0") is (0 in inside)
    assert not accepts(machine, "01")


# White space


@pytest.mark.parametrize(
    ("change", "gap", "after"),
    [
        ({"whitespace": "any"}, r"[ \t\r\n]*", None),
        ({"whitespace": "bounded", "whitespace_limit": 2}, r"[ \t\r\n]{0,2}", None),
        ({"whitespace": "one_space"}, " ?", None),
        ({"whitespace": "compact"}, "", None),
        ({"whitespace": "spaced"}, "", " "),
    ],
)
@pytest.mark.parametrize("outer", [True, False])
def test_white_space_is_what_the_profile_says(change: dict[str, Any], gap: str, after: str | None, outer: bool) -> None:
    value = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "null"}}, "b": {"type": "object"}},
    }
    machine = schema(value, replace(COMPACT, outer_whitespace=outer, **change))
    pieces = ["{", '"a"', ":", "[", "null", ",", "null", "]", ",", '"b"', ":", "{", "}", "}"]
    random_ = random.Random(1)
    seen = set()
    for _ in range(600):
        fills = [
            random_.choice(["", "", "", " ", "  ", "\n\t ", "\r", "\u00a0"])
            if random_.random() < 0.25
            else (" " if after and i and pieces[i - 1] in ",:" else "")
            for i in range(len(pieces) + 1)
        ]
        text = "".join(f"{fill}{piece}" for fill, piece in zip(fills, [*pieces, ""], strict=True))
        expected = True
        for i, fill in enumerate(fills):
            allowed = gap
            if i in (0, len(pieces)):
                allowed = gap if outer else ""
            elif after and pieces[i - 1] in ",:":
                allowed = after
            expected = expected and re.fullmatch(allowed, fill) is not None
        seen.add(expected)
        assert accepts(machine, text) is expected, text
    assert seen == {True, False}


# Keys


@pytest.mark.parametrize("further", [False, True])
@pytest.mark.parametrize("mode", ["forbidden", "last_wins", "any"])
def test_repeated_keys_read_as_the_profile_says(mode: Any, further: bool) -> None:
    value = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
        "required": ["a"],
        "additionalProperties": further,
    }
    machine = schema(value, replace(COMPACT, key_order="any", duplicate_keys=mode))
    validator = jsonschema_rs.Draft202012Validator(value)
    members = [("a", "true"), ("a", "null"), ("b", "null"), ("b", "[1]"), ("c", "1"), ("c", "{}")]
    for count in range(5):
        for chosen in itertools.product(members, repeat=count):
            text = "{" + ",".join(f'"{key}":{item}' for key, item in chosen) + "}"
            keys = dict.fromkeys(key for key, _ in chosen)
            if mode == "any":
                choices = [[json.loads(v) for k, v in chosen if k == key] for key in keys]
                readings = [dict(zip(keys, c, strict=True)) for c in itertools.product(*choices)]
            else:
                readings = [json.loads(text)]  # Python's parser lets the last one win
            expected = all(map(validator.is_valid, readings)) and (mode != "forbidden" or len(keys) == count)
            assert accepts(machine, text) is expected, text


def test_further_keys_come_after_the_declared_ones_and_are_none_of_them() -> None:
    value = {"type": "object", "properties": {"a": {"const": "A"}, "ab": {"const": "AB"}}, "required": ["a"]}
    machine = schema(value, replace(COMPACT, duplicate_keys="any"))
    assert accepts(machine, '{"a":"A"}')
    assert accepts(machine, '{"a":"A","abc":1,"":2,"b":3,"abc":4}')
    assert accepts(machine, '{"a":"A","ab":"AB","c":1}')
    assert accepts(machine, r'{"\u0061":"A","c":1}')
    for text in (
        '{"c":1,"a":"A"}', '{"a":"A","c":1,"ab":"AB"}', '{"ab":"AB","a":"A"}', '{"a":"A","a":1}', '{"a":"A","ab":1}',
        r'{"a":"A","\u0061b":1}', r'{"a":"A","c":1,"a\u0062":"AB"}', '{"a":"A","a":"A"}',
    ):  # fmt: skip
        assert not accepts(machine, text), text


def test_a_further_key_is_not_a_declared_one_split_into_surrogates() -> None:
    value = {"type": "object", "properties": {"😀": {"type": "null"}}}
    machine = schema(value, replace(COMPACT, lone_surrogates=True))
    assert accepts(machine, '{"😀":null}')
    assert accepts(machine, r'{"\ud83d\ude00":null}')
    assert not accepts(machine, r'{"\ud83d\ude00":1}')
    assert accepts(machine, r'{"\ude00\ud83d":1}')


# Orders that a test tries out of one document.
MOST_ORDERS = 24


def count_of_orders(value: Any) -> int:
    if isinstance(value, list):
        return math.prod(map(count_of_orders, value))
    if isinstance(value, dict):
        return math.factorial(len(value)) * math.prod(map(count_of_orders, value.values()))
    return 1


def orders(value: Any) -> Iterator[Any]:
    """The value with the keys of its objects in every order."""
    if isinstance(value, list):
        yield from map(list, itertools.product(*(list(orders(item)) for item in value)))
    elif isinstance(value, dict):
        for keys in itertools.permutations(value):
            for items in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, items, strict=True))
    else:
        yield value


@given(schemas(), st.lists(DOCUMENTS, min_size=3, max_size=3), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_generated_schemas_hold_for_every_order_of_keys_or_for_one(value: Any, documents: list[Any], seed: int) -> None:
    """Under any order a document is valid exactly if it is in the language in every order of its keys; under the
    declared one, exactly if it is in some."""
    validator = judge(value)
    free = Profile(whitespace="compact", duplicate_keys="forbidden")
    try:
        machines = {order: automaton(value, replace(free, key_order=order)) for order in ("any", "declared")}
        made = [read(text) for i in range(3) if (text := random_walk(machines["any"], seed + i)) is not None]
        for document in (*documents, *made):
            if count_of_orders(document) > MOST_ORDERS:
                continue
            valid = validator.is_valid(read(dumps(document)))
            texts = [dumps(one, separators=(",", ":"), ensure_ascii=False) for one in orders(document)]
            assert {accepts(machines["any"], text) for text in texts} == {valid}, texts[0]
            assert any(accepts(machines["declared"], text) for text in texts) is valid, texts[0]
    except UnsupportedError:
        assume(False)


# Whole constraints


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance", "outlines", "lm-format-enforcer"])
def test_the_built_in_constraints_are_judged_as_they_are_labelled(backend: str) -> None:
    """Their labels were checked by other judges. Profiles are read from the adapters; no library is imported."""
    profile = registry.create(backend).profiles["default"]
    entries = catalogue.load()
    refused = []
    for entry in entries.values():
        try:
            machine = compile(entry.constraint, profile)
        except UnsupportedError:
            refused.append(entry.name)
            continue
        for instance in catalogue.valid_under(entry, profile):
            text = catalogue.spell(entry, instance, profile)
            assert accepts(machine, text), (entry.name, text)
        for instance in entry.invalid:
            text = catalogue.spell(entry, instance, profile)
            assert not accepts(machine, text), (entry.name, text)
    # What Rust's \\w holds rests on the tables of its version.
    assert refused == (["patterns/shorthand_classes"] if profile.regex_dialect == "rust" else [])


def test_json_object_is_any_object_and_nothing_else() -> None:
    machine = compile(Constraint("json_object", ""), Profile(duplicate_keys="any"))
    for text, whole in (
        ("{}", True),
        (' {"a" : [1.5e3, {"a": {}}]}\n', True),
        ("[]", False),
        ("1", False),
        ("{,}", False),
        ('{"a":1,}', False),
    ):
        assert accepts(machine, text) is whole, text


# Refusals


@pytest.mark.parametrize(
    ("value", "change", "keyword", "place"),
    [
        ({"properties": {"a/b": {"pattern": r"(a)\1"}}}, {}, "pattern", "/properties/a~1b"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"pattern": "(?i)x"}}}, {}, "pattern", "/$defs/a"),
        ({"anyOf": [{"type": "string"}, {"items": {"not": {"$ref": "other.json"}}}]}, {}, "$ref", "/anyOf/1/items/not"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, {}, "$schema", ""),
        ({"items": {"format": "regex"}}, {"format": "assertion"}, "format", "/items"),
    ],
)
def test_what_is_refused_is_named_with_its_keyword_and_place(
    value: Any, change: dict[str, Any], keyword: str, place: str
) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        schema(value, replace(COMPACT, **change))
    assert refusal.value.keyword == keyword
    assert refusal.value.pointer in (place, f"{place}/{keyword}")
    assert refusal.value.reason
    assert "\n" not in refusal.value.reason


def test_a_refusal_inside_a_structural_tag_says_where() -> None:
    tag = {"structures": [{"begin": "<a>", "schema": {"pattern": r"(a)\1"}, "end": "</a>"}], "triggers": ["<a"]}
    with pytest.raises(UnsupportedError) as refusal:
        compile(Constraint("structural_tag", json.dumps(tag)))
    assert (refusal.value.keyword, refusal.value.pointer) == ("pattern", "/structures/0/schema/pattern")
