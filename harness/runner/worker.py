"""One cell in a process of its own: reads a request, runs the cell, answers line by line, and ends. Worker side.

    python -m harness.runner.worker < request.json        (a request is {"cell": {…}, "timed": true} and a newline)
    python -m harness.runner.worker --describe xgrammar   (one JSON line about this interpreter)

The manager starts it by ``command``, so that it runs in any interpreter that has numpy, wherever this package lives.
The protocol has a file descriptor of its own: what a library prints never mixes with it. A worker never outlives its
manager, never reads anything but its request, and never writes a file.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import fcntl
import hashlib
import json
import os
import platform
import select
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.cell import Record
from harness.errors import MasktaxError, UnsupportedError
from harness.runner.protocol import Described, Done, Failed, Message, Ready, Recorded, StageBegun, encode, parse_request

STDIN, STDOUT, STDERR = 0, 1, 2

# Imports the package by its place and takes that place off the path again: in another environment the folder may be
# a whole site-packages, whose other packages must not shadow the environment's own.
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import harness; del sys.path[0]; "
    "from harness.runner.worker import main; main()"
)


def command(python: Path) -> list[str]:
    """The command line of a worker under interpreter ``python``, to which arguments may be appended.

    ``-P`` keeps the current folder off the path, so that what is imported does not depend on where one stands.
    """
    package = Path(__file__).resolve().parents[1]
    return [str(python), "-P", "-c", _BOOTSTRAP, str(package.parent)]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one cell, or describe the environment; see the module."""
    parser = argparse.ArgumentParser(prog="python -m harness.runner.worker", description=__doc__)
    parser.add_argument("--protocol-fd", type=int, default=STDOUT, help="where to answer (default: standard output)")
    parser.add_argument("--describe", nargs="*", metavar="BACKEND", help="describe this interpreter and end")
    arguments = parser.parse_args(argv)
    channel = _Channel(arguments.protocol_fd)
    if arguments.describe is not None:
        channel.send(Described(describe(arguments.describe)))
        return
    _run(channel)


def _run(channel: _Channel) -> None:
    faulthandler.enable()  # the Python stack at a fatal signal, on the standard error
    manager = _take_stdin()
    line = _read_line(manager)
    if not line:
        return
    _end_with_manager(manager)
    cell, timed, beside = parse_request(line)
    channel.send(Ready(os.getpid(), platform.python_version()))

    def emit(event: str, value: Any, /) -> None:
        if event == "stage":
            channel.send(StageBegun(value))
        elif event == "record" and isinstance(value, Record):
            _flush_output()
            channel.send(Recorded(value.to_json(cell)))
        else:
            raise ValueError(f"no such event: {event} {value!r}")

    def fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        traceback.print_exception(kind, error, trace)
        _flush_output()
        channel.send(Failed(_in_one_line(error)))
        os._exit(1)

    sys.excepthook = fail
    # Only now: whatever importing numpy prints or breaks is the cell's, and is charged to it.
    if beside:
        from harness.comparison import compare

        compare(cell, beside, emit)
    else:
        from harness.execute import execute

        execute(cell, emit, timed=timed)
    _flush_output()
    channel.send(Done())
    # Not sys.exit: a library's teardown has hung and crashed before, and nothing measured is in it.
    os._exit(0)


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, MasktaxError) else f"{type(error).__name__}: {text}".removesuffix(": ")


# The channel.


class _Channel:
    """Where messages go: a private, non-inherited copy of ``fd``, which itself is closed to everybody else."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        if fd == STDOUT:  # by hand: what libraries print goes to the standard error
            os.dup2(STDERR, STDOUT)
        else:
            os.close(fd)

    def send(self, message: Message) -> None:
        left = memoryview(encode(message))
        while left:
            left = left[os.write(self._fd, left) :]


def _flush_output() -> None:
    """Push out what Python and C have buffered for the standard output, so that it precedes the next message."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


def _take_stdin() -> int:
    """A private copy of the standard input, which becomes empty for everybody else."""
    private = os.dup(STDIN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    return private


def _read_line(fd: int) -> bytes:
    """Up to the first newline, which is the last byte the manager sends; empty where its end comes before."""
    chunks: list[bytes] = []
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
        if chunk.endswith(b"\n"):
            return b"".join(chunks)
    return b""


# Ending with the manager.


def _end_with_manager(fd: int) -> None:
    """See to it that this process group dies when the other end of pipe ``fd`` is closed, which a manager's death does.

    On Linux the kernel does it: the pipe's owner is the process group, its signal SIGKILL, sent when anything happens
    on it (nothing but the end can: the request has been read). So it works on code that never gives the GIL back,
    takes children along, and costs no thread. Elsewhere a thread waits for the end.
    """
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):  # by hand, from a file or a terminal
        return
    if sys.platform != "linux":
        threading.Thread(target=_wait_for_the_end, args=(fd,), daemon=True, name="manager watch").start()
        return
    leader = os.getpgrp() == os.getpid()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid() if leader else os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(fd, 0)
    if watch.poll(0):  # it ended before the kernel was asked to tell
        _kill_own_group()


def _wait_for_the_end(fd: int) -> None:
    while os.read(fd, 1 << 16):
        pass
    _kill_own_group()


def _kill_own_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


# What this interpreter is.

# Names, and starts of names, of environment variables that bend numbers or choose what is measured.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "GOMP_", "HF_HUB_OFFLINE", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LLGUIDANCE_", "MALLOC_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_", "PYTHON", "RAYON_", "RUST_", "TOKENIZERS_",
    "TORCH", "TRITON_", "VLLM_", "SGLANG_", "XGRAMMAR_",
)  # fmt: skip


def describe(backends: Sequence[str] = ()) -> dict[str, Any]:
    """What can be known of this interpreter without importing a backend's library.

    python, implementation, executable, prefix; masktax: this package's version; numpy: its version (importing it is
    part of the answer: without it no cell runs); backends: ``{name: {"version": … or null, "reason": …}}`` of those
    asked for; packages: every installed distribution (see ``_package``); variables: the environment variables set
    that can bend a number.
    """
    import numpy as np

    import harness.execute  # noqa: F401 - that it imports here is part of the answer
    from harness import __version__

    found = {d.name: d for d in reversed(list(distributions())) if d.name}  # the first on the path wins, as on import
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": list(platform.python_build()),
        "compiler": platform.python_compiler(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "masktax": __version__,
        "numpy": np.__version__,
        "backends": {name: _backend(name) for name in backends},
        "packages": {name: _package(found[name]) for name in sorted(found, key=str.lower)},
        "variables": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
    }


def _backend(name: str) -> dict[str, Any]:
    from harness.backends import registry

    try:
        return {"version": registry.create(name).version, "reason": ""}
    except (UnsupportedError, MasktaxError) as error:
        return {"version": None, "reason": str(error)}


def _package(package: Distribution) -> dict[str, Any]:
    """A distribution's version and fingerprint.

    record_sha256: sha256 over the sorted ``path,hash`` lines of its RECORD, so over the hashes of all its files as
    its installer wrote them, without the installer's own files, byte code and scripts: equal wheels give equal
    fingerprints in every environment. null where it has no RECORD. changed: files that are missing, or that were
    written after the RECORD and differ from it (at most 20 are named); present only where there are any. editable:
    true where the distribution is a pointer to a source tree, whose files no RECORD covers.
    """
    facts: dict[str, Any] = {"version": package.version, "record_sha256": None}
    if _editable(package):
        facts["editable"] = True
    record = package.read_text("RECORD")
    if record is None:
        return facts
    files = [(str(f), f.hash, f.size) for f in package.files or () if f.hash is not None and not _installers_own(f)]
    lines = sorted(f"{path},{digest.mode}={digest.value}\n" for path, digest, _ in files)
    facts["record_sha256"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    written_ns = next(
        (Path(str(f.locate())).stat().st_mtime_ns for f in package.files or () if f.name == "RECORD"), None
    )
    changed = [
        path
        for path, digest, size in files
        if _changed(Path(str(package.locate_file(path))), digest.mode, digest.value, size, written_ns)
    ]
    if changed:
        facts["changed"] = changed[:20]
    return facts


def _installers_own(file: PackagePath) -> bool:
    """Whether a file is not the wheel's, so that it differs between installations: scripts and data outside the
    library folder (they hold its path), byte code, and the installer's notes."""
    notes = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
    return ".." in file.parts or file.suffix == ".pyc" or (file.parent.suffix == ".dist-info" and file.name in notes)


def _changed(file: Path, mode: str, value: str, size: int | None, written_ns: int | None) -> bool:
    try:
        now = file.stat()
    except OSError:
        return True
    if size is not None and now.st_size != size:
        return True
    if written_ns is not None and now.st_mtime_ns <= written_ns:
        return False
    if mode not in hashlib.algorithms_available:
        return True
    import base64

    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, mode).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != value


def _editable(package: Distribution) -> bool:
    origin = package.read_text("direct_url.json")
    return origin is not None and bool(json.loads(origin).get("dir_info", {}).get("editable"))


if __name__ == "__main__":
    main()
