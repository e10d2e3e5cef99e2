"""Kernels that apply a mask to logits, one protocol for all (``harness.kernels.protocol``). Worker side.

The libraries behind them (torch, Triton, xgrammar, llguidance) are imported when a kernel is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.kernels.fused import MasktaxTriton
from harness.kernels.llguidance import LLGuidanceNumpy, LLGuidanceTorch
from harness.kernels.on_numpy import Definition, Numpy
from harness.kernels.on_torch import Torch, TorchCompiled
from harness.kernels.protocol import Kernel
from harness.kernels.xgrammar import XGrammar

_ALL: tuple[Kernel, ...] = (
    Definition(),
    Numpy(),
    Torch(),
    TorchCompiled(),
    XGrammar("cpu", frozenset({"cpu"}), parallel=False),
    XGrammar("torch_compile", frozenset({"cpu", "cuda"})),
    XGrammar("triton", frozenset({"cuda"})),
    XGrammar("cuda", frozenset({"cuda"})),
    LLGuidanceNumpy(),
    LLGuidanceTorch(),
    MasktaxTriton(),
)

KERNELS: Mapping[str, Kernel] = MappingProxyType({kernel.name: kernel for kernel in _ALL})
"""Every kernel by name."""
