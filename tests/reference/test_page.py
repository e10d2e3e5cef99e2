"""docs/REFERENCE.md: what it says may follow a prefix is what the engine says; every file of the engine is on it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import harness.reference
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference import compile as compile_

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "REFERENCE.md").read_text(encoding="utf-8")


def test_the_bytes_that_the_page_says_may_follow_are_those_that_do() -> None:
    schema = re.search(r"```json\n(.*?)```", PAGE, re.S)
    rows = re.findall(r"^\| `(\{[^`]*)` \| `([^`]*)` \|", PAGE, re.M)
    assert schema and len(rows) == 9
    profile = Profile(whitespace="compact", outer_whitespace=False, duplicate_keys="forbidden")
    tree = compile_.schema(json.loads(schema[1]), profile)
    for prefix, following in rows:
        state = automata.run(tree, prefix.encode())
        assert state is not None
        viable = bytes(b for b in range(256) if tree.step(state, b) is not None)
        assert viable == bytes(sorted(following.encode())), prefix


def test_the_page_names_every_file_of_the_engine_and_no_other() -> None:
    files = {p.stem for p in Path(harness.reference.__file__).parent.glob("*.py")} - {"__init__"}
    table = PAGE.split("## The files, from the bottom up")[1]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == files
