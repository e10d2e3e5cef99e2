"""``copy``: the block of masks from the host to where the logits are.

From the call that copies a block of packed rows until the block is there. Inner axes: ``rows``; ``memory``, where it
lies on the host: ``pageable``, or ``pinned``, which a device can read by itself; ``mode``: ``blocking``, each copy
over before the next begins, or ``non_blocking``, copies queued and the last waited for. On a CUDA device a sample ends
with that wait, so that both modes are the time until masks have arrived.

Without a device the host staging copy is timed, into a buffer made beforehand, and labelled ``device=cpu``: what an
engine does when it puts rows in the order of its batch. Pinned memory and queued copies are a device's, and refused.
Columns: ``bytes_moved`` and ``bound_ns`` (``harness.bounds``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from harness import bounds
from harness.bitmask import Row
from harness.bounds import Measured
from harness.cell import Measurement, Refusal
from harness.device import Device, accelerator, clock_for, host
from harness.measure import loop, measure
from harness.stages import Job
from harness.stages.blocks import filled

NAME = "copy"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "memory": ("pageable", "pinned"),
    "mode": ("blocking", "non_blocking"),
    "rows": (1, 64),
}


def run(job: Job) -> list[Measurement | Refusal]:
    device = accelerator() or host()
    clock = clock_for(device, job.clock)
    here = bounds.host_bandwidth(job.clock)
    bandwidth = here if device.kind == "cpu" else bounds.link_bandwidth(clock)
    grammar = job.compile()
    done: list[Measurement | Refusal] = []
    for rows in job.condition("rows", CONDITIONS["rows"]):
        block = filled(job, grammar, rows)
        for memory in job.chosen("memory", CONDITIONS["memory"]):
            for mode in job.chosen("mode", CONDITIONS["mode"]):
                conditions = {"memory": memory, "mode": mode, "rows": rows, "device": device.label}
                reason = _unsupported(device, memory, mode)
                if reason:
                    done.append(Refusal(conditions, "unsupported", reason))
                    continue
                body = _on_host(block) if device.kind == "cpu" else _to_device(block, memory, mode)
                done.append(
                    measure(loop(body), clock, job.plan, conditions=conditions, columns=_columns(block, bandwidth))
                )
    job.facts.update({"cpu": host().model, **bounds.host_facts(here)})
    if device.kind == "cuda":
        job.facts.update(bounds.link_facts(device, bandwidth))
    return done


def _columns(block: Row, bandwidth: Measured) -> dict[str, Any]:
    return {
        "bytes_moved": bounds.copy_traffic(block.nbytes).moved_bytes,
        "bound_ns": bounds.copy_bound_ns(block.nbytes, bandwidth),
    }


def _unsupported(device: Device, memory: str, mode: str) -> str:
    """Why a way of copying is not there without a device; empty where it is."""
    if device.kind == "cuda":
        return ""
    if memory == "pinned":
        return "memory is pinned for a device to read, and there is none here"
    return "a copy on the host is over when its call is: there is no queue" if mode == "non_blocking" else ""


def _on_host(block: Row) -> Callable[[], object]:
    return partial(np.copyto, np.empty_like(block), block)


def _to_device(block: Row, memory: str, mode: str) -> Callable[[], object]:
    import torch

    source = torch.from_numpy(block)
    source = source.pin_memory() if memory == "pinned" else source
    there = torch.empty_like(source, device="cuda")
    return partial(there.copy_, source, non_blocking=mode == "non_blocking")
