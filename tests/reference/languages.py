"""What tests of whole languages share: a constraint's automaton, its documents written out, its prefixes finished."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from harness.constraint import Constraint
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference.automaton import Automaton
from harness.reference.compile import compile
from harness.reference.completion import shortest_completion, viable_bytes

# As plain as JSON can be written: no white space, each key once.
COMPACT = Profile(
    whitespace="compact",
    outer_whitespace=False,
    key_order="declared",
    duplicate_keys="forbidden",
    integer_spelling="digits",
)
MINIMAL = replace(COMPACT, escapes="minimal")


def schema(value: Any, profile: Profile = COMPACT) -> Automaton[Any]:
    return compile(Constraint("json_schema", json.dumps(value)), profile)


def accepts(automaton: Automaton[Any], text: bytes | str) -> bool:
    return automata.accepts(automaton, text.encode() if isinstance(text, str) else text)


def verdict(automaton: Automaton[Any], text: str) -> tuple[bool, bool]:
    """Whether the text is viable, and whether it is a whole document."""
    state = automata.run(automaton, text.encode())
    return state is not None, state is not None and automaton.accepting(state)


def language(automaton: Automaton[Any], limit: int = 20_000) -> set[bytes]:
    """Every document of a finite language of at most ``limit`` prefixes."""
    start = automaton.start()
    out: set[bytes] = set()
    todo: list[tuple[bytes, Any]] = [] if start is None else [(b"", start)]
    while todo:
        prefix, state = todo.pop()
        assert len(out) + len(todo) < limit, "not finite, or too large for this test"
        if automaton.accepting(state):
            out.add(prefix)
        for byte in viable_bytes(automaton, state):
            after = automaton.step(state, byte)
            if after is not None:
                todo.append((prefix + bytes((byte,)), after))
    return out


def finished(automaton: Automaton[Any], text: str) -> str:
    """A viable prefix, and a shortest completion of it."""
    state = automata.run(automaton, text.encode())
    assert state is not None
    return (text.encode() + shortest_completion(automaton, state)).decode()


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=length))
