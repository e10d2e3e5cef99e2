"""``masktax run``: measure, and keep what was measured."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import typer

EXAMPLE = "[bold]Example[/bold]: masktax run quick --set backend=xgrammar,llguidance --set process=1 -o results/two"

SCENARIOS = typer.Argument(..., metavar="SCENARIO", help="Scenario files, or names of built-in ones.")
SET = typer.Option(
    [], "--set", metavar="AXIS=V1,V2",
    help="Take these values of an axis instead of the scenario's. May be given for several axes.",
)  # fmt: skip
OUTPUT = typer.Option(
    None, "-o", "--output", metavar="DIR", help="Folder of the run. Default: results/<scenario>-<date>-<time>."
)
RESUME = typer.Option(
    False, "--resume", help="Go on with an interrupted run: the one in -o, else the newest of the scenario."
)
CORPUS = typer.Option(
    None, "--corpus", metavar="DIR",
    help="An outside corpus of schemas (files as MaskBench has them), for constraints named corpus/…. "
    "Default: $MASKTAX_CORPUS.",
)  # fmt: skip
CORPUS_SAMPLE = typer.Option(
    None, "--corpus-sample", metavar="N", min=1, help="Take N of the corpus's files, evenly over their sorted names."
)
JSON = typer.Option(False, "--json", help="Print the result as JSON on the standard output.")


def run(
    scenario: list[str] = SCENARIOS,
    assignments: list[str] = SET,
    output: Path | None = OUTPUT,
    resume: bool = RESUME,
    corpus: Path | None = CORPUS,
    corpus_sample: int | None = CORPUS_SAMPLE,
    as_json: bool = JSON,
) -> int:
    """Run scenarios: every cell in a process of its own, verified and then timed.

    Every record is on the disk the moment it is made. Exit status 1, after everything has run, where an outcome is
    not the one that the scenario expects.
    """
    from harness import corpora
    from harness import scenario as scenarios
    from harness.cli import EXIT_INTERRUPTED, EXIT_UNEXPECTED, session
    from harness.errors import MasktaxError
    from harness.results import RunStore
    from harness.runner import manager
    from harness.runner.progress import Progress

    overrides: session.Overrides = scenarios.parse_overrides(assignments)
    names = [scenarios.find(s).stem for s in scenario]
    folder = output or (session.unfinished(names) if resume else session.new_folder(names))
    if resume and not overrides:
        overrides = session.stored_overrides(folder)
    outside = session.stored_corpus(folder, corpus, corpus_sample) if resume else corpora.given(corpus, corpus_sample)
    batch = session.plan(scenario, overrides, outside)
    session.tell(batch.notes)
    again = session.resume_command(scenario, overrides, folder)
    with session.writing(folder):
        if resume:
            store = RunStore.open(folder)
        else:
            command = ["masktax", *sys.argv[1:]]
            store = RunStore.create(folder, session.run_fields(batch, command, timed=True))
    with store:
        if resume:
            session.check_unchanged(store, batch)
        try:
            with session.writing(folder, f"make room, then: {again}"), Progress() as display:
                summary = manager.run(
                    batch.cells, store, batch.environments, resume=resume, on_event=display, annotate=batch.annotate
                )
        except manager.Interrupted as interruption:
            print(f"masktax: {interruption}; go on with: {again}", file=sys.stderr)
            return EXIT_INTERRUPTED
        records = store.records()
    counts, surprises = session.outcome_counts(records), session.surprises(records)
    if not records:
        raise MasktaxError(f"{folder}: no record was made")
    shown = scenarios.shown(folder)
    if as_json:
        print(json.dumps({
            "run": str(folder), "cells": len(batch.cells), "stages": len(records), "outcomes": counts,
            "elapsed_s": round(summary.elapsed_s, 3), "unexpected": [asdict(s) for s in surprises],
            "without_expectation": [asdict(s) for s in session.unforeseen(records)],
        }, indent=1))  # fmt: skip
    else:
        print(f"{shown}: {len(batch.cells)} cells, {len(records)} stages, {summary.elapsed_s:.0f} s")
        print("  " + "   ".join(f"{outcome} {count}" for outcome, count in counts.items()))
        for line in session.outside_lines(batch, records):
            print(line)
        for surprise in surprises:
            print(f"unexpected: {surprise}")
        print(f"next: {shlex.join(['masktax', 'report', shown])}")
    return EXIT_UNEXPECTED if surprises else 0
