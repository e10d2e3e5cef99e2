"""The stage serialize, and the process at the other end: what arrives is what was sent, and it always ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from harness.bitmask import Row
from harness.cell import Measurement, Refusal
from harness.stages import serialize, stages
from harness.transports import TRANSPORTS, Receiver, fingerprint
from tests.batch.jobs import job
from tests.fake_backends import Fake


def block(rows: int, words: int = 4_040) -> Row:
    return np.random.default_rng(rows).integers(-(2**31), 2**31, (rows, words), dtype=np.int32)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_blocks_arrive_in_another_process_as_they_were_sent(transport: str) -> None:
    sent = [block(1), block(64), block(3), block(0)]
    with Receiver(transport, max(b.nbytes for b in sent)) as receiver:
        assert receiver.pid != os.getpid()
        assert alive(receiver.pid)
        for b in sent:
            receiver.hand_over(b)
            assert receiver.fingerprint() == fingerprint(b)
    assert not alive(receiver.pid)


def test_a_fingerprint_tells_one_bit_and_the_shape() -> None:
    one = block(4)
    other = one.copy()
    other[3, 17] ^= 1
    assert len({fingerprint(one), fingerprint(other), fingerprint(one.reshape(2, -1))}) == 3


def test_the_other_process_ends_with_an_error_here() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), Receiver("pickle_pipe", 0) as receiver:
        raise RuntimeError("on purpose")
    assert not alive(receiver.pid)


def test_the_other_process_ends_when_this_one_is_killed() -> None:
    script = (
        "import os, signal; from harness.transports import Receiver; r = Receiver('shared_memory', 64); "
        "print(r.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode < 0
    # Its standard output was this test's pipe, which was read to its end: the process holding it is gone.
    assert int(done.stdout) > 0


def run(**conditions: tuple[Any, ...]) -> tuple[list[Measurement], list[Refusal], dict[str, Any]]:
    the_job = job(Fake(), conditions={"rows": (2, 5)} | conditions)
    results = stages()["serialize"].run(the_job)
    timed = [r for r in results if isinstance(r, Measurement)]
    return timed, [r for r in results if isinstance(r, Refusal)], the_job.facts


def test_every_transport_is_timed_for_every_number_of_rows() -> None:
    timed, refused, facts = run()
    assert refused == []
    assert [dict(m.conditions) for m in timed] == [
        {"transport": transport, "rows": rows} for transport in TRANSPORTS for rows in (2, 5)
    ]
    assert {b for m in timed for b in m.columns["bytes_moved"]} == {2 * rows * 11 * 4 for rows in (2, 5)}
    assert set(facts["empty_round_trip_ns"]) == set(TRANSPORTS)
    assert all(ns > 0 for ns in facts["empty_round_trip_ns"].values())


def test_a_transport_that_changes_what_it_carries_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed(Receiver):
        def hand_over(self, block: Row) -> None:
            super().hand_over(block ^ 1)

    monkeypatch.setattr(serialize, "Receiver", Changed)
    timed, refused, _ = run(transport=("raw_pipe",))
    assert timed == []
    assert {(r.kind, r.reason) for r in refused} == {("wrong", "raw_pipe: what arrived is not what was sent")}


def test_the_process_ends_where_the_stage_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Failing(Receiver):
        def fingerprint(self) -> str:
            started.append(self.pid)
            raise RuntimeError("on purpose")

    monkeypatch.setattr(serialize, "Receiver", Failing)
    with pytest.raises(RuntimeError, match="on purpose"):
        run(transport=("shared_memory",), rows=(2,))
    assert len(started) == 1
    assert not alive(started[0])
