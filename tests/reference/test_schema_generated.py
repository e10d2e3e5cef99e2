"""Generated schemas and documents, judged by jsonschema-rs: verdicts agree, walks never meet a dead end, and what they
end in validates."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference.tree import Tree

from .schema_cases import DOCUMENTS, FORBIDDEN, automaton, dumps, judge, random_walk, read, schemas

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=1_500)
PROFILES = {
    "any white space": FORBIDDEN,
    "compact": Profile(duplicate_keys="forbidden", whitespace="compact"),
    "spaced": Profile(duplicate_keys="forbidden", whitespace="spaced"),
    "indented": Profile(duplicate_keys="forbidden", whitespace="indented", indent=1),
    "last wins": Profile(duplicate_keys="last_wins", whitespace="compact"),
    "declared": Profile(duplicate_keys="forbidden", whitespace="compact", key_order="declared"),
    "sorted": Profile(duplicate_keys="forbidden", whitespace="compact", key_order="sorted"),
    "words": Profile(duplicate_keys="forbidden", whitespace="compact", literal_escapes="minimal"),
    "plain": Profile(duplicate_keys="forbidden", numbers="plain", integer_spelling="digits", escapes="minimal"),
}


# The judge answers multipleOf in floating point where a number has more digits than a double.
LONG_NUMBER = re.compile(rb"[0-9][0-9.]{14}")


def compiled(schema: Any, profile: Profile) -> Tree:
    try:
        return automaton(schema, profile)
    except UnsupportedError:
        assume(False)
        raise


def check(schema: Any, documents: list[Any], seed: int, profile: Profile) -> None:
    tree = compiled(schema, profile)
    validator = judge(schema)
    options: dict[str, Any] = {"compact": {"separators": (",", ":")}, "indented": {"indent": 1}}.get(
        profile.whitespace, {}
    )
    options |= {"ensure_ascii": False}
    try:
        for document in documents if profile.key_order == "any" and profile.numbers != "plain" else ():
            text = dumps(document, **options)
            assert automata.accepts(tree, text.encode()) == validator.is_valid(read(text)), text
        for i in range(3):
            text_ = random_walk(tree, seed + i)
            if text_ is not None and not LONG_NUMBER.search(text_):
                assert validator.is_valid(read(text_)), text_
    except UnsupportedError:
        assume(False)


@pytest.mark.parametrize("name", ["any white space", "last wins", "words"])
@QUICK
@given(schemas(), st.lists(DOCUMENTS, min_size=5, max_size=5), st.integers(0, 1 << 30))
def test_verdicts_and_walks_agree_with_the_judge(name: str, schema: Any, documents: list[Any], seed: int) -> None:
    check(schema, documents, seed, PROFILES[name])


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROFILES)
@LONG
@given(schemas(), st.lists(DOCUMENTS, min_size=5, max_size=5), st.integers(0, 1 << 30))
def test_verdicts_and_walks_agree_under_every_profile(name: str, schema: Any, documents: list[Any], seed: int) -> None:
    check(schema, documents, seed, PROFILES[name])
