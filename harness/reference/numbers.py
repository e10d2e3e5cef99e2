"""Sets of numbers, and JSON numbers as an automaton over bytes. Exact: values are fractions, never floats.

A ``NumberSet`` is a conjunction of what JSON Schema can say of a number. It is closed under intersection; complements
are unions of such sets. ``Number`` reads the bytes of a JSON number and keeps a state only while some completion lies
in one of its sets. Under RFC 8259 that is not regular (``{"type": "integer"}`` allows ``1000e-3`` and not
``1000e-4``), so the state is the mantissa read, its scale, and the exponent's prefix; what can follow is decided over
intervals.

How ``viable`` decides. Spelled numbers are finite decimals. What a prefix can still become is a union of intervals of
magnitudes (the *reach*): with exponents to come, after digits M > 0, every ``[M·10^x, (M+1)·10^x)``; with the
mantissa fixed, the points ``v·10^x`` for the exponents that the prefix allows. In an interval, finite decimals that
are multiples of L are the multiples of one step (L times the part of its denominator that is prime to 10); which of
those are excluded as multiples of something else repeats with a period in which the residue 1 is always free.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from harness.reference.automaton import TooComplex

Bound = Fraction | None
# Candidates looked at in one interval. Reached only by sets with that many excluded multiples in a row.
SCAN_BOUND = 1_000_000


@dataclass(frozen=True)
class NumberSet:
    """Numbers, all of: integral (True), not integral (False) or either (None); within the bounds, open or closed; a
    multiple of each of ``multiples``; of none of ``non_multiples``; none of ``excluded``."""

    integer: bool | None = None
    low: Bound = None
    low_open: bool = False
    high: Bound = None
    high_open: bool = False
    multiples: frozenset[Fraction] = frozenset()
    non_multiples: frozenset[Fraction] = frozenset()
    excluded: frozenset[Fraction] = frozenset()


ALL_NUMBERS = NumberSet()
INTEGERS = NumberSet(integer=True)


def exactly(value: Fraction) -> NumberSet:
    """The set of one number."""
    return NumberSet(low=value, high=value)


def parse(text: str | bytes) -> Fraction:
    """The exact value of a JSON number's text."""
    return Fraction(text.decode() if isinstance(text, bytes) else text)


def contains(numbers: NumberSet, value: Fraction) -> bool:
    return (
        (numbers.integer is None or (value.denominator == 1) == numbers.integer)
        and _above(numbers, value)
        and _below(numbers, value)
        and all((value / m).denominator == 1 for m in numbers.multiples)
        and not any((value / m).denominator == 1 for m in numbers.non_multiples)
        and value not in numbers.excluded
    )


def _above(numbers: NumberSet, value: Fraction) -> bool:
    low = numbers.low
    return low is None or value > low or (value == low and not numbers.low_open)


def _below(numbers: NumberSet, value: Fraction) -> bool:
    high = numbers.high
    return high is None or value < high or (value == high and not numbers.high_open)


def intersection(one: NumberSet, other: NumberSet) -> NumberSet | None:
    """The numbers in both; None where integrality alone shows that there are none."""
    if one.integer is not None and other.integer is not None and one.integer != other.integer:
        return None
    low, low_open = max(
        ((s.low, s.low_open) for s in (one, other) if s.low is not None), default=(None, False), key=lambda b: b
    )
    high, high_open = min(
        ((s.high, s.high_open) for s in (one, other) if s.high is not None),
        default=(None, False),
        key=lambda b: (b[0], not b[1]),
    )
    return NumberSet(
        integer=one.integer if one.integer is not None else other.integer,
        low=low,
        low_open=low_open,
        high=high,
        high_open=high_open,
        multiples=one.multiples | other.multiples,
        non_multiples=one.non_multiples | other.non_multiples,
        excluded=one.excluded | other.excluded,
    )


def complement(one: NumberSet) -> tuple[NumberSet, ...]:
    """The numbers not in ``one``, as a union."""
    parts = []
    if one.integer is not None:
        parts.append(NumberSet(integer=not one.integer))
    if one.low is not None:
        parts.append(NumberSet(high=one.low, high_open=not one.low_open))
    if one.high is not None:
        parts.append(NumberSet(low=one.high, low_open=not one.high_open))
    parts.extend(NumberSet(non_multiples=frozenset((m,))) for m in sorted(one.multiples))
    parts.extend(NumberSet(multiples=frozenset((m,))) for m in sorted(one.non_multiples))
    parts.extend(exactly(v) for v in sorted(one.excluded))
    return tuple(parts)


def is_empty(one: NumberSet) -> bool:
    """Whether no number that JSON can spell (a finite decimal) is in the set."""
    return not (_meets(one, _Span(Fraction(0), None, False)) or _meets(_mirrored(one), _Span(Fraction(0), None, False)))


def enumerate_values(one: NumberSet, most: int) -> list[Fraction] | None:
    """All values, ascending, where there are at most ``most``; None where there are more."""
    found: set[Fraction] = set()
    at = one
    while len(found) <= most:
        value = _some(at)
        if value is None:
            return sorted(found)
        found.add(value)
        at = replace(at, excluded=at.excluded | {value})
    return None


def _some(one: NumberSet) -> Fraction | None:
    """A number of the set, None where there is none."""
    everything = _Span(Fraction(0), None, False)
    found = next(_candidates(one, everything), None)
    if found is not None:
        return found
    mirrored = next(_candidates(_mirrored(one), everything), None)
    return None if mirrored is None else -mirrored


def _mirrored(one: NumberSet) -> NumberSet:
    """The set of the negatives."""
    return replace(
        one,
        low=None if one.high is None else -one.high,
        low_open=one.high_open,
        high=None if one.low is None else -one.low,
        high_open=one.low_open,
        excluded=frozenset(-v for v in one.excluded),
    )


# --- what lies in an interval of magnitudes --------------------------------------------------------------------


class _Span(NamedTuple):
    """Magnitudes from ``low`` (in it) to ``high`` (None: no end; ``closed``: in it)."""

    low: Fraction
    high: Bound
    closed: bool


def _step(one: NumberSet) -> Fraction | None:
    """The step whose multiples are the finite decimals that are multiples of all that is asked; None: no such rule."""
    asked = [*one.multiples, *([Fraction(1)] if one.integer else [])]
    if not asked:
        return None
    step = Fraction(0)
    for m in asked:
        step = _lcm(step, m) if step else abs(m)
    odd = step.denominator
    for prime in (2, 5):
        while odd % prime == 0:
            odd //= prime
    return step * odd


def _lcm(one: Fraction, other: Fraction) -> Fraction:
    """The least positive common multiple of two fractions."""
    other = abs(other)
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


def _meets(one: NumberSet, span: _Span) -> bool:
    """Whether the set holds a finite decimal ≥ 0 within ``span``."""
    return next(_candidates(one, span), None) is not None


def _candidates(one: NumberSet, span: _Span) -> Iterator[Fraction]:
    """At least one finite decimal of the set within the span, if there is any."""
    low, low_open = span.low, False
    if one.low is not None and (one.low, one.low_open) > (low, low_open):
        low, low_open = one.low, one.low_open
    high, high_open = span.high, not span.closed
    if one.high is not None and (high is None or (one.high, not one.high_open) < (high, not high_open)):
        high, high_open = one.high, one.high_open
    if high is not None and (low > high or (low == high and (low_open or high_open))):
        return
    avoided = [*one.non_multiples, *([Fraction(1)] if one.integer is False else [])]
    step = _step(one)
    if step is None:
        yield from _dense(one, low, low_open, high, high_open, avoided)
        return
    first = math.ceil(low / step)
    if low_open and first * step == low:
        first += 1
    last = None if high is None else math.floor(high / step)
    if last is not None and high is not None and high_open and last * step == high:
        last -= 1
    # k·step is a multiple of a exactly where k is one of c; c = 1 leaves nothing (but 0 is a multiple of anything).
    periods = [(_lcm(step, a) / step).numerator for a in avoided]
    if 1 in periods:
        return
    scanned = 0
    k = first
    while last is None or k <= last:
        value = k * step
        if not any(k % c == 0 for c in periods) and value not in one.excluded:
            yield value
            return
        scanned += 1
        if scanned > SCAN_BOUND:
            raise TooComplex(f"more than {SCAN_BOUND} multiples in a row are excluded")
        k += 1


def _dense(
    one: NumberSet, low: Fraction, low_open: bool, high: Bound, high_open: bool, avoided: list[Fraction]
) -> Iterator[Fraction]:
    """Without a step finite decimals are dense: a point, or some of infinitely many in an interval."""

    def fits(value: Fraction) -> bool:
        return value not in one.excluded and not any((value / a).denominator == 1 for a in avoided)

    if high is not None and low == high:
        if _is_finite_decimal(low) and fits(low):
            yield low
        return
    if not low_open and _is_finite_decimal(low) and fits(low):
        yield low
        return
    if high is not None and not high_open and _is_finite_decimal(high) and fits(high):
        yield high
        return
    # Ever finer decimals inside: only finitely many of them are excluded, and multiples of anything are discrete.
    top = high if high is not None else low + 1
    digits = 0
    while True:
        unit = Fraction(1, 10**digits)
        k = math.floor(low / unit) + 1
        for _ in range(10):
            value = k * unit
            if value >= top:
                break
            if fits(value):
                yield value
                return
            k += 1
        digits += 1


def _is_finite_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


# --- the automaton ---------------------------------------------------------------------------------------------

Phase = Literal["start", "minus", "zero", "int", "dot", "frac", "e", "sign", "exp"]
_DIGITS = range(0x30, 0x3A)
_TAIL_E = (0x65, 0x45)


class State(NamedTuple):
    """What was read of a number. mantissa: its digits as an integer, ``scale`` of them after the point; exponent: its
    digits so far. alive: which of the automaton's sets can still be reached."""

    phase: Phase
    negative: bool
    mantissa: int
    scale: int
    exponent_negative: bool
    exponent: int
    alive: tuple[int, ...]


class Number:
    """The JSON numbers in a union of sets, as bytes.

    numbers: ``rfc8259``, or ``plain`` (no exponent). integer_spelling: ``value``, any spelling whose value is integral;
    or ``digits``: a set with ``integer=True`` is spelled with digits only. The text does not end by itself:
    ``accepting`` says whether what was read is a whole number of one of the sets, ``accepting_sets`` of which.
    """

    def __init__(
        self, sets: tuple[NumberSet, ...], *, numbers: str = "rfc8259", integer_spelling: str = "value"
    ) -> None:
        self._sets = sets
        self._exponents = numbers == "rfc8259"
        self._digits_only = tuple(s.integer is True and integer_spelling == "digits" for s in sets)
        self._sides = (tuple(_side(s) for s in sets), tuple(_side(_mirrored(s)) for s in sets))  # by sign
        # Nothing but a phase matters to sets that allow every number of their spelling and of a sign (False: none).
        self._free = {
            negative: tuple(_is_free(side, only) for side, only in zip(sides, self._digits_only, strict=True))
            for negative, sides in ((False, self._sides[0]), (True, self._sides[1]))
        }
        self._windows: dict[tuple[int, bool, int], _Window | None] = {}
        # Equal for machines that step every state alike. A small number, because the sets take long to hash.
        options = (sets, self._exponents, self._digits_only)
        self.key = ("number", _keys.setdefault(options, next(_numbers)))

    def start(self) -> State | None:
        return self._kept(State("start", False, 0, 0, False, 0, tuple(range(len(self._sets)))))

    def step(self, state: State, byte: int) -> State | None:
        after = _read(state, byte)
        return None if after is None else self._kept(after)

    def accepting(self, state: State) -> bool:
        return bool(self.accepting_sets(state))

    def accepting_sets(self, state: State) -> tuple[int, ...]:
        """Which of the sets hold the number read so far; none where it is not a whole number."""
        if state.phase not in ("zero", "int", "frac", "exp"):
            return ()
        if self._is_settled(state, state.alive):
            return state.alive
        sides = self._sides[state.negative]
        if state.mantissa == 0:
            return tuple(i for i in state.alive if sides[i].zero)
        x = (-state.exponent if state.exponent_negative else state.exponent) - state.scale
        if state.phase == "exp" and abs(x) > FAR:
            return tuple(i for i in state.alive if _hits(self._window(i, state), x, x))
        return tuple(i for i in state.alive if _holds(sides[i], state.mantissa, x))

    def _kept(self, state: State) -> State | None:
        """The state with the sets that can still be reached, in a form that equal futures share; None: no set."""
        alive = tuple([i for i in state.alive if self._viable(i, state)])
        if not alive:
            return None
        if self._is_settled(state, alive):
            return State(state.phase, state.negative, 0, 0, False, 0, alive)
        return self._shared(state._replace(alive=alive) if alive != state.alive else state)

    def _shared(self, state: State) -> State:
        """One state for those whose futures are plainly equal."""
        phase, negative, mantissa, scale, exponent_negative, exponent, alive = state
        if phase in ("start", "minus"):
            return state
        sides = self._sides[negative]
        if mantissa == 0 and phase in ("e", "sign", "exp"):  # the value is 0 whatever follows
            return State(phase, negative, 0, 0, False, 0, alive)
        if all(self._free[negative][i] or sides[i].all_positive for i in alive):
            return State(phase, negative, min(mantissa, 1), 0, False, 0, alive)
        if mantissa and all(self._free[negative][i] or sides[i].all_whole for i in alive):
            # whether a number is whole depends on how many zeros its digits end with, and on where the point is
            zeros = _zeros(mantissa)
            if phase in ("e", "sign", "exp"):
                zeros, scale = max(zeros - scale, 0), max(scale - zeros, 0)
            return State(phase, negative, 10**zeros, scale, exponent_negative, exponent, alive)
        return state

    def _is_settled(self, state: State, alive: tuple[int, ...]) -> bool:
        """Whether every number that can still be read is in each of the sets."""
        return all(self._is_free(i, state) for i in alive)

    def _is_free(self, i: int, state: State) -> bool:
        if state.phase == "start":
            return self._free[False][i] and self._free[True][i]
        return self._free[state.negative][i]

    def _viable(self, i: int, state: State) -> bool:
        phase = state.phase
        digits_only = self._digits_only[i]
        if digits_only and phase not in ("start", "minus", "zero", "int"):
            return False
        if not self._exponents and phase in ("e", "sign", "exp"):
            return False
        if self._is_free(i, state):
            return True
        side = self._sides[state.negative][i]
        if phase == "start":
            return side.some or self._sides[True][i].some
        if phase == "minus":
            return side.some
        if phase in ("e", "sign", "exp"):
            return side.zero if state.mantissa == 0 else self._exponent_viable(i, state)
        # What the mantissa read so far can still become.
        if digits_only and phase == "zero":
            return side.zero
        if self._exponents and not digits_only:
            return side.some if state.mantissa == 0 else _leads_on(side, state.mantissa, None)
        if phase == "int":
            return _leads_on(side, state.mantissa, 0)
        # without exponents, the digits to come are all after the point
        return _block_meets(side, state.mantissa, -state.scale)

    def _exponent_viable(self, i: int, state: State) -> bool:
        window = self._window(i, state)
        if window is None:
            return False
        if state.phase == "e":
            return True
        low, high, excluded = window
        low, high = None if low is None else low + state.scale, None if high is None else high + state.scale
        holes = [x + state.scale for x in excluded]
        if state.exponent_negative:
            low, high, holes = None if high is None else -high, None if low is None else -low, [-x for x in holes]
        window = (low, high, frozenset(holes))
        if state.phase == "sign" or state.exponent == 0:
            return _hits(window, 0, None)  # no digit yet, or zeros only: everything of this sign can still come
        if high is None:
            return True
        first, last = state.exponent, state.exponent
        while first <= high:
            if _hits(window, first, last):
                return True
            first, last = first * 10, last * 10 + 9
        return False

    def _window(self, i: int, state: State) -> _Window | None:
        key = (i, state.negative, state.mantissa)
        if key not in self._windows:
            if len(self._windows) >= WINDOWS_KEPT:
                self._windows.clear()
            self._windows[key] = _window(self._sides[state.negative][i], state.mantissa)
        return self._windows.get(key) or _window(self._sides[state.negative][i], state.mantissa)


_keys: dict[Hashable, int] = {}
_numbers = itertools.count()


def _read(state: State, byte: int) -> State | None:
    """RFC 8259's grammar of numbers, one byte on; nothing asked of the sets."""
    phase, negative, mantissa, scale, exponent_negative, exponent, alive = state
    digit = byte - 0x30 if byte in _DIGITS else -1
    if phase in ("start", "minus"):
        if digit < 0:
            return state._replace(phase="minus", negative=True) if byte == 0x2D and phase == "start" else None
        return State("int" if digit else "zero", negative, digit, scale, exponent_negative, exponent, alive)
    if digit >= 0:
        if phase == "int":
            return State("int", negative, mantissa * 10 + digit, scale, exponent_negative, exponent, alive)
        if phase in ("dot", "frac"):
            return State("frac", negative, mantissa * 10 + digit, scale + 1, exponent_negative, exponent, alive)
        if phase in ("e", "sign", "exp"):
            return State("exp", negative, mantissa, scale, exponent_negative, exponent * 10 + digit, alive)
        return None
    if byte in _TAIL_E and phase in ("zero", "int", "frac"):
        return State("e", negative, mantissa, scale, exponent_negative, exponent, alive)
    if byte == 0x2E and phase in ("zero", "int"):
        return State("dot", negative, mantissa, scale, exponent_negative, exponent, alive)
    if phase == "e" and byte in (0x2B, 0x2D):
        return State("sign", negative, mantissa, scale, byte == 0x2D, exponent, alive)
    return None


# --- one sign of a set, in integers ----------------------------------------------------------------------------


class _Side(NamedTuple):
    """The magnitudes of a set's numbers of one sign. low, high, step, avoided and excluded are counted in 1/unit.

    low: at least 0. step: what all magnitudes are multiples of, 0 for none. avoided: what none is a multiple of.
    hopeless: no magnitude above 0. zero: 0 is one. some: there is one, 0 included. all_positive: every finite decimal
    above 0 is one. all_whole: every whole number above 0, and nothing else above 0.
    """

    unit: int
    low: int
    low_open: bool
    high: int | None
    high_open: bool
    step: int
    avoided: tuple[int, ...]
    excluded: frozenset[int]
    hopeless: bool
    zero: bool
    some: bool
    all_positive: bool
    all_whole: bool


def _side(one: NumberSet) -> _Side:
    """``one``: the set, mirrored for the negative side."""
    step = _step(one)
    avoided = [*one.non_multiples, *([Fraction(1)] if one.integer is False else [])]
    excluded = [e for e in one.excluded if e >= 0]
    low, low_open = (one.low, one.low_open) if one.low is not None and one.low >= 0 else (Fraction(0), False)
    unit = math.lcm(*(f.denominator for f in (low, one.high, step, *avoided, *excluded) if f is not None))
    hopeless = (one.high is not None and one.high <= 0) or (
        step is not None and any((_lcm(step, a) / step).numerator == 1 for a in avoided)
    )
    open_above_0 = one.high is None and not avoided and not any(excluded)
    return _Side(
        unit=unit,
        low=int(low * unit),
        low_open=low_open,
        high=None if one.high is None else int(one.high * unit),
        high_open=one.high_open,
        step=0 if step is None else int(step * unit),
        avoided=tuple(int(abs(a) * unit) for a in avoided),
        excluded=frozenset(int(e * unit) for e in excluded),
        hopeless=hopeless,
        zero=contains(one, Fraction(0)),
        some=_meets(one, _Span(Fraction(0), None, False)),
        all_positive=open_above_0 and step is None and low == 0,
        all_whole=open_above_0 and step == 1 and (low == 0 or (low <= 1 and not (low == 1 and low_open))),
    )


def _is_free(side: _Side, digits_only: bool) -> bool:
    """Whether a set holds every magnitude that its spelling allows."""
    return side.zero and (side.all_positive or (digits_only and side.all_whole))


def _holds(side: _Side, m: int, x: int) -> bool:
    """Whether m·10^x, above 0, is a magnitude of the side."""
    value, per = (m * 10**x * side.unit, 1) if x >= 0 else (m * side.unit, 10**-x)  # in 1/(unit·per)
    low, high = side.low * per, None if side.high is None else side.high * per
    if value < low or (value == low and side.low_open):
        return False
    if high is not None and (value > high or (value == high and side.high_open)):
        return False
    if side.step and value % (side.step * per):
        return False
    if any(value % (a * per) == 0 for a in side.avoided):
        return False
    return not (side.excluded and value % per == 0 and value // per in side.excluded)


def _block_meets(side: _Side, m: int, x: int) -> bool:
    """Whether a magnitude of the side lies in the block [m·10^x, (m + 1)·10^x)."""
    scaled, per = (10**x * side.unit, 1) if x >= 0 else (side.unit, 10**-x)
    first, first_open = m * scaled, False
    last, last_open = first + scaled, True
    low = side.low * per
    if low > first or (low == first and side.low_open):
        first, first_open = low, side.low_open
    if side.high is not None and side.high * per < last:
        last, last_open = side.high * per, side.high_open
    if not side.step:
        if first != last:
            return first < last  # finite decimals are dense, what is left out of them is not
        if first_open or last_open or not _is_finite_decimal(Fraction(first, side.unit * per)):
            return False
        if any(first % (a * per) == 0 for a in side.avoided):
            return False
        return first % per != 0 or first // per not in side.excluded
    step = side.step * per
    low_k = first // step + 1 if first_open else -(-first // step)
    high_k = -(-last // step) - 1 if last_open else last // step
    if low_k > high_k:
        return False
    if not side.avoided and not side.excluded:
        return True
    if side.hopeless:
        return low_k <= 0 and side.zero  # 0 alone may be left, and lies in the block
    for k in range(low_k, min(high_k, low_k + SCAN_BOUND) + 1):
        value = k * side.step
        if not any(value % a == 0 for a in side.avoided) and value not in side.excluded:
            return True
    if high_k > low_k + SCAN_BOUND:
        raise TooComplex(f"more than {SCAN_BOUND} multiples in a row are excluded")
    return False


def _leads_on(side: _Side, m: int, least: int | None) -> bool:
    """Whether a magnitude lies in one of the blocks [m·10^x, (m + 1)·10^x), m > 0, x ≥ ``least`` (None: any x)."""
    if side.hopeless:
        return False
    if side.high is None:
        return True  # a block far out is wider than any bound, exclusion and period
    if not side.step and not side.low and least is None:
        return True  # finite decimals are dense above 0
    start = m * side.unit
    x = _last_power(start, side.high, open_=side.high_open)
    floor = max(side.low, side.step)  # nothing is smaller, 0 apart
    while least is None or x >= least:
        if _compared(start + side.unit, x, floor) <= 0:
            return False
        if _block_meets(side, m, x):
            return True
        x -= 1
    return False


def _compared(a: int, x: int, b: int) -> int:
    """The sign of a·10^x − b."""
    left, right = (a * 10**x, b) if x >= 0 else (a, b * 10**-x)
    return (left > right) - (left < right)


def _last_power(a: int, b: int, *, open_: bool) -> int:
    """The largest x for which a·10^x ≤ b (``open_``: <); a and b above 0."""
    # log10(b/a) < (bits of b − bits of a + 1)·log10(2)
    x = math.floor((b.bit_length() - a.bit_length() + 1) * _LOG10_OF_2) + 1
    while _compared(a, x, b) > (-1 if open_ else 0):
        x -= 1
    return x


_LOG10_OF_2 = math.log10(2)
# Exponents further from 0 than this are never written out.
FAR = 4_000
# Windows kept by one machine; then it begins again.
WINDOWS_KEPT = 4_096

# With the digits m > 0 fixed, m·10^x meets each condition for x in an interval: bounds because 10^x grows; "is a
# multiple of" from some x on, or never, since 10^x only removes twos and fives from a denominator. A window is that
# interval (None: no end) and the exponents in it that ``excluded`` takes out.
_Window = tuple[int | None, int | None, frozenset[int]]


def _window(side: _Side, m: int) -> _Window | None:
    """The x for which m·10^x is a magnitude of the side; None: there is none."""
    if side.hopeless:
        return None
    start = m * side.unit
    low = high = None
    if side.high is not None:
        high = _last_power(start, side.high, open_=side.high_open)
    if side.low:
        low = _last_power(start, side.low, open_=not side.low_open) + 1
    if side.step:
        first = _first_multiple(start, side.step)
        if first is None:
            return None
        low = first if low is None else max(low, first)
    for avoided in side.avoided:
        first = _first_multiple(start, avoided)
        if first is not None:
            high = first - 1 if high is None else min(high, first - 1)
    if low is not None and high is not None and low > high:
        return None
    holes = set()
    for value in side.excluded:
        if value:
            x = _last_power(start, value, open_=False)
            if _compared(start, x, value) == 0:
                holes.add(x)
    found = (low, high, frozenset(holes))
    return found if _hits(found, None, None) else None


def _hits(window: _Window | None, first: int | None, last: int | None) -> bool:
    """Whether an exponent of the window lies in first…last (None: no end)."""
    if window is None:
        return False
    low, high, holes = window
    low = first if low is None else low if first is None else max(low, first)
    high = last if high is None else high if last is None else min(high, last)
    if low is None or high is None:
        return True  # finitely many are taken out
    return low <= high and high - low + 1 > sum(low <= x <= high for x in holes)


def _first_multiple(a: int, b: int) -> int | None:
    """The least x for which a·10^x is a multiple of b; None: there is none."""
    common = math.gcd(a, b)
    rest, needed = b // common, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest //= prime
            count += 1
        needed = max(needed, count)
    if rest != 1:
        return None
    return needed or -_zeros(a // common)


def _zeros(value: int) -> int:
    """How many zeros the digits of a number above 0 end with."""
    count = 0
    while value % 10 == 0:
        value //= 10
        count += 1
    return count
