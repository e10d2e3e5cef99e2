"""How decoded text is spelled in bytes: UTF-8, and JSON strings. Regular languages as automata over bytes.

A regular language (``regular.Node``) speaks of code points. Here a state is the language of what may still follow
together with the part of a character's spelling that was already read (``pending``), so that a character split over
tokens is tracked byte by byte, and a state is kept only if some character that fits the part read can follow.

Exactness. UTF-8 is RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. JSON strings are RFC 8259: no
raw control characters, every character by any of its escapes where the policy says so; a surrogate pair of ``\\u``
escapes is one character; a lone surrogate is a character only where the policy allows it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from harness.reference import codepoints, regular
from harness.reference.codepoints import Ranges
from harness.reference.regular import Node

QUOTE, BACKSLASH = 0x22, 0x5C
# RFC 8259, section 7: two-character escapes.
SHORT_ESCAPES = {ord('"'): 0x22, ord("\\"): 0x5C, ord("/"): 0x2F, ord("b"): 8, ord("f"): 12, ord("n"): 10,
                 ord("r"): 13, ord("t"): 9}  # fmt: skip
_HEX = {ord(c): int(c, 16) for c in "0123456789abcdefABCDEF"}
HIGH, LOW = (0xD800, 0xDBFF), (0xDC00, 0xDFFF)

# What was read of the next character. (): nothing. ("utf8", low, high, left): bytes of UTF-8, the character is in
# low…high, ``left`` bytes are missing. ("tail", left): the same where every character that it can still be may come
# and leads to one and the same language, which is the state's node already. The rest occurs in JSON strings only:
# ("escape", first) a backslash; ("hex", first, value, digits) ``\\u`` and some digits; ("high", first) a whole high
# surrogate. ``first`` is a high surrogate that stands before, or −1.
Pending = tuple[()] | tuple[str, int] | tuple[str, int, int, int]
NOTHING: Pending = ()
# Ranges of characters with one language after each, up to which a language is told by them alone.
FEW_PIECES = 4


def utf8_lead(byte: int) -> Pending | None:
    """What a first byte of UTF-8 above 0x7F tells of its character."""
    if 0xC2 <= byte <= 0xDF:
        return ("utf8", (byte & 0x1F) << 6, ((byte & 0x1F) << 6) | 0x3F, 1)
    if 0xE0 <= byte <= 0xEF:
        low = (byte & 0x0F) << 12
        return ("utf8", max(low, 0x800), low | 0xFFF, 2)
    if 0xF0 <= byte <= 0xF4:
        low = (byte & 0x07) << 18
        return ("utf8", max(low, 0x10000), min(low | 0x3FFFF, codepoints.MAX), 3)
    return None


def utf8_next(pending: tuple[str, int, int, int], byte: int) -> Pending | int | None:
    """One more byte: what is known now, or the character, or None."""
    if byte & 0xC0 != 0x80:
        return None
    _, low, high, left = pending
    # low and high agree above the bits that are still missing; this byte settles the uppermost six of those.
    shift = 6 * (left - 1)
    block = (low >> (shift + 6) << (shift + 6)) | (byte & 0x3F) << shift
    low, high = max(low, block), min(high, block + (1 << shift) - 1)
    if low > high:
        return None
    return low if left == 1 else ("utf8", low, high, left - 1)


def started(node: Node, pending: tuple[str, int, int, int]) -> State | None:
    """The state after some bytes of a character of UTF-8; None where no character that they begin can come."""
    _, low, high, left = pending
    starts, targets = regular.moves(node)
    at = bisect_right(starts, low)
    end = bisect_right(starts, high)
    if at == end and high - low + 1 == 1 << 6 * left:
        # One language after each of them: then it does not matter which it is, and states stay few.
        return None if regular.is_empty(targets[at - 1]) else State(targets[at - 1], ("tail", left))
    if end - at > FEW_PIECES:
        return State(node, pending) if codepoints.meets(regular.live(node), low, high) else None
    # What the language is elsewhere does not matter any more: it is told by these characters alone.
    pieces = []
    for i in range(at - 1, end):
        if not regular.is_empty(targets[i]):
            first, last = max(low, starts[i]), min(high, starts[i + 1] - 1 if i + 1 < len(starts) else high)
            pieces.append(regular.concat(regular.chars(((first, last),)), targets[i]))
    return State(regular.union(*pieces), pending) if pieces else None


def _tail(state: State, byte: int) -> State | None:
    """One more byte of a character that only has to end."""
    left: int = state.pending[1]  # type: ignore[misc]
    if byte & 0xC0 != 0x80:
        return None
    return State(state.node, NOTHING if left == 1 else ("tail", left - 1))


class State(NamedTuple):
    """``node``: what may still follow, decoded. ``pending``: what was read of the next character. ``at``: ``open``
    before a JSON string's opening quote, ``body``, ``closed`` after the closing one."""

    node: Node
    pending: Pending
    at: str = "body"


class Utf8:
    """A regular language as UTF-8 bytes."""

    def __init__(self, node: Node) -> None:
        self._node = regular.intersection(node, regular.star(regular.chars(codepoints.SCALARS)))

    @property
    def key(self) -> tuple[str]:
        """Equal for machines that step every state alike."""
        return ("utf8",)

    def start(self) -> State | None:
        return None if regular.is_empty(self._node) else State(self._node, NOTHING)

    def step(self, state: State, byte: int) -> State | None:
        if not state.pending:
            if byte < 0x80:
                return _derived(state.node, byte)
            pending: Pending | int | None = utf8_lead(byte)
        elif state.pending[0] == "tail":
            return _tail(state, byte)
        else:
            pending = utf8_next(state.pending, byte)  # type: ignore[arg-type]
        if pending is None:
            return None
        if isinstance(pending, int):
            return _derived(state.node, pending)
        return started(state.node, pending)  # type: ignore[arg-type]

    def accepting(self, state: State) -> bool:
        return not state.pending and state.node.nullable


def _derived(node: Node, code_point: int) -> State | None:
    after = regular.derive(node, code_point)
    return None if regular.is_empty(after) else State(after, NOTHING)


class JsonString:
    """A regular language of decoded strings as JSON strings, quotes included.

    escapes: ``any`` spelling, or ``minimal`` (escapes only where RFC 8259 demands one, the two-character form where
    there is one). lone_surrogates: whether ``\\ud800`` without its partner is a character.
    """

    def __init__(self, node: Node, *, escapes: str = "any", lone_surrogates: bool = False) -> None:
        if escapes == "minimal" or not lone_surrogates:
            # Raw UTF-8 cannot spell a surrogate, and a minimal spelling escapes none.
            node = regular.intersection(node, regular.star(regular.chars(codepoints.SCALARS)))
            lone_surrogates = False
        self._node = node
        self._minimal = escapes == "minimal"
        self.lone = lone_surrogates

    @property
    def key(self) -> tuple[str, bool, bool]:
        """Equal for machines that step every state alike."""
        return ("json string", self._minimal, self.lone)

    def start(self) -> State | None:
        return None if regular.is_empty(self._node) else State(self._node, NOTHING, "open")

    def accepting(self, state: State) -> bool:
        return state.at == "closed"

    def step(self, state: State, byte: int) -> State | None:
        if state.at == "open":
            return State(state.node, NOTHING) if byte == QUOTE else None
        if state.at == "closed":
            return None
        after = self._read(state, byte)
        return after if after is not None and (after.at == "closed" or self._viable(after)) else None

    def _read(self, state: State, byte: int) -> State | None:
        """The state after a byte, not yet asked whether anything can follow."""
        node, pending = state.node, state.pending
        kind = pending[0] if pending else ""
        if kind == "tail":
            return _tail(state, byte)
        if kind == "utf8":
            after = utf8_next(pending, byte)  # type: ignore[arg-type]
            return self._resolved(node, after)
        if kind == "escape":
            return self._after_backslash(node, pending[1], byte)  # type: ignore[misc]
        if kind == "hex":
            return self._after_digit(node, pending, byte)  # type: ignore[arg-type]
        first: int = pending[1] if kind == "high" else -1  # type: ignore[misc]
        if byte == BACKSLASH:
            return State(node, ("escape", first))
        if first >= 0:
            node = self._lone_surrogate(node, first)
            if node is regular.EMPTY:
                return None
        if byte == QUOTE:
            return State(regular.EPSILON, NOTHING, "closed") if node.nullable else None
        if byte < 0x20:
            return None
        return self._resolved(node, byte if byte < 0x80 else utf8_lead(byte))

    def _after_backslash(self, node: Node, first: int, byte: int) -> State | None:
        if byte == ord("u"):
            return State(node, ("hex", first, 0, 0))
        code_point = SHORT_ESCAPES.get(byte)
        if code_point is None or (self._minimal and code_point == 0x2F):
            return None
        if first >= 0:
            node = self._lone_surrogate(node, first)
        return self._resolved(node, code_point)

    def _after_digit(self, node: Node, pending: tuple[str, int, int, int], byte: int) -> State | None:
        digit = _HEX.get(byte)
        if digit is None:
            return None
        _, first, value, digits = pending
        value, digits = value * 16 + digit, digits + 1
        if digits < 4:
            return State(node, ("hex", first, value, digits))
        if first >= 0 and LOW[0] <= value <= LOW[1]:
            return self._resolved(node, 0x10000 + ((first - HIGH[0]) << 10) + value - LOW[0])
        if first >= 0:
            node = self._lone_surrogate(node, first)
        if HIGH[0] <= value <= HIGH[1]:
            return State(node, ("high", value))
        if self._minimal and (value >= 0x20 or value in SHORT_ESCAPES.values()):
            return None
        return self._resolved(node, value)

    def _lone_surrogate(self, node: Node, surrogate: int) -> Node:
        return regular.derive(node, surrogate) if self.lone else regular.EMPTY

    def _resolved(self, node: Node, after: Pending | int | None) -> State | None:
        if after is None or node is regular.EMPTY:
            return None
        if isinstance(after, int):
            return State(regular.derive(node, after), NOTHING)
        return started(node, after)  # type: ignore[arg-type]

    def _viable(self, state: State) -> bool:
        """Whether some character fits what was read of it and can follow."""
        if not state.pending:
            return not regular.is_empty(state.node)
        if state.pending[0] in ("utf8", "tail"):  # asked already, by ``started``
            return True
        for first, fits in _candidates(state.pending, self._minimal, self.lone):
            if self._leads_on(state.node, first, fits):
                return True
        return False

    def _leads_on(self, node: Node, first: int, fits: Ranges | None) -> bool:
        """Whether ``node``, after a lone surrogate ``first`` (none if −1), can go on by a character that ``fits``;
        fits None: by anything that is not an escaped low surrogate, or by the end."""
        if first >= 0:
            node = self._lone_surrogate(node, first)
            if regular.is_empty(node):
                return False
        if fits is None:
            return node.nullable or bool(codepoints.difference(regular.live(node), (LOW,)))
        return any(codepoints.meets(regular.live(node), low, high) for low, high in fits)


class Word(NamedTuple):
    """Inside a string that is one of the words written out, read in their own spelling so far."""

    inner: State

    @property
    def node(self) -> Node:
        return self.inner.node

    @property
    def pending(self) -> Pending:
        return self.inner.pending

    @property
    def at(self) -> str:
        return self.inner.at


class Both(NamedTuple):
    """Inside a string that may still be a word written out, or another. Before the closing quote only."""

    free: State
    literal: State

    @property
    def pending(self) -> Pending:
        return self.free.pending

    @property
    def at(self) -> str:
        return self.free.at


class TwoSpellings:
    """JSON strings of which the words that a schema writes out are spelled as ``literal`` does, others as ``free``.

    Its states are those of ``free``, ``Word``, and ``Both``; a string that has ended is a state of ``free``.
    """

    def __init__(self, free: JsonString, literal: JsonString) -> None:
        self.free = free
        self.literal = literal

    @property
    def key(self) -> tuple[str, tuple[str, bool, bool], tuple[str, bool, bool]]:
        """Equal for machines that step every state alike."""
        return ("two spellings", self.free.key, self.literal.key)

    def start(self) -> Spelled | None:
        return both(self.free.start(), self.literal.start())

    def accepting(self, state: Spelled) -> bool:
        return state.at == "closed"

    def step(self, state: Spelled, byte: int) -> Spelled | None:
        if isinstance(state, Word):
            return literally(self.literal.step(state.inner, byte))
        if isinstance(state, Both):
            return both(self.free.step(state.free, byte), self.literal.step(state.literal, byte))
        return self.free.step(state, byte)


Spelled = State | Word | Both


def literally(state: State | None) -> State | Word | None:
    """A state of the words' own machine as one of ``TwoSpellings``."""
    return state if state is None or state.at == "closed" else Word(state)


def both(free: State | None, literal: State | None) -> Spelled | None:
    """A state of either machine, or none, as one of ``TwoSpellings``."""
    if free is None:
        return literally(literal)
    return (
        free if literal is None or free.at == "closed" else literal if literal.at == "closed" else Both(free, literal)
    )


def _astral(high: int, low_from: int, low_to: int) -> Ranges:
    """The characters of the surrogate pairs ``high`` with ``low_from…low_to``."""
    base = 0x10000 + ((high - HIGH[0]) << 10) - LOW[0]
    return ((base + low_from, base + low_to),)


def _pairs_from(escaped: Ranges) -> Iterator[Ranges]:
    """The characters whose escaped high surrogate lies in ``escaped``."""
    for low, high in codepoints.intersection(escaped, (HIGH,)):
        yield ((_astral(low, *LOW)[0][0], _astral(high, *LOW)[0][1]),)


@cache  # a few thousand at the most: all parts of an escape
def _candidates(pending: Pending, minimal: bool, lone: bool) -> tuple[tuple[int, Ranges | None], ...]:
    """``_fits`` of a part read, under a machine's options."""
    return tuple(_fits(pending, minimal, lone))


def _fits(pending: Pending, minimal: bool, lone: bool) -> Iterator[tuple[int, Ranges | None]]:
    """What the part read may turn out to be: (a lone surrogate before or −1, the characters that fit after it)."""
    kind = pending[0]  # type: ignore[misc]
    if kind == "high":
        yield -1, _astral(pending[1], *LOW)  # type: ignore[misc]
        if lone:
            yield pending[1], None  # type: ignore[misc]
        return
    first: int = pending[1]  # type: ignore[misc]
    if kind == "escape":
        short = codepoints.ranges((c, c) for c in SHORT_ESCAPES.values())
        low, high = 0, 0xFFFF
        if minimal:
            short = codepoints.difference(short, ((0x2F, 0x2F),))
    else:
        _, _, value, digits = pending  # type: ignore[misc]
        left = 4 * (4 - digits)
        low, high, short = value << left, ((value + 1) << left) - 1, ()
    escaped: Ranges = ((low, high),)
    if minimal:
        by_two = codepoints.ranges((c, c) for c in SHORT_ESCAPES.values())
        yield (
            -1,
            codepoints.union(short, codepoints.difference(codepoints.intersection(escaped, ((0, 0x1F),)), by_two)),
        )
        return
    if first >= 0:
        paired = codepoints.intersection(escaped, (LOW,))
        if paired:
            yield -1, _astral(first, *paired[0])
        if lone:
            yield first, codepoints.union(short, codepoints.difference(escaped, (LOW,)))
            # a further high surrogate may start a pair after the lone one
            yield from ((first, astral) for astral in _pairs_from(escaped))
        return
    yield (
        -1,
        codepoints.union(short, escaped if lone else codepoints.difference(escaped, (codepoints.SURROGATES,))),
    )
    yield from ((-1, astral) for astral in _pairs_from(escaped))
