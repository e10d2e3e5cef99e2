"""``masktax verify``: is every outcome the expected one, and are the masks right? Nothing is timed or kept."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import typer

from harness.cli.run import CORPUS, CORPUS_SAMPLE, JSON, SCENARIOS, SET

EXAMPLE = "[bold]Example[/bold]: masktax verify scenarios/*.toml"


JOBS: int = typer.Option(0, "--jobs", "-j", min=0, help="Cells side by side; 0: as many as there are cores.")


def verify(
    scenario: list[str] = SCENARIOS,
    assignments: list[str] = SET,
    jobs: int = JOBS,
    corpus: Path | None = CORPUS,
    corpus_sample: int | None = CORPUS_SAMPLE,
    as_json: bool = JSON,
) -> int:
    """Run scenarios untimed, and compare every outcome with the expected one.

    Each cell is verified as before a measurement, then each stage's body runs once; of a cell's replicates only the
    first. Exit status 1 where an outcome is not the expected one; a wrong mask is told by cell, step, token and
    direction. Of an outside corpus nothing is expected: its outcomes are told, and do not change the status.
    """
    from harness import corpora
    from harness import scenario as scenarios
    from harness.cli import EXIT_INTERRUPTED, EXIT_UNEXPECTED, session
    from harness.results import RunStore
    from harness.runner import manager
    from harness.runner.progress import Progress

    batch = session.plan(scenario, scenarios.parse_overrides(assignments), corpora.given(corpus, corpus_sample))
    session.tell(batch.notes)
    # Replicates of a cell differ in nothing but their process, which a verdict does not depend on.
    cells = [c for c in batch.cells if c.process == 0]
    with tempfile.TemporaryDirectory(prefix="masktax-verify-") as folder, session.writing(Path(folder)):
        fields = session.run_fields(batch, ["masktax", *sys.argv[1:]], timed=False)
        with RunStore.create(Path(folder) / "verify", fields) as store:
            try:
                with Progress() as display:
                    manager.run(
                        cells, store, batch.environments,
                        timed=False, jobs=jobs or os.cpu_count() or 1, on_event=display, annotate=batch.annotate,
                    )  # fmt: skip
            except manager.Interrupted as interruption:
                print(f"masktax: {interruption.args[0]}; verify again from the start", file=sys.stderr)
                return EXIT_INTERRUPTED
            place = {cell.id: number for number, cell in enumerate(cells)}
            records = sorted(store.records(), key=lambda record: place[record["cell"]])  # side by side, cells mix
    counts, surprises = session.outcome_counts(records), session.surprises(records)
    if as_json:
        print(json.dumps({
            "cells": len(cells), "stages": len(records), "outcomes": counts,
            "unexpected": [asdict(s) for s in surprises],
            "without_expectation": [asdict(s) for s in session.unforeseen(records)],
        }, indent=1))  # fmt: skip
    else:
        for line in session.outside_lines(batch, records):
            print(line)
        for surprise in surprises:
            print(f"unexpected: {surprise}")
        verdict = "not as expected" if surprises else "as expected"
        said = ", ".join(f"{outcome} {count}" for outcome, count in counts.items())
        print(f"{len(cells)} cells, {len(records)} stages: {verdict} ({said})")
    return EXIT_UNEXPECTED if surprises else 0
