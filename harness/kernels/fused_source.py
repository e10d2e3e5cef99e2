"""What ``masktax_triton`` compiles. The one module that imports Triton at its top: its compiler looks names up here.

Only ``harness.kernels.fused`` imports it, when a kernel is prepared.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl


def forbid(
    logits: Any,
    mask: Any,
    selected: Any,
    width: Any,
    words: Any,
    stride: Any,
    SELECTED: tl.constexpr,  # noqa: N803 - Triton's spelling of what is known when it compiles
    TILE: tl.constexpr,  # noqa: N803
) -> None:
    """Store −inf to the forbidden ones of ``TILE`` logits of one row.

    logits: pointer to ``[rows, width]``, ``stride`` elements between rows. mask: pointer to int32
    ``[block rows, words]``, contiguous. selected: pointer to int32 ``[block rows]``, the logits row of each of the
    mask's; read only where ``SELECTED``. Grid: (block rows, tiles in a row).
    """
    block_row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row = tl.load(selected + block_row).to(tl.int64) if SELECTED else block_row
    word = tile * (TILE // 32) + tl.arange(0, TILE // 32)
    packed = tl.load(mask + block_row * words + word, mask=word < words, other=0)
    allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
    token = tile * TILE + tl.arange(0, TILE)
    forbidden = (tl.reshape(allowed, [TILE]) == 0) & (token < width)
    tl.store(logits + row * stride + token, -float("inf"), mask=forbidden)
