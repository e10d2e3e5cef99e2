"""Numbers: exact membership, and viability by brute force over every short spelling."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reference import automaton, numbers
from harness.reference.numbers import ALL_NUMBERS, INTEGERS, Number, NumberSet

GRAMMAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
TEXTS = [
    "".join(t) for n in range(1, 6) for t in itertools.product("-015.e", repeat=n) if GRAMMAR.fullmatch("".join(t))
]
FRACTIONS = st.sampled_from([Fraction(x) for x in ("0", "1", "5", "10", "15", "1/2", "1/10", "-5", "-1", "3", "1/3")])
POSITIVE = st.sampled_from([Fraction(x) for x in ("1", "5", "1/2", "1/10", "3", "7/2", "2")])


@st.composite
def sets(draw: st.DrawFn) -> NumberSet:
    low = draw(st.none() | FRACTIONS)
    high = draw(st.none() | FRACTIONS)
    return NumberSet(
        integer=draw(st.sampled_from([None, None, True, False])),
        low=low,
        low_open=low is not None and draw(st.booleans()),
        high=high,
        high_open=high is not None and draw(st.booleans()),
        multiples=draw(st.frozensets(POSITIVE, max_size=2)),
        # Not 1/10: what is no multiple of it needs more digits than the texts listed here have.
        non_multiples=draw(st.frozensets(POSITIVE.filter(lambda m: m != Fraction(1, 10)), max_size=1)),
        excluded=draw(st.frozensets(FRACTIONS, max_size=2)),
    )


def member(one: NumberSet, value: Fraction) -> bool:
    """Membership, written out plainly and apart from the code under test."""
    if one.integer is not None and (value == int(value)) != one.integer:
        return False
    if one.low is not None and (value < one.low or (one.low_open and value == one.low)):
        return False
    if one.high is not None and (value > one.high or (one.high_open and value == one.high)):
        return False
    if any((value / m) != int(value / m) for m in one.multiples):
        return False
    return not any((value / m) == int(value / m) for m in one.non_multiples) and value not in one.excluded


VALUES = sorted({Fraction(t) for t in TEXTS if len(t) < 5})


@settings(max_examples=200, deadline=None)
@given(sets(), sets())
def test_set_operations_are_those_of_sets(one: NumberSet, other: NumberSet) -> None:
    both = numbers.intersection(one, other)
    outside = numbers.complement(one)
    for value in VALUES:
        expected = member(one, value)
        assert numbers.contains(one, value) == expected
        assert any(numbers.contains(part, value) for part in outside) == (not expected)
        assert (both is not None and numbers.contains(both, value)) == (expected and member(other, value))


@settings(max_examples=200, deadline=None)
@given(sets())
def test_an_empty_set_holds_nothing_and_another_holds_what_is_found_in_it(one: NumberSet) -> None:
    if numbers.is_empty(one):
        assert not any(member(one, value) for value in VALUES)
    values = numbers.enumerate_values(one, 5)
    if values is not None:
        assert all(member(one, value) for value in values)
        assert {v for v in VALUES if member(one, v)} <= set(values)
    assert numbers.is_empty(one) == (values == [])


@settings(max_examples=40, deadline=None)
@given(sets(), st.sampled_from(["rfc8259", "plain"]), st.sampled_from(["value", "digits"]))
def test_exactly_the_right_spellings_are_accepted_and_their_prefixes_kept(
    one: NumberSet, form: str, spelling: str
) -> None:
    machine = Number((one,), numbers=form, integer_spelling=spelling)
    for text in TEXTS:
        allowed = form == "rfc8259" or "e" not in text
        if one.integer is True and spelling == "digits":
            allowed = allowed and not set(text) & set(".e")
        expected = allowed and member(one, Fraction(text))
        state = automaton.run(machine, text.encode())
        assert (state is not None and machine.accepting(state)) == expected, text


SHORT = ["", *(f"{i:0{n}}" for n in (1, 2) for i in range(10**n))]
FRACTIONAL = ["", *(f".{f}" for f in SHORT[1:])]


def completions(prefix: str, *, exponents: bool, digits: bool) -> Iterator[str]:
    """Many spellings that begin with a prefix, apart from the code under test."""
    if prefix in ("", "-"):
        for first in ["-", *"0123456789"] if not prefix else "0123456789":
            yield from completions(prefix + first, exponents=exponents, digits=digits)
        return
    if "e" in prefix:
        texts = [prefix + sign + rest for sign in ("", "-") for rest in SHORT]
    else:
        powers = [f"e{x}" for x in range(-9, 10)] if exponents and not digits else []
        tails = SHORT if "." in prefix or digits else [*SHORT, *FRACTIONAL]
        texts = [prefix + tail + power for power in ["", *powers] for tail in tails]
        texts += [prefix + f"{i:03}" for i in range(1000)] if not exponents or digits else []
    yield from (t for t in texts if GRAMMAR.fullmatch(t) and not (digits and set(t) & set(".e")))


PREFIXES = [
    "",
    "-",
    "0",
    "1",
    "15",
    "0.",
    "1.",
    "0.0",
    "1e",
    "1e-",
    "0.5e",
    "51e1",
    "0e",
    "5.1",
    "-1",
    "-0.1e-",
    "3",
    "7",
]


@settings(max_examples=60, deadline=None)
@given(sets(), st.sampled_from(["rfc8259", "plain"]), st.sampled_from(["value", "digits"]), st.sampled_from(PREFIXES))
def test_a_prefix_is_kept_exactly_while_a_completion_is_in_the_set(
    one: NumberSet, form: str, spelling: str, prefix: str
) -> None:
    machine = Number((one,), numbers=form, integer_spelling=spelling)
    if form == "plain" and "e" in prefix:
        return
    digits = one.integer is True and spelling == "digits"
    if digits and set(prefix) & set(".e"):
        assert automaton.run(machine, prefix.encode()) is None
        return
    texts = completions(prefix, exponents=form == "rfc8259", digits=digits)
    found = next((text for text in texts if member(one, Fraction(text))), None)
    assert (automaton.run(machine, prefix.encode()) is not None) == (found is not None), found


@pytest.mark.parametrize(
    ("one", "text", "viable"),
    [
        (INTEGERS, "1000e-3", True),
        (INTEGERS, "1000e-4", False),  # nor can more digits of the exponent help
        (INTEGERS, "0.1e1", True),
        (NumberSet(multiples=frozenset((Fraction(1, 10),))), "0.3", True),
        (NumberSet(multiples=frozenset((Fraction(1, 10),))), "0.35e", True),
        (NumberSet(low=Fraction(100), high=Fraction(250), high_open=True), "3", False),
        (numbers.exactly(Fraction(1)), "2", False),
        (numbers.exactly(Fraction(0)), "-0.0e7", True),
        (NumberSet(low=Fraction(10**400)), "1e9", True),
        (NumberSet(high=Fraction(5), low=Fraction(5)), "0.5e2", False),
        (NumberSet(high=Fraction(5), low=Fraction(5)), "0.5e0", True),
    ],
)
def test_known_prefixes(one: NumberSet, text: str, viable: bool) -> None:
    assert (automaton.run(Number((one,)), text.encode()) is not None) == viable


def test_huge_exponents_are_decided_without_writing_the_number_out() -> None:
    machine = Number((NumberSet(integer=True, high=Fraction(10) ** 6),))
    assert automaton.run(machine, b"1e99999999999999") is None
    assert automaton.accepts(machine, b"0e99999999999999")
    assert automaton.accepts(Number((ALL_NUMBERS,)), b"1e99999999999999")
    assert automaton.accepts(Number((INTEGERS,)), b"1e99999999999999")
    assert not automaton.accepts(Number((INTEGERS,)), b"1e-99999999999999")


def test_a_long_mantissa_is_no_trouble() -> None:
    digits = b"9" * 6_000
    assert automaton.accepts(Number((NumberSet(low=Fraction(1)),)), digits)


def test_the_sets_that_hold_a_number_are_named() -> None:
    machine = Number((NumberSet(high=Fraction(5)), NumberSet(low=Fraction(5)), INTEGERS))
    state = automaton.run(machine, b"5")
    assert state is not None
    assert machine.accepting_sets(state) == (0, 1, 2)
    state = automaton.run(machine, b"5.5")
    assert state is not None
    assert machine.accepting_sets(state) == (1,)


def test_states_with_equal_futures_are_one() -> None:
    def state(machine: Number, text: str) -> numbers.State | None:
        return automaton.run(machine, text.encode())

    whole = Number((INTEGERS,))
    assert state(whole, "123") == state(whole, "999")
    assert state(whole, "120") != state(whole, "123")
    assert state(whole, "1.50e") == state(whole, "7.3e")
    above_0 = Number((NumberSet(low=Fraction(0), low_open=True),))
    assert state(above_0, "0.001") == state(above_0, "7.3")
    assert state(above_0, "0.0") != state(above_0, "7.3")
    from_0 = Number((NumberSet(low=Fraction(0)),))
    assert state(from_0, "0.0") == state(from_0, "7.3")


@settings(max_examples=150, deadline=None)
@given(st.lists(sets(), min_size=1, max_size=3), st.lists(st.sampled_from(TEXTS), min_size=5, max_size=5))
def test_a_shared_state_tells_the_sets_apart_all_the_same(many: list[NumberSet], spelled: list[str]) -> None:
    machine = Number(tuple(many))
    for text in [*spelled, "1200e-2", "0.00120e3", "10.0e-1", "5e-00", "0.0e5", "-0", "1e+02"]:
        state = automaton.run(machine, text.encode())
        holding = tuple(i for i, one in enumerate(many) if member(one, Fraction(text)))
        assert (machine.accepting_sets(state) if state is not None else ()) == holding, text


TINY = frozenset((Fraction(1, 10**9),))


@pytest.mark.parametrize(
    ("one", "text", "accepted"),
    [
        (NumberSet(low=Fraction(0), high=Fraction(1), multiples=TINY), "0.123456789", True),
        (NumberSet(low=Fraction(0), high=Fraction(1), multiples=TINY), "0.1234567891", False),
        (NumberSet(low=Fraction(0), high=Fraction(1), multiples=TINY), "123456789e-9", True),
        (NumberSet(low=Fraction(0), high=Fraction(1), multiples=TINY), "1e0", True),
        (NumberSet(multiples=frozenset((Fraction(1, 3),))), "0.3", False),
        (NumberSet(multiples=frozenset((Fraction(1, 3),))), "2.000e0", True),
        (NumberSet(multiples=frozenset((Fraction(1, 10**300),)), low=Fraction(0), high=Fraction(1)), "1e-300", True),
        (NumberSet(multiples=frozenset((Fraction(1, 10**300),)), low=Fraction(0), high=Fraction(1)), "1e-301", False),
        (NumberSet(integer=True, low=Fraction(-(2**63)), high=Fraction(2**63 - 1)), "9223372036854775807", True),
        (NumberSet(integer=True, low=Fraction(-(2**63)), high=Fraction(2**63 - 1)), "9223372036854775808", False),
        (NumberSet(integer=True, low=Fraction(-(2**63)), high=Fraction(2**63 - 1)), "-9223372036854775808", True),
        (NumberSet(non_multiples=frozenset((Fraction(1, 100),))), "1e-3", True),
        (NumberSet(non_multiples=frozenset((Fraction(1, 100),))), "10e-3", False),
        (NumberSet(low=Fraction(1, 3), high=Fraction(1, 3)), "0.3", False),
    ],
)
def test_known_numbers(one: NumberSet, text: str, accepted: bool) -> None:
    assert automaton.accepts(Number((one,)), text.encode()) == accepted
