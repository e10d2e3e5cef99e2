"""Which device a kernel runs on, what it is called in a record, and when it is done. Worker side.

``host()`` is the CPU. ``accelerator()`` asks torch for a CUDA device, and imports torch only then, and only where an
NVIDIA driver is installed. Work on a CUDA device is only queued by the call that starts it: ``synchronise`` waits for
it, and ``SynchronisedClock`` does so before every reading, its cost measured and recorded like any clock's overhead.
"""

from __future__ import annotations

import ctypes
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.clocks import Clock

Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Device:
    """A place for logits. label: what conditions say (``cpu``, or the device's own name). model: the processor's."""

    kind: Kind
    label: str
    model: str

    def synchronise(self) -> None:
        """Wait until everything queued on the device is done; nothing to wait for on the host."""
        if self.kind == "cuda":
            _torch().cuda.synchronize()


def host() -> Device:
    """The CPU; never imports torch."""
    return Device("cpu", "cpu", _cpu_model())


def accelerator() -> Device | None:
    """The CUDA device that torch uses by default; None where there is no driver, no torch or no device."""
    if not _has_driver():
        return None
    try:
        torch = _torch()
    except ModuleNotFoundError:
        return None
    if not torch.cuda.is_available():
        return None
    name = str(torch.cuda.get_device_name())
    return Device("cuda", name, name)


def event_ns(device: Device, body: Callable[[], object]) -> float:
    """How long the device worked on what ``body`` queues, by two events on its current stream, ns (an event's own
    resolution is about half a microsecond). ValueError on the host, which has no events."""
    if device.kind != "cuda":
        raise ValueError(f"{device.label} has no events: time it by a clock")
    cuda = _torch().cuda
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    body()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e6


@dataclass(frozen=True)
class SynchronisedClock:
    """A clock whose reading waits for the device first: between two readings lies all that was queued between them.

    overhead_ns: median of what two adjacent readings show with nothing queued, waiting included.
    """

    clock: Clock
    device: Device
    resolution_ns: float
    overhead_ns: float

    @property
    def name(self) -> str:
        return f"{self.clock.name}, synchronised"

    def now_ns(self) -> int:
        self.device.synchronise()
        return self.clock.now_ns()


def clock_for(device: Device, clock: Clock, readings: int = 200) -> Clock:
    """The clock to time work on the device with: ``clock`` itself on the host."""
    if device.kind == "cpu":
        return clock
    trial = SynchronisedClock(clock, device, clock.resolution_ns, 0.0)
    differences = []
    for _ in range(readings):
        before = trial.now_ns()
        differences.append(trial.now_ns() - before)
    return SynchronisedClock(clock, device, clock.resolution_ns, statistics.median(differences))


def _has_driver() -> bool:
    """Whether the CUDA driver's library can be loaded; far quicker to learn than by importing torch."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _torch() -> Any:
    import torch

    return torch


def _cpu_model() -> str:
    """The processor's name; Linux keeps it in /proc/cpuinfo."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
