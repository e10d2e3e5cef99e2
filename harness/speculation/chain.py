"""A chain of k drafts, as vLLM's structured-output manager treats it: a row for each draft and one for the token after.

Drafts are first held against the grammar. The first that is refused, and all after it, become sentinels (−1): they are
not scheduled, no row is filled behind them, and no statistics of acceptance count them, since a grammar's refusal says
nothing about how well a drafter knows the model. Then a row is filled for the state as it is and for the state after
each draft that is left; the last is that of the bonus token. The matcher is rewound by as many tokens as it was moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.backends.guard import Matcher
from harness.backends.protocol import NativeMatcher
from harness.bitmask import Row

SENTINEL = -1


@dataclass(frozen=True)
class Chain:
    """Drafts as a grammar left them. drafts: k token ids, sentinels from the first refused on. kept: how many are not
    sentinels. steps: those that a matcher is moved by, which are those kept but for an end-of-sequence, since nothing
    can follow one."""

    drafts: tuple[int, ...]
    kept: int
    steps: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows that are filled: one for each state that a token can be sampled in."""
        return len(self.steps) + 1


@dataclass(frozen=True)
class Acceptance:
    """What a serving engine counts of one step: drafts that were verified (sentinels are not), and those of them that
    the model confirmed."""

    drafted: int
    accepted: int


def filtered(matcher: Matcher, drafts: Sequence[int], eos: frozenset[int]) -> Chain:
    """The drafts held against the grammar, which is left as it was. UnsupportedError where a library can neither
    validate, fork nor rewind."""
    kept = matcher.validate(drafts)
    left = tuple(drafts[:kept])
    steps = left[:-1] if left and left[-1] in eos else left
    return Chain(left + (SENTINEL,) * (len(drafts) - kept), kept, steps)


def acceptance(chain: Chain, sampled: Sequence[int]) -> Acceptance:
    """sampled: the tokens that the model itself says, from the first draft's place on."""
    accepted = 0
    while accepted < min(chain.kept, len(sampled)) and chain.drafts[accepted] == sampled[accepted]:
        accepted += 1
    return Acceptance(chain.kept, accepted)


def rows_call(matcher: NativeMatcher, chain: Chain, rows: Row) -> Callable[[], None]:
    """A callable that fills the first ``chain.rows`` rows and leaves the matcher where it was.

    rows: int32, ``[at least chain.rows, words(V)]``. The matcher's own calls are bound here, so that nothing but they
    is inside a clock.
    """
    *fills, last = (matcher.fill_call(rows[i]) for i in range(chain.rows))
    accept, rewind, count = matcher.accept_call(), matcher.rollback_call(), len(chain.steps)
    steps = tuple(zip(fills, chain.steps, strict=True))

    def walk() -> None:
        for fill, token in steps:
            fill()
            accept(token)
        last()
        if count:
            rewind(count)

    return walk
