"""Where drafts come from: sources that are right, half right or wrong on purpose, the same ones every time.

A drafter is known here by how its drafts fare, not by how it finds them:

* ``right``: the document's own next tokens. Beside the document's way, in a tree, any token that the grammar allows.
* ``half_right``: at every node, what ``right`` would say with probability ½; else another token, with probability ½
  each one that the grammar allows there or one that it refuses.
* ``wrong``: refused from the first token on, and anything after that.

What "allowed" means is asked of the backend that is measured (``Lookahead``). A token is searched from a place in the
vocabulary that the seed alone fixes, so that backends whose rows differ little mostly get the same drafts. Drafts are
ordinary tokens: no special token and no end-of-sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.bitmask import Row
from harness.speculation.tree import DraftTree
from harness.vocabulary import Vocabulary

Source = Literal["right", "half_right", "wrong"]
SOURCES: tuple[Source, ...] = get_args(Source)


class Lookahead(Protocol):
    """What the grammar says after the tokens of ``path``, counted from where the drafts begin."""

    def row(self, path: tuple[int, ...]) -> Row:
        """The row after ``path``, all of which is allowed."""
        ...

    def accepts(self, path: tuple[int, ...], token: int) -> bool:
        """Whether ``token`` would be accepted after ``path``, whatever the row says."""
        ...


def chain_parents(drafts: int) -> tuple[int, ...]:
    """One draft after the other."""
    return tuple(range(-1, drafts))


def tree_parents(drafts: int) -> tuple[int, ...]:
    """Two drafts after every token, level by level: a complete binary tree of ``drafts`` nodes beside its root."""
    return (-1, *((node - 1) // 2 for node in range(1, drafts + 1)))


def draw(
    source: Source,
    parents: tuple[int, ...],
    upcoming: Sequence[int],
    ahead: Lookahead,
    vocabulary: Vocabulary,
    seed: str,
) -> DraftTree | None:
    """Drafts for the nodes of a tree whose first children are the document's way.

    upcoming: the document's next tokens; where the way is longer, it goes on with tokens that the grammar allows. None
    where ``wrong`` drafts are asked for and the grammar refuses no ordinary token here.
    """
    tokens = _Tokens(vocabulary, ahead, Random(f"{source} {seed}"))
    drawn = [-1] * len(parents)
    # Of each node: the tokens to it, None where one of them is refused; and whether it is on the document's way.
    paths: list[tuple[int, ...] | None] = [()] + [None] * (len(parents) - 1)
    own = [True] + [False] * (len(parents) - 1)
    depth = [0] * len(parents)
    for node in range(1, len(parents)):
        parent = parents[node]
        siblings = {drawn[other] for other in range(1, node) if parents[other] == parent}
        path, depth[node] = paths[parent], depth[parent] + 1
        own[node] = own[parent] and not siblings and depth[node] <= len(upcoming)
        if path is None:
            drawn[node] = tokens.any(siblings)
            continue
        document = upcoming[depth[node] - 1] if own[node] else None
        token = tokens.of(source, path, document, siblings)
        if token is None:
            return None
        drawn[node] = token
        if ahead.accepts(path, token) and bitmask.test(ahead.row(path), token):
            paths[node] = (*path, token)
    return DraftTree(parents, tuple(drawn))


class _Tokens:
    """Tokens drawn by a generator from those that a row allows or forbids."""

    def __init__(self, vocabulary: Vocabulary, ahead: Lookahead, random: Random) -> None:
        self._ahead = ahead
        self._random = random
        self._size = vocabulary.size
        self._ordinary = np.fromiter(map(bool, vocabulary.tokens), dtype=np.bool_, count=vocabulary.size)
        self._ordinary[list(vocabulary.special_ids)] = False

    def of(self, source: Source, path: tuple[int, ...], document: int | None, siblings: set[int]) -> int | None:
        """A token that fares as the source's do. Where the grammar allows one token only, or all of them, another one
        of the other kind is taken; of ``wrong`` drafts there is none then."""
        match source:
            case "right":
                return self._likely(path, document, siblings)
            case "wrong":
                return self._refused(path, siblings)
            case "half_right":
                if self._random.random() < 0.5:
                    return self._likely(path, document, siblings)
                besides = siblings if document is None else {*siblings, document}
                return self._one(path, besides, allowed=self._random.random() < 0.5)

    def any(self, besides: set[int]) -> int:
        """Any ordinary token."""
        (token,) = self._from(self._ordinary, besides, most=1)
        return token

    def _likely(self, path: tuple[int, ...], document: int | None, siblings: set[int]) -> int:
        return self._one(path, siblings, allowed=True) if document is None else document

    def _one(self, path: tuple[int, ...], besides: set[int], *, allowed: bool) -> int:
        """A token that is allowed, or one that is refused; of the other kind where there is none of that."""
        kinds = (self._allowed, self._refused) if allowed else (self._refused, self._allowed)
        for kind in kinds:
            token = kind(path, besides)
            if token is not None:
                return token
        return self.any(besides)

    def _allowed(self, path: tuple[int, ...], besides: set[int]) -> int | None:
        allowed = bitmask.unpack(self._ahead.row(path), self._size)
        return next(iter(self._from(allowed & self._ordinary, besides, most=1)), None)

    def _refused(self, path: tuple[int, ...], besides: set[int]) -> int | None:
        """A token that the row forbids and that is not accepted either: under the canonical token policy a row may
        forbid what is accepted."""
        forbidden = ~bitmask.unpack(self._ahead.row(path), self._size)
        candidates = self._from(forbidden & self._ordinary, besides, most=_TRIED)
        return next((token for token in candidates if not self._ahead.accepts(path, token)), None)

    def _from(self, wanted: npt.NDArray[np.bool_], besides: set[int], most: int) -> list[int]:
        """The first ``most`` of the wanted tokens from a random place of the vocabulary on, and round to it."""
        start = self._random.randrange(self._size)
        tokens = np.flatnonzero(wanted)
        turned = np.roll(tokens, -int(np.searchsorted(tokens, start)))
        return [token for token in turned[: most + len(besides)].tolist() if token not in besides][:most]


# Forbidden tokens looked at for one that is not accepted: of one text's spellings there are few.
_TRIED = 64
