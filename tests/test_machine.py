"""What is read of a machine, from made-up /proc and /sys trees, and when two machines are unlike."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import control_groups, machine

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_this_machine_is_described_as_psutil_and_the_kernel_see_it() -> None:
    told = machine.describe()
    assert told["cpu"]["cores_logical"] == psutil.cpu_count()
    assert told["memory"]["total_bytes"] == psutil.virtual_memory().total
    assert told["system"]["kernel"] == os.uname().release
    json.dumps(told, allow_nan=False)


def test_a_machine_that_shows_nothing_is_unknown_and_not_guessed(tmp_path: Path) -> None:
    told = machine.describe(tmp_path)
    for name in ("model", "family", "quota_cores", "smt", "governor", "boost", "frequency_max_mhz", "isolated"):
        assert told["cpu"][name] is None, name
    assert told["memory"]["limit_bytes"] is None
    assert told["system"]["hypervisor"] is None
    now = machine.snapshot(tmp_path)
    for name in ("frequency_mhz", "throttled_count", "throttled_ns", "thermal_throttles_core", "cpu_pressure_us"):
        assert now[name] is None, name


# Control groups.


def test_a_quota_of_version_2_is_in_cores_and_the_smallest_on_the_way_up_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/box",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/slice/cpu.max": "150000 100000",
            "sys/fs/cgroup/slice/memory.max": "max",
            "sys/fs/cgroup/slice/box/cpu.max": "400000 100000",
            "sys/fs/cgroup/slice/box/memory.max": "1073741824",
            "sys/fs/cgroup/slice/cpu.stat": "usage_usec 9\nnr_throttled 2\nthrottled_usec 30",
            "sys/fs/cgroup/slice/box/cpu.stat": "usage_usec 9\nnr_throttled 1\nthrottled_usec 5",
        },
    )
    assert control_groups.quota_cores(root) == 1.5
    assert control_groups.memory_limit_bytes(root) == 1 << 30
    now = machine.snapshot(root)
    assert (now["throttled_count"], now["throttled_ns"]) == (3, 35_000)


def test_a_quota_of_version_1_is_found_below_the_mount_of_its_controller(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/",
            # Inside a container the mount begins at the container's own group.
            "proc/self/mountinfo": "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
            "33 31 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1234",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648",
        },
    )
    assert control_groups.quota_cores(root) == 0.5
    assert control_groups.memory_limit_bytes(root) == 2 << 30
    assert machine.snapshot(root)["throttled_ns"] == 1234
    assert machine.describe(root)["system"]["container"][-1] == "control group of docker"


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/", "proc/self/mountinfo": V2_MOUNT, "sys/fs/cgroup/cgroup.procs": "1"},
        {
            "proc/self/cgroup": "0::/x",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/x/cpu.max": "max 100000",
            "sys/fs/cgroup/x/memory.max": "max",
        },
        {
            "proc/self/cgroup": "2:memory:/\n1:cpu:/",
            "proc/self/mountinfo": "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    ],
    ids=["root group", "version 2 max", "version 1 none"],
)
def test_no_limit_is_said_and_is_not_the_same_as_unknown(files: dict[str, str], tmp_path: Path) -> None:
    root = tree(tmp_path, files)
    assert control_groups.quota_cores(root) == "unlimited"
    assert control_groups.memory_limit_bytes(root) == "unlimited"


# Cores.


def test_cores_that_disagree_show_every_setting(tmp_path: Path) -> None:
    cores = "sys/devices/system/cpu"
    root = tree(
        tmp_path,
        {
            f"{cores}/cpu0/cpufreq/scaling_governor": "powersave",
            f"{cores}/cpu1/cpufreq/scaling_governor": "performance",
            f"{cores}/cpu0/cpufreq/cpuinfo_max_freq": "3700000",
            f"{cores}/cpu1/cpufreq/cpuinfo_max_freq": "3700000",
            f"{cores}/cpu0/cpufreq/scaling_cur_freq": "1200000",
            f"{cores}/cpu1/cpufreq/scaling_cur_freq": "3600000",
            f"{cores}/cpu0/thermal_throttle/core_throttle_count": "2",
            f"{cores}/cpu1/thermal_throttle/core_throttle_count": "5",
            f"{cores}/smt/active": "1",
            "proc/pressure/cpu": "some avg10=0.30 avg60=1.30 avg300=2.03 total=16722121\nfull avg10=0 total=7",
        },
    )
    cpu = machine.describe(root)["cpu"]
    assert (cpu["governor"], cpu["frequency_max_mhz"], cpu["smt"]) == ("performance+powersave", 3700.0, True)
    now = machine.snapshot(root)
    assert now["frequency_mhz"] == [1200.0, 3600.0]
    assert (now["thermal_throttles_core"], now["thermal_throttles_package"]) == (7, None)
    assert now["cpu_pressure_us"] == 16_722_121


@pytest.mark.parametrize(
    ("file", "text", "boost"),
    [
        ("intel_pstate/no_turbo", "1", False),
        ("intel_pstate/no_turbo", "0", True),
        ("cpufreq/boost", "1", True),
        ("cpufreq/boost", "0", False),
    ],
)
def test_boost_is_read_the_right_way_round(file: str, text: str, boost: bool, tmp_path: Path) -> None:
    assert machine.boost(tree(tmp_path, {f"sys/devices/system/cpu/{file}": text})) is boost


# GPUs.


def nvidia_smi(tmp_path: Path, answer: str, status: int = 0) -> str:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {status}\n")
    script.chmod(0o755)
    return str(script)


def test_gpus_are_what_nvidia_smi_says_and_what_it_does_not_say_is_unknown(tmp_path: Path) -> None:
    query = nvidia_smi(tmp_path, "NVIDIA A100, 40960, 550.54, 1410, 400.00, Enabled, [N/A]")
    (gpu,) = machine.gpus(query) or ()
    assert gpu == {
        "name": "NVIDIA A100",
        "memory_bytes": 40960 << 20,
        "driver": "550.54",
        "clock_max_mhz": 1410.0,
        "power_limit_w": 400.0,
        "persistence": "Enabled",
        "mig": None,
    }


def test_a_driver_that_does_not_answer_is_unknown_and_not_none(tmp_path: Path) -> None:
    assert machine.gpus(nvidia_smi(tmp_path, "NVIDIA-SMI has failed", status=9)) is None


# Unlike machines.

ONE: dict[str, Any] = {
    "cpu": {"model": "A", "cores_logical": 8, "affinity": [0, 1, 2, 3], "governor": "performance", "boost": True},
    "memory": {"total_bytes": 64 << 30, "limit_bytes": "unlimited"},
    "system": {"kernel": "6.1", "clock_source": "tsc"},
    "gpus": [{"name": "H200", "driver": "1"}],
    "python": "3.11.7",
}


def changed(*path: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(ONE)
    place = other
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return other


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("system", "kernel"), "6.2"),
        (("python",), "3.12.1"),
        (("memory", "total_bytes"), (64 << 30) - (1 << 28)),
        (("cpu", "affinity"), [4, 5, 6, 7]),
        (("gpus",), [{"name": "H200", "driver": "2"}]),
    ],
)
def test_what_leaves_absolute_times_comparable_makes_no_difference(path: tuple[str, ...], value: Any) -> None:
    assert machine.unlike(ONE, ONE) == []
    assert machine.unlike(ONE, changed(*path, value=value)) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("cpu", "model"), "B", "cpu model: A against B"),
        (("cpu", "governor"), None, "cpu governor: performance against unknown"),
        (("cpu", "boost"), False, "cpu boost: True against False"),
        (("cpu", "affinity"), [0], "cpu affinity: 4 cores against 1"),
        (("cpu", "quota_cores"), 1.5, "cpu quota_cores: unknown against 1.5"),
        (("memory", "total_bytes"), 32 << 30, f"memory total_bytes: {64 << 30} against {32 << 30}"),
        (("system", "clock_source"), "hpet", "system clock_source: tsc against hpet"),
        (("gpus",), [], "gpus: ['H200'] against []"),
        (("gpus",), None, "gpus: ['H200'] against unknown"),
    ],
)
def test_what_bends_absolute_times_is_named_with_both_values(path: tuple[str, ...], value: Any, said: str) -> None:
    other = changed(*path, value=value)
    assert machine.unlike(ONE, other) == [said]
    assert len(machine.unlike(other, ONE)) == 1
