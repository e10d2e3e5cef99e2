"""A decode step acted out: a thread fills masks while the main thread waits out a forward pass. Worker side.

``take_step`` does once, by the wall clock, what ``harness.decode_step`` computes from parts. The forward pass is a
wait of a given length, and how a thread waits decides whether another one can fill meanwhile, since Python code and the
calls of many libraries need the interpreter's lock (the GIL):

* ``sleep``: the waiting thread gives the lock away. What an engine's main thread does once the pass is launched: vLLM's
  waits on a future, and a wait for a CUDA event (torch lets go of the lock for it) is the same. A sleep ends late, by
  some 100 µs on Linux and more under load, so the last bit is spent asking the system for nothing, again and again,
  which lets go of the lock each time too.
* ``spin``: the waiting thread reads the clock in a loop and holds the lock, but for the interpreter's switches between
  threads (``sys.getswitchinterval``, 5 ms unless set). What an engine's main thread does while it launches kernels one
  by one, prepares inputs or detokenises; no engine does it for all of a pass. The worst case.
* ``device``: a real kernel of that length on a CUDA device, and a wait for an event after it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from harness.clocks import Clock
from harness.decode_step import Mode
from harness.device import Device, event_ns

POLLING_NS = 300_000
"""How long before the end of a pass its sleep is given up: more than a sleep is usually late."""

TRIAL_CYCLES = 10_000_000


_ask_for_nothing = partial(select.select, (), (), (), 0)


class Forward(Protocol):
    """Stands for a forward pass. duration_ns: how long one takes."""

    @property
    def duration_ns(self) -> float: ...

    def start(self) -> None:
        """Begin one, without waiting for it."""
        ...

    def wait(self) -> None:
        """Until the one that was begun is over."""
        ...


class Waiting:
    """A pass that is nothing but time. The end is set by the clock when it is started."""

    def __init__(self, duration_ns: float, clock: Clock) -> None:
        self.duration_ns = duration_ns
        self._now = clock.now_ns
        self._end_ns = 0.0

    def start(self) -> None:
        self._end_ns = self._now() + self.duration_ns


class Sleeping(Waiting):
    """Waits without the interpreter's lock. sleep: ``time.sleep``, or a test's; poll: likewise, what gives the lock
    away for a moment."""

    def __init__(
        self,
        duration_ns: float,
        clock: Clock,
        sleep: Callable[[float], object] = time.sleep,
        poll: Callable[[], object] = _ask_for_nothing,
    ) -> None:
        super().__init__(duration_ns, clock)
        self._sleep = sleep
        self._poll = poll

    def wait(self) -> None:
        left_ns = self._end_ns - self._now()
        if left_ns > POLLING_NS:
            self._sleep((left_ns - POLLING_NS) / 1e9)
        while self._now() < self._end_ns:
            self._poll()


class Spinning(Waiting):
    """Waits with the interpreter's lock."""

    def wait(self) -> None:
        while self._now() < self._end_ns:
            pass


class OnDevice:
    """A kernel that keeps a CUDA device busy for about ``duration_ns``, by torch. Its real length is measured by events
    when it is made, and is its ``duration_ns`` from then on."""

    def __init__(self, duration_ns: float, device: Device) -> None:
        import torch

        self._cuda: Any = torch.cuda
        trial_ns = event_ns(device, self._kernel(TRIAL_CYCLES))
        self._body = self._kernel(max(round(TRIAL_CYCLES * duration_ns / trial_ns), 1))
        self.duration_ns = event_ns(device, self._body)
        self._over = self._cuda.Event()

    def _kernel(self, cycles: int) -> Callable[[], object]:
        return lambda: self._cuda._sleep(cycles)

    def start(self) -> None:
        self._body()
        self._over.record()

    def wait(self) -> None:
        self._over.synchronize()


@dataclass(frozen=True)
class Work:
    """The grammar's work for one batch, each a callable bound beforehand, of the whole batch.

    accept: by the tokens that this step samples; under ``barrier`` by those of the step before.
    """

    fill: Callable[[], object]
    copy: Callable[[], object]
    apply: Callable[[], object]
    accept: Callable[[], object]


@dataclass(frozen=True)
class StepTimes:
    """What one step took, ns.

    wall_ns: from the start of the forward pass to the end of the last part. late_ns: how long after its end the main
    thread knew that the pass was over: what the wait itself adds, and the lock, where another thread held it.
    joined_ns: from then until the masks were there; under ``serialised`` that is the fill. fill_ns, accept_ns, copy_ns,
    apply_ns: each by itself, in the thread that did it.
    """

    wall_ns: int
    late_ns: float
    joined_ns: int
    fill_ns: int
    copy_ns: int
    apply_ns: int
    accept_ns: int

    def exposed_ns(self, forward_ns: float) -> float:
        """By how much the step is longer than its forward pass; a kernel's length varies, so that on a device this can
        be negative by as much."""
        return self.wall_ns - forward_ns


def take_step(mode: Mode, work: Work, forward: Forward, executor: Executor, clock: Clock) -> StepTimes:
    """One decode step. executor: whose thread works beside the forward pass (not used under ``serialised``); an
    exception there is raised here once the pass is over, and nothing is copied, applied or accepted then."""
    now = clock.now_ns
    accept_ns = 0

    def fill() -> int:
        before = now()
        work.fill()
        return now() - before

    def accept_and_fill() -> tuple[int, int]:
        before = now()
        work.accept()
        return now() - before, fill()

    begin = now()
    forward.start()
    if mode == "serialised":
        forward.wait()
        over = now()
        fill_ns = fill()
    elif mode == "overlapped":
        filling = executor.submit(fill)
        forward.wait()
        over = now()
        fill_ns = filling.result()
    else:
        both = executor.submit(accept_and_fill)
        forward.wait()
        over = now()
        accept_ns, fill_ns = both.result()
    joined = now()
    work.copy()
    copied = now()
    work.apply()
    applied = end = now()
    if mode != "barrier":
        work.accept()
        end = now()
    return StepTimes(
        wall_ns=end - begin,
        late_ns=over - begin - forward.duration_ns,
        joined_ns=joined - over,
        fill_ns=fill_ns,
        copy_ns=copied - joined,
        apply_ns=applied - copied,
        accept_ns=accept_ns if mode == "barrier" else end - applied,
    )
