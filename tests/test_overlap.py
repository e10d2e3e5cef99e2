"""A decode step acted out: on simulated time it is the model's step exactly; on real threads, side by side."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from harness import clocks
from harness.agreement import TOLERANCE, agreement
from harness.clocks import FakeClock
from harness.decode_step import MODES, DecodeStep, Mode, Parts
from harness.device import Device
from harness.overlap import POLLING_NS, Forward, OnDevice, Sleeping, Spinning, StepTimes, Work, take_step

MS = 1_000_000
PARTS = Parts(fill_ns=7 * MS, copy_ns=3 * MS, apply_ns=2 * MS, accept_ns=1 * MS)


class Simulated(Executor):
    """Another thread on a fake clock: what is submitted takes its time from now on while the clock stands still, and
    who asks for the result is there no earlier than it."""

    def __init__(self, clock: FakeClock, handover_ns: int = 0) -> None:
        self._clock = clock
        self._handover_ns = handover_ns

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        begin = self._clock.now_ns()
        clock, end, result = self._clock, 0, fn(*args, **kwargs)
        end = clock.now_ns() + self._handover_ns
        clock.advance(begin - clock.now_ns())

        class Done(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                clock.advance(max(end - clock.now_ns(), 0))
                return result

        return Done()


def sleeping(clock: FakeClock, duration_ns: int, late_ns: int = 0) -> Sleeping:
    """A pass whose sleeps move the fake clock; late_ns: by how much more than asked for."""

    def sleep(seconds: float) -> None:
        clock.advance(round(seconds * 1e9) + late_ns)

    return Sleeping(duration_ns, clock, sleep, lambda: clock.advance(1_000))


def work(clock: FakeClock, parts: Parts = PARTS, log: list[str] | None = None) -> Work:
    def part(name: str, duration_ns: float) -> Callable[[], object]:
        def body() -> None:
            clock.advance(round(duration_ns))
            if log is not None:
                log.append(name)

        return body

    return Work(*(part(n, getattr(parts, f"{n}_ns")) for n in ("fill", "copy", "apply", "accept")))


def simulate(mode: Mode, forward_ns: int, *, handover_ns: int = 0, late_ns: int = 0, parts: Parts = PARTS) -> StepTimes:
    clock = FakeClock()
    forward = sleeping(clock, forward_ns, late_ns)
    return take_step(mode, work(clock, parts), forward, Simulated(clock, handover_ns), clock)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("forward_ms", [1, 5, 7, 8, 20])
def test_with_nothing_in_the_way_a_step_acted_out_is_the_step_computed(mode: Mode, forward_ms: int) -> None:
    times = simulate(mode, forward_ms * MS)
    assert times.exposed_ns(forward_ms * MS) == DecodeStep(mode, PARTS, forward_ms * MS, 1).exposed_ns
    assert (times.fill_ns, times.copy_ns, times.apply_ns, times.accept_ns) == (7 * MS, 3 * MS, 2 * MS, 1 * MS)
    assert times.late_ns == 0


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        ("overlapped", ["fill", "copy", "apply", "accept"]),
        ("serialised", ["fill", "copy", "apply", "accept"]),
        ("barrier", ["accept", "fill", "copy", "apply"]),
    ],
)
def test_the_order_of_the_parts(mode: Mode, order: list[str]) -> None:
    clock, log = FakeClock(), []  # type: ignore[var-annotated]
    take_step(mode, work(clock, log=log), sleeping(clock, MS), Simulated(clock), clock)
    assert log == order


def test_times_of_a_step_add_up_to_what_is_exposed() -> None:
    for mode in MODES:
        times = simulate(mode, 5 * MS, handover_ns=MS // 2, late_ns=2 * MS)
        after = 0 if mode == "barrier" else times.accept_ns
        total = times.late_ns + times.joined_ns + times.copy_ns + times.apply_ns + after
        assert times.exposed_ns(5 * MS) == total


def test_a_sleep_that_ends_late_shows_as_a_late_end_of_the_pass() -> None:
    late_ns = 4 * MS
    assert simulate("overlapped", 20 * MS, late_ns=late_ns).late_ns == late_ns - POLLING_NS
    assert simulate("overlapped", 20 * MS, late_ns=POLLING_NS // 2).late_ns == 0


# --- agreement ------------------------------------------------------------------------------------------------------


def agree(mode: Mode, forward_ns: int, runs: Sequence[StepTimes]) -> Any:
    return agreement(runs, [DecodeStep(mode, PARTS, forward_ns, 1)] * len(runs), usual_late_ns=2_500.0)


def test_a_replay_as_computed_needs_no_reason() -> None:
    for mode in MODES:
        found = agree(mode, 5 * MS, [simulate(mode, 5 * MS)])
        assert (found.ratio, found.because) == (1.0, "")
        assert set(found.differences_ns.values()) == {0}


def test_a_difference_within_the_tolerance_needs_none_either() -> None:
    exposed_ns = DecodeStep("overlapped", PARTS, 5 * MS, 1).exposed_ns
    inside, outside = (
        agree("overlapped", 5 * MS, [simulate("overlapped", 5 * MS, handover_ns=round(share * exposed_ns))])
        for share in (TOLERANCE * 0.99, TOLERANCE * 1.01)
    )
    assert inside.because == ""
    assert outside.because


def test_the_part_that_makes_the_difference_is_named_with_its_size() -> None:
    late = agree("serialised", 20 * MS, [simulate("serialised", 20 * MS, late_ns=9 * MS)])
    assert late.because == (
        "the main thread knew late that the forward pass was over: +8700.0 µs, with nothing beside it +2.5 µs"
    )
    stretched = Parts(fill_ns=14 * MS, copy_ns=3 * MS, apply_ns=2 * MS, accept_ns=1 * MS)
    fill = agree("overlapped", 5 * MS, [simulate("overlapped", 5 * MS, parts=stretched)])
    assert fill.because == "the wait for the masks: +7000.0 µs; fill took 2.00 times as long as by itself"
    shrunk = Parts(fill_ns=7 * MS, copy_ns=3 * MS, apply_ns=MS / 2, accept_ns=1 * MS)
    apply = agree("barrier", 20 * MS, [simulate("barrier", 20 * MS, parts=shrunk)])
    assert apply.because == "apply: -1500.0 µs; apply took 0.25 times as long as by itself"
    assert apply.ratio == 3.5 / 5


def test_where_steps_vary_more_than_any_part_explains_that_is_the_reason() -> None:
    """Late in one step, slow to copy in another: either is rare, and together they move the median."""
    slow = Parts(fill_ns=7 * MS, copy_ns=9 * MS, apply_ns=2 * MS, accept_ns=1 * MS)
    runs = [simulate("serialised", 20 * MS), simulate("serialised", 20 * MS, late_ns=6 * MS + POLLING_NS)]
    found = agree("serialised", 20 * MS, [*runs, simulate("serialised", 20 * MS, parts=slow)])
    assert found.ratio == 19 / 13
    assert set(found.differences_ns.values()) == {0}
    assert found.because == "no one part makes half of it; the middle half of the steps added 16000.0 to 19000.0 µs"


def test_medians_are_taken_over_steps() -> None:
    runs = [simulate("barrier", 20 * MS), simulate("barrier", 20 * MS), simulate("barrier", 20 * MS, late_ns=99 * MS)]
    assert agree("barrier", 20 * MS, runs).because == ""


# --- real threads ---------------------------------------------------------------------------------------------------


class Meeting:
    """A pass that is over once the other thread is filling."""

    duration_ns = 1.0

    def __init__(self) -> None:
        self.begun = threading.Event()

    def start(self) -> None: ...

    def wait(self) -> None:
        assert self.begun.wait(10), "nobody fills while the pass is waited for"


def real(fill: Callable[[], object], accept: Callable[[], object] = lambda: None) -> Work:
    return Work(fill, lambda: None, lambda: None, accept)


@pytest.mark.parametrize("mode", ["overlapped", "barrier"])
def test_masks_are_filled_in_another_thread_while_the_pass_is_waited_for(mode: Mode) -> None:
    forward, threads = Meeting(), []

    def fill() -> None:
        threads.append(threading.get_ident())
        forward.begun.set()

    with ThreadPoolExecutor(1) as executor:
        take_step(mode, real(fill), forward, executor, clocks.wall(100))
    assert threads != [threading.get_ident()]


def test_a_fill_longer_than_the_pass_sticks_out_by_no_less_than_the_rest() -> None:
    clock = clocks.wall(100)
    with ThreadPoolExecutor(1) as executor:
        times = take_step("overlapped", real(lambda: time.sleep(0.02)), Sleeping(5 * MS, clock), executor, clock)
    assert times.fill_ns >= 20 * MS
    assert times.exposed_ns(5 * MS) >= 15 * MS


@pytest.mark.parametrize("mode", MODES)
def test_what_goes_wrong_in_a_fill_reaches_the_caller_and_nothing_is_done_after_it(mode: Mode) -> None:
    class BrokenError(Exception):
        pass

    def fill() -> None:
        raise BrokenError("the library broke an invariant")

    done: list[str] = []
    after = Work(fill, lambda: done.append("copy"), lambda: done.append("apply"), lambda: done.append("accept"))
    clock = clocks.wall(100)
    with ThreadPoolExecutor(1) as executor, pytest.raises(BrokenError, match="broke an invariant"):
        take_step(mode, after, Sleeping(MS, clock), executor, clock)
    assert done == (["accept"] if mode == "barrier" else [])


@pytest.mark.parametrize("kind", [Sleeping, Spinning])
def test_a_wait_is_never_over_too_early(kind: Callable[..., Forward]) -> None:
    clock = clocks.wall(100)
    forward = kind(2 * MS, clock)
    for _ in range(3):
        before = clock.now_ns()
        forward.start()
        forward.wait()
        assert clock.now_ns() - before >= 2 * MS


class UntilMoved(FakeClock):
    """A clock that stands still until another thread sets ``moved``, and gives up after a million readings."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = threading.Event()
        self.readings = 0

    def now_ns(self) -> int:
        self.readings += 1
        if self.readings > 1_000_000:
            raise TimeoutError("no other thread got on")
        return MS if self.moved.is_set() else 0


def test_a_sleeping_wait_lets_go_of_the_lock_and_a_spinning_one_does_not() -> None:
    """The interpreter is kept from switching threads by itself: another one gets on where the lock is given away."""

    def wait(kind: Callable[..., Forward]) -> None:
        clock, go = UntilMoved(), threading.Event()

        def get_on() -> None:
            go.wait()
            clock.moved.set()

        other = threading.Thread(target=get_on)
        forward = kind(MS, clock)
        forward.start()
        other.start()
        usual = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            go.set()
            forward.wait()
        finally:
            sys.setswitchinterval(usual)
            other.join()

    wait(Sleeping)
    with pytest.raises(TimeoutError, match="no other thread got on"):
        wait(Spinning)


def test_a_kernel_is_made_as_long_as_asked_for_from_a_trial_of_its_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    queued: list[int] = []

    class Event:
        def record(self) -> None:
            queued.append(-1)

        def synchronize(self) -> None:
            queued.append(-2)

    def event_ns(device: Device, body: Callable[[], object]) -> float:
        body()
        return queued[-1] * 0.5  # a cycle is half a nanosecond

    monkeypatch.setattr(torch.cuda, "_sleep", queued.append)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr("harness.overlap.event_ns", event_ns)
    forward = OnDevice(2 * MS, Device("cuda", "a device", "a device"))
    assert forward.duration_ns == 2 * MS
    queued.clear()
    forward.start()
    forward.wait()
    assert queued == [4 * MS, -1, -2]
