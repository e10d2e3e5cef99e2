"""The reference engine as two backends: ``reference``, its fast mask maker, and ``naive``, the definition.

Worker side. Both ask the same automaton what may follow (``harness.reference.compile``); they share nothing else that
makes a row, so that one can be held against the other bit for bit. Neither has a policy of its own: any profile may be
asked for, and is followed exactly or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import harness
from harness import encoders
from harness.backends.protocol import Capabilities
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import compile as compiler
from harness.reference import regions
from harness.reference.automaton import TooComplex
from harness.reference.masker import LOCK, Masker
from harness.reference.matcher import Grammar
from harness.vocabulary import Vocabulary

_CAPABILITIES = Capabilities(
    kinds=frozenset({"json_schema", "json_object", "regex", "grammar", "choice", "structural_tag"}),
    syntaxes=frozenset({"ebnf", "gbnf", "lark"}),
    rollback=True,
    fork=True,
    reset=True,
    validate=True,
    forced=True,
    notes=MappingProxyType({"native_batch": "rows are filled one by one"}),
)

_DEFAULT = Profile(duplicate_keys="forbidden")
_COMPACT = replace(_DEFAULT, whitespace="compact", outer_whitespace=False)

# default: the standards' language, without repeated keys (RFC 8259: names should be unique). standard: with them, of
# which the last one counts, so that any value at all may stand under a key that can be repeated. Any other profile may
# be given, too.
_PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "default": _DEFAULT,
        "standard": Profile(),
        "compact": _COMPACT,
        "spaced": replace(_COMPACT, whitespace="spaced"),
        "declared": replace(_COMPACT, key_order="declared"),
        "minimal": replace(_COMPACT, escapes="minimal"),
        "canonical": replace(_DEFAULT, tokens="canonical"),
        "compact_canonical": replace(_COMPACT, tokens="canonical"),
    }
)


class Reference:
    """The reference engine. It needs no library but numpy."""

    name = "reference"
    capabilities = _CAPABILITIES
    profiles = _PROFILES
    _by_definition = False

    @property
    def version(self) -> str:
        return harness.__version__

    def load(self) -> None:
        """Nothing to import."""

    def bind(self, vocabulary: Vocabulary) -> None:
        with LOCK:
            regions.of(vocabulary).prepare()

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Grammar:
        return _compile(constraint, vocabulary, profile, by_definition=self._by_definition)

    def forget(self) -> None:
        """Nothing to empty: no compiled grammar is kept."""


class Naive(Reference):
    """The definition: for every token, step its bytes. It has no ambition to be fast."""

    name = "naive"
    _by_definition = True

    def bind(self, vocabulary: Vocabulary) -> None:
        """Nothing to build."""


def _compile(constraint: Constraint, vocabulary: Vocabulary, profile: Profile, *, by_definition: bool) -> Grammar:
    encode = None
    if profile.tokens == "canonical":
        if vocabulary.encoder is None:
            raise UnsupportedError(
                f"the token policy 'canonical' needs an encoder, which vocabulary {vocabulary.name} has not",
                keyword="tokens",
            )
        encode = partial(encoders.encode, vocabulary)
    with LOCK:
        try:
            automaton = compiler.compile(constraint, profile)
            return Grammar(Masker(automaton, vocabulary, by_definition=by_definition), encode)
        except TooComplex as bound:
            raise UnsupportedError(f"too complex: {bound}") from bound
