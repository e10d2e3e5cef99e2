"""The three grammar notations: against Lark's Earley parser, llguidance and the ``regex`` package, and by tables."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any, Literal

import lark as lark_package
import pytest
import regex

from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.reference import automaton, ebnf, grammar, lark
from harness.reference.automaton import Automaton
from harness.reference.compile import compile
from tests.reference.test_grammar import is_dead_end

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "cases" / "cases.jsonl"
Syntax = Literal["ebnf", "gbnf", "lark"]


def machine(text: str, syntax: Syntax = "ebnf") -> Automaton[Any]:
    return compile(Constraint("grammar", text, syntax), Profile())


def texts(alphabet: str, length: int) -> list[str]:
    return ["".join(t) for n in range(length + 1) for t in itertools.product(alphabet, repeat=n)]


def language(one: Automaton[Any], alphabet: str, length: int) -> set[str]:
    return {t for t in texts(alphabet, length) if automaton.accepts(one, t.encode())}


# --- against Lark's parser ---------------------------------------------------------------------------------------

# (EBNF, the same for Lark, the alphabet, how long the texts are)
PAIRS = [
    ('root ::= e\ne ::= e "+" t | t\nt ::= t "*" f | f\nf ::= "(" e ")" | "1"',
     'start: e\ne: e "+" t | t\nt: t "*" f | f\nf: "(" e ")" | "1"', "1+*()", 4),
    ('root ::= "a" root "b" | root root | "c"', 'start: "a" start "b" | start start | "c"', "abc", 6),
    ('root ::= x* y{1,2}\nx ::= "a" | "b" x\ny ::= "b" y? "c"', 'start: x* y~1..2\nx: "a" | "b" x\ny: "b" y? "c"',
     "abc", 6),
    ('root ::= l\nl ::= i ("," l)?\ni ::= [ab]+ | "[" l "]"', 'start: l\nl: i ("," l)?\ni: /[ab]/+ | "[" l "]"',
     "ab,[]", 4),
    ('root ::= s\ns ::= n s "a" | "b"\nn ::= "" | "a"', 'start: s\ns: n s "a" | "b"\nn: | "a"', "ab", 7),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "alphabet", "length"), PAIRS)
def test_ebnf_and_gbnf_mean_what_lark_reads(ours: str, theirs: str, alphabet: str, length: int) -> None:
    judge = lark_package.Lark(theirs, parser="earley", lexer="dynamic_complete")

    def reads(text: str) -> bool:
        try:
            judge.parse(text)
        except lark_package.exceptions.LarkError:
            return False
        return True

    expected = {t for t in texts(alphabet, length) if reads(t)}
    assert expected
    for syntax in ("ebnf", "gbnf"):
        one = machine(ours, syntax)  # type: ignore[arg-type]
        assert language(one, alphabet, length) == expected
        for text in texts(alphabet, 3):
            state = automaton.run(one, text.encode())
            assert state is None or not is_dead_end(one, state, alphabet.encode())


# --- strings and classes -----------------------------------------------------------------------------------------

EVERY = [
    *range(0x180), 0x7FF, 0x800, 0x20AC, 0x212A, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF,
]  # fmt: skip
ESCAPES: dict[str, dict[str, int]] = {
    "ebnf": {"\\'": 39, '\\"': 34, "\\?": 63, "\\\\": 92, "\\a": 7, "\\b": 8, "\\f": 12, "\\n": 10, "\\r": 13,
             "\\t": 9, "\\v": 11, "\\0": 0, "\\e": 27, "\\x41": 0x41, "\\xe9": 0xE9, "\\x1F600": 0x1F600,
             "\\u20ac": 0x20AC, "\\U0001f600": 0x1F600, "é": 0xE9, "\\/": 47},
    "gbnf": {'\\"': 34, "\\\\": 92, "\\n": 10, "\\r": 13, "\\t": 9, "\\[": 91, "\\]": 93, "\\-": 45, "\\x41": 0x41,
             "\\u20ac": 0x20AC, "\\U0001f600": 0x1F600, "é": 0xE9},
    "lark": {'\\"': 34, "\\\\": 92, "\\n": 10, "\\r": 13, "\\t": 9, "\\b": 8, "\\f": 12, "\\/": 47, "\\x41": 0x41,
             "\\u20ac": 0x20AC, "\\ud83d\\ude00": 0x1F600, "é": 0xE9},
}  # fmt: skip


@pytest.mark.parametrize("syntax", ["ebnf", "gbnf", "lark"])
def test_escapes_are_code_points(syntax: Any) -> None:
    head = "start:" if syntax == "lark" else "root ::="
    for escape, code in ESCAPES[syntax].items():
        one = machine(f'{head} "x{escape}y"', syntax)
        assert automaton.accepts(one, f"x{chr(code)}y".encode()), escape
        if syntax != "lark":
            inside = machine(f"{head} [{escape}]", syntax)
            assert [c for c in EVERY if automaton.accepts(inside, chr(c).encode())] == [code], escape


def test_more_escapes_in_a_class_of_ebnf() -> None:
    for c in "^$.*+?()[]{}|/-\\":
        one = machine(f"root ::= [\\{c}]")
        assert [x for x in EVERY if automaton.accepts(one, chr(x).encode())] == [ord(c)]


# what stands between the brackets, and the same for the regex package
CLASSES = [("a-c", "a-c"), ("^a-c", "^a-c"), ("a-", "a\\-"), ("-a", "\\-a"), ("^\\n", "^\\n"), ("é-ü", "é-ü"),
           ("a-c0-9_", "a-c0-9_"),
           ("^\\x00-\\x1f", "^\\x00-\\x1f"), ("a^", "a\\^"), ("\\u20ac-\\U0010ffff", "\\u20ac-\\U0010ffff"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), CLASSES)
def test_classes_are_sets_of_code_points(ours: str, theirs: str) -> None:
    for syntax in ("ebnf", "gbnf"):
        one = machine(f"root ::= [{ours}]", syntax)  # type: ignore[arg-type]
        judge = regex.compile(f"[{theirs}]")
        for code in EVERY:
            assert automaton.accepts(one, chr(code).encode()) == bool(judge.fullmatch(chr(code))), code


def test_the_dot_of_gbnf_is_any_character() -> None:
    one = machine("root ::= .", "gbnf")
    assert all(automaton.accepts(one, chr(c).encode()) for c in EVERY)


# --- lines, comments, repetitions --------------------------------------------------------------------------------

SAME = [
    ("ebnf", 'root ::= "a"\n  | "b" # c\n\n  x\nx ::=\n "y"', {"a", "by"}),
    ("ebnf", 'root ::= x x\nx ::= ("a" | () ) ""', {"", "a", "aa"}),
    ("ebnf", 'root::="a"{2}"b"{0,1}"c"{ 1 , 2 }', {"aac", "aacc", "aabc", "aabcc"}),
    ("ebnf", 'root ::= root.x-1\nroot.x-1 ::= "a"', {"a"}),
    ("gbnf", 'root ::= "a" |\n "b" (\n "c" # d\n | "d" )? # e\n\n# f', {"a", "b", "bc", "bd"}),
    ("gbnf", 'root ::= x | "b"\nx ::= | "a" "b"', {"", "ab", "b"}),
    ("gbnf", 'root ::=\n "a"{2}? ()', {"", "aa"}),
    ("gbnf", 'root ::= my_rule my-rule\r\nmy_rule ::= "a"\r\nmy-rule ::= "b"', {"ab"}),
    ("lark", '// c\nstart: x\n # d\n?x: "a"\n  | "b" -> foo\n\n  | [y] "c"\n!y: T\nT: "d" | U\nU: /e/',
     {"a", "b", "c", "dc", "ec"}),
    ("lark", 'start: "a"~2 "b"{,1} "c"~0..1', {"aa", "aab", "aac", "aabc"}),
    ("lark", 'start: ("a" | ) "b" ""', {"b", "ab"}),
    ("lark", 'start: "a".."c" "K"i', {x + y for x in "abc" for y in "kK"}),
    ("lark", '%llguidance {"no_forcing": true}\nstart: "a"', {"a"}),
]  # fmt: skip


@pytest.mark.parametrize(("syntax", "text", "expected"), SAME)
def test_what_a_grammar_means(syntax: Any, text: str, expected: set[str]) -> None:
    assert language(machine(text, syntax), "".join(sorted({c for t in expected for c in t} | {"a"})), 5) == expected


MALFORMED = [
    ("ebnf", 'root ::= "a"{5,0}', "line 1, column 13: .*at least 5 and at most 0"),
    ("gbnf", 'root ::= "a"{5,0}', "line 1, column 13: .*at least 5 and at most 0"),
    ("lark", 'start: "a"{5,1}', "line 1, column 11: .*at least 5 and at most 1"),
    ("lark", 'start: "a"{0}', "line 1, column 11: a repetition of none at all"),
    ("ebnf", 'root ::= x\nx ::= "a" y', "line 2, column 11: the rule 'y' is not defined"),
    ("ebnf", 'x ::= "a"', "there is no rule 'root'"),
    ("lark", 'x: "a"', "there is no rule 'start'"),
    ("ebnf", 'root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule 'root' is defined twice"),
    ("ebnf", 'root ::= "a" x ::= "b"', "line 1, column 14: the rule 'x' must start on a line of its own"),
    ("ebnf", "root ::= ", "line 1, column 10: an element is needed"),
    ("ebnf", 'root ::= ("a"', "line 1, column 10: a \\( without its \\)"),
    ("gbnf", 'root ::= "a")', "line 1, column 13: '\\)' where the rule should end"),
    ("ebnf", 'root ::= "a', 'line 1, column 10: a string without its "'),
    ("ebnf", "root ::= [a\n]", "line 1, column 10: a class without its \\]"),
    ("ebnf", "root ::= [z-a]", "line 1, column 11: the range z-a runs backwards"),
    ("ebnf", 'root ::= "\\q"', "line 1, column 11: an escape \\\\q"),
    ("gbnf", 'root ::= "\\a"', "line 1, column 11: an escape \\\\a"),
    ("ebnf", 'root ::= "\\u12"', "line 1, column 13: 4 hexadecimal digits"),
    ("ebnf", 'root ::= "\\x110000"', "a code point above U\\+10FFFF"),
    ("ebnf", 'root ::= "a"*+', "a repetition of a repetition needs brackets"),
    ("ebnf", "root ::= true", "a boolean"),
    ("ebnf", 'root = "a"', "line 1, column 6: ::= is needed"),
    ("gbnf", 'root ::= "a"\n | "b"', "line 2, column 2: the name of a rule is needed"),
    ("lark", "start: 'a'", "line 1, column 8"),
    ("lark", "start: x", "line 1, column 8: the rule 'x' is not defined"),
    ("lark", "start: X", "line 1, column 8: .*not defined"),
    ("lark", 'start: X\nX: Y "a"\nY: X?', "leads back to itself"),
    ("lark", "start: X\nX: start", "a terminal is made of terminals"),
    ("lark", "start: /(/", "line 1, column 8"),
    ("lark", 'start: "a"\nstart: "b"', "line 2, column 1: 'start' is defined twice"),
    ("lark", 'start: ("a"\n"b")', "line 2, column 1: a rule, a terminal or a statement is needed"),
]


@pytest.mark.parametrize(("syntax", "text", "message"), MALFORMED)
def test_what_is_malformed_is_named_with_its_place(syntax: Any, text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        machine(text, syntax)


REFUSED = [
    ("ebnf", 'root ::= "a" (= "b")', "(="),
    ("ebnf", 'root ::= TagDispatch(("<a", x))\nx ::= "b"', "TagDispatch"),
    ("ebnf", "root ::= Token(1)", "Token"),
    ("ebnf", 'root ::= Regex("a")', "Regex"),
    ("ebnf", 'root[max_tokens=3] ::= "a"', "[max_tokens=3]"),
    ("ebnf", 'root ::= "a" x\nx[capture] ::= "a"', "[capture]"),
    ("ebnf", "root ::= [\\d]", "\\d"),
    ("ebnf", "root ::= []", "[]"),
    ("ebnf", 'root ::= "\\ud800"', "surrogate"),
    ("ebnf", "root ::= " + "(" * 101 + '"a"' + ")" * 101, "("),
    ("gbnf", "root ::= <[12]>", "<[12]>"),
    ("gbnf", "root ::= !<x>", "!<x>"),
    ("gbnf", 'root ::= "a"{3000}', "{3000}"),
    ("gbnf", 'root ::= ""*', "*"),
    ("lark", "start: /a/i", "/i"),
    ("lark", "start: /(?=a)a/", "/(?=a)a/"),
    ("lark", "start: /a$/", "/a$/"),
    ("lark", 'start: /a+?/ "b"', "/a+?/"),
    ("lark", 'start: X\nX.2: "a"', "priority"),
    ("lark", 'start[lazy]: "a"', "attribute"),
    ("lark", "start: X\nX: /a+/ & /../", "&"),
    ("lark", "start: X\nX: ~/a/", "~"),
    ("lark", "start: <|eot|>", "<|eot|>"),
    ("lark", "start: @other", "@other"),
    ("lark", 'start: %json {"type": "object"}', "%json"),
    ("lark", 'start: x{"a"}\nx{y}: y', "template"),
    ("lark", "%import python.NAME\nstart: NAME", "%import"),
    ("lark", "%import common.C_COMMENT\nstart: C_COMMENT", "common.C_COMMENT"),
    ("lark", '%declare X\nstart: "a"', "%declare"),
    ("lark", 'start: "é"i', '"…"i'),
    ("lark", 'start::x: "a"', "::"),
    ("lark", 'start: "\\xe9"', "\\xe9"),
    ("lark", '%llguidance {"skip_repetition": "once"}\nstart: "a"', "skip_repetition"),
    ("lark", 'start: "a" "b"\n%ignore / */', "%ignore"),
]


@pytest.mark.parametrize(("syntax", "text", "keyword"), REFUSED)
def test_what_is_refused_is_named(syntax: Any, text: str, keyword: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        machine(text, syntax)
    assert caught.value.keyword == keyword


def test_huge_repetitions_end_at_a_bound() -> None:
    with pytest.raises(UnsupportedError, match="too complex"):
        machine('root ::= x{0,100000000}\nx ::= "a" | "(" x ")"')


# --- a lexer's greed ---------------------------------------------------------------------------------------------

GREEDY = [
    'start: A "." A\nA: /[0-9]+(\\.[0-9]+)?/',
    'start: A B\nA: "a" | "ab"\nB: "b" | "c"',
    'start: /a+/ "a"',
    'start: ("a" | "ab") "b"?',
    'start: "é" /[è]/ | /é+/ /è/',  # one first byte
    'start: "a" "b"\n%ignore / |  b/',
    'start: /[a ]+/ "b"\n%ignore " "',
    'start: "a" "b"\n%ignore /xx|xxxxx/',
]


@pytest.mark.parametrize("text", GREEDY)
def test_grammars_in_which_greed_matters_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="greedy"):
        machine(text, "lark")


HARMLESS = [
    ('start: A "." A\nA: /[0-9]+/', "0.", {"0.0", "00.0", "0.00"}, 4),
    ('start: ("a" | "ab") "c"', "abc", {"ac", "abc"}, 4),
    ('start: "[" A "]\\n" ("=" L)?\nL: "x" | "[" "]"\nA: /a+/', "[]a\nx=", {"[a]\n", "[aa]\n"}, 5),
    ('start: "a" "b"\n%ignore " "', "ab ", {"ab", "a b", "a  b"}, 4),
    ('start: W+\nW: /a+/\n%ignore " "', "a ", {"a", "aa", "aaa", "a ", "aa ", "a a", "a  "}, 3),
]


@pytest.mark.parametrize(("text", "alphabet", "expected", "length"), HARMLESS)
def test_grammars_in_which_greed_cannot_matter_are_read(
    text: str, alphabet: str, expected: set[str], length: int
) -> None:
    assert language(machine(text, "lark"), alphabet, length) == expected


class _Bytes:
    eos_token_id, bos_token_id = 256, None
    tokens = [bytes((i,)) for i in range(256)] + [b""]
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: Any) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def random_lark(random_: random.Random) -> str:
    terminals = [
        '"a"',
        '"b"',
        '"ab"',
        "/a+/",
        "/[ab]/",
        "/a?b/",
        "/b*/",
        '"c"',
        "/c+/",
        "/[^c]/",
        '" "',
        "T",
        "U",
        '"é"',
        "/[éè]/",
    ]

    def atom(depth: int) -> str:
        if depth and random_.random() < 0.2:
            return (
                "("
                + " | ".join(sequence(depth - 1) for _ in range(random_.randint(1, 2)))
                + ")"
                + random_.choice("?*+ ")
            )
        if random_.random() < 0.25:
            return random_.choice("xy")
        return random_.choice(terminals) + random_.choice(["", "", "", "?", "*", "+"])

    def sequence(depth: int) -> str:
        return " ".join(atom(depth) for _ in range(random_.randint(1, 3)))

    ignore = random_.choice(["", "", '%ignore " "\n', "%ignore / +/\n", "%ignore / | c/\n"])
    first, second = random_.choice(["/a|ca/", '"ab" | "abc"', '"c"+']), random_.choice(["/[a-c]+/", '"b"'])
    rules = f'start: {sequence(2)} | {sequence(1)}\nx: {sequence(1)}\ny: {sequence(1)} | "b"\n'
    return f"{rules}T: {first}\nU: {second}\n{ignore}"


def test_lark_grammars_mean_what_llguidance_reads() -> None:
    library = pytest.importorskip("llguidance")
    tokenizer = library.LLTokenizer(library.TokenizerWrapper(_Bytes()))
    random_ = random.Random(11)
    some = [
        *texts("abc ", 2),
        "aab",
        "cab",
        "a b",
        "b a",
        "bb ",
        " ab",
        "é",
        "èé",
        "aé",
        "é b",
        "abca",
        "ab ab",
        "cc c",
    ]
    read = 0
    while read < 25:
        text = random_lark(random_)
        try:
            one = lark.compile(text)
        except UnsupportedError:
            continue
        read += 1
        judge = library.LLMatcher(
            tokenizer, library.grammar_from("lark", '%llguidance {"no_forcing": true}\n' + text), log_level=0
        )
        assert not judge.is_error(), text
        for literal in some:
            fresh = judge.deep_copy()
            accepted = all(fresh.consume_token(b) for b in literal.encode()) and fresh.is_accepting()
            assert automaton.accepts(one, literal.encode()) == accepted, (text, literal)


def test_common_terminals_are_llguidances() -> None:
    library = pytest.importorskip("llguidance")
    tokenizer = library.LLTokenizer(library.TokenizerWrapper(_Bytes()))
    some = [
        *(
            "",
            "0",
            "00",
            "0.",
            ".0",
            ".",
            "0.0",
            "0e0",
            "0.e+0",
            "e0",
            "E-0",
            "0.0E-0",
            "-.0e0",
            "+0",
            "-0.",
            "0e+",
            "--0",
        ),
        *("a", "Z", "F", "G", "g", "aZ", "_aZ9", "9a", "_", "a b", '""', '"a\\""', '"a\\"', '"a"b"', '"\n"', '"\\\n"'),
        *(
            " ",
            " \t",
            "\f",
            "\r",
            "\n",
            "\r\n",
            "\r\n\n",
            "\n\r",
            "\v",
            "// a",
            "#b",
            "#b\n",
            "-- c",
            "#",
            "/a",
            "//é",
            "-",
        ),
    ]
    for name in lark.COMMON:
        text = f"%import common.{name} -> X\nstart: X\n"
        one = lark.compile(text)
        judge = library.LLMatcher(
            tokenizer, library.grammar_from("lark", '%llguidance {"no_forcing": true}\n' + text), log_level=0
        )
        assert not judge.is_error(), name
        for literal in some:
            fresh = judge.deep_copy()
            accepted = all(fresh.consume_token(b) for b in literal.encode()) and fresh.is_accepting()
            assert automaton.accepts(one, literal.encode()) == accepted, (name, literal)


PATTERNS = ["[a-c]+b", "(a|bc)*", "a{2,3}b?", "[^a]b", "(?:a|b){1,2}c", "a.c", "\\.\\/a*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regular_terminals_match_what_the_regex_package_matches(pattern: str) -> None:
    one, judge = machine(f"start: /{pattern}/", "lark"), regex.compile(pattern)
    for text in texts("abc./", 4):
        assert automaton.accepts(one, text.encode()) == bool(judge.fullmatch(text)), text


# --- the built-in grammars and the shared cases ------------------------------------------------------------------


def test_built_in_grammars() -> None:
    files = sorted((ROOT / "schemas" / "grammar").glob("*.json"))
    if not files:
        pytest.skip("schemas/grammar is absent")
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        one = machine((file.parent / data["constraint_file"]).read_text(encoding="utf-8"), data["syntax"])
        for text in data["valid"]:
            assert automaton.accepts(one, text.encode()), (file.name, text)
        for wrong in data["invalid"]:
            assert not automaton.accepts(one, wrong["instance"].encode()), (file.name, wrong)


@pytest.mark.shared
def test_shared_cases() -> None:
    if not CASES.exists():
        pytest.skip("../shared/cases/cases.jsonl is absent")
    found = 0
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["constraint_type"] != "ebnf":
            continue
        found += 1
        if not case["accept"] and not case["reject"]:
            with pytest.raises(CompileError, match="line 1, column 13"):
                machine(case["constraint"])
            continue
        one = machine(case["constraint"])
        assert all(automaton.accepts(one, t.encode()) for t in case["accept"]), case["id"]
        assert not any(automaton.accepts(one, t.encode()) for t in case["reject"]), case["id"]
    assert found


def test_a_rule_may_be_named_before_it_is_defined_and_unused_rules_do_no_harm() -> None:
    one = grammar.automaton(ebnf.rules('root ::= later\nunused ::= unused "a"\nlater ::= "b"', "ebnf"), "root")
    assert language(one, "ab", 2) == {"b"}
