"""One of a list of texts, as an automaton over bytes: a tree of the texts, walked byte by byte.

A state is the number of a node of the tree; every node leads to the end of some text.
"""

from __future__ import annotations

from collections.abc import Iterable


class Choice:
    """Exactly one of ``texts``, in UTF-8."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._after: list[dict[int, int]] = [{}]
        self._ends: list[bool] = [False]
        self._empty = True
        for text in texts:
            self._empty = False
            at = 0
            for byte in text.encode():
                following = self._after[at].get(byte)
                if following is None:
                    following = self._after[at][byte] = len(self._after)
                    self._after.append({})
                    self._ends.append(False)
                at = following
            self._ends[at] = True

    def start(self) -> int | None:
        return None if self._empty else 0

    def step(self, state: int, byte: int) -> int | None:
        return self._after[state].get(byte)

    def accepting(self, state: int) -> bool:
        return self._ends[state]

    def viable_bytes(self, state: int) -> Iterable[int]:
        return self._after[state].keys()
