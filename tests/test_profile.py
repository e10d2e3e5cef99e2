"""A profile is a full and checked statement of policy, with the standards as its default."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import MasktaxError
from harness.profile import Profile, differences

HINTS = get_type_hints(Profile)
CHOICES = {f.name: get_args(HINTS[f.name]) for f in fields(Profile) if get_args(HINTS[f.name])}
FLAGS = [f.name for f in fields(Profile) if HINTS[f.name] is bool]


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    values: dict[str, Any] = {name: draw(st.sampled_from(choices)) for name, choices in CHOICES.items()}
    values |= {name: draw(st.booleans()) for name in FLAGS}
    if values["whitespace"] == "bounded":
        values["whitespace_limit"] = draw(st.integers(1, 100))
    if values["whitespace"] == "indented":
        values["indent"] = draw(st.integers(1, 8))
    return Profile(**values)


@settings(deadline=None)
@given(profiles())
def test_a_profile_survives_json(profile: Profile) -> None:
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


@settings(deadline=None)
@given(profiles(), profiles())
def test_differences_are_exactly_what_turns_one_profile_into_the_other(one: Profile, other: Profile) -> None:
    found = differences(one, other)
    assert replace(one, **{name: pair[1] for name, pair in found.items()}) == other
    assert all(a != b for a, b in found.values())
    assert bool(found) == (one != other)


def test_every_field_is_a_choice_a_flag_or_a_length() -> None:
    assert {f.name for f in fields(Profile)} == {*CHOICES, *FLAGS, "whitespace_limit", "indent"}


def test_the_default_is_the_standards_own() -> None:
    default = Profile()
    assert (default.whitespace, default.key_order, default.numbers, default.escapes) == ("any", "any", "rfc8259", "any")
    assert default.additional_properties
    assert default.additional_items
    assert default.format == "annotation"


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_an_unknown_choice_is_refused_by_name_and_the_known_ones_are_listed(name: str) -> None:
    with pytest.raises(MasktaxError, match=f"{name} = 'nonsense' is none of {CHOICES[name][0]}"):
        Profile(**{name: "nonsense"})


@pytest.mark.parametrize("name", [*FLAGS, "whitespace_limit", "indent"])
@pytest.mark.parametrize("value", ["yes", None, 1.5])
def test_a_value_of_the_wrong_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(MasktaxError, match=f"{name} = .* must be of type"):
        Profile(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"whitespace": "bounded"},
        {"whitespace_limit": 3},
        {"whitespace": "indented"},
        {"indent": 2},
        {"whitespace_limit": -1},
        {"indent": -1},
    ],
)
def test_a_limit_goes_with_its_own_whitespace_only(values: dict[str, Any]) -> None:
    with pytest.raises(MasktaxError, match=r"whitespace_limit|indent"):
        Profile(**values)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(MasktaxError, match="unknown field 'white_space'; known: whitespace, "):
        Profile.from_json({"white_space": "any"})
