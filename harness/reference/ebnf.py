r"""Grammars in xgrammar's EBNF and in llama.cpp's GBNF: the part of each whose meaning is a byte language.

Both: rules ``name ::= body``; the text is one of ``root``. A body is alternatives ``|`` of sequences. An element is a
string ``"…"``, a class ``[a-z]`` or ``[^a-z]`` (a negated one is every other character, line ends included; ``-`` is
itself at either end), the name of a rule or a group ``( … )``, and may be repeated by ``* + ?``, ``{m}``, ``{m,}``,
``{m,n}``. Comments run from ``#`` to the end of the line. A grammar is a language of texts, with no lexer: where a
text can be read in several ways, any of them will do. Surrogates have no spelling in UTF-8 and are refused in strings;
in a class they stand for nothing.

``ebnf`` (xgrammar 0.2.9). Names are letters, digits, ``_ - .``, not beginning with a digit. A rule's name is the first
on its line; line ends mean nothing else. An alternative has at least one element: the empty text is ``""`` or ``()``.
An element is repeated once at most. Escapes: ``\' \" \? \\ \/ \a \b \f \n \r \t \v \0 \e``, ``\xH…`` with any number of
digits, ``\uHHHH``, ``\UHHHHHHHH``, all of them code points; in a class also ``\^ \$ \. \* \+ \( \) \[ \] \{ \} \|`` and
``\/ \-``. Refused by name: look-ahead ``(= … )``, macros (``TagDispatch``, ``Token``, ``ExcludeToken``,
``TokenTagDispatch``, ``Regex``), attributes of rules (``name[max_tokens=…]``), ``\d \D \w \W \s \S`` in a class, empty
classes.

``gbnf`` (llama.cpp). Names are letters, digits, ``- _``. A rule ends at the end of its line, but for line ends in
brackets and after ``|`` and ``::=``. An alternative may be empty. An element may be repeated several times over
(``"a"{2}*``). ``.`` is any character. Escapes: ``\t \r \n \\ \" \[ \] \-``, ``\xHH``, ``\uHHHH``, ``\UHHHHHHHH``.
Refused by name: tokens ``<…>`` and ``!<…>``, repetitions beyond 2,000 (which llama.cpp refuses or reads as any number),
empty classes, a repeated empty string.

``{m,n}`` with m above n is malformed in both.
"""

from __future__ import annotations

import string
from typing import Literal

from harness.reference import codepoints, regular
from harness.reference.codepoints import Ranges
from harness.reference.grammar import EMPTY_TEXT, Alt, Body, Cat, Ref, Regular, Rep
from harness.reference.source import Source

ROOT = "root"
NESTING_BOUND = 100
# llama.cpp's MAX_REPETITION_THRESHOLD
GBNF_REPETITIONS = 2_000

_LETTERS = string.ascii_letters
_NAMES = {"ebnf": _LETTERS + string.digits + "_-.", "gbnf": _LETTERS + string.digits + "-_"}
_MACROS = ("TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex")
_CONTROL = {"t": 9, "n": 10, "r": 13}
_ESCAPES = {
    "ebnf": {**_CONTROL, "a": 7, "b": 8, "v": 11, "f": 12, "0": 0, "e": 0x1B, **{c: ord(c) for c in "'\"?\\/"}},
    "gbnf": {**_CONTROL, **{c: ord(c) for c in '\\"[]-'}},
}
_CLASS_ESCAPES = {"ebnf": {c: ord(c) for c in "^$\\.*+?()[]{}|/-"}, "gbnf": {}}


def rules(text: str, syntax: Literal["ebnf", "gbnf"]) -> dict[str, Body]:
    """The rules of a grammar. CompileError where it is malformed, UnsupportedError for what is refused by name."""
    return _Parser(text, syntax).rules()


class _Parser:
    def __init__(self, text: str, syntax: Literal["ebnf", "gbnf"]) -> None:
        self._source = Source(text, f"{syntax} grammar")
        self._syntax = syntax
        self._gbnf = syntax == "gbnf"
        self._depth = 0
        self._named: dict[str, int] = {}  # where each rule is first named

    def rules(self) -> dict[str, Body]:
        source = self._source
        found: dict[str, Body] = {}
        self._space(lines=True)
        while source.peek():
            at = source.at
            name = self._name()
            self._refuse_attributes(at)
            self._space(lines=not self._gbnf)
            if not source.take("::="):
                raise source.malformed(f"::= is needed after {name!r}")
            if name in found:
                raise source.malformed(f"the rule {name!r} is defined twice", at)
            if not self._gbnf and source.text[source.text.rfind("\n", 0, at) + 1 : at].strip(" \t\r"):
                raise source.malformed(f"the rule {name!r} must start on a line of its own", at)
            self._space(lines=True)
            found[name] = self._alternatives()
            if self._gbnf and source.peek() not in ("\n", "\r", ""):
                raise source.malformed(f"{source.peek()!r} where the rule should end")
            self._space(lines=True)
        if ROOT not in found:
            raise source.malformed(f"there is no rule {ROOT!r}", 0)
        for name, at in self._named.items():
            if name not in found:
                raise source.malformed(f"the rule {name!r} is not defined", at)
        return found

    def _space(self, *, lines: bool) -> None:
        source = self._source
        while source.peek() and (source.peek() in " \t#" or (lines and source.peek() in "\r\n")):
            if source.next() == "#":
                while source.peek() not in ("\r", "\n", ""):
                    source.at += 1

    def _between(self) -> None:
        """Space between the elements of a body."""
        self._space(lines=not self._gbnf or self._depth > 0)

    def _name(self) -> str:
        source = self._source
        at = source.at
        name = source.while_in(_NAMES[self._syntax])
        if not name or (not self._gbnf and name[0].isdigit()):
            raise source.malformed("the name of a rule is needed", at)
        return name

    def _refuse_attributes(self, at: int) -> None:
        source = self._source
        if not self._gbnf and source.peek() == "[":
            end = source.text.find("]", source.at)
            if end > 0 and source.text[end + 1 :].lstrip(" \t").startswith("::="):
                raise source.unsupported("attributes of rules", source.text[source.at : end + 1], at)

    def _rule_follows(self) -> bool:
        """Whether the next name is that of a rule being defined (ebnf: nothing else ends a body)."""
        source = self._source
        at = source.at
        source.while_in(_NAMES["ebnf"])
        if source.peek() == "[" and source.at > at:
            end = source.text.find("]", source.at)
            if end > 0 and source.text[end + 1 :].lstrip(" \t").startswith("::="):
                source.at = at
                return True
        self._space(lines=True)
        follows = source.text.startswith("::=", source.at)
        source.at = at
        return follows

    def _alternatives(self) -> Body:
        parts = [self._sequence()]
        while self._source.take("|"):
            self._space(lines=True)
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _sequence(self) -> Body:
        source = self._source
        parts: list[Body] = []
        while True:
            c = source.peek()
            if c in ("", "|", ")") or (self._gbnf and c in "\r\n"):
                break
            if not self._gbnf and c in _NAMES["ebnf"] and self._rule_follows():
                break
            if not self._gbnf and source.text.startswith("(=", source.at):
                raise source.unsupported("look-ahead", "(=")
            parts.append(self._repeated())
        if not parts and not self._gbnf:
            raise source.malformed('an element is needed (the empty text is "")')
        return parts[0] if len(parts) == 1 else Cat(tuple(parts)) if parts else EMPTY_TEXT

    def _repeated(self) -> Body:
        source = self._source
        start = source.at
        part = self._element()
        self._between()
        while (c := source.peek()) and c in "*+?{":
            if self._gbnf and part == EMPTY_TEXT and source.text.startswith('""', start):
                raise source.unsupported("a repeated empty string", c)
            at = source.at
            low, high = self._bounds()
            part = Rep(part, low, high)
            self._between()
            if not self._gbnf and (c := source.peek()) and c in "*+?{":
                raise source.malformed("a repetition of a repetition needs brackets", at)
        return part

    def _bounds(self) -> tuple[int, int | None]:
        source = self._source
        at = source.at
        sign = source.next()
        if sign != "{":
            return (1 if sign == "+" else 0), (1 if sign == "?" else None)
        self._between()
        low = source.number()
        high: int | None = low
        self._between()
        if source.take(","):
            self._between()
            high = source.number() if source.peek() in tuple(string.digits) else None
            self._between()
        if not source.take("}"):
            raise source.malformed("a } is needed")
        if self._gbnf and max(low, high or 0) > GBNF_REPETITIONS:
            raise source.unsupported(f"a repetition beyond {GBNF_REPETITIONS}", source.text[at : source.at], at)
        return source.bounds(low, high, at)

    def _element(self) -> Body:
        source = self._source
        at = source.at
        c = source.peek()
        if c == '"':
            return Regular(regular.text(self._string()))
        if c == "[":
            return Regular(regular.chars(self._class()))
        if c == "(":
            source.at += 1
            self._depth += 1
            if self._depth > NESTING_BOUND:
                raise source.unsupported(f"groups nested deeper than {NESTING_BOUND}", "(", at)
            self._space(lines=True)
            # ebnf has () for the empty text, and no other empty alternative
            body = EMPTY_TEXT if source.peek() == ")" else self._alternatives()
            if not source.take(")"):
                raise source.malformed("a ( without its )", at)
            self._depth -= 1
            return body
        if self._gbnf and c == ".":
            source.at += 1
            return Regular(regular.ANY_CHAR)
        if self._gbnf and c in "<!":
            raise source.unsupported("tokens have no text", source.text[at : at + 20].split(">")[0] + ">")
        if c in _NAMES[self._syntax] and (self._gbnf or not c.isdigit()):
            return self._reference(at)
        raise source.malformed(f"{c!r} where an element is needed")

    def _reference(self, at: int) -> Body:
        source = self._source
        name = self._name()
        if not self._gbnf:
            if name in ("true", "false"):
                raise source.malformed(f"{name} is a boolean, not the name of a rule", at)
            if name in _MACROS:
                raise source.unsupported("macros", name, at)
        self._named.setdefault(name, at)
        return Ref(name)

    def _string(self) -> str:
        source = self._source
        start = source.at
        source.at += 1
        found: list[str] = []
        while not source.take('"'):
            if source.peek() in ("", "\n", "\r") and not (self._gbnf and source.peek()):
                raise source.malformed('a string without its "', start)
            at = source.at
            found.append(chr(source.character(self._character(_ESCAPES[self._syntax]), at)))
        return "".join(found)

    def _character(self, escapes: dict[str, int]) -> int:
        source = self._source
        at = source.at
        c = source.next()
        if c != "\\":
            return ord(c)
        c = source.next()
        if c in escapes:
            return escapes[c]
        if c in "xuU":
            return source.hexadecimal({"x": 2 if self._gbnf else None, "u": 4, "U": 8}[c])
        raise source.malformed(f"an escape \\{c} that the notation does not have", at)

    def _class(self) -> Ranges:
        source = self._source
        start = source.at
        source.at += 1
        negated = source.take("^")
        escapes = {**_ESCAPES[self._syntax], **_CLASS_ESCAPES[self._syntax]}
        found: list[Ranges] = []
        while not source.take("]"):
            if source.peek() in ("", "\n", "\r") and not (self._gbnf and source.peek()):
                raise source.malformed("a class without its ]", start)
            at = source.at
            low = high = self._class_character(escapes)
            if source.peek() == "-" and source.peek(1) not in ("]", ""):
                source.at += 1
                high = self._class_character(escapes)
            found.append(source.span(low, high, at))
        if not found:
            raise source.unsupported("an empty class", source.text[start : source.at], start)
        inside = codepoints.union(*found)
        return codepoints.complement(inside) if negated else inside

    def _class_character(self, escapes: dict[str, int]) -> int:
        source = self._source
        if not self._gbnf and source.peek() == "\\" and source.peek(1) and source.peek(1) in "dDsSwW":
            raise source.unsupported("sets in a class", source.text[source.at : source.at + 2])
        return self._character(escapes)
