"""A worker by hand: what it answers, what it says about its interpreter, and when it ends."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from harness.runner import protocol, worker
from tests.runner.conftest import ROOT, MakeCell


def by_hand(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "harness.runner.worker", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, **options)


def test_it_can_be_run_by_hand_from_a_file_and_answers_on_stdout(make_cell: MakeCell, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(protocol.request(make_cell("Garbage", stages=("compile", "fill")), timed=True))
    with file.open("rb") as request:
        done = by_hand(stdin=request)
    assert done.returncode == 0
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events == ["ready", "stage", "record", "stage", "record", "done"]
    assert b"raw bytes from C" in done.stderr  # what libraries print is not among the answers


def test_it_ends_when_its_request_never_comes() -> None:
    done = by_hand(input=b"")
    assert (done.returncode, done.stdout) == (0, b"")


def test_it_ends_when_its_manager_died_before_it_could_ask_to_be_told(make_cell: MakeCell) -> None:
    # The request is whole, and the other end of the pipe is closed by the time it is read.
    done = by_hand(input=protocol.request(make_cell("Hang"), timed=True), start_new_session=True)
    assert done.returncode == -signal.SIGKILL
    assert b"record" not in done.stdout


def test_it_describes_its_interpreter_in_one_line() -> None:
    done = by_hand(
        "--describe", "naive", "tests.fake_backends:Good", "nobody", env=os.environ | {"OMP_NUM_THREADS": "3"}
    )
    (line,) = done.stdout.splitlines()
    told = json.loads(line)["environment"]
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["executable"] == sys.executable
    assert told["backends"]["tests.fake_backends:Good"] == {"version": "1.0", "reason": ""}
    assert told["backends"]["nobody"]["version"] is None
    assert "unknown backend 'nobody'" in told["backends"]["nobody"]["reason"]
    assert told["packages"]["numpy"]["version"] == told["numpy"]
    assert told["variables"]["OMP_NUM_THREADS"] == "3"
    assert "HOME" not in told["variables"]


# The fingerprint of a package.


def install(folder: Path, files: dict[str, bytes], *, notes: dict[str, bytes] | None = None) -> PathDistribution:
    """A package as an installer leaves it: files, then a RECORD with their hashes."""
    import base64

    info = folder / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    lines = []
    everything = files | {"thing-1.0.dist-info/METADATA": b"Name: thing\nVersion: 1.0\n"}
    for name, content in (everything | {f"thing-1.0.dist-info/{k}": v for k, v in (notes or {}).items()}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    (info / "RECORD").write_text("\n".join([*lines, "thing-1.0.dist-info/RECORD,,"]) + "\n")
    return PathDistribution(info)


FILES = {"thing/__init__.py": b"x = 1\n", "thing/native.so": b"\x7fELF machine code"}


def test_equal_wheels_have_equal_fingerprints_whoever_installed_them(tmp_path: Path) -> None:
    one = worker._package(install(tmp_path / "one", FILES, notes={"INSTALLER": b"pip\n"}))
    scripts = {"../../../bin/thing": b"#!/one/bin/python"}
    other = worker._package(install(tmp_path / "a/b/c/other", FILES | scripts, notes={"INSTALLER": b"uv\n"}))
    assert one == other
    assert set(one) == {"version", "record_sha256"}


def test_another_file_is_another_fingerprint_at_the_same_version(tmp_path: Path) -> None:
    one = worker._package(install(tmp_path / "one", FILES))
    other = worker._package(install(tmp_path / "other", FILES | {"thing/native.so": b"\x7fELF patched code"}))
    assert one["version"] == other["version"]
    assert one["record_sha256"] != other["record_sha256"]


@pytest.mark.parametrize("content", [b"\x7fELF patched code", b"shorter", None])
def test_a_file_changed_after_it_was_installed_is_named(content: bytes | None, tmp_path: Path) -> None:
    package = install(tmp_path, FILES)
    file = tmp_path / "thing" / "native.so"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
        later_ns = (tmp_path / "thing-1.0.dist-info" / "RECORD").stat().st_mtime_ns + 1_000_000_000
        os.utime(file, ns=(later_ns, later_ns))
    assert worker._package(package)["changed"] == ["thing/native.so"]


def test_a_file_touched_and_not_changed_is_not_named(tmp_path: Path) -> None:
    package = install(tmp_path, FILES)
    later_ns = (tmp_path / "thing-1.0.dist-info" / "RECORD").stat().st_mtime_ns + 1_000_000_000
    os.utime(tmp_path / "thing" / "native.so", ns=(later_ns, later_ns))
    assert "changed" not in worker._package(package)


@pytest.mark.parametrize(
    ("origin", "editable"), [({"dir_info": {"editable": True}}, True), ({"url": "file:///x"}, False)]
)
def test_a_pointer_to_a_source_tree_says_that_it_is_one(origin: Any, editable: bool, tmp_path: Path) -> None:
    package = install(tmp_path, FILES, notes={"direct_url.json": json.dumps(origin).encode()})
    assert worker._package(package).get("editable", False) is editable


# What it brings into the interpreter under test.


def imported_by(code: str) -> Sequence[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.split()


def test_it_loads_nothing_of_the_manager_side() -> None:
    loaded = imported_by("import harness.runner.worker, harness.execute")
    heavy = {
        "psutil",
        "pandas",
        "pyarrow",
        "rich",
        "typer",
        "harness.results",
        "harness.machine",
        "harness.runner.manager",
    }
    assert "harness.runner.worker" in loaded
    assert not heavy & set(loaded)
