"""How a text can be finished: the shortest completion of a state, states that a vocabulary cannot leave, and walks.

A completion is looked for breadth first over bytes, so it is as short as can be. The search is bounded: a language
whose shortest documents are long and many has more states on the way than can be visited.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness import bitmask
from harness.reference import regions, trie
from harness.reference.automaton import Automaton, TooComplex, WithHints, WithRegions, WithViableBytes
from harness.vocabulary import Vocabulary

# States that one search may visit.
STATES = 200_000


def viable_bytes(automaton: Automaton[Any], state: Any) -> Iterable[int]:
    """Bytes among which are all that can follow, in ascending order."""
    if isinstance(automaton, WithRegions):
        region = automaton.region(state)
        if region is not None:
            follow = region.follow or () if region.open else ()
            return sorted({*(byte for byte, _ in regions.machine_moves(region.machine, region.state)), *follow})
    if isinstance(automaton, WithViableBytes):
        return sorted(automaton.viable_bytes(state))
    return range(256)


def shortest_completion(automaton: Automaton[Any], state: Any, *, most: int = STATES) -> bytes:
    """A shortest text that makes a whole document out of what led to ``state``; of several the least by bytes.

    TooComplex where more than ``most`` states would have to be visited.
    """
    if automaton.accepting(state):
        return b""
    came: dict[Hashable, tuple[Hashable, int] | None] = {state: None}
    waiting: deque[Any] = deque([state])
    while waiting:
        at = waiting.popleft()
        for byte in viable_bytes(automaton, at):
            after = automaton.step(at, byte)
            if after is None or after in came:
                continue
            came[after] = (at, byte)
            if automaton.accepting(after):
                return _way(came, after)
            if len(came) > most:
                raise TooComplex(f"the shortest completion needs more than {most} states to find")
            waiting.append(after)
    raise AssertionError("a state without any completion: the automaton breaks its promise that every state is viable")


def _way(came: dict[Hashable, tuple[Hashable, int] | None], state: Hashable) -> bytes:
    out = bytearray()
    while (step := came[state]) is not None:
        state = step[0]
        out.append(step[1])
    out.reverse()
    return bytes(out)


def some_completion(automaton: Automaton[Any], state: Any, *, most: int = STATES // 10) -> bytes:
    """A completion, not always a shortest one: depth first, by what the automaton itself suggests (``hints``: texts
    that lead to an end), then by the shortest end of a scalar, then by single bytes, those that close first.

    For steering a long walk to its end, where looking at every shorter text would be too much. TooComplex as above.
    """
    out: list[bytes] = []
    seen = {state}
    at = state
    trail: list[tuple[Any, Iterator[bytes]]] = [(at, _suggestions(automaton, at))]
    while not automaton.accepting(at):
        for text in trail[-1][1]:
            after = _after(automaton, trail[-1][0], text)
            if after is None or after in seen:
                continue
            seen.add(after)
            if len(seen) > most:
                raise TooComplex(f"no completion was found among {most} states")
            out.append(text)
            at = after
            trail.append((at, _suggestions(automaton, at)))
            break
        else:  # everything from here was tried
            trail.pop()
            out.pop()
            at = trail[-1][0]
    return b"".join(out)


_CLOSING = {byte: place for place, byte in enumerate(b'"}],:0123456789abcdefghijklmnopqrstuvwxyz')}


def _suggestions(automaton: Automaton[Any], state: Any) -> Iterator[bytes]:
    if isinstance(automaton, WithHints):
        yield from automaton.hints(state)
    region = automaton.region(state) if isinstance(automaton, WithRegions) else None
    if region is not None:
        with suppress(TooComplex):
            yield shortest_completion(region.machine, region.state, most=2_000)
    for byte in sorted(viable_bytes(automaton, state), key=lambda b: (_CLOSING.get(b, 100), b)):
        yield bytes((byte,))


def completion_tokens(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """A fewest-token spelling of ``text``; ValueError where the vocabulary cannot spell it."""
    tree = trie.of(vocabulary)
    best: list[tuple[int, int] | None] = [None] * (len(text) + 1)  # tokens needed so far, the last one
    best[0] = (0, -1)
    for start in range(len(text)):
        reached = best[start]
        if reached is None:
            continue
        node = 0
        for end in range(start, len(text)):
            node = tree.child(node, text[end])
            if node < 0:
                break
            ids = tree.ids(node)
            found = best[end + 1]
            if ids and (found is None or found[0] > reached[0] + 1):
                best[end + 1] = (reached[0] + 1, ids[0])
    out: list[int] = []
    at = len(text)
    while at:
        step = best[at]
        if step is None:
            raise ValueError(f"vocabulary {vocabulary.name} cannot spell {text[:40]!r}")
        out.append(step[1])
        at -= len(vocabulary.tokens[step[1]])
    out.reverse()
    return out


@dataclass(frozen=True)
class Stuck:
    """A state that tokens lead to and do not lead on from. text: how it is reached. missing: the bytes that could
    follow, none of which the vocabulary can go on with to the end of a document."""

    text: bytes
    missing: tuple[int, ...]


def completable(automaton: Automaton[Any], vocabulary: Vocabulary, *, most: int = STATES) -> tuple[Stuck, ...]:
    """The states, reachable by tokens, from which no tokens lead to a whole document, and on which bytes; the shortest
    texts first. Nothing where every document can be finished from everywhere.

    Where every byte is a token that is so by nature. Otherwise every state that tokens can reach is visited: TooComplex
    where there are more than ``most``.
    """
    single = {text[0] for text in vocabulary.tokens if len(text) == 1}
    if len(single) == 256:
        return ()
    start = automaton.start()
    if start is None:
        return ()
    tree = trie.of(vocabulary)
    texts: dict[Hashable, bytes] = {start: b""}
    before: dict[Hashable, set[Hashable]] = {}
    waiting: deque[Any] = deque([start])
    while waiting:
        at = waiting.popleft()
        for text, after in _token_steps(automaton, tree, at):
            before.setdefault(after, set()).add(at)
            if after not in texts:
                if len(texts) >= most:
                    raise TooComplex(f"{vocabulary.name} lacks bytes, and there are more than {most} states to look at")
                texts[after] = texts[at] + text
                waiting.append(after)
    finishing = [state for state in texts if automaton.accepting(state)]
    good = set(finishing)
    while finishing:
        for earlier in before.get(finishing.pop(), ()):
            if earlier not in good:
                good.add(earlier)
                finishing.append(earlier)
    stuck = [
        Stuck(text, tuple(b for b in viable_bytes(automaton, state) if automaton.step(state, b) is not None))
        for state, text in texts.items()
        if state not in good
    ]
    return tuple(sorted(stuck, key=lambda s: (len(s.text), s.text)))


def _token_steps(automaton: Automaton[Any], tree: trie.Trie, state: Any) -> Iterator[tuple[bytes, Any]]:
    """The states after each token that is viable, each (text, state)."""
    waiting = [(0, b"", state)]
    while waiting:
        node, text, at = waiting.pop()
        for child in range(tree.first_list[node], tree.first_list[node + 1]):
            after = automaton.step(at, tree.labels[child])
            if after is not None:
                longer = text + tree.labels[child : child + 1]
                if tree.token_first_list[child] < tree.token_first_list[child + 1]:
                    yield longer, after
                waiting.append((child, longer, after))


def walk(
    row: Callable[[Any], bitmask.Row],
    automaton: Automaton[Any],
    vocabulary: Vocabulary,
    random_: random.Random,
    *,
    free: int,
    choose: Callable[[Any, Sequence[int]], int] | None = None,
) -> list[int]:
    """A document as tokens: ``free`` tokens chosen at random under the mask, then a completion; ends early where only
    an end is allowed. ``row``: the mask of an automaton's state. ``choose``: one of the allowed tokens of a state.
    AssertionError at a dead end, and where the mask lacks a token of the completion: for tests."""
    state = automaton.start()
    assert state is not None, "the language is empty"
    out: list[int] = []
    eos = set(vocabulary.eos_ids)
    for _ in range(free):
        allowed = [t for t in bitmask.tokens(row(state), vocabulary.size).tolist() if t not in eos]
        if not allowed:
            assert automaton.accepting(state), f"a dead end after {vocabulary.decode(out)!r}"
            return out
        token = random_.choice(allowed) if choose is None else choose(state, allowed)
        out.append(token)
        state = _after(automaton, state, vocabulary.tokens[token])
        assert state is not None, f"the mask allows what is not viable after {vocabulary.decode(out[:-1])!r}"
    for token in completion_tokens(vocabulary, some_completion(automaton, state)):
        assert bitmask.test(row(state), token), f"the mask lacks a completion after {vocabulary.decode(out)!r}"
        out.append(token)
        state = _after(automaton, state, vocabulary.tokens[token])
    assert automaton.accepting(state)
    assert all(bitmask.test(row(state), e) for e in eos)
    return out


def _after(automaton: Automaton[Any], state: Any, text: bytes) -> Any:
    for byte in text:
        if state is None:
            return None
        state = automaton.step(state, byte)
    return state
