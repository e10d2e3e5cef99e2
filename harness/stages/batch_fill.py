"""``batch_fill``: all rows of a batch, from the first call to the last row written.

Inner axes: ``policy``, how the rows are filled (``harness.batch.policies``); ``mix``, what stands in them
(``harness.batch.mixes``); ``rows``, how many; and what tunes a policy, where it makes a difference to it:
``threshold``, ``chunk``, ``threads``. A sample is one whole block: divided by ``rows`` it is the time per row.

The matchers stand still: a block is filled again and again from states that were met before, as ``fill`` has it in
``later`` visits. Columns: ``states``, how many distinct states the rows are in; ``round``; beside a pool's size
``host_cpus``, ``usable_cpus`` (the affinity's) and ``quota_cores`` (the control groups').

Before a policy is timed, a block that it filled is compared, row by row and bit by bit, with one that was filled by
the library's own call for each row, and afterwards every matcher must be in the state that it was in: its row is the
same, and so is its answer to the document's next token. The block that timing leaves behind is compared, too. A
difference is a refusal, ``wrong``, that names row and policy.

Policies of one mix and size take turns, so that what disturbs the machine for a while disturbs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from harness import bitmask
from harness.backends.guard import Matcher
from harness.batch.mixes import MIXES, Batch, Mixer
from harness.batch.policies import POLICIES, Fill, Policy, Pools, Tools
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.clocks import Clock
from harness.control_groups import quota_cores
from harness.errors import UnsupportedError
from harness.measure import Plan, loop, measure, merge
from harness.stages import Job

NAME = "batch_fill"
TUNING = ("threshold", "chunk", "threads")
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "policy": tuple(POLICIES),
    "mix": MIXES,
    "rows": (1, 16, 128, 129),
    **dict.fromkeys(TUNING, ()),  # left out: each policy's own
}
ROUNDS = 3


@dataclass(frozen=True)
class _Trial:
    """One measurement to make: a policy in one of its settings."""

    policy: Policy
    setting: Mapping[str, int]
    conditions: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """Beside the size of a pool: what it was chosen from, and what it ought to have been chosen from."""
        if "threads" not in self.setting:
            return {}
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        return {"host_cpus": os.cpu_count(), "usable_cpus": usable, "quota_cores": quota_cores()}


def run(job: Job) -> list[Measurement | Refusal]:
    job.longest()
    # Axes are named for all stages of a cell: another stage's values are not for this one.
    asked = {axis: job.condition(axis, CONDITIONS[axis]) for axis in CONDITIONS}
    for axis in ("policy", "mix"):
        asked[axis] = tuple(value for value in asked[axis] if value in CONDITIONS[axis])
    done: list[Measurement | Refusal] = []
    mixer = Mixer(job)
    with Pools() as pools:
        tools = Tools(job.backend, pools)
        reasons = {name: POLICIES[name].refusal(tools) for name in asked["policy"]}
        done += [Refusal({"policy": name}, "unsupported", reason) for name, reason in reasons.items() if reason]
        policies = [POLICIES[name] for name, reason in reasons.items() if not reason]
        groups = {(mix, rows): _trials(policies, mix, rows, asked) for mix in asked["mix"] for rows in asked["rows"]}
        rounds = 1 if job.plan.max_samples == 1 else ROUNDS
        budget = _Budget(job.clock, job.plan, rounds * sum(len(trials) for trials in groups.values()))
        for mix in asked["mix"]:
            try:
                for rows in asked["rows"]:
                    batch = partial(mixer.batch, mix, rows)
                    done += _group(job, tools, batch, groups[mix, rows], budget, rounds)
            except UnsupportedError as error:
                done.append(Refusal({"mix": mix}, "unsupported", error.reason))
    return done


def _trials(policies: Sequence[Policy], mix: str, rows: int, asked: Mapping[str, Sequence[int]]) -> list[_Trial]:
    return [
        _Trial(policy, setting, {"policy": policy.name, "mix": mix, "rows": rows, **setting})
        for policy in policies
        for setting in policy.settings(rows, asked)
    ]


def _group(
    job: Job, tools: Tools, batch: Callable[[], Batch], trials: Sequence[_Trial], budget: _Budget, rounds: int
) -> list[Measurement | Refusal]:
    """The trials over one mix and size, checked and then timed. One that is wrong may have spoiled the matchers: the
    others start anew, on a fresh batch."""
    refused: list[Measurement | Refusal] = []
    while trials:
        bench = _Bench(job, tools, batch())
        found = bench.check(trials) or bench.time(trials, budget, rounds)
        if not isinstance(found, Refusal):
            return [*refused, *found]
        refused.append(found)
        trials = [trial for trial in trials if trial.conditions != found.conditions]
    return refused


class _Budget:
    """The plan's time over all parts of the stage, checks included: each part may take an equal share of what is left,
    so that small blocks, which are soon known well enough, leave theirs to large ones."""

    def __init__(self, clock: Clock, plan: Plan, parts: int) -> None:
        self._clock = clock
        self._end_ns = clock.now_ns() + plan.time_cap_s * 1e9
        # The check has filled every block before: nothing more is warmed up.
        self._plan = replace(plan.share(parts), warmup_iterations=0)
        self._parts = parts

    def plan(self) -> Plan:
        """The plan for the next part. Where time is up it gets a nanosecond: one sample is taken all the same."""
        left_ns = max(self._end_ns - self._clock.now_ns(), 1.0)
        share_s = left_ns / 1e9 / max(self._parts, 1)
        self._parts -= 1
        return replace(self._plan, time_cap_s=share_s)


class _Bench:
    """A batch, the block that policies fill from it, and what the library itself says row by row."""

    def __init__(self, job: Job, tools: Tools, batch: Batch) -> None:
        self._job = job
        self._tools = tools
        self._batch = batch
        rows, size = len(batch.rows), job.vocabulary.size
        self._block = bitmask.allocate(rows, size)
        self._serial = bitmask.allocate(rows, size)
        self._calls = [row.matcher.fill_call(self._serial[i]) for i, row in enumerate(batch.rows)]
        self._fill_serially()
        self._expected = self._serial.copy()
        self._takes = self._answers()

    def check(self, trials: Sequence[_Trial]) -> Refusal | None:
        """The first trial that is wrong; None where all are right."""
        for trial in trials:
            if fault := self._fault(self._fill(trial), trial.policy.name):
                return Refusal(trial.conditions, "wrong", fault)
        return None

    def time(self, trials: Sequence[_Trial], budget: _Budget, rounds: int) -> list[Measurement] | Refusal:
        """Every trial once a round, in turns of either direction; the first whose block is wrong afterwards."""
        fills = [self._fill(trial) for trial in trials]
        parts: list[list[Measurement]] = [[] for _ in trials]
        for turn in range(rounds):
            for i in sorted(range(len(trials)), reverse=turn % 2 == 1):
                trial = trials[i]
                columns = {"states": self._batch.states, "round": turn, **trial.columns}
                plan, clock = budget.plan(), self._job.clock
                parts[i].append(measure(loop(fills[i]), clock, plan, conditions=trial.conditions, columns=columns))
                if fault := self._difference(self._block, f"under policy {trial.policy.name}, while it was timed,"):
                    return Refusal(trial.conditions, "wrong", fault)
        return [merge(part) for part in parts]

    def _fill(self, trial: _Trial) -> Fill:
        return trial.policy.prepare(self._batch, self._block, self._tools, **trial.setting)

    def _fault(self, fill: Fill, policy: str) -> str:
        """What one fill under a policy does wrong, to the block or to the matchers; empty where that is nothing."""
        np.invert(self._expected, out=self._block)  # a row that is left out is wrong in every bit
        fill()
        if fault := self._difference(self._block, f"under policy {policy}"):
            return fault
        np.invert(self._expected, out=self._serial)
        self._fill_serially()
        if fault := self._difference(self._serial, f"filled by itself after policy {policy}, which touched its state,"):
            return fault
        for i, (before, after) in enumerate(zip(self._takes, self._answers(), strict=True)):
            if before != after:
                return (
                    f"{self._named(i)}: after policy {policy} its matcher {'takes' if after else 'refuses'} token "
                    f"{self._batch.rows[i].next_token}, which it {'refused' if after else 'took'} before"
                )
        return ""

    def _fill_serially(self) -> None:
        for call in self._calls:
            call()

    def _answers(self) -> list[int]:
        """Of every matcher, 1 or 0: whether it would take its document's next token."""
        vocabulary, able = self._job.vocabulary, self._job.backend.capabilities
        return [Matcher(row.matcher, vocabulary, able).validate([row.next_token]) for row in self._batch.rows]

    def _difference(self, block: Row, how: str) -> str:
        """The first row of a block that is not the expected one; empty where there is none."""
        wrong = np.flatnonzero((block != self._expected).any(axis=1))
        if not wrong.size:
            return ""
        i = int(wrong[0])
        found = bitmask.diff(block[i], self._expected[i], self._job.vocabulary.size)
        if found:
            direction = "too loose" if found.too_loose else "too strict"
            detail = f"token {(found.too_loose or found.too_strict)[0]} is {direction}"
        else:
            detail = "bits past the vocabulary differ"
        return f"{self._named(i)} {how} is not its serial row: {detail}; rows that differ: {wrong.size}"

    def _named(self, i: int) -> str:
        row = self._batch.rows[i]
        return f"row {i} of {len(self._batch.rows)} ({row.constraint}, {row.document} after {len(row.tokens)} tokens)"
