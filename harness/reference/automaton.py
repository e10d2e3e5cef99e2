"""The protocol of every automaton in the engine: a language of byte strings, read byte by byte.

A state is an immutable, hashable value. ``step`` returns None at the first byte after which no completion exists, so
every state that is ever returned is viable: some continuation of it is in the language.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

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


class Member(NamedTuple):
    """Before a part of the text, such as a member of an object, that is read alike wherever it stands: states whose
    members are of one ``kind`` allow the same until the member has ended. It has ended in states of less ``depth``; a
    number that is the member itself has this depth, and ends by a byte that belongs to what is around it."""

    kind: Hashable
    depth: int


@dataclass(frozen=True)
class Region(Generic[State]):
    """Where a state lies inside a scalar whose own machine decides, as long as the scalar lasts.

    machine: a byte automaton; it steps states of any machine whose ``key`` is equal. state: where it stands. resume:
    the whole automaton's state after a text, read from here, that the machine accepts; None where that is not viable.
    constant: whether that is the same for every such text, which need not be told then. ``resume`` None: the machine is
    all there is, and an accepting state need not be the end.

    open: False: the scalar ends itself, nothing follows the machine's accepting states (a JSON string's closing quote).
    True: it ends before a byte that the machine cannot take (a number); ``resume`` gives the state still inside it.

    follow: bytes among which are all that can come right after the scalar; with them comes the promise that it may end
    wherever the machine accepts. None: nothing is promised. Needed where ``open``.

    member: the member before which the state after a text stands, told without making that state; it may say None. It
    comes with the promise of ``follow``. Only of an automaton that tells members itself (``WithMembers``).

    What it promises: as long as the scalar has not ended, a text is viable for the whole automaton exactly if it is for
    the machine.
    """

    machine: KeyedAutomaton
    state: Hashable
    constant: bool
    resume: Callable[[bytes], State | None] | None
    open: bool = False
    follow: bytes | None = None
    member: Callable[[bytes], Member | None] | None = None


class KeyedAutomaton(Automaton[Any], Protocol):
    @property
    def key(self) -> Hashable:
        """Equal for machines that step every state alike."""
        ...


@runtime_checkable
class WithRegions(Protocol):
    """What an automaton may offer so that masks are made faster; never changes what a mask is."""

    def region(self, state: Any) -> Region[Any] | None:
        """The scalar that the state lies in, if any."""
        ...


@runtime_checkable
class WithMembers(Protocol):
    """The same, of members."""

    def member(self, state: Any) -> Member | None:
        """The member that is about to begin in a state, if any."""
        ...

    def depth(self, state: Any) -> int:
        """How deep the innermost member around the place lies."""
        ...


@runtime_checkable
class WithViableBytes(Protocol):
    def viable_bytes(self, state: Any) -> Iterable[int]:
        """Bytes among which are all that ``step`` does not refuse, each once."""
        ...


@runtime_checkable
class WithHints(Protocol):
    def hints(self, state: Any) -> Iterable[bytes]:
        """Texts worth trying to bring a document to its end, the likeliest first; they need not be viable."""
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
