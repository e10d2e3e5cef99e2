"""``serialize``: the block of masks handed to another process, as a numpy array on both sides.

A round trip: from the call that sends a block of packed rows to a one-byte answer, which the other process gives once
it holds the block as an array (it has not read its bits). So two wake-ups of a process are in it: the fact
``empty_round_trip_ns``, by transport, is what a block without rows costs the same way (median), and what is beyond that
is the block's.

Inner axes ``rows`` and ``transport`` (``harness.transports``): ``pickle_pipe``, ``raw_pipe``, ``shared_memory``. The
process starts before the clock and ends with the stage, whatever happens. Before a transport is timed, what arrived is
held against what was sent by its fingerprint. Columns: ``bytes_moved`` and ``bound_ns`` (``harness.bounds``): the block
copied once, which is what shared memory needs; a pipe takes it into the kernel and out again.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from harness import bitmask, bounds
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.device import host
from harness.measure import loop, measure
from harness.stages import Job
from harness.stages.blocks import filled
from harness.transports import TRANSPORTS, Receiver, fingerprint

NAME = "serialize"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {"transport": tuple(TRANSPORTS), "rows": (1, 64)}


def run(job: Job) -> list[Measurement | Refusal]:
    grammar = job.compile()
    blocks = [filled(job, grammar, rows) for rows in job.condition("rows", CONDITIONS["rows"])]
    bandwidth = bounds.host_bandwidth(job.clock)
    for block in blocks:  # all of them now, since a larger one may yet show what a smaller one can have
        bandwidth.of("copy", block.nbytes)
    none = bitmask.allocate(0, job.vocabulary.size)
    empty_ns: dict[str, float] = {}
    done: list[Measurement | Refusal] = []
    for transport in job.chosen("transport", CONDITIONS["transport"]):
        with Receiver(transport, max(block.nbytes for block in blocks)) as receiver:
            empty = measure(loop(partial(receiver.hand_over, none)), job.clock, job.plan.share(len(blocks)))
            empty_ns[transport] = statistics.median(empty.samples_ns)
            done += [_one(job, receiver, block, transport, bandwidth) for block in blocks]
    job.facts.update({"cpu": host().model, "empty_round_trip_ns": empty_ns, **bounds.host_facts(bandwidth)})
    return done


def _one(job: Job, receiver: Receiver, block: Row, transport: str, bandwidth: bounds.Measured) -> Measurement | Refusal:
    conditions = {"transport": transport, "rows": block.shape[0]}
    receiver.hand_over(block)
    if receiver.fingerprint() != fingerprint(block):
        return Refusal(conditions, "wrong", f"{transport}: what arrived is not what was sent")
    columns = {
        "bytes_moved": bounds.copy_traffic(block.nbytes).moved_bytes,
        "bound_ns": bounds.copy_bound_ns(block.nbytes, bandwidth),
    }
    body = partial(receiver.hand_over, block)
    return measure(loop(body), job.clock, job.plan, conditions=conditions, columns=columns)
