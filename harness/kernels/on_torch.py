"""Kernels of torch alone: ``torch``, eager, and ``torch_compiled``, the same function through its compiler; and how
logits get to torch and back. torch is imported inside functions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from harness.bitmask import Row
from harness.device import Device, Kind
from harness.kernels.protocol import DTYPES, Indices, dtype_of, widened


def tensor(logits: npt.NDArray[Any], device: Device) -> Any:
    """The logits as a tensor: on the host over the same memory, on a CUDA device a copy. bfloat16 from its bits."""
    import torch

    here = torch.from_numpy(logits.view(np.int16) if dtype_of(logits) == "bfloat16" else logits)
    if dtype_of(logits) == "bfloat16":
        here = here.view(torch.bfloat16)
    return here if device.kind == "cpu" else here.to(device.kind)


def array(logits: Any) -> npt.NDArray[Any]:
    """A tensor's logits back in numpy (``DTYPES``): over the same memory where it is on the host."""
    import torch

    here = logits.cpu()
    if here.dtype == torch.bfloat16:
        return here.view(torch.int16).numpy().view(np.uint16)  # type: ignore[no-any-return]
    return here.numpy()  # type: ignore[no-any-return]


class OnTensors:
    """What kernels that take tensors have in common."""

    array: Literal["numpy", "torch"] = "torch"
    devices: frozenset[Kind] = frozenset({"cpu", "cuda"})
    dtypes = tuple(DTYPES)
    parallel = True

    def unavailable(self, device: Device) -> str:
        return missing("torch")


def missing(package: str) -> str:
    """That a package is not installed; empty where it is."""
    return "" if find_spec(package) else f"{package} is not installed"


def no_compiler(device: Device) -> str:
    """Why torch.compile cannot make code for the device; empty where it can. For a CPU it runs a C++ compiler."""
    wanted = os.environ.get("CXX", "g++")
    if device.kind == "cpu" and shutil.which(wanted) is None:
        return f"torch.compile needs a C++ compiler, and there is no {wanted} here"
    return missing("triton") if device.kind == "cuda" else ""


class Torch(OnTensors):
    """Unpack the mask to a boolean for every logit, then ``masked_fill_``."""

    name = "torch"

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import torch

        bits = torch.from_numpy((1 << np.arange(32, dtype=np.uint32)).view(np.int32)).to(logits.device)
        return partial(_apply, logits, _mask(logits, block), bits, _selected(logits, rows))


class TorchCompiled(OnTensors):
    """The same, compiled once for all numbers of rows but one (``dynamic=True``, as the libraries compile theirs), and
    written so that the compiler makes one loop over logits of it. ``fullgraph`` has torch say so where it would fall
    back to running it uncompiled."""

    name = "torch_compiled"

    def unavailable(self, device: Device) -> str:
        return super().unavailable(device) or no_compiler(device)

    def prepare(self, logits: Any, block: Row, rows: Indices | None, vocabulary_size: int) -> Callable[[], object]:
        import torch

        compiled = torch.compile(_apply_by_logit, dynamic=True, fullgraph=True)
        return partial(compiled, logits, _mask(logits, block), _selected(logits, rows))


def _mask(logits: Any, block: Row) -> Any:
    """The mask beside the logits, as wide as they are."""
    import torch

    return torch.from_numpy(widened(block, logits.shape[1])).to(logits.device)


def _selected(logits: Any, rows: Indices | None) -> Any:
    """The selected rows beside the logits; None where all are."""
    import torch

    return None if rows is None else torch.from_numpy(rows).to(logits.device).long()


def _apply(logits: Any, mask: Any, bits: Any, rows: Any) -> None:
    """bits: each of the 32 bits of a word, int32."""
    _fill(logits, ((mask.unsqueeze(-1) & bits) == 0).flatten(1)[:, : logits.shape[1]], rows)


def _apply_by_logit(logits: Any, mask: Any, rows: Any) -> None:
    import torch

    width = logits.shape[1]
    words = torch.repeat_interleave(mask, 32, dim=1)[:, :width]
    token = torch.arange(width, dtype=torch.int32, device=logits.device)
    _fill(logits, (words >> (token & 31)) & 1 == 0, rows)


def _fill(logits: Any, forbidden: Any, rows: Any) -> None:
    if rows is None:
        logits.masked_fill_(forbidden, float("-inf"))
    else:
        logits[rows] = logits[rows].masked_fill(forbidden, float("-inf"))
