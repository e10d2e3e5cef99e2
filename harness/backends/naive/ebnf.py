r"""Grammars in xgrammar's EBNF, the part of it whose meaning is a byte language.

A grammar is rules, ``name ::= body``, each name first on its line; ``root`` is where a document starts. A body is
alternatives ``|`` of sequences of elements, each with at most one of ``* + ? {m} {m,} {m,n}``. An element is a string
in double quotes, a class ``[a-z]`` or ``[^a-z]``, the name of a rule, a group ``( … )`` or the empty ``()``. Comments
run from ``#`` to the end of the line.

Escapes: ``\' \" \? \\ \a \b \f \n \r \t \v \0 \e \/``, ``\xH…`` with any number of digits, ``\uHHHH``, ``\UHHHHHHHH``,
all of them code points (``"\x80"`` is two bytes); in a class also ``\^ \$ \. \* \+ \( \) \[ \] \{ \} \| \-``. A negated
class is every other code point, newlines included.

Refused by name: look-ahead ``(=…)``, macros (``TagDispatch(…)`` and the like), rule attributes, left recursion.
"""

from __future__ import annotations

import re

from harness.backends.naive.expressions import (
    EMPTY,
    TOP,
    Alt,
    Call,
    Chars,
    Expr,
    Ranges,
    Repeat,
    Seq,
    complement,
    union,
)
from harness.backends.naive.network import Network
from harness.errors import UnsupportedError

ROOT = "root"
NESTING = 100

_NAME = r"[A-Za-z_.-][A-Za-z0-9_.-]*"
_TOKEN = re.compile(
    rf"""(?P<space>(?:[ \t\r\n]|\#[^\r\n]*)+)
    |(?P<rule>{_NAME})(?P<attribute>\[[^\]\r\n]*\])?[ \t]*::=
    |(?P<name>{_NAME})
    |"(?P<string>(?:[^"\\\r\n]|\\[^\r\n])*)"
    |\[(?P<negated>\^?)(?P<class>(?:[^\]\\\r\n]|\\[^\r\n])*)\]
    |\{{[ \t]*(?P<low>[0-9]+)[ \t]*(?P<comma>,?)[ \t]*(?P<high>[0-9]*)[ \t]*\}}
    |(?P<ahead>\(=)
    |(?P<sign>[()|*+?])""",
    re.VERBOSE,
)
_MACROS = ("TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex")
_ESCAPES = dict(zip("'\"?\\abfnrtv0e/", map(ord, "'\"?\\\a\b\f\n\r\t\v\0\x1b/"), strict=True))
_CLASS_ESCAPES = _ESCAPES | {c: ord(c) for c in "^$.*+()[]{}|-"}
_CHARACTER = re.compile(r"\\x(?P<x>[0-9a-fA-F]+)|\\u(?P<u>[0-9a-fA-F]{4})|\\U(?P<U>[0-9a-fA-F]{8})|\\(?P<e>.)|(?P<c>.)")


def compile_grammar(source: str, network: Network) -> Call:
    """Add the grammar's rules to ``network``; the call of ``root``."""
    parser = _Parser(source)
    rules = parser.grammar()
    for name in sorted({ROOT} | parser.called):
        if name not in rules:
            raise UnsupportedError(f"grammar: rule {name!r} is not defined", keyword="::=")
    for name, body in rules.items():
        network.rule(name, body)
    return Call(ROOT)


class _Parser:
    def __init__(self, source: str) -> None:
        self.called: set[str] = set()
        self._tokens: list[re.Match[str]] = []
        self._next = 0
        self._depth = 0
        at = 0
        while at < len(source):
            token = _TOKEN.match(source, at)
            if token is None:
                raise _refusal(source, at, source[at], "not in the subset")
            if token["rule"] is not None:
                if source[source.rfind("\n", 0, at) + 1 : at].strip():
                    raise _refusal(source, at, "::=", "a rule must start on a line of its own")
                if token["attribute"]:
                    raise _refusal(source, at, token["attribute"], "rule attributes are not in the subset")
            if token["name"] in _MACROS:
                raise _refusal(source, at, token["name"], "macros are not in the subset")
            if token["space"] is None:
                self._tokens.append(token)
            at = token.end()

    def grammar(self) -> dict[str, Expr]:
        rules: dict[str, Expr] = {}
        while self._next < len(self._tokens):
            token = self._tokens[self._next]
            name = token["rule"]
            if name is None:
                raise self._refuse(token, token.group(), "expected a rule")
            if name in rules:
                raise self._refuse(token, name, "the rule is defined twice")
            self._next += 1
            rules[name] = self._alternatives()
        return rules

    def _alternatives(self) -> Expr:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return Alt(tuple(parts))

    def _sequence(self) -> Expr:
        parts = [self._repeated()]
        while self._next < len(self._tokens):
            token = self._tokens[self._next]
            if token["rule"] is not None or token["sign"] in ("|", ")"):
                break
            parts.append(self._repeated())
        return Seq(tuple(parts))

    def _repeated(self) -> Expr:
        element = self._element()
        if self._take("*"):
            return Repeat(element, 0, None)
        if self._take("+"):
            return Repeat(element, 1, None)
        if self._take("?"):
            return Repeat(element, 0, 1)
        if self._next < len(self._tokens) and self._tokens[self._next]["low"] is not None:
            token = self._tokens[self._next]
            self._next += 1
            low = int(token["low"])
            high = int(token["high"]) if token["high"] else None if token["comma"] else low
            if (token["high"] and not token["comma"]) or (high is not None and high < low):
                raise self._refuse(token, token.group(), "not a repetition")
            return Repeat(element, low, high)
        return element

    def _element(self) -> Expr:
        if self._next >= len(self._tokens):
            raise UnsupportedError("grammar: it ends where an element is expected", keyword="::=")
        token = self._tokens[self._next]
        self._next += 1
        if token["string"] is not None:
            return Seq(tuple(Chars(((c, c),)) for c, _ in self._characters(token, token["string"], _ESCAPES)))
        if token["class"] is not None:
            return Chars(self._class(token))
        if token["name"] is not None:
            if token["name"] in ("true", "false"):
                raise self._refuse(token, token["name"], "a boolean, not the name of a rule")
            self.called.add(token["name"])
            return Call(token["name"])
        if token["sign"] == "(":
            if self._take(")"):
                return EMPTY
            self._depth += 1
            if self._depth > NESTING:
                raise self._refuse(token, "(", f"groups nested deeper than {NESTING}")
            body = self._alternatives()
            if not self._take(")"):
                raise self._refuse(token, "(", "unbalanced parenthesis")
            self._depth -= 1
            return body
        why = "look-ahead is not in the subset" if token["ahead"] else "expected an element"
        raise self._refuse(token, token.group(), why)

    def _class(self, token: re.Match[str]) -> Ranges:
        characters = self._characters(token, token["class"], _CLASS_ESCAPES)
        if not characters:
            raise self._refuse(token, token.group(), "an empty class is not in the subset")
        out: list[tuple[int, int]] = []
        while characters:
            low, _ = characters.pop(0)
            if len(characters) >= 2 and characters[0] == (ord("-"), False):
                high, escaped = characters[1]
                del characters[:2]
                if high < low or (high == ord("-") and not escaped):
                    raise self._refuse(token, token.group(), "a range needs two characters in order at its ends")
                out.append((low, high))
            else:
                out.append((low, low))
        return complement(union(out)) if token["negated"] else union(out)

    def _characters(self, token: re.Match[str], source: str, escapes: dict[str, int]) -> list[tuple[int, bool]]:
        """The code points of a string or class, each with whether it was escaped."""
        out = []
        for found in _CHARACTER.finditer(source):
            digits = found["x"] or found["u"] or found["U"]
            code = int(digits, 16) if digits else escapes.get(found["e"]) if found["e"] else ord(found["c"])
            if code is None or code > TOP or 0xD800 <= code <= 0xDFFF:
                raise self._refuse(token, found.group(), "an escape or code point outside the subset")
            out.append((code, found["c"] is None))
        return out

    def _take(self, sign: str) -> bool:
        taken = self._next < len(self._tokens) and self._tokens[self._next]["sign"] == sign
        self._next += taken
        return taken

    def _refuse(self, token: re.Match[str], construct: str, why: str) -> UnsupportedError:
        return _refusal(token.string, token.start(), construct, why)


def _refusal(source: str, at: int, construct: str, why: str) -> UnsupportedError:
    line = source.count("\n", 0, at) + 1
    return UnsupportedError(f"grammar, line {line}: {construct!r}: {why}", keyword=construct)
