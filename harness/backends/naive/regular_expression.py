"""Regular expressions: the subset that Rust, Python and ECMA-262 write and mean alike, and where they differ, the
dialect that the profile names. Whatever is not decided exactly is refused, with the construct as ``keyword``.

Read: literals, escapes, classes, the dot, groups (also named and non-capturing), alternation, ``* + ? {m} {m,} {m,n}``
greedy or lazy, and ``^`` and ``$`` at the ends of a branch of the whole pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from harness.backends.naive.expressions import (
    ANY_CHAR,
    EMPTY,
    TOP,
    Alt,
    Chars,
    Expr,
    Ranges,
    Repeat,
    Seq,
    complement,
    difference,
    text,
    union,
)
from harness.errors import UnsupportedError

Dialect = Literal["ecma262", "rust", "python"]
NESTING = 100

_LETTER_ESCAPES = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_QUANTIFIER = re.compile(r"([*+?])|\{([0-9]+)(?:(,)([0-9]*))?\}")
_GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>))?(?!\?)")
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# ECMA-262, WhiteSpace and LineTerminator.
_ECMA_SPACE: Ranges = union(
    ((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    ((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
# Unicode's White_Space, the same in every version since 6.3 (PropList.txt).
_UNICODE_SPACE: Ranges = union(difference(_ECMA_SPACE, ((0xFEFF, 0xFEFF),)), ((0x85, 0x85),))


def full_match(pattern: str, dialect: Dialect) -> Expr:
    """The texts that ``pattern`` matches from end to end."""
    return Alt(tuple(body for _, body, _ in _Parser(pattern, dialect).branches()))


def search(pattern: str, dialect: Dialect) -> Expr:
    """The texts in which ``pattern`` matches somewhere."""
    anything = Repeat(ANY_CHAR, 0, None)
    # Python's $ also matches before a newline that ends the text.
    end = Repeat(text("\n"), 0, 1) if dialect == "python" else EMPTY
    return Alt(
        tuple(
            Seq((EMPTY if at_start else anything, body, end if at_end else anything))
            for at_start, body, at_end in _Parser(pattern, dialect).branches()
        )
    )


@cache
def _python_class(letter: str) -> Ranges:
    """``\\d \\w \\s`` of the running interpreter's ``re`` for text, from the functions that it uses itself."""
    member: Callable[[str], bool] = {
        "d": str.isdecimal,
        "s": str.isspace,
        "w": lambda c: c.isalnum() or c == "_",
    }[letter]
    return union((c, c) for c in range(TOP + 1) if member(chr(c)))


def _named_class(letter: str, dialect: Dialect) -> Ranges:
    if letter.isupper():
        return complement(_named_class(letter.lower(), dialect))
    if dialect == "python":
        return _python_class(letter)
    if dialect == "ecma262":
        return {"d": _DIGITS, "w": _WORD, "s": _ECMA_SPACE}[letter]
    if letter == "s":
        return _UNICODE_SPACE
    raise UnsupportedError(
        f"\\{letter} of the rust dialect depends on the Unicode version of the library; write the class out",
        keyword=f"\\{letter}",
    )


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self._pattern = pattern
        self._dialect = dialect
        self._at = 0
        self._depth = 0

    def branches(self) -> list[tuple[bool, Expr, bool]]:
        """The top-level alternatives: anchored at the start, what is between, anchored at the end."""
        out = []
        while True:
            at_start = self._take("^")
            body = self._sequence()
            out.append((at_start, body, self._take("$")))
            if not self._take("|"):
                break
        if self._at < len(self._pattern):
            raise self._refusal(")", "unbalanced parenthesis")
        return out

    def _alternation(self) -> Expr:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return Alt(tuple(parts))

    def _sequence(self) -> Expr:
        parts: list[Expr] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if self._pattern[self._at] == "$" and not self._depth and self._pattern[self._at + 1 :][:1] in ("", "|"):
                break
            parts.append(self._quantified())
        return Seq(tuple(parts))

    def _quantified(self) -> Expr:
        atom = self._atom()
        found = _QUANTIFIER.match(self._pattern, self._at)
        if not found:
            return atom
        self._at = found.end()
        self._take("?")  # lazy: the same language
        if self._peek() in ("*", "+", "?", "{"):
            raise self._refusal(self._peek(), "a quantifier after a quantifier means different things in the dialects")
        sign, low, comma, high = found.groups()
        if sign:
            return Repeat(atom, 1 if sign == "+" else 0, 1 if sign == "?" else None)
        bounds = int(low), (int(high) if high else None) if comma else int(low)
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self._refusal("{", "the bounds of a repetition are the wrong way round")
        return Repeat(atom, *bounds)

    def _atom(self) -> Expr:
        c = self._pattern[self._at]
        match c:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case "\\":
                return Chars(self._escape())
            case ".":
                self._at += 1
                newlines: Ranges = ((0x0A, 0x0A),)
                if self._dialect == "ecma262":
                    newlines = union(newlines, ((0x0D, 0x0D), (0x2028, 0x2029)))
                return Chars(complement(newlines))
            case "^" | "$":
                raise self._refusal(c, "an anchor that is not at the end of a branch of the whole pattern")
            case "*" | "+" | "?" | "{":
                raise self._refusal(c, "nothing to repeat, or a brace that is no repetition")
        self._at += 1
        return Chars(((ord(c), ord(c)),))

    def _group(self) -> Expr:
        found = _GROUP.match(self._pattern, self._at)
        if not found:
            construct = self._pattern[self._at : self._at + 4]
            known = re.match(r"\(\?(<?[=!]|P?[>=(#]|.?)", construct, re.DOTALL)
            raise self._refusal(known.group() if known else "(", "look-around, flags and other special groups")
        self._at = found.end()
        self._depth += 1
        if self._depth > NESTING:
            raise self._refusal("(", f"groups nested deeper than {NESTING}")
        body = self._alternation()
        if not self._take(")"):
            raise self._refusal("(", "unbalanced parenthesis")
        self._depth -= 1
        return body

    def _class(self) -> Ranges:
        self._at += 1
        negated = self._take("^")
        if self._peek() == "]":
            raise self._refusal("[]", "a bracket right after the opening one means different things in the dialects")
        out: list[Ranges] = []
        while not self._take("]"):
            first = self._class_atom()
            if self._peek() == "-" and self._pattern[self._at + 1 :][:1] not in ("]", "-", ""):
                self._at += 1
                last = self._class_atom()
                if not (_is_single(first) and _is_single(last) and first[0][0] <= last[0][0]):
                    raise self._refusal("[", "a range needs two characters in order at its ends")
                out.append(((first[0][0], last[0][0]),))
            else:
                out.append(first)
        members = union(*out)
        return complement(members) if negated else members

    def _class_atom(self) -> Ranges:
        c = self._peek()
        if not c:
            raise self._refusal("[", "a class that is not closed")
        if c == "\\":
            return self._escape()
        doubled = self._pattern[self._at : self._at + 2]
        if doubled in ("--", "&&", "~~", "||") or doubled == "[:" or (c == "[" and self._dialect == "rust"):
            raise self._refusal(doubled, "a set operation or a nested class in some dialect; escape it")
        self._at += 1
        return ((ord(c), ord(c)),)

    def _escape(self) -> Ranges:
        c = self._pattern[self._at + 1 :][:1]
        if c and c in "dwsDWS":
            self._at += 2
            return _named_class(c, self._dialect)
        if c in _LETTER_ESCAPES:
            self._at += 2
            return ((_LETTER_ESCAPES[c], _LETTER_ESCAPES[c]),)
        if c in ("x", "u"):
            braced = r"|\\u\{([0-9a-fA-F]{1,6})\}" if self._dialect != "python" else ""
            found = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})" + braced).match(self._pattern, self._at)
            if found:
                code = int(next(group for group in found.groups() if group), 16)
                if code > TOP or 0xD800 <= code <= 0xDFFF:
                    raise self._refusal(found.group(), "no code point outside surrogates")
                self._at = found.end()
                return ((code, code),)
        special = c in "<>" and self._dialect == "rust"
        if c and c.isascii() and not c.isalnum() and not special and c != "_":
            self._at += 2
            return ((ord(c), ord(c)),)
        raise self._refusal("\\" + c, "an escape outside the common subset (\\b, \\B, back-references, \\p …)")

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, c: str) -> bool:
        taken = self._peek() == c
        self._at += taken
        return taken

    def _refusal(self, construct: str, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"regular expression, at character {self._at}: {construct!r} is not in the subset: {why}",
            keyword=construct,
        )


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
