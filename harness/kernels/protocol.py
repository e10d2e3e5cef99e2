"""What an apply kernel is, and what holds for all of them. Worker side: numpy and the standard library.

An apply kernel writes −inf to every forbidden logit, in place, and leaves the bits of every other one alone. Logits are
``[rows, width]`` with unit stride in a row and any stride between rows; in numpy ``bfloat16``, which numpy does not
have, is a uint16 array of its bit patterns. The mask is a *block*: packed rows (``harness.bitmask``), numpy int32
``[rows, words(V)]``.

* **Selected rows.** With ``rows``, block row i belongs to logits row ``rows[i]`` and other logits rows are left alone:
  the block holds the structured requests of a batch and no others, as a scheduler hands it out. A library whose own
  convention is another one (xgrammar indexes logits and mask alike) gets its block laid out before the clock starts.
* **Padding.** Logits at and past the vocabulary's end, where a model's embedding is padded, are forbidden: no token
  stands behind them. Libraries differ: llguidance and vLLM's own kernel forbid them; xgrammar, and SGLang's copy of its
  kernel, leave what lies past the mask's last word, and advise to allocate the mask as wide as the model's padded
  vocabulary, which is how engines use them and how they are used here. So all kernels do the same work.
* **What is allowed** keeps its bits. One exception, not reached by a model's finite logits: what torch's compiler makes
  for a CPU widens 16-bit floats and narrows them again, which turns a signalling NaN into a quiet one.

``prepare`` is the guard in front of every kernel: wrong shapes and dtypes are a ValueError before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from harness import bitmask
from harness.bitmask import Row
from harness.device import Device, Kind
from harness.errors import MasktaxError

Indices = npt.NDArray[np.int32]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(np.uint16),
    "float16": np.dtype(np.float16),
}
"""Logits' dtypes, and what holds them in numpy."""

NEGATIVE_INFINITY = {"float32": 0xFF80_0000, "bfloat16": 0xFF80, "float16": 0xFC00}
"""−inf as bits, by dtype: sign and all of the exponent set (IEEE 754; bfloat16 is float32's upper half)."""


class Kernel(Protocol):
    """One way of applying a mask.

    array: what it takes logits as. devices: where it runs. dtypes: of ``DTYPES``. parallel: whether it shares its work
    among torch's threads on a CPU. Constructing one is cheap and imports no library.
    """

    name: str
    array: Literal["numpy", "torch"]
    devices: frozenset[Kind]
    dtypes: tuple[str, ...]
    parallel: bool

    def unavailable(self, device: Device) -> str:
        """Why it cannot be used on a device of its kinds; empty where it can."""
        ...

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        """A callable that applies ``block`` to ``logits`` once; whatever it needs is put where it is needed first.

        Called through ``prepare`` of this module only, which has checked the arguments.
        """
        ...


def prepare(
    kernel: Kernel,
    logits: Any,
    block: Row,
    rows: Sequence[int] | Indices | None,
    vocabulary_size: int,
    *,
    checked: bool = False,
) -> Callable[[], object]:
    """``kernel``, ready to apply ``block`` to ``logits``. ValueError for what does not fit, before anything is written.

    checked: also MasktaxError where a row forbids every token. A softmax over nothing but −inf is NaN, and an engine
    that samples from it fails somewhere else; here it is said which row it was.
    """
    check_logits(kernel, logits, vocabulary_size)
    check_block(block, vocabulary_size)
    indices = _indices(rows, block.shape[0], logits.shape[0])
    if checked and (empty := empty_row(block)) is not None:
        raise MasktaxError(f"row {empty} of the block forbids every token; a softmax over it would be NaN")
    return kernel.prepare(logits, block, indices, vocabulary_size)


def check_logits(kernel: Kernel, logits: Any, vocabulary_size: int) -> None:
    """ValueError unless ``logits`` are what ``kernel`` takes, for a vocabulary of that size."""
    is_numpy = isinstance(logits, np.ndarray)
    if is_numpy != (kernel.array == "numpy") or not hasattr(logits, "dtype"):
        raise ValueError(f"{kernel.name} takes logits as a {kernel.array} array, not {type(logits).__name__}")
    dtype = dtype_of(logits)
    if dtype not in kernel.dtypes:
        raise ValueError(f"{kernel.name} takes logits of {', '.join(kernel.dtypes)}, not {logits.dtype}")
    if logits.ndim != 2:
        raise ValueError(f"logits have shape [rows, width], not {tuple(logits.shape)}")
    if logits.shape[1] < vocabulary_size:
        raise ValueError(f"logits of width {logits.shape[1]} are narrower than the vocabulary of {vocabulary_size}")
    stride = logits.strides[1] // logits.itemsize if is_numpy else logits.stride(1)
    if stride != 1:
        raise ValueError(f"the logits of a row must lie side by side, not {stride} apart")
    if is_numpy and not logits.flags.writeable:
        raise ValueError("logits must be writable")


def check_block(block: Row, vocabulary_size: int) -> None:
    """ValueError unless ``block`` is int32 ``[rows, words(V)]``, C-contiguous, its padding bits 0."""
    if not isinstance(block, np.ndarray) or block.dtype != np.int32:
        raise ValueError(f"a block must be a numpy int32 array, not {getattr(block, 'dtype', type(block).__name__)}")
    words = bitmask.words(vocabulary_size)
    if block.ndim != 2 or block.shape[1] != words:
        raise ValueError(f"a block for {vocabulary_size} tokens has shape [rows, {words}], not {block.shape}")
    if not block.flags.c_contiguous:
        raise ValueError("a block must be contiguous")
    spare = vocabulary_size & 31
    if spare and (block[:, -1].view(np.uint32) >> np.uint32(spare)).any():
        raise ValueError(f"a block for {vocabulary_size} tokens allows ids past them: its padding bits must be 0")


def _indices(rows: Sequence[int] | Indices | None, block_rows: int, logits_rows: int) -> Indices | None:
    """The selected rows as int32; ValueError where they are not distinct rows of the logits, one for each of the
    block's."""
    if rows is None:
        if block_rows != logits_rows:
            raise ValueError(f"a block of {block_rows} rows does not fit {logits_rows} rows of logits; name the rows")
        return None
    indices = np.asarray(rows)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ValueError("rows must be a list of whole numbers")
    if indices.size != block_rows:
        raise ValueError(f"{indices.size} rows are named for a block of {block_rows}")
    if indices.size and not 0 <= indices.min() <= indices.max() < logits_rows:
        raise ValueError(f"rows must be in 0…{logits_rows - 1}, not {indices.min()}…{indices.max()}")
    if np.unique(indices).size != indices.size:
        raise ValueError("a row is named twice")
    return indices.astype(np.int32)


def empty_row(block: Row) -> int | None:
    """The first row that forbids every token; None where there is none."""
    empty = ~block.any(axis=1)
    return int(np.argmax(empty)) if empty.any() else None


def dtype_of(logits: Any) -> str:
    """The name of logits' dtype as in ``DTYPES``; numpy's or torch's own name where it is none of them."""
    name = str(logits.dtype).removeprefix("torch.")
    return "bfloat16" if isinstance(logits, np.ndarray) and name == "uint16" else name


def bits(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The logits' bit patterns: a view as unsigned integers of the same width."""
    return logits.view(np.dtype(f"u{logits.itemsize}"))


def widened(block: Row, width: int) -> Row:
    """The block as wide as logits of that width, every bit added forbidding: the block itself where nothing is."""
    words = bitmask.words(width)
    if words == block.shape[1]:
        return block
    wide = np.zeros((block.shape[0], words), dtype=np.int32)
    wide[:, : block.shape[1]] = block
    return wide


def over_batch(block: Row, rows: Indices | None, logits_rows: int) -> Row:
    """The block with a row for every row of logits, as libraries want it that index logits and mask alike; rows not
    selected allow everything."""
    if rows is None:
        return block
    batch = np.full((logits_rows, block.shape[1]), -1, dtype=np.int32)
    batch[rows] = block
    return batch
