"""From a scenario to its points: products of axes, includes, excludes, expected outcomes, and ``--set``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from harness.cell import is_outside
from harness.errors import MasktaxError
from harness.scenario.model import (
    AXES,
    DEFAULT_ENVIRONMENT,
    INNER,
    NUMERIC,
    STAGES,
    Block,
    Expected,
    Point,
    Rule,
    Scenario,
    Workload,
    nearest,
    shown,
    vocabulary_name,
)
from harness.scenario.reading import Table, stages_named, values_of_axis


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
        _nothing_left(scenario, reasons)
    return [replace(point, expected=_expected(scenario, point)) for point in points]


def _nothing_left(scenario: Scenario, reasons: Sequence[str]) -> NoReturn:
    because = f": {reasons[0]}" if reasons else ""
    if not because and any(block.lacks_corpus for block in scenario.blocks):
        because = ": no outside corpus is given; name one with --corpus DIR"
    raise MasktaxError(f"{shown(scenario.path)}: no cell is left to run{because}")


def _checked(scenario: Scenario, overrides: Mapping[str, Sequence[str]]) -> dict[str, tuple[Any, ...]]:
    """Overrides in their axes' own types, checked as the file's values are."""
    checked: dict[str, tuple[Any, ...]] = {}
    for axis, values in overrides.items():
        if axis not in (*AXES, "stages"):
            raise MasktaxError(f"--set: unknown axis {axis!r}{nearest(axis, (*AXES, 'stages'))}")
        raw: list[Any] = list(values)
        if axis == "process" or axis in NUMERIC:
            raw = [int(v) if v.isascii() and v.isdigit() else v for v in values]
        data: Any = raw[0] if axis == "process" and len(raw) == 1 else raw
        table = Table(f"--set {axis}={','.join(values)}", "", {axis: data})
        if axis == "stages":
            checked[axis] = stages_named(table, scenario.workload.stages)
            continue
        if axis == "constraint" and not scenario.known.corpus and any(map(is_outside, values)):
            table.fail(axis, "no outside corpus is given; name one with --corpus DIR")
        checked[axis] = values_of_axis(table, axis, scenario.known, scenario.variants, scenario.environments)
        if axis in INNER and not any(INNER[axis].keys() & set(block.workload.stages) for block in scenario.blocks):
            table.fail(axis, f"scenario {scenario.name} has no stage that varies it")
    return checked


def _override(block: Block, overrides: Mapping[str, tuple[Any, ...]], *, outside: bool) -> Block | None:
    """The block with the overrides in force; None where nothing is left of it. outside: whether constraints of an
    outside corpus that are set go into the file's axes (not where an include has them already)."""
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
        elif axis == "constraint" and block.place == "axes" and not outside:
            axes[axis] = tuple(v for v in values if not is_outside(v))
        else:
            axes[axis] = values
    return replace(block, axes=axes, workload=workload)


def _points(scenario: Scenario, overrides: Mapping[str, tuple[Any, ...]]) -> tuple[list[Point], list[str]]:
    """The points without their expectations, and the reasons of the excludes that took any out."""
    points: dict[str, Point] = {}
    reasons: list[str] = []
    own_outside = any(is_outside(c) for b in scenario.blocks if b.place != "axes" for c in b.axes["constraint"])
    for block in scenario.blocks:
        changed = _override(block, overrides, outside=not own_outside)
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
        variant = scenario.variant(backend)
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
            values += (named or defaults) if axis in NUMERIC else ([v for v in named if v in defaults] or defaults)
        if values:
            conditions[axis] = tuple(dict.fromkeys(values))
    return conditions


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
    return values if axis in NUMERIC else tuple(v for v in values if v in INNER[axis].get(stage, ()))


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
        time_limit_s=max(a.time_limit_s, b.time_limit_s),
        memory_limit_mb=max(a.memory_limit_mb, b.memory_limit_mb),
        time_cap_s=None if a.time_cap_s is None or b.time_cap_s is None else max(a.time_cap_s, b.time_cap_s),
    )
    return replace(one, conditions=conditions, workload=workload)


def _expected(scenario: Scenario, point: Point) -> dict[str, Expected]:
    """For every stage of the point, the last expect that matches, else ``ok``; nothing is known beforehand of a
    constraint from outside."""
    winners = _winners(scenario, point)
    otherwise = Expected(None) if is_outside(point.constraint) else Expected()
    return {s: otherwise if r is None else Expected(r.outcome, r.reason) for s, r in winners.items()}


def _winners(scenario: Scenario, point: Point) -> dict[str, Rule | None]:
    winners: dict[str, Rule | None] = dict.fromkeys(point.stages)
    values = point.values
    for rule in scenario.expects:
        if rule.matches(values):
            winners |= {stage: rule for stage in point.stages if rule.stages is None or stage in rule.stages}
    return winners


def check_stale(scenario: Scenario) -> None:
    """Every include, exclude and expect of the file must do something; one that does not is out of date. What is about
    an outside corpus depends on what the corpus holds, and on there being one, and is not looked at."""
    file = shown(scenario.path)
    bare = replace(scenario, excludes=())
    seen: dict[str, Point] = {}
    for block in scenario.blocks:
        points = _points(replace(bare, blocks=(block,)), {})[0]
        if not block.lacks_corpus and all(p.id in seen and _merge(seen[p.id], p) == seen[p.id] for p in points):
            raise MasktaxError(f"{file}: {block.place}: adds nothing that the blocks before it do not have")
        seen |= {p.id: _merge(seen[p.id], p) if p.id in seen else p for p in points}
    for rule in scenario.excludes:
        if not _is_about_outside(rule) and not any(_takes(rule, point) for point in seen.values()):
            _stale(scenario, rule, seen.values(), "excludes nothing")
    points, reasons = _points(scenario, {})
    if not points:
        _nothing_left(scenario, reasons)
    used = {id(rule) for point in points for rule in _winners(scenario, point).values() if rule is not None}
    for rule in scenario.expects:
        if id(rule) not in used and not _is_about_outside(rule):
            reached = any(
                rule.matches(p.values) and (rule.stages is None or {*rule.stages} & {*p.stages}) for p in points
            )
            what = "is overruled everywhere by later ones" if reached else "matches no cell"
            _stale(scenario, rule, points, what)


def _is_about_outside(rule: Rule) -> bool:
    return all(map(is_outside, rule.patterns.get("constraint", ("",))))


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
    raise MasktaxError(f"{shown(scenario.path)}: {rule.place}: {what}{hint}; correct it or take it out")
