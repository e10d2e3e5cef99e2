"""Packed rows against plain Python: a row is a set of ids, and bit t of it is bit t % 32 of word t // 32."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import bitmask

SIZES = st.integers(1, 200)


@st.composite
def masks(draw: st.DrawFn) -> tuple[int, set[int]]:
    """A vocabulary size and the ids allowed in it."""
    size = draw(SIZES)
    return size, draw(st.sets(st.integers(0, size - 1)))


def as_number(row: bitmask.Row) -> int:
    """The row as one big number, read from its bytes: bit t of it is token t."""
    return int.from_bytes(struct.pack(f"<{row.size}i", *row.tolist()), "little")


@settings(deadline=None)
@given(SIZES)
def test_a_row_has_one_word_for_every_32_tokens_begun(size: int) -> None:
    row = bitmask.allocate_row(size)
    assert 32 * (row.size - 1) < size <= 32 * row.size
    assert row.dtype == np.int32
    assert not row.any()
    assert bitmask.allocate(3, size).shape == (3, row.size)


@settings(deadline=None)
@given(masks())
def test_bit_t_stands_for_token_t_and_padding_is_clear(mask: tuple[int, set[int]]) -> None:
    size, allowed = mask
    row = bitmask.from_tokens(allowed, size)
    bitmask.check(row, size)
    assert as_number(row) == sum(1 << token for token in allowed)


@settings(deadline=None)
@given(masks())
def test_every_reading_of_a_row_gives_the_same_set(mask: tuple[int, set[int]]) -> None:
    size, allowed = mask
    row = bitmask.from_tokens(allowed, size)
    assert bitmask.tokens(row, size).tolist() == sorted(allowed)
    assert bitmask.count(row, size) == len(allowed)
    assert {t for t in range(size) if bitmask.test(row, t)} == allowed
    assert np.flatnonzero(bitmask.unpack(row, size)).tolist() == sorted(allowed)


@settings(deadline=None)
@given(masks())
def test_pack_and_unpack_are_inverse(mask: tuple[int, set[int]]) -> None:
    size, allowed = mask
    row = bitmask.from_tokens(allowed, size)
    assert np.array_equal(bitmask.pack(bitmask.unpack(row, size)), row)


@settings(deadline=None)
@given(masks(), st.data())
def test_setting_and_clearing_a_bit_changes_that_bit_only(mask: tuple[int, set[int]], data: st.DataObject) -> None:
    size, allowed = mask
    token = data.draw(st.integers(0, size - 1))
    kind = data.draw(st.sampled_from((int, np.int32, np.int64, np.uint32)))
    row = bitmask.from_tokens(allowed, size)
    for _ in range(2):  # the second time changes nothing
        bitmask.set_bit(row, kind(token))
        assert set(bitmask.tokens(row, size).tolist()) == allowed | {token}
    for _ in range(2):
        bitmask.set_bit(row, kind(token), False)
        assert set(bitmask.tokens(row, size).tolist()) == allowed - {token}
    assert not bitmask.test(row, kind(token))
    assert {t for t in range(size) if bitmask.test(row, kind(t))} == allowed - {token}


@settings(deadline=None)
@given(masks())
def test_clearing_the_padding_leaves_every_token(mask: tuple[int, set[int]]) -> None:
    size, allowed = mask
    clean = bitmask.from_tokens(allowed, size)
    dirty = clean.copy()
    for bit in range(size, 32 * dirty.size):
        bitmask.set_bit(dirty, bit)
    assert bitmask.count(dirty, size) == len(allowed)
    bitmask.clear_padding(dirty, size)
    assert np.array_equal(dirty, clean)


@settings(deadline=None)
@given(masks(), st.data())
def test_a_difference_names_what_is_too_loose_and_what_too_strict(
    mask: tuple[int, set[int]], data: st.DataObject
) -> None:
    size, want = mask
    have = data.draw(st.sets(st.integers(0, size - 1)))
    found = bitmask.diff(bitmask.from_tokens(have, size), bitmask.from_tokens(want, size), size)
    assert found.too_loose == tuple(sorted(have - want))
    assert found.too_strict == tuple(sorted(want - have))
    assert bool(found) == (have != want)


def test_padding_bits_are_no_difference() -> None:
    dirty = bitmask.from_tokens({1}, 33)
    bitmask.set_bit(dirty, 40)
    assert not bitmask.diff(dirty, bitmask.from_tokens({1}, 33), 33)


@pytest.mark.parametrize("kind", [int, np.int32, np.uint32, np.int64])
def test_ids_may_be_numpy_integers(kind: type) -> None:
    row = bitmask.from_tokens([kind(63)], 64)  # the sign bit of its word
    assert bitmask.test(row, kind(63))
    assert not bitmask.test(row, kind(32))


@settings(deadline=None)
@given(masks(), st.integers(0, 70), st.sampled_from((np.float16, np.float32, np.float64)))
def test_apply_forbids_exactly_the_clear_bits_and_all_beyond_the_row(
    mask: tuple[int, set[int]], extra: int, dtype: type
) -> None:
    size, allowed = mask
    logits = np.arange(size + extra, dtype=dtype)
    bitmask.apply(logits, bitmask.from_tokens(allowed, size))
    for token, value in enumerate(logits.tolist()):
        assert value == (token if token in allowed else -np.inf)


def test_a_row_of_the_wrong_kind_is_refused() -> None:
    good = bitmask.allocate_row(64)
    bitmask.check(good, 64)
    frozen = good.copy()
    frozen.flags.writeable = False
    for bad in (good.astype(np.int64), good[:1], bitmask.allocate(2, 64), np.zeros(4, np.int32)[::2], frozen, [0, 0]):
        with pytest.raises(ValueError, match="a mask row"):
            bitmask.check(bad, 64)  # type: ignore[arg-type]


def test_a_row_too_short_for_the_vocabulary_never_passes_for_one_that_forbids_the_rest() -> None:
    short, full = bitmask.allocate_row(32), bitmask.allocate_row(33)
    with pytest.raises(ValueError, match="holds no mask for 33 tokens"):
        bitmask.diff(short, full, 33)


@pytest.mark.parametrize("token", [-1, 33])
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match="token ids must be in"):
        bitmask.from_tokens([0, token], 33)


@pytest.mark.parametrize("size", [32_000, 129_280, 151_669, 248_077])
def test_real_widths(size: int) -> None:
    allowed = {0, 31, 32, size // 2, size - 2, size - 1}
    row = bitmask.from_tokens(allowed, size)
    assert row.size == -(-size // 32)
    assert as_number(row) == sum(1 << token for token in allowed)


@pytest.mark.parametrize("many", [0, 1, 7, 5_000])
def test_bits_set_and_cleared_together_are_those_of_one_by_one(many: int) -> None:
    size = 3_001
    tokens = np.random.default_rng(many).integers(0, size, many).astype(np.int32)  # some of them twice
    every = bitmask.pack(np.ones(size, dtype=np.bool_))
    row, rest = bitmask.allocate_row(size), every.copy()
    bitmask.set_bits(row, tokens)
    bitmask.set_bits(rest, tokens, allowed=False)
    assert set(bitmask.tokens(row, size).tolist()) == set(tokens.tolist())
    assert np.array_equal(row ^ rest, every)
