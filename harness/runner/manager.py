"""Runs cells, each in a worker process of its own, strictly one at a time, and stores what comes of them. Manager side.

Every (cell, stage) gets exactly one record: the worker's own, or, where the worker came to an end before it, one that
says how it ended. Nothing here runs, judges or times a backend, and a fault of a worker never ends the run.

While a cell runs the manager sleeps, but for a look every ``POLL_S`` at the resident memory of the cell's process
group. A look takes about 0.25 ms of whatever core the manager is on, 0.5 % of it (a 2-core virtual machine, a hundred
processes, cold caches); where the worker shares that core, a sample is interrupted by so much twenty times a second,
and shows as an outlier.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from harness import machine
from harness.cell import Cell, Outcome, OutcomeKind, Record
from harness.errors import MasktaxError
from harness.results import RunStore, now
from harness.runner import protocol, worker
from harness.runner.protocol import Described, Done, Failed, ProtocolError, Ready, Recorded, StageBegun

POLL_S = 0.05
"""How often resident memory and the end of the process are looked at; a leak grows by so much beyond its limit."""

LAST_LOOKS_S = 0.002
"""The same, once the worker's end of the protocol is closed: it is about to end."""

SCAN_S = 0.25
"""How often the process group is searched for new members: it lists every process of the machine."""

TICK_S = 1.0
"""How often a ``Tick`` is reported, for a display that shows time passing."""

PROBE_LIMIT_S = 120.0
KILL_WAIT_S = 30.0
STDERR_BYTES, STDERR_LINES = 64 << 10, 20
STRAY_BYTES = 2_000


@dataclass(frozen=True)
class Environment:
    """An interpreter under test. python: its path (a name is looked up on PATH); symbolic links are kept as they
    are, for they are how a virtual environment is known."""

    name: str
    python: Path


# Events, for a display.


@dataclass(frozen=True)
class RunStarted:
    """cells: how many the run has. to_run: those that a worker will be started for; the others are recorded."""

    cells: int
    to_run: tuple[Cell, ...]


@dataclass(frozen=True)
class CellStarted:
    """number: of the cell, from 1, in the order given, among all cells of the run."""

    cell: Cell
    number: int


@dataclass(frozen=True)
class StageStarted:
    cell: Cell
    stage: str


@dataclass(frozen=True)
class StageRecorded:
    """record: the line that was just written to the store."""

    cell: Cell
    record: Mapping[str, Any]


@dataclass(frozen=True)
class CellFinished:
    """elapsed_s: from starting its process to the end of its process group."""

    cell: Cell
    elapsed_s: float


@dataclass(frozen=True)
class Tick:
    """Time has passed, about ``TICK_S`` of it."""


@dataclass(frozen=True)
class RunFinished:
    summary: Summary


Event = RunStarted | CellStarted | StageStarted | StageRecorded | CellFinished | Tick | RunFinished


@dataclass(frozen=True)
class Summary:
    """What a run came to. cells: all; ran: those a worker was started for; skipped: recorded before. outcomes: how many
    (cell, stage) records of this session have each outcome. elapsed_s: of this session."""

    cells: int
    ran: int
    skipped: int
    outcomes: Mapping[OutcomeKind, int]
    elapsed_s: float


class Interrupted(Exception):  # noqa: N818 - not an error: it was asked for
    """The run was asked to stop (Ctrl-C, SIGTERM). What is recorded is whole; ``done`` of ``total`` cells are."""

    def __init__(self, done: int, total: int, signal_name: str = "SIGINT") -> None:
        super().__init__(f"interrupted by {signal_name}: {done} of {total} cells are done and stored")
        self.done = done
        self.total = total
        self.signal_name = signal_name


def run(
    cells: Sequence[Cell],
    store: RunStore,
    environments: Mapping[str, Environment],
    *,
    timed: bool = True,
    resume: bool = False,
    jobs: int = 1,
    beside: str = "",
    on_event: Callable[[Event], None] = lambda _: None,
    annotate: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {},
) -> Summary:
    """Run ``cells`` in the order given and store a record for every stage of each.

    jobs: how many cells run side by side; more than one only untimed, since they bend each other's numbers. beside: a
    backend; the cells' stages are documents then, whose rows are compared with its (``harness.comparison``). resume:
    leave out what the store has already; without it a store with records is refused. annotate: given a record,
    further fields to store with it. Writes ``machine``, ``environments``, ``sessions``, ``finished_at`` and
    ``interrupted`` into run.json, and samples.parquet at the end, also of an interrupted run.

    MasktaxError before anything runs where an environment is missing or cannot run a worker, where a cell names one
    that is not given, and where a resumed run would mix unlike machines or packages. Interrupted where a SIGINT or
    SIGTERM came: the cell in flight was ended and what it had not finished is not recorded.
    """
    if jobs > 1 and timed:
        raise MasktaxError(f"{jobs} cells side by side: cells that are timed run one at a time")
    _check(cells, store, environments, resume)
    used = {c.environment for c in cells}
    adapters = {name: sorted({c.adapter for c in cells if c.environment == name}) for name in used}
    described = {name: probe(environments[name], adapters[name]) for name in sorted(used)}
    _describe_run(store, described)
    sessions = [*store.run.get("sessions", ()), _session()]
    store.update(sessions=sessions)

    started = time.monotonic()
    recorded = store.recorded()
    missing = {c.id: tuple(s for s in c.stages if (c.id, s) not in recorded) for c in cells}
    skipped = done = sum(not stages for stages in missing.values())
    outcomes: Counter[OutcomeKind] = Counter()
    on_event(RunStarted(len(cells), tuple(c for c in cells if missing[c.id])))
    lock = threading.Lock()  # one event and one record at a time

    def tell(event: Event) -> None:
        with lock:
            on_event(event)

    def run_cell(number: int, cell: Cell) -> bool:
        """Whether the cell ran to its end; False where the run was asked to stop before that."""
        nonlocal outcomes
        if stop.signal_name:
            return False
        attempt = _Attempt(cell.with_stages(missing[cell.id]), store, lock, tell, annotate)
        began = time.monotonic()
        tell(CellStarted(cell, number))
        try:
            attempt.run(_interpreter(environments[cell.environment]), stop, timed=timed, beside=beside)
        except KeyboardInterrupt:
            stop.signal_name = stop.signal_name or "SIGINT"
            return False
        finally:
            with lock:
                outcomes += attempt.outcomes
        tell(CellFinished(cell, time.monotonic() - began))
        return True

    with _stop_signals() as stop:
        to_run = [(number, cell) for number, cell in enumerate(cells, 1) if missing[cell.id]]
        if jobs == 1:
            done += sum(run_cell(*each) for each in to_run)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                done += sum(pool.map(lambda each: run_cell(*each), to_run))
        sessions[-1] |= {"ended_at": now(), "interrupted_by": stop.signal_name or None, "after": machine.snapshot()}
        interrupted = done < len(cells)
        store.update(sessions=sessions, interrupted=interrupted, finished_at=None if interrupted else now())
        store.finish()
    if interrupted:
        raise Interrupted(done, len(cells), stop.signal_name)
    summary = Summary(len(cells), done - skipped, skipped, dict(outcomes), time.monotonic() - started)
    on_event(RunFinished(summary))
    return summary


def probe(environment: Environment, backends: Sequence[str] = ()) -> dict[str, Any]:
    """What ``worker.describe`` says in this environment. MasktaxError where it cannot run a worker."""
    python = _interpreter(environment)
    place = f"environment {environment.name}: {python}"
    try:
        answer = subprocess.run(
            [*worker.command(python), "--describe", *backends],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_LIMIT_S,
            start_new_session=True,
        )
    except OSError as error:
        raise MasktaxError(f"{place} cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise MasktaxError(f"{place} did not describe itself within {PROBE_LIMIT_S:g} s") from error
    if answer.returncode:
        why = [_ending(answer.returncode), *answer.stderr.decode(errors="replace").strip().splitlines()[-1:]]
        raise MasktaxError(
            f"{place} cannot run a worker ({': '.join(why)}); it needs Python 3.11 or newer with numpy installed"
        )
    lines = answer.stdout.splitlines()  # what its start-up files print comes before
    try:
        message = protocol.decode(lines[-1] if lines else b"")
    except ProtocolError as error:
        raise MasktaxError(f"{place} does not answer as a worker: {error}") from error
    if not isinstance(message, Described):
        raise MasktaxError(f"{place} does not answer as a worker: {message}")
    return message.environment


def _interpreter(environment: Environment) -> Path:
    found = shutil.which(environment.python.expanduser())
    if found is None:
        raise MasktaxError(
            f"environment {environment.name}: there is no interpreter at {environment.python}; "
            "make that environment, or leave it out of the scenario"
        )
    return Path(found)


def _check(cells: Sequence[Cell], store: RunStore, environments: Mapping[str, Environment], resume: bool) -> None:
    if store.recorded() and not resume:
        raise MasktaxError(f"{store.path} holds records already: go on with it by --resume, or name another folder")
    twice = [name for name, count in Counter(c.id for c in cells).items() if count > 1]
    if twice:
        raise MasktaxError(f"two cells have the id {twice[0]!r}; a cell's id must be unique within its run")
    for cell in cells:
        if cell.environment not in environments:
            known = ", ".join(sorted(environments)) or "none"
            raise MasktaxError(f"cell {cell.id}: unknown environment {cell.environment!r}; known: {known}")


def _describe_run(store: RunStore, described: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what the run is made on and with; a resumed one must be made on and with the same."""
    here = machine.describe()
    before = store.run.get("machine")
    if before:
        differences = machine.unlike(before, here)
        if differences:
            raise MasktaxError(
                f"{store.path} was begun on an unlike machine ({'; '.join(differences[:3])}); start a new run by -o"
            )
    known: Mapping[str, Mapping[str, Any]] = store.run.get("environments") or {}
    for name in known.keys() & described.keys():
        differences = _changed(known[name], described[name])
        if differences:
            raise MasktaxError(
                f"environment {name} has changed since {store.path} was begun ({'; '.join(differences[:3])}); "
                "start a new run by -o"
            )
    store.update(machine=before or here, environments={**described, **known})


def _changed(before: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """How an environment differs from what it was. Packages that came or went are not looked at, nor editable ones,
    whose files no fingerprint covers."""
    differences = [f"{k} {before[k]} → {here[k]}" for k in ("python", "masktax", "numpy") if before[k] != here[k]]
    for name in before["packages"].keys() & here["packages"].keys():
        old, new = before["packages"][name], here["packages"][name]
        if old != new and not new.get("editable"):
            versions = f"{old['version']} → {new['version']}" if old["version"] != new["version"] else "other files"
            differences.append(f"{name} {versions}")
    return differences


def _session() -> dict[str, Any]:
    """One start of the manager on this run; a killed one stays without an end."""
    return {"started_at": now(), "ended_at": None, "interrupted_by": None, "before": machine.snapshot(), "after": None}


# One cell.


@dataclass(frozen=True)
class _End:
    """How a worker ended that had not recorded every stage."""

    kind: OutcomeKind
    reason: str


class _Attempt:
    """One cell's worker, from its start to the record of its last stage."""

    def __init__(
        self,
        cell: Cell,
        store: RunStore,
        store_lock: threading.Lock,
        on_event: Callable[[Event], None],
        annotate: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self._cell = cell
        self._store = store
        self._store_lock = store_lock
        self._on_event = on_event
        self._annotate = annotate
        self._missing = list(cell.stages)
        self._in_flight: str | None = None
        self._done = False
        self.outcomes: Counter[OutcomeKind] = Counter()

    def run(self, python: Path, stop: _Stop, *, timed: bool, beside: str) -> None:
        """Run to the end. KeyboardInterrupt where ``stop`` asks for it: the group is killed, nothing more recorded."""
        started, kills_before = time.monotonic(), _kernel_oom_kills()
        process, pipes = _start(python)
        group = _Group(process.pid)
        try:
            try:
                pipes.send(protocol.request(self._cell, timed=timed, beside=beside))
                end = self._supervise(process, pipes, group, stop, started + self._cell.time_limit_s)
            finally:
                group.kill(process)
        finally:
            pipes.close()
        if self._missing:
            end = end or _natural_end(process.returncode, pipes.stderr_lines(), kills_before)
            facts = {
                "elapsed_s": round(time.monotonic() - started, 3),
                "peak_resident_bytes": group.peak_bytes,
                "stderr": pipes.stderr_lines(),
            }
            self._record_rest(end, facts | pipes.take_stray())

    def _supervise(
        self, process: subprocess.Popen[bytes], pipes: _Pipes, group: _Group, stop: _Stop, deadline: float
    ) -> _End | None:
        """Until the worker is done, has ended by itself (both: None), or must be ended."""
        next_look = next_tick = time.monotonic()
        ended = False
        while True:
            pipes.pump(0.0 if ended else max(0.0, min(next_look, deadline) - time.monotonic()))
            try:
                for line in pipes.lines():
                    failed = self._take(line, pipes)
                    if failed or self._done:
                        return failed
            except ProtocolError as error:
                return _End("crash", f"protocol: {error}")
            if ended:  # seen before the pipes were emptied for the last time
                return None
            if stop.signal_name:
                raise KeyboardInterrupt
            at = time.monotonic()
            if at >= deadline:
                return _End("timeout", f"time limit of {self._cell.time_limit_s:g} s")
            if at >= next_look:
                next_look = at + (POLL_S if pipes.is_open else LAST_LOOKS_S)
                ended = _has_ended(process)
                resident = group.resident_bytes(at)
                if resident > self._cell.memory_limit_bytes:
                    limit = _mebibytes(self._cell.memory_limit_bytes)
                    return _End("out_of_memory", f"memory limit of {limit}; {_mebibytes(resident)} were resident")
            if at >= next_tick:
                next_tick = at + TICK_S
                self._on_event(Tick())

    def _take(self, line: bytes, pipes: _Pipes) -> _End | None:
        """Act on one line; an end where it says that the worker failed."""
        message = protocol.decode(line)
        if isinstance(message, StageBegun):
            self._expect(message.stage)
            self._in_flight = message.stage
            self._on_event(StageStarted(self._cell, message.stage))
        elif isinstance(message, Recorded):
            record = message.record
            if record["cell"] != self._cell.id:
                raise ProtocolError(f"a record of another cell, {record['cell']!r}")
            self._expect(record["stage"])
            self._store_record(record | {"facts": {**(record.get("facts") or {}), **pipes.take_stray()}})
        elif isinstance(message, Failed):
            return _End("crash", message.reason)
        elif isinstance(message, Done):
            if self._missing:
                raise ProtocolError(f"done without a record of stage {self._missing[0]!r}")
            self._done = True
        elif not isinstance(message, Ready):
            raise ProtocolError(f"a {message.event} message in answer to a cell")
        return None

    def _expect(self, stage: str) -> None:
        if stage not in self._missing:
            asked = stage in self._cell.stages
            raise ProtocolError(f"stage {stage!r}, which {'is recorded already' if asked else 'was not asked for'}")

    def _store_record(self, record: Mapping[str, Any]) -> None:
        record = {**record, **self._annotate(record)}
        with self._store_lock:
            self._store.append(record)
        stage = record["stage"]
        self._missing.remove(stage)
        self._in_flight = None if self._in_flight == stage else self._in_flight
        self.outcomes[record["outcome"]] += 1
        self._on_event(StageRecorded(self._cell, record))

    def _record_rest(self, end: _End, facts: dict[str, Any]) -> None:
        """Charge the end to the stage in flight (the first one missing where none was); the others were not reached."""
        charged = self._in_flight or self._missing[0]
        others = [s for s in self._missing if s != charged]
        unreached = Outcome(end.kind, f"{end.reason}; the cell ended in stage {charged}", not_reached=True)
        self._store_record(Record(charged, Outcome(end.kind, end.reason), facts=facts).to_json(self._cell))
        for stage in others:
            self._store_record(Record(stage, unreached).to_json(self._cell))


def _start(python: Path) -> tuple[subprocess.Popen[bytes], _Pipes]:
    """A worker that waits for its request, in a session and process group of its own."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*worker.command(python), "--protocol-fd", str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(writer,),
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return process, _Pipes(process, reader)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has, without reaping it: until then its id, which is its group's, cannot be another's."""
    if sys.platform == "linux":
        try:
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody ignores SIGCHLD, so that it was reaped by the kernel
            return True
    else:
        try:
            return not _running(psutil.Process(process.pid))
        except psutil.NoSuchProcess:
            return True


def _natural_end(status: int, stderr: Sequence[str], kills_before: int | None) -> _End:
    """What a worker died of that nobody here killed."""
    kills = _kernel_oom_kills()
    if status == -signal.SIGKILL and kills is not None and kills_before is not None and kills > kills_before:
        return _End("out_of_memory", "killed when the machine or its container had no memory left")
    if status > 0 and stderr:
        return _End("crash", f"{_ending(status)}: {stderr[-1]}")
    return _End("crash", _ending(status))


def _kernel_oom_kills() -> int | None:
    """How many processes the kernel has killed for memory since it started; None where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _ending(status: int) -> str:
    """``SIGSEGV``, or ``exit status 3``."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


class _Group:
    """A worker's process group: its memory, its end. A process that starts a session of its own leaves it unseen."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._members: dict[int, psutil.Process] = {}
        self._next_scan = 0.0
        self.peak_bytes = 0

    def resident_bytes(self, at: float) -> int:
        """Sum over the members now; pages that several share are counted for each."""
        if at >= self._next_scan:
            self._next_scan = at + SCAN_S
            self._scan()
        total = 0
        for member in self._members.values():
            try:
                total += member.memory_info().rss
            except psutil.Error:  # it has ended
                continue
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    def _scan(self) -> None:
        pids = [pid for pid in psutil.pids() if _group_of(pid) == self._leader]
        for gone in self._members.keys() - set(pids):
            del self._members[gone]
        for pid in pids:
            if pid not in self._members:
                try:
                    self._members[pid] = psutil.Process(pid)
                except psutil.NoSuchProcess:
                    continue

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill every member, the leader included, and wait until none is left to disturb what runs next."""
        # The leader is not yet reaped, so that the group's number is still its own.
        try:
            os.killpg(self._leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS denies where only a zombie is left
            process.kill()
        give_up = time.monotonic() + KILL_WAIT_S
        try:
            process.wait(KILL_WAIT_S)
            while self._alive():
                if time.monotonic() > give_up:
                    raise subprocess.TimeoutExpired(process.args, KILL_WAIT_S)
                time.sleep(0.002)
        except subprocess.TimeoutExpired as error:
            raise MasktaxError(
                f"process group {self._leader} is still there {KILL_WAIT_S:g} s after SIGKILL; "
                "what runs beside it would be disturbed: end it by hand, then go on with --resume"
            ) from error

    def _alive(self) -> bool:
        self._scan()
        return any(_running(member) for member in self._members.values())


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended, or is none of ours
        return None


def _running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class _Pipes:
    """A worker's four pipes, pumped without ever blocking on it. What it prints is kept within bounds."""

    def __init__(self, process: subprocess.Popen[bytes], protocol_fd: int) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._protocol_fd = protocol_fd
        self._to_send = memoryview(b"")
        self._received = bytearray()
        self._searched = 0
        self._stray = bytearray()
        self._stray_bytes = 0
        self._trouble = bytearray()
        self._selector = selectors.DefaultSelector()
        for fd in (self._stdin.fileno(), protocol_fd, self._stdout.fileno(), self._stderr.fileno()):
            os.set_blocking(fd, False)
        # In this order: what was printed before a line came is read after it, and is there when the line is looked at.
        self._sinks: dict[int, Callable[[bytes], None]] = {
            protocol_fd: self._received.extend,
            self._stdout.fileno(): self._keep_stray,
            self._stderr.fileno(): self._keep_trouble,
        }
        for fd in self._sinks:
            self._selector.register(fd, selectors.EVENT_READ)

    @property
    def is_open(self) -> bool:
        """Whether the worker can still send lines."""
        return self._protocol_fd in self._sinks

    def send(self, data: bytes) -> None:
        """Have ``data`` written as the worker reads it."""
        self._to_send = memoryview(data)
        self._selector.register(self._stdin.fileno(), selectors.EVENT_WRITE)

    def pump(self, timeout_s: float) -> None:
        """Wait until something can be read or written, at most so long, and do it."""
        ready = {key.fd for key, _ in self._selector.select(timeout_s)}
        if self._stdin.fileno() in ready:
            self._write()
        if ready & self._sinks.keys():
            for fd in list(self._sinks):
                self._read(fd)

    def lines(self) -> Iterator[bytes]:
        """The protocol's whole lines so far, each once; ProtocolError where one is too long."""
        while (end := self._received.find(b"\n", self._searched)) >= 0:
            line = bytes(self._received[: end + 1])
            del self._received[: end + 1]
            self._searched = 0
            yield line
        self._searched = len(self._received)
        if self._searched > protocol.MAX_LINE_BYTES:
            raise ProtocolError(f"a line of more than {protocol.MAX_LINE_BYTES} bytes")

    def take_stray(self) -> dict[str, Any]:
        """What came on the standard output since the last call, as facts; empty where nothing did."""
        if not self._stray_bytes:
            return {}
        text = self._stray.decode(errors="replace")
        facts = {"stray_output": text, "stray_output_bytes": self._stray_bytes}
        self._stray.clear()
        self._stray_bytes = 0
        return facts

    def stderr_lines(self) -> list[str]:
        """The last lines of the standard error."""
        lines = self._trouble.decode(errors="replace").splitlines()
        return [line[:300] for line in lines[-STDERR_LINES:]]

    def close(self) -> None:
        """Read what is left, and close."""
        self.pump(0)
        self._selector.close()
        for file in (self._stdin, self._stdout, self._stderr):
            file.close()
        os.close(self._protocol_fd)

    def _write(self) -> None:
        try:
            self._to_send = self._to_send[os.write(self._stdin.fileno(), self._to_send) :]
        except BrokenPipeError:  # it died without reading; its end says why
            self._to_send = memoryview(b"")
        if not self._to_send:
            # It stays open: its end is how the worker would learn of this process's death.
            self._selector.unregister(self._stdin.fileno())

    def _read(self, fd: int) -> None:
        for _ in range(64):  # a flood is read a few megabytes at a time, so that limits are looked at in between
            try:
                chunk = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                self._selector.unregister(fd)
                del self._sinks[fd]
                return
            self._sinks[fd](chunk)

    def _keep_stray(self, chunk: bytes) -> None:
        self._stray += chunk[: STRAY_BYTES - len(self._stray)]
        self._stray_bytes += len(chunk)

    def _keep_trouble(self, chunk: bytes) -> None:
        self._trouble += chunk
        del self._trouble[:-STDERR_BYTES]


# Being asked to stop.


@dataclass
class _Stop:
    """Set by a signal, looked at where stopping leaves nothing half-written."""

    signal_name: str = ""


@contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """Turn the first SIGINT or SIGTERM into a request; a second one acts at once. Signals that somebody ignores or
    handles already, and every signal outside the main thread, are left as they are."""
    stop = _Stop()
    before: dict[int, Any] = {}

    def ask(number: int, _: FrameType | None) -> None:
        stop.signal_name = signal.Signals(number).name
        for each, handler in before.items():
            signal.signal(each, handler)

    if threading.current_thread() is threading.main_thread():
        for which in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(which) in (signal.default_int_handler, signal.SIG_DFL):
                before[which] = signal.signal(which, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
