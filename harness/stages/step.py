"""``step``: by how much the grammar makes a decode step longer, acted out and computed.

A sample is one step of a whole batch by the wall clock, less the forward pass: ``harness.overlap`` waits out a pass of
``forward_us`` microseconds while a thread fills, then copies the masks into the buffer that the kernel reads (host
staging), applies them to float32 logits (the kernel ``numpy``), and accepts the documents' next tokens. Inner axes:
``mode``, what runs beside the pass (``harness.decode_step``); ``wait``, how the main thread waits
(``harness.overlap``); ``rows``; ``forward_us``; ``policy``, how rows are filled (``harness.batch.policies``, all but
``state_shared``, whose groups would have to be found anew at every step). Masks are copied and applied on the host
whatever the wait is: the condition ``device``, which says where, is ``cpu``.

The rows are requests spread over the documents, each of which goes on by one token a step. Every state was filled
before: these are later visits. In each round every mode takes the same step, and so do the parts by themselves, one
after the other; the column ``modelled_ns`` is what ``DecodeStep`` makes of those. They too come after a wait, the
shortest there is: a host that has waited finds its caches cold, and the parts take up to twice as long as when they are
repeated with nothing between them, as the stages of their own have it. Further columns, of the step itself:
``late_ns`` (when the main thread knew that the pass was over), ``joined_ns`` (how long it then waited for the masks),
``fill_ns``, ``copy_ns``, ``apply_ns``, ``accept_ns``.

Before a policy is timed, a block that it filled in each mode is held against rows that the library filled one by one
for fresh matchers, and what is applied against the definition; so is the block of every step that is timed. A
difference is a refusal, ``wrong``.

Facts. ``agreement``: for each measurement, replay over model, and what makes the difference (``harness.agreement``).
``alone_ns``: medians of the parts by themselves, by policy and rows, and how late the wait before them ended.
``largest_hidden_batch``: from those, for each policy, mode and forward pass (``decode_step.largest_hidden_batch``): as
medians hide there, half of the steps do. ``switch_interval_ns``: after how long the interpreter takes the lock from a
thread that does not give it away.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from harness import bitmask
from harness.agreement import agreement
from harness.backends.protocol import Grammar
from harness.batch.policies import POLICIES, Fill, Policy, Pools, Tools
from harness.batch.requests import Requests
from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.clocks import Clock
from harness.decode_step import MODES, DecodeStep, Mode, Parts, beside_ns, largest_hidden_batch
from harness.device import accelerator, host
from harness.kernels import KERNELS
from harness.kernels.protocol import prepare
from harness.measure import Plan, Samples, relative_interval
from harness.overlap import Forward, OnDevice, Sleeping, Spinning, StepTimes, Work, take_step
from harness.stages import Job
from harness.stages.apply import difference

NAME = "step"
CONDITIONS: Mapping[str, tuple[Any, ...]] = {
    "mode": MODES,
    "wait": ("sleep", "spin", "device"),
    "rows": (1, 16, 64),
    "forward_us": (5_000, 20_000),
    "policy": tuple(name for name in POLICIES if name != "state_shared"),
}
KERNEL = "numpy"


def run(job: Job) -> list[Measurement | Refusal]:
    job.longest()
    named = job.chosen("mode", MODES)
    modes = [mode for mode in MODES if mode in named]
    sizes, forwards_us = (job.condition(axis, CONDITIONS[axis]) for axis in ("rows", "forward_us"))
    forwards, done = _forwards(job.clock, job.chosen("wait", CONDITIONS["wait"]), forwards_us)
    if not forwards:
        return done
    known = _Known(job)
    with Pools() as pools, ThreadPoolExecutor(1) as executor:
        tools = Tools(job.backend, pools)
        policies = []
        for policy in (POLICIES[name] for name in job.chosen("policy", CONDITIONS["policy"])):
            reason = policy.refusal(tools)
            if reason:
                done.append(Refusal({"policy": policy.name}, "unsupported", reason))
            else:
                policies.append(policy)
        groups = [(rows, policy, s) for rows in sizes for policy in policies for s in policy.settings(rows, {})]
        end_ns = job.clock.now_ns() + job.plan.time_cap_s * 1e9
        timed: list[_Timed] = []
        for i, (rows, policy, setting) in enumerate(groups):
            group = _Group(job, known, tools, executor, rows, policy, setting)
            fault = group.check(modes)
            share_ns = max(end_ns - job.clock.now_ns(), 0) / (len(groups) - i)
            found = fault or group.time(forwards, modes, job.clock.now_ns() + share_ns)
            if isinstance(found, Refusal):
                done.append(found)
            else:
                done += [series.measurement(found.stop_reason) for series in found.series]
                timed.append(found)
    if job.plan.max_samples > 1:
        job.facts.update(_facts(timed, modes, forwards_us))
    return done


def _forwards(
    clock: Clock, waits: Sequence[str], forwards_us: Sequence[int]
) -> tuple[dict[tuple[str, int], Forward], list[Measurement | Refusal]]:
    """The passes to wait out, by wait and ``forward_us``; and refusals of those that cannot be had here."""
    device = accelerator() if "device" in waits else None
    forwards: dict[tuple[str, int], Forward] = {}
    refused: list[Measurement | Refusal] = []
    for wait in waits:
        if wait == "device" and device is None:
            reason = "a pass that is a kernel needs a CUDA device, and there is none here"
            refused.append(Refusal({"wait": wait}, "unsupported", reason))
            continue
        for us in forwards_us:
            if device is not None and wait == "device":
                forwards[wait, us] = OnDevice(us * 1e3, device)
            else:
                forwards[wait, us] = (Sleeping if wait == "sleep" else Spinning)(us * 1e3, clock)
    return forwards, refused


class _Nothing:
    """A pass that is over when it starts."""

    duration_ns = 0.0

    def start(self) -> None: ...

    def wait(self) -> None: ...


class _Known:
    """A compiled grammar, and the row at every position of its documents, filled by the library's own call for one
    fresh matcher of each document. Thereby every state has been filled once."""

    def __init__(self, job: Job) -> None:
        self.grammar: Grammar = job.compile()
        self._rows: dict[tuple[str, int], Row] = {}
        for document in job.documents:
            matcher = self.grammar.native_matcher()
            for position, token in enumerate(document.tokens):
                row = job.row()
                matcher.fill_call(row)()
                self._rows[document.name, position] = row
                matcher.accept(token)

    def rows(self, states: Sequence[tuple[str, int]]) -> Row:
        """int32, ``[len(states), words(V)]``."""
        return np.stack([self._rows[state] for state in states])


@dataclass
class _Lane:
    """Requests that take the same steps as those of every other lane of a group."""

    mode: Mode
    forward: Forward
    requests: Requests
    fill: Fill


@dataclass(frozen=True)
class _Series:
    """What a lane saw, step by step: acted out, and computed from the parts by themselves."""

    conditions: Mapping[str, Any]
    times: list[StepTimes] = field(default_factory=list)
    computed: list[DecodeStep] = field(default_factory=list)

    @property
    def exposed_ns(self) -> list[float]:
        pairs = zip(self.times, self.computed, strict=True)
        return [times.exposed_ns(step.forward_ns) for times, step in pairs]

    def measurement(self, stop_reason: str) -> Measurement:
        samples = Samples(self.conditions)
        for times, exposed, step in zip(self.times, self.exposed_ns, self.computed, strict=True):
            parts = {name: getattr(times, name) for name in StepTimes.__dataclass_fields__ if name != "wall_ns"}
            samples.add(round(exposed), modelled_ns=step.exposed_ns, **parts)
        return samples.measurement(stop_reason)


@dataclass(frozen=True)
class _Timed:
    """What a group saw. policy: with its setting. alone: the parts of each round by themselves."""

    policy: str
    rows: int
    alone: Sequence[StepTimes]
    series: Sequence[_Series]
    stop_reason: str


class _Group:
    """Everything of one size and policy: the block, the buffers, and the lanes that take turns over them."""

    def __init__(
        self,
        job: Job,
        known: _Known,
        tools: Tools,
        executor: Executor,
        rows: int,
        policy: Policy,
        setting: Mapping[str, int],
    ) -> None:
        self._job, self._known, self._tools, self._executor = job, known, tools, executor
        self._policy, self._setting = policy, setting
        self._rows = rows
        size = job.vocabulary.size
        self._block = bitmask.allocate(rows, size)
        self._staging = np.zeros_like(self._block)
        self._logits = np.tile(np.arange(size, dtype=np.float32), (rows, 1))
        self._copy = partial(np.copyto, self._staging, self._block)
        self._apply = prepare(KERNELS[KERNEL], self._logits, self._staging, None, size)
        self._conditions = {"rows": rows, "policy": policy.name, **setting, "device": host().label}

    def check(self, modes: Sequence[Mode]) -> Refusal | None:
        """Two steps in every mode, and what they filled and applied; the first that is wrong."""
        for mode in modes:
            lane = self._lane(mode, _Nothing())
            for _ in range(2):
                # A row that is left out is then wrong in every bit.
                np.invert(self._known.rows(lane.requests.states), out=self._block)
                _, fault = self._step(lane)
                if fault := fault or self._applied():
                    return Refusal({"mode": mode, **self._conditions}, "wrong", fault)
        return None

    def time(
        self, forwards: Mapping[tuple[str, int], Forward], modes: Sequence[Mode], end_ns: float
    ) -> _Timed | Refusal:
        """Rounds until the plan says so or time is up, one at least; a refusal as soon as a step fills a wrong row."""
        lanes = [
            (
                self._lane(mode, forward),
                _Series({"mode": mode, "wait": wait, "forward_us": us, **self._conditions}),
            )
            for (wait, us), forward in forwards.items()
            for mode in modes
        ]
        series = [one for _, one in lanes]
        shortest = min(forwards.values(), key=lambda forward: forward.duration_ns)
        by_themselves, alone = self._lane("serialised", shortest), []
        while True:
            parts, fault = self._step(by_themselves)
            if fault:
                return Refusal(self._conditions, "wrong", fault)
            alone.append(parts)
            for lane, one in lanes:
                times, fault = self._step(lane)
                if fault:
                    return Refusal(one.conditions, "wrong", fault)
                one.times.append(times)
                one.computed.append(DecodeStep(lane.mode, _parts(parts), lane.forward.duration_ns, self._rows))
            reason = _stop_reason(series, self._job.plan, self._job.clock.now_ns() >= end_ns)
            if reason:
                label = " ".join((self._policy.name, *(f"{axis}={value}" for axis, value in self._setting.items())))
                return _Timed(label, self._rows, alone, series, reason)

    def _lane(self, mode: Mode, forward: Forward) -> _Lane:
        requests = Requests(self._known.grammar, self._job.documents, self._rows, behind=mode == "barrier")
        return _Lane(mode, forward, requests, self._bind(requests))

    def _bind(self, requests: Requests) -> Fill:
        batch = requests.batch(self._job.cell.constraint_name)
        return self._policy.prepare(batch, self._block, self._tools, **self._setting)

    def _step(self, lane: _Lane) -> tuple[StepTimes, str]:
        """One step of a lane, and what is wrong with the rows that it filled; empty where nothing is."""
        work = Work(lane.fill, self._copy, self._apply, lane.requests.accept_call())
        times = take_step(lane.mode, work, lane.forward, self._executor, self._job.clock)
        fault = self._filled(lane)
        if lane.requests.advance():
            lane.fill = self._bind(lane.requests)
        return times, fault

    def _filled(self, lane: _Lane) -> str:
        """Which row of the block is not what the library fills by itself; empty where all are."""
        states = lane.requests.states
        wrong = np.flatnonzero((self._block != self._known.rows(states)).any(axis=1))
        if not wrong.size:
            return ""
        i = int(wrong[0])
        document, position = states[i]
        found = bitmask.diff(self._block[i], self._known.rows(states[i : i + 1])[0], self._job.vocabulary.size)
        kinds = (("too loose", found.too_loose), ("too strict", found.too_strict))
        detail = next((f"token {tokens[0]} is {what}" for what, tokens in kinds if tokens), "its padding bits differ")
        return f"row {i} of {self._rows} ({document} at {position}), filled in mode {lane.mode}: {detail}"

    def _applied(self) -> str:
        """Which logit is not what the definition makes of the block; empty where none is."""
        size = self._job.vocabulary.size
        fresh = np.tile(np.arange(size, dtype=np.float32), (self._rows, 1))
        np.copyto(self._logits, fresh)
        self._apply()
        block = self._block.copy()
        for row in block:
            bitmask.clear_padding(row, size)
        prepare(KERNELS["definition"], fresh, block, None, size)()
        fault = difference(self._logits, fresh)
        return fault and f"{KERNEL} differs from the definition: {fault}"


def _parts(times: StepTimes) -> Parts:
    return Parts(times.fill_ns, times.copy_ns, times.apply_ns, times.accept_ns)


def _stop_reason(series: Sequence[_Series], plan: Plan, time_is_up: bool) -> str:
    """Why no further round is taken; empty where one is. Lanes take turns, so the widest interval of all counts."""
    count = len(series[0].times)
    if count >= plan.min_samples and all(
        relative_interval(sorted(s.exposed_ns)) <= plan.relative_interval for s in series
    ):
        return "relative_interval"
    if count >= plan.max_samples:
        return "max_samples"
    return "time_cap" if time_is_up else ""


def _facts(timed: Sequence[_Timed], modes: Sequence[Mode], forwards_us: Sequence[int]) -> dict[str, Any]:
    alone: dict[str, dict[int, Parts]] = {}
    late_ns: dict[tuple[str, int], float] = {}
    for group in timed:
        alone.setdefault(group.policy, {})[group.rows] = _medians(group.alone)
        late_ns[group.policy, group.rows] = statistics.median(times.late_ns for times in group.alone)
    return {
        "switch_interval_ns": round(sys.getswitchinterval() * 1e9),
        "alone_ns": {
            policy: {str(rows): asdict(parts) | {"late_ns": late_ns[policy, rows]} for rows, parts in sizes.items()}
            for policy, sizes in alone.items()
        },
        "agreement": [
            {
                **series.conditions,
                **asdict(agreement(series.times, series.computed, late_ns[group.policy, group.rows])),
            }
            for group in timed
            for series in group.series
        ],
        "largest_hidden_batch": list(_hidden(alone, modes, forwards_us)),
    }


def _hidden(
    alone: Mapping[str, Mapping[int, Parts]], modes: Sequence[Mode], forwards_us: Sequence[int]
) -> Iterator[dict[str, Any]]:
    for policy, by_rows in alone.items():
        for mode in (m for m in modes if m != "serialised"):  # which hides nothing
            work_ns = {rows: beside_ns(mode, parts) for rows, parts in by_rows.items()}
            for us in forwards_us:
                found = largest_hidden_batch(work_ns, us * 1e3)
                labels = {"policy": policy, "mode": mode, "forward_us": us}
                yield {**labels, "rows": found.rows, "bound": found.bound, "said": str(found)}


def _medians(times: Sequence[StepTimes]) -> Parts:
    return Parts(
        *(statistics.median(getattr(t, f"{part}_ns") for t in times) for part in ("fill", "copy", "apply", "accept"))
    )
