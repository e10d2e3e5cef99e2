"""The lines between manager and worker: what is sent arrives as it was; what nobody sends is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from harness.cell import Outcome, Record
from harness.runner import protocol
from harness.runner.protocol import Done, Failed, Message, ProtocolError, Ready, Recorded, StageBegun
from tests.runner.conftest import MakeCell


@pytest.fixture
def record(make_cell: MakeCell) -> dict[str, Any]:
    return Record("fill", Outcome("crash", "lone \ud800 surrogate, “quotes” and\nlines")).to_json(make_cell("Good"))


def test_a_request_is_one_line_and_gives_the_cell_back(make_cell: MakeCell) -> None:
    cell = make_cell("Good", at="fill", fields={"conditions": {"cache": ("warm",)}})
    line = protocol.request(cell, timed=False)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert protocol.parse_request(line) == (cell, False, "")


@pytest.mark.parametrize("message", [Ready(7, "3.11.0"), StageBegun("fill"), Failed("ValueError: é"), Done()])
def test_a_message_is_one_line_and_comes_back_as_it_was(message: Message) -> None:
    line = protocol.encode(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n") and line.isascii()
    assert protocol.decode(line) == message


def test_a_record_comes_back_as_it_was_with_text_that_is_no_unicode(record: dict[str, Any]) -> None:
    decoded = protocol.decode(protocol.encode(Recorded(record)))
    assert isinstance(decoded, Recorded)
    assert decoded.record["reason"] == record["reason"]
    assert (decoded.record["cell"], decoded.record["stage"]) == ("Good", "fill")


def test_a_record_that_json_cannot_hold_is_not_sent(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        protocol.encode(Recorded(record | {"facts": {"ratio": float("nan")}}))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello\n", "not a JSON line: 'hello'"),
        (b'{"event":"stage","stage":"fi', "not a JSON line"),
        (b"\xff\xfe\n", "not a JSON line"),
        (b"[" * 100_000 + b"\n", "not a JSON line"),
        (b'{"event":"stage","stage":NaN}\n', "not a JSON line"),
        (b"[1]\n", "not a message"),
        (b'{"event":"cheer"}\n', "no known event"),
        (b'{"stage":"fill"}\n', "no known event"),
        (b'{"event":"stage"}\n', "a stage message with other fields"),
        (b'{"event":"done","more":1}\n', "a done message with other fields"),
        (b'{"event":"record","record":3}\n', "a record that lacks"),
        (b'{"event":"record","record":{"stage":"fill"}}\n', "a record that lacks"),
    ],
)
def test_what_is_no_message_is_refused_by_name(line: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        protocol.decode(line)


def test_a_record_of_no_known_outcome_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="outcome is 'fine'"):
        protocol.decode(protocol.encode(Recorded(record | {"outcome": "fine"})))


def test_a_long_line_is_quoted_by_its_start_only(record: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode(b"x" * 1_000_000)
    assert len(str(caught.value)) < 200
