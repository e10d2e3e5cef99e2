"""Grammars against a recogniser that shares nothing with them: it tries every way to cut a text, again and again.

Generated grammars have left and right recursion, rules that may be empty, loops of empty rules and useless rules.
"""

from __future__ import annotations

import gc
import itertools
import random
import threading
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.errors import CompileError
from harness.reference import automaton, codepoints, grammar, regular
from harness.reference.automaton import Automaton, TooComplex
from harness.reference.grammar import Alt, Body, Cat, Embedded, Ref, Regular, Rep
from harness.reference.spelling import JsonString, Utf8

ALPHABET = "ab"
# Shrinking a grammar takes minutes and tells little.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def text(literal: str) -> Regular:
    return Regular(regular.text(literal))


def one_of(characters: str) -> Regular:
    return Regular(regular.chars(codepoints.of(characters)))


class Naive:
    """The language of rules by the definition, for short texts."""

    def __init__(self, rules: Mapping[str, Body], root: str) -> None:
        self._rules, self._root = rules, root

    def accepts(self, literal: str) -> bool:
        self._text = literal
        self._ends: dict[tuple[str, int], frozenset[int]] = {}
        while True:
            before = dict(self._ends)
            for name, at in itertools.product(self._rules, range(len(literal) + 1)):
                self._ends[name, at] = frozenset(self._match(self._rules[name], at))
            if self._ends == before:
                return len(literal) in self._ends[self._root, 0]

    def _match(self, body: Body, at: int) -> set[int]:
        if isinstance(body, Ref):
            return set(self._ends.get((body.name, at), ()))
        if isinstance(body, Regular):
            return {end for end in range(at, len(self._text) + 1) if regular.matches(body.node, self._text[at:end])}
        if isinstance(body, Embedded):
            rest = range(at, len(self._text) + 1)
            return {end for end in rest if automaton.accepts(body.automaton, self._text[at:end].encode())}
        if isinstance(body, Alt):
            return {end for part in body.parts for end in self._match(part, at)}
        if isinstance(body, Cat):
            ends = {at}
            for part in body.parts:
                ends = {end for start in ends for end in self._match(part, start)}
            return ends
        ends, found = {at}, {at} if body.low == 0 else set()
        count = 0
        seen: set[frozenset[int]] = set()
        while ends and (body.high is None or count < body.high):
            ends = {end for start in ends for end in self._match(body.part, start)}
            count += 1
            if count >= body.low:
                found |= ends
                if body.high is None and frozenset(ends) in seen:
                    break
                seen.add(frozenset(ends))
        return found if body.high is None or body.low <= body.high else set()


def texts(length: int, alphabet: str = ALPHABET) -> list[str]:
    return ["".join(t) for n in range(length + 1) for t in itertools.product(alphabet, repeat=n)]


def is_dead_end(machine: Automaton[Any], state: Any, alphabet: bytes, most: int = 600) -> bool:
    """Whether all that can follow, found breadth first, was seen and none of it is in the language."""
    layer, seen = [state], {state}
    while layer:
        if any(machine.accepting(at) for at in layer):
            return False
        following = []
        for at, byte in itertools.product(layer, alphabet):
            after = machine.step(at, byte)
            if after is not None and after not in seen:
                seen.add(after)
                following.append(after)
        if len(seen) > most:
            return False
        layer = following
    return True


def agrees(rules: Mapping[str, Body], root: str, length: int, alphabet: str = ALPHABET) -> None:
    """The automaton takes exactly the texts of the definition, and never stands where nothing can follow."""
    machine, naive = grammar.automaton(rules, root), Naive(rules, root)
    reached: dict[str, Any] = {"": machine.start()}
    for literal in texts(length, alphabet):
        if literal:
            before = reached[literal[:-1]]
            state = before
            for byte in literal[-1].encode():
                state = None if state is None else machine.step(state, byte)
            reached[literal] = state
        state = reached[literal]
        assert (state is not None and machine.accepting(state)) == naive.accepts(literal), literal
    for state in {s for s in reached.values() if s is not None}:
        assert not is_dead_end(machine, state, alphabet.encode())


NAMES = ("A", "B", "C", "D")


def bodies(depth: int) -> st.SearchStrategy[Body]:
    leaf: st.SearchStrategy[Body] = st.one_of(
        st.sampled_from([text("a"), text("b"), text("ab"), text(""), one_of("ab"), Regular(regular.EMPTY)]),
        st.sampled_from([Ref(n) for n in NAMES]),
        st.sampled_from([Ref(n) for n in NAMES]),
    )
    if depth == 0:
        return leaf
    inner = bodies(depth - 1)
    return st.one_of(
        leaf,
        st.lists(inner, min_size=1, max_size=3).map(lambda p: Cat(tuple(p))),
        st.lists(inner, min_size=1, max_size=3).map(lambda p: Alt(tuple(p))),
        st.builds(Rep, inner, st.integers(0, 2), st.none() | st.integers(0, 3)),
    )


@settings(max_examples=150, deadline=None, phases=PHASES)
@given(st.fixed_dictionaries({name: bodies(2) for name in NAMES}))
def test_random_grammars_mean_what_the_definition_says(rules: dict[str, Body]) -> None:
    agrees(rules, "A", 4)


@settings(max_examples=150, deadline=None, phases=PHASES)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.lists(st.sampled_from([*map(Ref, NAMES), text("a"), text("b")]), max_size=3),
        ),
        min_size=4,
        max_size=12,
    )
)
def test_random_production_lists_mean_what_the_definition_says(productions: list[tuple[str, list[Body]]]) -> None:
    rules: dict[str, Body] = {
        name: Alt(tuple(Cat(tuple(right)) for left, right in productions if left == name)) for name in NAMES
    }
    agrees(rules, "A", 4)


LEFT = {
    "S": Alt((Cat((Ref("S"), text("+"), Ref("T"))), Ref("T"))),
    "T": Alt((text("x"), Cat((text("("), Ref("S"), text(")"))))),
}
CASES: dict[str, tuple[dict[str, Body], str, int]] = {
    "left recursion": (LEFT, "x+()", 5),
    "right recursion": (
        {"S": Alt((Cat((Ref("T"), text(","), Ref("S"))), Ref("T"))), "T": text("x")}, "x,", 7),
    "ambiguity": ({"S": Alt((Cat((Ref("S"), Ref("S"))), text("a"), Cat((text("b"), Ref("S"), text("b")))))}, "ab", 7),
    "nullable loop": ({"S": Alt((Ref("T"), Cat((Ref("T"), text("a"))))), "T": Alt((Ref("S"), text("")))}, "a", 6),
    "hidden left recursion": (
        {"S": Alt((Cat((Ref("N"), Ref("S"), text("a"))), text("b"))), "N": Alt((text(""), text("a")))}, "ab", 6),
    "indirect left recursion": (
        {"S": Alt((Cat((Ref("T"), text("a"))), text("b"))), "T": Alt((Cat((Ref("S"), text("b"))), Ref("S")))}, "ab", 6),
    "middle recursion of an empty rule": (
        {"S": Cat((Ref("N"), text("a"), Ref("N"))), "N": Alt((text(""), Cat((text("b"), Ref("S"), text("b")))))},
        "ab", 7),
    "palindromes": (
        {"S": Alt((text(""), one_of("ab"), *(Cat((text(c), Ref("S"), text(c))) for c in "ab")))},
        "ab", 7),
    "counted compounds": (
        {"S": Rep(Cat((text("a"), Rep(Ref("T"), 0, 2))), 2, 3),
         "T": Alt((text("b"), Cat((text("b"), Ref("T"), text("b")))))},
        "ab", 7),
    "useless rules": (
        {"S": Alt((Cat((text("a"), Ref("U"))), text("b"), Cat((text("a"), Ref("T"))))), "U": Cat((text("a"), Ref("U"))),
         "T": Alt((Cat((text("b"), Ref("T"))), text("a")))}, "ab", 6),
    "everything empty": ({"S": Rep(Ref("T"), 3, None), "T": Rep(Ref("S"), 0, 2)}, "a", 2),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_known_hard_cases(case: str) -> None:
    rules, alphabet, length = CASES[case]
    agrees(rules, "S", length, alphabet)


def test_an_empty_language_has_no_start() -> None:
    for body in (Cat((text("a"), Ref("S"))), Ref("S"), Cat((text("a"), Regular(regular.EMPTY))), Rep(Ref("S"), 1, 2)):
        assert grammar.automaton({"S": body}, "S").start() is None
    assert grammar.automaton({"S": Rep(Ref("S"), 2, 1)}, "S").start() is None


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(CompileError, match="'T' is not defined"):
        grammar.automaton({"S": Ref("T")}, "S")


def test_characters_split_over_bytes() -> None:
    rules: dict[str, Body] = {"S": Alt((Cat((one_of("é€𝄞"), Ref("S"), text("è"))), text("")))}
    machine = grammar.automaton(rules, "S")
    assert automaton.accepts(machine, "é€𝄞èèè".encode())
    state = automaton.run(machine, "é".encode()[:1])
    assert [b for b in range(256) if machine.step(state, b) is not None] == [0xA9]
    state = automaton.run(machine, "é".encode())
    assert [b for b in range(256) if machine.step(state, b) is not None] == sorted({0xC3, 0xE2, 0xF0})


def test_an_embedded_automaton_may_end_or_go_on() -> None:
    digits = Utf8(regular.repeat(one_of("12").node, 1, None))
    rules: dict[str, Body] = {
        "S": Alt((Cat((Embedded(digits), text("2"), Ref("S"))), Cat((text("("), Ref("S"), text(")"))), text("")))
    }
    agrees(rules, "S", 5, "12(")
    quoted = JsonString(regular.ANY)
    machine = grammar.automaton({"S": Alt((Cat((text("<"), Ref("S"), text(">"))), Embedded(quoted)))}, "S")
    assert automaton.accepts(machine, b'<<"\\u0041>">>')
    assert automaton.run(machine, b'<"\\q') is None


def test_an_embedded_automaton_may_be_empty() -> None:
    agrees({"S": Alt((Cat((text("a"), Ref("S"), Embedded(Utf8(regular.EPSILON)))), text("b")))}, "S", 5)
    agrees({"S": Alt((Cat((text("a"), Ref("S"), Embedded(Utf8(regular.EMPTY)))), text("b")))}, "S", 5)
    agrees({"S": Cat((Embedded(Utf8(regular.star(text("a").node))), Rep(Ref("S"), 0, 1)))}, "S", 5)


@pytest.mark.parametrize("case", ["left recursion", "right recursion"])
def test_a_list_comes_back_to_the_same_state(case: str) -> None:
    rules = CASES[case][0]
    machine = grammar.automaton(rules, "S")
    sign = b"+" if case == "left recursion" else b","
    state = automaton.run(machine, b"x")
    for _ in range(3):
        again = state
        for byte in sign + b"x":
            again = machine.step(again, byte)
        assert again is state


def test_nesting_alone_lets_a_state_grow_and_closing_gives_the_old_state_back() -> None:
    machine = grammar.automaton(LEFT, "S")
    start = automaton.run(machine, b"(x")
    state = start
    for _ in range(5_000):
        for byte in b"+(x":
            state = machine.step(state, byte)
    assert sum(1 for _ in state.places) <= 2
    for _ in range(5_000):
        state = machine.step(state, ord(")"))
    assert state is start


def test_an_ambiguous_grammar_stays_small() -> None:
    rules = CASES["ambiguity"][0]
    machine = grammar.automaton(rules, "S")
    state = automaton.run(machine, b"a" * 3000)
    assert state is not None
    assert machine.accepting(state)
    assert len(state.places) + len(state.live) < 10


def test_remembered_steps_are_bounded_and_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "MEMO_BOUND", 50)
    machine = grammar.automaton(LEFT, "S")
    random_ = random.Random(7)
    state, other = machine.start(), grammar.automaton(LEFT, "S")
    shadow = other.start()
    tracemalloc.start()
    sizes = []
    for i in range(4000):
        byte = random_.choice([b for b in b"x+()" if machine.step(state, b) is not None])
        state, shadow = machine.step(state, byte), other.step(shadow, byte)
        assert machine.accepting(state) == other.accepting(shadow)
        if i % 1000 == 999:
            gc.collect()
            sizes.append(len(machine._states))
    tracemalloc.stop()
    assert max(sizes) < 400


def test_two_threads_meet_the_same_states() -> None:
    machine = grammar.automaton(LEFT, "S")
    literal = b"(x+((x)+x)+(x+x))+x" * 1
    ends: list[Any] = []

    def work() -> None:
        for _ in range(50):
            ends.extend([automaton.run(machine, literal)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 200
    assert all(end is ends[0] and machine.accepting(end) for end in ends)


def test_viable_bytes_are_those_that_a_step_does_not_refuse() -> None:
    rules: dict[str, Body] = {
        "S": Alt((Cat((one_of("é€𝄞a"), Ref("S"), text("è"))), Embedded(JsonString(regular.ANY)), Ref("T"), text(""))),
        "T": Cat((text("("), Rep(Ref("S"), 1, 2), text(")"))),
    }
    machine: Any = grammar.automaton(rules, "S")
    random_ = random.Random(3)
    for _ in range(40):
        state = machine.start()
        for _ in range(8):
            viable = [b for b in range(256) if machine.step(state, b) is not None]
            assert machine.viable_bytes(state) == viable
            if not viable:
                break
            state = machine.step(state, random_.choice(viable))


def test_bounds_are_declared() -> None:
    with pytest.raises(TooComplex, match="a repetition beyond"):
        grammar.automaton({"S": Rep(Ref("T"), 0, 10**6), "T": Alt((Ref("S"), text("a")))}, "S")
    with pytest.raises(TooComplex, match="places"):
        many = tuple(Rep(Ref("T"), 0, 50_000) for _ in range(3))
        grammar.automaton({"S": Cat(many), "T": Alt((Cat((Ref("S"), text("b"))), text("a")))}, "S")


def test_counted_and_nested_without_recursion_is_one_regular_language() -> None:
    rules: dict[str, Body] = {"S": Rep(Cat((Ref("T"), text("\n"))), 1, 40), "T": Rep(one_of("ab"), 0, 38)}
    machine = grammar.automaton(rules, "S")
    assert isinstance(machine, Utf8)
    assert automaton.accepts(machine, b"ab\n" * 40)
    assert automaton.run(machine, b"ab\n" * 40 + b"a") is None
