"""What a scenario is made of, and the points it expands into: plain data, and how it is named to people."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.cell import OutcomeKind
from harness.stages import stages

FORMAT = 1
DEFAULT_ENVIRONMENT = "default"

_STAGES = stages()
STAGES = tuple(_STAGES)
"""The stages a scenario may time, in the order in which they run."""

OUTER = ("backend", "environment", "vocabulary", "constraint", "profile", "process")
"""Axes that make cells."""

INNER: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    axis: {s.name: s.conditions[axis] for s in _STAGES.values() if axis in s.conditions}
    for axis in dict.fromkeys(axis for s in _STAGES.values() for axis in s.conditions)
}
"""Axes that label samples inside a cell: ``{axis: {stage that varies it: its values by default}}``. Values that are
names are all there are; where they are whole numbers any other may be asked for."""

AXES = (*OUTER, *INNER)

NUMERIC = frozenset(a for a, by in INNER.items() if all(isinstance(v, int) for vs in by.values() for v in vs))


@dataclass(frozen=True)
class Known:
    """What the axes of a scenario may name.

    constraints: every ``tier/name``; vocabularies, backends: names; profiles: ``{adapter: its profiles' names}``, for
    those adapters that this interpreter can import. corpus: whether an outside corpus is among the constraints.
    """

    constraints: tuple[str, ...]
    vocabularies: tuple[str, ...]
    backends: tuple[str, ...]
    profiles: Mapping[str, tuple[str, ...]]
    corpus: bool = False


@dataclass(frozen=True)
class Variant:
    """A backend under a name of its own: an adapter, and the options it is created with."""

    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What a cell does and within which limits. valid, invalid: how many instances of each (None: all there are).
    companions: constraints that share a batch with each cell's own, for stages that fill batches of several.
    time_cap_s: how long to measure under one set of conditions, None: as ``[measure]`` says."""

    stages: tuple[str, ...]
    valid: int | None = None
    invalid: int | None = None
    companions: tuple[str, ...] = ()
    time_limit_s: float = 120.0
    memory_limit_mb: int = 8192
    time_cap_s: float | None = None


@dataclass(frozen=True)
class Block:
    """Cells that belong together: the file's own axes, or one ``[[include]]``.

    place: key path in the file (``axes``, ``include[0]``). axes: values by axis (``process``: replicate numbers).
    own: the axes that this block names itself. reason: why an include is there. lacks_corpus: it names constraints of
    an outside corpus, and none is given, so that they are not among its axes.
    """

    place: str
    workload: Workload
    axes: Mapping[str, tuple[Any, ...]]
    own: frozenset[str]
    reason: str = ""
    lacks_corpus: bool = False


@dataclass(frozen=True)
class Rule:
    """An ``[[exclude]]`` or ``[[expect]]``: which cells, which stages of theirs (None: all), and why.

    patterns: globs by outer axis; a cell matches where each axis matches one of its globs. inner: values by inner
    axis, for an exclude only.
    """

    place: str
    reason: str
    patterns: Mapping[str, tuple[str, ...]]
    stages: tuple[str, ...] | None = None
    inner: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    outcome: OutcomeKind = "ok"

    def matches(self, values: Mapping[str, str]) -> bool:
        return all(any(fnmatchcase(values[axis], glob) for glob in globs) for axis, globs in self.patterns.items())


@dataclass(frozen=True)
class Scenario:
    """A checked scenario file. measure: keyword arguments of ``harness.measure.Plan``. environments:
    ``{name: interpreter}`` as written in the file (``interpreters`` resolves them). text: the file as it was read."""

    path: Path
    text: str
    name: str
    title: str
    question: str
    reading: str
    workload: Workload
    measure: Mapping[str, Any]
    blocks: tuple[Block, ...]
    variants: Mapping[str, Variant]
    environments: Mapping[str, str]
    excludes: tuple[Rule, ...]
    expects: tuple[Rule, ...]
    known: Known

    def variant(self, backend: str) -> Variant:
        """The adapter and options behind a name on the axis ``backend``."""
        return self.variants.get(backend) or Variant(backend)


@dataclass(frozen=True)
class Expected:
    """The outcome that a stage of a cell is expected to have, and why where it is not ``ok``. None: of a constraint
    that the project does not know, nothing is expected."""

    outcome: OutcomeKind | None = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Point:
    """One point of a scenario's matrix: a cell before its vocabulary and documents are prepared.

    workload.stages and conditions are what is left after the excludes; conditions hold only axes that a stage of this
    point varies. vocabulary_source: what ``harness.loaders`` is asked for (a name, or a path), vocabulary: its name.
    expected: ``{stage: Expected}``.
    """

    id: str
    scenario: str
    backend: str
    adapter: str
    options: Mapping[str, Any]
    environment: str
    vocabulary: str
    vocabulary_source: str
    constraint: str
    profile: str
    process: int
    workload: Workload
    conditions: Mapping[str, tuple[Any, ...]]
    expected: Mapping[str, Expected] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[str, ...]:
        return self.workload.stages

    @property
    def values(self) -> dict[str, str]:
        """The outer axes' values, as text for globs."""
        return {axis: str(getattr(self, axis)) for axis in OUTER}


# --- naming ---


def nearest(word: str, candidates: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where one of the candidates is close, else the candidates where they are few."""
    names = list(candidates)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:  # a tier left out or a case changed is close too, whatever the length
        tails = {name.rpartition("/")[2].lower(): name for name in names}
        close = [tails[tail] for tail in difflib.get_close_matches(word.rpartition("/")[2].lower(), tails, n=1)]
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 16 else ""


def vocabulary_name(source: str) -> str:
    """The name a vocabulary goes by in ids: its own, or that of the folder its tokenizer.json lies in."""
    if os.sep not in source:
        return source
    path = Path(source)
    if path.suffix == ".json":
        path = path.parent if path.name == "tokenizer.json" else path.with_suffix("")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", path.name)


def shown(path: Path) -> str:
    """The path as a person would type it: relative where it is below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
