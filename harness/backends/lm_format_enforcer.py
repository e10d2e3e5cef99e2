"""lm-format-enforcer, character-level parsers in Python walked along a prefix tree of the vocabulary. Worker side.

A ``TokenEnforcer`` keeps a parser for every token prefix that it was ever asked about; a request's state is its prefix,
nothing more. The adapter must never ask about a prefix whose parent was not asked about before: the library would
answer, without a word, for the start of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from harness import bitmask
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary

DISTRIBUTION = "lm-format-enforcer"

# lmformatenforcer/consts.py, written out so that its environment variables (LMFE_…) bend nothing unnoticed.
MAX_CONSECUTIVE_WHITESPACES = 12
MAX_JSON_ARRAY_LENGTH = 20

# Tried on lm-format-enforcer 0.11.3, character by character over the synthetic vocabulary, and read in its source:
# * white space: at most 12 of space, tab, LF and CR in every place, around the document too. Under ``compact`` (none)
#   a space is also refused inside keys, enum strings and strings with a pattern: the limit is on characters.
# * a schema with ``properties`` takes those keys once each, in any order, and no other, whatever
#   ``additionalProperties`` says. One without takes any key, again and again, even under
#   ``additionalProperties: false``. ``prefixItems`` is not looked at.
# * numbers: RFC 8259, and ``1.e5`` too. An integer may have an exponent, a negative one as well (``1e-3``), and never
#   a fraction, but for ``-0.5``: ``value`` is the nearest value, for what is missing (``7.0``) is an integer.
# * every escape, half surrogate pairs too. Raw control characters other than LF and CR are allowed inside strings.
#   Keys, ``enum`` and ``const`` have one spelling: the text as it is, which is the shortest where nothing in it needs
#   an escape, and no JSON where something does.
# * ``pattern`` must match the full string (one ``^`` and one ``$`` are cut off); quotes and backslashes never match.
# * the dialect is interegular's: ``\d \w \s`` are ASCII, the dot is anything but LF. ``ecma262`` is the nearest value;
#   its dot leaves out CR, U+2028 and U+2029 as well, and its ``\s`` has Unicode's spaces.
# * ``format`` never binds.
# Beyond any profile: an array without ``maxItems`` has at most 20 items, and items that end by themselves (``null``,
# ``true``) count twice; a comma may stand before ``}`` where only optional keys are left; a string with ``minLength``
# begins in ASCII; lengths count what is written, ``\n`` as two; inside free strings no token may end within an escape.
_DEFAULT = Profile(
    whitespace="bounded",
    whitespace_limit=MAX_CONSECUTIVE_WHITESPACES,
    outer_whitespace=True,
    key_order="any",
    duplicate_keys="forbidden",
    additional_properties=False,
    additional_items=True,
    numbers="rfc8259",
    integer_spelling="value",
    escapes="any",
    literal_escapes="minimal",
    lone_surrogates=True,
    pattern="full",
    regex_dialect="ecma262",
    format="annotation",
)
_COMPACT = replace(_DEFAULT, whitespace="compact", whitespace_limit=0, outer_whitespace=False)


class LMFormatEnforcer:
    """The lm-format-enforcer adapter.

    max_consecutive_whitespaces, force_json_field_order, max_json_array_length: the library's
    ``CharacterLevelParserConfig``. The first is the ``default`` profile's; the second makes required keys come first
    and in the order of ``required``; 0 for the third means no limit. use_bitmask: masks as torch rows, as vLLM asks
    for them, or as lists of ids, which need no torch. word_starts: which tokens the library is told begin a word (it
    decodes from the last one on at every step): ``none``, which is what its own builder finds in byte-level
    vocabularies, or ``space``, those that begin with a space, as in sentencepiece vocabularies.
    """

    name = "lm-format-enforcer"
    capabilities = Capabilities(
        kinds=frozenset({"json_schema", "json_object", "regex", "choice"}),
        rollback=True,
        fork=True,
        reset=True,
        validate=True,
        notes=MappingProxyType(
            {
                "kinds": "works on text: tokens that are parts of UTF-8 characters are never allowed; "
                "no grammars, no structural tags",
                "syntaxes": "the library has parsers for JSON, regular expressions and strings, and no grammars",
                "rollback": "the state is the prefix: a shorter prefix",
                "fork": "the state is the prefix: a copy of it, with the masks found so far in common",
                "validate": "asks for the mask after each of the tokens, as vLLM does",
                "forced": "the library has no jump-forward",
                "native_batch": "the library gives one mask a call",
            }
        ),
    )
    profiles: Mapping[str, Profile] = MappingProxyType({"default": _DEFAULT, "compact": _COMPACT})

    def __init__(
        self,
        max_consecutive_whitespaces: int = MAX_CONSECUTIVE_WHITESPACES,
        force_json_field_order: bool = False,
        max_json_array_length: int = MAX_JSON_ARRAY_LENGTH,
        use_bitmask: bool = True,
        word_starts: Literal["none", "space"] = "none",
    ) -> None:
        if max_consecutive_whitespaces < 1:
            raise MasktaxError(
                "lm-format-enforcer: max_consecutive_whitespaces must be positive; profile 'compact' is 0"
            )
        if word_starts not in ("none", "space"):
            raise MasktaxError(f"lm-format-enforcer: word_starts = {word_starts!r} is none of none, space")
        # Required keys come in the order of ``required``, the others after them: not quite "declared", but nearest.
        order: Literal["declared", "any"] = "declared" if force_json_field_order else "any"
        self.profiles = {
            "default": replace(_DEFAULT, whitespace_limit=max_consecutive_whitespaces, key_order=order),
            "compact": replace(_COMPACT, key_order=order),
        }
        self._config = {
            "force_json_field_order": force_json_field_order,
            "max_json_array_length": max_json_array_length,
        }
        self._use_bitmask = use_bitmask
        self._word_starts = word_starts
        self._patterns: dict[str, Any] = {}
        self._bound: tuple[Vocabulary, Any] | None = None

    @property
    def version(self) -> str:
        try:
            return version(DISTRIBUTION)
        except PackageNotFoundError as error:
            raise UnsupportedError(f"{DISTRIBUTION} is not installed: pip install 'masktax[backends]'") from error

    def load(self) -> None:
        try:
            import lmformatenforcer  # noqa: F401

            if self._use_bitmask:
                import torch  # noqa: F401
        except ImportError as error:
            hint = "; without torch, give the option use_bitmask = false" if error.name == "torch" else ""
            raise UnsupportedError(f"{DISTRIBUTION} cannot be imported: {error}{hint}") from error

    def bind(self, vocabulary: Vocabulary) -> None:
        if self._bound is None or self._bound[0].sha256 != vocabulary.sha256:
            self.load()
            self.forget()
            self._bound = (vocabulary, _tables(vocabulary, self._use_bitmask, self._word_starts))

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> _Grammar:
        if profile not in self.profiles.values():
            raise UnsupportedError(f"{self.name} cannot be asked for this profile; it has {', '.join(self.profiles)}")
        if constraint.kind not in self.capabilities.kinds:
            raise UnsupportedError(f"{self.name} has no {constraint.kind}: {self.capabilities.notes['syntaxes']}")
        schema = _schema(constraint)
        self.bind(vocabulary)
        assert self._bound is not None
        tables = self._bound[1]
        config = self._config | {"max_consecutive_whitespaces": profile.whitespace_limit}
        from lmformatenforcer import TokenEnforcer

        try:
            parser = self._json(schema, config) if schema is not None else _text(constraint)
            enforcer = TokenEnforcer(tables, parser)
        except Exception as error:  # the library itself raises bare Exception
            raise _refusal(error) from error
        if schema is not None:
            # The enforcer has just put a configuration out of the environment in the place of ours, for the sake of
            # the vocabulary's alphabet.
            parser.config = replace(parser.config, **config)
        return _Grammar(enforcer, vocabulary, {"tokens_without_text": vocabulary.size - len(tables.regular_tokens)})

    def forget(self) -> None:
        self._patterns = {}

    def _json(self, schema: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
        from lmformatenforcer import CharacterLevelParserConfig, JsonSchemaParser
        from lmformatenforcer.consts import COMPLETE_ALPHABET

        # The library keeps the automata of ``pattern`` in one table for the whole process, whatever the vocabulary.
        # Here each backend has its own: through the class while the parser is made, through the parser from then on.
        JsonSchemaParser._Context.regex_parser_cache = self._patterns
        parser = JsonSchemaParser(schema, CharacterLevelParserConfig(alphabet=COMPLETE_ALPHABET, **config))
        parser.context.regex_parser_cache = self._patterns
        return parser


@dataclass(frozen=True)
class _Grammar:
    """enforcer: ``lmformatenforcer.TokenEnforcer``, shared by all matchers as the library means it to be: what one
    has asked is a look-up for the next. (vLLM makes one for each request, which then pays for first visits only.)
    facts: what is recorded with the measurements."""

    enforcer: Any
    vocabulary: Vocabulary
    facts: Mapping[str, Any] = field(default_factory=dict)

    def native_matcher(self) -> _Matcher:
        return _Matcher(self.enforcer, self.vocabulary, [])


class _Matcher:
    """One prefix. Its parent is always known to the enforcer: nothing is appended before the mask was asked for."""

    def __init__(self, enforcer: Any, vocabulary: Vocabulary, prefix: list[int]) -> None:
        self._enforcer = enforcer
        self._vocabulary = vocabulary
        self._prefix = prefix

    def fill(self, row: Row) -> None:
        with _lazy_refusals():
            self.fill_call(row)()

    def accept(self, token: int) -> bool:
        with _lazy_refusals():
            return bool(self.accept_call()(token))

    def is_accepting(self) -> bool:
        with _lazy_refusals():
            self._enforcer.get_allowed_tokens(self._prefix)  # so that the prefix is known
        return bool(self._enforcer.prefix_states[tuple(self._prefix)].parser.can_end())

    def validate(self, tokens: Sequence[int]) -> int:
        with _lazy_refusals():
            return _validate(self._enforcer, self._prefix, tokens)

    def rollback(self, count: int) -> None:
        self.rollback_call()(count)

    def forced(self) -> bytes:
        raise UnsupportedError(LMFormatEnforcer.capabilities.notes["forced"])

    def fork(self) -> _Matcher:
        return _Matcher(self._enforcer, self._vocabulary, list(self._prefix))

    def reset(self) -> None:
        self._prefix.clear()

    # None of these is one call of the library, which knows neither rows nor accepting: each is what vLLM's adapter
    # does, in one frame.

    def fill_call(self, row: Row) -> Callable[[], object]:
        ask, prefix = self._enforcer.get_allowed_tokens, self._prefix
        if self._enforcer.use_bitmask:
            import torch

            write = torch.from_numpy(row).copy_

            def fill() -> None:
                write(ask(prefix).allowed_tokens)

        else:
            size = self._vocabulary.size

            def fill() -> None:
                allowed = np.zeros(size, dtype=np.bool_)
                allowed[ask(prefix).allowed_tokens] = True
                row[:] = bitmask.pack(allowed)

        return fill

    def accept_call(self) -> Callable[[int], object]:
        ask, prefix, append = self._enforcer.get_allowed_tokens, self._prefix, self._prefix.append

        def accept(token: int) -> bool:
            if not ask(prefix).is_token_allowed(token):
                return False
            append(token)
            return True

        return accept

    def validate_call(self) -> Callable[[list[int]], object]:
        enforcer, prefix = self._enforcer, self._prefix

        def validate(tokens: list[int]) -> int:
            return _validate(enforcer, prefix, tokens)

        return validate

    def rollback_call(self) -> Callable[[int], object]:
        prefix = self._prefix

        def rollback(count: int) -> None:
            del prefix[len(prefix) - count :]

        return rollback


def _validate(enforcer: Any, prefix: list[int], tokens: Sequence[int]) -> int:
    ask, trial = enforcer.get_allowed_tokens, list(prefix)
    for count, token in enumerate(tokens):
        if not ask(trial).is_token_allowed(token):
            return count
        trial.append(token)
    return len(tokens)


def _tables(vocabulary: Vocabulary, use_bitmask: bool, word_starts: str) -> Any:
    """``TokenEnforcerTokenizerData``. Tokens that are no whole text have no place in it, nor have special tokens."""
    from lmformatenforcer import TokenEnforcerTokenizerData

    texts = [_text_of(piece) for piece in vocabulary.tokens]
    regular = [(t, text, word_starts == "space" and text[0] == " ") for t, text in enumerate(texts) if text]

    def decode(tokens: Sequence[int]) -> str:
        return "".join([texts[t] for t in tokens])

    return TokenEnforcerTokenizerData(regular, decode, list(vocabulary.eos_ids), use_bitmask, vocabulary.size)


def _text_of(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return ""


def _schema(constraint: Constraint) -> dict[str, Any] | None:
    """The schema to parse, None where the constraint is not about JSON."""
    if constraint.kind == "json_object":
        # vLLM asks for no schema here, which takes any JSON value; one for objects is within the library's reach.
        return {"type": "object"}
    if constraint.kind != "json_schema":
        return None
    schema = constraint.json()
    if not isinstance(schema, dict):  # the library fails on true, and takes false for "anything"
        raise UnsupportedError(f"lm-format-enforcer takes an object as the schema, not {constraint.text.strip()}")
    return schema


def _text(constraint: Constraint) -> Any:
    from lmformatenforcer import RegexParser, StringParser, UnionParser

    if constraint.kind == "regex":
        return RegexParser(constraint.text)
    return UnionParser([StringParser(choice) for choice in constraint.json()])


def _refusal(error: Exception) -> UnsupportedError | CompileError:
    from interegular import Unsupported
    from lmformatenforcer import LMFormatEnforcerException

    message = " ".join(str(error).split())[:500] or type(error).__name__
    if isinstance(error, LMFormatEnforcerException | Unsupported) or message.startswith("Unsupported"):
        return UnsupportedError(f"lm-format-enforcer: {message}")
    return CompileError(f"lm-format-enforcer: {type(error).__name__}: {message}")


@contextmanager
def _lazy_refusals() -> Iterator[None]:
    """The library reads a nested schema when the text gets there, and only then refuses it."""
    from lmformatenforcer import LMFormatEnforcerException

    try:
        yield
    except LMFormatEnforcerException as error:
        raise _refusal(error) from error
