"""xgrammar (0.2.9 was read and tried): adapter. Worker side; the only file that imports xgrammar.

It never decides what is allowed: rows, refusals and ends are the library's own. What was tried to declare the
profiles, and what was seen, stands at ``_DEFAULT``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.backends.protocol import Capabilities, EngineBatch, NativeMatcher
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary

# Seen with xgrammar 0.2.9, byte by byte over a vocabulary of single bytes:
# - White space: any run of space, tab, LF, CR between tokens, none around the document. Inside the value of an
#   object-valued `const` or `enum` none at all, whatever the profile says.
# - Key order: as declared; a key that is not named in `properties` only after those that are.
# - Duplicate keys: a declared key never twice; another key may repeat, and every value is validated. No value of
#   `duplicate_keys` says "declared once, others repeatedly"; `any` with declared order is the nearest.
# - strict_mode (vLLM and SGLang leave it on): `additionalProperties` and `items` beyond `prefixItems` are false where
#   a schema does not say. Further than the field says: also where there is no `properties` at all but some other
#   keyword ({"type": "object", "minProperties": 1} is refused, {"type": "array", "uniqueItems": true} takes only []).
#   A bare {"type": "object"} or {"type": "array"} is open.
# - Numbers: fraction and exponent; none of them with an exponent where there is a bound. Integers: digits only, no
#   "-0", 7.0 and 1e3 refused.
# - Escapes: any spelling in an unconstrained string, lone surrogates (\ud800) too. Under minLength, maxLength or
#   `pattern` no escape at all, and raw control characters other than CR and LF are let through. `enum`, `const` and
#   keys have one spelling, the shortest. DEL raw in strings, \u007f in enums.
# - `pattern` must match the full string: "b" refuses "abc", "^b" refuses "bc"; the same for patternProperties.
# - \d and \w are ASCII, \s is ECMA's (U+FEFF yes, U+0085 no), the dot is any character, line ends too (ECMA's is not).
# - format: checked for date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri, uri-reference,
#   json-pointer …; an unknown one never binds, and none binds without "type": "string".
_DEFAULT = Profile(
    whitespace="any",
    outer_whitespace=False,
    key_order="declared",
    duplicate_keys="any",
    additional_properties=False,
    additional_items=False,
    numbers="rfc8259",
    integer_spelling="digits",
    escapes="any",
    literal_escapes="minimal",
    lone_surrogates=True,
    pattern="full",
    regex_dialect="ecma262",
    format="assertion",
    tokens="all",
)

# compact, spaced: any_whitespace=False with given, and with the library's own, separators (vLLM's
# disable_any_whitespace is the latter). open: strict_mode=False, the standard's own defaults. any_order: keys in any
# order; the library then stops counting keys, so a required one may be missing, which no profile can excuse.
_PROFILES = {
    "default": _DEFAULT,
    "compact": replace(_DEFAULT, whitespace="compact"),
    "spaced": replace(_DEFAULT, whitespace="spaced"),
    "open": replace(_DEFAULT, additional_properties=True, additional_items=True),
    "any_order": replace(_DEFAULT, key_order="any"),
}

_SCHEMA_OPTIONS: Mapping[Profile, Mapping[str, Any]] = {
    _PROFILES["default"]: {},
    _PROFILES["compact"]: {"any_whitespace": False, "separators": (",", ":")},
    _PROFILES["spaced"]: {"any_whitespace": False},
    _PROFILES["open"]: {"strict_mode": False},
    _PROFILES["any_order"]: {"any_order": True},
}

# A structural tag's JSON has fewer options than a whole document's.
_TAG_OPTIONS: Mapping[Profile, Mapping[str, Any]] = {
    _PROFILES["default"]: {},
    _PROFILES["any_order"]: {"any_order": True},
}

_UNSUPPORTED = re.compile(r"not (yet )?supported|unsupported|not allowed in strict|still ongoing", re.IGNORECASE)
_PLACE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ")  # time of day, source file, line: another in every run


class XGrammar:
    """The xgrammar backend.

    Options are the library's own, with its defaults, which vLLM and SGLang leave as they are (vLLM passes
    ``max_threads=8`` and a cache limit of 512 MB). ``enable_dynamic_compilation`` moves cost from compile to first
    visits. ``cache_limit_bytes``: -1 is unlimited.
    """

    name = "xgrammar"
    capabilities = Capabilities(
        kinds=frozenset({"json_schema", "json_object", "regex", "grammar", "choice", "structural_tag"}),
        syntaxes=frozenset({"ebnf", "gbnf", "lark"}),
        rollback=True,
        fork=True,
        reset=True,
        validate=False,
        forced=True,
        native_batch=True,
        native_drafts=frozenset({"chain", "tree"}),
        notes=MappingProxyType(
            {
                "validate": "xgrammar has no call that only validates; done by accepting and rewinding, as vLLM does",
                "syntaxes": "ebnf and gbnf are one notation to xgrammar; llama.cpp's dot for any character is refused",
                "native_drafts": "traverse_draft_tree walks a chain as the tree in which no node has a sibling",
            }
        ),
    )
    profiles: Mapping[str, Profile] = MappingProxyType(_PROFILES)
    # SGLang's XGRAMMAR_BATCH_MIN_SIZE and XGRAMMAR_BATCH_MAX_THREADS on its main branch. Release 0.5.23 still
    # loops over the rows, as vLLM does up to 128 of them.
    engine_batches: Mapping[str, EngineBatch] = MappingProxyType({"sglang": EngineBatch(least_rows=16, threads=4)})

    def __init__(
        self,
        *,
        max_threads: int = 8,
        cache_enabled: bool = True,
        cache_limit_bytes: int = -1,
        enable_dynamic_compilation: bool = False,
    ) -> None:
        self._compiler_options = {
            "max_threads": max_threads,
            "cache_enabled": cache_enabled,
            "cache_limit_bytes": cache_limit_bytes,
            "enable_dynamic_compilation": enable_dynamic_compilation,
        }
        # By the vocabulary's sha256.
        self._information: dict[str, Any] = {}
        self._compilers: dict[str, Any] = {}

    @property
    def version(self) -> str:
        try:
            return importlib.metadata.version("xgrammar")
        except importlib.metadata.PackageNotFoundError as error:
            raise _not_installed() from error

    def load(self) -> None:
        _library()

    def bind(self, vocabulary: Vocabulary) -> None:
        self._compiler(vocabulary)

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> Grammar:
        if profile not in _SCHEMA_OPTIONS:
            raise UnsupportedError(f"xgrammar has no such profile; it has {', '.join(self.profiles)}")
        source = _source(constraint, profile)
        compiler = self._compiler(vocabulary)
        try:
            compiled = getattr(compiler, source.compile)(source.text, **source.options)
        except RuntimeError as error:
            raise _refusal(str(error)) from error
        return Grammar(_library(), compiled, source, self._compiler_options)

    def forget(self) -> None:
        # Not clear_cache(): it leaves the masks of single rules (half of the cache's bytes), and a later compile finds
        # them. A compiler is made in 0.1 ms from tokenizer tables that exist.
        for sha256, information in self._information.items():
            self._compilers[sha256] = _library().GrammarCompiler(information, **self._compiler_options)

    def batch_fill_call(self, matchers: Sequence[Any], block: Row, threads: int | None) -> Callable[[], object]:
        # The library's own number of threads is half of std::thread::hardware_concurrency().
        batch = _library().BatchGrammarMatcher("auto" if threads is None else threads)
        return partial(batch.batch_fill_next_token_bitmask, [m._matcher for m in matchers], block)

    def _compiler(self, vocabulary: Vocabulary) -> Any:
        compiler = self._compilers.get(vocabulary.sha256)
        if compiler is None:
            xgrammar = _library()
            # A token of no bytes is special to the library: never in a row, never accepted.
            information = xgrammar.TokenizerInfo(
                list(vocabulary.tokens),
                xgrammar.VocabType.RAW,
                vocab_size=vocabulary.size,
                stop_token_ids=list(vocabulary.eos_ids),
            )
            compiler = xgrammar.GrammarCompiler(information, **self._compiler_options)
            self._information[vocabulary.sha256] = information
            self._compilers[vocabulary.sha256] = compiler
        return compiler


@dataclass(frozen=True)
class _Source:
    """A constraint as the library takes it: a method of its compiler, one of its Grammar class (the same step without
    token masks), the text, and the options of both."""

    compile: str
    parse: str
    text: str
    options: Mapping[str, Any] = field(default_factory=dict)


def _source(constraint: Constraint, profile: Profile) -> _Source:
    match constraint.kind:
        case "json_schema":
            return _Source("compile_json_schema", "from_json_schema", constraint.text, _SCHEMA_OPTIONS[profile])
        case "json_object":  # what vLLM compiles for it; SGLang's builtin grammar would take any value
            return _Source("compile_json_schema", "from_json_schema", '{"type": "object"}', _SCHEMA_OPTIONS[profile])
        case "regex":
            return _Source("compile_regex", "from_regex", constraint.text)
        case "grammar" if constraint.syntax == "lark":
            return _Source("compile_lark", "from_lark", constraint.text)
        case "grammar":
            return _Source("compile_grammar", "from_ebnf", constraint.text)
        case "choice":
            # JSON's escapes are EBNF's, but a surrogate pair is not joined: hence no ASCII.
            texts = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in constraint.json())
            return _Source("compile_grammar", "from_ebnf", f"root ::= {texts}")
        case "structural_tag":
            return _Source("compile_structural_tag", "from_structural_tag", _structural_tag(constraint, profile))


def _structural_tag(constraint: Constraint, profile: Profile) -> str:
    """The library's present form of a structural tag; what ``StructuralTag.from_legacy_structural_tag`` makes."""
    if profile not in _TAG_OPTIONS:
        raise UnsupportedError("xgrammar's structural tags cannot set white space or strictness of the JSON in them")
    tag = constraint.json()
    tags = [
        {
            "type": "tag",
            "begin": structure["begin"],
            "content": {"type": "json_schema", "json_schema": structure["schema"], **_TAG_OPTIONS[profile]},
            "end": structure["end"],
        }
        for structure in tag["structures"]
    ]
    return json.dumps(
        {
            "type": "structural_tag",
            "format": {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags},
        }
    )


class Grammar:
    """A compiled grammar."""

    def __init__(self, library: Any, compiled: Any, source: _Source, compiler_options: Mapping[str, Any]) -> None:
        self._library = library
        self._compiled = compiled
        self._source = source
        self._compiler_options = compiler_options

    def native_matcher(self) -> Matcher:
        return Matcher(self._library.GrammarMatcher(self._compiled))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a report may want to say of this grammar; asks the library, so never inside a clock."""
        return {"memory_size_bytes": self._compiled.memory_size_bytes, **self._compiler_options}

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What the library says on stderr while it reads this constraint: mostly that it compiled something weaker.

        It has no other channel, and compiling must not pay for one: the constraint is read once more, without token
        masks, with the process' stderr turned into a file meanwhile. Not for use while other threads write there.
        """
        parse = getattr(self._library.Grammar, self._source.parse)
        with tempfile.TemporaryFile() as file:
            saved = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                parse(self._source.text, **self._source.options)
            finally:
                os.dup2(saved, 2)
                os.close(saved)
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
        return tuple(dict.fromkeys(_PLACE.sub("", line).removeprefix("Warning: ") for line in lines if line.strip()))


class Matcher:
    """One request's state in xgrammar. Its history of tokens is unlimited, so is ``rollback``."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fill(self, row: Row) -> None:
        self._matcher.fill_next_token_bitmask(row)

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def is_accepting(self) -> bool:
        return bool(self._matcher.is_completed())

    def validate(self, tokens: Sequence[int]) -> int:
        return self.validate_call()(list(tokens))

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)

    def forced(self) -> bytes:
        text: str = self._matcher.find_jump_forward_string()
        return text.encode()

    def fork(self) -> NativeMatcher:
        return Matcher(self._matcher.fork())

    def reset(self) -> None:
        self._matcher.reset()

    def fill_call(self, row: Row) -> Callable[[], object]:
        # Of what the library takes, a numpy row costs it 0.8 µs on a trivial mask, a torch tensor 0.7, a tensor of
        # its own FFI 0.55; a numpy row is what callers have.
        return partial(self._matcher.fill_next_token_bitmask, row)

    def accept_call(self) -> Callable[[int], object]:
        accept: Callable[[int], object] = self._matcher.accept_token
        return accept

    def validate_call(self) -> Callable[[list[int]], int]:
        accept, rollback = self._matcher.accept_token, self._matcher.rollback

        # vLLM's XgrammarGrammar.validate_tokens, less its own bookkeeping.
        def validate(tokens: list[int]) -> int:
            count = 0
            for token in tokens:
                if not accept(token):
                    break
                count += 1
            if count:
                rollback(count)
            return count

        return validate

    def rollback_call(self) -> Callable[[int], object]:
        rollback: Callable[[int], object] = self._matcher.rollback
        return rollback

    def draft_chain_call(self, drafts: Sequence[int], rows: Row) -> Callable[[], object]:
        nodes = len(drafts) + 1
        first_child = np.append(np.arange(1, nodes, dtype=np.int64), -1)
        next_sibling = np.full(nodes, -1, dtype=np.int64)
        return self.draft_tree_call(first_child, next_sibling, np.array([0, *drafts], dtype=np.int64), rows[:nodes])

    def draft_tree_call(
        self,
        first_child: npt.NDArray[np.int64],
        next_sibling: npt.NDArray[np.int64],
        tokens: npt.NDArray[np.int64],
        rows: Row,
    ) -> Callable[[], object]:
        return partial(self._matcher.traverse_draft_tree, first_child, next_sibling, tokens, rows)


def _library() -> Any:
    try:
        import xgrammar
    except ImportError as error:
        raise _not_installed(str(error)) from error
    return xgrammar


def _not_installed(detail: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"xgrammar is not installed{f' ({detail})' if detail else ''}: pip install 'masktax[backends]'"
    )


def _refusal(message: str) -> UnsupportedError | CompileError:
    """The library's message as one of our errors, without the time of day that it begins with."""
    text = _PLACE.sub("", message).strip()
    if _UNSUPPORTED.search(text):
        return UnsupportedError("xgrammar: " + " ".join(text.split()))
    return CompileError(text)
