"""Bounds: what must move, from the formulas; how fast it can, from a measurement whose every step is known here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness import bounds, clocks
from harness.bounds import LARGEST_BYTES, SMALLEST_BYTES, TRIVIAL_BYTES, Measured, Movement, stated_peak
from harness.clocks import FakeClock
from harness.device import Device


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a fake clock are nanoseconds: a look of the usual length would be a million of them."""
    monkeypatch.setattr(bounds, "TIME_NS", 10_000)


class Fixed:
    """A bandwidth that is what it is said to be, and remembers which sizes it was asked for."""

    def __init__(self, **per_s: float) -> None:
        self._per_s = per_s
        self.asked: list[tuple[str, int]] = []

    def of(self, movement: Movement, size_bytes: int) -> float:
        self.asked.append((movement, size_bytes))
        return self._per_s[movement]

    def facts(self) -> Mapping[str, Mapping[str, float]]:
        return {}


def test_one_row_of_llama_3_in_float32_reads_its_mask_and_stores_to_what_it_forbids() -> None:
    everything = bounds.apply_traffic(rows=1, words=4_008, forbidden=128_256, itemsize=4)
    assert (everything.read_bytes, everything.written_bytes) == (16_032, 513_024)
    assert everything.moved_bytes == 529_056
    half = bounds.apply_traffic(rows=1, words=4_008, forbidden=64_128, itemsize=2)
    assert (half.read_bytes, half.written_bytes) == (16_032, 128_256)


def test_a_copied_block_is_read_once_and_written_once() -> None:
    assert bounds.copy_traffic(1_000).moved_bytes == 2_000


def test_the_bound_of_apply_is_the_longer_of_its_reads_and_its_writes() -> None:
    traffic = bounds.Traffic(read_bytes=1_000, written_bytes=4_000)
    assert bounds.bound_ns(traffic, Fixed(read=1e9, write=2e9)) == pytest.approx(2_000)
    assert bounds.bound_ns(traffic, Fixed(read=1e8, write=2e9)) == pytest.approx(10_000)


def test_threads_share_what_must_move() -> None:
    bandwidth = Fixed(read=1e9, write=1e9)
    assert bounds.bound_ns(bounds.Traffic(0, 4_000), bandwidth, threads=4) == pytest.approx(1_000)
    assert bandwidth.asked == [("write", 1_000)]


def test_nothing_to_move_takes_no_time() -> None:
    assert bounds.bound_ns(bounds.Traffic(0, 0), Fixed()) == 0.0
    assert bounds.copy_bound_ns(0, Fixed()) == 0.0


def test_a_copy_is_bound_by_the_bandwidth_of_copying() -> None:
    assert bounds.copy_bound_ns(3_000, Fixed(copy=1e9)) == pytest.approx(3_000)


@pytest.mark.parametrize(
    ("size", "at"),
    [(1, SMALLEST_BYTES), (4_096, 4_096), (8_191, 4_096), (8_192, 8_192), (513_024, 262_144), (1 << 40, LARGEST_BYTES)],
)
def test_bandwidth_is_measured_at_a_size_no_larger_than_the_one_at_hand(size: int, at: int) -> None:
    assert bounds.size_class(size) == at


def test_bandwidth_is_the_best_repetition_less_what_a_call_costs() -> None:
    clock = FakeClock()
    calls: list[int] = []

    def body(_: Movement, size_bytes: int) -> Callable[[], object]:
        def move() -> None:
            calls.append(size_bytes)
            late = 700 if len(calls) % 2 else 0  # a disturbance now and then
            clock.advance((100 if size_bytes == TRIVIAL_BYTES else 100 + size_bytes) + late)

        return move

    measured = Measured(clock, body)
    assert measured.of("write", 5_000) == pytest.approx(1e9)  # one byte in a nanosecond
    count = len(calls)
    assert measured.of("write", 7_000) == pytest.approx(1e9)
    assert len(calls) == count, "the same class of sizes is measured once"
    assert measured.facts() == {"write": {"4096": 1_000_000_000}}


def test_a_smaller_block_is_moved_no_slower_than_a_larger_one_was() -> None:
    clock = FakeClock()
    lasts = {TRIVIAL_BYTES: 10, 4_096: 40_970, 8_192: 4_106}  # the smaller one measured at a bad moment
    measured = Measured(clock, lambda _, size: lambda: clock.advance(lasts[size]))
    assert measured.of("copy", 4_096) == pytest.approx(1e8)
    assert measured.of("copy", 8_192) == pytest.approx(2e9)
    assert measured.of("copy", 4_096) == pytest.approx(2e9)
    assert measured.facts() == {"copy": {"4096": 100_000_000, "8192": 2_000_000_000}}


def test_what_costs_no_more_than_a_call_is_taken_to_last_one_tick() -> None:
    clock = FakeClock(resolution_ns=8.0)
    measured = Measured(clock, lambda _, __: lambda: clock.advance(50))
    assert measured.of("read", 4_096) == pytest.approx(4_096 / 8 * 1e9)


def test_host_memory_can_be_read_written_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LARGEST_BYTES", 1 << 20)
    facts = bounds.host_facts(bounds.host_bandwidth(clocks.wall(readings=1_000)))
    beyond = facts["host_memory_bandwidth_bytes_per_s"]
    assert set(beyond) == {"read", "write", "copy"}
    # Between what no memory is as slow as, and what none is as fast as.
    assert all(1e7 < value < 1e13 for value in beyond.values())
    assert set(facts["host_bandwidth_bytes_per_s"]) == {"read", "write", "copy"}


def test_the_largest_cache_says_what_lies_beyond_it(tmp_path: Path) -> None:
    assert bounds.memory_bytes(tmp_path) == 256 << 20
    for index, size in enumerate(("32K", "512K", "32768K")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert bounds.memory_bytes(tmp_path) == 64 << 20


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA H200", 4.8e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H100 PCIe", 2.0e12),
        ("NVIDIA A100-SXM4-80GB", 2.039e12),
        ("NVIDIA A100-SXM4-40GB", 1.555e12),
        ("NVIDIA A100 80GB PCIe", 1.935e12),
        ("NVIDIA L4", 0.3e12),
        ("NVIDIA L40S", 0.864e12),
    ],
)
def test_a_device_is_found_by_the_name_its_driver_gives(name: str, memory: float) -> None:
    peak = stated_peak(Device("cuda", name, name))
    assert peak is not None
    assert peak.memory_bytes_per_s == memory
    assert peak.source


def test_what_is_not_in_the_table_has_no_stated_peak() -> None:
    assert stated_peak(Device("cuda", "NVIDIA Stand-in", "NVIDIA Stand-in")) is None
    assert stated_peak(Device("cpu", "cpu", "L4")) is None
