"""Devices: the host without torch, and what is asked of torch for a CUDA device, of a stand-in for torch."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness import device
from harness.clocks import FakeClock
from harness.device import Device, accelerator, clock_for, event_ns, host

CUDA = Device("cuda", "NVIDIA Stand-in", "NVIDIA Stand-in")


class Event:
    """An event that knows when, on the fake clock, it was recorded."""

    clock: FakeClock

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_ns = self.clock.now_ns()

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return (other.at_ns - self.at_ns) / 1e6


def stand_in(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, *, available: bool = True, wait_ns: int = 0) -> None:
    """A torch whose one CUDA device takes ``wait_ns`` to be waited for."""
    event = type("Event", (Event,), {"clock": clock})
    cuda: Any = SimpleNamespace(
        is_available=lambda: available,
        get_device_name=lambda: CUDA.label,
        synchronize=lambda: clock.advance(wait_ns),
        Event=event,
    )
    monkeypatch.setattr(device, "_torch", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device, "_has_driver", lambda: True)


def test_the_host_is_labelled_cpu_and_names_its_processor() -> None:
    found = host()
    assert (found.kind, found.label) == ("cpu", "cpu")
    assert found.model
    found.synchronise()


def test_asking_for_the_host_imports_no_torch() -> None:
    script = "import sys; from harness.device import host; host(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_torch_is_not_asked_where_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_has_driver", lambda: False)
    monkeypatch.setattr(device, "_torch", lambda: pytest.fail("torch was asked"))
    assert accelerator() is None


def test_there_is_no_accelerator_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_has_driver", lambda: True)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert accelerator() is None


def test_there_is_no_accelerator_where_torch_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, FakeClock(), available=False)
    assert accelerator() is None


def test_an_accelerator_is_labelled_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, FakeClock())
    assert accelerator() == CUDA


def test_a_device_is_timed_by_a_clock_that_waits_for_it_and_says_what_waiting_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock(resolution_ns=2.0, per_reading_ns=3)
    stand_in(monkeypatch, clock, wait_ns=100)
    timed = clock_for(CUDA, clock)
    assert (timed.resolution_ns, timed.overhead_ns) == (2.0, 103.0)
    assert timed.name == "fake, synchronised"
    before = timed.now_ns()
    assert timed.now_ns() - before == 103


def test_the_host_is_timed_by_the_clock_itself() -> None:
    clock = FakeClock()
    assert clock_for(host(), clock) is clock


def test_events_say_how_long_the_device_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    stand_in(monkeypatch, clock)
    assert event_ns(CUDA, lambda: clock.advance(5_000)) == pytest.approx(5_000)


def test_the_host_has_no_events() -> None:
    with pytest.raises(ValueError, match="no events"):
        event_ns(host(), lambda: None)
