"""A text that is read from left to right, with errors that name line and column. Shared by the grammar notations."""

from __future__ import annotations

from harness.errors import CompileError, UnsupportedError
from harness.reference import codepoints
from harness.reference.codepoints import Ranges

_HEX = "0123456789abcdefABCDEF"


class Source:
    """``what`` names the notation in errors; ``at`` is where reading stands."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.at = 0
        self._what = what

    def where(self, at: int | None = None) -> str:
        at = self.at if at is None else at
        line_start = self.text.rfind("\n", 0, at) + 1
        return f"{self._what}, line {self.text.count(chr(10), 0, at) + 1}, column {at - line_start + 1}"

    def malformed(self, why: str, at: int | None = None) -> CompileError:
        return CompileError(f"{self.where(at)}: {why}")

    def unsupported(self, why: str, keyword: str, at: int | None = None) -> UnsupportedError:
        return UnsupportedError(f"{self.where(at)}: {why}", keyword=keyword)

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.text[at] if at < len(self.text) else ""

    def take(self, literal: str) -> bool:
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.malformed("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def while_in(self, characters: str) -> str:
        """The longest run of characters out of a set, maybe empty."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in characters:
            self.at += 1
        return self.text[start : self.at]

    def number(self) -> int:
        at = self.at
        digits = self.while_in("0123456789")
        if not digits:
            raise self.malformed("a number is needed")
        if len(digits) > 9:
            raise self.malformed(f"the number {digits[:20]}… is too large", at)
        return int(digits)

    def hexadecimal(self, digits: int | None) -> int:
        """A code point of so many digits (None: as many as there are)."""
        at = self.at
        found = self.while_in(_HEX) if digits is None else self.text[at : at + digits]
        if not found or found.strip(_HEX) or (digits is not None and len(found) < digits):
            raise self.malformed(f"{digits or 'some'} hexadecimal digits are needed", at)
        self.at = at + len(found)
        value = int(found, 16)
        if value > codepoints.MAX:
            raise self.malformed(f"a code point above U+10FFFF: {found}", at)
        return value

    def character(self, code_point: int, at: int) -> int:
        """A code point that stands for itself in a text: it needs a spelling in UTF-8."""
        if codepoints.SURROGATES[0] <= code_point <= codepoints.SURROGATES[1]:
            raise self.unsupported("a surrogate has no spelling in UTF-8", "surrogate", at)
        return code_point

    def span(self, low: int, high: int, at: int) -> Ranges:
        """A range in a character class."""
        if low > high:
            raise self.malformed(f"the range {chr(low)}-{chr(high)} runs backwards", at)
        return ((low, high),)

    def bounds(self, low: int, high: int | None, at: int) -> tuple[int, int | None]:
        """The numbers of a counted repetition."""
        if high is not None and low > high:
            raise self.malformed(f"the repetition {{{low},{high}}} asks for at least {low} and at most {high}", at)
        return low, high
