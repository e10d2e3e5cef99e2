"""Lark's Earley parser as the judge of grammars and their documents.

The grammars of schemas/grammar/ are written again by hand below, so that a slip in a file is seen as a difference; and
``from_ebnf`` puts a file's own text into Lark's notation, sign by sign, so that it is the file that is judged.
"""

from __future__ import annotations

import re
from functools import cache

from lark import Lark
from lark.exceptions import LarkError

ARITHMETIC = r"""
start: term (/[+-]/ term)*
term: factor (/[*\/]/ factor)*
factor: /[0-9]+(\.[0-9]+)?/ | "(" start ")" | "-" factor
"""

SUMS = r"""
start: item (/[+-]/ item)*
item: "0" | /[1-9][0-9]*/ | "sum(" start ("," start)* ")"
"""

SQL = r"""
start: "SELECT " (STAR | column (", " column)*) " FROM " NAME join? where? order? limit? ";"
column: (path | /COUNT|SUM|AVG|MIN|MAX/ "(" (STAR | path) ")") (" AS " NAME)?
join: " JOIN " NAME " ON " path " = " path
where: " WHERE " either
either: both (" OR " both)*
both: test (" AND " test)*
test: "NOT " test
    | "(" either ")"
    | path " " /<>|<=|>=|=|<|>|LIKE/ " " value
    | path (" IS NULL" | " IS NOT NULL")
    | path " IN (" value (", " value)* ")"
order: " ORDER BY " key (", " key)*
key: path (" ASC" | " DESC")?
limit: " LIMIT " /[1-9][0-9]*/
value: path | /-?[0-9]+(\.[0-9]+)?/ | /'([^'\n]|'')*'/
path: NAME | NAME "." NAME
NAME: /[a-z_][a-z0-9_]*/
STAR: "*"
"""

CSV = r"""
start: line+
line: field ("," field)+ "\n"
field: /[^",\r\n]+/?
     | "\"" /([^"]|"")+/? "\""
"""

S_EXPRESSION = r"""
start: "'" start | "(" ")" | "(" start (" " start)* ")" | atom
atom: /[a-zA-Z+*\/<>=!?_-][a-zA-Z0-9+*\/<>=!?_-]*/ | /[0-9]+/ | /"([^"\\]|\\["\\nt])*"/
"""

PYTHON_CALL = r"""
start: "[" call (", " call)* "]"
call: NAME "()" | NAME "(" value (", " value)* (", " keyword)* ")" | NAME "(" keyword (", " keyword)* ")"
keyword: NAME "=" value
value: "None" | "True" | "False" | NUMBER | TEXT | list | dict
list: "[]" | "[" value (", " value)* "]"
dict: "{}" | "{" pair (", " pair)* "}"
pair: TEXT ": " value
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?/
TEXT: /'([^'\\\n]|\\['\\nt])*'/
NAME: /[a-z_][a-z0-9_]*/
"""

MARKDOWN_TABLE = r"""
start: row rule row~1..40
row: ("|" cell)~3 "|\n"
rule: ("|" / :?-{3,}:? /)~3 "|\n"
cell: / [^|\n ]([^|\n]{0,38}[^|\n ])? /
"""

CHESS_MOVES = r"""
start: (turn " ")+ (NUMBER " " move " ")? RESULT
turn: NUMBER " " move " " move
move: (/[KQRBN][a-h]?[1-8]?x?[a-h][1-8]/ | /([a-h]x)?[a-h][1-8](=[QRBN])?/ | "O-O" | "O-O-O") /[+#]/?
NUMBER: /[1-9][0-9]{0,2}\./
RESULT: "1-0" | "0-1" | "1/2-1/2" | "*"
"""

SETTINGS = r"""
start: (head line* "\n")+
head: "[" NAME "]" "\n"
line: NAME " = " value "\n"
value: "on" | "off" | /-?[0-9]+(\.[0-9]+)?/ | /"[^"\n]*"/ | "[]" | "[" value (", " value)* "]"
NAME: /[a-z][a-z0-9_]*/
"""

BY_NAME = {
    "grammar/arithmetic": ARITHMETIC,
    "grammar/arithmetic_gbnf": ARITHMETIC,
    "grammar/arithmetic_lark": ARITHMETIC,
    "grammar/chess_moves": CHESS_MOVES,
    "grammar/csv": CSV,
    "grammar/left_recursive_sums": SUMS,
    "grammar/markdown_table": MARKDOWN_TABLE,
    "grammar/python_call": PYTHON_CALL,
    "grammar/s_expression": S_EXPRESSION,
    "grammar/settings_lark": SETTINGS,
    "grammar/sql": SQL,
}


_SIGNS = re.compile(
    r"""(?P<space>\s+) | (?P<name>[a-z_]+) | (?P<text>"(?:\\.|[^"\\])*") | (?P<class>\[(?:\\.|[^\]\\])+\])
      | (?P<count>\{\d+(?:,\d+)?\}) | (?P<sign>[()|*+?])""",
    re.VERBOSE,
)


def from_ebnf(text: str) -> str:
    """A grammar in the EBNF of schemas/grammar/ (one rule a line, ``#`` comments) in Lark's notation."""
    rules = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, body = re.split(r"\s*::=\s*", line, maxsplit=1)
        out, at = [], 0
        while at < len(body):
            match = _SIGNS.match(body, at)
            assert match is not None, f"no sign of the notation at {body[at:]!r}"
            at = match.end()
            match match.lastgroup:
                case "class":
                    out.append("/" + match[0].replace("/", r"\/") + "/")
                case "count":
                    out.append("~" + match[0][1:-1].replace(",", ".."))
                case _:
                    out.append(match[0])
        rules.append(f"{name}: {''.join(out)}")
    return "\n".join(rules) + "\n"


@cache
def parser(grammar: str, start: str = "start") -> Lark:
    # dynamic_complete also tries the shorter lengths of every terminal, so that no greed of a lexer narrows the
    # language; it never tries longer ones than the expression finds first: alternatives stand longest first.
    return Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="resolve", start=start)


def accepts(grammar: str, text: str, start: str = "start") -> bool:
    try:
        parser(grammar, start).parse(text)
    except LarkError:
        return False
    return True
