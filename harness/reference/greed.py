"""Whether a greedy lexer can change what a grammar means. Where it cannot be shown that it does not, the answer is yes.

A greedy lexer ends a lexeme as late as any lexeme that the parser waits for lets it, byte by byte, and never goes back.
So a lexeme may end before a byte only if none of those waited for there can go on with that byte. The language is that
of the rules without any lexer exactly if this never stands in the way. What is checked is a little more: for every two
lexemes p and q that may be waited for at once, no text of p may be followed by a first byte of what may come after p
if the text and that byte begin a text of q.

A lexeme repeated on its own, two texts of which make one (``WORD+``), needs no two of them side by side, so none are
looked at. Lexemes are told apart by their place in the rules. Waited for at once are the first ones of the grammar, and
those that may follow two that are waited for at once and have a text in common. What follows a lexeme is taken without
regard to where its rule was called from: so more is refused than need be, and nothing is let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.reference import codepoints, regular
from harness.reference.automaton import TooComplex
from harness.reference.grammar import Alt, Body, Cat, Ref, Rep
from harness.reference.regular import Node

# Pairs of derivatives that one comparison of two lexemes may visit, and pairs of lexemes of a grammar.
STATE_BOUND = 5_000
PAIR_BOUND = 50_000


@dataclass(frozen=True)
class Lexeme:
    """node: its texts. shown: how it is written. repeats: it is any number of shorter lexemes in a row."""

    node: Node
    shown: str
    repeats: bool = False


class MattersError(Exception):
    """Greed may change the language; the text says between which lexemes."""


# A set of lexemes, as the bits of a number.
Set = int


@dataclass
class _Facts:
    """nullable: a text without any lexeme. first, last: the lexemes that may come first, last."""

    nullable: bool = False
    first: Set = 0
    last: Set = 0


def check(rules: Mapping[str, Body], root: str, lexemes: Mapping[int, Lexeme]) -> None:
    """MattersError unless greed cannot matter. lexemes: by the identity of their places in the rules."""
    places = sorted(lexemes)
    number = {place: i for i, place in enumerate(places)}
    known = [lexemes[place] for place in places]
    follow: list[Set] = [0] * len(known)
    facts = {name: _Facts() for name in rules}
    while True:
        before = {name: (f.nullable, f.first, f.last) for name, f in facts.items()}
        for name, body in rules.items():
            facts[name] = _facts(body, facts, known, number, follow)
        if before == {name: (f.nullable, f.first, f.last) for name, f in facts.items()}:
            break
    first_bytes = [codepoints.leads(regular.live(one.node)) for one in known]
    after = [_union(first_bytes[j] for j in _members(follow[i])) for i in range(len(known))]
    _compare(known, follow, facts[root].first, after, first_bytes)


def _compare(known: list[Lexeme], follow: list[Set], start: Set, after: list[int], first_bytes: list[int]) -> None:
    common: dict[tuple[int, int], bool] = {}
    extensions: dict[tuple[int, int], int] = {}
    together = [0] * len(known)
    work: list[tuple[int, int]] = []

    def add(ones: Set, others: Set) -> None:
        for i in _members(ones):
            new = others & ~together[i]
            together[i] |= others
            work.extend((i, j) for j in _members(new))
            if len(work) > PAIR_BOUND:
                raise MattersError("there are too many lexemes to decide")

    add(start, start)
    while work:
        i, j = work.pop()
        one, other = known[i].node, known[j].node
        key = (one.id, other.id)
        if key not in extensions:
            extensions[key] = _extensions(one, other)
        may_come = after[i]
        if known[i].repeats and not known[j].repeats:
            may_come |= first_bytes[i]  # the next of the row; that rows come apart as they should, ``splits`` decides
        clash = extensions[key] & may_come
        if clash:
            byte = (clash & -clash).bit_length() - 1
            raise MattersError(
                f"where {known[i].shown} may end before {bytes((byte,))!r}, {known[j].shown} may go on with it"
            )
        if key not in common:
            common[key] = i == j or _meet(one, other)
        if common[key]:
            add(follow[i], follow[j])


def _meet(one: Node, other: Node) -> bool:
    try:
        return not regular.is_empty(regular.intersection(one, other))
    except TooComplex:
        return True


def _facts(
    body: Body, rules: Mapping[str, _Facts], known: list[Lexeme], number: Mapping[int, int], follow: list[Set]
) -> _Facts:
    """What a body begins and ends with; what follows what inside it is added to ``follow``."""
    if id(body) in number:
        i = number[id(body)]
        return _Facts(known[i].node.nullable, 1 << i, 1 << i)
    if isinstance(body, Ref):
        return rules[body.name]
    if isinstance(body, Alt):
        parts = [_facts(p, rules, known, number, follow) for p in body.parts]
        return _Facts(any(p.nullable for p in parts), _union(p.first for p in parts), _union(p.last for p in parts))
    if isinstance(body, Cat):
        done = _Facts(nullable=True)
        for part in body.parts:
            one = _facts(part, rules, known, number, follow)
            for i in _members(done.last):
                follow[i] |= one.first
            done = _Facts(
                done.nullable and one.nullable,
                done.first | (one.first if done.nullable else 0),
                one.last | (done.last if one.nullable else 0),
            )
        return done
    if isinstance(body, Rep):
        one = _facts(body.part, rules, known, number, follow)
        if body.high is None or body.high > 1:
            merges = body.high is None and body.low <= 1 and _merges(body.part, one, known, number)
            for i in _members(one.last):
                follow[i] |= one.first & ~one.last if merges else one.first
        return _Facts(one.nullable or body.low == 0, one.first, one.last)
    return _Facts(nullable=True)  # the empty text


def _merges(part: Body, facts: _Facts, known: list[Lexeme], number: Mapping[int, int]) -> bool:
    """Whether a repeated part is one lexeme, with ignored text before it or not, and two of them in a row are one:
    then a row of them never needs two with nothing between them."""
    if facts.nullable or facts.last.bit_count() != 1:
        return False
    only = known[facts.last.bit_length() - 1].node
    inside = [part]
    while inside:
        body = inside.pop()
        if id(body) in number:
            i = number[id(body)]
            if not known[i].repeats and 1 << i != facts.last:
                return False
        elif isinstance(body, Ref | Rep):
            return False
        elif isinstance(body, Cat | Alt):
            inside.extend(body.parts)
    try:
        return regular.includes(only, regular.concat(only, only))
    except TooComplex:
        return False


def _members(ones: Set) -> Iterator[int]:
    while ones:
        low = ones & -ones
        yield low.bit_length() - 1
        ones ^= low


def _union(sets: Iterator[Set]) -> Set:
    done = 0
    for one in sets:
        done |= one
    return done


def _steps(*nodes: Node) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """For every class of characters that all nodes treat alike: one of them, and the derivatives by it."""
    for cut in sorted({start for node in nodes for start in regular.moves(node)[0]}):
        yield cut, tuple(regular.derive(node, cut) for node in nodes)


def _extensions(one: Node, other: Node) -> int:
    """The bytes by which a text of ``one`` that is not empty goes on to begin a text of ``other``."""
    found = 0
    seen: set[tuple[int, int]] = set()  # pairs reached by a text that is not empty
    work = [(one, other)]
    try:
        while work:
            for _, (p, q) in _steps(*work.pop()):
                if (p.id, q.id) in seen or regular.is_empty(p) or regular.is_empty(q):
                    continue
                seen.add((p.id, q.id))
                work.append((p, q))
                if p.nullable:
                    found |= codepoints.leads(regular.live(q))
                if len(seen) > STATE_BOUND:
                    return (1 << 256) - 1
    except TooComplex:
        return (1 << 256) - 1
    return found


def splits(one: Node) -> bool:
    """Whether a greedy lexer takes every row of texts of ``one`` apart into texts of ``one``."""
    seen: set[tuple[int, int]] = set()
    work = [(regular.EPSILON, regular.star(one))]
    while work:
        lexed, row = work.pop()
        if row.nullable and not lexed.nullable:
            return False
        if lexed.nullable:
            ends = codepoints.difference(regular.live(one), regular.live(lexed))
            if codepoints.leads(ends) & codepoints.leads(regular.live(lexed)):
                return False  # a character that may go on and one that may begin share their first byte
        for _, (after, rest, again) in _steps(lexed, row, one):
            if lexed.nullable and regular.is_empty(after):
                after = again
            if regular.is_empty(rest):
                continue
            if regular.is_empty(after):
                return False
            if (after.id, rest.id) not in seen:
                seen.add((after.id, rest.id))
                work.append((after, rest))
                if len(seen) > STATE_BOUND:
                    return False
    return True
