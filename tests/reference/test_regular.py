"""Regular languages over code points, against the ``regex`` package and by brute force."""

from __future__ import annotations

import gc
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reference import codepoints, regular
from harness.reference.automaton import TooComplex
from harness.reference.regular import Node

ALPHABET = "ab0é"


@st.composite
def pairs(draw: st.DrawFn, depth: int = 3) -> tuple[Node, str]:
    """A language without Boolean operations, and the same as text for the ``regex`` package."""
    if depth == 0:
        letters = draw(st.text(ALPHABET, min_size=1, max_size=3))
        if draw(st.booleans()):
            return regular.chars(codepoints.of(letters)), f"[{letters}]"
        return regular.text(letters), letters
    kind = draw(st.sampled_from(["leaf", "concat", "union", "repeat"]))
    if kind == "leaf":
        return draw(pairs(0))
    one, one_text = draw(pairs(depth - 1))
    if kind == "repeat":
        low = draw(st.integers(0, 2))
        high = draw(st.one_of(st.none(), st.integers(low, 4)))
        return regular.repeat(one, low, high), f"(?:{one_text}){{{low},{'' if high is None else high}}}"
    other, other_text = draw(pairs(depth - 1))
    if kind == "concat":
        return regular.concat(one, other), f"(?:{one_text})(?:{other_text})"
    return regular.union(one, other), f"(?:{one_text}|{other_text})"


WORDS = ["".join(w) for n in range(6) for w in itertools.product("ab0", repeat=n)] + ["é", "aé", "éa", "0é0"]


@settings(max_examples=80, deadline=None)
@given(pairs(), pairs())
def test_boolean_operations_mean_what_they_say(one: tuple[Node, str], other: tuple[Node, str]) -> None:
    first, second = regex.compile(one[1]), regex.compile(other[1])
    both = regular.intersection(one[0], other[0])
    only = regular.difference(one[0], other[0])
    for word in WORDS[:150] + WORDS[-4:]:
        a, b = bool(first.fullmatch(word)), bool(second.fullmatch(word))
        assert regular.matches(one[0], word) == a
        assert regular.matches(both, word) == (a and b)
        assert regular.matches(only, word) == (a and not b)
        assert regular.matches(regular.complement(one[0]), word) == (not a)
        assert regular.matches(regular.union(one[0], regular.complement(other[0])), word) == (a or not b)


@settings(max_examples=80, deadline=None)
@given(pairs(), pairs())
def test_emptiness_agrees_with_enumeration(one: tuple[Node, str], other: tuple[Node, str]) -> None:
    both = regular.intersection(one[0], other[0])
    found = regular.enumerate_texts(both, 3)
    assert regular.is_empty(both) == (not found)
    for word in found:
        assert regex.fullmatch(one[1], word)
        assert regex.fullmatch(other[1], word)


@settings(max_examples=80, deadline=None)
@given(pairs())
def test_live_code_points_are_those_after_which_something_follows(one: tuple[Node, str]) -> None:
    for c in ALPHABET:
        expected = not regular.is_empty(regular.derive(one[0], ord(c)))
        assert codepoints.contains(regular.live(one[0]), ord(c)) == expected


@given(st.sets(st.text("ab", max_size=4), min_size=1, max_size=12))
def test_texts_holds_exactly_its_texts(words: set[str]) -> None:
    node = regular.texts(words)
    assert {w for w in WORDS if regular.matches(node, w)} == words


def test_equal_languages_built_alike_are_one_object() -> None:
    a, b = regular.text("a"), regular.text("b")
    assert regular.union(a, b) is regular.union(b, a, b)
    assert regular.intersection(a, regular.ANY) is a
    assert regular.complement(regular.complement(regular.text("ab"))) is regular.text("ab")


def test_a_length_in_code_points_counts_astral_characters_once() -> None:
    two = regular.repeat(regular.ANY_CHAR, 2, 2)
    assert regular.matches(two, "😀é")
    assert not regular.matches(two, "😀")


def test_a_question_past_the_bound_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "EMPTINESS_BOUND", 50)
    odd = regular.repeat(regular.ANY_CHAR, 301, 301)
    with pytest.raises(TooComplex, match="more than 50 states"):
        regular.is_empty(regular.intersection(odd, regular.star(regular.text("zz"))))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=6), st.integers(0, 301))
def test_sets_of_code_points_are_sets(pairs_: list[tuple[int, int]], probe: int) -> None:
    one = codepoints.ranges(pairs_)
    member = any(low <= probe <= high for low, high in pairs_)
    assert codepoints.contains(one, probe) == member
    assert codepoints.contains(codepoints.complement(one), probe) == (not member)
    assert codepoints.intersection(one, codepoints.complement(one)) == ()
    assert codepoints.union(one, codepoints.complement(one)) == codepoints.ALL
    assert codepoints.meets(one, probe, probe + 5) == any(codepoints.contains(one, p) for p in range(probe, probe + 6))


def test_the_table_of_nodes_holds_only_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "MOVES_BOUND", 2_000)
    kept = regular.text("in use")
    gc.collect()
    others = len(regular._interned)  # of earlier tests, whose automata are still kept
    made = set()
    for i in range(40):
        node = regular.concat(regular.ANY, regular.text(f"a{i}"), regular.repeat(regular.ANY_CHAR, 20, 20))
        for c in f"a{i}a{i}a{i}" * 5:
            node = regular.derive(node, ord(c))
            made.add(node.id)
    del node
    gc.collect()
    assert len(regular._interned) - others < len(made) / 2
    assert len(made) > 200
    assert regular.text("in use") is kept


def test_what_was_forgotten_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = regular.concat(regular.ANY, regular.text("ab"), regular.repeat(regular.ANY_CHAR, 5, 5))
    before = regular.moves(node)
    monkeypatch.setattr(regular, "MOVES_BOUND", 1)
    regular.moves(regular.text("zz"))
    assert node._moves is None
    assert regular.moves(node) == before


def test_threads_agree_on_one_node() -> None:
    def build(_: int) -> list[regular.Node]:
        node = regular.concat(regular.ANY, regular.text("threads"), regular.repeat(regular.ANY_CHAR, 9, 9))
        found = []
        for c in "threadsthreads":
            node = regular.derive(node, ord(c))
            found.append(node)
        return found

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(build, range(200)))
    assert all(a is b for other in results for a, b in zip(results[0], other, strict=True))


def test_long_texts_and_long_chains_need_no_recursion() -> None:
    long = "ab" * 3000
    assert regular.matches(regular.union(regular.text(long), regular.text(long + "c")), long + "c")
    assert regular.matches(regular.concat(regular.text(long), regular.ANY), long + "zz")
    assert regular.matches(regular.texts([long, long[:-1], "a"]), long)
    assert regular.matches(regular.texts(["ab" * n for n in range(1, 1500)]), "ab" * 1499)
    chain = regular.concat(*(regular.optional(regular.text(c)) for c in long))
    assert regular.matches(chain, "ba")


@settings(max_examples=80, deadline=None)
@given(st.lists(pairs(2), min_size=2, max_size=4))
def test_a_union_of_like_languages_is_their_union(parts: list[tuple[Node, str]]) -> None:
    nodes = [regular.concat(parts[0][0], n) for n, _ in parts] + [parts[0][0], regular.EPSILON]
    judges = [regex.compile(f"(?:{parts[0][1]})(?:{t})") for _, t in parts] + [
        regex.compile(parts[0][1]),
        regex.compile(""),
    ]
    both = regular.union(*nodes)
    for word in WORDS[:150] + WORDS[-4:]:
        assert regular.matches(both, word) == any(bool(j.fullmatch(word)) for j in judges), word


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6), st.sampled_from(["", "a", "b", "ab"]))))
def test_counts_are_joined_only_where_they_meet(counts: list[tuple[int, int | None, str]]) -> None:
    a = regular.text("a")
    node = regular.union(*(regular.concat(regular.repeat(a, low, high), regular.text(t)) for low, high, t in counts))
    for n in range(9):
        for t in ("", "b", "ab"):
            word = "a" * n + t
            expected = any(
                low <= word.count("a") - end.count("a") and (high is None or word.count("a") - end.count("a") <= high)
                for low, high, end in counts
                if word.endswith(end) and word.count("b") == end.count("b")
            )
            assert regular.matches(node, word) == expected, word


@given(st.integers(0, 4), st.none() | st.integers(0, 4), st.integers(0, 4), st.none() | st.integers(0, 4))
def test_a_repetition_of_a_repetition_counts_right(a: int, b: int | None, c: int, d: int | None) -> None:
    node = regular.repeat(regular.repeat(regular.text("x"), a, b), c, d)
    if (b is not None and a > b) or (d is not None and c > d):
        return
    judge = regex.compile(f"(?:x{{{a},{'' if b is None else b}}}){{{c},{'' if d is None else d}}}")
    for n in range(20):
        assert regular.matches(node, "x" * n) == bool(judge.fullmatch("x" * n)), n
