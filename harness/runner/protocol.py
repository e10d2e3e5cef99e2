"""The lines that pass between a manager and a worker. Worker side: standard library only.

The manager sends one line, the request. The worker answers with messages, one JSON object a line, on a channel of its
own that is not its standard output. Nothing here reads or writes a file descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from harness.cell import OUTCOMES, Cell

MAX_LINE_BYTES = 256 << 20
"""A longer line is a broken channel: the largest honest record, a million samples, is about a tenth of it."""


class ProtocolError(Exception):
    """A line that no worker of this version sends; the text says what is wrong with it."""


@dataclass(frozen=True)
class Ready:
    """The worker has read its request."""

    event: ClassVar[str] = "ready"
    pid: int
    python: str


@dataclass(frozen=True)
class StageBegun:
    """A stage begins; until its record comes, whatever ends the worker is charged to it."""

    event: ClassVar[str] = "stage"
    stage: str


@dataclass(frozen=True)
class Recorded:
    """A stage's record, as ``Record.to_json`` makes it."""

    event: ClassVar[str] = "record"
    record: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """An exception that is no outcome ends the cell; its traceback is on the standard error."""

    event: ClassVar[str] = "failed"
    reason: str


@dataclass(frozen=True)
class Done:
    """Every stage has been recorded; the worker ends now."""

    event: ClassVar[str] = "done"


@dataclass(frozen=True)
class Described:
    """The answer to ``--describe``: what the environment is (see ``harness.runner.worker.describe``)."""

    event: ClassVar[str] = "described"
    environment: dict[str, Any]


Message = Ready | StageBegun | Recorded | Failed | Done | Described
_MESSAGES: Mapping[str, type[Message]] = {
    m.event: m for m in (Ready, StageBegun, Recorded, Failed, Done, Described)
}  # fmt: skip


def request(cell: Cell, *, timed: bool, beside: str = "") -> bytes:
    """The line that a manager sends. beside: compare the cell's rows with this backend's (``harness.comparison``)
    instead of running its stages."""
    return _line({"cell": cell.to_json(), "timed": timed, "beside": beside})


def parse_request(line: bytes) -> tuple[Cell, bool, str]:
    """The cell, whether it is timed, and what it is compared with."""
    data = json.loads(line)
    return Cell.from_json(data["cell"]), bool(data["timed"]), str(data.get("beside", ""))


def encode(message: Message) -> bytes:
    """The line that a worker sends. ValueError where a record holds what JSON cannot (an infinity, a NaN)."""
    return _line({"event": message.event} | asdict(message))


def decode(line: bytes) -> Message:
    """A worker's line; ProtocolError where it is not one."""
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # brackets enough make json run out of stack
        raise ProtocolError(f"not a JSON line: {excerpt(line)}") from error
    if not isinstance(data, dict):
        raise ProtocolError(f"not a message: {excerpt(line)}")
    kind = _MESSAGES.get(str(data.pop("event", None)))
    if kind is None:
        raise ProtocolError(f"a message of no known event: {excerpt(line)}")
    try:
        message = kind(**data)
    except TypeError as error:
        raise ProtocolError(f"a {kind.event} message with other fields than it has: {excerpt(line)}") from error
    if isinstance(message, Recorded):
        _check(message.record, line)
    return message


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check(record: object, line: bytes) -> None:
    texts = ("scenario", "cell", "backend", "stage", "outcome")
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in texts):
        raise ProtocolError(f"a record that lacks one of {', '.join(texts)}: {excerpt(line)}")
    if record["outcome"] not in OUTCOMES:
        raise ProtocolError(f"a record whose outcome is {record['outcome']!r}")


def excerpt(line: bytes) -> str:
    """The start of a line, for a message."""
    text = line[:80].decode(errors="replace").rstrip("\n")
    return repr(text) + ("…" if len(line) > 80 else "")


def _line(data: dict[str, Any]) -> bytes:
    # ASCII throughout: a lone surrogate in a library's message passes as its escape.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode() + b"\n"
