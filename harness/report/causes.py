"""Coverage, and what was not right and why: one cause, one line, however often it occurred. Manager side."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.cell import OUTCOMES
from harness.report.study import Study


@dataclass(frozen=True)
class Coverage:
    """What became of a series' cases in a tier (None: all), and how fast the right ones fill.

    counts: cases per outcome, those that occur. fill_median_ns: median of per-case medians over the right cases, nan
    where none was timed.
    """

    series: str
    tier: str | None
    counts: Mapping[str, int]
    fill_median_ns: float

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def right(self) -> int:
        return self.counts.get("ok", 0)


def coverage(study: Study, series: str, tier: str | None = None) -> Coverage:
    cases = study.cases[study.cases["series"] == series]
    cases = cases if tier is None else cases[cases["tier"] == tier]
    found = cases["outcome"].value_counts()
    counts: dict[str, int] = {outcome: int(found[outcome]) for outcome in OUTCOMES if outcome in found}
    timing = study.timing
    fill = timing[
        (timing["series"] == series)
        & (timing["stage"] == "fill")
        & (timing["conditions"] == study.headline_of("fill"))
        & timing["case"].isin(cases["case"])
    ]
    return Coverage(series, tier, counts, float(fill["median_ns"].median()) if len(fill) else math.nan)


def tiers(study: Study) -> tuple[str, ...]:
    return tuple(dict.fromkeys(study.cases["tier"]))


@dataclass(frozen=True)
class Cause:
    """One reason why cells did not end as ok, however often it occurred. text, detail: of an example; detail is the
    last thing its worker wrote to stderr, where that was kept."""

    outcome: str
    series: str
    text: str
    cells: int
    stages: tuple[str, ...]
    constraints: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True)
class Fault:
    """One way in which a series' masks are wrong, with the first difference of one example."""

    series: str
    direction: str
    judge: str
    explanation: str
    cells: int
    constraints: tuple[str, ...]
    example: Mapping[str, Any]


@dataclass(frozen=True)
class Surprise:
    """An outcome other than the scenario expects."""

    series: str
    constraint: str
    stages: tuple[str, ...]
    expected: str
    outcome: str
    cells: int
    reason: str


@dataclass(frozen=True)
class Refused:
    """Conditions that were not timed while others of their stage were, for one reason. conditions: the values of each
    axis that occur; text: of an example."""

    kind: str
    series: str
    stage: str
    conditions: str
    cells: int
    text: str


Row = Mapping[str, Any]


def _grouping(reason: str) -> str:
    """A reason without what differs from one occurrence to the next: pointers, quoted text, numbers."""
    text = reason.split("; the cell ended in stage ")[0]  # as the manager says it of stages that were not reached
    text = re.sub(r"#(/[^\s:,;)\]]*)+", "#/…", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "…", text)
    return re.sub(r"\d+(\.\d+)?", "N", text).strip()


def _groups(rows: Iterable[Row], *keys: str) -> list[list[Row]]:
    """Rows that agree in ``keys`` and, reduced to its cause, in ``cause``."""
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        found.setdefault((*(row[key] for key in keys), _grouping(row["cause"])), []).append(row)
    return list(found.values())


def _rows(study: Study) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in study.records.to_dict("records")]


def _cells(group: list[Row]) -> int:
    return len({row["cell"] for row in group})


def _stages(study: Study, group: list[Row]) -> tuple[str, ...]:
    there = {row["stage"] for row in group}
    return tuple(stage for stage in study.stages if stage in there)


def _constraints(group: list[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["constraint"] for row in group))


def causes(study: Study) -> list[Cause]:
    """Why cells are not ok, one entry per cause; wrong masks apart (``faults``). In the order of the outcome table,
    within an outcome by series, most cells first."""
    found = []
    bad = [row | {"cause": row["reason"]} for row in _rows(study) if row["outcome"] not in ("ok", "wrong")]
    for group in _groups(bad, "outcome", "series"):
        # Stages that were never begun share the reason of the one that ended the cell: that one is named.
        reached = [row for row in group if not row["not_reached"]] or group
        first = reached[0]
        found.append(
            Cause(
                outcome=first["outcome"],
                series=first["series"],
                text=first["reason"],
                cells=_cells(group),
                stages=_stages(study, reached),
                constraints=_constraints(group),
                detail=_last_words(first),
            )
        )
    return sorted(found, key=lambda c: (OUTCOMES.index(c.outcome), study.series.index(c.series), -c.cells, c.text))


def _last_words(row: Row) -> str:
    said = row.get("fact_stderr")
    lines = json.loads(said) if isinstance(said, str) and said.startswith("[") else []
    return str(lines[-1])[:300] if lines else ""


def faults(study: Study) -> list[Fault]:
    """Ways in which masks are wrong, one entry per cause, most cells first within a series."""
    found = []
    wrong = [
        row | {"cause": row["difference_explanation"] or row["reason"]}
        for row in _rows(study)
        if row["outcome"] == "wrong"
    ]
    for group in _groups(wrong, "series", "difference_direction", "difference_judge"):
        first = group[0]
        found.append(
            Fault(
                series=first["series"],
                direction=first["difference_direction"] or "",
                judge=first["difference_judge"] or "",
                explanation=first["cause"],
                cells=_cells(group),
                constraints=_constraints(group),
                example={name.removeprefix("difference_"): value for name, value in first.items()},
            )
        )
    return sorted(found, key=lambda f: (study.series.index(f.series), -f.cells))


def surprises(study: Study) -> list[Surprise]:
    """Outcomes other than expected, one entry per series, constraint, expected and actual outcome."""
    found = []
    odd = [row | {"cause": ""} for row in _rows(study) if not row["as_expected"]]
    for group in _groups(odd, "series", "constraint", "expected", "outcome"):
        first = group[0]
        found.append(
            Surprise(
                series=first["series"],
                constraint=first["constraint"],
                stages=_stages(study, group),
                expected=first["expected"] or "ok",
                outcome=first["outcome"],
                cells=_cells(group),
                reason=first["reason"] or first["expected_reason"],
            )
        )
    return sorted(found, key=lambda s: (study.series.index(s.series), s.constraint))


def refusals(study: Study) -> list[Refused]:
    """Refused conditions, one entry per cause; ``wrong`` first, then by stage and series, most cells first."""
    frame = study.run.refusals
    frame = frame.assign(series=study.series_of(frame), cell=frame["run"] + "\n" + frame["cell"])
    rows = [{str(k): v for k, v in row.items()} | {"cause": row["refusal_reason"]} for row in frame.to_dict("records")]
    found = [
        Refused(
            kind=group[0]["refusal"],
            series=group[0]["series"],
            stage=group[0]["stage"],
            conditions=_values(group),
            cells=_cells(group),
            text=group[0]["refusal_reason"],
        )
        for group in _groups(rows, "refusal", "series", "stage")
    ]
    stages, series = study.stages, study.series
    return sorted(
        found, key=lambda r: (r.kind != "wrong", stages.index(r.stage), series.index(r.series), -r.cells, r.text)
    )


def _values(group: list[Row]) -> str:
    """Conditions gathered axis by axis: ``kernel=numpy, rows=1 16``."""
    axes: dict[str, list[str]] = {}
    for row in group:
        for pair in str(row["conditions"]).split(", "):
            axis, _, value = pair.partition("=")
            if value and value not in axes.setdefault(axis, []):
                axes[axis].append(value)
    return ", ".join(f"{axis}={' '.join(values)}" for axis, values in axes.items())
