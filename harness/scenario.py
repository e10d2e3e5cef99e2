"""A scenario: a TOML file that asks a question, expanded into the points of its matrix. Manager side.

``load`` checks everything a file says (every unknown key, value and type is one line naming file, key and the nearest
valid name); ``expand`` makes the points, in an order and with ids that depend on nothing but the file and what was
set on the command line. Neither reads a vocabulary or imports a grammar library: that is ``harness.prepare``'s
business and the workers'. The file's format is described for people in scenarios/README.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from harness import paths
from harness.backends import registry
from harness.cell import OUTCOMES, OutcomeKind
from harness.errors import MasktaxError
from harness.measure import Plan
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

_NUMERIC = frozenset(a for a, by in INNER.items() if all(isinstance(v, int) for vs in by.values() for v in vs))

# Bound of whole-number inner axes: what a matcher can be asked to rewind, or to look at, in one call.
_MAX_TOKENS = 1 << 16


@dataclass(frozen=True)
class Known:
    """What the axes of a scenario may name.

    constraints: every ``tier/name``; vocabularies, backends: names; profiles: ``{adapter: its profiles' names}``, for
    those adapters that this interpreter can import.
    """

    constraints: tuple[str, ...]
    vocabularies: tuple[str, ...]
    backends: tuple[str, ...]
    profiles: Mapping[str, tuple[str, ...]]


def known() -> Known:
    """What is known here: the catalogue's constraints, the loaders' vocabularies, the registered backends."""
    from harness import catalogue, loaders

    profiles = {}
    for name in registry.names():
        try:
            profiles[name] = tuple(registry.create(name).profiles)
        except (ImportError, MasktaxError):
            continue  # a third party's adapter that only another environment can import: checked by its worker there
    return Known(tuple(catalogue.load()), tuple(loaders.names()), registry.names(), profiles)


@dataclass(frozen=True)
class Variant:
    """A backend under a name of its own: an adapter, and the options it is created with."""

    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What a cell does and within which limits. valid, invalid: how many instances of each (None: all there are)."""

    stages: tuple[str, ...]
    valid: int | None = None
    invalid: int | None = None
    verify_rows: int = 24
    time_limit_s: float = 120.0
    memory_limit_mb: int = 8192


@dataclass(frozen=True)
class Block:
    """Cells that belong together: the file's own axes, or one ``[[include]]``.

    place: key path in the file (``axes``, ``include[0]``). axes: values by axis (``process``: replicate numbers).
    own: the axes that this block names itself. reason: why an include is there.
    """

    place: str
    workload: Workload
    axes: Mapping[str, tuple[Any, ...]]
    own: frozenset[str]
    reason: str = ""


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


@dataclass(frozen=True)
class Expected:
    """The outcome that a stage of a cell is expected to have, and why where it is not ``ok``."""

    outcome: OutcomeKind = "ok"
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


# --- finding and naming ------------------------------------------------------------------------------------------


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


# --- reading a file ----------------------------------------------------------------------------------------------

_TOP = (
    "format", "name", "title", "analysis", "workload", "measure", "axes", "variants", "environments", "include",
    "exclude", "expect",
)  # fmt: skip
_REQUIRED: Any = object()


@dataclass(frozen=True)
class _Table:
    """One table of the file and where it is, so that every complaint names its place. folder: the file's."""

    file: str
    place: str
    data: Mapping[str, Any]
    folder: Path = Path()

    def at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def fail(self, key: str, message: str) -> NoReturn:
        raise MasktaxError(f"{self.file}: {self.at(key) if key else self.place}: {message}")

    def only(self, allowed: Sequence[str]) -> None:
        for key in self.data:
            if key not in allowed:
                self.fail(key, f"unknown key{nearest(key, allowed)}")

    def _get(self, key: str, default: Any) -> Any:
        if key not in self.data:
            if default is _REQUIRED:
                self.fail(key, "missing, and required")
            return default
        return self.data[key]

    def table(self, key: str, default: Any = _REQUIRED) -> _Table:
        value = self._get(key, default)
        if not isinstance(value, dict):
            self.fail(key, f"must be a table ([{self.at(key)}]), not {_kind(value)}")
        return replace(self, place=self.at(key), data=value)

    def tables(self, key: str) -> list[_Table]:
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            self.fail(key, f"must be written [[{self.at(key)}]], once for each")
        return [replace(self, place=f"{self.at(key)}[{i}]", data=v) for i, v in enumerate(value)]

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            self.fail(key, f"must be text, not {_kind(value)}")
        if not value.strip():
            self.fail(key, "is empty")
        return str(value).strip()

    def whole(self, key: str, default: Any, least: int = 1) -> Any:
        value = self._get(key, default)
        if key not in self.data:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"must be a whole number, not {_kind(value)}")
        if value < least:
            self.fail(key, f"must be at least {least}, not {value}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"must be a number, not {_kind(value)}")
        return float(value)

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if not (value > 0 and math.isfinite(value)):
            self.fail(key, f"must be positive, not {value}")
        return value

    def items(self, key: str) -> list[Any]:
        """The value as a non-empty list of distinct values; a single value stands for a list of one."""
        value = self._get(key, _REQUIRED)
        values = value if isinstance(value, list) else [value]
        if not values:
            self.fail(key, "is an empty list; leave it out, or name a value")
        for i, v in enumerate(values):
            if v in values[:i]:
                self.fail(key, f"names {v!r} twice")
        return values

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.items(key)
        for v in values:
            if not isinstance(v, str) or not v:
                self.fail(key, f"must be text or a list of texts, not {_kind(v)}")
        return tuple(values)


def _kind(value: Any) -> str:
    names = {bool: "true/false", int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return f"{names.get(type(value), type(value).__name__)} ({str(value)[:40]})"


def load(path: Path, known_names: Known | None = None) -> Scenario:
    """Read and check a scenario file; MasktaxError, one line, for the first thing that is not right with it.

    ``known_names``: what the axes may name; by default what is known here.
    """
    shown = _shown(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MasktaxError(f"{shown}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise MasktaxError(f"{shown}: cannot be read: {error.strerror}") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MasktaxError(f"{shown}: not TOML: {error}") from error
    return _scenario(path, text, _Table(shown, "", data, path.resolve().parent), known_names or known())


def _scenario(path: Path, text: str, top: _Table, names: Known) -> Scenario:
    top.only(_TOP)
    form = top.whole("format", _REQUIRED)
    if form != FORMAT:
        top.fail("format", f"is {form}; this version reads format {FORMAT}")
    name = top.text("name")
    if name != path.stem:
        top.fail("name", f"is {name!r}, but the file is called {path.stem!r}: they must be the same")
    analysis = top.table("analysis")
    analysis.only(["question", "reading"])
    workload = _workload(top.table("workload"), None)
    variants = _variants(top.table("variants", {}), names)
    environments = _environments(top.table("environments", {}))
    axes = _axes(top.table("axes"), names, variants, environments, ())
    _check_inner(top.table("axes"), axes, workload.stages)
    axes = {"environment": (DEFAULT_ENVIRONMENT,), "profile": ("default",), "process": (0,)} | axes
    for axis in ("backend", "vocabulary", "constraint"):
        if axis not in axes:
            top.table("axes").fail(axis, "missing, and required")
    includes = [_include(t, workload, axes, names, variants, environments) for t in top.tables("include")]
    scenario = Scenario(
        path=path,
        text=text,
        name=name,
        title=top.text("title"),
        question=analysis.text("question"),
        reading=analysis.text("reading"),
        workload=workload,
        measure=_measure(top.table("measure", {})),
        blocks=(Block("axes", workload, axes, frozenset(axes)), *includes),
        variants=variants,
        environments=environments,
        excludes=tuple(_rule(t, workload, "exclude") for t in top.tables("exclude")),
        expects=tuple(_rule(t, workload, "expect") for t in top.tables("expect")),
        known=names,
    )
    _check_profiles(scenario, top)
    _check_stale(scenario)
    return scenario


def _workload(table: _Table, base: Workload | None) -> Workload:
    """The ``[workload]`` table, or (with ``base``) what an include says differently."""
    keys = [f.name for f in dataclasses.fields(Workload)]
    if base is None:
        table.only(keys)
    stages = _stages(table, STAGES) if base is None or "stages" in table.data else base.stages
    start = base or Workload(stages)
    return Workload(
        stages=stages,
        valid=table.whole("valid", start.valid),
        invalid=table.whole("invalid", start.invalid),
        verify_rows=table.whole("verify_rows", start.verify_rows, least=0),
        time_limit_s=table.positive("time_limit_s", start.time_limit_s),
        memory_limit_mb=table.whole("memory_limit_mb", start.memory_limit_mb),
    )


def _stages(table: _Table, allowed: Sequence[str]) -> tuple[str, ...]:
    """The stages named, in the order in which they run."""
    named = table.texts("stages")
    for stage in named:
        if stage not in STAGES:
            table.fail("stages", f"unknown stage {stage!r}{nearest(stage, STAGES)}")
        if stage not in allowed:
            table.fail("stages", f"stage {stage!r} is not one of this scenario's: {', '.join(allowed)}")
    return tuple(stage for stage in STAGES if stage in named)


def _measure(table: _Table) -> dict[str, Any]:
    """The ``[measure]`` table: keyword arguments of Plan, which itself checks their ranges."""
    table.only(Plan.names())
    for key in table.data:
        if isinstance(getattr(Plan(), key), int):
            table.whole(key, None, least=0)
        else:
            table.number(key, 0.0)
    try:
        Plan(**table.data)
    except MasktaxError as error:
        raise MasktaxError(f"{table.file}: {error}") from error
    return dict(table.data)


def _variants(table: _Table, names: Known) -> dict[str, Variant]:
    variants = {}
    for name in table.data:
        variant = table.table(name)
        variant.only(["adapter", "options"])
        if name in names.backends:
            table.fail(name, "is the name of a backend; give the variant another one")
        _check_name(table, name)
        adapter = variant.text("adapter")
        if adapter not in names.backends and ":" not in adapter:
            variant.fail("adapter", f"unknown backend {adapter!r}{nearest(adapter, names.backends)}")
        options = dict(variant.table("options", {}).data)
        if adapter in names.profiles:  # an adapter of another environment is checked there, by its worker
            try:
                registry.create(adapter, options)
            except MasktaxError as error:
                variant.fail("options", str(error))
        variants[name] = Variant(adapter, options)
    return variants


def _environments(table: _Table) -> dict[str, str]:
    environments = {DEFAULT_ENVIRONMENT: ""}
    for name in table.data:
        environment = table.table(name)
        environment.only(["python"])
        if name == DEFAULT_ENVIRONMENT:
            table.fail(name, "is the interpreter that masktax itself runs in; give this one another name")
        _check_name(table, name)
        environments[name] = environment.text("python")
    return environments


def _check_name(table: _Table, name: str) -> None:
    """Names become parts of ids: no separators, no globs."""
    if not name or set(name) & set("/@*?[]= ,:"):
        table.fail(name, "a name may not hold spaces or any of / @ * ? [ ] = , :")


def _axes(
    table: _Table,
    names: Known,
    variants: Mapping[str, Variant],
    environments: Mapping[str, str],
    also: Sequence[str],
) -> dict[str, tuple[Any, ...]]:
    """The axes that a table names, checked. ``also``: keys that are allowed beside them."""
    table.only([*AXES, *also])
    return {axis: _values(table, axis, names, variants, environments) for axis in AXES if axis in table.data}


def _values(
    table: _Table, axis: str, names: Known, variants: Mapping[str, Variant], environments: Mapping[str, str]
) -> tuple[Any, ...]:
    """The values of one axis, checked; globs over constraints are resolved, each constraint once."""
    if axis == "process":
        return tuple(range(table.whole(axis, _REQUIRED)))
    if axis in _NUMERIC:
        values = table.items(axis)
        for v in values:
            if isinstance(v, bool) or not isinstance(v, int) or not 1 <= v <= _MAX_TOKENS:
                table.fail(axis, f"must be whole numbers from 1 to {_MAX_TOKENS}, not {_kind(v)}")
        return tuple(values)
    texts = table.texts(axis)
    if axis == "constraint":
        chosen: dict[str, None] = {}
        for glob in texts:
            matching = [c for c in names.constraints if fnmatchcase(c, glob)]
            if not matching:
                hint = nearest(glob, names.constraints) or "; see `masktax list schemas`"
                table.fail(axis, f"no constraint matches {glob!r}{hint}")
            chosen.update(dict.fromkeys(matching))
        return tuple(chosen)
    allowed: Sequence[str]
    if axis == "backend":
        allowed = (*variants, *names.backends)
    elif axis == "environment":
        allowed = tuple(environments)
    elif axis == "vocabulary":
        return _vocabularies(table, texts, names)
    elif axis == "profile":
        allowed = tuple(dict.fromkeys(itertools.chain(("default",), *names.profiles.values())))
    else:
        allowed = tuple(dict.fromkeys(itertools.chain(*INNER[axis].values())))
    for value in texts:
        if value not in allowed:
            table.fail(axis, f"unknown {axis} {value!r}{nearest(value, allowed)}")
    return texts


def _vocabularies(table: _Table, texts: Sequence[str], names: Known) -> tuple[str, ...]:
    """Names, or paths of local tokenizer files: relative ones to the scenario's folder (on the command line, to the
    current one)."""
    found = []
    for text in texts:
        path = table.folder / Path(text).expanduser()
        if text in names.vocabularies:
            found.append(text)
        elif (os.sep in text or path.suffix == ".json") and path.exists():
            found.append(str(path.resolve()))
        elif os.sep in text or path.suffix == ".json":
            table.fail("vocabulary", f"{text}: no such file or folder")
        else:
            table.fail("vocabulary", f"unknown vocabulary {text!r}{nearest(text, names.vocabularies)}")
    called = [vocabulary_name(v) for v in found]
    for i, name in enumerate(called):
        if name in called[:i]:
            table.fail("vocabulary", f"two vocabularies are called {name!r}; rename the folder of one")
    return tuple(found)


def vocabulary_name(source: str) -> str:
    """The name a vocabulary goes by in ids: its own, or that of the folder its tokenizer.json lies in."""
    if os.sep not in source:
        return source
    path = Path(source)
    if path.suffix == ".json":
        path = path.parent if path.name == "tokenizer.json" else path.with_suffix("")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", path.name)


def _check_inner(table: _Table, own: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """An inner axis is named only beside a stage that varies it."""
    for axis, by_stage in INNER.items():
        if axis in own and not by_stage.keys() & set(chosen):
            who = " and ".join(map(repr, by_stage))
            table.fail(axis, f"only {who} varies it, and that is not among the stages")


def _include(
    table: _Table,
    workload: Workload,
    axes: Mapping[str, tuple[Any, ...]],
    names: Known,
    variants: Mapping[str, Variant],
    environments: Mapping[str, str],
) -> Block:
    keys = [f.name for f in dataclasses.fields(Workload)]
    own = _axes(table, names, variants, environments, [*keys, "reason"])
    differing = _workload(table, workload)
    _check_inner(table, own, differing.stages)
    return Block(table.place, differing, {**axes, **own}, frozenset(own), table.text("reason"))


def _rule(table: _Table, workload: Workload, kind: str) -> Rule:
    """An exclude or an expect. Values are globs, checked for staleness against the cells, not by name."""
    inner_axes = tuple(INNER) if kind == "exclude" else ()
    table.only([*OUTER, *inner_axes, "stages", "reason", *(["outcome"] if kind == "expect" else [])])
    patterns: dict[str, tuple[str, ...]] = {}
    for axis in OUTER:
        if axis == "process" and axis in table.data:
            for v in table.items(axis):
                if isinstance(v, bool) or not isinstance(v, int):
                    table.fail(axis, f"must be replicate numbers (from 0), not {_kind(v)}")
            patterns[axis] = tuple(map(str, table.items(axis)))
        elif axis in table.data:
            patterns[axis] = table.texts(axis)
    inner = {axis: tuple(table.items(axis)) for axis in inner_axes if axis in table.data}
    stages = _stages(table, STAGES) if "stages" in table.data else None
    if inner and stages is not None:
        table.fail("stages", "an exclude takes out stages or values of an inner axis, not both; write two")
    if not patterns and not inner and stages is None:
        table.fail("", f"names no axis and no stage, so it would {kind} everything")
    outcome: OutcomeKind = "ok"
    if kind == "expect":
        said = table.text("outcome")
        if said not in OUTCOMES:
            table.fail("outcome", f"unknown outcome {said!r}{nearest(said, OUTCOMES)}")
        outcome = next(o for o in OUTCOMES if o == said)
    return Rule(table.place, table.text("reason"), patterns, stages, inner, outcome)


def _check_profiles(scenario: Scenario, top: _Table) -> None:
    """A profile that no backend beside it declares is a mistake; one that some lack is an honest ``unsupported``."""
    for block in scenario.blocks:
        adapters = {_variant(scenario, backend).adapter for backend in block.axes["backend"]}
        if not adapters <= scenario.known.profiles.keys():
            continue
        declared = tuple(dict.fromkeys(itertools.chain(*(scenario.known.profiles[a] for a in sorted(adapters)))))
        for profile in block.axes["profile"]:
            if profile not in declared:
                place = _Table(top.file, block.place, {})
                place.fail("profile", f"no backend here has a profile {profile!r}{nearest(profile, declared)}")


def _shown(path: Path) -> str:
    """The path as a person would type it: relative where it is below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# --- expanding ---------------------------------------------------------------------------------------------------


def parse_overrides(assignments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``["backend=xgrammar,naive", …]`` as a mapping; MasktaxError for anything else."""
    overrides: dict[str, tuple[str, ...]] = {}
    for assignment in assignments:
        axis, equals, values = assignment.partition("=")
        if not equals or not values:
            raise MasktaxError(f"--set {assignment}: write axis=value or axis=value1,value2")
        if axis not in (*AXES, "stages"):
            raise MasktaxError(f"--set {assignment}: unknown axis {axis!r}{nearest(axis, (*AXES, 'stages'))}")
        if axis in overrides:
            raise MasktaxError(f"--set {assignment}: {axis} is set twice; separate values with commas")
        overrides[axis] = tuple(value.strip() for value in values.split(","))
    return overrides


def expand(scenario: Scenario, overrides: Mapping[str, Sequence[str]] | None = None) -> list[Point]:
    """The points of the scenario, each id once.

    overrides: values by axis, as ``--set`` gives them. They replace the values of ``[axes]``. An include that names
    the axis itself keeps those of its values that are also set, and is dropped where none is left; ``process`` (a
    number of replicates) is replaced there too. ``stages`` may be set as well: only those named are kept, everywhere.

    Replicates come outermost, so that the processes of one point lie far apart in time and share less of a passing
    disturbance; backends come innermost, so that what is compared runs close together.
    """
    points, reasons = _points(scenario, _checked(scenario, overrides or {}))
    if not points:
        because = f": {reasons[0]}" if reasons else ""
        raise MasktaxError(f"{_shown(scenario.path)}: no cell is left to run{because}")
    return [replace(point, expected=_expected(scenario, point)) for point in points]


def _checked(scenario: Scenario, overrides: Mapping[str, Sequence[str]]) -> dict[str, tuple[Any, ...]]:
    """Overrides in their axes' own types, checked as the file's values are."""
    checked: dict[str, tuple[Any, ...]] = {}
    for axis, values in overrides.items():
        if axis not in (*AXES, "stages"):
            raise MasktaxError(f"--set: unknown axis {axis!r}{nearest(axis, (*AXES, 'stages'))}")
        raw: list[Any] = list(values)
        if axis == "process" or axis in _NUMERIC:
            raw = [int(v) if v.isascii() and v.isdigit() else v for v in values]
        data: Any = raw[0] if axis == "process" and len(raw) == 1 else raw
        table = _Table(f"--set {axis}={','.join(values)}", "", {axis: data})
        if axis == "stages":
            checked[axis] = _stages(table, scenario.workload.stages)
            continue
        checked[axis] = _values(table, axis, scenario.known, scenario.variants, scenario.environments)
        if axis in INNER and not any(INNER[axis].keys() & set(block.workload.stages) for block in scenario.blocks):
            table.fail(axis, f"scenario {scenario.name} has no stage that varies it")
    return checked


def _override(block: Block, overrides: Mapping[str, tuple[Any, ...]]) -> Block | None:
    """The block with the overrides in force; None where nothing is left of it."""
    axes = dict(block.axes)
    workload = block.workload
    for axis, values in overrides.items():
        if axis == "stages":
            workload = replace(workload, stages=tuple(s for s in workload.stages if s in values))
            if not workload.stages:
                return None
        elif block.place != "axes" and axis in block.own and axis != "process":
            axes[axis] = tuple(v for v in axes[axis] if v in values)
            if not axes[axis]:
                return None
        else:
            axes[axis] = values
    return replace(block, axes=axes, workload=workload)


def _points(scenario: Scenario, overrides: Mapping[str, tuple[Any, ...]]) -> tuple[list[Point], list[str]]:
    """The points without their expectations, and the reasons of the excludes that took any out."""
    points: dict[str, Point] = {}
    reasons: list[str] = []
    for block in scenario.blocks:
        changed = _override(block, overrides)
        if changed is None:
            continue
        # A block that runs other stages than the scenario's says so in its ids; the suffix is made of what the file
        # says, so that setting something on the command line never renames a cell.
        suffix = () if block.workload.stages == scenario.workload.stages else ("+".join(block.workload.stages),)
        for point in _product(scenario, changed, suffix):
            kept = _exclude(scenario, point, reasons)
            if kept is None:
                continue
            known_point = points.get(kept.id)
            points[kept.id] = kept if known_point is None else _merge(known_point, kept)
    return list(points.values()), reasons


def _product(scenario: Scenario, block: Block, suffix: tuple[str, ...]) -> Iterable[Point]:
    axes = block.axes
    conditions = _conditions(axes, block.workload.stages)
    for process, vocabulary, constraint, profile, environment, backend in itertools.product(
        axes["process"], axes["vocabulary"], axes["constraint"], axes["profile"], axes["environment"], axes["backend"]
    ):
        variant = _variant(scenario, backend)
        where = backend if environment == DEFAULT_ENVIRONMENT else f"{backend}@{environment}"
        yield Point(
            id="/".join(
                (scenario.name, where, vocabulary_name(vocabulary), constraint, profile, f"p{process}", *suffix)
            ),
            scenario=scenario.name,
            backend=backend,
            adapter=variant.adapter,
            options=variant.options,
            environment=environment,
            vocabulary=vocabulary_name(vocabulary),
            vocabulary_source=vocabulary,
            constraint=constraint,
            profile=profile,
            process=process,
            workload=block.workload,
            conditions=conditions,
        )


def _conditions(axes: Mapping[str, tuple[Any, ...]], chosen: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The inner axes that the stages vary, each with all its values, the defaults included.

    Stages share an axis's name (``cache`` of compile and of first_mask) but not its values: a stage none of whose
    values are named keeps all of its own.
    """
    conditions: dict[str, tuple[Any, ...]] = {}
    for axis, by_stage in INNER.items():
        named = axes.get(axis, ())
        values: list[Any] = []
        for defaults in (by_stage[stage] for stage in chosen if stage in by_stage):
            values += (named or defaults) if axis in _NUMERIC else ([v for v in named if v in defaults] or defaults)
        if values:
            conditions[axis] = tuple(dict.fromkeys(values))
    return conditions


def _variant(scenario: Scenario, backend: str) -> Variant:
    return scenario.variants.get(backend) or Variant(backend)


def _exclude(scenario: Scenario, point: Point, reasons: list[str]) -> Point | None:
    """The point without what the excludes take out; None where nothing is left."""
    for rule in scenario.excludes:
        if not _takes(rule, point):
            continue
        reasons.append(f"{rule.place} ({rule.reason})")
        if rule.inner:
            left = {a: tuple(v for v in vs if v not in rule.inner.get(a, ())) for a, vs in point.conditions.items()}
            kept = [s for s in point.stages if _varies(s, point.conditions) <= _varies(s, left)]
        elif rule.stages is not None:
            left = dict(point.conditions)
            kept = [s for s in point.stages if s not in rule.stages]
        else:
            return None
        if not kept:
            return None
        own = {axis: {v for s in kept if s in INNER[axis] for v in _values_of(s, axis, left)} for axis in left}
        conditions = {a: tuple(v for v in vs if v in own[a]) for a, vs in left.items() if own[a]}
        point = replace(point, conditions=conditions, workload=replace(point.workload, stages=tuple(kept)))
    return point


def _values_of(stage: str, axis: str, conditions: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """Which of an inner axis's values a stage of the point runs under."""
    values = conditions.get(axis, ())
    return values if axis in _NUMERIC else tuple(v for v in values if v in INNER[axis].get(stage, ()))


def _varies(stage: str, conditions: Mapping[str, tuple[Any, ...]]) -> set[str]:
    """The inner axes that a stage has any value of."""
    return {axis for axis, by_stage in INNER.items() if stage in by_stage and _values_of(stage, axis, conditions)}


def _takes(rule: Rule, point: Point) -> bool:
    """Whether an exclude takes anything out of the point."""
    if not rule.matches(point.values):
        return False
    if rule.inner:
        return any(v in rule.inner.get(axis, ()) for axis, values in point.conditions.items() for v in values)
    return rule.stages is None or any(stage in rule.stages for stage in point.stages)


def _merge(one: Point, other: Point) -> Point:
    """Two blocks meet in one cell (same id): it does what either asks."""
    conditions = dict(one.conditions)
    for axis, values in other.conditions.items():
        conditions[axis] = tuple(dict.fromkeys((*conditions.get(axis, ()), *values)))
    both = {*one.stages, *other.stages}
    a, b = one.workload, other.workload
    workload = Workload(
        stages=tuple(stage for stage in STAGES if stage in both),
        valid=None if a.valid is None or b.valid is None else max(a.valid, b.valid),
        invalid=None if a.invalid is None or b.invalid is None else max(a.invalid, b.invalid),
        verify_rows=max(a.verify_rows, b.verify_rows),
        time_limit_s=max(a.time_limit_s, b.time_limit_s),
        memory_limit_mb=max(a.memory_limit_mb, b.memory_limit_mb),
    )
    return replace(one, conditions=conditions, workload=workload)


def _expected(scenario: Scenario, point: Point) -> dict[str, Expected]:
    """For every stage of the point, the last expect that matches, else ``ok``."""
    winners = _winners(scenario, point)
    return {s: Expected() if r is None else Expected(r.outcome, r.reason) for s, r in winners.items()}


def _winners(scenario: Scenario, point: Point) -> dict[str, Rule | None]:
    winners: dict[str, Rule | None] = dict.fromkeys(point.stages)
    values = point.values
    for rule in scenario.expects:
        if rule.matches(values):
            winners |= {stage: rule for stage in point.stages if rule.stages is None or stage in rule.stages}
    return winners


def _check_stale(scenario: Scenario) -> None:
    """Every include, exclude and expect of the file must do something; one that does not is out of date."""
    file = _shown(scenario.path)
    bare = replace(scenario, excludes=())
    seen: dict[str, Point] = {}
    for block in scenario.blocks:
        points = _points(replace(bare, blocks=(block,)), {})[0]
        if all(p.id in seen and _merge(seen[p.id], p) == seen[p.id] for p in points):
            raise MasktaxError(f"{file}: {block.place}: adds nothing that the blocks before it do not have")
        seen |= {p.id: _merge(seen[p.id], p) if p.id in seen else p for p in points}
    for rule in scenario.excludes:
        if not any(_takes(rule, point) for point in seen.values()):
            _stale(scenario, rule, seen.values(), "excludes nothing")
    points, reasons = _points(scenario, {})
    if not points:
        raise MasktaxError(f"{file}: no cell is left to run: {reasons[0]}")
    used = {id(rule) for point in points for rule in _winners(scenario, point).values() if rule is not None}
    for rule in scenario.expects:
        if id(rule) not in used:
            reached = any(
                rule.matches(p.values) and (rule.stages is None or {*rule.stages} & {*p.stages}) for p in points
            )
            what = "is overruled everywhere by later ones" if reached else "matches no cell"
            _stale(scenario, rule, points, what)


def _stale(scenario: Scenario, rule: Rule, points: Iterable[Point], what: str) -> NoReturn:
    """Complain, with the nearest value where one of the rule's globs matches nothing on its axis."""
    points = list(points)
    hint = ""
    for axis, globs in rule.patterns.items():
        present = tuple(dict.fromkeys(point.values[axis] for point in points))
        for glob in globs:
            if not any(fnmatchcase(value, glob) for value in present):
                hint = f": no {axis} {glob!r} here{nearest(glob, present)}"
    for axis, values in rule.inner.items():
        present = tuple(dict.fromkeys(str(v) for point in points for v in point.conditions.get(axis, ())))
        for value in values:
            if str(value) not in present:
                hint = f": no {axis} {value!r} here{nearest(str(value), present)}"
    raise MasktaxError(f"{_shown(scenario.path)}: {rule.place}: {what}{hint}; correct it or take it out")


# --- environments ------------------------------------------------------------------------------------------------


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
                f"{_shown(scenario.path)}: environments.{name}.python: {written}: no such interpreter"
                f"; make it, or leave it out with --set environment=…"
            )
        found[name] = path
    return found
