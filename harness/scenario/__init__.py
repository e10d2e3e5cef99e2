"""A scenario: a TOML file that asks a question, expanded into the points of its matrix. Manager side.

``load`` checks everything a file says (every unknown key, value and type is one line naming file, key and the nearest
valid name); ``expand`` makes the points, in an order and with ids that depend on nothing but the file and what was
set on the command line. Neither reads a vocabulary or imports a grammar library: that is ``harness.prepare``'s
business and the workers'. The file's format is described for people in scenarios/README.md.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from harness import paths
from harness.backends import registry
from harness.errors import MasktaxError
from harness.scenario.expansion import check_stale, expand, parse_overrides
from harness.scenario.model import (
    AXES,
    DEFAULT_ENVIRONMENT,
    INNER,
    OUTER,
    STAGES,
    Expected,
    Known,
    Point,
    Scenario,
    Variant,
    Workload,
    nearest,
    shown,
)  # fmt: skip
from harness.scenario.reading import read

if TYPE_CHECKING:
    from harness.corpora import Corpus

__all__ = [
    "AXES", "DEFAULT_ENVIRONMENT", "INNER", "OUTER", "STAGES", "Expected", "Known", "Point", "Scenario", "Variant",
    "Workload", "built_in", "expand", "find", "interpreters", "known", "load", "nearest", "parse_overrides", "shown",
]  # fmt: skip


def built_in() -> tuple[Path, ...]:
    """The built-in scenario files, by name."""
    return tuple(sorted(paths.scenarios().glob("*.toml")))


def find(scenario: str) -> Path:
    """The file that ``scenario`` means: a path, or a built-in scenario's name."""
    path = Path(scenario)
    if path.is_file():
        return path
    names = {p.stem: p for p in built_in()}
    if scenario in names:
        return names[scenario]
    if path.is_dir():
        raise MasktaxError(f"{scenario}: a folder, not a scenario file")
    if path.suffix == ".toml" or os.sep in scenario:
        raise MasktaxError(f"{scenario}: no such scenario file")
    raise MasktaxError(f"{scenario}: no scenario of that name{nearest(scenario, names)}")


def known(corpus: Corpus | None = None) -> Known:
    """What is known here: the catalogue's constraints and those of an outside corpus, the loaders' vocabularies, the
    registered backends."""
    from harness import catalogue, loaders

    profiles = {}
    for name in registry.names():
        try:
            profiles[name] = tuple(registry.create(name).profiles)
        except (ImportError, MasktaxError):
            continue  # a third party's adapter that only another environment can import: checked by its worker there
    outside = () if corpus is None else corpus.files
    return Known(
        (*catalogue.load(), *outside), tuple(loaders.names()), registry.names(), profiles, corpus=corpus is not None
    )


def load(path: Path, known_names: Known | None = None) -> Scenario:
    """Read and check a scenario file; MasktaxError, one line, for the first thing that is not right with it.

    ``known_names``: what the axes may name; by default what is known here.
    """
    scenario = read(path, known_names or known())
    check_stale(scenario)
    return scenario


def interpreters(scenario: Scenario, points: Iterable[Point]) -> dict[str, Path]:
    """``{environment: interpreter}`` for the environments that the points name; MasktaxError where one is not there.

    ``python`` may be a command found on PATH, or a path: absolute, with ``~``, or relative to the scenario's folder.
    """
    found: dict[str, Path] = {}
    for name in dict.fromkeys(point.environment for point in points):
        written = scenario.environments[name]
        if name == DEFAULT_ENVIRONMENT:
            found[name] = Path(sys.executable)
            continue
        if os.sep in written or written.startswith("~"):
            # Not resolved: a virtual environment's interpreter is a link, and following it would leave the environment.
            path = scenario.path.resolve().parent / Path(written).expanduser()
        else:
            path = Path(shutil.which(written) or written)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise MasktaxError(
                f"{shown(scenario.path)}: environments.{name}.python: {written}: no such interpreter"
                f"; make it, or leave it out with --set environment=…"
            )
        found[name] = path
    return found
