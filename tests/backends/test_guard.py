"""The guard gives every library the same edges, whatever the library does, and never decides for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness import bitmask
from harness.backends import guard
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.errors import UnsupportedError
from harness.vocabulary import Vocabulary

# ids:                          0    1     2     3    4 = eos
TINY = Vocabulary("tiny", (b"", b"a", b"b", b"c", b""), (4,), frozenset({0, 4}))
A, B, C, EOS = 1, 2, 3, 4

ALL = Capabilities(
    kinds=frozenset({"regex"}), rollback=True, fork=True, reset=True, validate=True, forced=True, native_batch=False
)


def without(**changes: Any) -> Capabilities:
    return dataclasses.replace(ALL, **changes)


class Careless:
    """A native matcher for ``a*`` that gets every edge wrong: it sets all bits of a row, special and padding ones
    too, and takes anything that it is given. It writes down its calls."""

    def __init__(self, calls: list[tuple[str, Any]] | None = None, taken: Sequence[int] = ()) -> None:
        self.calls = [] if calls is None else calls
        self.taken = list(taken)

    def fill(self, row: Row) -> None:
        self.calls.append(("fill", None))
        row[:] = -1

    def accept(self, token: int) -> bool:
        self.calls.append(("accept", token))
        if token not in (A, EOS):
            return False
        self.taken.append(token)
        return True

    def is_accepting(self) -> bool:
        return len(self.taken) % 2 == 0

    def validate(self, tokens: Sequence[int]) -> int:
        self.calls.append(("validate", tuple(tokens)))
        return next((i for i, t in enumerate(tokens) if t not in (A, EOS)), len(tokens))

    def rollback(self, count: int) -> None:
        self.calls.append(("rollback", count))
        del self.taken[-count:]

    def forced(self) -> bytes:
        self.calls.append(("forced", None))
        return b"a"

    def fork(self) -> Careless:
        self.calls.append(("fork", None))
        return Careless(self.calls, self.taken)

    def reset(self) -> None:
        self.calls.append(("reset", None))
        self.taken.clear()

    fill_call = accept_call = validate_call = rollback_call = None  # type: ignore[assignment]


def start(capabilities: Capabilities = ALL) -> guard.Matcher:
    return guard.Matcher(Careless(), TINY, capabilities)  # type: ignore[arg-type]


def calls(matcher: guard.Matcher, name: str) -> list[Any]:
    return [argument for called, argument in matcher.native.calls if called == name]  # type: ignore[attr-defined]


def row_of(matcher: guard.Matcher) -> list[int]:
    row = bitmask.allocate_row(TINY.size)
    matcher.fill(row)
    return [t for t in range(32) if bitmask.test(row, t)]


def test_special_bits_and_padding_are_cleared_and_eos_is_left_to_the_library() -> None:
    assert row_of(start()) == [A, B, C, EOS]


def test_after_the_end_a_row_is_empty_and_the_library_is_not_asked() -> None:
    matcher = start()
    assert matcher.accept(EOS)
    assert row_of(matcher) == []
    assert calls(matcher, "fill") == []


@pytest.mark.parametrize(
    "row",
    [
        np.zeros(2, np.int32),
        np.zeros(0, np.int32),
        np.zeros((1, 1), np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.uint32),
        [0],
        None,
    ],
)
def test_a_wrong_row_is_refused_before_the_library_sees_it(row: Any) -> None:
    matcher = start()
    with pytest.raises(ValueError, match="mask row"):
        matcher.fill(row)
    assert calls(matcher, "fill") == []


def test_a_wrong_row_is_refused_after_the_end_too() -> None:
    matcher = start()
    matcher.accept(EOS)
    with pytest.raises(ValueError, match="mask row"):
        matcher.fill(np.zeros(2, np.int32))


def test_special_tokens_are_refused_without_asking() -> None:
    matcher = start()
    assert matcher.accept(0) is False
    assert matcher.validate([0]) == 0
    assert matcher.native.calls == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("token", [-1, 5, 31, 1 << 40])
def test_an_id_outside_the_vocabulary_is_a_value_error(token: int) -> None:
    matcher = start()
    with pytest.raises(ValueError, match="outside the vocabulary of 5"):
        matcher.accept(token)
    with pytest.raises(ValueError, match="outside the vocabulary of 5"):
        matcher.validate([A, token])


def test_an_id_outside_is_a_value_error_after_the_end_too() -> None:
    matcher = start()
    matcher.accept(EOS)
    with pytest.raises(ValueError, match="outside"):
        matcher.accept(5)


def test_what_the_library_refuses_is_refused_and_not_remembered() -> None:
    matcher = start()
    assert matcher.accept(A) is True
    assert matcher.accept(B) is False
    assert matcher.history == (A,)
    assert calls(matcher, "accept") == [A, B]


def test_nothing_follows_the_end() -> None:
    matcher = start()
    matcher.accept(EOS)
    assert matcher.is_terminated
    assert matcher.is_accepting
    assert not any(matcher.accept(token) for token in range(TINY.size))
    assert matcher.validate([A]) == 0
    assert matcher.forced() == b""
    assert matcher.history == (EOS,)
    assert calls(matcher, "accept") == [EOS]
    assert calls(matcher, "validate") == calls(matcher, "forced") == []


def test_accepting_is_the_library_s_word() -> None:
    matcher = start()
    assert matcher.is_accepting
    matcher.accept(A)
    assert not matcher.is_accepting
    assert not matcher.is_terminated


def test_validate_hands_over_what_is_possible_up_to_the_first_eos() -> None:
    matcher = start()
    assert matcher.validate([A, EOS, A, A]) == 2
    assert matcher.validate([A, A, 0, A]) == 2
    assert matcher.validate([A, B, A]) == 1
    assert matcher.validate([]) == 0
    assert calls(matcher, "validate") == [(A, EOS), (A, A), (A, B, A)]


def test_validate_without_a_call_of_its_own_is_a_fork_and_else_accepting_and_rewinding() -> None:
    matcher = start(without(validate=False))
    assert matcher.validate([A, A, B, A]) == 2
    assert calls(matcher, "fork") == [None]
    assert matcher.native.taken == []  # type: ignore[attr-defined]

    matcher = start(without(validate=False, fork=False))
    assert matcher.validate([A, A, B, A]) == 2
    assert calls(matcher, "rollback") == [2]
    assert matcher.validate([B]) == 0
    assert calls(matcher, "rollback") == [2]  # nothing to rewind
    assert matcher.native.taken == []  # type: ignore[attr-defined]
    assert matcher.history == ()

    matcher = start(without(validate=False, fork=False, rollback=False))
    with pytest.raises(UnsupportedError, match="validate: the library has no rollback"):
        matcher.validate([A])
    assert matcher.native.calls == []  # type: ignore[attr-defined]


def test_rollback_over_the_end_reopens() -> None:
    matcher = start()
    for token in (A, A, EOS):
        assert matcher.accept(token)
    matcher.rollback(2)
    assert matcher.history == (A,)
    assert not matcher.is_terminated
    assert row_of(matcher) == [A, B, C, EOS]
    assert calls(matcher, "rollback") == [2]


@pytest.mark.parametrize("count", [3, -1])
def test_rollback_past_the_start_is_a_value_error(count: int) -> None:
    matcher = start()
    matcher.accept(A)
    matcher.accept(A)
    with pytest.raises(ValueError, match="roll back"):
        matcher.rollback(count)
    assert matcher.history == (A, A)
    assert calls(matcher, "rollback") == []


def test_rollback_of_nothing_is_not_handed_on() -> None:
    matcher = start()
    matcher.rollback(0)
    assert calls(matcher, "rollback") == []


def test_a_fork_has_a_history_and_a_state_of_its_own() -> None:
    matcher = start()
    matcher.accept(A)
    copy = matcher.fork()
    assert copy.accept(EOS)
    assert copy.history == (A, EOS)
    assert matcher.history == (A,)
    assert not matcher.is_terminated
    assert copy.native is not matcher.native
    assert row_of(copy) == []
    assert row_of(matcher) == [A, B, C, EOS]


def test_reset_forgets_the_end() -> None:
    matcher = start()
    matcher.accept(EOS)
    matcher.reset()
    assert matcher.history == ()
    assert not matcher.is_terminated
    assert matcher.accept(A)


@pytest.mark.parametrize("capability", ["rollback", "fork", "reset", "forced"])
def test_a_missing_capability_is_an_unsupported_error_with_its_note(capability: str) -> None:
    def call(matcher: guard.Matcher) -> None:
        method = getattr(matcher, capability)
        method(0) if capability == "rollback" else method()

    with pytest.raises(UnsupportedError, match=f"the library has no {capability}"):
        call(start(without(**{capability: False})))
    with pytest.raises(UnsupportedError, match="states are free"):
        call(start(without(**{capability: False}, notes={capability: "states are free"})))


def test_matcher_starts_from_a_grammar() -> None:
    class Compiled:
        def native_matcher(self) -> Any:
            return Careless()

    matcher = guard.matcher(Compiled(), TINY, ALL)
    assert isinstance(matcher.native, Careless)
    assert matcher.history == ()
