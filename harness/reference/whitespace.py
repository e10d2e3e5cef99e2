"""Where white space may stand between JSON tokens, by profile.

A *gap* is the number of white space characters read in one place, as far as it matters. ``step`` says whether one more
may follow; ``ready`` whether a token may follow what was read. In the exact policies (``spaced``, ``indented``) what
must stand in a place depends on the token after it.
"""

from __future__ import annotations

from typing import Literal

from harness.profile import Profile

# Before the document; after it; after an opening bracket; after a comma; after a key's colon; between a key and its
# colon; after a member (before a comma or a closing bracket).
Where = Literal["start", "end", "open", "comma", "colon", "key", "member"]
Token = Literal["value", "close", "comma", "colon"]
SPACES = frozenset(b" \t\n\r")


class Whitespace:
    def __init__(self, profile: Profile) -> None:
        self._kind = profile.whitespace
        self._limit = {"bounded": profile.whitespace_limit, "one_space": 1}.get(profile.whitespace, 0)
        self._indent = profile.indent
        self._outer = profile.outer_whitespace

    @property
    def is_exact(self) -> bool:
        """Whether what may stand in a place depends on the token after it."""
        return self._kind in ("spaced", "indented")

    def step(self, where: Where, gap: int, depth: int, byte: int, tokens: tuple[Token, ...]) -> int | None:
        """The gap after one more white space byte, where one of ``tokens`` can follow; None: it may not stand here."""
        if where in ("start", "end"):
            if not self._outer or self._kind in ("compact", "spaced", "indented"):
                return None
        elif self._kind in ("spaced", "indented"):
            for token in tokens:
                wanted = self._exact(where, depth, token)
                if gap < len(wanted) and wanted[gap] == byte:
                    return gap + 1
            return None
        if self._kind == "any":
            return 0
        if self._kind == "compact" or gap >= self._limit:
            return None
        return gap + 1 if self._kind == "bounded" or byte == 0x20 else None

    def ready(self, where: Where, gap: int, depth: int, token: Token) -> bool:
        """Whether ``token`` may come after the white space read."""
        if self._kind not in ("spaced", "indented") or where in ("start", "end"):
            return True
        return gap == len(self._exact(where, depth, token))

    def _exact(self, where: Where, depth: int, token: Token) -> bytes:
        if where == "colon" or (where == "comma" and self._kind == "spaced"):
            return b" "
        if self._kind == "indented":
            if where == "comma" or (where == "open" and token == "value"):
                return b"\n" + b" " * (self._indent * depth)
            if where == "member" and token == "close":
                return b"\n" + b" " * (self._indent * (depth - 1))
        return b""
