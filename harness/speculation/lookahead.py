"""What a grammar says after other tokens, asked of matchers that were never rewound: the judge of those that were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness import bitmask
from harness.backends.protocol import NativeMatcher
from harness.bitmask import Row


class Fresh:
    """Rows and refusals after paths from one place; each is asked of a matcher of its own, once.

    stand: gives a fresh matcher at that place. Rows are the library's own (``fill_call``), as in a serving engine's
    loop, written over rows full of ones.
    """

    def __init__(self, stand: Callable[[], NativeMatcher], vocabulary_size: int) -> None:
        self._stand = stand
        self._size = vocabulary_size
        self._rows: dict[tuple[int, ...], Row] = {}
        self._accepted: dict[tuple[int, ...], bool] = {(): True}

    def row(self, path: tuple[int, ...]) -> Row:
        """The row after ``path``, int32, ``[words(V)]``. ValueError where the path is not accepted."""
        row = self._rows.get(path)
        if row is None:
            matcher = self._after(path)
            if matcher is None:
                raise ValueError(f"tokens {path} are not accepted here")
            row = self._rows[path] = row_of(matcher, self._size)
        return row

    def accepts(self, path: tuple[int, ...], token: int) -> bool:
        """Whether ``token`` is accepted after ``path``."""
        whole = (*path, token)
        if whole not in self._accepted:
            self._accepted[whole] = self._after(whole) is not None
        return self._accepted[whole]

    def _after(self, path: tuple[int, ...]) -> NativeMatcher | None:
        matcher = self._stand()
        return matcher if all(map(matcher.accept, path)) else None


def row_of(matcher: NativeMatcher, vocabulary_size: int) -> Row:
    """The library's own row of a matcher's state."""
    row = np.full(bitmask.words(vocabulary_size), -1, dtype=np.int32)
    matcher.fill_call(row)()
    return row
