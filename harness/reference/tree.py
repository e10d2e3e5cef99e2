"""A JSON Schema as an automaton over bytes: JSON is visibly pushdown, so alternatives are followed side by side.

Only ``{ [`` open and only ``} ]`` close, outside strings. So all readings of a prefix have the same open containers,
and a state is one stack. Each open container is a *frame*: the expressions that its current member may satisfy, each
with what the container is afterwards (``Branch``). Inside, the readings of the member carry a mask of the branches
that they serve. When the member ends, the branches in the masks of the readings that accept are what the container
goes on with. A reading is dropped as soon as it cannot end; so every state is viable.

States and frames are interned, immutable, and compared by identity; what a byte leads to is remembered in the state.
The stack is linked: nothing here recurses over the depth of a document.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal
from weakref import WeakValueDictionary

from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import regular, spelling
from harness.reference.arrays import ArrayAt
from harness.reference.automaton import KeyedAutomaton, Member, Region, TooComplex
from harness.reference.keywords import Schemas
from harness.reference.life import Life
from harness.reference.numbers import Number, NumberSet
from harness.reference.numbers import State as NumberState
from harness.reference.objects import ObjectAt
from harness.reference.spelling import JsonString, Spelled, TwoSpellings, Word
from harness.reference.terms import Expr, Json, canonical
from harness.reference.whitespace import SPACES, Token, Where, Whitespace

# Remembered transitions of one automaton, and readings side by side in one state.
MEMO_BOUND = 300_000
READINGS_BOUND = 4_000

QUOTE, COMMA, COLON = 0x22, 0x2C, 0x3A
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
_NUMBER_STARTS = frozenset(b"-0123456789")
_LITERALS = {0x74: (b"rue", "true"), 0x66: (b"alse", "false"), 0x6E: (b"ull", "null")}

Mode = Literal["value", "string", "number", "literal", "open object", "before key", "key", "after key", "in object",
               "open array", "in array", "end"]  # fmt: skip
# One way to read a member: what it must be, what its container is afterwards, the container's own branches served.
Branch = tuple[Expr, ObjectAt | ArrayAt | None, int]
Items = tuple[tuple[Any, int], ...]


class Frame:
    """An open container whose member is being read (or the whole document). depth: containers open around the member.
    start: where the member's text begins in the record; None: it is not needed. outermost: nothing further out needs
    the record."""

    __slots__ = ("__weakref__", "branches", "depth", "kind", "outermost", "parent", "start")

    def __init__(
        self,
        kind: Literal["document", "object", "array"],
        branches: tuple[Branch, ...],
        parent: Frame | None,
        start: int | None,
        outermost: bool,
    ) -> None:
        self.kind = kind
        self.branches = branches
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.start = start
        self.outermost = outermost


class State:
    """Where a reading stands. mode: the place in JSON's grammar; where, gap: white space read in this place; data: the
    readings; frame: the innermost open frame; record: the text of the outermost member whose value must be known."""

    __slots__ = ("__weakref__", "data", "frame", "gap", "mode", "next", "record", "where")

    def __init__(self, mode: Mode, where: Where, gap: int, data: Any, frame: Frame, record: bytes | None) -> None:
        self.mode = mode
        self.where = where
        self.gap = gap
        self.data = data
        self.frame = frame
        self.record = record
        self.next: dict[int, State | None] = {}

    def __repr__(self) -> str:
        return f"<{self.mode} depth={self.frame.depth}>"


_SPACES = b" \t\n\r"
_AFTER_MEMBER = _SPACES + b",]}"
_AFTER_KEY = _SPACES + b":"
_VALUE = _SPACES + b'"-0123456789tfn{['
# What can be read in each place, whatever the schema.
_BYTES: dict[str, bytes] = {
    "value": _VALUE,
    "open array": _VALUE + b"]",
    "open object": _SPACES + b'"}',
    "before key": _SPACES + b'"',
    "after key": _AFTER_KEY,
    "in object": _SPACES + b",}",
    "in array": _SPACES + b",]",
    "number": b"0123456789.eE+-" + _AFTER_MEMBER,
    "string": bytes(range(256)),
    "key": bytes(range(256)),
    "end": _SPACES,
}
_UNKNOWN: Any = object()
_machines: dict[tuple[str, str, bool], TwoSpellings] = {}


def string_machine(profile: Profile) -> TwoSpellings:
    """The machine that reads every JSON string of a profile's spelling; one for all schemas."""
    key = (profile.escapes, profile.literal_escapes, profile.lone_surrogates)
    if key not in _machines:
        free, literal = (JsonString(regular.ANY, escapes=e, lone_surrogates=key[2]) for e in key[:2])
        _machines[key] = TwoSpellings(free, literal)
    return _machines[key]


class Tree:
    """The automaton of a schema under a profile."""

    def __init__(self, schemas: Schemas, root: Expr) -> None:
        profile = schemas.profile
        self._algebra = schemas.algebra
        self.life = Life(schemas.algebra, profile)
        self._objects, self._arrays = self.life.objects, self.life.arrays
        self._strings = string_machine(profile)
        self._whitespace = Whitespace(profile)
        self._number_options = {"numbers": profile.numbers, "integer_spelling": schemas.integer_spelling}
        self._is_draft4 = schemas.is_draft4
        self._numbers: dict[tuple[NumberSet, ...], Number] = {}
        self._frames: WeakValueDictionary[Any, Frame] = WeakValueDictionary()
        self._states: WeakValueDictionary[Any, State] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._remembered = 0
        document = Frame("document", ((root, None, 1),), None, None, False)
        self._start = self._state("value", "start", 0, None, document, None) if self.life.alive(root) else None

    # --- the protocol ----------------------------------------------------------------------------------------------

    def start(self) -> State | None:
        return self._start

    def step(self, state: State, byte: int) -> State | None:
        after: State | None = state.next.get(byte, _UNKNOWN)
        if after is _UNKNOWN:
            after = self._guarded(state, byte)
            self._remembered += 1
            if self._remembered > MEMO_BOUND:
                self._forget()
            state.next[byte] = after
        return after

    def _guarded(self, state: State, byte: int) -> State | None:
        try:
            return self._read(state, byte)
        except TooComplex as bound:
            raise UnsupportedError(f"too complex: {bound}") from bound

    def accepting(self, state: State) -> bool:
        if state.mode == "number" and state.frame.kind == "document":
            return self._number_mask(state) != 0
        return state.mode == "end"

    def region(self, state: State) -> Region[State] | None:
        """The shared machine that a state is inside of, if it is."""

        def resume(text: bytes) -> State | None:
            at: State | None = state
            for byte in text:
                if at is None:
                    return None
                at = self._guarded(at, byte)
            return at

        def before_value(text: bytes) -> Member | None:
            """After a key that is read in one way, without debts: ``resume`` leads there."""
            raw, parts = state.data
            at: ObjectAt = parts[0][1]
            return self._member("after key", "key", 0, state.frame.depth + 1, (at.shape.every.at(_key(raw + text)),))

        follow = _SPACES if state.frame.kind == "document" else _AFTER_MEMBER
        member = None
        if state.mode == "number":
            machine, number, _ = state.data
            return Region(machine, number, False, resume, open=True, follow=follow)
        if state.mode == "string":
            parts = state.data
            constant = len(parts) == 1 and state.record is None
        elif state.mode == "key":
            parts, constant, follow = state.data[1], False, _AFTER_KEY
            at = parts[0][1]
            if state.record is None and self._objects.is_plain(at) and all(p[1] is at for p in parts):
                member = before_value
        else:
            return None
        shared = self._together([p[0] for p in parts])
        if shared is None:
            return None
        if constant:
            done = self._done(state.frame, parts[0][1], state.record)
            return Region(*shared, True, lambda _: done, follow=follow)
        return Region(*shared, False, resume, follow=follow, member=member)

    def _together(self, readings: list[spelling.State | Word]) -> tuple[KeyedAutomaton, Spelled] | None:
        """One machine and its state that stands for all readings of a string; None where there is none."""
        pending = readings[0].pending
        if any(r.pending != pending for r in readings):
            return None  # parts of one character, known more or less precisely: no state of one machine

        def one(kind: type[spelling.State] | type[Word]) -> spelling.State | None:
            nodes = [r.node for r in readings if isinstance(r, kind)]
            return spelling.State(regular.union(*nodes), pending) if nodes else None

        free, literal = one(spelling.State), one(Word)
        if literal is None:
            assert free is not None
            return self._strings.free, free
        if free is None:
            return self._strings.literal, literal
        return self._strings, spelling.Both(free, literal)

    def member(self, state: State) -> Member | None:
        """A value, or a key's colon and its value: what may follow there hangs on the expressions alone, until the
        container goes on."""
        if state.mode not in ("value", "after key") or state.frame.kind == "document" or state.record is not None:
            return None
        frame = state.frame
        return self._member(state.mode, state.where, state.gap, frame.depth, (expr for expr, _, _ in frame.branches))

    def _member(self, mode: Mode, where: Where, gap: int, depth: int, exprs: Iterable[Expr]) -> Member:
        return Member((mode, where, gap, depth if self._whitespace.is_exact else 0, frozenset(exprs)), depth)

    def depth(self, state: State) -> int:
        return state.frame.depth

    def viable_bytes(self, state: State) -> bytes:
        """Bytes among which are all that can follow, by the place in JSON's grammar."""
        return state.data[0][:1] if state.mode == "literal" else _BYTES[state.mode]

    def hints(self, state: State) -> Iterator[bytes]:
        """Texts that tend to bring the document to its end: required keys, keys that can pay a debt, the smallest
        values, what closes."""
        if state.mode in ("open object", "before key"):
            if state.mode == "open object":
                yield b"}"
            due = {name for at, _ in state.data for name in at.missing | at.bad}
            paying = {name for at, _ in state.data for debt in at.owed for name in debt.wanted.names} - due
            for names in (due, paying):
                for name in sorted(names, key=lambda n: (len(n), n)):
                    yield json.dumps(name, ensure_ascii=False).encode(errors="surrogatepass") + b":"
        elif state.mode in ("value", "open array"):
            yield from (b"]", b"null", b"0", b'""', b"true", b"false", b"[]", b"{}", b"1", b"[", b"{")
        elif state.mode in ("in object", "in array"):
            yield from (b"}", b"]", b",")

    def _forget(self) -> None:
        with self._lock:
            for state in list(self._states.values()):
                state.next = {}
            self._remembered = 0

    # --- interning -------------------------------------------------------------------------------------------------

    def _state(self, mode: Mode, where: Where, gap: int, data: Any, frame: Frame, record: bytes | None) -> State:
        key = (mode, where, gap, data, frame, record)
        found = self._states.get(key)
        if found is None:
            with self._lock:
                found = self._states.get(key)
                if found is None:
                    found = self._states[key] = State(mode, where, gap, data, frame, record)
        return found

    def _frame(self, kind: Literal["object", "array"], branches: tuple[Branch, ...], parent: Frame, start: int | None,
               outermost: bool) -> Frame:  # fmt: skip
        if len(branches) > READINGS_BOUND:
            raise TooComplex(f"more than {READINGS_BOUND} readings of one member")
        key = (kind, branches, parent, start, outermost)
        found = self._frames.get(key)
        if found is None:
            with self._lock:
                found = self._frames.get(key)
                if found is None:
                    found = self._frames[key] = Frame(kind, branches, parent, start, outermost)
        return found

    # --- one byte --------------------------------------------------------------------------------------------------

    def _read(self, state: State, byte: int) -> State | None:
        mode = state.mode
        if mode == "string":
            return self._in_string(state, byte)
        if mode == "number":
            return self._in_number(state, byte)
        if mode == "key":
            return self._in_key(state, byte)
        record = None if state.record is None else state.record + bytes((byte,))
        if mode == "literal":
            rest, mask = state.data
            if byte != rest[0]:
                return None
            if len(rest) == 1:
                return self._done(state.frame, mask, record)
            return self._state("literal", state.where, 0, (rest[1:], mask), state.frame, record)
        if byte in SPACES:
            return self._space(state, byte, record)
        if mode == "value":
            ready = self._whitespace.ready(state.where, state.gap, state.frame.depth, "value")
            return self._begin(state.frame, byte, record) if ready else None
        if mode == "after key":
            ready = byte == COLON and self._whitespace.ready("key", state.gap, state.frame.depth, "colon")
            return self._state("value", "colon", 0, None, state.frame, record) if ready else None
        if mode == "end":
            return None
        return self._in_container(state, byte, record)

    def _space(self, state: State, byte: int, record: bytes | None) -> State | None:
        mode, data, depth = state.mode, state.data, state.frame.depth
        inside = mode in ("open object", "open array", "before key", "in object", "in array")
        tokens: tuple[Token, ...] = ("colon",) if mode == "after key" else ("value",)
        if inside:
            depth += 1
            tokens = self._possible(state) if self._whitespace.is_exact else ()
        gap = self._whitespace.step(state.where, state.gap, depth, byte, tokens)
        if gap is None:
            return None
        if gap == state.gap and record is None:
            return state
        return self._state(mode, state.where, gap, data, state.frame, record)

    def _possible(self, state: State) -> tuple[Token, ...]:
        """Which tokens the readings of a container leave possible next."""
        items: Items = state.data
        if state.mode == "before key":
            return ("value",)
        is_object = "object" in state.mode
        closes = any(self._accepts(at) for at, _ in items)
        goes_on = any(
            self._objects.keys(at) is not regular.EMPTY if is_object else bool(self._arrays.next(at)) for at, _ in items
        )
        opening = state.mode.startswith("open")
        tokens: list[Token] = []
        if goes_on:
            tokens.append("value" if opening else "comma")
        if closes:
            tokens.append("close")
        return tuple(tokens)

    def _accepts(self, at: ObjectAt | ArrayAt) -> bool:
        return self._objects.accepts(at) if isinstance(at, ObjectAt) else self._arrays.accepts(at)

    def _begin(self, frame: Frame, byte: int, record: bytes | None) -> State | None:
        """The first byte of a value."""
        expand = self._algebra.expand
        values = [(expand(expr), 1 << i) for i, (expr, _, _) in enumerate(frame.branches)]
        if byte == QUOTE:
            nodes: dict[regular.Node, int] = {}
            words: dict[regular.Node, int] = {}
            for value, bit in values:
                for found, node in ((nodes, value.strings.rest), (words, value.strings.words)):
                    if node is not regular.EMPTY:
                        found[node] = found.get(node, 0) | bit
            parts: list[tuple[spelling.State | Word, int]] = [
                (spelling.State(spelled, spelling.NOTHING), mask)
                for node, mask in nodes.items()
                if not regular.is_empty(spelled := self.life.spellable(node))
            ]
            parts += [(Word(spelling.State(node, spelling.NOTHING)), mask) for node, mask in words.items()]
            return self._state("string", "start", 0, tuple(parts), frame, record) if parts else None
        if byte in _NUMBER_STARTS:
            sets: dict[NumberSet, int] = {}
            for value, bit in values:
                for numbers in value.numbers:
                    sets[numbers] = sets.get(numbers, 0) | bit
            machine = self._number(tuple(sets))
            start = machine.start()
            after = None if start is None else machine.step(start, byte)
            if after is None:
                return None
            masks = tuple((mask, self._by_spelling(s)) for s, mask in sets.items())
            return self._state("number", "start", 0, (machine, after, masks), frame, record)
        if byte in _LITERALS:
            rest, name = _LITERALS[byte]
            mask = sum(bit for value, bit in values if getattr(value, name))
            return self._state("literal", "start", 0, (rest, mask), frame, record) if mask else None
        items: dict[Any, int] = {}
        if byte == OPEN_OBJECT:
            for value, bit in values:
                for shape in value.objects:
                    opened = self._objects.start(shape)
                    if opened is not None:
                        items[opened] = items.get(opened, 0) | bit
            return self._state("open object", "open", 0, _kept(items), frame, record) if items else None
        if byte == OPEN_ARRAY:
            for value, bit in values:
                for array in value.arrays:
                    begun = self._arrays.start(array)
                    if begun is not None:
                        items[begun] = items.get(begun, 0) | bit
            return self._state("open array", "open", 0, _kept(items), frame, record) if items else None
        return None

    def _done(self, frame: Frame, mask: int, record: bytes | None) -> State | None:
        """A member has ended, read in the ways of ``mask``."""
        if frame.kind == "document":
            return self._state("end", "end", 0, None, frame, None)
        assert frame.parent is not None
        items: dict[Any, int] = {}
        value: Json = None
        if frame.start is not None:
            assert record is not None
            value = _value(record[frame.start :])
            if frame.outermost:
                record = None
        for i, (_, at, serves) in enumerate(frame.branches):
            if mask >> i & 1:
                if isinstance(at, ArrayAt):
                    at = self._arrays.with_value(at, value)
                items[at] = items.get(at, 0) | serves
        mode: Mode = "in object" if frame.kind == "object" else "in array"
        return self._state(mode, "member", 0, _kept(items), frame.parent, record)

    # --- scalars ---------------------------------------------------------------------------------------------------

    def _in_string(self, state: State, byte: int) -> State | None:
        record = None if state.record is None else state.record + bytes((byte,))
        step = self._strings.step
        going, closed = [], 0
        for inside, mask in state.data:
            after = step(inside, byte)
            if after is not None:
                if after.at == "closed":
                    closed |= mask
                else:
                    going.append((after, mask))
        if closed:
            return self._done(state.frame, closed, record)
        if not going:
            return None
        if len(going) > 1:
            merged: dict[Spelled, int] = {}
            for after, mask in going:
                merged[after] = merged.get(after, 0) | mask
            going = list(merged.items())
        return self._state("string", "start", 0, tuple(going), state.frame, record)

    def _number(self, sets: tuple[NumberSet, ...]) -> Number:
        found = self._numbers.get(sets)
        if found is None:
            # draft-04: what is no integer is so by its spelling; the value may be any (see _number_mask)
            read = tuple(replace(s, integer=None) if self._by_spelling(s) else s for s in sets)
            found = self._numbers[sets] = Number(read, **self._number_options)
        return found

    def _in_number(self, state: State, byte: int) -> State | None:
        machine, inside, masks = state.data
        after: NumberState | None = machine.step(inside, byte)
        if after is not None:
            record = None if state.record is None else state.record + bytes((byte,))
            return self._state("number", "start", 0, (machine, after, masks), state.frame, record)
        # A number has no end of its own: what cannot belong to it ends it, and is read by what encloses it.
        if byte not in SPACES and byte not in (COMMA, CLOSE_OBJECT, CLOSE_ARRAY):
            return None
        mask = self._number_mask(state)
        done = self._done(state.frame, mask, state.record) if mask else None
        return None if done is None else self.step(done, byte)

    def _number_mask(self, state: State) -> int:
        machine, inside, masks = state.data
        mask = 0
        for i in machine.accepting_sets(inside):
            serves, spelled = masks[i]
            # digits alone spell an integer; ".0" can always follow them, so such a reading is never at a dead end
            if not spelled or inside.phase in ("frac", "exp"):
                mask |= serves
        return mask

    def _by_spelling(self, numbers: NumberSet) -> bool:
        return self._is_draft4 and numbers.integer is False

    # --- containers ------------------------------------------------------------------------------------------------

    def _in_container(self, state: State, byte: int, record: bytes | None) -> State | None:
        mode, items, frame = state.mode, state.data, state.frame
        depth = frame.depth + 1
        is_object = mode in ("open object", "before key", "in object")
        if byte == (CLOSE_OBJECT if is_object else CLOSE_ARRAY) and mode != "before key":
            if not self._whitespace.ready(state.where, state.gap, depth, "close"):
                return None
            mask = 0
            for at, serves in items:
                if self._accepts(at):
                    mask |= serves
            return self._done(frame, mask, record) if mask else None
        if mode in ("in object", "in array"):
            if byte != COMMA or not self._whitespace.ready("member", state.gap, depth, "comma"):
                return None
            if is_object:
                kept = tuple((at, m) for at, m in items if self._objects.keys(at) is not regular.EMPTY)
                return self._state("before key", "comma", 0, kept, frame, record) if kept else None
            return self._member_of_array(items, frame, "comma", record)
        if not self._whitespace.ready(state.where, state.gap, depth, "value"):
            return None
        if is_object:
            return self._key_begins(items, frame, record) if byte == QUOTE else None
        # Right after "[": the first item's value begins with this byte.
        before = self._member_of_array(items, frame, "open", state.record)
        if before is None:
            return None
        return self._begin(before.frame, byte, None if before.record is None else before.record + bytes((byte,)))

    def _member_of_array(self, items: Items, frame: Frame, where: Where, record: bytes | None) -> State | None:
        """Before an item."""
        merged: dict[tuple[Expr, Any], int] = {}
        records = False
        for at, serves in items:
            for expr, after in self._arrays.next(at):
                merged[(expr, after)] = merged.get((expr, after), 0) | serves
                records = records or self._arrays.records(after)
        if not merged:
            return None
        branches = tuple((expr, after, serves) for (expr, after), serves in merged.items())
        start = (0 if record is None else len(record)) if records else None
        inner = self._frame("array", branches, frame, start, records and record is None)
        return self._state("value", where, 0, None, inner, b"" if records and record is None else record)

    def _key_begins(self, items: Items, frame: Frame, record: bytes | None) -> State | None:
        parts: list[tuple[spelling.State | Word, ObjectAt, int]] = []
        for at, serves in items:
            node, words = self._objects.keys_by_spelling(at)
            if not regular.is_empty(node):
                parts.append((spelling.State(node, spelling.NOTHING), at, serves))
            if words is not regular.EMPTY:
                parts.append((Word(spelling.State(words, spelling.NOTHING)), at, serves))
        return self._state("key", "start", 0, (b"", tuple(parts)), frame, record) if parts else None

    def _in_key(self, state: State, byte: int) -> State | None:
        record = None if state.record is None else state.record + bytes((byte,))
        raw, parts = state.data
        step = self._strings.step
        going: list[tuple[Spelled, ObjectAt, int]] = []
        closed: list[tuple[Spelled, ObjectAt, int]] = []
        for inside, at, serves in parts:
            after = step(inside, byte)
            if after is not None:
                (closed if after.at == "closed" else going).append((after, at, serves))
        if not closed:
            if not going:
                return None
            return self._state("key", "start", 0, (raw + bytes((byte,)), tuple(going)), state.frame, record)
        key = _key(raw + bytes((byte,)))
        merged: dict[tuple[Expr, Any], int] = {}
        for _, at, serves in closed:
            for expr, then in self._objects.after(at, key):
                merged[(expr, then)] = merged.get((expr, then), 0) | serves
        if not merged:
            return None
        branches = tuple((expr, then, serves) for (expr, then), serves in merged.items())
        return self._state(
            "after key", "key", 0, None, self._frame("object", branches, state.frame, None, False), record
        )


def _key(closed: bytes) -> str:
    """A key from its bytes after the opening quote."""
    if 0x5C not in closed:
        return closed[:-1].decode()
    key: str = json.loads(b'"' + closed)
    return key


def _value(text: bytes) -> Json:
    return canonical(json.loads(text, parse_float=_number, parse_int=_number))


def _number(text: str) -> Fraction:
    _, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-0")) > 4 or len(text) > 10_000:
        raise TooComplex("a number of more than 10,000 digits among items that must differ")
    return Fraction(text)


def _kept(items: dict[Any, int]) -> Items:
    """Readings, without those that another one makes superfluous: it owes less and serves as much."""
    if len(items) < 2:
        return tuple(items.items())
    kept = []
    for at, mask in items.items():
        if not any(other is not at and mask | more == more and _owes_less(other, at) for other, more in items.items()):
            kept.append((at, mask))
    return tuple(kept)


def _owes_less(one: Any, other: Any) -> bool:
    """Whether ``one`` can end wherever ``other`` can, for it differs in having met more."""
    if one.shape is not other.shape:
        return False
    if isinstance(one, ObjectAt):
        return bool(one.owed < other.owed and one._replace(owed=other.owed) == other)
    if one._replace(counts=other.counts) != other:
        return False
    return all(
        a == b or (a > b and most is None)
        for a, b, (_, _, most) in zip(one.counts, other.counts, one.shape.counted, strict=True)
    )
