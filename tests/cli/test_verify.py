"""``masktax verify``: one wrong bit is status 1, with cell, step, token and direction; nothing is timed or kept."""

from __future__ import annotations

import json

import pytest

from harness.vocabulary import synthetic
from tests.cli.conftest import World


def _token(text: bytes) -> int:
    return synthetic().tokens.index(text)


def test_right_masks_and_expected_outcomes_exit_0(world: World) -> None:
    expect = '[[expect]]\nbackend = "refuses"\noutcome = "unsupported"\nreason = "r"'
    said = world.call("verify", world.scenario("Good", "Refuses", more=expect))
    assert said.status == 0
    assert said.out == "2 cells, 4 stages: as expected (ok 2, unsupported 2)\n"
    assert not list(world.results.iterdir())


def test_one_flipped_bit_of_the_trace_exits_1_and_is_named(world: World) -> None:
    said = world.call("verify", world.scenario("Good", f"Flips({_token(b'no')})"))
    assert said.status == 1
    (line,) = [li for li in said.out.splitlines() if li.startswith("unexpected")]
    assert "small/flips/synthetic/choice/answer/default/p0 [compile, accept] is wrong, expected ok" in line
    assert "step 0 of valid/" in line and f"token {_token(b'no')}" in line and "too strict" in line


@pytest.mark.parametrize(
    ("token", "direction"),
    [
        pytest.param(_token(b"z"), "too loose", id="ordinary"),
        pytest.param(synthetic().eos_ids[0], "too loose", id="end-of-sequence"),
        pytest.param(min(synthetic().special_ids - set(synthetic().eos_ids)), "too loose", id="special"),
        pytest.param(_token(b"n"), "too strict", id="another-token-of-the-text"),
    ],
)
def test_any_other_flipped_bit_exits_1_and_is_named(world: World, token: int, direction: str) -> None:
    said = world.call("verify", world.scenario(f"Flips({token})"), "--json")
    (surprise,) = json.loads(said.out)["unexpected"]
    assert said.status == 1
    assert surprise["cell"] == "small/flips/synthetic/choice/answer/default/p0"
    difference = surprise["difference"]
    assert (difference["step"], difference["token"], difference["direction"]) == (0, token, direction)


def test_json_holds_the_first_difference(world: World) -> None:
    said = world.call("verify", world.scenario(f"Flips({_token(b'no')})"), "--json")
    (surprise,) = json.loads(said.out)["unexpected"]
    assert said.status == 1
    assert surprise["difference"]["step"] == 0
    assert surprise["difference"]["token"] == _token(b"no")
    assert surprise["difference"]["direction"] == "too strict"


def test_an_outcome_better_than_expected_is_a_surprise_too(world: World) -> None:
    expect = '[[expect]]\nbackend = "good"\nstages = "accept"\noutcome = "wrong"\nreason = "known fault"'
    said = world.call("verify", world.scenario("Good", more=expect))
    assert said.status == 1
    assert "[accept] is ok, expected wrong (known fault)" in said.out
