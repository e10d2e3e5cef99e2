"""This process's control groups: which they are, and the limits that they set. Worker side: standard library only.

Everything is read from ``/proc`` and ``/sys`` below ``root``; what cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

ROOT = Path("/")
UNLIMITED: Literal["unlimited"] = "unlimited"

# Version 1 says "no limit" by the largest multiple of a page that fits in 63 bits; no machine comes near half of it.
_NO_MEMORY_LIMIT_BYTES = 1 << 62


def quota_cores(root: Path = ROOT) -> float | Literal["unlimited"] | None:
    """The smallest CPU quota on the way from this process's control group to the root, in cores."""
    found: list[float] = []
    groups = list(control_groups(root, "cpu"))
    for folder, version in groups:
        if version == 2:
            quota, _, period = (file_text(folder / "cpu.max") or "").partition(" ")
        else:
            quota, period = file_text(folder / "cpu.cfs_quota_us") or "", file_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    if found:
        return min(found)
    return UNLIMITED if groups else None  # a root group has no limit, and no file to say so


def memory_limit_bytes(root: Path = ROOT) -> int | Literal["unlimited"] | None:
    """The smallest memory limit on the way from this process's control group to the root."""
    found: list[int] = []
    groups = list(control_groups(root, "memory"))
    for folder, version in groups:
        limit = file_text(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")) or ""
        if limit.isdigit() and int(limit) < _NO_MEMORY_LIMIT_BYTES:
            found.append(int(limit))
    if found:
        return min(found)
    return UNLIMITED if groups else None  # a root group has no limit, and no file to say so


def control_groups(root: Path, controller: str) -> Iterator[tuple[Path, Literal[1, 2]]]:
    """This process's control group for ``controller`` and those above it, each with its cgroup version.

    /proc/self/cgroup says where the process is, /proc/self/mountinfo where that tree is mounted; inside a container
    the mount may begin below the tree's root. See cgroups(7), proc_pid_mountinfo(5).
    """
    places: dict[str, str] = {}
    for line in (file_text(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            places[name] = path
    for line in (file_text(root / "proc/self/mountinfo") or "").splitlines():
        mount, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        within, at = mount.split(" ")[3:5]
        if kind == "cgroup2" and "" in places:
            path, version = places[""], 2
        elif kind == "cgroup" and controller in options.split(",") and controller in places:
            path, version = places[controller], 1
        else:
            continue
        top = root / at.lstrip("/")
        below = path.removeprefix(within) if within != "/" else path
        folder = top / below.lstrip("/")
        if not folder.is_dir():  # the process's group is outside what is mounted here
            folder = top
        while True:
            yield folder, 2 if version == 2 else 1
            if folder == top or top not in folder.parents:
                break
            folder = folder.parent


def file_text(file: Path) -> str | None:
    """A small file's text without its last newline; None where it cannot be read or is empty."""
    try:
        return file.read_text(errors="replace").strip() or None
    except OSError:
        return None
