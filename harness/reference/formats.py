"""The formats that can be asserted, as regular languages. Others are refused by name."""

from __future__ import annotations

from harness.errors import UnsupportedError
from harness.reference.regular import Node


def language(name: str, draft: int, pointer: str) -> Node | None:
    """The strings of a format; None where the name is no format that the standard knows (it never binds then)."""
    raise UnsupportedError(f"format {name!r} as an assertion", keyword="format", pointer=pointer)
