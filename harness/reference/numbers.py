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

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

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
            from harness.reference.automaton import TooComplex

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
        # Nothing but a phase matters to sets that allow every number of their spelling.
        self._free = tuple(
            s == ALL_NUMBERS or (s == INTEGERS and only) for s, only in zip(sets, self._digits_only, strict=True)
        )
        self._mirrored = tuple(_mirrored(s) for s in sets)

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
        if all(self._free[i] for i in state.alive):
            return state.alive
        if state.phase == "exp" and not self._small(state):
            return tuple(i for i in state.alive if self._is_in_scaled(i, state, state.exponent))
        value = _value(state)
        return tuple(i for i in state.alive if contains(self._sets[i], value))

    def _small(self, state: State) -> bool:
        return state.exponent <= 4_000

    def _is_in_scaled(self, i: int, state: State, exponent: int) -> bool:
        """Membership of mantissa·10^±exponent for exponents too large to write out."""
        return _exponents_meet(self._signed(i, state), _mantissa(state), _signed_range(state, exponent, exponent))

    def _signed(self, i: int, state: State) -> NumberSet:
        return self._mirrored[i] if state.negative else self._sets[i]

    def _kept(self, state: State) -> State | None:
        """The state with the sets that can still be reached, in a form that equal futures share; None: no set."""
        alive = tuple(i for i in state.alive if self._viable(i, state))
        if not alive:
            return None
        if all(self._free[i] for i in alive):
            return State(state.phase, False, 0, 0, False, 0, alive)
        return state._replace(alive=alive)

    def _viable(self, i: int, state: State) -> bool:
        phase = state.phase
        if self._digits_only[i] and phase not in ("start", "minus", "zero", "int"):
            return False
        if not self._exponents and phase in ("e", "sign", "exp"):
            return False
        if self._free[i]:
            return True
        if phase == "start":
            return not is_empty(self._sets[i])
        numbers = self._signed(i, state)
        if phase in ("e", "sign", "exp"):
            return self._exponent_viable(numbers, state)
        return any(_meets(numbers, span) for span in self._reach(i, numbers, state))

    def _reach(self, i: int, numbers: NumberSet, state: State) -> Iterable[_Span]:
        """The intervals of magnitudes that the mantissa read so far can still become."""
        phase, m = state.phase, state.mantissa
        scaled = self._exponents and not self._digits_only[i]
        if phase == "minus" or (scaled and m == 0):
            yield _Span(Fraction(0), None, False)
            return
        if self._digits_only[i]:
            if phase == "zero":
                yield _Span(Fraction(0), Fraction(0), True)
                return
            yield from _blocks(numbers, m, 0)
        elif scaled:
            yield from _blocks(numbers, m, None)
        elif phase == "int":
            yield from _blocks(numbers, m, 0)
        else:  # zero, dot, frac without exponents: the digits to come are all after the point
            unit = Fraction(1, 10**state.scale)
            yield _Span(m * unit, (m + 1) * unit, False)

    def _exponent_viable(self, numbers: NumberSet, state: State) -> bool:
        mantissa = _mantissa(state)
        if state.phase == "e":
            return _exponents_meet(numbers, mantissa, (None, None))
        if state.phase == "sign" or state.exponent == 0:
            # no digit yet, or zeros only: every exponent of this sign can still come
            return _exponents_meet(numbers, mantissa, (None, 0) if state.exponent_negative else (0, None))
        low, high = state.exponent, state.exponent
        while True:  # mantissa 0: the first look settles it
            if _exponents_meet(numbers, mantissa, _signed_range(state, low, high)):
                return True
            low, high = low * 10, high * 10 + 9
            if _exponents_exhausted(numbers, mantissa, state.exponent_negative, low):
                return False


def _read(state: State, byte: int) -> State | None:
    """RFC 8259's grammar of numbers, one byte on; nothing asked of the sets."""
    phase = state.phase
    digit = byte - 0x30 if byte in _DIGITS else -1
    if phase in ("start", "minus"):
        if digit == 0:
            return state._replace(phase="zero")
        if digit > 0:
            return state._replace(phase="int", mantissa=digit)
        return state._replace(phase="minus", negative=True) if byte == 0x2D and phase == "start" else None
    if phase in ("zero", "int", "frac") and byte in _TAIL_E:
        return state._replace(phase="e")
    if phase in ("zero", "int") and byte == 0x2E:
        return state._replace(phase="dot")
    if phase == "int" and digit >= 0:
        return state._replace(mantissa=state.mantissa * 10 + digit)
    if phase in ("dot", "frac") and digit >= 0:
        return state._replace(phase="frac", mantissa=state.mantissa * 10 + digit, scale=state.scale + 1)
    if phase == "e" and byte in (0x2B, 0x2D):
        return state._replace(phase="sign", exponent_negative=byte == 0x2D)
    if phase in ("e", "sign", "exp") and digit >= 0:
        return state._replace(phase="exp", exponent=state.exponent * 10 + digit)
    return None


def _mantissa(state: State) -> Fraction:
    return Fraction(state.mantissa, 10**state.scale)


def _value(state: State) -> Fraction:
    power = Fraction(10) ** (-state.exponent if state.exponent_negative else state.exponent)
    value = _mantissa(state) * power
    return -value if state.negative else value


def _blocks(numbers: NumberSet, m: int, least: int | None) -> Iterator[_Span]:
    """The intervals [m·10^x, (m+1)·10^x), for m > 0 and x ≥ ``least`` (None: any), that can matter to the set.

    Towards infinity one block past every bound and every period stands for all; towards 0 likewise.
    """
    low = numbers.low if numbers.low is not None and numbers.low > 0 else None
    if numbers.high is not None and numbers.high < 0:
        return
    edges = [abs(e) for e in (numbers.low, numbers.high, *numbers.excluded) if e]
    step = _step(numbers)
    grains = [*numbers.non_multiples, *([step] if step else []), Fraction(1)]
    largest = max([*edges, *(abs(g) for g in grains)])
    smallest = min([*edges, *(abs(g) for g in grains)])
    # A block of width 10^x beyond every edge that is wider than two whole periods holds what any later one holds.
    period = math.lcm(*(abs(g).numerator for g in grains)) if numbers.high is None else 1
    digits = _magnitude(Fraction(m))
    if numbers.high is None:
        top = _magnitude(max(largest, Fraction(2 * period * (len(numbers.excluded) + 2)))) + 2
    else:
        top = _magnitude(numbers.high) - digits + 4 if numbers.high > 0 else 4 - digits
    bottom = _magnitude(low) - 3 if low is not None else _magnitude(smallest) - 4
    first = bottom - digits - 1
    if least is not None:
        first = max(first, least)
        yield _Span(m * Fraction(10) ** least, (m + 1) * Fraction(10) ** least, False)
    # The widest first: where there is no upper bound it nearly always settles the question.
    for x in range(max(top, first), first - 1, -1):
        power = Fraction(10) ** x
        yield _Span(m * power, (m + 1) * power, False)


def _magnitude(value: Fraction) -> int:
    """An integer e with value < 10^e and value ≥ 10^(e−3), from lengths in bits: digits may be too many to write."""
    bits = value.numerator.bit_length() - value.denominator.bit_length()  # 2^(bits−1) < value < 2^(bits+1)
    return math.floor((bits + 1) * math.log10(2)) + 1


# --- exponents -------------------------------------------------------------------------------------------------
#
# With the mantissa v > 0 fixed, v·10^x meets each condition for exponents x in an interval: bounds because 10^x grows;
# "is a multiple of m" from some x on, or never, since 10^x only ever removes twos and fives from a denominator.

_Range = tuple[int | None, int | None]


def _exponents_meet(numbers: NumberSet, v: Fraction, wanted: _Range) -> bool:
    """Whether some exponent within ``wanted`` puts v·10^x into the set."""
    if v == 0:
        return contains(numbers, v)
    allowed = _allowed_exponents(numbers, v, wanted)
    if allowed is None:
        return False
    low, high = allowed
    if low is None or high is None:
        return True  # finitely many exponents are excluded
    if low > high:
        return False
    excluded = sum(1 for e in numbers.excluded if (x := _exponent_of(e, v)) is not None and low <= x <= high)
    return high - low + 1 > excluded


def _exponents_exhausted(numbers: NumberSet, v: Fraction, negative: bool, beyond: int) -> bool:
    """Whether no exponent of magnitude ``beyond`` or more can do."""
    return not _exponents_meet(numbers, v, (None, -beyond) if negative else (beyond, None))


def _signed_range(state: State, low: int, high: int) -> _Range:
    return (-high, -low) if state.exponent_negative else (low, high)


def _allowed_exponents(numbers: NumberSet, v: Fraction, wanted: _Range) -> _Range | None:
    """The interval of exponents within ``wanted`` that meet everything but ``excluded``; None: none."""
    low, high = wanted

    def at_least(x: int) -> None:
        nonlocal low
        low = x if low is None else max(low, x)

    def at_most(x: int) -> None:
        nonlocal high
        high = x if high is None else min(high, x)

    if numbers.high is not None:
        if numbers.high <= 0:
            return None
        at_most(_last_below(v, numbers.high, open_=numbers.high_open))
    if numbers.low is not None and numbers.low > 0:
        at_least(_first_above(v, numbers.low, open_=numbers.low_open))
    for m in [*numbers.multiples, *([Fraction(1)] if numbers.integer else [])]:
        first = _first_multiple(v, m)
        if first is None:
            return None
        at_least(first)
    for m in [*numbers.non_multiples, *([Fraction(1)] if numbers.integer is False else [])]:
        first = _first_multiple(v, m)
        if first is not None:
            at_most(first - 1)
    if low is not None and high is not None and low > high:
        return None
    return low, high


def _first_multiple(v: Fraction, m: Fraction) -> int | None:
    """The least x for which v·10^x is a multiple of m; None: there is none."""
    ratio = v / abs(m)
    rest, needed = ratio.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest //= prime
            count += 1
        needed = max(needed, count)
    if rest != 1:
        return None
    if needed:
        return needed
    spare = []
    for prime in (2, 5):
        count, at = 0, ratio.numerator
        while at % prime == 0:
            at //= prime
            count += 1
        spare.append(count)
    return -min(spare)


def _last_below(v: Fraction, bound: Fraction, *, open_: bool) -> int:
    """The largest x for which v·10^x is at most (``open_``: below) a positive bound."""
    x = _magnitude(bound / v)
    while True:
        value = v * Fraction(10) ** x
        if value < bound or (value == bound and not open_):
            return x
        x -= 1


def _first_above(v: Fraction, bound: Fraction, *, open_: bool) -> int:
    """The least x for which v·10^x is at least (``open_``: above) a positive bound."""
    x = _magnitude(bound / v) - 4
    while True:
        value = v * Fraction(10) ** x
        if value > bound or (value == bound and not open_):
            return x
        x += 1


def _exponent_of(value: Fraction, v: Fraction) -> int | None:
    """The x with v·10^x = value, if there is one."""
    if value <= 0:
        return None
    x = _last_below(v, value, open_=False)
    return x if v * Fraction(10) ** x == value else None
