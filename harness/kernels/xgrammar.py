"""xgrammar's kernels, each by its name in ``xgrammar.apply_token_bitmask_inplace(…, backend=)``, the call engines make.

The mask is handed over as wide as the logits and, where rows are selected, with a row for each of the batch: xgrammar
indexes logits and mask alike (vLLM lays its masks out the same way, on the host, before it calls).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal

from harness.bitmask import Row
from harness.device import Device, Kind
from harness.kernels.on_torch import OnTensors, missing, no_compiler
from harness.kernels.protocol import Indices, over_batch, widened

Name = Literal["cpu", "triton", "cuda", "torch_compile"]


class XGrammar(OnTensors):
    """One of the library's kernels. backend: its name there."""

    def __init__(self, backend: Name, devices: frozenset[Kind], *, parallel: bool = True) -> None:
        self.name = f"xgrammar_{backend}"
        self.devices = devices
        self.parallel = parallel
        self._backend = backend

    def unavailable(self, device: Device) -> str:
        absent = super().unavailable(device) or missing("xgrammar")
        if absent or self._backend == "cpu":
            return absent
        if self._backend == "torch_compile":
            return no_compiler(device)
        if self._backend == "triton":
            return missing("triton")
        try:  # compiles its source with nvcc, or says why it cannot
            import_module("xgrammar.kernels.apply_token_bitmask_inplace_cuda")
        except ImportError as error:
            return f"xgrammar's CUDA kernel: {error}"
        return ""

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import torch
        import xgrammar

        width = logits.shape[1]
        mask = torch.from_numpy(over_batch(widened(block, width), rows, logits.shape[0])).to(logits.device)
        return partial(
            xgrammar.apply_token_bitmask_inplace,
            logits,
            mask,
            vocab_size=width,
            indices=None if rows is None else rows.tolist(),
            backend=self._backend,
        )
