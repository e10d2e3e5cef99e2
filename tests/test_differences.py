"""Where two matchers' rows differ is said exactly; one cause in many rows, documents and constraints is one fault."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import bitmask, catalogue
from harness.backends import guard, registry
from harness.bitmask import Row
from harness.cell import Document
from harness.constraint import Constraint
from harness.differences import EOS, WHITE_SPACE, WHOLE_TOKEN, Fault, StepDifference, compare, group, merge
from harness.differences import _start as cursor_of
from harness.profile import Profile
from tests.making import VOCABULARY, document

EOS_ID = VOCABULARY.eos_ids[0]
PROFILE = Profile(whitespace="compact", outer_whitespace=False, duplicate_keys="forbidden", escapes="minimal")
Change = Callable[[int, Row], None]


def schema(**keywords: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(keywords))


def obj(**properties: Any) -> Constraint:
    return schema(type="object", properties=properties, required=list(properties), additionalProperties=False)


NAMES = obj(name={"type": "string"}, id={"type": "string"})


def matcher(constraint: Constraint, backend: str = "reference", profile: Profile = PROFILE) -> guard.Matcher:
    made = registry.create(backend)
    return guard.matcher(made.compile(constraint, VOCABULARY, profile), VOCABULARY, made.capabilities)


class Spoiled:
    """The engine's matcher, with rows changed on their way out."""

    def __init__(self, constraint: Constraint, change: Change) -> None:
        self._right = matcher(constraint)
        self._change = change

    def fill(self, row: Row) -> None:
        self._right.fill(row)
        self._change(len(self._right.history), row)

    def accept(self, token: int) -> bool:
        return self._right.accept(token)


def ids(wanted: Callable[[bytes], bool]) -> list[int]:
    return [t for t, text in enumerate(VOCABULARY.tokens) if text and wanted(text)]


def the_id(text: bytes) -> int:
    return VOCABULARY.tokens.index(text)


def without(*tokens: int, at: int | None = None) -> Change:
    def change(step: int, row: Row) -> None:
        if at in (None, step):
            for token in tokens:
                bitmask.set_bit(row, token, False)

    return change


def with_(*tokens: int, at: int) -> Change:
    def change(step: int, row: Row) -> None:
        if step == at:
            for token in tokens:
                bitmask.set_bit(row, token)

    return change


NO_DEL = without(*ids(lambda text: b"\x7f" in text))


def differences(
    constraint: Constraint, change: Change, *texts: str, name: str = "test/names"
) -> Iterator[StepDifference]:
    for i, text in enumerate(texts):
        subject, judge = Spoiled(constraint, change), matcher(constraint)
        yield from compare(
            subject, judge, document(f"valid/{i}", text), VOCABULARY, constraint, backend="fake", constraint_name=name
        )


# --- what differs ----------------------------------------------------------------------------------------------------


def test_equal_masks_have_no_difference() -> None:
    text = '{"name":"the abc","id":"é\\n"}'
    one, other = matcher(NAMES), matcher(NAMES, "naive")
    assert list(compare(one, other, document("valid/0", text), VOCABULARY, NAMES)) == []


def test_a_difference_says_step_tokens_direction_and_count() -> None:
    strict, loose = the_id(b"z"), the_id(b"\x00")

    def change(step: int, row: Row) -> None:
        without(strict, at=4)(step, row)
        with_(loose, loose + 1, at=4)(step, row)

    (found,) = differences(NAMES, change, '{"name":"abc the","id":""}')
    tokens = document("", '{"name":"abc the","id":""}').tokens
    assert (found.backend, found.constraint, found.document) == ("fake", "test/names", "valid/0")
    assert found.step == 4
    assert found.prefix.encode("latin-1") == VOCABULARY.decode(tokens[:4]) == b'{"name":"abc'
    assert (found.too_loose, found.too_strict) == ((loose, loose + 1), (strict,))
    assert (found.count, found.directions) == (3, ("too loose", "too strict"))


def test_the_first_differing_step_comes_first_and_the_end_is_compared_too() -> None:
    text = '{"name":"ab","id":""}'
    found = list(differences(NAMES, NO_DEL, text))
    steps = [d.step for d in found]
    assert steps == sorted(set(steps))
    assert found[0].prefix == '{"name":"'
    last = len(document("", text).tokens)
    (at_end,) = differences(NAMES, without(EOS_ID), text)
    assert (at_end.step, at_end.too_strict) == (last, (EOS_ID,))


def test_a_walk_ends_where_the_judge_or_the_subject_refuses() -> None:
    text = '{"name":true,"id":""}'
    tokens = document("", text).tokens
    refused = next(i for i in range(len(tokens)) if matcher(NAMES).validate(tokens[: i + 1]) <= i)
    everywhere = without(the_id(b"a"))
    assert max(d.step for d in differences(NAMES, everywhere, '{"name":"","id":""}')) > refused
    assert all(d.step <= refused for d in differences(NAMES, everywhere, text))


def test_differences_survive_json() -> None:
    for found in differences(NAMES, NO_DEL, '{"name":"é\\"","id":"x"}'):
        assert StepDifference.from_json(json.loads(json.dumps(found.to_json()))) == found


# --- what the tokens of a row have in common -------------------------------------------------------------------------


def parts_of(found: StepDifference) -> set[tuple[str, str, str, tuple[str, ...], int]]:
    return {(p.direction, p.character, p.place, p.keywords, p.count) for p in found.parts}


def test_tokens_are_told_apart_by_the_byte_that_the_stricter_side_does_not_take() -> None:
    """``abq`` and ``q`` are forbidden for the same letter, although one of them begins with another."""
    (first, *_) = differences(NAMES, without(*ids(lambda text: b"q" in text)), '{"name":"ab","id":""}')
    assert parts_of(first) == {("too strict", "letter", "in a string", (), 2)}
    assert (first.parts[0].token, first.parts[0].token_bytes) == (the_id(b"q"), "q")


def test_the_place_is_that_of_the_byte_not_of_the_token_s_beginning() -> None:
    """In the middle of a key ``":"`` goes wrong at its colon, after the key."""
    change = without(*ids(lambda text: b":" in text))
    found = [d for d in differences(NAMES, change, '{"name":"ab","id":""}') if d.prefix == '{"name']
    (row,) = found
    assert parts_of(row) == {("too strict", "':'", "between tokens", (), 2)}


def test_a_token_whose_every_byte_may_come_is_another_fault() -> None:
    change = without(the_id(b"na"))
    (first, *_) = differences(NAMES, change, '{"name":"ab","id":""}')
    assert parts_of(first) == {("too strict", WHOLE_TOKEN, "in a key", (), 1)}


def test_end_of_sequence_is_a_class_of_its_own() -> None:
    (early,) = differences(NAMES, with_(EOS_ID, at=0), '{"name":"ab","id":""}')
    assert parts_of(early) == {("too loose", EOS, "between tokens", ("required",), 1)}
    (late,) = differences(NAMES, without(EOS_ID), '{"name":"ab","id":""}')
    assert parts_of(late) == {("too strict", EOS, "after the document", (), 1)}


def test_where_nothing_is_allowed_a_token_fails_by_its_first_byte() -> None:
    def nothing(step: int, row: Row) -> None:
        row[:] = 0 if step == 0 else row

    (first,) = differences(NAMES, nothing, '{"name":"ab","id":""}')
    assert {(p.character, p.place) for p in first.parts} == {("'{'", "between tokens")}


@given(st.sets(st.sampled_from(ids(lambda text: True)), min_size=1, max_size=20), st.integers(0, 20))
def test_every_wrong_bit_is_in_exactly_one_part(flipped: set[int], at: int) -> None:
    def flip(step: int, row: Row) -> None:
        if step == at:
            for token in flipped:
                bitmask.set_bit(row, token, not bitmask.test(row, token))

    for found in differences(NAMES, flip, '{"name":"the name","id":"é"}'):
        assert sum(p.count for p in found.parts) == len(flipped)
        assert {*found.too_loose, *found.too_strict} == flipped


# --- faults ----------------------------------------------------------------------------------------------------------

OTHER = obj(rows={"type": "array", "items": {"type": "string"}})


def test_one_fault_is_one_line_however_often_it_is_seen() -> None:
    found = [
        *differences(NAMES, NO_DEL, '{"name":"the name","id":"é"}', '{"name":"","id":"no"}', name="a/names"),
        *differences(OTHER, NO_DEL, '{"rows":["ab","the",""]}', name="b/rows"),
    ]
    (fault,) = group(found)
    assert (fault.direction, fault.character, fault.place, fault.keywords) == ("too strict", "DEL", "in a string", ())
    assert (fault.rows, fault.documents, fault.constraints) == (len(found), 3, 2)
    assert fault.rows > 10
    assert fault.tokens == fault.rows * len(ids(lambda text: b"\x7f" in text))
    assert (fault.example.constraint, fault.example.document, fault.example.prefix) == (
        "a/names", "valid/0", '{"name":"',
    )  # fmt: skip
    assert fault.example.pointer == "/properties/name"
    line = str(fault)
    assert "\n" not in line
    assert line.startswith("fake: too strict: DEL in a string: 2 constraints, 3 documents,")


def test_what_differs_in_direction_class_place_keywords_or_backend_is_another_fault() -> None:
    bounded = obj(name={"type": "string", "minLength": 1, "maxLength": 9}, id={"type": "string", "maxLength": 9})
    text = '{"name":"ab","id":"c"}'
    unlike = [
        *differences(NAMES, NO_DEL, text),
        *differences(bounded, NO_DEL, text),
        *differences(NAMES, without(the_id(b"z")), text),
        *differences(NAMES, with_(the_id(b"\x00"), at=3), text),
        *differences(NAMES, with_(the_id(b"\x00"), at=1), text),
    ]
    unlike.extend([replace(d, backend="other") for d in unlike])
    keys = [(f.backend, f.direction, f.character, f.place, f.keywords) for f in group(unlike)]
    kinds = {
        ("too strict", "DEL", "in a string", ()),
        ("too strict", "DEL", "in a string", ("length",)),  # of both properties: bounds are one family
        ("too strict", "letter", "in a string", ()),
        ("too loose", "control character", "in a string", ()),
        ("too loose", "control character", "in a key", ()),
    }
    assert len(keys) == len(set(keys)) == 10
    assert set(keys) == {(backend, *kind) for backend in ("fake", "other") for kind in kinds}


def test_faults_are_sorted_by_rows_and_do_not_depend_on_the_order_of_documents() -> None:
    def both(step: int, row: Row) -> None:
        NO_DEL(step, row)
        without(EOS_ID)(step, row)

    found = list(differences(NAMES, both, '{"name":"ab","id":""}', '{"name":"","id":"the"}'))
    forward, backward = group(found), group(reversed(found))
    assert [f.rows for f in forward] == sorted((f.rows for f in forward), reverse=True)
    assert [f.character for f in forward] == ["DEL", EOS]
    assert [replace(f, example=g.example) for f, g in zip(forward, backward, strict=True)] == backward


def test_faults_survive_json() -> None:
    for fault in group(differences(NAMES, NO_DEL, '{"name":"ab","id":""}')):
        assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


# --- where a byte stands ---------------------------------------------------------------------------------------------

PLACES = schema(
    type="object",
    properties={
        "s": {"type": "string", "maxLength": 3, "pattern": "a"},
        "n": {"$ref": "#/$defs/count"},
        "l": {"type": "array", "minItems": 1, "prefixItems": [True], "items": {"enum": [1, None]}},
        "b": {"anyOf": [{"properties": {"x": {"maxLength": 1}}}, {}]},
        "~/": {"additionalProperties": {"format": "date"}},
    },
    **{"$defs": {"count": {"type": "integer", "minimum": 1}}},
)


@pytest.mark.parametrize(
    ("prefix", "place", "pointer", "keywords"),
    [
        ("", "between tokens", "", ()),
        ('{"', "in a key", "", ()),
        ('{"s', "in a key", "", ()),
        ('{"s\\', "in an escape", "", ()),
        ('{"s"', "between tokens", "/properties/s", ()),
        ('{"s":', "between tokens", "/properties/s", ("length", "pattern")),
        ('{"s":"', "in a string", "/properties/s", ("length", "pattern")),
        ('{"s":"a\\u00', "in an escape", "/properties/s", ("length", "pattern")),
        ('{"s":"a\\u0041', "in a string", "/properties/s", ("length", "pattern")),
        ('{"s":"a\\\\', "in a string", "/properties/s", ("length", "pattern")),
        ('{"\\u0073":"', "in a string", "/properties/s", ("length", "pattern")),
        ('{"s":"a"', "between tokens", "", ()),
        ('{"n":-1', "in a number", "/$defs/count", ("integer", "range")),
        ('{"n":1 ', "between tokens", "", ()),
        ('{"l":[', "between tokens", "/properties/l/prefixItems/0", ()),
        ('{"l":[{"s":[1]},nu', "in a literal", "/properties/l/items", ("enum",)),
        ('{"l":[1,null],"s":"', "in a string", "/properties/s", ("length", "pattern")),
        ('{"b":{"x":"', "in a string", "/properties/b", ("anyOf",)),  # which branch is not for this module to say
        ('{"~/":{"z":"', "in a string", "/properties/~0~1/additionalProperties", ("format",)),
        ('{"other":"', "in a string", "", ()),
        ("{}", "after the document", "", ()),
    ],
)
def test_the_place_of_a_byte(prefix: str, place: str, pointer: str, keywords: tuple[str, ...]) -> None:
    cursor = cursor_of(PLACES)
    cursor.feed(prefix.encode())
    assert (cursor.place, *cursor.under("letter")) == (place, pointer, keywords)
    assert cursor.under(WHITE_SPACE) == (pointer, ())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def _mirrored(value: Any, counter: Iterator[int]) -> tuple[Any, Any]:
    """The value with every scalar replaced by a string of its own, and a schema in which that string is a title."""
    if isinstance(value, dict):
        made = {key: _mirrored(inner, counter) for key, inner in value.items()}
        return {k: v for k, (v, _) in made.items()}, {"properties": {k: s for k, (_, s) in made.items()}}
    if isinstance(value, list):
        items = [_mirrored(inner, counter) for inner in value]
        return [v for v, _ in items], {"prefixItems": [s for _, s in items]}
    mark = f"mark {next(counter)};"
    return mark, {"title": mark}


def _resolve(schema: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        schema = schema[int(name)] if isinstance(schema, list) else schema[name]
    return schema


@given(VALUES, st.booleans())
def test_a_byte_is_under_the_schema_of_its_own_value(value: Any, ascii_only: bool) -> None:
    value, mirrored = _mirrored(value, itertools.count())
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    found = text.count(b"mark ")
    for i in range(found):
        cursor = cursor_of(Constraint("json_schema", json.dumps(mirrored)))
        mark = f"mark {i};"
        cursor.feed(text[: text.index(mark.encode()) + 2])
        assert cursor.place == "in a string"
        assert _resolve(mirrored, cursor.under("letter")[0])["title"] == mark
    cursor = cursor_of(schema())
    cursor.feed(text)
    assert cursor.place == "after the document"


def test_in_a_structural_tag_json_begins_and_ends_with_its_structure() -> None:
    tag = {
        "triggers": ["<c:"],
        "structures": [
            {"begin": "<c:no>", "schema": {"type": "integer"}, "end": "</c>"},
            {"begin": "<c:add>", "schema": {"properties": {"a": {"maxLength": 3}}}, "end": "</c>"},
        ],
    }
    constraint = Constraint("structural_tag", json.dumps(tag))
    text = b'{"a":"x <c:add>{"a":"y"}</c> <c:no>12</c> z'
    places = {}
    cursor = cursor_of(constraint)
    for i, byte in enumerate(text):
        cursor.feed(bytes([byte]))
        places[text[: i + 1]] = (cursor.place, *cursor.under("letter"))
    assert places[b'{"a":"x'] == ("in text", "", ())
    assert places[b'{"a":"x <c:add>{"a":"y'] == ("in a string", "/structures/1/schema/properties/a", ("length",))
    assert places[b'{"a":"x <c:add>{"a":"y"}</c'][0] == "in text"
    assert places[b'{"a":"x <c:add>{"a":"y"}</c> <c:no>1'] == ("in a number", "/structures/0/schema", ("integer",))
    assert places[text] == ("in text", "", ())


def test_a_constraint_that_is_no_json_has_one_place() -> None:
    cursor = cursor_of(Constraint("regex", "a+"))
    cursor.feed(b'{"a":"')
    assert (cursor.place, *cursor.under("letter")) == ("in text", "", ())


# --- real libraries --------------------------------------------------------------------------------------------------


def faults_of(backend: str, *names: str, most_tokens: int = 80) -> list[Fault]:
    """Along the beginnings of all valid documents of the constraints, under the backend's declared profile."""
    made = registry.create(backend)
    profile = made.profiles["default"]

    def found() -> Iterator[StepDifference]:
        for entry in catalogue.select(names):
            grammar = made.compile(entry.constraint, VOCABULARY, profile)
            for instance in catalogue.valid_under(entry, profile):
                whole = document(instance.name, catalogue.spell(entry, instance, profile))
                yield from compare(
                    guard.matcher(grammar, VOCABULARY, made.capabilities),
                    matcher(entry.constraint, profile=profile),
                    Document(whole.name, whole.text, whole.tokens[:most_tokens]),
                    VOCABULARY,
                    entry.constraint,
                    backend=backend,
                    constraint_name=entry.name,
                )

    return group(found())


def test_xgrammar_s_control_characters_in_bounded_strings_are_one_fault() -> None:
    faults = faults_of("xgrammar", "bounds/string_lengths", "bounds/long_text")
    (fault,) = (f for f in faults if f.character == "control character")
    assert (fault.direction, fault.place, fault.keywords) == ("too loose", "in a string", ("length",))
    assert fault.constraints == 2
    assert fault.rows > 100
    assert fault.example.token_bytes < " "
    # All that is wrong in hundreds of rows, in as many lines as fit a screen.
    assert len(faults) < 12


def test_llguidance_s_del_in_strings_is_one_fault() -> None:
    faults = faults_of("llguidance", "flat/order", "tool_calls/weather")
    (fault,) = (f for f in faults if f.character == "DEL")
    assert (fault.direction, fault.place, fault.keywords) == ("too strict", "in a string", ())
    assert fault.constraints == 2
    assert fault.rows > 50
    assert fault.example.token_bytes == "\x7f"


def test_faults_of_single_documents_are_put_together_as_the_documents_would_be() -> None:
    texts = ('{"name":"abc","id":""}', '{"name":"","id":"x"}')
    found = [
        list(differences(NAMES, change, text, name=name))
        for name in ("test/names", "test/others")
        for change in (NO_DEL, with_(the_id(b"\x00"), at=4))
        for text in texts
    ]
    for number, each in enumerate(found):  # each a document of its own
        found[number] = [replace(d, document=f"valid/{number}") for d in each]
    together = group(itertools.chain.from_iterable(found))
    assert len(together) > 1 and max(f.constraints for f in together) == 2
    assert merge(itertools.chain.from_iterable(map(group, found))) == together
    assert merge([]) == []
