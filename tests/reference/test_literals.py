"""Strings that a schema writes out are spelled in one way where the profile says so, and others in any."""

from __future__ import annotations

from typing import Any

import pytest

from harness.profile import Profile
from harness.reference import automaton as automata

from .schema_cases import automaton

LITERAL = Profile(whitespace="compact", duplicate_keys="forbidden", literal_escapes="minimal")
NAMES = {"properties": {"a/": {}, "b": {}}}
CLOSED = {**NAMES, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"enum": ["a/", "b\n"]}, ['"a/"', r'"b\n"'], [r'"a\/"', r'"\u0061/"', r'"b\u000a"', '"a"']),
        ({"const": "é"}, ['"é"'], [r'"\u00e9"']),
        ({"enum": ["a"], "type": "string", "minLength": 1}, ['"a"'], [r'"\u0061"']),
        ({"enum": ["a", "b"], "pattern": "^a"}, ['"a"'], [r'"\u0061"', '"b"']),
        # A pattern that happens to have one text is no word written out.
        ({"pattern": "^a$", "type": "string"}, ['"a"', r'"\u0061"'], ['"b"']),
        ({"anyOf": [{"const": "a"}, {"type": "string"}]}, ['"a"', r'"\u0061"'], []),
        ({"anyOf": [{"enum": ["ab", "x"]}, {"pattern": "^a.$", "type": "string"}]},
         ['"ab"', r'"\u0061b"', r'"a\u0062"', '"x"'], [r'"\u0078"', '"a"']),
        # What is negated is the value, however it is spelled.
        ({"not": {"const": "a"}}, ['"b"', r'"\u0062"'], ['"a"', r'"\u0061"']),
        ({"not": {"enum": ["a"]}, "enum": ["a", "b"]}, ['"b"'], ['"a"', r'"\u0062"']),
        (CLOSED, ["{}", '{"a/":1}', '{"b":1,"a/":2}'], [r'{"a\/":1}', r'{"\u0062":1}', '{"c":1}']),
        (NAMES, ['{"a/":1}', '{"c":1}', r'{"\u0063":1}', r'{"a\u002f/":1}'], [r'{"a\u002f":1}', r'{"\u0062":1}']),
        ({**NAMES, "required": ["b"]}, ['{"b":1}', r'{"\u0063":1,"b":1}'], [r'{"\u0062":1}']),
        ({"required": ["b"]}, ['{"b":1}', r'{"\u0062":1}'], ["{}"]),
        ({"patternProperties": {"^b$": {}}, "additionalProperties": False}, ['{"b":1}', r'{"\u0062":1}'], []),
        ({"propertyNames": {"enum": ["b"]}}, ['{"b":1}'], [r'{"\u0062":1}', '{"c":1}']),
        ({"const": {"b": "c"}}, ['{"b":"c"}'], [r'{"\u0062":"c"}', r'{"b":"\u0063"}']),
        # Two readings of a key: named in one, any other in the other.
        ({"anyOf": [{**NAMES, "required": ["a/"]}, {"type": "object"}]}, [r'{"\u0061\/":1}', '{"a/":1}'], []),
        ({"allOf": [NAMES, {"type": "object"}]}, ['{"b":1}'], [r'{"\u0062":1}']),
    ],
)  # fmt: skip
def test_words_written_out_have_one_spelling(schema: Any, accepted: list[str], refused: list[str]) -> None:
    tree = automaton(schema, LITERAL)
    for text in accepted:
        assert automata.accepts(tree, text.encode()), text
    for text in refused:
        assert not automata.accepts(tree, text.encode()), text


def test_without_a_rule_of_their_own_they_are_spelled_like_all_strings() -> None:
    tree = automaton({"enum": ["a"]}, Profile(whitespace="compact"))
    assert automata.accepts(tree, rb'"\u0061"')
    minimal = automaton({"pattern": "^a$", "type": "string"}, Profile(whitespace="compact", escapes="minimal"))
    assert not automata.accepts(minimal, rb'"\u0061"')


def test_a_word_without_a_minimal_spelling_is_spelled_like_others() -> None:
    profile = Profile(whitespace="compact", literal_escapes="minimal", lone_surrogates=True)
    tree = automaton({"enum": ["\ud800", "a"]}, profile)
    assert automata.accepts(tree, rb'"\ud800"')
    assert not automata.accepts(tree, rb'"\u0061"')
    closed = automaton({"properties": {"\ud800": {}}, "additionalProperties": False, "required": ["\ud800"]}, profile)
    assert automata.accepts(closed, rb'{"\ud800":1}')
