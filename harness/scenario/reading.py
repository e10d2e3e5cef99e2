"""Reading a scenario file: every unknown key, value and type is one line naming file, key path and nearest name."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from harness.backends import registry
from harness.cell import OUTCOMES, OutcomeKind, is_outside
from harness.errors import MasktaxError
from harness.measure import Plan
from harness.scenario.model import (
    AXES,
    DEFAULT_ENVIRONMENT,
    FORMAT,
    INNER,
    NUMERIC,
    OUTER,
    STAGES,
    Block,
    Known,
    Rule,
    Scenario,
    Variant,
    Workload,
    nearest,
    shown,
    vocabulary_name,
)

_TOP = (
    "format", "name", "title", "analysis", "workload", "measure", "axes", "variants", "environments", "include",
    "exclude", "expect",
)  # fmt: skip
_REQUIRED: Any = object()

# Bound of whole-number inner axes: what a matcher can be asked to rewind, or to look at, in one call.
_MAX_TOKENS = 1 << 16


@dataclass(frozen=True)
class Table:
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

    def table(self, key: str, default: Any = _REQUIRED) -> Table:
        value = self._get(key, default)
        if not isinstance(value, dict):
            self.fail(key, f"must be a table ([{self.at(key)}]), not {_kind(value)}")
        return replace(self, place=self.at(key), data=value)

    def tables(self, key: str) -> list[Table]:
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


def read(path: Path, names: Known) -> Scenario:
    """The scenario in a file, but for rules that do nothing (``expansion.check_stale``)."""
    called = shown(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MasktaxError(f"{called}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise MasktaxError(f"{called}: cannot be read: {error.strerror}") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MasktaxError(f"{called}: not TOML: {error}") from error
    return _scenario(path, text, Table(called, "", data, path.resolve().parent), names)


def _scenario(path: Path, text: str, top: Table, names: Known) -> Scenario:
    top.only(_TOP)
    form = top.whole("format", _REQUIRED)
    if form != FORMAT:
        top.fail("format", f"is {form}; this version reads format {FORMAT}")
    name = top.text("name")
    if name != path.stem:
        top.fail("name", f"is {name!r}, but the file is called {path.stem!r}: they must be the same")
    analysis = top.table("analysis")
    analysis.only(["question", "reading"])
    workload = _workload(top.table("workload"), None, names)
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
        blocks=(
            Block("axes", workload, axes, frozenset(axes), lacks_corpus=_lacks_corpus(top.table("axes"), names)),
            *includes,
        ),
        variants=variants,
        environments=environments,
        excludes=tuple(_rule(t, workload, "exclude") for t in top.tables("exclude")),
        expects=tuple(_rule(t, workload, "expect") for t in top.tables("expect")),
        known=names,
    )
    _check_profiles(scenario, top)
    return scenario


def _workload(table: Table, base: Workload | None, names: Known) -> Workload:
    """The ``[workload]`` table, or (with ``base``) what an include says differently."""
    keys = [f.name for f in dataclasses.fields(Workload)]
    if base is None:
        table.only(keys)
    stages = stages_named(table, STAGES) if base is None or "stages" in table.data else base.stages
    start = base or Workload(stages)
    return Workload(
        stages=stages,
        valid=table.whole("valid", start.valid),
        invalid=table.whole("invalid", start.invalid),
        companions=_companions(table, names) if "companions" in table.data else start.companions,
        time_limit_s=table.positive("time_limit_s", start.time_limit_s),
        memory_limit_mb=table.whole("memory_limit_mb", start.memory_limit_mb),
        time_cap_s=table.positive("time_cap_s", 0.0) if "time_cap_s" in table.data else start.time_cap_s,
    )


def stages_named(table: Table, allowed: Sequence[str]) -> tuple[str, ...]:
    """The stages named, in the order in which they run."""
    named = table.texts("stages")
    for stage in named:
        if stage not in STAGES:
            table.fail("stages", f"unknown stage {stage!r}{nearest(stage, STAGES)}")
        if stage not in allowed:
            table.fail("stages", f"stage {stage!r} is not one of this scenario's: {', '.join(allowed)}")
    return tuple(stage for stage in STAGES if stage in named)


def _measure(table: Table) -> dict[str, Any]:
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


def _variants(table: Table, names: Known) -> dict[str, Variant]:
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


def _environments(table: Table) -> dict[str, str]:
    environments = {DEFAULT_ENVIRONMENT: ""}
    for name in table.data:
        environment = table.table(name)
        environment.only(["python"])
        if name == DEFAULT_ENVIRONMENT:
            table.fail(name, "is the interpreter that masktax itself runs in; give this one another name")
        _check_name(table, name)
        environments[name] = environment.text("python")
    return environments


def _check_name(table: Table, name: str) -> None:
    """Names become parts of ids: no separators, no globs."""
    if not name or set(name) & set("/@*?[]= ,:"):
        table.fail(name, "a name may not hold spaces or any of / @ * ? [ ] = , :")


def _axes(
    table: Table,
    names: Known,
    variants: Mapping[str, Variant],
    environments: Mapping[str, str],
    also: Sequence[str],
) -> dict[str, tuple[Any, ...]]:
    """The axes that a table names, checked. ``also``: keys that are allowed beside them."""
    table.only([*AXES, *also])
    return {axis: values_of_axis(table, axis, names, variants, environments) for axis in AXES if axis in table.data}


def values_of_axis(
    table: Table, axis: str, names: Known, variants: Mapping[str, Variant], environments: Mapping[str, str]
) -> tuple[Any, ...]:
    """The values of one axis, checked; globs over constraints are resolved, each constraint once."""
    if axis == "process":
        return tuple(range(table.whole(axis, _REQUIRED)))
    if axis in NUMERIC:
        values = table.items(axis)
        for v in values:
            if isinstance(v, bool) or not isinstance(v, int) or not 1 <= v <= _MAX_TOKENS:
                table.fail(axis, f"must be whole numbers from 1 to {_MAX_TOKENS}, not {_kind(v)}")
        return tuple(values)
    if axis == "constraint":
        return _constraints(table, axis, names)
    texts = table.texts(axis)
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


def _constraints(table: Table, key: str, names: Known) -> tuple[str, ...]:
    """The constraints that globs name, each once. An outside corpus is meant by globs that name its tier, and by no
    others; where none is given, they mean nothing."""
    chosen: dict[str, None] = {}
    for glob in table.texts(key):
        outside = is_outside(glob)
        if outside and not names.corpus:
            continue
        matching = [c for c in names.constraints if is_outside(c) == outside and (c == glob or fnmatchcase(c, glob))]
        if not matching:
            hint = nearest(glob, names.constraints) or "; see `masktax list schemas`"
            table.fail(key, f"no constraint matches {glob!r}{hint}")
        chosen.update(dict.fromkeys(matching))
    return tuple(chosen)


def _companions(table: Table, names: Known) -> tuple[str, ...]:
    for glob in table.texts("companions"):
        if is_outside(glob):
            table.fail("companions", f"{glob!r} is of an outside corpus; name built-in constraints")
    return _constraints(table, "companions", names)


def _lacks_corpus(table: Table, names: Known) -> bool:
    return not names.corpus and "constraint" in table.data and any(map(is_outside, table.texts("constraint")))


def _vocabularies(table: Table, texts: Sequence[str], names: Known) -> tuple[str, ...]:
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


def _check_inner(table: Table, own: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """An inner axis is named only beside a stage that varies it."""
    for axis, by_stage in INNER.items():
        if axis in own and not by_stage.keys() & set(chosen):
            who = " and ".join(map(repr, by_stage))
            table.fail(axis, f"only {who} varies it, and that is not among the stages")


def _include(
    table: Table,
    workload: Workload,
    axes: Mapping[str, tuple[Any, ...]],
    names: Known,
    variants: Mapping[str, Variant],
    environments: Mapping[str, str],
) -> Block:
    keys = [f.name for f in dataclasses.fields(Workload)]
    own = _axes(table, names, variants, environments, [*keys, "reason"])
    differing = _workload(table, workload, names)
    _check_inner(table, own, differing.stages)
    return Block(
        table.place,
        differing,
        {**axes, **own},
        frozenset(own),
        table.text("reason"),
        _lacks_corpus(table, names),
    )


def _rule(table: Table, workload: Workload, kind: str) -> Rule:
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
    stages = stages_named(table, STAGES) if "stages" in table.data else None
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


def _check_profiles(scenario: Scenario, top: Table) -> None:
    """A profile that no backend beside it declares is a mistake; one that some lack is an honest ``unsupported``."""
    for block in scenario.blocks:
        adapters = {scenario.variant(backend).adapter for backend in block.axes["backend"]}
        if not adapters <= scenario.known.profiles.keys():
            continue
        declared = tuple(dict.fromkeys(itertools.chain(*(scenario.known.profiles[a] for a in sorted(adapters)))))
        for profile in block.axes["profile"]:
            if profile not in declared:
                place = Table(top.file, block.place, {})
                place.fail("profile", f"no backend here has a profile {profile!r}{nearest(profile, declared)}")
