"""outlines-core, the finite-automaton library that outlines and vLLM's ``outlines`` backend drive. Worker side.

Everything becomes one regular expression and then an ``Index`` (states × tokens, built for the whole vocabulary at
compile time); a request's state is a ``Guide``. The adapter never looks into a regular expression and never repairs a
mask: what the library makes of a constraint is what is measured and judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Literal

from harness import bitmask
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary

DISTRIBUTION = "outlines-core"

Whitespace = Literal["any", "bounded", "one_space", "compact", "spaced", "indented"]

# Tried on outlines-core 0.2.14, byte by byte over the synthetic vocabulary, and read in the regex it builds:
# * white space: ``[ ]?`` in every place between JSON tokens, none around the document. Two departures from
#   "none or one U+0020": no space is allowed before a comma in an array of ``items``, and two are in ``[  ]`` and in
#   ``{  }`` of an object without ``properties``.
# * keys come in the order of ``properties``, each once; a key not named there is never allowed, whatever
#   ``additionalProperties`` says. An object without ``properties`` takes any key, again and again: ``any``, since
#   declared order alone keeps declared keys from coming twice.
# * ``prefixItems`` allows exactly those items: none missing, none more, ``items`` beside it is not looked at.
# * an exponent needs its sign (``1e+5``; ``1e5`` is refused): rfc8259 is the nearest value. An integer is digits.
# * of the escapes ``\" \\ \/ \b \f \n \r \t`` are allowed and ``\u`` is not (so no lone surrogate either); U+007F to
#   U+009F are refused as if they had to be escaped. ``any`` is the nearest value: what is missing is missing from
#   RFC 8259. ``enum`` and ``const`` have their shortest spelling; keys are written as they are, a quote unescaped.
# * ``pattern`` must match the full string (``^…$`` is cut off; one anchor alone never compiles), and is matched against
#   the JSON text, so that a dot also takes a bare quote.
# * the dialect is the Rust regex crate's: ``\d \w \s`` are Unicode, the dot is anything but LF.
# * ``format`` binds for date-time, date, time, uri, uuid and email; every other one is refused by name.
_DEFAULT = Profile(
    whitespace="one_space",
    outer_whitespace=False,
    key_order="declared",
    duplicate_keys="any",
    additional_properties=False,
    additional_items=False,
    numbers="rfc8259",
    integer_spelling="digits",
    escapes="any",
    literal_escapes="minimal",
    lone_surrogates=False,
    pattern="full",
    regex_dialect="rust",
    format="assertion",
)

_RFC8259 = r"[ \t\n\r]"
# How the library is asked for each of the white spaces: the first is its own default.
_PATTERNS: Mapping[Whitespace, str] = {"one_space": "[ ]?", "compact": "", "any": f"{_RFC8259}*"}

# What of the library's messages means "not in this library" rather than "failed".
_NAMES_A_FEATURE = re.compile(
    r"^Unsupported|^External references|is not supported by Outlines|^Ref recu\w+ limit"
    r"|unsupported regex feature|universal start state"
)


class Outlines:
    """The outlines-core adapter.

    whitespace_pattern: the regular expression for white space between JSON tokens that ``default`` is to use instead
    of the library's own ``[ ]?``; a form that a ``Profile`` can describe, else MasktaxError. max_rollback: how many
    tokens a matcher can rewind; each state it keeps is 4 bytes.
    """

    name = "outlines"
    capabilities = Capabilities(
        kinds=frozenset({"json_schema", "regex", "choice"}),
        rollback=True,
        fork=True,
        reset=True,
        validate=True,
        notes=MappingProxyType(
            {
                "kinds": "regular languages only: no grammars, no structural tags, and JSON objects of any depth "
                "(json_object) are not one",
                "syntaxes": "regular languages only: no grammars",
                "rollback": "up to max_rollback tokens (an option), 32,768 unless told otherwise",
                "fork": "a Guide can only be copied with its whole Index (0.2 s for a middling one), so a fork is a "
                "new Guide that takes the same tokens again",
                "validate": "the call says yes or no to a whole list; the count is had by walking the Index",
                "forced": "the library has no jump-forward",
                "native_batch": "the library fills one row a call",
            }
        ),
    )
    profiles: Mapping[str, Profile] = MappingProxyType(
        {
            "default": _DEFAULT,
            "compact": replace(_DEFAULT, whitespace="compact"),
            "flexible": replace(_DEFAULT, whitespace="any"),
        }
    )

    def __init__(self, whitespace_pattern: str | None = None, max_rollback: int = 32_768) -> None:
        if max_rollback < 1:
            raise MasktaxError(f"outlines: max_rollback = {max_rollback} must be positive")
        self._max_rollback = max_rollback
        self._bound: tuple[Vocabulary, Any] | None = None
        if whitespace_pattern is not None:
            self.profiles = {**self.profiles, "default": _described(whitespace_pattern)}

    @property
    def version(self) -> str:
        try:
            return version(DISTRIBUTION)
        except PackageNotFoundError as error:
            raise UnsupportedError(f"{DISTRIBUTION} is not installed: pip install 'masktax[backends]'") from error

    def load(self) -> None:
        try:
            import outlines_core  # noqa: F401
        except ImportError as error:
            raise UnsupportedError(f"{DISTRIBUTION} cannot be imported: {error}") from error

    def bind(self, vocabulary: Vocabulary) -> None:
        if self._bound is None or self._bound[0].sha256 != vocabulary.sha256:
            self.load()
            self._bound = (vocabulary, _tables(vocabulary))

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> _Grammar:
        if profile not in self.profiles.values():
            raise UnsupportedError(f"outlines cannot be asked for this profile; it has {', '.join(self.profiles)}")
        if constraint.kind not in self.capabilities.kinds:
            raise UnsupportedError(f"outlines has no {constraint.kind}: {self.capabilities.notes['kinds']}")
        self.bind(vocabulary)
        assert self._bound is not None
        from outlines_core import Index

        regex = _regex(constraint, profile)
        with _refusals():
            index = Index(regex, self._bound[1])
        return _Grammar(index, vocabulary, self._max_rollback)

    def forget(self) -> None:
        """The library keeps no compiled grammars, so there is nothing to empty."""


@dataclass(frozen=True)
class _Grammar:
    """index: ``outlines_core.Index``."""

    index: Any
    vocabulary: Vocabulary
    max_rollback: int

    def native_matcher(self) -> _Matcher:
        return _Matcher(self)


class _Matcher:
    """One ``Guide``. Only the first eos id is known to the library, and not even that one can be advanced over: the
    end is kept here, and ``fill`` gives every further eos id the bit of the first."""

    def __init__(self, grammar: _Grammar) -> None:
        from outlines_core import Guide

        self._grammar = grammar
        self._guide = Guide(grammar.index, max_rollback=grammar.max_rollback)
        self._eos = frozenset(grammar.vocabulary.eos_ids)
        self._history: list[int] = []

    def fill(self, row: Row) -> None:
        self._guide.write_mask_into(row.ctypes.data, row.size, 4)
        first, *others = self._grammar.vocabulary.eos_ids
        for eos in others:
            bitmask.set_bit(row, eos, bitmask.test(row, first))

    def accept(self, token: int) -> bool:
        if token in self._eos:
            if not self._guide.is_finished():
                return False
        else:
            try:
                # With return_tokens the state would already have moved where listing the tokens fails.
                self._guide.advance(token, return_tokens=False)
            except ValueError:
                return False
        self._history.append(token)
        return True

    def is_accepting(self) -> bool:
        # Despite its name: whether the automaton's state is final, which a longer text may leave again.
        finished: bool = self._guide.is_finished()
        return finished

    def validate(self, tokens: Sequence[int]) -> int:
        index, state, count = self._grammar.index, self._guide.get_state(), 0
        for token in tokens:
            if token in self._eos:
                return count + bool(index.is_final_state(state))
            state = index.get_next_state(state, token)
            if state is None:
                break
            count += 1
        return count

    def rollback(self, count: int) -> None:
        ended = bool(self._history) and self._history[-1] in self._eos
        self._guide.rollback_state(count - ended)
        del self._history[len(self._history) - count :]

    def forced(self) -> bytes:
        raise UnsupportedError(Outlines.capabilities.notes["forced"])

    def fork(self) -> _Matcher:
        """RuntimeError where the bound calls, which record nothing, were used to move this matcher."""
        copy = _Matcher(self._grammar)
        for token in self._history:
            copy.accept(token)
        if copy._guide.get_state() != self._guide.get_state():
            raise RuntimeError("a matcher that was moved by accept_call or rollback_call cannot be forked")
        return copy

    def reset(self) -> None:
        self._guide.reset()
        self._history.clear()

    def fill_call(self, row: Row) -> Callable[[], object]:
        """The library's own call. Of several eos ids it writes the first alone, as a user's loop has it."""
        call = partial(self._guide.write_mask_into, row.ctypes.data, row.size, 4)
        call.__dict__["row"] = row  # the address must not outlive its memory
        return call

    def accept_call(self) -> Callable[[int], object]:
        """True, or the library's ValueError. Its ``advance`` raises on an eos id anywhere, so that a user's loop looks
        for one first; and a function costs less here than ``partial`` with a keyword does (20 ns against 100)."""
        advance, is_finished, eos = self._guide.advance, self._guide.is_finished, self._eos

        def accept(token: int) -> object:
            if token in eos:
                return is_finished()
            advance(token, False)
            return True

        return accept

    def validate_call(self) -> Callable[[list[int]], object]:
        call: Callable[[list[int]], object] = self._guide.accepts_tokens
        return call

    def rollback_call(self) -> Callable[[int], object]:
        call: Callable[[int], object] = self._guide.rollback_state
        return call


def _tables(vocabulary: Vocabulary) -> Any:
    """``outlines_core.Vocabulary``: ids by their bytes. A token without bytes would loop on every state: left out."""
    from outlines_core import Vocabulary as Table

    ids: dict[bytes, list[int]] = {}
    for token, piece in enumerate(vocabulary.tokens):
        if piece:
            ids.setdefault(piece, []).append(token)
    return Table(vocabulary.eos_ids[0], ids)


def _regex(constraint: Constraint, profile: Profile) -> str:
    if constraint.kind == "regex":
        return constraint.text
    if constraint.kind == "choice":
        # Longest first: the library's automaton keeps only what the first alternative to match leaves open, so that
        # ``a|ab`` takes "a" alone and ``ab|a`` takes both.
        choices = sorted(dict.fromkeys(constraint.json()), key=len, reverse=True)
        return f"({'|'.join(_escaped(c) for c in choices)})"
    from outlines_core.json_schema import build_regex_from_schema

    with _refusals():
        regex: str = build_regex_from_schema(constraint.text, _whitespace_pattern(profile))
    return regex


def _escaped(text: str) -> str:
    r"""Every ASCII character that is no letter, digit or white space behind a backslash; not ``<`` and ``>``, for
    which ``\<`` and ``\>`` are word boundaries in the Rust regex crate."""
    return re.sub(r"[!-/:;=?@\[-`{-~]", r"\\\g<0>", text)


def _whitespace_pattern(profile: Profile) -> str:
    if profile.whitespace == "bounded":
        return f"{_RFC8259}{{0,{profile.whitespace_limit}}}"
    return _PATTERNS[profile.whitespace]


def _described(whitespace_pattern: str) -> Profile:
    """The profile under which this pattern is declared truthfully; MasktaxError where none describes it."""
    for whitespace, pattern in _PATTERNS.items():
        if pattern == whitespace_pattern:
            return replace(_DEFAULT, whitespace=whitespace)
    bound = re.fullmatch(re.escape(_RFC8259) + r"\{0,([1-9][0-9]*)\}", whitespace_pattern)
    if bound:
        return replace(_DEFAULT, whitespace="bounded", whitespace_limit=int(bound[1]))
    known = ", ".join(map(repr, _PATTERNS.values()))
    raise MasktaxError(
        f"outlines: no profile describes whitespace_pattern {whitespace_pattern!r}; use {known} or '{_RFC8259}{{0,N}}'"
    )


@contextmanager
def _refusals() -> Iterator[None]:
    """The library's exceptions as the project's: ValueError for everything, TypeError for what is not JSON."""
    try:
        yield
    except (ValueError, TypeError) as error:
        message = " ".join(str(error).split())[:500]  # some quote the whole regular expression, or schema
        if _NAMES_A_FEATURE.search(message):
            raise UnsupportedError(f"outlines-core: {message}") from error
        raise CompileError(f"outlines-core: {message}") from error
