"""The protocol of every automaton in the engine: a language of byte strings, read byte by byte.

A state is an immutable, hashable value. ``step`` returns None at the first byte after which no completion exists, so
every state that is ever returned is viable: some continuation of it is in the language.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Automaton(Protocol[State]):
    def start(self) -> State | None:
        """The state before any byte; None where the language is empty."""
        ...

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte (0…255); None where no completion exists."""
        ...

    def accepting(self, state: State) -> bool:
        """Whether the bytes so far are in the language."""
        ...


class TooComplex(Exception):  # noqa: N818 - a bound that was reached, not a fault
    """A declared bound on states was reached; the text says which and where."""


def run(automaton: Automaton[State], text: bytes) -> State | None:
    """The state after ``text``, or None."""
    state = automaton.start()
    for byte in text:
        if state is None:
            return None
        state = automaton.step(state, byte)
    return state


def accepts(automaton: Automaton[State], text: bytes) -> bool:
    """Whether ``text`` is in the language."""
    state = run(automaton, text)
    return state is not None and automaton.accepting(state)
