"""``apply``: −inf written to the forbidden logits of a batch, by each kernel.

From the call that applies a block of masks to logits, both where the kernel wants them, to logits that are masked. On a
CUDA device a sample is a number of calls queued one after another and the wait for the last. Not in it: filling the
masks, bringing them to the device (``copy``), laying them out in a library's own way.

Inner axes ``kernel``, ``dtype`` (of the logits), ``rows``; the condition ``device`` says where the kernel ran: on the
accelerator where there is one that it can use, else on the host. The masks are the backend's own along the cell's
documents. Logits are as wide as the vocabulary. They are not restored between calls, since a mask decides what is
written and never a logit.

Before a kernel is timed its result is held against the definition, bit by bit; one that differs is ``wrong`` and not
timed. Columns: ``allowed_share`` of the block, ``bytes_moved`` and ``bound_ns`` (``harness.bounds``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness import bounds
from harness.bitmask import Row
from harness.bounds import Measured
from harness.cell import Measurement, Refusal
from harness.clocks import Clock
from harness.device import Device, accelerator, clock_for, host
from harness.kernels import KERNELS
from harness.kernels.on_torch import array, tensor
from harness.kernels.protocol import DTYPES, Kernel, bits, empty_row, prepare
from harness.measure import loop, measure
from harness.stages import Job
from harness.stages.blocks import allowed, filled

NAME = "apply"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "kernel": tuple(KERNELS),
    "dtype": tuple(DTYPES),
    "rows": (1, 64),
}


def run(job: Job) -> list[Measurement | Refusal]:
    places = _Places(job.clock)
    kernels = [KERNELS[name] for name in job.chosen("kernel", CONDITIONS["kernel"])]
    grammar = job.compile()
    done: list[Measurement | Refusal] = []
    for rows in job.condition("rows", CONDITIONS["rows"]):
        block = filled(job, grammar, rows)
        for dtype in job.chosen("dtype", CONDITIONS["dtype"]):
            done += _all(job, places, kernels, block, dtype)
    job.facts.update(places.facts())
    return done


@dataclass
class _Places:
    """Where kernels can run, each with a clock and a bandwidth of its own. torch is asked for an accelerator only where
    a kernel could use one."""

    clock: Clock

    @cached_property
    def host(self) -> Device:
        return host()

    @cached_property
    def accelerator(self) -> Device | None:
        return accelerator()

    @cached_property
    def host_bandwidth(self) -> Measured:
        return bounds.host_bandwidth(self.clock)

    @cached_property
    def device_clock(self) -> Clock:
        return self.clock if self.accelerator is None else clock_for(self.accelerator, self.clock)

    @cached_property
    def device_bandwidth(self) -> Measured:
        return bounds.device_bandwidth(self.device_clock)

    def of(self, kernel: Kernel) -> tuple[Device | None, str]:
        """Where a kernel runs here, or why it does not."""
        reason = f"{kernel.name} needs a CUDA device, and there is none here"
        if "cuda" in kernel.devices and self.accelerator is not None:
            reason = kernel.unavailable(self.accelerator)
            if not reason:
                return self.accelerator, ""
        if "cpu" in kernel.devices:
            reason = kernel.unavailable(self.host)
            if not reason:
                return self.host, ""
        return None, reason

    def clock_of(self, device: Device) -> Clock:
        return self.clock if device.kind == "cpu" else self.device_clock

    def bandwidth_of(self, device: Device) -> Measured:
        return self.host_bandwidth if device.kind == "cpu" else self.device_bandwidth

    def facts(self) -> dict[str, Any]:
        facts = {"cpu": self.host.model, **bounds.host_facts(self.host_bandwidth)}
        # Looked at only where a kernel has asked for it: the question imports torch.
        device = self.__dict__.get("accelerator")
        return facts if device is None else facts | bounds.device_facts(device, self.device_bandwidth)


def _all(job: Job, places: _Places, kernels: list[Kernel], block: Row, dtype: str) -> Iterator[Measurement | Refusal]:
    """Every kernel over the same block and the same logits."""
    size = job.vocabulary.size
    empty = empty_row(block)
    logits = _logits(block.shape[0], size, dtype)
    expected = logits.copy()
    prepare(KERNELS["definition"], expected, block, None, size)()
    for kernel in kernels:
        conditions = {"kernel": kernel.name, "dtype": dtype, "rows": block.shape[0]}
        device, reason = places.of(kernel)
        if dtype not in kernel.dtypes:
            reason = f"{kernel.name} takes logits of {', '.join(kernel.dtypes)}, not {dtype}"
        if device is None or reason:
            yield Refusal(conditions, "unsupported", reason)
            continue
        conditions["device"] = device.label
        if empty is not None:
            yield Refusal(conditions, "wrong", f"row {empty} of the batch forbids every token: nothing can be sampled")
            continue
        yield _one(job, places, kernel, device, logits, expected, block, conditions)


def _one(
    job: Job,
    places: _Places,
    kernel: Kernel,
    device: Device,
    logits: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    block: Row,
    conditions: Mapping[str, Any],
) -> Measurement | Refusal:
    """One kernel: checked, then timed."""
    working: Any = logits.copy() if kernel.array == "numpy" else tensor(logits.copy(), device)
    body = prepare(kernel, working, block, None, job.vocabulary.size)
    body()
    fault = difference(working if kernel.array == "numpy" else array(working), expected)
    if fault:
        return Refusal(conditions, "wrong", f"{kernel.name} differs from the definition: {fault}")
    rows, words = block.shape
    tokens = rows * job.vocabulary.size
    allowing = allowed(block, job.vocabulary.size)
    traffic = bounds.apply_traffic(rows, words, tokens - allowing, logits.itemsize)
    threads = _threads() if kernel.parallel and device.kind == "cpu" else 1
    columns = {
        "allowed_share": allowing / tokens,
        "bytes_moved": traffic.moved_bytes,
        "bound_ns": bounds.bound_ns(traffic, places.bandwidth_of(device), threads),
    }
    return measure(loop(body), places.clock_of(device), job.plan, conditions=conditions, columns=columns)


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> str:
    """The first logit whose bits differ, and how many do; empty where none does. Shape ``[rows, width]`` each."""
    unlike = bits(got) != bits(expected)
    count = int(np.count_nonzero(unlike))
    if not count:
        return ""
    row, token = np.unravel_index(int(np.argmax(unlike)), unlike.shape)
    here, there = (f"{int(bits(x)[row, token]):#x}" for x in (got, expected))
    return f"row {row}, token {token} is {here} and must be {there} ({count} of {unlike.size} logits differ)"


def _logits(rows: int, width: int, dtype: str) -> npt.NDArray[Any]:
    """Logits as a model might give them, the same every time: normal, standard deviation 4, each row the one before
    moved by one."""
    values = np.random.default_rng(0).standard_normal(width + rows, dtype=np.float32) * 4
    if dtype == "bfloat16":
        held = (values.view(np.uint32) >> 16).astype(np.uint16)
        return np.lib.stride_tricks.sliding_window_view(held, width)[:rows].copy()
    return np.lib.stride_tricks.sliding_window_view(values.astype(DTYPES[dtype]), width)[:rows].copy()


def _threads() -> int:
    """How many threads torch shares a kernel's work among on the host."""
    import torch

    return torch.get_num_threads()
