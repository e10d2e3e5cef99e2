"""A manager in a process of its own, for tests that kill it:  python -m tests.runner.managed RUN CELLS.json [--resume]

Prints one line per event (class, cell, stage; for a stage also its worker's pid), so that a test can act at a chosen
moment. Environments are not probed here, which takes longer than the tiny cells do; test_manager.py is about that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

from harness.cell import Cell
from harness.results import RunStore
from harness.runner import manager
from harness.runner.manager import Environment, Interrupted


def say(event: manager.Event) -> None:
    cell = event.cell.id if hasattr(event, "cell") else "-"
    stage = event.stage if isinstance(event, manager.StageStarted) else "-"
    workers = [str(p.pid) for p in psutil.Process().children()] if isinstance(event, manager.StageStarted) else []
    print(type(event).__name__, cell, stage, *workers, flush=True)


def main() -> int:
    manager.probe = lambda environment, backends=(): {"python": "", "masktax": "", "numpy": "", "packages": {}}
    path, cells = Path(sys.argv[1]), [Cell.from_json(c) for c in json.loads(Path(sys.argv[2]).read_text())]
    resume = "--resume" in sys.argv
    with RunStore.open(path) if resume else RunStore.create(path, {}) as store:
        try:
            manager.run(
                cells, store, {"default": Environment("default", Path(sys.executable))}, resume=resume, on_event=say
            )
        except Interrupted as error:
            print(f"Interrupted {error.done} {error.total} {error}", flush=True)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
