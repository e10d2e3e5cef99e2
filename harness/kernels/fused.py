"""``masktax_triton``: one launch that reads packed words and stores −inf, and reads no logit.

A program takes one row and ``TILE`` neighbouring logits: it loads ``TILE / 32`` words, spreads their bits over the tile
and stores where a bit is 0. Words past the mask's end read as 0, so a padded tail is forbidden without a case of its
own; selected rows are looked up inside. What is left allowed costs no traffic at all.

Triton is imported, and the function handed to its compiler, when a kernel is prepared. With ``TRITON_INTERPRET=1``
Triton's interpreter runs it on a CPU, which shows what it computes and says nothing about its speed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.bitmask import Row
from harness.device import Device, Kind
from harness.kernels.on_torch import OnTensors, missing
from harness.kernels.protocol import Indices

TILE = 4096
"""Logits of one program. 4096 float32 stores are 16 KiB; 32 programs cover a row of 129,280."""


class MasktaxTriton(OnTensors):
    name = "masktax_triton"
    devices: frozenset[Kind] = frozenset({"cuda"})

    def unavailable(self, device: Device) -> str:
        return super().unavailable(device) or missing("triton")

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import torch
        import triton

        from harness.kernels.fused_source import forbid

        mask = torch.from_numpy(block).to(logits.device)
        # A selection that is not there is the mask itself, never read: a pointer must point somewhere.
        selected = mask if rows is None else torch.from_numpy(rows).to(logits.device)
        width = logits.shape[1]
        launch = triton.jit(forbid)[(block.shape[0], -(-width // TILE))]
        return partial(
            launch,
            logits,
            mask,
            selected,
            width,
            mask.shape[1],
            logits.stride(0),
            SELECTED=rows is not None,
            TILE=TILE,
            num_warps=8,
        )
