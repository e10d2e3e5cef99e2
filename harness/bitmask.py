"""Packed rows of allowed tokens. Worker side: numpy only.

A row is ``words(V) = ceil(V / 32)`` little-endian int32; token ``t`` is bit ``t % 32`` of word ``t // 32``; a set bit
means allowed. Bits at and past ``V`` are padding and are always 0 in a row that this project hands out. Several rows
are a C-contiguous array of shape ``[rows, words]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.int32]


def words(vocabulary_size: int) -> int:
    """Number of int32 words in a row: ``ceil(vocabulary_size / 32)``."""
    return (vocabulary_size + 31) // 32


def allocate(rows: int, vocabulary_size: int) -> Row:
    """A zeroed (all forbidden) block of shape ``[rows, words(V)]``, int32."""
    return np.zeros((rows, words(vocabulary_size)), dtype=np.int32)


def allocate_row(vocabulary_size: int) -> Row:
    """One zeroed row of shape ``[words(V)]``, int32."""
    return np.zeros(words(vocabulary_size), dtype=np.int32)


def check(row: Row, vocabulary_size: int) -> None:
    """Raise ValueError unless ``row`` is a writable, contiguous int32 array of exactly ``words(V)`` words."""
    if not isinstance(row, np.ndarray) or row.dtype != np.int32:
        raise ValueError(f"a mask row must be a numpy int32 array, not {getattr(row, 'dtype', type(row).__name__)}")
    if row.shape != (words(vocabulary_size),):
        raise ValueError(
            f"a mask row for {vocabulary_size} tokens has shape ({words(vocabulary_size)},), not {row.shape}"
        )
    if not row.flags.c_contiguous or not row.flags.writeable:
        raise ValueError("a mask row must be contiguous and writable")


def test(row: Row, token: int) -> bool:
    """Whether ``token``'s bit is set; ``token`` must be in the row (a negative one would be read from its end)."""
    token = int(token)  # a numpy id would make numpy arithmetic of what follows, which overflows for unsigned ones
    return bool((int(row[token >> 5]) >> (token & 31)) & 1)


def set_bit(row: Row, token: int, allowed: bool = True) -> None:
    """Set or clear ``token``'s bit in place."""
    token = int(token)
    view = row.view(np.uint32)
    bit = np.uint32(1 << (token & 31))
    if allowed:
        view[token >> 5] |= bit
    else:
        view[token >> 5] &= ~bit


# Tokens from which on setting their bits one by one takes longer than packing a row.
_MANY = 2_000


def set_bits(row: Row, tokens: npt.NDArray[np.int32], allowed: bool = True) -> None:
    """Set or clear the bits of some ``tokens``, int32, in place; one may occur more than once."""
    view = row.view(np.uint32)
    if tokens.size > _MANY:
        chosen = np.zeros(row.size * 32, dtype=np.bool_)
        chosen[tokens] = True
        packed = pack(chosen).view(np.uint32)
        if allowed:
            view |= packed
        else:
            view &= ~packed
        return
    bits = np.left_shift(np.uint32(1), (tokens & 31).astype(np.uint32))
    if allowed:
        np.bitwise_or.at(view, tokens >> 5, bits)
    else:
        np.bitwise_and.at(view, tokens >> 5, ~bits)


def clear_padding(row: Row, vocabulary_size: int) -> None:
    """Clear the bits at and past ``vocabulary_size`` in place."""
    spare = vocabulary_size & 31
    if spare:
        row.view(np.uint32)[vocabulary_size >> 5] &= np.uint32((1 << spare) - 1)


def pack(allowed: npt.NDArray[np.bool_]) -> Row:
    """A row from a boolean array of shape ``[V]``."""
    padded = np.zeros(words(allowed.size) * 32, dtype=np.bool_)
    padded[: allowed.size] = allowed
    return np.packbits(padded, bitorder="little").view("<i4").astype(np.int32, copy=False)


def unpack(row: Row, vocabulary_size: int) -> npt.NDArray[np.bool_]:
    """The row as a boolean array of shape ``[V]``. ValueError for a row too short to hold ``V`` bits."""
    if row.size < words(vocabulary_size):
        # numpy would fill up with zeros, and a row of the wrong width would pass for one that forbids the rest.
        raise ValueError(f"a row of {row.size} words holds no mask for {vocabulary_size} tokens")
    bits = np.unpackbits(row.astype("<i4", copy=False).view(np.uint8), bitorder="little", count=vocabulary_size)
    return bits.view(np.bool_)


def from_tokens(tokens: Iterable[int], vocabulary_size: int) -> Row:
    """A row that allows exactly ``tokens``. ValueError for an id outside 0 … V − 1."""
    allowed = np.zeros(vocabulary_size, dtype=np.bool_)
    ids = np.fromiter(tokens, dtype=np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary_size:
        raise ValueError(f"token ids must be in 0…{vocabulary_size - 1}, not {ids.min()}…{ids.max()}")
    allowed[ids] = True
    return pack(allowed)


def tokens(row: Row, vocabulary_size: int) -> npt.NDArray[np.int64]:
    """The allowed token ids, ascending."""
    return np.flatnonzero(unpack(row, vocabulary_size))


def count(row: Row, vocabulary_size: int) -> int:
    """How many tokens are allowed."""
    return int(np.count_nonzero(unpack(row, vocabulary_size)))


@dataclass(frozen=True)
class Difference:
    """How a row differs from the row it should be.

    too_loose: ids allowed that must be forbidden; too_strict: ids forbidden that must be allowed (both ascending).
    """

    too_loose: tuple[int, ...]
    too_strict: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.too_loose or self.too_strict)


def diff(row: Row, expected: Row, vocabulary_size: int) -> Difference:
    """What ``row`` allows too much and too little, compared with ``expected``."""
    have, want = unpack(row, vocabulary_size), unpack(expected, vocabulary_size)
    return Difference(
        too_loose=tuple(np.flatnonzero(have & ~want).tolist()),
        too_strict=tuple(np.flatnonzero(want & ~have).tolist()),
    )


def apply(logits: npt.NDArray[Any], row: Row) -> None:
    """Write −inf to every forbidden entry of ``logits`` (shape ``[≥ V]``, a float dtype) in place: the definition.

    Entries past the row's last bit are forbidden too (padded embeddings make logits wider than the vocabulary).
    """
    covered = min(logits.size, row.size * 32)
    allowed = unpack(row, covered)
    logits[:covered][~allowed] = -np.inf
    logits[covered:] = -np.inf
