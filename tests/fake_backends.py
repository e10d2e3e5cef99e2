"""Backends that misbehave on purpose, each in one way, named ``tests.fake_backends:Hang`` and the like.

All are the same small, right engine for ``choice`` constraints (a token is allowed if its bytes keep some choice
reachable), with a fault put in at one place. Options: ``at``, the place: ``compile``, ``fill`` (every row, so
verification meets it first) or ``accept`` (the accept stage's body alone); ``flag``, a file: the fault happens only
while that file is absent, and makes it, so that a second attempt goes well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness import bitmask
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary, synthetic


class Matcher:
    """A right matcher, whose history is the bytes accepted so far, token by token."""

    def __init__(self, backend: Fake, choices: tuple[bytes, ...], vocabulary: Vocabulary) -> None:
        self._backend = backend
        self._choices = choices
        self._vocabulary = vocabulary
        self._history: list[int] = []

    def _text(self) -> bytes:
        return self._vocabulary.decode(self._history)

    def _allows(self, token: int) -> bool:
        if token in self._vocabulary.eos_ids:
            return self._text() in self._choices
        after = self._text() + self._vocabulary.tokens[token]
        return bool(self._vocabulary.tokens[token]) and any(c.startswith(after) for c in self._choices)

    def fill(self, row: Row) -> None:
        self._backend.meet("fill")
        allowed = np.fromiter((self._allows(t) for t in range(self._vocabulary.size)), dtype=np.bool_)
        row[:] = bitmask.pack(allowed)
        self._backend.spoil(row)

    def accept(self, token: int) -> bool:
        allowed = self._allows(token)
        if allowed:
            self._history.append(token)
        return allowed

    def is_accepting(self) -> bool:
        return self._text() in self._choices

    def validate(self, tokens: Sequence[int]) -> int:
        count = 0
        while count < len(tokens) and self.accept(tokens[count]):
            count += 1
        self.rollback(count)
        return count

    def rollback(self, count: int) -> None:
        if count:
            del self._history[-count:]

    def forced(self) -> bytes:
        raise NotImplementedError

    def fork(self) -> Matcher:
        copy = Matcher(self._backend, self._choices, self._vocabulary)
        copy._history = list(self._history)
        return copy

    def reset(self) -> None:
        self._history.clear()

    def fill_call(self, row: Row) -> Callable[[], object]:
        return partial(self.fill, row)

    def accept_call(self) -> Callable[[int], object]:
        def accept(token: int) -> bool:
            self._backend.meet("accept")
            return self.accept(token)

        return accept

    def validate_call(self) -> Callable[[list[int]], object]:
        return self.validate

    def rollback_call(self) -> Callable[[int], object]:
        return self.rollback


class Grammar:
    def __init__(self, backend: Fake, choices: tuple[bytes, ...], vocabulary: Vocabulary) -> None:
        self._make = partial(Matcher, backend, choices, vocabulary)

    def native_matcher(self) -> Matcher:
        return self._make()


class Fake:
    """The engine, with ``fault`` called where ``at`` says, and ``spoil`` called on every row."""

    name = "fake"
    version = "1.0"
    capabilities = Capabilities(kinds=frozenset({"choice"}), rollback=True, fork=True, reset=True, validate=True)
    profiles: Mapping[str, Profile] = {"default": Profile()}

    def __init__(
        self,
        fault: Callable[[], object] = lambda: None,
        spoil: Callable[[Row], object] = lambda _: None,
        at: str = "compile",
        flag: str = "",
    ) -> None:
        self._fault = fault
        self._at = at
        self._flag = Path(flag) if flag else None
        self.spoil = spoil

    def meet(self, place: str) -> None:
        if place != self._at or (self._flag and self._flag.exists()):
            return
        if self._flag:
            self._flag.touch()
        self._fault()

    def load(self) -> None: ...

    def bind(self, vocabulary: Vocabulary) -> None: ...

    def forget(self) -> None: ...

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Grammar:
        if constraint.kind != "choice":
            raise UnsupportedError(f"the fake compiles choices only, not {constraint.kind}")
        self.meet("compile")
        return Grammar(self, tuple(c.encode() for c in constraint.json()), vocabulary)


# The faults.


def _busy() -> None:
    while True:
        pass


def _sleep_with_the_gil() -> None:
    ctypes.PyDLL(None).sleep(3600)  # PyDLL does not give the GIL back during the call


def _eat_memory() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20)) * 16)
        time.sleep(0.01)  # about 1 GiB/s, so that looks at memory and the limit meet


def _eat_memory_in_a_child() -> None:
    subprocess.run([sys.executable, "-c", "from tests.fake_backends import _eat_memory; _eat_memory()"], check=False)


def _segfault() -> None:
    ctypes.string_at(0)


def _raise() -> None:
    raise RuntimeError("the library broke an invariant\nand says so on two lines")


def _refuse_to_compile() -> None:
    raise CompileError("line 1: no such rule")


def _refuse() -> None:
    raise UnsupportedError("the fake does not do this", keyword="uniqueItems", pointer="/items")


def _print_garbage() -> None:
    print('{"event":"done"} said by a library')
    os.write(1, b"\xff\xfe raw bytes from C\n")
    ctypes.CDLL(None).puts(b"buffered by C's own stdio")
    print("and a complaint", file=sys.stderr)


def _print_a_flood() -> None:
    for _ in range(64):
        os.write(1, b"x" * (1 << 20))


def _write_to_the_protocol() -> None:
    """What a library that writes to any descriptor it finds would do."""
    for fd in range(3, 64):
        try:
            os.write(fd, b"garbage\n")
        except OSError:  # not open, or not for writing
            continue


def _forge(line: bytes) -> Callable[[], None]:
    def forge() -> None:
        for fd in range(3, 64):
            try:
                os.write(fd, line)
            except OSError:
                continue

    return forge


def _leave_a_child() -> None:
    """Start a process that outlives this one, and say which it is."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(f"child {child.pid}")
    sys.stdout.flush()


def _leave_a_fork_holding_everything() -> None:
    """A fork (not an exec) keeps every descriptor open, the protocol's too, and the parent dies."""
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(7)


def _flip(token: int, row: Row) -> None:
    bitmask.set_bit(row, token, not bitmask.test(row, token))


# Named by their place, as a third party's backend would be.

Good = Fake
Hang = partial(Fake, partial(time.sleep, 3600))
HangBusy = partial(Fake, _busy)
HangWithGil = partial(Fake, _sleep_with_the_gil)
Segfault = partial(Fake, _segfault)
Killed = partial(Fake, lambda: os.kill(os.getpid(), signal.SIGKILL))
Runaway = partial(Fake, _eat_memory)
RunawayChild = partial(Fake, _eat_memory_in_a_child)
Raises = partial(Fake, _raise)
RefusesToCompile = partial(Fake, _refuse_to_compile)
Refuses = partial(Fake, _refuse)
Exits = partial(Fake, lambda: os._exit(0))
ExitsPolitely = partial(Fake, lambda: sys.exit(0))
Garbage = partial(Fake, _print_garbage)
Flood = partial(Fake, _print_a_flood)
BreaksProtocol = partial(Fake, _write_to_the_protocol)
ForgesDone = partial(Fake, _forge(b'{"event":"done"}\n'))
LeavesChild = partial(Fake, _leave_a_child)
LeavesFork = partial(Fake, _leave_a_fork_holding_everything)


def HangWithChild(flag: str, **options: Any) -> Fake:  # noqa: N802 - named like the others
    """Start a child, write its pid into the flag file, and hang holding the GIL."""

    def hang() -> None:
        child = subprocess.Popen(["sleep", "3600"])
        Path(flag).write_text(str(child.pid))
        _sleep_with_the_gil()

    return Fake(hang, flag=flag, **options)


def FlipsZ(**options: Any) -> Fake:  # noqa: N802 - named like the others
    """``Flips`` with the token of one letter that begins no choice of the tests."""
    return Flips(synthetic().tokens.index(b"z"), **options)


def Flips(token: int, **options: Any) -> Fake:  # noqa: N802 - named like the others
    """One bit of every row is wrong: the bit of ``token``."""
    return Fake(spoil=partial(_flip, token), **options)
