"""``masktax verify``: is every outcome the expected one, and are the masks right? Nothing is timed or kept."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from harness.cli.run import JSON, SCENARIOS, SET

EXAMPLE = "[bold]Example[/bold]: masktax verify scenarios/*.toml"


def verify(scenario: list[str] = SCENARIOS, assignments: list[str] = SET, as_json: bool = JSON) -> int:
    """Run scenarios untimed, and compare every outcome with the expected one.

    Each cell is verified as before a measurement, then each stage's body runs once. Exit status 1 where an outcome is
    not the expected one; a wrong mask is told by cell, step, token and direction.
    """
    from harness import scenario as scenarios
    from harness.cli import EXIT_INTERRUPTED, EXIT_UNEXPECTED, session
    from harness.results import RunStore
    from harness.runner import manager
    from harness.runner.progress import Progress

    batch = session.plan(scenario, scenarios.parse_overrides(assignments))
    with tempfile.TemporaryDirectory(prefix="masktax-verify-") as folder, session.writing(Path(folder)):
        fields = session.run_fields(batch, ["masktax", *sys.argv[1:]], timed=False)
        with RunStore.create(Path(folder) / "verify", fields) as store:
            try:
                with Progress() as display:
                    manager.run(
                        batch.cells, store, batch.environments,
                        timed=False, on_event=display, annotate=batch.annotate,
                    )  # fmt: skip
            except manager.Interrupted as interruption:
                print(f"masktax: {interruption.args[0]}; verify again from the start", file=sys.stderr)
                return EXIT_INTERRUPTED
            records = store.records()
    counts, surprises = session.outcome_counts(records), session.surprises(records)
    if as_json:
        print(json.dumps({
            "cells": len(batch.cells), "stages": len(records), "outcomes": counts,
            "unexpected": [asdict(s) for s in surprises],
        }, indent=1))  # fmt: skip
    else:
        for surprise in surprises:
            print(f"unexpected: {surprise}")
        verdict = "not as expected" if surprises else "as expected"
        said = ", ".join(f"{outcome} {count}" for outcome, count in counts.items())
        print(f"{len(batch.cells)} cells, {len(records)} stages: {verdict} ({said})")
    return EXIT_UNEXPECTED if surprises else 0
