"""The least that a stage can cost: the bytes that must move, over the bandwidth at which they can. Worker side.

A bound is computed: bytes from a formula (each stage's is a function here), over a bandwidth measured in the same
process by numpy (or, on a CUDA device, torch) reading, writing and copying memory as fast as it can, at the size at
hand, since a block that fits into a cache moves faster than one that does not. Measured time over bound says how much
of a kernel is something else than moving bytes: unpacking bits, passes over memory that could be spared, starting.

Sources: counting compulsory traffic and dividing by attainable bandwidth is the memory side of the roofline model
(Williams, Waterman and Patterson, *Roofline: an insightful visual performance model*, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from harness.clocks import Clock
from harness.device import Device

Movement = Literal["read", "write", "copy"]

# How long one bandwidth is measured, and how often at least: a short look could fall into a moment when others work.
TIME_NS, LEAST = 20_000_000, 3
# What a call of its own costs is measured on this much and taken off: it moves no bytes.
TRIVIAL_BYTES = 64
# Below this the time of moving is lost in the call's own; above, a buffer would crowd out what is measured.
SMALLEST_BYTES, LARGEST_BYTES = 4 << 10, 512 << 20


# What must move.


@dataclass(frozen=True)
class Traffic:
    """Bytes that any way of doing it must read and must write."""

    read_bytes: int
    written_bytes: int

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


def apply_traffic(rows: int, words: int, forbidden: int, itemsize: int) -> Traffic:
    """``apply``: every word of the mask is read, and −inf is stored to every forbidden logit; no logit need be read.

    ``read = rows · words · 4``, ``written = forbidden · itemsize``, forbidden counted over all rows. For one row of
    128,256 logits in float32: 16,032 B of mask, and at most 513,024 B of stores, where all of it is forbidden.
    Bytes are counted, not cache lines: scattered stores move whole lines, so the bound is low for dense masks.
    """
    return Traffic(rows * words * 4, forbidden * itemsize)


def copy_traffic(size_bytes: int) -> Traffic:
    """``copy`` and ``serialize``: the block is read once and written once. A way that needs a buffer in between, as a
    pipe does, moves more than it must."""
    return Traffic(size_bytes, size_bytes)


# How fast it can.


class Bandwidth(Protocol):
    """Bytes per second, by movement and size. ``copy`` counts a copied byte once."""

    def of(self, movement: Movement, size_bytes: int) -> float: ...

    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """What was measured so far: ``{movement: {size in bytes, as text: bytes per second}}``."""
        ...


def bound_ns(traffic: Traffic, bandwidth: Bandwidth, threads: int = 1) -> float:
    """The lower bound of apply, ns: reads and writes may overlap, so the longer of the two.

    threads: how many a kernel works with. Each moves its part, of which its own cache holds more; bandwidths add up,
    which where threads share a memory bus is more than there is, and leaves the bound lower than need be.
    """
    read_ns = _ns(traffic.read_bytes, "read", bandwidth, threads)
    written_ns = _ns(traffic.written_bytes, "write", bandwidth, threads)
    return max(read_ns, written_ns)


def copy_bound_ns(size_bytes: int, bandwidth: Bandwidth) -> float:
    """The lower bound of copy and serialize, ns: the block copied once, by one thread."""
    return _ns(size_bytes, "copy", bandwidth, 1)


def _ns(size_bytes: int, movement: Movement, bandwidth: Bandwidth, threads: int) -> float:
    if size_bytes == 0:
        return 0.0
    part = max(size_bytes // threads, 1)
    return size_bytes / (threads * bandwidth.of(movement, part)) * 1e9


def size_class(size_bytes: int) -> int:
    """The size at which bandwidth is measured for ``size_bytes``: the power of two at or below it, within limits.

    Below rather than above, since a smaller block is moved faster and the bound stays one.
    """
    return min(max(1 << (size_bytes.bit_length() - 1), SMALLEST_BYTES), LARGEST_BYTES)


@dataclass
class Measured:
    """Bandwidths measured when they are first asked for, and kept.

    body: ``body(movement, size_bytes)`` prepares a callable that moves that many bytes once. The best of many
    repetitions counts, less what the call itself costs on next to nothing: a bound asks what can be had, not what is
    usual. For the same reason a size has at least the bandwidth of any larger one measured so far. On a busy machine
    what can be had may be missed all the same: a stage that then comes out faster than its bound says so by itself.
    """

    clock: Clock
    body: Callable[[Movement, int], Callable[[], object]]
    seen: dict[tuple[Movement, int], float] = field(default_factory=dict)
    calls: dict[Movement, int] = field(default_factory=dict)

    def of(self, movement: Movement, size_bytes: int) -> float:
        size = size_class(size_bytes)
        if (movement, size) not in self.seen:
            if movement not in self.calls:
                self.calls[movement] = self._best_ns(movement, TRIVIAL_BYTES)
            # Never below one tick: next to nothing may have cost as much as the call alone.
            moving_ns = max(self._best_ns(movement, size) - self.calls[movement], self.clock.resolution_ns)
            self.seen[movement, size] = size / moving_ns * 1e9
        return max(value for (kind, at), value in self.seen.items() if kind == movement and at >= size)

    def facts(self) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for (movement, size), value in sorted(self.seen.items()):
            found.setdefault(movement, {})[str(size)] = round(value)
        return found

    def _best_ns(self, movement: Movement, size_bytes: int) -> int:
        move, now = self.body(movement, size_bytes), self.clock.now_ns
        move()  # pages are touched and caches filled
        started_ns = now()
        best, count = None, 0
        while best is None or count < LEAST or now() - started_ns < TIME_NS:
            before = now()
            move()
            lasted_ns = now() - before
            best = lasted_ns if best is None else min(best, lasted_ns)
            count += 1
        return best


_ON_HOST: list[Measured] = []


def host_bandwidth(clock: Clock) -> Measured:
    """One thread of this process over host memory, by numpy: bytes filled, the largest of bytes looked for, bytes
    copied; of numpy's own operations the fastest at each on the machine they were tried on. One for each clock, so that
    a cell's stages share what was measured: to lay out memory beyond the caches takes longer than to measure it."""
    for known in _ON_HOST:
        if known.clock is clock:
            return known
    _ON_HOST.append(Measured(clock, _host_body))
    return _ON_HOST[-1]


def device_bandwidth(clock: Clock) -> Measured:
    """The CUDA device's own memory, by torch. clock: one that waits for the device (``harness.device.clock_for``)."""
    return Measured(clock, _device_body)


def link_bandwidth(clock: Clock) -> Measured:
    """From pinned host memory to the CUDA device, by torch; ``copy`` is all that a link does. clock: as above."""
    return Measured(clock, _link_body)


def memory_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """A size beyond the last-level cache: twice the largest cache that Linux names, else 256 MiB."""
    sizes = [int(text[:-1]) << 10 for f in caches.glob("index*/size") if (text := f.read_text().strip()).endswith("K")]
    return min(2 * max(sizes), LARGEST_BYTES) if sizes else 256 << 20


def host_facts(bandwidth: Measured) -> dict[str, Any]:
    """For a record: what host memory was measured to give, in caches (``host_bandwidth_bytes_per_s``, by movement and
    size) and beyond them (``host_memory_bandwidth_bytes_per_s``, by movement)."""
    beyond = memory_bytes()
    movements: tuple[Movement, ...] = ("read", "write", "copy")
    memory = {movement: round(bandwidth.of(movement, beyond)) for movement in movements}
    return {"host_bandwidth_bytes_per_s": bandwidth.facts(), "host_memory_bandwidth_bytes_per_s": memory}


def device_facts(device: Device, memory: Measured) -> dict[str, Any]:
    """For a record: what a CUDA device's memory was measured to give, and what its maker states."""
    peak = stated_peak(device)
    stated = None if peak is None else {"bytes_per_s": peak.memory_bytes_per_s, "source": peak.source}
    return {"device_bandwidth_bytes_per_s": memory.facts(), "device_peak": stated}


def link_facts(device: Device, link: Measured) -> dict[str, Any]:
    """For a record: what the way to a CUDA device was measured to give, and what its maker states."""
    peak = stated_peak(device)
    stated = None if peak is None else {"bytes_per_s": peak.link_bytes_per_s, "source": peak.source}
    return {"link_bandwidth_bytes_per_s": link.facts(), "link_peak": stated}


def _host_body(movement: Movement, size_bytes: int) -> Callable[[], object]:
    # Not zeros: pages that were never written are all one page, which the cache holds.
    memory = np.ones(size_bytes, dtype=np.uint8)
    if movement == "write":
        return lambda: memory.fill(0x5A)
    if movement == "read":
        return memory.max
    other = np.zeros_like(memory)
    return lambda: np.copyto(other, memory)


def _device_body(movement: Movement, size_bytes: int) -> Callable[[], object]:
    import torch

    memory = torch.zeros(size_bytes // 4, dtype=torch.int32, device="cuda")
    if movement == "write":
        return lambda: memory.fill_(0x5A5A5A5A)
    if movement == "read":
        return memory.max
    other = torch.zeros_like(memory)
    return lambda: other.copy_(memory)


def _link_body(movement: Movement, size_bytes: int) -> Callable[[], object]:
    import torch

    if movement != "copy":
        raise ValueError(f"a link copies; it does not {movement}")
    here = torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)
    there = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")
    return lambda: there.copy_(here, non_blocking=True)


# What is stated.


@dataclass(frozen=True)
class Peak:
    """What a device's maker states. words: all of them occur in the name that its driver gives. memory, link: bytes
    per second; the link's in one direction (data sheets add up both)."""

    words: tuple[str, ...]
    memory_bytes_per_s: float
    link_bytes_per_s: float
    source: str


# The more particular name first. PCI Express, x16, one direction: 32 GB/s in generation 4, 64 GB/s in generation 5.
PEAKS = (
    Peak(("B200",), 8.0e12, 64e9, "NVIDIA DGX B200 data sheet: 64 TB/s over 8 GPUs"),
    Peak(("H200",), 4.8e12, 64e9, "NVIDIA H200 Tensor Core GPU data sheet"),
    Peak(("H100", "PCIe"), 2.0e12, 64e9, "NVIDIA H100 PCIe GPU product brief"),
    Peak(("H100", "NVL"), 3.9e12, 64e9, "NVIDIA H100 Tensor Core GPU data sheet (H100 NVL)"),
    Peak(("H100",), 3.35e12, 64e9, "NVIDIA H100 Tensor Core GPU data sheet (H100 SXM)"),
    Peak(("A100", "80GB", "PCIe"), 1.935e12, 32e9, "NVIDIA A100 Tensor Core GPU data sheet (80 GB PCIe)"),
    Peak(("A100", "80GB"), 2.039e12, 32e9, "NVIDIA A100 Tensor Core GPU data sheet (80 GB SXM)"),
    Peak(("A100",), 1.555e12, 32e9, "NVIDIA A100 Tensor Core GPU data sheet (40 GB)"),
    Peak(("L40S",), 0.864e12, 32e9, "NVIDIA L40S data sheet"),
    Peak(("L4",), 0.3e12, 32e9, "NVIDIA L4 Tensor Core GPU data sheet"),
)


def stated_peak(device: Device) -> Peak | None:
    """The stated peak of a CUDA device; None where it is not in the table, and for the host, whose memory has no name.

    Names are split at spaces and hyphens, so that L4 is not found in L40S.
    """
    parts = set(device.label.replace("-", " ").split())
    if device.kind != "cuda":
        return None
    return next((peak for peak in PEAKS if parts.issuperset(peak.words)), None)
