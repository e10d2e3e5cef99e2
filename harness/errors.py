"""The errors that carry meaning through the project. Worker side: standard library only."""

from __future__ import annotations


class MasktaxError(Exception):
    """Bad input or a broken set-up: one line saying what, where, and what to do. The command exits with 2."""


class UnsupportedError(Exception):
    """The backend, by its own nature, cannot do what is asked. An honest answer, raised before anything is timed.

    ``reason`` is one line; ``keyword`` and ``pointer`` (an RFC 6901 JSON pointer into the constraint) name the
    place where there is one.
    """

    def __init__(self, reason: str, *, keyword: str = "", pointer: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.keyword = keyword
        self.pointer = pointer


class CompileError(Exception):
    """The backend refused or failed to compile a constraint; the text is the library's own message."""
