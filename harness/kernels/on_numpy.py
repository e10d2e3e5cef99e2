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
    only their logits are worked out and the rest of the row is filled with −inf; where few forbid anything, only
    their logits are touched.
    """

    name = "numpy"
    FEW = 0.06  # of a row's words; measured on one machine, where both ways cost the same at 0.06 to 0.08

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
    few = Numpy.FEW * row.size
    allowing = np.flatnonzero(row)
    if allowing.size <= few:
        _apply_words(values, row, allowing, keep, settle, fill=infinity)
        return
    forbidding = np.flatnonzero(row != -1)
    if forbidding.size <= few:
        _apply_words(values, row, forbidding, keep, settle)
        return
    mask = row.view(np.uint8)
    patterns = scratch.reshape(-1)[: values.size]
    # mode="clip" lets numpy write into ``out`` directly; a byte is never out of the table's range.
    np.take(keep, mask, axis=0, out=scratch, mode="clip")
    np.bitwise_and(values, patterns, out=values)
    np.take(settle, mask, axis=0, out=scratch, mode="clip")
    np.bitwise_or(values, patterns, out=values)


def _apply_words(
    values: Bits, row: Row, chosen: npt.NDArray[np.int64], keep: Bits, settle: Bits, fill: Any = None
) -> None:
    """Work out the logits of the words ``chosen``; with ``fill``, every other logit becomes that. A last word of which
    the row has only a part is always worked out."""
    whole = values.size // 32
    lanes, rest = values[: whole * 32].reshape(whole, 32), values[whole * 32 :]
    chosen = chosen[chosen < whole]
    mask, last = row[chosen].view(np.uint8), row[whole:].view(np.uint8)
    done = lanes[chosen].reshape(-1, 8) & keep[mask] | settle[mask]
    ending = rest & keep[last].reshape(-1)[: rest.size] | settle[last].reshape(-1)[: rest.size]
    if fill is not None:
        values.fill(fill)
    lanes[chosen] = done.reshape(-1, 32)
    rest[:] = ending


def _pairs(logits: npt.NDArray[Any], block: Row, rows: Indices | None) -> Iterator[tuple[Bits, Row]]:
    """The bits of each row of logits that the block has a row for, and that row."""
    patterns = bits(logits)
    for i, row in enumerate(block):
        yield patterns[i if rows is None else rows[i]], row
