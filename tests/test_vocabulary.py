"""A vocabulary is checked where it is made, has a fingerprint of all that masks depend on, and survives its file."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import MasktaxError
from harness.vocabulary import FORMAT, EncoderSpec, Vocabulary, synthetic

SMALL = Vocabulary("small", (b"a", b"bc", b"", b"\xff", b""), (2,), frozenset({2, 4}), EncoderSpec("greedy"))

# A function-scoped tmp_path is fine here: every example overwrites the same file.
in_one_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    tokens = draw(st.lists(st.binary(max_size=6), min_size=1, max_size=70))
    ids = st.integers(0, len(tokens) - 1)
    eos = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    special = draw(st.frozensets(ids, max_size=5)) | frozenset(eos)
    tokens = [b"" if i in special else token for i, token in enumerate(tokens)]
    kinds = st.sampled_from(("tokenizers", "quicktok", "greedy"))
    encoder = draw(st.none() | st.builds(EncoderSpec, kinds, path=st.text(max_size=5), name=st.text(max_size=5)))
    return Vocabulary(draw(st.text(max_size=5)), tuple(tokens), tuple(eos), special, encoder)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (((b"a", b""), (), frozenset({1})), "no end-of-sequence id"),
        (((b"a", b""), (2,), frozenset({2})), r"id 2 is outside 0…1"),
        (((b"a", b""), (1,), frozenset({1, -1})), r"id -1 is outside 0…1"),
        (((b"a", b""), (1,), frozenset()), "must be special ids"),
        (((b"a", b"<s>", b""), (2,), frozenset({1, 2})), "special id 1 must have empty bytes"),
        (((b"a", b""), (1, 1), frozenset({1})), "given twice"),
    ],
)
def test_a_malformed_vocabulary_is_refused(parts: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(MasktaxError, match=message):
        Vocabulary("bad", *parts)


@settings(deadline=None)
@given(vocabularies(), st.data())
def test_decode_concatenates_the_tokens_bytes(vocabulary: Vocabulary, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=9))
    expected = b""
    for token in ids:
        expected += vocabulary.tokens[token]
    assert vocabulary.decode(ids) == expected
    assert vocabulary.decode(sorted(vocabulary.special_ids)) == b""


@in_one_folder
@given(vocabularies())
def test_a_vocabulary_survives_its_file(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = tmp_path / "new folder" / "v.vocab.npz"
    vocabulary.write(path)
    read = Vocabulary.read(path, vocabulary.sha256)
    assert read == vocabulary
    assert read.encoder == vocabulary.encoder
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing partial stays behind


def test_a_file_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    SMALL.write(path)
    with pytest.raises(MasktaxError, match=rf"v\.npz: fingerprint {SMALL.sha256[:12]}…, expected {'0' * 12}…; delete"):
        Vocabulary.read(path, "0" * 64)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nothing of the kind", b"\x93NUMPY"])
def test_something_else_than_a_vocabulary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "v.npz"
    path.write_bytes(content)
    with pytest.raises(MasktaxError, match=r"v\.npz: not a vocabulary file, or a damaged one \(.*delete it"):
        Vocabulary.read(path)


def test_a_missing_file_or_another_kind_of_array_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    for name in ("array.npy", "arrays.npz", "missing.npz", "."):
        with pytest.raises(MasktaxError, match="not a vocabulary file"):
            Vocabulary.read(tmp_path / name)


def test_another_format_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    SMALL.write(path)
    with np.load(path) as file:
        parts = dict(file)
    meta = json.loads(parts["meta"].tobytes()) | {"format": FORMAT + 1}
    parts["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    np.savez(path, **parts)
    with pytest.raises(MasktaxError, match=f"format {FORMAT + 1}, this version reads {FORMAT}"):
        Vocabulary.read(path)


def test_a_file_whose_tokens_are_not_those_it_was_written_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    SMALL.write(path)
    with np.load(path) as file:
        parts = dict(file)
    parts["blob"] = np.frombuffer(b"axc\xff", dtype=np.uint8)
    np.savez(path, **parts)
    with pytest.raises(MasktaxError, match="fingerprint"):
        Vocabulary.read(path)


@settings(in_one_folder, max_examples=300)
@given(st.data())
def test_a_damaged_file_is_refused_or_the_damage_changes_nothing(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "v.npz"
    SMALL.write(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans(), label="cut"):
        del content[data.draw(st.integers(0, len(content) - 1), label="length") :]
    else:
        content[data.draw(st.integers(0, len(content) - 1), label="place")] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        read = Vocabulary.read(path)
    except MasktaxError:
        return
    assert read == SMALL
    assert read.encoder == SMALL.encoder


def test_many_writers_and_readers_of_one_path_never_meet_a_partial_file(tmp_path: Path) -> None:
    path, vocabulary, errors = tmp_path / "v.npz", synthetic(), []
    vocabulary.write(path)

    def work(act: Callable[[], Any]) -> None:
        try:
            for _ in range(20):
                act()
        except (MasktaxError, OSError) as error:
            errors.append(error)

    acts = [lambda: vocabulary.write(path), lambda: Vocabulary.read(path, vocabulary.sha256)] * 3
    threads = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [p.name for p in tmp_path.iterdir()] == ["v.npz"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.npz"
    SMALL.write(path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        synthetic().write(path)
    assert [p.name for p in tmp_path.iterdir()] == ["v.npz"]
    assert Vocabulary.read(path) == SMALL


def fingerprint(vocabulary: Vocabulary) -> str:
    """The fingerprint by its definition, with other means."""
    parts = [b"1 %d\n" % len(vocabulary.tokens)]
    parts += [struct.pack("<I", len(token)) for token in vocabulary.tokens]
    parts += vocabulary.tokens
    parts += [struct.pack("<I", i) for i in sorted(vocabulary.eos_ids)]
    parts += [b"/", *(struct.pack("<I", i) for i in sorted(vocabulary.special_ids))]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@settings(deadline=None)
@given(vocabularies())
def test_the_fingerprint_is_as_defined_and_does_not_depend_on_name_or_encoder(vocabulary: Vocabulary) -> None:
    assert vocabulary.sha256 == fingerprint(vocabulary)
    assert replace(vocabulary, name="other", encoder=EncoderSpec("tekken", path="x")).sha256 == vocabulary.sha256


def test_the_fingerprint_of_the_synthetic_vocabulary_never_changes_unnoticed() -> None:
    # Recorded runs name it: change this value only together with the synthetic vocabulary itself.
    assert synthetic().sha256.startswith("4eac9aa154307e9e")


@settings(deadline=None)
@given(vocabularies(), vocabularies())
def test_fingerprints_are_equal_exactly_for_vocabularies_with_the_same_masks(
    one: Vocabulary, other: Vocabulary
) -> None:
    same = (one.tokens, set(one.eos_ids), one.special_ids) == (other.tokens, set(other.eos_ids), other.special_ids)
    assert (one.sha256 == other.sha256) == same


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": (b"b", b"bc", b"", b"\xff", b"")},
        {"tokens": (b"ab", b"c", b"", b"\xff", b"")},  # the same bytes, cut elsewhere
        {"tokens": (b"bc", b"a", b"", b"\xff", b"")},  # the same tokens, in another order
        {"tokens": (b"a", b"bc", b"", b"\xff", b"", b"")},
        {"eos_ids": (4,)},
        {"eos_ids": (2, 4)},
        {"special_ids": frozenset({2})},
    ],
)
def test_the_fingerprint_depends_on_every_part(change: dict[str, Any]) -> None:
    assert replace(SMALL, **change).sha256 != SMALL.sha256


def test_the_synthetic_vocabulary_holds_what_trips_adapters() -> None:
    vocabulary = synthetic()
    assert vocabulary.size % 32
    assert vocabulary.words == -(-vocabulary.size // 32)
    assert {0, vocabulary.size - 1} <= vocabulary.special_ids
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.tokens)
    spoken = [token for token in vocabulary.tokens if token]
    assert len(set(spoken)) < len(spoken)  # two ids with equal bytes
    assert any(len(token) > 1 and not _is_utf8(token) for token in spoken)  # parts of characters
    assert {b'":"', b"},{"} <= set(spoken)


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
