"""``masktax list``: what there is to run, and to run it over."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.run import CORPUS, CORPUS_SAMPLE, JSON

if TYPE_CHECKING:
    from harness.corpora import Corpus

EXAMPLE = "[bold]Example[/bold]: masktax list schemas"


class What(StrEnum):
    scenarios = "scenarios"
    schemas = "schemas"
    vocabularies = "vocabularies"
    backends = "backends"


WHAT = typer.Argument(What.scenarios, help="What to list.")


def list_(
    what: What = WHAT,
    corpus: Path | None = CORPUS,
    corpus_sample: int | None = CORPUS_SAMPLE,
    as_json: bool = JSON,
) -> None:
    """List the built-in scenarios with their questions, or the schemas, vocabularies or backends.

    With an outside corpus, its schemas too, and the cells that scenarios have over it.
    """
    from harness import corpora

    match what:
        case What.scenarios:
            rows = _scenarios(corpora.given(corpus, corpus_sample))
        case What.schemas:
            rows = _schemas(corpora.given(corpus, corpus_sample))
        case What.vocabularies:
            rows = _vocabularies()
        case What.backends:
            rows = _backends()
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        _table(rows)


def _scenarios(corpus: Corpus | None) -> list[dict[str, Any]]:
    from harness import scenario as scenarios

    known = scenarios.known(corpus)
    loaded = [scenarios.load(path, known) for path in scenarios.built_in()]
    return [
        {"name": s.name, "cells": len(points), "stages": sum(len(p.stages) for p in points), "title": s.title,
         "question": " ".join(s.question.split())}
        for s in loaded
        for points in [scenarios.expand(s)]
    ]  # fmt: skip


def _schemas(corpus: Corpus | None) -> list[dict[str, Any]]:
    from harness import catalogue

    outside = corpus.read(corpus.files).entries.values() if corpus else ()
    return [
        {"name": e.name, "kind": e.constraint.syntax or e.constraint.kind, "complexity": e.complexity,
         "valid": len(e.valid) + len(e.valid_where), "invalid": len(e.invalid), "features": sorted(e.features),
         "about": e.about}
        for e in (*catalogue.load().values(), *outside)
    ]  # fmt: skip


def _vocabularies() -> list[dict[str, Any]]:
    from harness import loaders

    return [
        {"name": s.name, "default": s.name == loaders.DEFAULT, "package": s.distribution, "version": s.version,
         "description": s.description}
        for s in loaders.SOURCES
    ]  # fmt: skip


def _backends() -> list[dict[str, Any]]:
    from harness import doctor

    return [
        {"name": b.name, "version": b.version, "missing": b.reason, "kinds": sorted(b.kinds), "notes": dict(b.notes)}
        for b in doctor.backends()
    ]  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> None:
    """The rows for people: one line each, columns aligned, the last column wrapped."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=name == "name")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    console.print(table, highlight=False, markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {said}" for key, said in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
