"""Ways to hand a block of mask rows to another process, and that process. Worker side: numpy and the standard library.

The process is real: a fresh interpreter, joined by one socket pair. It takes a block, holds it as a numpy array, and
answers with one byte; asked for its last block, it answers with that block's fingerprint. It ends when the other end of
its socket does, whatever became of who held it.

What engines do, as far as their sources say: vLLM fills masks in its engine process and broadcasts the scheduler's
output, mask and all, to its workers through a ring of shared memory, pickled with its arrays' buffers out of band;
between its front end and its engine, arrays go as a small header and their raw buffers, not copied into the message.
SGLang fills masks in the process that applies them. Hence the three transports here.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from harness.bitmask import Row

RECEIVED = b"\x01"
END_S = 5.0

# As harness.runner.worker starts a worker: the package by its place, which then leaves the path again.
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import harness; del sys.path[0]; "
    "from harness.transports import receive; receive(sys.argv[1:])"
)


class Transport(Protocol):
    """One way, seen from both ends. ``send(None)`` asks for the fingerprint of the last block."""

    def send(self, block: Row | None) -> None:
        """Hand over an int32 block of shape ``[rows, words]``."""
        ...

    def receive(self) -> Row | None:
        """The next block as an array; None where the fingerprint is asked for. EOFError at the end."""
        ...


class PicklePipe:
    """The array pickled into one message through the socket, and unpickled there: what ``multiprocessing`` does."""

    def __init__(self, connection: Connection, memory: mmap.mmap) -> None:
        self._connection = connection

    def send(self, block: Row | None) -> None:
        self._connection.send(block)

    def receive(self) -> Row | None:
        block: Row | None = self._connection.recv()
        return block


class RawPipe:
    """A pickled header (shape), then the block's own buffer through the socket; the array there lies over what came."""

    def __init__(self, connection: Connection, memory: mmap.mmap) -> None:
        self._connection = connection

    def send(self, block: Row | None) -> None:
        self._connection.send(None if block is None else block.shape)
        if block is not None:
            self._connection.send_bytes(block.reshape(-1).view(np.uint8).data)

    def receive(self) -> Row | None:
        shape = self._connection.recv()
        return None if shape is None else np.frombuffer(self._connection.recv_bytes(), dtype=np.int32).reshape(shape)


class SharedMemory:
    """The block copied into memory that both processes map, then a pickled header (shape) through the socket; the array
    there lies over the shared memory."""

    def __init__(self, connection: Connection, memory: mmap.mmap) -> None:
        self._connection = connection
        self._words = np.frombuffer(memory, dtype=np.int32)

    def send(self, block: Row | None) -> None:
        if block is not None:
            np.copyto(self._words[: block.size].reshape(block.shape), block)
        self._connection.send(None if block is None else block.shape)

    def receive(self) -> Row | None:
        shape = self._connection.recv()
        return None if shape is None else self._words[: shape[0] * shape[1]].reshape(shape)


TRANSPORTS: Mapping[str, type[PicklePipe] | type[RawPipe] | type[SharedMemory]] = {
    "pickle_pipe": PicklePipe,
    "raw_pipe": RawPipe,
    "shared_memory": SharedMemory,
}


class Receiver:
    """A receiving process and this end of its transport; ends with the ``with`` block.

    transport: a name of ``TRANSPORTS``. capacity_bytes: of the largest block that shared memory must hold.
    """

    def __init__(self, transport: str, capacity_bytes: int) -> None:
        here, there = socket.socketpair()
        with there, tempfile.TemporaryFile(dir=_memory_folder()) as file:
            file.truncate(max(capacity_bytes, mmap.PAGESIZE))
            fds = (there.fileno(), file.fileno())
            package = Path(__file__).resolve().parent
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOTSTRAP, str(package.parent), transport, *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
            )
            self._connection = Connection(here.detach())
            self._transport: Transport = TRANSPORTS[transport](self._connection, mmap.mmap(file.fileno(), 0))

    def hand_over(self, block: Row) -> None:
        """Send a block and wait until the other process says that it holds it."""
        self._transport.send(block)
        self._connection.recv_bytes()

    def fingerprint(self) -> str:
        """Of the last block handed over, as the other process sees it (see ``fingerprint``)."""
        self._transport.send(None)
        return self._connection.recv_bytes().decode()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid


def fingerprint(block: Row) -> str:
    """sha256 over dtype, shape and bytes of a block."""
    return hashlib.sha256(pickle.dumps((block.dtype.str, block.shape)) + block.tobytes()).hexdigest()


def receive(arguments: Sequence[str]) -> None:
    """What the other process does. arguments: the transport's name, the socket's and the shared file's descriptors."""
    name, channel, shared = arguments
    connection = Connection(int(channel))
    transport: Transport = TRANSPORTS[name](connection, mmap.mmap(int(shared), 0))
    os.close(int(shared))
    block: Row | None = None
    while True:
        try:
            arrived = transport.receive()
        except EOFError:
            return
        if arrived is not None:
            block = arrived
            connection.send_bytes(RECEIVED)
        elif block is not None:
            connection.send_bytes(fingerprint(block).encode())


def _memory_folder() -> str | None:
    """Where a file lies in memory, on Linux; elsewhere the usual place for temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
