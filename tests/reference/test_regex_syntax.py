"""Regular expressions as text, against the ``regex`` and ``re`` packages and jsonschema_rs, dialect by dialect."""

from __future__ import annotations

import itertools
import re
import warnings

import jsonschema_rs
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import CompileError, UnsupportedError
from harness.reference import codepoints, regex_syntax, regular
from harness.reference.regex_syntax import Dialect

WORDS = ["".join(w) for n in range(5) for w in itertools.product("ab-\n", repeat=n)]
SHARED_ATOMS = [
    "a", "b", "ab", ".", "[ab]", "[^a]", "[a-c]", r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", "-", r"\n", r"[\n-]",
    r"[^\w]", r"\x61", r"\u0062", r"[\w-]", r"[a\-b]", r"\-", r"[^\s-]",
]  # fmt: skip
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{1,}", "{0,}?", "{2,3}?", "{0}"]
ASSERTIONS = ["^", "$", r"\b", r"\B"]


@st.composite
def patterns(draw: st.DrawFn, named: str, depth: int = 4) -> str:
    """A pattern of everything that the dialects share. ``named`` begins a named group."""
    kind = draw(st.sampled_from(["atom", "cat", "cat", "alt", "group", "repeat", "repeat", "look", "look", "assert"]))
    if depth == 0 or kind == "atom":
        return draw(st.sampled_from(SHARED_ATOMS))
    if kind == "assert":
        return draw(st.sampled_from(ASSERTIONS))
    one = draw(patterns(named, depth - 1))
    if kind == "group":
        begin = draw(st.sampled_from(["(", "(?:", f"({named}g{draw(st.integers(0, 10**9))}>"]))
        return f"{begin}{one})"
    if kind == "repeat":
        return f"(?:{one}){draw(st.sampled_from(QUANTIFIERS))}"
    if kind == "look":
        look = f"({draw(st.sampled_from(['?=', '?!', '?<=', '?<!']))}{one})"
        return f"(?:{look}){draw(st.sampled_from(QUANTIFIERS))}" if draw(st.integers(0, 5)) == 0 else look
    other = draw(patterns(named, depth - 1))
    return one + other if kind == "cat" else f"(?:{one}|{other})"


@settings(max_examples=250, deadline=None)
@given(patterns("?P<"))
def test_the_python_dialect_is_what_the_regex_package_matches(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            judge = regex.compile(pattern)
        except regex.error:
            return  # a name used twice
    search = regex_syntax.compile(pattern, dialect="python", search=True)
    full = regex_syntax.compile(pattern, dialect="python", search=False)
    for word in WORDS:
        assert regular.matches(search, word) == bool(judge.search(word)), (pattern, word)
        assert regular.matches(full, word) == bool(judge.fullmatch(word)), (pattern, word)


@settings(max_examples=400, deadline=None)
@given(patterns("?<"))
def test_the_ecma_dialect_is_what_jsonschema_rs_matches(pattern: str) -> None:
    node = regex_syntax.compile(pattern, search=True)
    try:
        judge = jsonschema_rs.validator_for({"pattern": pattern})
    except jsonschema_rs.ValidationError:
        return  # it refuses to repeat some of what can be empty
    for word in WORDS:
        assert regular.matches(node, word) == judge.is_valid(word), (pattern, word)


CLASSES = st.lists(
    st.one_of(
        st.tuples(st.characters(codec="utf-8"), st.characters(codec="utf-8")).map(
            lambda ends: f"\\u{{{ord(min(ends)):x}}}-\\u{{{ord(max(ends)):x}}}"
        ),
        st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\p{L}", r"\P{Lu}", r"\p{Nd}", "a", "é", r"\]"]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(CLASSES, st.booleans(), st.lists(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=20))
def test_classes_over_all_of_unicode(members: list[str], negated: bool, probes: list[str]) -> None:
    pattern = f"^[{'^' if negated else ''}{''.join(members)}]$"
    node = regex_syntax.compile(pattern, search=True)
    judge = jsonschema_rs.validator_for({"pattern": pattern})
    for c in [*probes, "a", "Z", "_", "5", "٣", "é", "É", "\u2028", "\x1c", "\x85", "\ufeff", "\xa0", "中"]:
        assert regular.matches(node, c) == judge.is_valid(c), (pattern, c)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"[^\W\d]"]), st.characters(codec="utf-8"))
def test_the_python_classes_are_those_of_re(pattern: str, c: str) -> None:
    node = regex_syntax.compile(pattern, dialect="python", search=False)
    assert regular.matches(node, c) == bool(re.fullmatch(pattern, c))


# The cases of the official suite's optional/ecmascript-regex.json, restated.
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^xyz$", ["xyz"], ["xyz\n", "xyz\\n"]),
        (r"^\t$", ["\t"], [r"\t"]),
        (r"^\cC$", ["\x03"], [r"\cC"]),
        (r"^\cc$", ["\x03"], [r"\cc"]),
        (r"^\d$", ["7"], ["\u07c0", "\u09ea"]),
        (r"^\D$", ["\u07c0"], ["7"]),
        (r"^\w$", ["k"], ["ü"]),
        (r"^\W$", ["ü"], ["k"]),
        (r"^\s$", [" ", "\t", "\v", "\f", "\xa0", "\ufeff", "\n", "\u2028", "\u2029", "\u2003"], ["\x01", "\u2013"]),
        (r"^\S$", ["\x01", "\u2013"], [" ", "\t", "\v", "\f", "\xa0", "\ufeff", "\n", "\u2029", "\u2003"]),
        (r"\p{Letter}lan", ["élan", "elan", "le \u00e9lan"], ["ÉLAN", " lan"]),
        (r"\wlan", ["elan"], ["élan", "e\u0301lan"]),
        (r"^\p{digit}+$", ["42", "\u09ea\u09e8"], ["-%#"]),
        (r"^\u{1F600}\ud83d\ude01$", ["\U0001f600\U0001f601"], ["\U0001f600"]),
        (r"^a{1$", ["a{1"], ["a"]),
        (r"^[^]$", ["\n", "a"], [""]),
        (r"^(?:[]|a)$", ["a"], ["", "b"]),
        (r"^.$", ["a", "\x85", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"(?=^a)", ["ab"], ["ba"]),
        (r"(?<=(?=b$).)", ["ab"], ["ba"]),
        (r"(?<!a(?!c))b", ["acb", "b"], ["ab"]),
    ],
)
def test_what_ecma_262_says(pattern: str, yes: list[str], no: list[str]) -> None:
    node = regex_syntax.compile(pattern, search=True)
    for text in yes:
        assert regular.matches(node, text), text
    for text in no:
        assert not regular.matches(node, text), text


def test_the_dialects_differ_where_they_say_so() -> None:
    def matches(pattern: str, dialect: Dialect, text: str) -> bool:
        return regular.matches(regex_syntax.compile(pattern, dialect=dialect, search=True), text)

    assert matches("a$", "python", "a\n")
    assert not matches("a$", "ecma262", "a\n")
    assert not matches("a$", "rust", "a\n")
    assert matches(r"^\d$", "rust", "٣")
    assert matches("^.$", "rust", "\u2028")
    assert matches("^a{,2}$", "python", "aa")
    assert matches("^a{,}$", "python", "aaa")
    assert matches("^a{,2}$", "ecma262", "a{,2}")
    assert matches("^[]a]$", "python", "]")
    assert matches("^a**$", "rust", "aaa")
    assert matches(r"^\ud83d\ude00$", "python", "\ud83d\ude00")
    assert not matches(r"^\ud83d\ude00$", "python", "\U0001f600")


ALL: tuple[Dialect, ...] = ("ecma262", "rust", "python")


@pytest.mark.parametrize(
    ("pattern", "at", "dialects"),
    [
        ("(", 1, ALL), ("a)", 1, ALL), ("[a", 2, ALL), ("*a", 0, ALL), ("a|+", 2, ALL), ("{2}a", 3, ALL),
        ("a{2,1}", 6, ALL), ("[b-a]", 4, ALL), ("\\", 1, ALL), ("[\\", 2, ALL), (r"\x1", 2, ALL), (r"\u12", 2, ALL),
        (r"\q", 1, ALL), ("(?<1a>x)", 3, ALL), ("(?<n", 3, ALL), ("(?", 2, ALL), ("(?:", 3, ALL), ("(?<=", 4, ALL),
        ("a**", 2, ("ecma262", "python")), ("a*?*", 3, ("ecma262", "python")), ("a{2}{3}", 4, ("ecma262", "python")),
        ("^*", 1, ("ecma262", "python")), (r"\b+", 2, ("ecma262", "python")), ("(?=a)*", 5, ("ecma262",)),
        ("a++", 2, ("ecma262",)), (r"\u{110000}", 10, ("ecma262", "rust")), (r"\p", 2, ("ecma262", "rust", "python")),
        (r"\p{", 3, ("ecma262", "rust")), (r"\c1", 1, ALL), (r"\01", 1, ("ecma262", "rust")), (r"[a-\d]", 5, ALL),
        (r"\ud83d", 6, ("rust",)), (r"[\1]", 2, ("ecma262", "rust")),
    ],
)  # fmt: skip
def test_a_malformed_pattern_is_one_error_at_its_character(
    pattern: str, at: int, dialects: tuple[Dialect, ...]
) -> None:
    for dialect in dialects:
        with pytest.raises(CompileError, match=rf"^regular expression .*, character {at}: [^\n]+$"):
            regex_syntax.compile(pattern, dialect=dialect, search=True)


@pytest.mark.parametrize(
    ("pattern", "construct", "dialect"),
    [
        (r"(a)\1", r"\1", "ecma262"), (r"(?<n>a)\k<n>", r"\k", "ecma262"), ("(?P<n>a)(?P=n)", "(?P=", "python"),
        ("(?>a)", "(?>", "python"), ("a++", "++", "python"), ("a{2}+", "++", "python"), ("(?i)a", "(?", "rust"),
        ("(?i:a)", "(?", "ecma262"), (r"\p{Script=Greek}", r"\p", "ecma262"), ("[a&&b]", "[", "rust"),
        ("[[a]]", "[", "rust"), (r"\w", r"\w", "rust"), ("a{100001}", "{}", "ecma262"), (r"\01", r"\0", "python"),
        (r"\N{DIGIT ONE}", r"\N", "python"), ("(" * 60 + ")" * 60, "(", "ecma262"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(pattern: str, construct: str, dialect: Dialect) -> None:
    with pytest.raises(UnsupportedError) as caught:
        regex_syntax.compile(pattern, dialect=dialect, search=True)
    assert caught.value.keyword == construct


def states(pattern: str, text: str) -> int:
    """Different languages met on the way through a text that the pattern must match."""
    node = regex_syntax.compile(pattern, search=True)
    met = {node.id}
    for c in text:
        node = regular.derive(node, ord(c))
        met.add(node.id)
    assert node.nullable
    return len(met)


@pytest.mark.parametrize(
    ("pattern", "text", "most"),
    [
        ("^(a?){500}a{500}$", "a" * 1000, 1001),
        ("(.*)(.*)(.*)", "ab" * 50, 2),
        ("a.{0,500}b", "a" * 600 + "b", 4),
        ("^((a{0,50}){0,50}){0,50}$", "a" * 400, 401),
        ("^((a*)*)*$", "a" * 50, 1),
        ("^(a|aa)+$", "a" * 300, 3),
        ("^" + "a?b?" * 300 + "$", "ab" * 100, 201),
        ("^(?=.*x)(?=.*y).{1,500}$", "abxy" * 100, 401),
        ("^(?:(?!foo|bar).){0,200}$", "abfoba" * 30, 181),
        ("(a|b)*a(a|b){200}", "ab" * 200, 401),
        ("^" + "abc" * 3000 + "$", "abc" * 3000, 9001),
    ],
)
def test_patterns_that_are_hard_for_others_stay_small(pattern: str, text: str, most: int) -> None:
    assert states(pattern, text) <= most


def test_long_alternations_become_trees() -> None:
    words = ["".join(w) for w in itertools.product("abcdefgh", repeat=4)][:4000]
    node = regex_syntax.compile("|".join(words), search=True)
    assert len(node.args) < 20
    assert regular.matches(node, f"xx{words[7]}yy")
    assert not regular.matches(node, "xxaxx")


def test_a_property_is_a_set_of_code_points() -> None:
    letters = regex_syntax.category("L")
    assert letters is not None
    assert codepoints.contains(letters, ord("é"))
    assert not codepoints.contains(letters, ord("1"))
    assert regex_syntax.category("Nonsense") is None
