"""A constraint is checked where it is made, so that no backend meets one that is malformed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.constraint import KINDS, SYNTAXES, Constraint
from harness.errors import MasktaxError

TAG: dict[str, Any] = {
    "triggers": ["<call:"],
    "structures": [{"begin": "<call:add>", "schema": {"type": "object"}, "end": "</call>"}],
}
VALID = {
    "json_schema": '{"type": "object"}',
    "json_object": "",
    "regex": "a+b",
    "grammar": 'root ::= "a"',
    "choice": '["yes", "no"]',
    "structural_tag": json.dumps(TAG),
}


def make(kind: Any, text: str) -> Constraint:
    return Constraint(kind, text, "ebnf" if kind == "grammar" else None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_made_and_survives_json(kind: str) -> None:
    constraint = make(kind, VALID[kind])
    assert Constraint.from_json(json.loads(json.dumps(constraint.to_json()))) == constraint


def test_an_unknown_kind_or_syntax_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(MasktaxError, match="'xml' is none of json_schema, json_object"):
        Constraint("xml", "")  # type: ignore[arg-type]
    with pytest.raises(MasktaxError, match="'bnf' is none of ebnf, lark, gbnf"):
        Constraint("grammar", "", "bnf")  # type: ignore[arg-type]


def test_a_grammar_and_nothing_else_has_a_syntax() -> None:
    for kind in KINDS:
        for syntax in (None, *SYNTAXES):
            if (kind == "grammar") == (syntax is not None):
                Constraint(kind, VALID[kind], syntax)
            else:
                with pytest.raises(MasktaxError, match="only a grammar has one"):
                    Constraint(kind, VALID[kind], syntax)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"object"', "null", '{"const": NaN}', "[" * 100_000])
def test_a_json_schema_is_a_json_object_or_a_boolean(text: str) -> None:
    with pytest.raises(MasktaxError, match="json_schema"):
        Constraint("json_schema", text)
    assert Constraint("json_schema", "false").json() is False


@pytest.mark.parametrize("text", ["", "yes", "[]", "{}", '["a", 1]', '["a", null]', '["\\ud800"]'])
def test_a_choice_is_a_list_of_strings_that_have_utf8(text: str) -> None:
    with pytest.raises(MasktaxError, match="choice"):
        Constraint("choice", text)


def test_a_json_object_has_no_text() -> None:
    with pytest.raises(MasktaxError, match="no text"):
        Constraint("json_object", "{}")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "json_object"])
def test_text_without_utf8_is_refused(kind: str) -> None:
    with pytest.raises(MasktaxError, match="lone surrogate"):
        make(kind, "\ud800")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triggers": []}, '"triggers"'),
        ({"triggers": [""]}, '"triggers"'),
        ({"triggers": "<call:"}, '"triggers"'),
        ({"structures": []}, '"structures"'),
        ({"structures": [{"begin": "<call:add>", "end": "</call>"}]}, '/structures/0 .* needs "begin", "schema"'),
        ({"structures": [*TAG["structures"], {"begin": "<other>", "schema": {}, "end": ""}]}, "/structures/1 .*never"),
        ({"structures": [{"begin": "<call:", "schema": "object", "end": ""}]}, '"schema" must be'),
        ({"structures": [{"begin": 1, "schema": {}, "end": ""}]}, '"begin" and "end" must be'),
    ],
)
def test_a_malformed_structural_tag_is_refused_by_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MasktaxError, match=message):
        Constraint("structural_tag", json.dumps(TAG | change))


@pytest.mark.parametrize("missing", ["triggers", "structures"])
def test_a_structural_tag_needs_both_parts(missing: str) -> None:
    with pytest.raises(MasktaxError, match='needs "triggers" and "structures"'):
        Constraint("structural_tag", json.dumps({key: value for key, value in TAG.items() if key != missing}))


constraints = st.one_of(
    st.builds(Constraint, st.just("regex"), st.text(max_size=5)),
    st.builds(Constraint, st.just("grammar"), st.text(max_size=5), st.sampled_from(SYNTAXES)),
    st.builds(Constraint, st.just("json_schema"), st.sampled_from(["true", "{}", "{ }"])),
)


@settings(deadline=None)
@given(constraints, constraints)
def test_fingerprints_are_equal_exactly_for_equal_constraints(one: Constraint, other: Constraint) -> None:
    assert (one.sha256 == other.sha256) == (one == other)


def test_the_fingerprint_is_stable() -> None:
    # sha256sum of "regex", NUL, NUL, "a+b"
    assert Constraint("regex", "a+b").sha256 == "f22b50cd67fdeb41ef576ab2d237a43b2affe0f771d1e03adf396f2afec95ac0"
