"""llguidance's own: ``apply_token_bitmask_inplace`` of ``llguidance.numpy`` and of ``llguidance.torch``.

Neither selects rows. The one for numpy writes Python's −inf, so it knows no bfloat16; the other is compiled by torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from harness.bitmask import Row
from harness.device import Device, Kind
from harness.errors import UnsupportedError
from harness.kernels.on_torch import OnTensors, missing, no_compiler
from harness.kernels.protocol import Indices, widened


class LLGuidanceNumpy:
    name = "llguidance_numpy"
    array: Literal["numpy", "torch"] = "numpy"
    devices: frozenset[Kind] = frozenset({"cpu"})
    dtypes: tuple[str, ...] = ("float32", "float16")
    parallel = False

    def unavailable(self, device: Device) -> str:
        return missing("llguidance")

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import llguidance.numpy

        _refuse(rows)
        return partial(llguidance.numpy.apply_token_bitmask_inplace, logits, widened(block, logits.shape[1]))


class LLGuidanceTorch(OnTensors):
    name = "llguidance_torch"

    def unavailable(self, device: Device) -> str:
        return super().unavailable(device) or missing("llguidance") or no_compiler(device)

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import llguidance.torch
        import torch

        _refuse(rows)
        mask = torch.from_numpy(widened(block, logits.shape[1])).to(logits.device)
        return partial(llguidance.torch.apply_token_bitmask_inplace, logits, mask)


def _refuse(rows: Indices | None) -> None:
    if rows is not None:
        raise UnsupportedError("llguidance applies a mask to every row of the logits; it has no selection of rows")
