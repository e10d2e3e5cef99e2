"""What a model can say: the bytes of every token, which ids end a sequence, which ids are special.

Worker side: numpy and the standard library. A worker is handed a vocabulary file by path and fingerprint
(``write``/``read``); where vocabularies come from is ``harness.loaders``' business, on the manager side.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.bitmask import words
from harness.errors import MasktaxError

FORMAT = 1
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error)
EncoderKind = Literal["tokenizers", "quicktok", "tekken", "sentencepiece", "tiktoken", "greedy"]


@dataclass(frozen=True)
class EncoderSpec:
    """How text becomes ids, by name, so that another process can build the same encoder (``harness.encoders``).

    kind: which library; path: the file it reads (empty where it needs none); name: a name inside the library.
    """

    kind: EncoderKind
    path: str = ""
    name: str = ""


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of ``size`` tokens.

    name: short name, for people. tokens: the bytes that each id stands for; ``b""`` for special tokens, whose text
    must never be matched. eos_ids: ids that end a sequence (never empty). special_ids: ids that no mask ever
    allows, apart from ``eos_ids`` in accepting states; eos ids are special too. encoder: an optional capability.
    """

    name: str
    tokens: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]
    encoder: EncoderSpec | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.eos_ids:
            raise MasktaxError(f"vocabulary {self.name}: no end-of-sequence id")
        for token in (*self.eos_ids, *self.special_ids):
            if not 0 <= token < len(self.tokens):
                raise MasktaxError(f"vocabulary {self.name}: id {token} is outside 0…{len(self.tokens) - 1}")
        if len(set(self.eos_ids)) < len(self.eos_ids):
            raise MasktaxError(f"vocabulary {self.name}: an end-of-sequence id is given twice")
        if not set(self.eos_ids) <= self.special_ids:
            raise MasktaxError(f"vocabulary {self.name}: end-of-sequence ids must be special ids")
        for token in self.special_ids:
            if self.tokens[token]:
                raise MasktaxError(f"vocabulary {self.name}: special id {token} must have empty bytes")

    @property
    def size(self) -> int:
        return len(self.tokens)

    @property
    def words(self) -> int:
        """int32 words in a mask row."""
        return words(len(self.tokens))

    @cached_property
    def sha256(self) -> str:
        """Fingerprint over everything a mask depends on: token bytes in id order, eos ids, special ids."""
        digest = hashlib.sha256()
        digest.update(f"{FORMAT} {len(self.tokens)}\n".encode())
        lengths = np.fromiter((len(t) for t in self.tokens), dtype="<u4", count=len(self.tokens))
        digest.update(lengths.tobytes())
        digest.update(b"".join(self.tokens))
        digest.update(np.array(sorted(self.eos_ids), dtype="<u4").tobytes() + b"/")
        digest.update(np.array(sorted(self.special_ids), dtype="<u4").tobytes())
        return digest.hexdigest()

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The bytes of a token sequence, each id in 0 … size − 1; special tokens have none."""
        return b"".join(self.tokens[t] for t in tokens)

    def write(self, path: Path) -> None:
        """Write the file that a worker reads, atomically: whoever reads ``path`` meanwhile sees all of it or none."""
        offsets = np.zeros(len(self.tokens) + 1, dtype="<u4")
        np.cumsum([len(t) for t in self.tokens], out=offsets[1:])
        meta: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "sha256": self.sha256,
            "encoder": None if self.encoder is None else vars(self.encoder),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own for every writer: two processes may write the same vocabulary at the same time.
        partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            with partial.open("xb") as file:
                np.savez(
                    file,
                    meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
                    offsets=offsets,
                    blob=np.frombuffer(b"".join(self.tokens), dtype=np.uint8),
                    eos=np.array(self.eos_ids, dtype="<u4"),
                    special=np.array(sorted(self.special_ids), dtype="<u4"),
                )
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path, sha256: str | None = None) -> Vocabulary:
        """Read a file made by ``write``; with ``sha256``, refuse any other vocabulary than that one.

        MasktaxError where the file is missing, damaged (its own fingerprint is checked) or of another format.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                meta = json.loads(file["meta"].tobytes())
                offsets = file["offsets"].tolist()
                blob = file["blob"].tobytes()
                eos = tuple(file["eos"].tolist())
                special = frozenset(file["special"].tolist())
            if meta["format"] != FORMAT:
                raise MasktaxError(
                    f"{path}: vocabulary format {meta['format']}, this version reads {FORMAT}; delete it"
                )
            encoder = None if meta["encoder"] is None else EncoderSpec(**meta["encoder"])
            name, written = meta["name"], meta["sha256"]
        # What numpy and zipfile raise for damaged files: TypeError for a bare .npy, RuntimeError for a flag that says
        # encrypted or an unknown compression.
        except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, *_ZIP_ERRORS) as error:
            raise MasktaxError(
                f"{path}: not a vocabulary file, or a damaged one ({error}); delete it and run again"
            ) from error
        tokens = tuple(blob[a:b] for a, b in itertools.pairwise(offsets))
        vocabulary = cls(name, tokens, eos, special, encoder)
        for expected in (written, sha256):
            if expected is not None and vocabulary.sha256 != expected:
                raise MasktaxError(
                    f"{path}: fingerprint {vocabulary.sha256[:12]}…, expected {expected[:12]}…; delete it and run again"
                )
        return vocabulary


def synthetic() -> Vocabulary:
    """A small vocabulary for tests and demonstrations: every byte, some multi-byte tokens, specials at both ends.

    Holds what real ones have and what trips adapters: a special token first (id 0) and last, tokens that cross JSON
    boundaries (``'":"'``, ``'},{'``), parts of UTF-8 characters, two ids with equal bytes, a size not divisible by 32.
    """
    pieces = [
        *(bytes([b]) for b in range(256)),
        *(c.encode() for c in ("é", "中", "文", "😀")),
        "中".encode()[:2], "😀".encode()[1:],  # a character split over tokens
        *(s.encode() for s in (
            '{"', '":', '":"', '","', '"}', '},{', '[{"', '"}]', "{}", "[]", '""', ", ", ": ", '": ', '", "',
            "true", "false", "null", "tr", "ue", "fal", "se", "nu", "ll", "name", "na", "me", "id", "value", "type",
            "00", "12", "123", "10", "1.5", ".5", "e+", "-1", "0.", "ab", "abc", "abq", "bQ", "the", " the", "  ",
            "\n", "\n  ", "\\n", "\\u", "\\u00", "\\\"", "yes", "no", "root", "add", "<c:", "<c:add>", "</c>", "aaaa",
        )),
        b"ab",  # the same bytes as an earlier token
    ]  # fmt: skip
    tokens = (b"", *pieces, b"", b"")
    eos = len(tokens) - 1
    return Vocabulary("synthetic", tokens, (eos,), frozenset({0, eos - 1, eos}), EncoderSpec("greedy"))
