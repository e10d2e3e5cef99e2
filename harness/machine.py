"""What the numbers were measured on, and how it stood at the time. Manager side: psutil and the standard library.

Everything is read, nothing is set and nothing guessed: what cannot be read is None. Under a hypervisor or in a
container these are the facts as seen from inside.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.control_groups import ROOT, control_groups, file_text, memory_limit_bytes, quota_cores
from harness.results import now


def describe(root: Path = ROOT) -> dict[str, Any]:
    """The machine, as run.json keeps it.

    ``cpu``: model, family, model_number, stepping, architecture, cores_physical, cores_logical, affinity (ids this
    process may run on), quota_cores (the smallest CPU quota of its control groups, in cores, or ``"unlimited"``),
    smt, governor, frequency_driver, boost, frequency_max_mhz, isolated (ids kept free of other work). ``memory``:
    total_bytes, limit_bytes (of the control groups, or ``"unlimited"``), swap_bytes, transparent_hugepages.
    ``system``: os, kernel, distribution, libc, clock_source, hypervisor (whether there is one), container (hints of
    one, an empty list where none was found). ``gpus``: a list; empty where there is no NVIDIA driver, None where there
    is one that does not answer. ``python``, ``valgrind``: versions. root: where ``/proc`` and ``/sys`` are looked for.
    """
    info = _cpuinfo(root)
    return {
        "cpu": {
            "model": info.get("model name") or (platform.processor() or None if root == ROOT else None),
            "family": _integer(info.get("cpu family")),
            "model_number": _integer(info.get("model")),
            "stepping": _integer(info.get("stepping")),
            "architecture": platform.machine() or None,
            "cores_physical": psutil.cpu_count(logical=False),
            "cores_logical": psutil.cpu_count(logical=True),
            "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "quota_cores": quota_cores(root),
            "smt": _flag(root, "sys/devices/system/cpu/smt/active"),
            "governor": _of_all_cores(root, "scaling_governor"),
            "frequency_driver": _of_all_cores(root, "scaling_driver"),
            "boost": boost(root),
            "frequency_max_mhz": _megahertz(_of_all_cores(root, "cpuinfo_max_freq")),
            "isolated": _read(root, "sys/devices/system/cpu/isolated"),
        },
        "memory": {
            "total_bytes": psutil.virtual_memory().total,
            "limit_bytes": memory_limit_bytes(root),
            "swap_bytes": psutil.swap_memory().total,
            "transparent_hugepages": _chosen(_read(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        },
        "system": {
            "os": platform.system() or None,
            "kernel": platform.release() or None,
            "distribution": _distribution(root),
            "libc": " ".join(platform.libc_ver()).strip() or None,
            "clock_source": _read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "hypervisor": "hypervisor" in info["flags"].split() if "flags" in info else None,
            "container": _container_hints(root),
        },
        "gpus": gpus(),
        "python": platform.python_version(),
        "valgrind": _version_of("valgrind"),
    }


def snapshot(root: Path = ROOT) -> dict[str, Any]:
    """How the machine stands now; taken before and after a run, to see what happened in between.

    at: UTC. load_1min, load_5min, load_15min: processes running or waiting. frequency_mhz: of each core, now.
    available_bytes: memory. steal_s: time that the hypervisor gave to others, summed over cores, since boot.
    throttled_count (periods) and throttled_ns: of this process's control groups, by their CPU quota, summed over their
    levels. thermal_throttles_core, thermal_throttles_package: events since boot, summed. cpu_pressure_us: time in which
    something waited for a CPU, since boot.
    """
    load = os.getloadavg() if hasattr(os, "getloadavg") else (None, None, None)
    return {
        "at": now(),
        **dict(zip(("load_1min", "load_5min", "load_15min"), load, strict=True)),
        "frequency_mhz": _frequencies_mhz(root),
        "available_bytes": psutil.virtual_memory().available,
        "steal_s": getattr(psutil.cpu_times(), "steal", None),
        **_throttling(root),
        "thermal_throttles_core": _thermal(root, "core_throttle_count"),
        "thermal_throttles_package": _thermal(root, "package_throttle_count"),
        "cpu_pressure_us": _pressure_us(root),
    }


# What must be alike for absolute times to be comparable. The kernel's and Python's versions are not in it: the one
# changes with every security update, the other belongs to an environment.
_ALIKE = (
    ("cpu", "model"), ("cpu", "family"), ("cpu", "model_number"), ("cpu", "stepping"), ("cpu", "architecture"),
    ("cpu", "cores_physical"), ("cpu", "cores_logical"), ("cpu", "quota_cores"), ("cpu", "smt"), ("cpu", "governor"),
    ("cpu", "boost"), ("cpu", "frequency_max_mhz"), ("memory", "limit_bytes"), ("system", "os"),
    ("system", "clock_source"), ("system", "hypervisor"),
)  # fmt: skip

# Firmware and the kernel keep a little of the memory for themselves, not always the same.
_MEMORY_TOLERANCE = 0.02


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What makes two machines (as ``describe`` gives them) unlike for absolute times, a phrase each; empty where they
    are alike. What is known of one and unknown of the other counts as unlike; what is unknown of both does not."""
    found = []
    for part, name in _ALIKE:
        a, b = one.get(part, {}).get(name), other.get(part, {}).get(name)
        if a != b:
            found.append(f"{part} {name}: {_said(a)} against {_said(b)}")
    cores = [len(m.get("cpu", {}).get("affinity") or ()) for m in (one, other)]
    if cores[0] != cores[1]:
        found.append(f"cpu affinity: {cores[0]} cores against {cores[1]}")
    a, b = (m.get("memory", {}).get("total_bytes") for m in (one, other))
    if (a is None) != (b is None) or (a and b and abs(a - b) > _MEMORY_TOLERANCE * max(a, b)):
        found.append(f"memory total_bytes: {_said(a)} against {_said(b)}")
    names = [None if m.get("gpus") is None else sorted(g["name"] for g in m["gpus"]) for m in (one, other)]
    if names[0] != names[1]:
        found.append(f"gpus: {_said(names[0])} against {_said(names[1])}")
    return found


def _said(value: object) -> str:
    return "unknown" if value is None else str(value)


# The rest.


def _throttling(root: Path) -> dict[str, int | None]:
    count = total_ns = None
    for folder, _ in control_groups(root, "cpu"):
        stat = dict(
            line.split(maxsplit=1) for line in (file_text(folder / "cpu.stat") or "").splitlines() if " " in line
        )
        if "nr_throttled" in stat:
            count = (count or 0) + int(stat["nr_throttled"])
            # Version 2 counts microseconds, version 1 nanoseconds.
            ns = int(stat["throttled_usec"]) * 1000 if "throttled_usec" in stat else int(stat.get("throttled_time", 0))
            total_ns = (total_ns or 0) + ns
    return {"throttled_count": count, "throttled_ns": total_ns}


def boost(root: Path = ROOT) -> bool | None:
    """Whether cores may run above their nominal frequency."""
    no_turbo = _flag(root, "sys/devices/system/cpu/intel_pstate/no_turbo")
    if no_turbo is not None:
        return not no_turbo
    return _flag(root, "sys/devices/system/cpu/cpufreq/boost")


def gpus(query: str = "nvidia-smi") -> list[dict[str, Any]] | None:
    """NVIDIA GPUs by ``nvidia-smi``: name, memory_bytes, driver, and the clocks it may reach. See ``describe``."""
    fields = (
        "name",
        "memory.total",
        "driver_version",
        "clocks.max.sm",
        "power.limit",
        "persistence_mode",
        "mig.mode.current",
    )
    if shutil.which(query) is None:
        return None if Path("/proc/driver/nvidia/version").exists() else []
    answer = _output_of(query, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    if answer is None:
        return None
    found = []
    for line in answer.splitlines():
        values = [v.strip() for v in line.split(",")]
        if len(values) != len(fields):
            return None
        said = {f: None if v.strip("[]").upper() in ("N/A", "NOT SUPPORTED", "UNKNOWN ERROR", "") else v
                for f, v in zip(fields, values, strict=True)}  # fmt: skip
        memory_mib, clock, power = (_number(said[f]) for f in ("memory.total", "clocks.max.sm", "power.limit"))
        found.append(
            {
                "name": said["name"],
                "memory_bytes": None if memory_mib is None else int(memory_mib * 2**20),
                "driver": said["driver_version"],
                "clock_max_mhz": clock,
                "power_limit_w": power,
                "persistence": said["persistence_mode"],
                "mig": said["mig.mode.current"],
            }
        )
    return found


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo."""
    first = (_read(root, "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _of_all_cores(root: Path, name: str) -> str | None:
    """A frequency setting of the cores: one value where all agree, else all that occur, joined by ``+``."""
    values = {
        text
        for file in (root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/cpufreq/{name}")
        if (text := file_text(file))
    }
    return "+".join(sorted(values)) or None


def _frequencies_mhz(root: Path) -> list[float] | None:
    folder = root / "sys/devices/system/cpu"
    files = sorted(folder.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=lambda f: int(f.parts[-3][3:]))
    now_khz = [_number(file_text(f)) for f in files]
    if now_khz:
        return None if None in now_khz else [round(k / 1000, 1) for k in now_khz if k is not None]
    lines = (_read(root, "proc/cpuinfo") or "").splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")] or None


def _thermal(root: Path, name: str) -> int | None:
    files = (root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/thermal_throttle/{name}")
    counts = [count for f in files if (count := _integer(file_text(f))) is not None]
    return sum(counts) if counts else None


def _pressure_us(root: Path) -> int | None:
    some = (_read(root, "proc/pressure/cpu") or "").partition("\n")[0]
    return _integer(some.rpartition("total=")[2]) if "total=" in some else None


def _container_hints(root: Path) -> list[str]:
    hints = [f"/{f}" for f in (".dockerenv", "run/.containerenv") if (root / f).exists()]
    hints += [f"{name}={os.environ[name]}" for name in ("container",) if os.environ.get(name)]
    hints += ["KUBERNETES_SERVICE_HOST is set"] if os.environ.get("KUBERNETES_SERVICE_HOST") else []
    groups = _read(root, "proc/self/cgroup") or ""
    return hints + [
        f"control group of {n}" for n in ("docker", "kubepods", "containerd", "lxc", "libpod") if n in groups
    ]


def _distribution(root: Path) -> str | None:
    for line in (_read(root, "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _version_of(program: str) -> str | None:
    answer = _output_of(program, "--version") if shutil.which(program) else None
    return answer.strip() if answer else None


def _output_of(*command: str) -> str | None:
    """A short command's output; None where it fails or takes longer than 20 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _read(root: Path, name: str) -> str | None:
    return file_text(root / name)


def _flag(root: Path, name: str) -> bool | None:
    return {"0": False, "1": True}.get(_read(root, name) or "")


def _chosen(text: str | None) -> str | None:
    """The bracketed word of a kernel's list of choices, ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0] or None if text else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _megahertz(khz: str | None) -> float | None:
    number = _number(khz)
    return None if number is None else number / 1000
