"""Structural tags: free text in which tagged JSON stands. Exact, byte by byte.

The language of ``{"triggers": […], "structures": [{"begin", "schema", "end"}, …]}``:

- A text is free text, then any number of times: a structure and free text again. It ends in free text, which may be
  empty and may end in the middle of a trigger.
- Free text is valid UTF-8. It is read from its own beginning (what stood before, the end of a structure say, does not
  count), and as soon as its last characters are a trigger, it is over: the trigger begins a structure. So no trigger
  occurs in free text.
- A structure is one of those whose ``begin`` starts with that trigger: the rest of ``begin``, a text of its JSON, and
  ``end``. The JSON is any text of the automaton that the caller made for the schema, white space around it included
  where the profile allows that. Where one text can be read in several ways (a ``begin`` that is the beginning of
  another, JSON that may end or go on), all of them are followed.

Which trigger it is must be clear. Where one trigger begins another, the shorter is always complete first, and the
longer one's structures start with it too, so nothing is lost. Where one trigger lies inside another otherwise (``b`` or
``bc`` in ``abc``), two would be complete at once, or the longer one never: refused by name.

A state is a set of readings; none of them is a dead end. Where the schemas of all structures of a trigger allow no JSON
at all, the trigger is never completed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UnsupportedError
from harness.reference.automaton import Automaton, Region
from harness.reference.codepoints import SURROGATES
from harness.reference.spelling import NOTHING, Pending, utf8_lead, utf8_next


@dataclass(frozen=True)
class Structure:
    """One kind of tagged JSON. ``json``: the automaton of the JSON between ``begin`` and ``end``."""

    begin: str
    json: Automaton[Any]
    end: str


@dataclass(frozen=True, slots=True)
class Free:
    """In free text: how much of a trigger was read (a node of the tree of triggers), and of a character."""

    node: int
    pending: Pending


@dataclass(frozen=True, slots=True)
class Begin:
    """In the ``begin`` of a structure, after so many bytes."""

    structure: int
    read: int


@dataclass(frozen=True, slots=True)
class Json:
    """In the JSON of a structure."""

    structure: int
    state: Any


@dataclass(frozen=True, slots=True)
class End:
    """In the ``end`` of a structure, after so many bytes."""

    structure: int
    read: int


Reading = Free | Begin | Json | End
State = frozenset[Reading]

_NEW = Free(0, NOTHING)


class StructuralTag:
    """Free text with structures in it, as an automaton over bytes. UnsupportedError for triggers that are not clear."""

    def __init__(self, triggers: Sequence[str], structures: Sequence[Structure]) -> None:
        _refuse_unclear(triggers)
        self._structures = [(s.begin.encode(), s.json, s.end.encode()) for s in structures]
        self._starts = [s.json.start() for s in structures]
        self._build([t.encode() for t in triggers])
        self._viable: dict[Free, bool] = {}

    def _build(self, triggers: list[bytes]) -> None:
        """The tree of triggers with its links (Aho-Corasick), and what each trigger begins."""
        self._children: list[dict[int, int]] = [{}]
        # For the node of a whole trigger: its structures, in which the trigger was read.
        self._begins: dict[int, State] = {}
        for trigger in triggers:
            at = 0
            for byte in trigger:
                if byte not in self._children[at]:
                    self._children[at][byte] = len(self._children)
                    self._children.append({})
                at = self._children[at][byte]
            found: set[Reading] = set()
            for i, (begin, _, _) in enumerate(self._structures):
                if begin.startswith(trigger):
                    found |= self._begun(i, len(trigger))
            self._begins[at] = frozenset(found)
        self._back = [0] * len(self._children)
        layer = list(self._children[0].values())
        while layer:
            following = []
            for node in layer:
                for byte, child in self._children[node].items():
                    self._back[child] = self._node_after(self._back[node], byte)
                    following.append(child)
            layer = following

    def _node_after(self, node: int, byte: int) -> int:
        while byte not in self._children[node]:
            if node == 0:
                return 0
            node = self._back[node]
        return self._children[node][byte]

    # The protocol

    def start(self) -> State | None:
        return frozenset((_NEW,))

    def step(self, state: State, byte: int) -> State | None:
        found: set[Reading] = set()
        for reading in state:
            found |= self._read(reading, byte)
        return frozenset(found) or None

    def accepting(self, state: State) -> bool:
        return any(isinstance(r, Free) and not r.pending for r in state)

    def region(self, state: State) -> Region[State] | None:
        """The scalar inside a structure's JSON, where that is the only way to read what was read."""
        if len(state) != 1:
            return None
        (reading,) = state
        if not isinstance(reading, Json):
            return None
        json = self._structures[reading.structure][1]
        ask = getattr(json, "region", None)
        inner: Region[Any] | None = None if ask is None else ask(reading.state)
        # Where the machine is all there is, JSON may end and ``end`` begin at any accepting state.
        if inner is None or inner.resume is None or json.accepting(reading.state):
            return None
        resume = inner.resume

        def after(*closed: Any) -> State | None:
            state = resume(*closed)
            return None if state is None else frozenset(self._in_json(reading.structure, state))

        return dataclasses.replace(inner, resume=after, member=None)

    # Readings

    def _read(self, reading: Reading, byte: int) -> State | set[Reading]:
        if isinstance(reading, Free):
            return self._free(reading, byte)
        i = reading.structure
        begin, json, end = self._structures[i]
        if isinstance(reading, Begin):
            return self._begun(i, reading.read + 1) if begin[reading.read] == byte else set()
        if isinstance(reading, Json):
            after = json.step(reading.state, byte)
            return set() if after is None else self._in_json(i, after)
        return self._ended(i, reading.read + 1) if end[reading.read] == byte else set()

    def _free(self, reading: Free, byte: int) -> State | set[Reading]:
        pending: Pending | int | None
        if reading.pending:
            pending = utf8_next(reading.pending, byte)  # type: ignore[arg-type]
        elif byte < 0x80:
            pending = byte
        else:
            pending = utf8_lead(byte)
        if pending is None or _is_surrogate(pending):
            return set()
        node = self._node_after(reading.node, byte)
        if node in self._begins:
            return self._begins[node]
        after = Free(node, NOTHING if isinstance(pending, int) else pending)
        return {after} if self._is_viable(after) else set()

    def _is_viable(self, reading: Free) -> bool:
        """Whether a character that was started can end: all that fit might complete triggers that begin nothing."""
        if not reading.pending:
            return True
        if reading not in self._viable:
            self._viable[reading] = any(self._free(reading, byte) for byte in range(0x80, 0xC0))
        return self._viable[reading]

    def _begun(self, i: int, read: int) -> set[Reading]:
        """In ``begin`` after so many bytes, or past it; nothing where the schema allows no JSON."""
        start = self._starts[i]
        if start is None:
            return set()
        return {Begin(i, read)} if read < len(self._structures[i][0]) else self._in_json(i, start)

    def _in_json(self, i: int, state: Any) -> set[Reading]:
        found: set[Reading] = {Json(i, state)}
        if self._structures[i][1].accepting(state):
            found |= self._ended(i, 0)
        return found

    def _ended(self, i: int, read: int) -> set[Reading]:
        return {End(i, read)} if read < len(self._structures[i][2]) else {_NEW}


def _is_surrogate(pending: Pending | int) -> bool:
    """Whether a character, or all that one begun can become, is a surrogate, which UTF-8 does not spell."""
    low, high = (pending, pending) if isinstance(pending, int) else pending[1:3]  # type: ignore[misc]
    return bool(SURROGATES[0] <= low and high <= SURROGATES[1])


def _refuse_unclear(triggers: Sequence[str]) -> None:
    first = [t for t in triggers if not any(t != other and t.startswith(other) for other in triggers)]
    for i, one in enumerate(triggers):
        for other in first:
            if one in first and one in other[1:]:
                raise UnsupportedError(
                    f"structural tag: trigger {one!r} lies inside trigger {other!r}, so which of them begins a "
                    "structure is not clear",
                    keyword="triggers",
                    pointer=f"/triggers/{i}",
                )
