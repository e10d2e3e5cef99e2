"""Every backend that can rewind, on one regular expression and one schema, beside the reference engine on the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import strategies as st

from harness import encoders
from harness.backends import guard, registry
from harness.backends.protocol import Capabilities, Grammar, NativeMatcher
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.profile import Profile
from harness.speculation.lookahead import row_of
from harness.vocabulary import synthetic

VOCABULARY = synthetic()
EOS = frozenset(VOCABULARY.eos_ids)

# A profile whose rows hold every way to cut a text into tokens, so that there is one right row for all.
PROFILES = {
    "naive": "default", "reference": "default", "xgrammar": "default", "llguidance": "no_forcing",
    "outlines": "default", "lm-format-enforcer": "default",
}  # fmt: skip
LIBRARIES = {
    "xgrammar": "xgrammar", "llguidance": "llguidance", "outlines": "outlines_core",
    "lm-format-enforcer": "lmformatenforcer",
}  # fmt: skip
OPTIONS = {"lm-format-enforcer": {"use_bitmask": False}}

# Texts that may end in several places; the library that is known to refuse what leads on from there has one end only.
OPEN, CLOSED = "ab(c|q)?(12|yes)*", "ab(c|q)?(12|yes)*}"
TRACE = encoders.encode(VOCABULARY, "abc12yes12yesyes")


@dataclass(frozen=True)
class Subject:
    """A backend with an expression compiled, and the reference engine under the very profile that it declares.

    ending: what comes after ``TRACE`` in a whole document.
    """

    name: str
    capabilities: Capabilities
    grammar: Grammar
    judge: Grammar
    ending: tuple[int, ...]

    def native(self, prefix: Sequence[int] = ()) -> NativeMatcher:
        matcher = self.grammar.native_matcher()
        assert all(map(matcher.accept, prefix))
        return matcher

    def guarded(self, prefix: Sequence[int] = ()) -> guard.Matcher:
        return guard.Matcher(self.native(prefix), VOCABULARY, self.capabilities)

    def right_row(self, path: Sequence[int]) -> Row:
        """The reference engine's row after ``path``."""
        matcher = self.judge.native_matcher()
        assert all(map(matcher.accept, path))
        return row_of(matcher, VOCABULARY.size)

    def right_length(self, prefix: Sequence[int], drafts: Sequence[int]) -> int:
        """How many leading drafts the reference engine accepts; nothing follows an end."""
        matcher, count = self.judge.native_matcher(), 0
        assert all(map(matcher.accept, prefix))
        while count < len(drafts) and matcher.accept(drafts[count]):
            count += 1
        return count


@cache
def subject(name: str) -> Subject:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    backend = registry.create(name, OPTIONS.get(name, {}))
    profile: Profile = backend.profiles[PROFILES[name]]
    closed = name == "outlines"
    constraint = Constraint("regex", CLOSED if closed else OPEN)
    judge = registry.create("reference").compile(constraint, VOCABULARY, profile)
    grammar = backend.compile(constraint, VOCABULARY, profile)
    return Subject(name, backend.capabilities, grammar, judge, encoders.encode(VOCABULARY, "}") if closed else ())


every = pytest.mark.parametrize("name", PROFILES)

_USUAL = sorted({*TRACE, *(VOCABULARY.tokens.index(piece) for piece in (b"ab", b"a", b"b", b"q", b"abc", b"1", b"y"))})
_ORDINARY = [t for t in range(VOCABULARY.size) if t not in VOCABULARY.special_ids]
tokens = st.one_of(
    st.sampled_from(_USUAL), st.sampled_from(_USUAL), st.sampled_from(_ORDINARY), st.sampled_from(sorted(EOS))
)
positions = st.integers(0, len(TRACE) - 1)


@st.composite
def continuations(draw: st.DrawFn, position: int, most: int) -> list[int]:
    """Drafts that follow the document for a while, and then anything."""
    right = draw(st.integers(0, most))
    own = list(TRACE[position : position + right])
    return own + draw(st.lists(tokens, max_size=most - len(own)))
