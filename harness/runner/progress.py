"""What a person sees while cells run: cells done, the current cell and stage, time passed, time left. Manager side.

It is told everything by events and changes nothing. On a terminal it redraws at most a few times a second and never
from a thread, for drawing takes CPU time beside the worker that is being timed; elsewhere it writes one line a cell.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.cell import OUTCOMES, Cell
from harness.runner.manager import (
    CellFinished,
    CellStarted,
    Event,
    RunFinished,
    RunStarted,
    StageRecorded,
    StageStarted,
    Tick,
)

REDRAW_S = 0.25


class TimeLeft:
    """An estimate from what cells took so far: for every cell to come the median of its backend's cells, or of all
    cells where none of its backend has finished."""

    def __init__(self, to_run: Iterable[Cell]) -> None:
        self._left = Counter(c.backend for c in to_run)
        self._took_s: dict[str, list[float]] = defaultdict(list)

    def finished(self, cell: Cell, elapsed_s: float) -> None:
        self._left[cell.backend] -= 1
        self._took_s[cell.backend].append(elapsed_s)

    def seconds(self, current: Cell | None = None, current_s: float = 0.0) -> float | None:
        """Seconds left, ``current`` having run for ``current_s``; None while no cell has finished."""
        everything = [s for took in self._took_s.values() for s in took]
        if not everything:
            return None
        overall = statistics.median(everything)
        each = {b: statistics.median(self._took_s[b]) if self._took_s.get(b) else overall for b in self._left}
        total = sum(count * each[b] for b, count in self._left.items())
        return total - (min(current_s, each[current.backend]) if current else 0.0)


class Progress:
    """A display of a run; a context manager whose call takes the manager's events (``on_event=progress``)."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._started = clock()
        self._drawn = float("-inf")
        self._cells = self._done = 0
        self._left = TimeLeft(())
        self._cell: Cell | None = None
        self._cell_started = 0.0
        self._stage = ""
        self._of_cell: dict[str, dict[str, str]] = defaultdict(dict)  # outcomes by stage, by cell under way
        self._said_of: dict[str, set[str]] = defaultdict(set)
        self._outcomes: Counter[str] = Counter()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._started = self._clock()
                self._cells, self._done = event.cells, event.cells - len(event.to_run)
                self._left = TimeLeft(event.to_run)
                if self._done:
                    self._say(f"{self._done} of {self._cells} cells are recorded already")
            case CellStarted():
                self._cell, self._cell_started, self._stage = event.cell, self._clock(), "starting"
            case StageStarted():
                self._stage = event.stage
            case StageRecorded():
                self._recorded(event.record)
            case CellFinished():
                self._done += 1
                self._cell = None
                self._left.finished(event.cell, event.elapsed_s)
                if not self._live:
                    self._say(self._line(event))
                self._of_cell.pop(event.cell.id, None)
                self._said_of.pop(event.cell.id, None)
            case Tick() | RunFinished():
                pass
        self._draw(at_once=isinstance(event, Tick | RunFinished))

    def _recorded(self, record: Mapping[str, Any]) -> None:
        outcome = record["outcome"]
        self._outcomes[outcome] += 1
        cell = record["cell"]
        self._of_cell[cell][record["stage"]] = outcome
        complaint = f"{outcome}: {record['reason']}"
        # One cause mostly ends or spoils every stage of a cell: it is told once, for the stage that met it.
        fresh = not record.get("not_reached") and complaint not in self._said_of[cell]
        if fresh and not record.get("as_expected", outcome in ("ok", "unsupported")):
            self._said_of[cell].add(complaint)
            self._say(f"{cell}, {record['stage']}: {complaint}")

    def _line(self, event: CellFinished) -> str:
        outcomes = self._of_cell[event.cell.id]
        kinds = set(outcomes.values())
        said = kinds.pop() if len(kinds) == 1 else ", ".join(f"{s} {o}" for s, o in outcomes.items())
        return f"[{self._done}/{self._cells}] {event.cell.id}: {said}; {event.elapsed_s:.1f} s{self._left_said()}"

    def _left_said(self) -> str:
        left = self._left.seconds(self._cell, self._clock() - self._cell_started) if self._done < self._cells else None
        return "" if left is None else f", about {duration(left)} left"

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _draw(self, *, at_once: bool) -> None:
        at = self._clock()
        if self._live and (at_once or at - self._drawn >= REDRAW_S):
            self._drawn = at
            self._live.update(self._picture(at), refresh=True)

    def _picture(self, at: float) -> Group:
        counts = ", ".join(f"{self._outcomes[o]} {o}" for o in OUTCOMES if self._outcomes[o])
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(max(self._cells, 1), self._done, width=30), f"{self._done}/{self._cells} cells", counts)
        now = Text("", overflow="ellipsis", no_wrap=True)
        if self._cell:
            now.append(f"{self._cell.id}  {self._stage}  {duration(at - self._cell_started)}")
        return Group(bar, now, Text(f"{duration(at - self._started)} elapsed{self._left_said()}"))


def duration(seconds: float) -> str:
    """``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
