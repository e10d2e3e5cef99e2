r"""Grammars in llguidance's variant of Lark's notation: the part of it whose meaning is a byte language.

A file is statements, one a line; a line that begins with ``|`` goes on with the last one. Comments: ``//`` and ``#``.

- ``rule: …`` (small letters; a leading ``?`` or ``!`` means nothing here) and ``TERMINAL: …`` (capitals, never
  recursive); ``start`` is the whole text. Alternatives ``|`` (empty ones too), sequences, groups ``( … )``, ``[ … ]``
  for what may be left out, ``* + ?``, ``~m``, ``~m..n``, ``{m}``, ``{m,}``, ``{m,n}``, ``{,n}``; ``-> name`` after an
  alternative means nothing here.
- Strings ``"…"`` with JSON's escapes, ``"…"i`` in ASCII without regard to case (by Unicode's simple case folding: ``k``
  and ``s`` each have a third form), ranges ``"a".."z"``, regular expressions ``/…/`` of the Rust dialect.
- ``%import common.NAME``, ``%import common.NAME -> NAME``, ``%import common (NAME, …)`` of llguidance's common
  terminals (``COMMON``), and ``%ignore``. ``%llguidance {…}`` with ``no_forcing`` alone means nothing here.

**Lexemes.** In a rule every string, range, regular expression and terminal is a lexeme, and a lexer decides where one
ends: as late as any lexeme that may stand there lets it, byte by byte. So a grammar is not the language of its rules,
unless being greedy can never matter. ``greed.check`` decides that: wherever a lexeme may end, the next byte of the text
that may follow it must not go on with any lexeme that the parser waits for there. Where it cannot be shown, the grammar
is refused, and the error names the two lexemes.

**What is ignored** may stand between two lexemes, any number of times over, and at the end of the text where another
lexeme might still follow; never before the first lexeme, and not where nothing can follow. (So llguidance 1.9.1 does.)

Refused by name: templates, priorities, attributes of rules (``lazy``, ``stop``, ``max_tokens`` …), flags of regular
expressions, anchors, word boundaries, look-around and lazy repetitions in them, ``&`` and ``~`` between terminals,
special tokens ``<…>``, other grammars ``@…``, ``%json``, ``%regex``, ``%lark``, ``%override``, ``%extend``,
``%declare``, other imports, parametric rules (``::``), ``\x80`` and above.
"""

from __future__ import annotations

import json
import re
from typing import Any

from harness.errors import CompileError, UnsupportedError
from harness.reference import codepoints, greed, regex_syntax, regular
from harness.reference.automaton import Automaton
from harness.reference.grammar import EMPTY_TEXT, Alt, Body, Cat, Embedded, Grammar, Ref, Regular, Rep, automaton
from harness.reference.greed import Lexeme
from harness.reference.regular import Node
from harness.reference.source import Source
from harness.reference.spelling import Utf8

ROOT = "start"
NESTING_BOUND = 100

_FLOAT = r"([0-9]+\.[0-9]*|\.[0-9]+)([eE](\+|-)?[0-9]+)?|[0-9]+[eE](\+|-)?[0-9]+"
# The common terminals of llguidance 1.9.1, as regular expressions.
COMMON = {
    "DIGIT": "[0-9]", "HEXDIGIT": "[a-fA-F0-9]", "INT": "[0-9]+", "SIGNED_INT": r"(\+|-)?[0-9]+",
    "DECIMAL": r"([0-9]+\.[0-9]*)|(\.[0-9]+)", "_EXP": r"[eE](\+|-)?[0-9]+", "FLOAT": _FLOAT,
    "SIGNED_FLOAT": rf"(\+|-)?({_FLOAT})", "NUMBER": rf"([0-9]+)|{_FLOAT}",
    "SIGNED_NUMBER": rf"(\+|-)?(([0-9]+)|{_FLOAT})", "ESCAPED_STRING": r'"([^"\\]|\\.)*"', "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]", "LETTER": "[A-Za-z]", "WORD": "[A-Za-z]+", "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+", "WS": r"[ \t\f\r\n]+", "CR": r"\r", "LF": r"\n", "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*", "CPP_COMMENT": r"//[^\n]*", "SQL_COMMENT": r"--[^\n]*",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t]|\r(?=\n)|//[^\n]*|\#[^\n]*)+)
    |(?P<line>\n)
    |(?P<keyword>%[a-z]+)
    |(?P<string>"(?:[^"\\\x00-\x1f\x7f]|\\[^\n])*"i?)
    |(?P<regex>/(?:\\[^\n]|[^/\\\n])+/[a-z]*)
    |(?P<rule>[!?]*_?[a-z][_a-z0-9-]*)
    |(?P<terminal>_?[A-Z][_A-Z0-9-]*)
    |(?P<number>[0-9]+)
    |(?P<sign>->|\.\.|::|[:|()\[\]{}*+?~.,])
    |(?P<refused><[^<>\s]+>|@[A-Za-z0-9_-]*|&)""",
    re.VERBOSE,
)
# By the identity of their places in the trees of the rules.
Lexemes = dict[int, Lexeme]


def compile(text: str) -> Automaton[Any]:
    """The language of a grammar. CompileError where it is malformed, UnsupportedError for what is refused by name."""
    parser = _Parser(text)
    rules = parser.rules()
    skipped = parser.ignored()
    lexemes = dict(parser.lexemes)
    skip = None if skipped is None else Utf8(skipped)
    kept: list[Body] = []  # alive, so that identities stay theirs

    def spaced(body: Body) -> Body:
        """A body in which what is ignored may stand before every lexeme."""
        if id(body) in parser.lexemes:
            assert skip is not None
            assert skipped is not None
            here = Embedded(skip)
            kept.append(here)
            lexemes[id(here)] = Lexeme(skipped, "what is ignored", repeats=True)
            return Cat((Alt((EMPTY_TEXT, here)), body))
        if isinstance(body, Cat | Alt):
            return type(body)(tuple(spaced(p) for p in body.parts))
        return Rep(spaced(body.part), body.low, body.high) if isinstance(body, Rep) else body

    whole = rules if skip is None else {name: spaced(body) for name, body in rules.items()}
    try:
        greed.check(whole, ROOT, lexemes)
    except greed.MattersError as found:
        raise UnsupportedError(
            f"lark grammar: the lexer is greedy, and that may change the language: {found}", keyword="greedy lexer"
        ) from found
    return automaton(rules, ROOT) if skip is None else _Ignoring(Grammar(whole, ROOT, barred=skip), skip)


class _Ignoring:
    """A grammar whose texts may also end in what is ignored, wherever another lexeme may follow.

    A state: the grammar's, and how far what is ignored was read since each place where the text could have ended."""

    def __init__(self, grammar: Grammar, skip: Automaton[Any]) -> None:
        self._grammar, self._skip = grammar, skip

    def start(self) -> Any:
        state = self._grammar.start()
        return None if state is None else (state, frozenset())

    def step(self, state: Any, byte: int) -> Any:
        inner, ends = state
        after = self._grammar.step(inner, byte)
        if after is None:
            return None
        if inner.accepting and inner is not self._grammar.start():
            ends = ends | {self._skip.start()}
        return after, frozenset(s for e in ends if (s := self._skip.step(e, byte)) is not None)

    def viable_bytes(self, state: Any) -> list[int]:
        return self._grammar.viable_bytes(state[0])

    def accepting(self, state: Any) -> bool:
        inner, ends = state
        return inner.accepting or any(self._skip.accepting(e) for e in ends)


class _Parser:
    def __init__(self, text: str) -> None:
        self._source = Source(text, "lark grammar")
        self.lexemes: Lexemes = {}
        self._kept: list[Regular] = []  # alive, so that identities stay theirs
        self._terminals: dict[str, Node] = {}
        self._bodies: dict[str, int] = {}  # where the body of each terminal begins, as an index of a token
        self._open: set[str] = set()
        self._ignored: list[int] = []
        self._named: dict[str, int] = {}
        self._depth = 0
        self._tokens = self._lexed(text)
        self._next = 0

    # Tokens

    def _lexed(self, text: str) -> list[re.Match[str]]:
        found, at = [], 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise self._source.malformed(f"{text[at]!r} where nothing of the kind can be", at)
            at = token.end()
            if token["refused"]:
                raise self._source.unsupported("no part of the subset", token["refused"], token.start())
            if token["keyword"] == "%llguidance":
                at = self._options(at)
            elif token["keyword"] in ("%json", "%regex", "%lark", "%override", "%extend", "%declare"):
                raise self._source.unsupported("no part of the subset", token["keyword"], token.start())
            elif token["space"] is None:
                found.append(token)
        return found

    def _options(self, at: int) -> int:
        while self._source.text[at : at + 1] in (" ", "\t"):
            at += 1
        try:
            options, end = json.JSONDecoder().raw_decode(self._source.text, at)
        except ValueError as error:
            raise self._source.malformed(f"%llguidance needs a JSON object: {error}", at) from error
        for name in options if isinstance(options, dict) else ("%llguidance",):
            if name != "no_forcing":
                raise self._source.unsupported("an option that changes more than tokens", str(name), at)
        return end

    def _kind(self, ahead: int = 0) -> str:
        at = self._next + ahead
        return self._tokens[at].lastgroup or "" if at < len(self._tokens) else "end"

    def _sign(self, ahead: int = 0) -> str:
        return self._tokens[self._next + ahead].group() if self._kind(ahead) in ("sign", "keyword") else ""

    def _take(self, sign: str) -> bool:
        if self._sign() == sign:
            self._next += 1
            return True
        return False

    def _here(self) -> int:
        return self._tokens[self._next].start() if self._next < len(self._tokens) else len(self._source.text)

    def _malformed(self, why: str) -> CompileError:
        shown = repr(self._tokens[self._next].group()) if self._next < len(self._tokens) else "the end"
        return self._source.malformed(f"{why}, not {shown}", self._here())

    def _unsupported(self, why: str, keyword: str) -> UnsupportedError:
        return self._source.unsupported(why, keyword, self._here())

    def _need(self, kind: str, what: str) -> str:
        if self._kind() != kind:
            raise self._malformed(f"{what} is needed")
        self._next += 1
        return self._tokens[self._next - 1].group()

    # Statements

    def rules(self) -> dict[str, Body]:
        rules: dict[str, tuple[int, int]] = {}
        while True:
            while self._kind() == "line":
                self._next += 1
            if self._kind() == "end":
                break
            at = self._here()
            if self._kind() in ("rule", "terminal"):
                kind = self._kind()
                name = self._tokens[self._next].group().lstrip("!?")
                self._next += 1
                self._head(name)
                if name in rules or name in self._bodies or name in self._terminals:
                    raise self._source.malformed(f"{name!r} is defined twice", at)
                if kind == "rule":
                    rules[name] = (self._next, at)
                else:
                    self._bodies[name] = self._next
                self._skip_body()
            elif self._take("%ignore"):
                self._ignored.append(self._next)
                self._skip_body()
            elif self._take("%import"):
                self._import()
            else:
                raise self._malformed("a rule, a terminal or a statement is needed")
        if ROOT not in rules:
            raise self._source.malformed(f"there is no rule {ROOT!r}", 0)
        for name in list(self._bodies):
            self._terminal(name)
        found: dict[str, Body] = {}
        for name, (start, _) in rules.items():
            self._next = start
            found[name] = self._whole(in_terminal=False)
        for name, at in self._named.items():
            if name not in found:
                raise self._source.malformed(f"the rule {name!r} is not defined", at)
        return found

    def _head(self, name: str) -> None:
        """Between a name and its colon."""
        sign = self._sign()
        if sign == "::":
            raise self._unsupported("parametric rules", "::")
        if sign in ("{", ".", "["):
            what = {"{": "templates", ".": "priorities", "[": "attributes"}[sign]
            raise self._unsupported(what, {"{": "template", ".": "priority", "[": "attribute"}[sign])
        if not self._take(":"):
            raise self._malformed(f"a colon is needed after {name!r}")

    def _skip_body(self) -> None:
        while self._kind() != "end" and not self._at_line_end():
            self._next += 1

    def _at_line_end(self) -> bool:
        """Whether a line ends here and the next one does not go on with |."""
        ahead = 0
        while self._kind(ahead) == "line":
            ahead += 1
        return ahead > 0 and self._sign(ahead) != "|"

    def _import(self) -> None:
        at = self._here()
        path = self._need("rule", "a path") if self._kind() == "rule" else ""
        if path != "common":
            raise self._source.unsupported("imports other than of common terminals", "%import", at)
        names: list[tuple[str, str]] = []
        if self._take("."):
            name = self._need("terminal", "a terminal's name")
            names.append((name, self._need("terminal", "a terminal's name") if self._take("->") else name))
        elif self._take("("):
            while not names or self._take(","):
                name = self._need("terminal", "a terminal's name")
                names.append((name, name))
            if not self._take(")"):
                raise self._malformed("a ) is needed")
        else:
            raise self._malformed("a name is needed")
        for name, local in names:
            if name not in COMMON:
                raise self._source.unsupported("not among the common terminals of the subset", f"common.{name}", at)
            if local in self._terminals or local in self._bodies:
                raise self._source.malformed(f"{local!r} is defined twice", at)
            self._terminals[local] = regex_syntax.compile(COMMON[name], dialect="rust", search=False)

    # Terminals, as regular languages

    def ignored(self) -> Node | None:
        """Any number of texts that are ignored, one at least; None where nothing is."""
        nodes = []
        for start in self._ignored:
            self._next = start
            nodes.append(self._regular(self._whole(in_terminal=True)))
        if not nodes:
            return None
        one = regular.union(*nodes)
        if one.nullable or regular.is_empty(one):
            raise UnsupportedError("lark grammar: %ignore of an empty text or of none", keyword="%ignore")
        if not greed.splits(one):
            raise UnsupportedError(
                "lark grammar: the lexer is greedy, and that would change what runs of ignored texts are",
                keyword="%ignore",
            )
        return regular.repeat(one, 1, None)

    def _terminal(self, name: str) -> Node:
        if name not in self._terminals:
            if name in self._open:
                raise self._source.malformed(f"the terminal {name!r} leads back to itself", self._here())
            self._open.add(name)
            before, self._next = self._next, self._bodies[name]
            self._terminals[name] = self._regular(self._whole(in_terminal=True))
            self._next = before
            self._open.discard(name)
        return self._terminals[name]

    def _regular(self, body: Body) -> Node:
        if isinstance(body, Regular):
            return body.node
        if isinstance(body, Cat):
            return regular.concat(*(self._regular(p) for p in body.parts))
        if isinstance(body, Alt):
            return regular.union(*(self._regular(p) for p in body.parts))
        assert isinstance(body, Rep)
        return regular.repeat(self._regular(body.part), body.low, body.high)

    # Bodies

    def _whole(self, *, in_terminal: bool) -> Body:
        body = self._alternatives(in_terminal)
        if self._kind() != "end" and not self._at_line_end():
            raise self._malformed("the end of the line is needed")
        return body

    def _alternatives(self, in_terminal: bool) -> Body:
        parts = [self._sequence(in_terminal)]
        while True:
            ahead = 0
            while self._kind(ahead) == "line":
                ahead += 1
            if self._sign(ahead) != "|":
                break
            self._next += ahead + 1
            parts.append(self._sequence(in_terminal))
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _sequence(self, in_terminal: bool) -> Body:
        parts: list[Body] = []
        while self._kind() not in ("end", "line") and self._sign() not in ("|", ")", "]", "->"):
            parts.append(self._repeated(in_terminal))
        if self._take("->"):
            self._need("rule", "a name")
        return parts[0] if len(parts) == 1 else Cat(tuple(parts)) if parts else EMPTY_TEXT

    def _repeated(self, in_terminal: bool) -> Body:
        if self._sign() == "~":
            raise self._unsupported("the complement of a terminal", "~")
        part = self._atom(in_terminal)
        at = self._here()
        if self._take("*"):
            return Rep(part, 0, None)
        if self._take("+"):
            return Rep(part, 1, None)
        if self._take("?"):
            return Rep(part, 0, 1)
        if self._take("~"):
            low = self._count()
            high: int | None = self._count() if self._take("..") else low
        elif self._take("{"):
            low = 0 if self._sign() == "," else self._count()
            high = low
            if self._take(","):
                high = self._count() if self._kind() == "number" else None
            if not self._take("}"):
                raise self._malformed("a } is needed")
            if high == 0:
                raise self._source.malformed("a repetition of none at all", at)
        else:
            return part
        return Rep(part, *self._source.bounds(low, high, at))

    def _count(self) -> int:
        at = self._here()
        digits = self._need("number", "a number")
        if len(digits) > 9:
            raise self._source.malformed(f"the number {digits[:20]}… is too large", at)
        return int(digits)

    def _atom(self, in_terminal: bool) -> Body:
        kind, sign = self._kind(), self._sign()
        if sign in ("(", "["):
            self._next += 1
            self._depth += 1
            if self._depth > NESTING_BOUND:
                raise self._unsupported(f"groups nested deeper than {NESTING_BOUND}", sign)
            body = self._alternatives(in_terminal)
            if not self._take(")" if sign == "(" else "]"):
                raise self._malformed(f"the end of a {sign} is needed")
            self._depth -= 1
            return body if sign == "(" else Rep(body, 0, 1)
        if kind == "rule":
            return self._reference(in_terminal)
        if kind not in ("terminal", "string", "regex"):
            raise self._malformed("a string, a regular expression, a name or a group is needed")
        shown = self._tokens[self._next].group()
        node = self._value(kind)
        if node is regular.EPSILON:
            return EMPTY_TEXT
        # A new object for every lexeme of every rule: they are told apart by identity.
        lexeme = Regular(node)
        if not in_terminal:
            self.lexemes[id(lexeme)] = Lexeme(node, shown)
            self._kept.append(lexeme)
        return lexeme

    def _reference(self, in_terminal: bool) -> Body:
        name, at = self._tokens[self._next].group(), self._here()
        if name[0] in "!?":
            raise self._unsupported("a modifier at a name that is used (a ? for a repetition needs a space)", name[0])
        if in_terminal:
            raise self._malformed("a terminal is made of terminals")
        if self._kind(1) == "sign" and self._sign(1) == "{" and self._kind(2) not in ("number", "sign"):
            raise self._unsupported("templates", "template")
        self._next += 1
        self._named.setdefault(name, at)
        return Ref(name)

    def _value(self, kind: str) -> Node:
        token, at = self._tokens[self._next], self._here()
        if kind == "terminal":
            if token.group() not in self._terminals and token.group() not in self._bodies:
                raise self._malformed("a terminal that is not defined is named")
            self._next += 1
            return self._terminal(token.group())
        self._next += 1
        if kind == "regex":
            return self._regex(token.group(), at)
        first = self._string(token.group(), at)
        if not self._take(".."):
            return self._insensitive(first, at) if token.group().endswith("i") else regular.text(first)
        last_at = self._here()
        last = self._string(self._need("string", "a string"), last_at)
        if len(first) != 1 or len(last) != 1 or self._tokens[self._next - 1].group().endswith("i"):
            raise self._source.malformed("a range needs a single character on both sides", at)
        return regular.chars(self._source.span(ord(first), ord(last), at))

    def _string(self, literal: str, at: int) -> str:
        inside = literal[: literal.rindex('"') + 1]

        def plain(found: re.Match[str]) -> str:
            code = found[1]
            if code is None:
                return found[0]
            if int(code, 16) >= 0x80:
                raise self._source.unsupported("an escape that may mean a byte or a character", found[0], at)
            return f"\\u00{code}"

        try:
            text: str = json.loads(re.sub(r"\\(?:x([0-9a-fA-F]{2})|.)", plain, inside))
        except ValueError as error:
            raise self._source.malformed(f"the string {literal}: {error}", at) from error
        for c in text:
            self._source.character(ord(c), at)
        return text

    def _insensitive(self, text: str, at: int) -> Node:
        if not text.isascii():
            raise self._source.unsupported("letters beyond ASCII without regard to case", '"…"i', at)
        third = {"k": "\u212a", "s": "\u017f"}  # KELVIN SIGN, LATIN SMALL LETTER LONG S
        forms = (c.lower() + c.upper() + third.get(c.lower(), "") if c.isalpha() else c for c in text)
        return regular.concat(*(regular.chars(codepoints.of(f)) for f in forms))

    def _regex(self, literal: str, at: int) -> Node:
        end = literal.rindex("/")
        if literal[end + 1 :]:
            raise self._source.unsupported("flags of regular expressions", literal[end:], at)
        pattern = literal[1:end].replace("\\/", "/")
        try:
            tree = regex_syntax.parse(pattern, "rust")
        except CompileError as error:
            raise self._source.malformed(str(error), at) from error
        except UnsupportedError as error:
            raise self._source.unsupported(error.reason, error.keyword, at) from error
        if _LAZY.search(_SET.sub("x", _ESCAPED.sub("x", pattern))):
            raise self._source.unsupported("lazy repetitions in a lexeme", literal, at)
        if _looks(tree):
            raise self._source.unsupported("anchors, word boundaries and look-around in a lexeme", literal, at)
        return regex_syntax.language(tree, search=False)


_ESCAPED, _SET, _LAZY = re.compile(r"\\."), re.compile(r"\[\^?\]?[^\]]*\]"), re.compile(r"[*+?}]\?")


def _looks(tree: regex_syntax.Ast) -> bool:
    if isinstance(tree, regex_syntax.Look | regex_syntax.Anchor):
        return True
    if isinstance(tree, regex_syntax.Cat | regex_syntax.Alt):
        return any(_looks(p) for p in tree.parts)
    return isinstance(tree, regex_syntax.Rep) and _looks(tree.part)
