"""Regular expressions as text → regular languages, by declared dialect.

Dialects: ``ecma262`` (ECMA-262 in Unicode mode, which JSON Schema asks for), ``rust``, ``python``. They differ in what
``\\d \\w \\s \\b`` and the dot mean, and in a few escapes. Read more leniently than the standards are: an escaped
punctuation character is itself, and a brace that starts no quantifier is itself; nothing with two meanings is guessed.
Refused by name: back-references, atomic groups and possessive quantifiers, inline flags, class set operations, Unicode
properties other than general categories and a few binary ones.

Look-ahead, look-behind, word boundaries and anchors anywhere are regular, and are read exactly (``regular.held``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from harness.errors import CompileError, UnsupportedError
from harness.reference import codepoints, regular
from harness.reference.codepoints import Ranges
from harness.reference.regular import Node

Dialect = Literal["ecma262", "rust", "python"]

# Counted repetition past this is refused: {0,1000000} is a denial of service, not a constraint.
REPEAT_BOUND = 100_000
# Groups nested deeper are refused; a reader that recurses must stop somewhere, and not where the caller happens to be.
NESTING_BOUND = 50


@dataclass(frozen=True)
class Chars:
    ranges: Ranges


@dataclass(frozen=True)
class Cat:
    parts: tuple[Ast, ...]


@dataclass(frozen=True)
class Alt:
    parts: tuple[Ast, ...]


@dataclass(frozen=True)
class Rep:
    part: Ast
    low: int
    high: int | None


@dataclass(frozen=True)
class Look:
    """A condition on a position: that ``part`` can (positive) or cannot follow (ahead) or precede it."""

    ahead: bool
    positive: bool
    part: Ast


@dataclass(frozen=True)
class Anchor:
    """The start (``^``) or the end (``$``) of the text."""

    at_end: bool


Ast = Chars | Cat | Alt | Rep | Look | Anchor
NOTHING = Cat(())


def compile(pattern: str, *, dialect: Dialect = "ecma262", search: bool) -> Node:
    """The language of the texts that a pattern matches.

    search: the pattern may match anywhere in the text (JSON Schema's ``pattern``); else it must match the whole text.
    CompileError for a malformed pattern, UnsupportedError for what is refused by name; both say at which character.
    """
    return language(parse(pattern, dialect), search=search)


def parse(pattern: str, dialect: Dialect = "ecma262") -> Ast:
    """The syntax tree of a pattern."""
    return _Parser(pattern, dialect).whole()


def language(tree: Ast, *, search: bool) -> Node:
    """The language of a syntax tree."""
    plain: dict[tuple[bool, bool], list[Node]] = {}
    whole = []
    for branch in tree.parts if isinstance(tree, Alt) else (tree,):
        open_left, open_right, inner, conditions = _branch(branch, search=search)
        if conditions:
            marked = regular.concat(*_around(open_left, inner, open_right))
            whole.append(regular.erase(regular.intersection(marked, *conditions)))
        else:
            plain.setdefault((open_left, open_right), []).append(inner)
    for (open_left, open_right), parts in plain.items():
        whole.append(regular.concat(*_around(open_left, regular.union(*parts), open_right)))
    return regular.union(*whole)


def _around(open_left: bool, inner: Node, open_right: bool) -> tuple[Node, Node, Node]:
    return (_ANY_TEXT if open_left else regular.EPSILON, inner, _ANY_TEXT if open_right else regular.EPSILON)


def _branch(tree: Ast, *, search: bool) -> tuple[bool, bool, Node, list[Node]]:
    """One top-level alternative: whether anything may stand on its left, on its right; it over marked texts; its
    conditions. Anchors at its ends are the common case and need no marks."""
    parts = list(tree.parts) if isinstance(tree, Cat) else [tree]
    open_left = open_right = search
    while parts and parts[0] == Anchor(at_end=False):
        parts.pop(0)
        open_left = False
    while parts and parts[-1] == Anchor(at_end=True):
        parts.pop()
        open_right = False
    conditions: list[Node] = []
    inner = _build(Cat(tuple(parts)), conditions)
    return open_left, open_right, inner, conditions


_ANY_TEXT = regular.ANY


def _build(tree: Ast, conditions: list[Node]) -> Node:
    """The language of a tree over marked texts; each condition met on the way is added to ``conditions``."""
    if isinstance(tree, Chars):
        return regular.chars(tree.ranges)
    if isinstance(tree, Cat):
        return regular.concat(*(_build(p, conditions) for p in tree.parts))
    if isinstance(tree, Alt):
        return regular.union(*(_build(p, conditions) for p in tree.parts))
    if isinstance(tree, Rep):
        return regular.repeat(_build(tree.part, conditions), tree.low, tree.high)
    number = len(conditions)
    conditions.append(regular.ANY)  # the place of this condition: those inside it are numbered on their own
    spot = regular.mark(regular.SPOT)
    inner: list[Node] = []
    if isinstance(tree, Anchor):
        where = regular.concat(_ANY_TEXT, spot) if tree.at_end else regular.concat(spot, _ANY_TEXT)
    else:
        part = _build(tree.part, inner)
        where = regular.concat(_ANY_TEXT, *((spot, part) if tree.ahead else (part, spot)), _ANY_TEXT)
    if inner:
        where = regular.erase(regular.intersection(where, *inner))
    conditions[number] = regular.held(number, where, positive=isinstance(tree, Anchor) or tree.positive)
    return regular.mark(number)


# --- character sets by dialect ---------------------------------------------------------------------------------


def _where(test: Callable[[str], bool]) -> Ranges:
    """The code points whose character passes a test, surrogates left out."""
    pairs: list[tuple[int, int]] = []
    for low, high in codepoints.SCALARS:
        start = None
        for c in range(low, high + 1):
            if test(chr(c)):
                if start is None:
                    start = c
            elif start is not None:
                pairs.append((start, c - 1))
                start = None
        if start is not None:
            pairs.append((start, high))
    return codepoints.ranges(pairs)


_ASCII_DIGIT: Ranges = ((0x30, 0x39),)
_ASCII_WORD: Ranges = codepoints.ranges([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
# ECMA-262 WhiteSpace and LineTerminator: TAB LF VT FF CR SP NBSP ZWNBSP LS PS and general category Zs.
_ECMA_SPACE: Ranges = codepoints.ranges(
    [(9, 13), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
     (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)  # fmt: skip
# Unicode White_Space (PropList.txt).
_WHITE_SPACE: Ranges = codepoints.ranges(
    [(9, 13), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
     (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
)  # fmt: skip
_LINE_ENDS: Ranges = codepoints.ranges([(10, 10), (13, 13), (0x2028, 0x2029)])

_CATEGORY_NAMES = {
    "letter": "L", "cased_letter": "LC", "uppercase_letter": "Lu", "lowercase_letter": "Ll", "titlecase_letter": "Lt",
    "modifier_letter": "Lm", "other_letter": "Lo", "mark": "M", "combining_mark": "M", "nonspacing_mark": "Mn",
    "spacing_mark": "Mc", "enclosing_mark": "Me", "number": "N", "decimal_number": "Nd", "digit": "Nd",
    "letter_number": "Nl", "other_number": "No", "punctuation": "P", "punct": "P", "connector_punctuation": "Pc",
    "dash_punctuation": "Pd", "open_punctuation": "Ps", "close_punctuation": "Pe", "initial_punctuation": "Pi",
    "final_punctuation": "Pf", "other_punctuation": "Po", "symbol": "S", "math_symbol": "Sm", "currency_symbol": "Sc",
    "modifier_symbol": "Sk", "other_symbol": "So", "separator": "Z", "space_separator": "Zs", "line_separator": "Zl",
    "paragraph_separator": "Zp", "other": "C", "control": "Cc", "cntrl": "Cc", "format": "Cf", "surrogate": "Cs",
    "private_use": "Co", "unassigned": "Cn",
}  # fmt: skip
_CATEGORIES = frozenset(_CATEGORY_NAMES.values())


@lru_cache(maxsize=256)
def category(name: str) -> Ranges | None:
    """The code points of a general category, by short or long name; None where there is no such category.

    By the Unicode version of this Python (``unicodedata.unidata_version``)."""
    short = name if name in _CATEGORIES else _CATEGORY_NAMES.get(name.lower())
    if short is None:
        return None
    wanted = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    found = _where(lambda c: unicodedata.category(c).startswith(wanted))
    return codepoints.union(found, (codepoints.SURROGATES,)) if short in ("C", "Cs") else found


@lru_cache(maxsize=16)
def _digits(dialect: Dialect) -> Ranges:
    return _ASCII_DIGIT if dialect == "ecma262" else category("Nd") or ()


@lru_cache(maxsize=16)
def _word(dialect: Dialect) -> Ranges:
    if dialect == "ecma262":
        return _ASCII_WORD
    if dialect == "python":
        return _where(lambda c: c.isalnum() or c == "_")
    raise UnsupportedError(
        "\\w and \\b of the rust dialect need Unicode's Alphabetic property, which Python does not have", keyword="\\w"
    )


def _space(dialect: Dialect) -> Ranges:
    if dialect == "ecma262":
        return _ECMA_SPACE
    # str.isspace adds U+001C…U+001F to White_Space.
    return codepoints.union(_WHITE_SPACE, ((0x1C, 0x1F),)) if dialect == "python" else _WHITE_SPACE


# --- the parser ------------------------------------------------------------------------------------------------

_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class _Parser:
    """Recursive descent over the pattern's characters."""

    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self._text = pattern
        self._dialect: Dialect = dialect
        self._at = 0
        self._depth = 0

    def whole(self) -> Ast:
        tree = self._alternatives()
        if self._at < len(self._text):
            raise self._malformed("an unmatched )")
        return tree

    def _malformed(self, what: str) -> CompileError:
        return CompileError(f"regular expression {self._text!r}, character {self._at}: {what}")

    def _unsupported(self, what: str, keyword: str) -> UnsupportedError:
        return UnsupportedError(f"regular expression {self._text!r}, character {self._at}: {what}", keyword=keyword)

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._text[at] if at < len(self._text) else ""

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._malformed("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, literal: str) -> bool:
        if self._text.startswith(literal, self._at):
            self._at += len(literal)
            return True
        return False

    def _alternatives(self) -> Ast:
        self._depth += 1
        if self._depth > NESTING_BOUND:
            raise self._unsupported("groups nested too deeply", "(")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _sequence(self) -> Ast:
        parts: list[Ast] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def _quantified(self) -> Ast:
        start = self._at
        part = self._atom()
        bare = self._is_assertion(start)
        quantified = False
        while True:
            at = self._at
            bounds = self._quantifier()
            if bounds is None:
                return part
            low, high = bounds
            if quantified and self._dialect != "rust":
                self._at = at
                raise self._malformed("a quantifier after a quantifier")
            if bare:
                self._at = at
                raise self._malformed("a quantifier after an assertion")
            if high is not None and low > high:
                raise self._malformed(f"a quantifier of {low} to {high}")
            if max(low, high or 0) > REPEAT_BOUND:
                raise self._unsupported(f"a repetition of more than {REPEAT_BOUND}", "{}")
            part = Rep(part, low, high)
            quantified = True
            if self._take("?"):
                pass  # lazy: the same language
            elif self._peek() == "+" and self._dialect == "python":
                raise self._unsupported("a possessive quantifier", "++")

    def _is_assertion(self, start: int) -> bool:
        """Whether what begins at ``start`` is an assertion that the dialect does not let be repeated as it stands."""
        if self._dialect == "rust":
            return False
        ahead = self._text[start : start + 4]
        if ahead[:1] in ("^", "$") or ahead[:2] in ("\\b", "\\B"):
            return True
        if self._dialect == "python":
            return ahead[:2] in ("\\A", "\\Z", "\\z")
        return ahead.startswith(("(?=", "(?!", "(?<=", "(?<!"))

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        inside = self._text[self._at + 1 : end] if end > 0 else ""
        low, comma, high = inside.partition(",")
        digits = "0123456789"
        if not low and comma and self._dialect == "python":
            low = "0"
        if not low or low.strip(digits) or high.strip(digits):
            return None
        self._at = end + 1
        return int(low), int(low) if not comma else int(high) if high else None

    def _atom(self) -> Ast:
        c = self._next()
        if c == "(":
            return self._group()
        if c == "[":
            return Chars(self._class())
        if c == ".":
            ends = _LINE_ENDS if self._dialect == "ecma262" else ((10, 10),)
            return Chars(codepoints.complement(ends))
        if c == "^":
            return Anchor(at_end=False)
        if c == "$":
            if self._dialect == "python":  # before a final newline too
                newline = Cat((Chars(((10, 10),)), Anchor(at_end=True)))
                return Alt((Anchor(at_end=True), Look(ahead=True, positive=True, part=newline)))
            return Anchor(at_end=True)
        if c in "*+?{":
            self._at -= 1
            if c != "{" or self._quantifier() is not None:
                raise self._malformed(f"{c} has nothing to repeat")
            self._at += 1
        if c == "\\":
            return self._escape()
        return Chars(((ord(c), ord(c)),))

    def _group(self) -> Ast:
        look: Callable[[Ast], Ast] | None = None
        if self._take("?"):
            if self._take(":"):
                pass
            elif self._take("="):
                look = lambda part: Look(ahead=True, positive=True, part=part)  # noqa: E731
            elif self._take("!"):
                look = lambda part: Look(ahead=True, positive=False, part=part)  # noqa: E731
            elif self._take("<="):
                look = lambda part: Look(ahead=False, positive=True, part=part)  # noqa: E731
            elif self._take("<!"):
                look = lambda part: Look(ahead=False, positive=False, part=part)  # noqa: E731
            elif self._take("P<") or self._take("<"):
                self._name()
            elif self._peek() == ">":
                raise self._unsupported("an atomic group", "(?>")
            elif self._text.startswith("P=", self._at):
                raise self._unsupported("a back-reference is not regular", "(?P=")
            elif not self._peek():
                raise self._malformed("it ends too early")
            else:
                raise self._unsupported("inline flags and other extensions", "(?")
        part = self._alternatives()
        if not self._take(")"):
            raise self._malformed("a ( without its )")
        return look(part) if look else part

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        if end < 0 or not self._text[self._at : end].replace("$", "_").isidentifier():
            raise self._malformed("a group's name")
        self._at = end + 1

    def _escape(self) -> Ast:
        c = self._peek()
        if c in "bB" and c:
            self._at += 1
            return self._boundary(positive=c == "b")
        if c in "AzZ" and c and self._dialect != "ecma262":
            if c == "Z" and self._dialect == "rust":
                raise self._malformed("an escape \\Z")
            self._at += 1
            return Anchor(at_end=c != "A")
        if c in "123456789" and c:
            raise self._unsupported("a back-reference is not regular", "\\1")
        if c == "k":
            raise self._unsupported("a back-reference is not regular", "\\k")
        return Chars(self._escaped_set())

    def _boundary(self, *, positive: bool) -> Ast:
        word = Chars(_word(self._dialect))

        def between(before: bool, after: bool) -> Ast:
            return Cat((Look(ahead=False, positive=before, part=word), Look(ahead=True, positive=after, part=word)))

        same = not positive
        return Alt((between(before=True, after=same), between(before=False, after=not same)))

    def _escaped_set(self) -> Ranges:
        """What follows a backslash, as a set of characters (in a class or outside)."""
        c = self._next()
        if c in "dDwWsS":
            sets: dict[str, Callable[[Dialect], Ranges]] = {"d": _digits, "w": _word, "s": _space}
            base = sets[c.lower()](self._dialect)
            return base if c.islower() else codepoints.complement(base)
        if c in "pP":
            return self._property(positive=c == "p")
        code_point = self._escaped_character(c)
        return ((code_point, code_point),)

    def _escaped_character(self, c: str) -> int:
        if c in _CONTROL:
            return _CONTROL[c]
        if c == "a" and self._dialect != "ecma262":
            return 7
        if c == "0" and self._dialect != "rust":
            if self._peek() not in "0123456789" or not self._peek():
                return 0
            if self._dialect == "python":
                raise self._unsupported("an octal escape", "\\0")
        if c == "N" and self._dialect == "python" and self._peek() == "{":
            raise self._unsupported("a character by its name", "\\N")
        if c == "c" and self._dialect == "ecma262" and self._peek().isascii() and self._peek().isalpha():
            return ord(self._next()) & 31
        if c == "x":
            return self._braced_hex() if self._dialect == "rust" and self._peek() == "{" else self._hex(2)
        if c == "u":
            if self._peek() == "{" and self._dialect != "python":
                return self._braced_hex()
            value = self._scalar(self._hex(4))
            if self._dialect == "ecma262" and 0xD800 <= value <= 0xDBFF and self._text.startswith("\\u", self._at):
                at = self._at
                self._at += 2
                low = self._hex(4) if self._peek() != "{" else 0
                if 0xDC00 <= low <= 0xDFFF:
                    return 0x10000 + ((value - 0xD800) << 10) + low - 0xDC00
                self._at = at
            return value
        if c == "U" and self._dialect != "ecma262":
            braced = self._dialect == "rust" and self._peek() == "{"
            return self._braced_hex() if braced else self._scalar(self._hex(8))
        if c.isascii() and c.isalnum():
            self._at -= 1
            raise self._malformed(f"an escape \\{c} that the {self._dialect} dialect does not have")
        return ord(c)

    def _hex(self, digits: int) -> int:
        text = self._text[self._at : self._at + digits]
        if len(text) < digits or text.strip("0123456789abcdefABCDEF"):
            raise self._malformed(f"{digits} hexadecimal digits are needed")
        self._at += digits
        return self._in_range(int(text, 16))

    def _braced_hex(self) -> int:
        end = self._text.find("}", self._at)
        text = self._text[self._at + 1 : end]
        if end < 0 or not text or text.strip("0123456789abcdefABCDEF"):
            raise self._malformed("hexadecimal digits in braces are needed")
        self._at = end + 1
        return self._scalar(self._in_range(int(text, 16)))

    def _in_range(self, value: int) -> int:
        if value > codepoints.MAX:
            raise self._malformed("a code point above U+10FFFF")
        return value

    def _scalar(self, value: int) -> int:
        if self._dialect == "rust" and codepoints.contains((codepoints.SURROGATES,), value):
            raise self._malformed("a surrogate, which is no character of the rust dialect")
        return value

    def _property(self, *, positive: bool) -> Ranges:
        if self._dialect == "python":
            raise self._malformed("\\p is no escape of the python dialect")
        if self._take("{"):
            end = self._text.find("}", self._at)
            if end < 0:
                raise self._malformed("\\p{ without its }")
            name = self._text[self._at : end]
            self._at = end + 1
        elif self._dialect == "rust":
            name = self._next()
        else:
            raise self._malformed("\\p needs {")
        key, equals, value = name.partition("=")
        found: Ranges | None
        if equals and key.lower() in ("gc", "general_category"):
            found = category(value)
        elif name == "Any":
            found = codepoints.ALL
        elif name == "ASCII":
            found = ((0, 0x7F),)
        elif name == "White_Space":
            found = _WHITE_SPACE
        elif name == "ASCII_Hex_Digit":
            found = codepoints.ranges([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)])
        else:
            found = None if equals else category(name)
        if found is None:
            raise self._unsupported(f"the Unicode property {name!r}: only general categories are known", "\\p")
        return found if positive else codepoints.complement(found)

    def _class(self) -> Ranges:
        negated = self._take("^")
        members: list[Ranges] = []
        first = True
        while True:
            if self._at >= len(self._text):
                raise self._malformed("a [ without its ]")
            if self._peek() == "]" and not (first and self._dialect != "ecma262"):
                self._at += 1
                break
            first = False
            low = self._class_member()
            if self._peek() == "-" and self._peek(1) not in ("]", ""):
                self._at += 1
                high = self._class_member()
                if not (_single(low) and _single(high)):
                    raise self._malformed("a range whose end is a set")
                if low[0][0] > high[0][0]:
                    raise self._malformed("a range that runs backwards")
                low = ((low[0][0], high[0][0]),)
            members.append(low)
        inside = codepoints.union(*members)
        return codepoints.complement(inside) if negated else inside

    def _class_member(self) -> Ranges:
        if self._dialect == "rust" and (
            self._peek() == "[" or any(self._text.startswith(o, self._at) for o in ("&&", "--", "~~"))
        ):
            raise self._unsupported("set operations in a class", "[")
        c = self._next()
        if c != "\\":
            return ((ord(c), ord(c)),)
        if self._take("b"):
            return ((8, 8),)
        if self._take("-"):
            return ((0x2D, 0x2D),)
        if self._peek() in "123456789" and self._peek():
            if self._dialect == "python":
                raise self._unsupported("an octal escape", "\\1")
            raise self._malformed("a digit after a backslash in a class")
        return self._escaped_set()


def _single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
