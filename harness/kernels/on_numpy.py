"""Kernels in numpy: ``definition``, the truth that every other kernel is held against, and ``numpy``, a fast one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.bitmask import Row
from harness.device import Device, Kind
from harness.kernels.protocol import DTYPES, NEGATIVE_INFINITY, Indices, bits, dtype_of, widened

Bits = npt.NDArray[Any]


class _OnHost:
    array: Literal["numpy", "torch"] = "numpy"
    devices: frozenset[Kind] = frozenset({"cpu"})
    dtypes = tuple(DTYPES)
    parallel = False

    def unavailable(self, device: Device) -> str:
        return ""


class Definition(_OnHost):
    """Row by row: unpack the bits, write −inf where one is 0, and past the vocabulary's end."""

    name = "definition"

    def prepare(
        self, logits: npt.NDArray[Any], block: Row, rows: Indices | None, vocabulary_size: int
    ) -> Callable[[], object]:
        pairs = list(_pairs(logits, block, rows))
        infinity = NEGATIVE_INFINITY[dtype_of(logits)]

        def apply() -> None:
            for values, row in pairs:
                values[:vocabulary_size][~bitmask.unpack(row, vocabulary_size)] = infinity
                values[vocabulary_size:] = infinity

        return apply


class Numpy(_OnHost):
    """Row by row, without a branch or a stored boolean for a logit.

    Eight logits at a time: a table of 256 entries turns a byte of the mask into eight patterns to keep bits by and
    eight to set bits by, and ``value & keep | set`` is the value or −inf. Where few of a row's words allow anything,
    their logits are put aside, the row is filled with −inf, and they are put back: about as fast as memory is written.
    """

    name = "numpy"
    FEW = 0.1  # of a row's words; measured on one machine, where both ways cost the same at 0.1 to 0.2

    def prepare(
        self, logits: npt.NDArray[Any], block: Row, rows: Indices | None, vocabulary_size: int
    ) -> Callable[[], object]:
        infinity = NEGATIVE_INFINITY[dtype_of(logits)]
        kind = bits(logits).dtype
        forbids = ~np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view(np.bool_)
        keep = np.where(forbids, kind.type(0), ~kind.type(0))
        settle = np.where(forbids, kind.type(infinity), kind.type(0))
        scratch = np.empty((widened(block, logits.shape[1]).shape[1] * 4, 8), dtype=kind)
        apply_row = partial(_apply_row, keep=keep, settle=settle, scratch=scratch, infinity=kind.type(infinity))
        pairs = list(_pairs(logits, widened(block, logits.shape[1]), rows))

        def apply() -> None:
            for values, row in pairs:
                apply_row(values, row)

        return apply


def _apply_row(values: Bits, row: Row, *, keep: Bits, settle: Bits, scratch: Bits, infinity: Any) -> None:
    allowing = np.flatnonzero(row)
    if allowing.size <= Numpy.FEW * row.size:
        _refill(values, row, allowing, keep, settle, infinity)
        return
    mask = row.view(np.uint8)
    patterns = scratch.reshape(-1)[: values.size]
    # mode="clip" lets numpy write into ``out`` directly; a byte is never out of the table's range.
    np.take(keep, mask, axis=0, out=scratch, mode="clip")
    np.bitwise_and(values, patterns, out=values)
    np.take(settle, mask, axis=0, out=scratch, mode="clip")
    np.bitwise_or(values, patterns, out=values)


def _refill(values: Bits, row: Row, allowing: npt.NDArray[np.int64], keep: Bits, settle: Bits, infinity: Any) -> None:
    """−inf everywhere but in the logits of the words ``allowing``, which are settled one by one."""
    whole = values.size // 32
    lanes = values[: whole * 32].reshape(whole, 32)
    inside = allowing[allowing < whole]
    mask = row[inside].view(np.uint8)
    kept = (lanes[inside].reshape(-1, 8) & keep[mask] | settle[mask]).reshape(-1, 32)
    rest, spare = values[whole * 32 :], values.size - whole * 32
    if spare:
        mask = row[whole:].view(np.uint8)
        last = rest & keep[mask].reshape(-1)[:spare] | settle[mask].reshape(-1)[:spare]
    values.fill(infinity)
    lanes[inside] = kept
    if spare:
        rest[:] = last


def _pairs(logits: npt.NDArray[Any], block: Row, rows: Indices | None) -> Iterator[tuple[Bits, Row]]:
    """The bits of each row of logits that the block has a row for, and that row."""
    patterns = bits(logits)
    for i, row in enumerate(block):
        yield patterns[i if rows is None else rows[i]], row
