"""The record format, its version and its store: a run as a folder of files, and as pandas frames. Manager side.

``RunStore`` is what a run is written with, ``load`` what everything else reads it with; docs/FORMAT.md documents the
files. Nothing here measures, judges or draws, and nothing here changes a number: raw samples go in and come out as
they are, statistics are derived on reading. Reading never writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.cell import OUTCOMES, RECORD_FORMAT
from harness.errors import MasktaxError

if TYPE_CHECKING:
    import pandas as pd

RUN_FILE, LINES_FILE, SAMPLES_FILE = "run.json", "cells.jsonl", "samples.parquet"

REQUIRED = ("scenario", "cell", "backend", "stage", "outcome")
"""What every line of cells.jsonl has at least, in every format."""

COORDINATES = (
    "run", "scenario", "cell", "backend", "environment", "vocabulary", "constraint", "tier", "kind", "profile",
    "process", "stage", "outcome",
)  # fmt: skip
"""Where a sample belongs; columns of every frame."""

LABELS = ("cache", "visit", "position", "document", "rollback_tokens", "draft_tokens")
"""Inner axes and per-sample labels that ``samples`` always has as columns; others are appended as they occur."""

INTEGERS = ("process", "position", "rollback_tokens", "draft_tokens")
"""Columns that are Int64 even where every value is missing."""

CONSTANTS = ("allowed_share", "bytes_moved", "bound_ns")
"""Per-sample columns that have one value in a measurement; ``measurements`` has them too."""

HEADLINE: Mapping[str, Mapping[str, Any]] = {
    "compile": {"cache": "new_schema"},
    "first_mask": {"cache": "warm"},
    "fill": {"visit": "later"},
}
"""Which conditions of a stage the statistics in ``cells`` are of, where a stage has several: what a serving engine
meets most often. A stage not named here, or without these conditions: the smallest value of each numeric axis, and the
value recorded first of any other. The column ``conditions`` says it beside the numbers."""

_STATISTICS = (
    "median_ns", "iqr_low_ns", "iqr_high_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns",
)  # fmt: skip
_DIFFERENCE = ("document", "step", "token", "token_bytes", "direction", "judge", "prefix", "explanation", "count")
_PARQUET_KEY = b"masktax"


Named = tuple[Mapping[str, Any], str]
"""A record and the name of its run."""


def now() -> str:
    """The time in UTC, to the second, as run.json writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunStore:
    """One run's folder, open for writing. Every record is on the disk before ``append`` returns.

    One writer at a time, held by a lock that goes with the process. Use ``create`` or ``open``; ``close`` (or a
    ``with`` block) gives the lock back.
    """

    def __init__(self, path: Path, run: dict[str, Any], lines: IO[bytes], recorded: set[tuple[str, str]]) -> None:
        self.path = path
        self.run = run
        self._lines = lines
        self._recorded = recorded

    @classmethod
    def create(cls, path: str | Path, run: Mapping[str, Any]) -> RunStore:
        """A new run in folder ``path``, made where absent. MasktaxError where the folder already holds a run."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise MasktaxError(f"{path} is a file; name another folder with -o")
        if (path / RUN_FILE).exists() or (path / LINES_FILE).exists():
            raise MasktaxError(f"{path} already holds a run: go on with it by --resume, or name another folder by -o")
        path.mkdir(parents=True, exist_ok=True)
        lines = _open_lines(path)
        from harness import __version__

        defaults = {
            "masktax": __version__,
            "run": path.resolve().name,
            "created_at": now(),
            "finished_at": None,
            "interrupted": False,
            "timed": True,
        }
        store = cls(path, defaults | dict(run) | {"format": RECORD_FORMAT}, lines, set())
        store.update()
        return store

    @classmethod
    def open(cls, path: str | Path) -> RunStore:
        """An existing run, to go on with. A last line torn by a kill is cut off; any other unreadable line is a
        MasktaxError naming file and line."""
        path = Path(path)
        run = _read_run(path)
        if run["format"] != RECORD_FORMAT:
            raise MasktaxError(
                f"{path} is of format {run['format']}, which is read but no longer written; start a new run by -o"
            )
        lines = _open_lines(path)
        try:
            whole = _whole_lines_bytes(path / LINES_FILE)
            if whole != (path / LINES_FILE).stat().st_size:
                lines.truncate(whole)
                os.fsync(lines.fileno())
            recorded = {(r["cell"], r["stage"]) for r in _read_lines(path)}
        except BaseException:
            lines.close()
            raise
        return cls(path, run, lines, recorded)

    def update(self, **fields: Any) -> None:
        """Set top-level fields of run.json and rewrite it: a reader sees the old file or the new one, never a half."""
        self.run = self.run | fields | {"format": RECORD_FORMAT}
        text = json.dumps(self.run, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        _write_atomically(self.path / RUN_FILE, text.encode())

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, flushed and fsynced. MasktaxError where it lacks a required field or its (cell, stage) is
        already there."""
        _check(record, f"record for {self.path}")
        key = (record["cell"], record["stage"])
        if key in self._recorded:
            raise MasktaxError(f"{self.path}: stage {key[1]} of cell {key[0]} is recorded already")
        try:
            line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError as error:
            raise MasktaxError(f"{self.path}: stage {key[1]} of cell {key[0]} cannot be written: {error}") from error
        # surrogatepass: a library's message may hold a lone surrogate, and must not cost the record.
        self._lines.write(line.encode(errors="surrogatepass") + b"\n")
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._recorded.add(key)

    def recorded(self) -> set[tuple[str, str]]:
        """The (cell, stage) pairs that are on the disk."""
        return set(self._recorded)

    def records(self) -> list[dict[str, Any]]:
        """The records so far, in the order written."""
        return list(_read_lines(self.path))

    def finish(self) -> None:
        """Write samples.parquet from the lines, atomically. May be called again after more records."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        frame = _samples([(record, self.run["run"]) for record in self.records()])
        table = pa.Table.from_pandas(frame, preserve_index=False)
        mark = {"format": RECORD_FORMAT, "run": self.run["run"], "lines_bytes": (self.path / LINES_FILE).stat().st_size}
        table = table.replace_schema_metadata({**table.schema.metadata, _PARQUET_KEY: json.dumps(mark).encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        _write_atomically(self.path / SAMPLES_FILE, sink.getvalue().to_pybytes())

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Run:
    """One run, or several read as one, as frames. docs/FORMAT.md lists every column.

    runs: run.json of each. paths: their folders. cells: one row per (cell, stage), with its outcome and, where it was
    timed, the statistics of its headline conditions. measurements: one row per (cell, stage, conditions). refusals: the
    conditions that were not timed while others of their stage were, with ``kind`` and ``reason``.
    """

    runs: tuple[dict[str, Any], ...]
    paths: tuple[Path, ...]
    cells: pd.DataFrame
    measurements: pd.DataFrame
    refusals: pd.DataFrame
    _records: tuple[Named, ...]

    @property
    def run(self) -> dict[str, Any]:
        """run.json; of the first run where several were loaded."""
        return self.runs[0]

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per raw sample: coordinates, labels (missing: NA), ``sample`` (its number within its measurement,
        in the order observed), ``time_ns`` per iteration, ``iterations``, ``outlier``, ``stop_reason``. Read from
        samples.parquet, or rebuilt from the lines where that is absent or older than they are."""
        if len(self.paths) == 1:
            frame = _read_parquet(self.paths[0], self.run["run"])
            if frame is not None:
                return frame
        return _samples(self._records)


def load(path: str | Path | Sequence[str | Path]) -> Run:
    """A run's results, or those of several runs, as tidy frames. A run still in progress, interrupted or killed is
    read as far as it got. MasktaxError where a path holds no run, is of a newer format, or cannot be read."""
    paths = tuple(Path(p) for p in ([path] if isinstance(path, str | Path) else path))
    if not paths:
        raise MasktaxError("no run named; give the folder of at least one, such as results/quick")
    runs = tuple(_read_run(p) for p in paths)
    names = [r["run"] for r in runs]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise MasktaxError(f"two of the runs are named {twice!r}; rename one in its {RUN_FILE}, or read them apart")
    named = tuple((record, name) for p, name in zip(paths, names, strict=True) for record in _read_lines(p))
    return Run(runs, paths, _cells(named), _measurements(named), _refusals(named), named)


# Files.


def _open_lines(path: Path) -> IO[bytes]:
    """cells.jsonl for appending, locked against a second writer."""
    lines = (path / LINES_FILE).open("ab")
    try:
        fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lines.close()
        raise MasktaxError(f"{path} is being written by another masktax; wait for it, or name another -o") from error
    return lines


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_run(path: Path) -> dict[str, Any]:
    """run.json, with the fields every format has; MasktaxError unless it is one this version reads."""
    file = path / RUN_FILE
    try:
        run = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MasktaxError(f"{path} is not a run: it has no {RUN_FILE}") from error
    except (OSError, ValueError) as error:
        raise MasktaxError(f"{file} cannot be read: {error}") from error
    number = run.get("format") if isinstance(run, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise MasktaxError(f"{file} is not a masktax run: it has no format number")
    if number > RECORD_FORMAT:
        raise MasktaxError(f"{file} is of format {number}; this masktax reads up to {RECORD_FORMAT}: upgrade masktax")
    run.setdefault("run", path.resolve().name)
    return dict(run)


def _whole_lines_bytes(file: Path) -> int:
    """How much of a file of lines ends in a newline: what follows was torn by a kill."""
    return file.read_bytes().rfind(b"\n") + 1 if file.exists() else 0


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of cells.jsonl, a torn last line left out."""
    file = path / LINES_FILE
    if not file.exists():
        if (path / SAMPLES_FILE).exists():
            raise MasktaxError(f"{path} has lost its {LINES_FILE}, which {SAMPLES_FILE} was made of; restore it")
        return
    seen: set[tuple[str, str]] = set()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line.decode(errors="surrogatepass"))
            except ValueError as error:
                raise MasktaxError(f"{file}:{number}: not a JSON line ({error}); restore or delete the line") from error
            _check(record, f"{file}:{number}")
            _check_parts(record, f"{file}:{number}")
            key = (record["cell"], record["stage"])
            if key in seen:
                raise MasktaxError(f"{file}:{number}: stage {key[1]} of cell {key[0]} is recorded twice; delete one")
            seen.add(key)
            yield record


def _check(record: object, place: str) -> None:
    if not isinstance(record, Mapping):
        raise MasktaxError(f"{place}: not a record (a JSON object was expected)")
    missing = [name for name in REQUIRED if not isinstance(record.get(name), str)]
    if missing:
        raise MasktaxError(f"{place}: a record without {missing[0]!r}")
    if record["outcome"] not in OUTCOMES:
        raise MasktaxError(f"{place}: outcome {record['outcome']!r} is none of {', '.join(OUTCOMES)}")
    number = record.get("format", RECORD_FORMAT)
    if not isinstance(number, int) or number > RECORD_FORMAT:
        raise MasktaxError(f"{place}: of format {number}; this masktax reads up to {RECORD_FORMAT}: upgrade masktax")


def _check_parts(record: Mapping[str, Any], place: str) -> None:
    """What is optional in a line is of the shape that docs/FORMAT.md gives it."""
    for name in ("difference", "clock", "facts", "options"):
        if not isinstance(record.get(name) or {}, Mapping):
            raise MasktaxError(f"{place}: {name!r} is no object; restore or delete the line")
    refusals = record.get("refusals") or []
    if not isinstance(refusals, list) or not all(
        isinstance(r, Mapping) and isinstance(r.get("conditions"), Mapping) and isinstance(r.get("reason"), str)
        for r in refusals
    ):
        raise MasktaxError(f"{place}: 'refusals' is no list of conditions with reasons; restore or delete the line")
    measurements = record.get("measurements") or []
    if not isinstance(measurements, list):
        raise MasktaxError(f"{place}: 'measurements' is no list; restore or delete the line")
    for number, measurement in enumerate(measurements):
        fault = _fault(measurement)
        if fault:
            raise MasktaxError(f"{place}: measurement {number}: {fault}; restore or delete the line")


def _fault(measurement: object) -> str:
    """What is wrong with a measurement's shape; empty where nothing is."""
    if not isinstance(measurement, Mapping):
        return "not an object"
    for name in ("conditions", "columns"):
        if not isinstance(measurement.get(name), Mapping):
            return f"{name!r} is no object"
    if not isinstance(measurement.get("stop_reason"), str):
        return "'stop_reason' is no text"
    samples = measurement.get("samples_ns")
    if not isinstance(samples, list) or any(type(t) not in (int, float) for t in samples):
        return "'samples_ns' is no list of numbers"
    labels = {name: measurement.get(name) for name in ("iterations", "outliers")} | dict(measurement["columns"])
    for name, values in labels.items():
        if not isinstance(values, list) or len(values) != len(samples):
            return f"{name!r} is no list of one value for each of {len(samples)} samples"
    return ""


def _read_parquet(path: Path, run: str) -> pd.DataFrame | None:
    """samples.parquet, or None where there is none or run.json or the lines have changed since."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = path / SAMPLES_FILE
    if not file.exists():
        return None
    try:
        metadata = pq.read_schema(file).metadata or {}
        mark = json.loads(metadata.get(_PARQUET_KEY, b"{}"))
        size = (path / LINES_FILE).stat().st_size
        if mark != {"format": RECORD_FORMAT, "run": run, "lines_bytes": size}:
            return None
        frame: pd.DataFrame = pq.read_table(file).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise MasktaxError(f"{file} cannot be read ({error}); delete it, it is rebuilt from {LINES_FILE}") from error
    return frame


# Frames.


def _column(name: str, values: list[Any]) -> Any:
    """A typed column with NA for None: Int64, Float64, boolean; anything else is a category of text."""
    import pandas as pd

    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int} or (not kinds and name in INTEGERS):
        return pd.array(values, dtype="Int64")
    if kinds and kinds <= {int, float}:
        return pd.array(values, dtype="Float64")
    texts = [None if v is None else _text(v) for v in values]
    return pd.Categorical(texts, categories=pd.Index(sorted({t for t in texts if t is not None}), dtype="str"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _coordinates(record: Mapping[str, Any], run: str) -> dict[str, Any]:
    named = {name: record.get(name) for name in COORDINATES} | {"run": run}
    named["tier"] = named["tier"] or str(record.get("constraint") or "").partition("/")[0]
    return named


def conditions_text(conditions: Mapping[str, Any]) -> str:
    """Conditions as one short text, ``cache=warm, rollback_tokens=4``; empty where there are none."""
    return ", ".join(f"{axis}={_text(value)}" for axis, value in conditions.items())


def _samples(named: Sequence[Named]) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    measured = [(record, run, m) for record, run in named for m in record.get("measurements") or ()]
    sizes = np.array([len(m["samples_ns"]) for *_, m in measured], dtype=np.int64)
    occurring = {name for *_, m in measured for name in (*m["conditions"], *m["columns"])}
    labels = (*LABELS, *sorted(occurring - set(LABELS)))

    repeated: dict[str, list[Any]] = {name: [] for name in (*COORDINATES, "stop_reason")}
    for record, run, m in measured:
        for name, value in _coordinates(record, run).items():
            repeated[name].append(value)
        repeated["stop_reason"].append(m["stop_reason"])
    rows = np.repeat(np.arange(len(measured)), sizes)

    columns: dict[str, Any] = {
        name: pd.Series(_column(name, values)).take(rows).array
        for name, values in repeated.items()
        if name != "stop_reason"
    }
    for name in labels:
        values: list[Any] = []
        for (*_, m), size in zip(measured, sizes.tolist(), strict=True):
            values.extend(m["columns"].get(name) or [m["conditions"].get(name)] * size)
        columns[name] = _column(name, values)
    columns["sample"] = pd.array([i for size in sizes.tolist() for i in range(size)], dtype="Int64")
    columns["time_ns"] = np.array([t for *_, m in measured for t in m["samples_ns"]], dtype=np.float64)
    columns["iterations"] = pd.array([n for *_, m in measured for n in m["iterations"]], dtype="Int64")
    columns["outlier"] = pd.Categorical(
        [label for *_, m in measured for label in m["outliers"]], categories=["", "mild", "severe"]
    )
    columns["stop_reason"] = pd.Series(_column("stop_reason", repeated["stop_reason"])).take(rows).array
    return pd.DataFrame(columns)


def _statistics(m: Mapping[str, Any] | None, clock: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a measurement (None: nothing was timed) gives."""
    from harness.stats import summary

    numbers = asdict(summary(m["samples_ns"] if m else ()))
    return {
        "conditions": conditions_text(m["conditions"]) if m else None,
        **{name: numbers[name] for name in _STATISTICS},
        "samples": numbers["samples"],
        "outliers": sum(bool(label) for label in m["outliers"]) if m else 0,
        "warmup_iterations": m.get("warmup_iterations", 0) if m else 0,
        "stop_reason": m["stop_reason"] if m else None,
        "clock": clock.get("name"),
        "clock_resolution_ns": clock.get("resolution_ns"),
        "clock_overhead_ns": clock.get("overhead_ns"),
    }


def headline(stage: str, measurements: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The measurement whose statistics stand for the stage in ``cells`` (see HEADLINE); None where there is none."""
    left = [m for m in measurements if m["samples_ns"]]
    for axis, value in HEADLINE.get(stage, {}).items():
        left = [m for m in left if m["conditions"].get(axis) == value] or left
    for axis in dict.fromkeys(axis for m in left for axis in m["conditions"]):
        values = [m["conditions"].get(axis) for m in left]
        numbers = [v for v in values if isinstance(v, int | float)]
        chosen = min(numbers) if numbers else values[0]
        left = [m for m in left if m["conditions"].get(axis) == chosen]
    return left[0] if left else None


def _cells(named: Sequence[Named]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for record, run in named:
        difference = record.get("difference") or {}
        clock = record.get("clock") or {}
        facts = record.get("facts") or {}
        rows.append(
            _coordinates(record, run)
            | {
                "adapter": record.get("adapter"),
                "options": _text(record.get("options") or {}),
                "vocabulary_sha256": record.get("vocabulary_sha256"),
                "constraint_sha256": record.get("constraint_sha256"),
                "reason": record.get("reason") or "",
                "not_reached": bool(record.get("not_reached")),
                "expected": record.get("expected"),
                "as_expected": bool(record.get("as_expected", True)),
                "expected_reason": record.get("expected_reason") or "",
            }
            | {f"difference_{name}": difference.get(name) for name in _DIFFERENCE}
            | _statistics(headline(record["stage"], record.get("measurements") or ()), clock)
            | {f"fact_{name}": value for name, value in facts.items()}
        )
    template = _coordinates({}, "") | dict.fromkeys(
        ("adapter", "options", "vocabulary_sha256", "constraint_sha256", "reason", "not_reached", "expected",
         "as_expected", "expected_reason", *(f"difference_{n}" for n in _DIFFERENCE), *_statistics(None, {}))
    )  # fmt: skip
    return _frame(rows, tuple(template))


def _measurements(named: Sequence[Named]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for record, run in named:
        for m in record.get("measurements") or ():
            labels = dict.fromkeys(LABELS) | dict(m["conditions"])
            labels |= {name: m["columns"][name][0] for name in CONSTANTS if m["columns"].get(name)}
            rows.append(_coordinates(record, run) | labels | _statistics(m, record.get("clock") or {}))
    return _frame(rows, (*COORDINATES, *LABELS, *_statistics(None, {})))


def _refusals(named: Sequence[Named]) -> pd.DataFrame:
    rows = [
        _coordinates(record, run)
        | dict.fromkeys(LABELS)
        | dict(refusal["conditions"])
        | {
            "conditions": conditions_text(refusal["conditions"]),
            "refusal": refusal["kind"],
            "refusal_reason": refusal["reason"],
        }
        for record, run in named
        for refusal in record.get("refusals") or ()
    ]
    return _frame(rows, (*COORDINATES, *LABELS, "conditions", "refusal", "refusal_reason"))


_NUMBERS = (*_STATISTICS, "clock_resolution_ns", "clock_overhead_ns")
_COUNTS = ("process", "samples", "outliers", "warmup_iterations", "difference_step", "difference_token",
           "difference_count")  # fmt: skip


def _frame(rows: Sequence[Mapping[str, Any]], always: Sequence[str]) -> pd.DataFrame:
    """Rows as a frame whose known columns have the same type whatever happened to occur in them."""
    import pandas as pd

    names = (*always, *dict.fromkeys(name for row in rows for name in row if name not in always))
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in _NUMBERS:
            columns[name] = pd.Series([float("nan") if v is None else v for v in values], dtype="float64")
        elif name in _COUNTS:
            columns[name] = pd.array(values, dtype="Int64")
        elif name in ("not_reached", "as_expected"):
            columns[name] = pd.Series(values, dtype="bool")
        elif name in LABELS or name in CONSTANTS or name.startswith("fact_"):
            columns[name] = _column(name, values)
        else:
            columns[name] = pd.Series([None if v is None else _text(v) for v in values], dtype="object")
    return pd.DataFrame(columns)
