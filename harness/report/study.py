"""A run in the words of a report: series, cases, common sets, rankings, distributions. Manager side.

Nothing here draws, writes or says anything. Where a measured time enters a comparison, its cell was right (rule 1), on
a set of cases on which every backend compared was right (rule 8), and the process is the unit: a case's value is the
median over its processes of each process's median.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report import style
from harness.report.style import plural
from harness.results import HEADLINE, LABELS, Run, conditions_text
from harness.stats import Weighted

if TYPE_CHECKING:
    import pandas as pd


STAGE_ORDER = ("compile", "first_mask", "fill", "accept", "validate", "rollback", "serialize", "copy", "apply", "step")

# Worst first: a cell with one wrong stage is wrong, whatever its other stages did.
_WORST = ("wrong", "crash", "out_of_memory", "timeout", "compile_error", "ok", "unsupported")


# A ratio below this is not worth a sentence: runs differ by as much from one hour to the next.
NOTABLE = 1.25

# A fill timed on less of its steps than this, against the series timed on most, does not stand for its case.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Ranking:
    """Backends side by side on the cases on which all of them are right.

    stage, conditions: what was timed. cases: the common set. medians_ns: per series, the median over the common cases
    of per-case medians, ascending. quartiles_ns: of the same. left_out: series that
    have no time for the stage that stands for a case: no right cell, or all of them cut short.
    """

    stage: str
    conditions: str
    cases: tuple[str, ...]
    medians_ns: Mapping[str, float]
    quartiles_ns: Mapping[str, tuple[float, float]]
    left_out: tuple[str, ...]

    @property
    def what(self) -> str:
        return stage_text(self.stage, self.conditions)


def stage_text(stage: str, conditions: str) -> str:
    """``fill (visit=later)`` as words: ``fill, later visit``."""
    known = {
        "visit=later": "later visit",
        "visit=first": "first visit",
        "cache=process_cold": "process cold",
        "cache=new_schema": "new schema",
        "cache=same_schema": "same schema again",
        "cache=respelled": "same meaning, other spelling",
        "cache=cold": "cold",
        "cache=warm": "warm",
    }
    parts = [known.get(c, c.replace("_", " ").replace("=", " ")) for c in conditions.split(", ") if c]
    return ", ".join([stage, *parts])


def worst(outcomes: Iterable[str]) -> str:
    """The one outcome that stands for several."""
    return min(outcomes, key=_WORST.index)


@dataclass(frozen=True)
class Study:
    """A run (or several) with the words of a report: series and cases.

    A *series* is what is compared: a backend, with its environment, profile or run named where there are several. A
    *case* is what is asked of it: one constraint with one vocabulary in one scenario; its processes count once.
    """

    run: Run

    @cached_property
    def timed(self) -> bool:
        return any(r.get("timed", True) for r in self.run.runs)

    @cached_property
    def several(self) -> Mapping[str, bool]:
        """Which coordinates have more than one value, and so belong into labels."""
        cells = self.run.cells
        names = ("run", "scenario", "vocabulary", "environment")
        return {name: cells[name].nunique(dropna=False) > 1 for name in names} | {
            "profile": bool(len(cells)) and bool((cells.groupby("backend")["profile"].nunique() > 1).any())
        }

    def series_of(self, frame: pd.DataFrame) -> pd.Series[str]:
        """The series of each row of any of the run's frames."""
        label = frame["backend"].astype(object)
        if self.several["environment"]:
            label = label + " @ " + frame["environment"].astype(object)
        if self.several["profile"]:
            label = label + " / " + frame["profile"].astype(object)
        if self.several["run"]:
            label = label + " (" + frame["run"].astype(object) + ")"
        return label.astype(object)

    def case_of(self, frame: pd.DataFrame) -> pd.Series[str]:
        """The case of each row of any of the run's frames."""
        label = frame["constraint"].astype(object)
        if self.several["vocabulary"]:
            label = label + " · " + frame["vocabulary"].astype(object)
        if self.several["scenario"]:
            label = label + " · " + frame["scenario"].astype(object)
        return label.astype(object)

    def _labelled(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(
            series=self.series_of(frame), case=self.case_of(frame), cell=frame["run"] + "\n" + frame["cell"]
        )

    @cached_property
    def records(self) -> pd.DataFrame:
        """``run.cells`` with ``series`` and ``case``, and ``case_outcome``; a cell's name is unique over runs here."""
        frame = self._labelled(self.run.cells)
        if frame.empty:
            return frame.assign(case_outcome=frame["outcome"])
        outcome = frame.groupby(["series", "case"], sort=False)["outcome"].agg(worst)
        return frame.assign(case_outcome=[outcome[key] for key in zip(frame["series"], frame["case"], strict=True)])

    @cached_property
    def series(self) -> tuple[str, ...]:
        pairs = self.records[["series", "backend"]].drop_duplicates()
        ordered = sorted(zip(pairs["series"], pairs["backend"], strict=True), key=lambda p: (style.order(p[1]), p[0]))
        return tuple(label for label, _ in ordered)

    @cached_property
    def looks(self) -> Mapping[str, style.Look]:
        backend = dict(zip(self.records["series"], self.records["backend"], strict=True))
        return style.looks([(label, backend[label]) for label in self.series])

    @cached_property
    def stages(self) -> tuple[str, ...]:
        present = list(dict.fromkeys(self.records["stage"]))
        return tuple(sorted(present, key=lambda s: (_position(s), present.index(s))))

    @cached_property
    def cases(self) -> pd.DataFrame:
        """One row per (series, case): ``tier``, ``constraint``, ``vocabulary``, ``scenario``, ``outcome``."""
        frame = self.records.drop_duplicates(["series", "case"])
        columns = ["series", "case", "tier", "constraint", "vocabulary", "scenario", "case_outcome"]
        return frame[columns].rename(columns={"case_outcome": "outcome"}).reset_index(drop=True)

    @cached_property
    def timing(self) -> pd.DataFrame:
        """Times of right cells: one row per (series, case, stage, conditions) with ``median_ns``, the median over
        processes of each process's median, and ``processes``."""
        import pandas as pd

        frame = self._labelled(self.run.measurements)
        right = self.records[(self.records["outcome"] == "ok") & (self.records["case_outcome"] != "wrong")]
        frame = frame[_among(frame, right, "cell", "stage") & (frame["samples"] > 0)]
        frame = frame[~_among(_visits(frame), self.cut_short, "series", "case", "stage", "visit")]
        axes = [name for name in frame.columns if name in LABELS or name not in self.run.cells.columns]
        axes = [name for name in axes if name not in ("series", "case")]
        keys = ["series", "case", "tier", "vocabulary", "stage", "conditions"]
        if not self.timed or frame.empty:
            return pd.DataFrame(columns=[*keys, *axes, "median_ns", "processes"])
        grouped = frame.groupby(keys, sort=False, dropna=False)
        first = grouped[axes].first()
        value = grouped["median_ns"].agg(["median", "size"]).set_axis(["median_ns", "processes"], axis=1)
        return first.join(value).reset_index()

    @cached_property
    def cut_short(self) -> pd.DataFrame:
        """Fills whose time ran out before half of the steps that another series was timed on, in the same case and
        visit: what is known of them is the beginning of a document, and does not stand for the case. Columns
        ``series``, ``case``, ``stage``, ``visit``, ``share`` (of the steps)."""
        samples = self.run.samples
        fills = samples[(samples["stage"] == "fill") & (samples["outcome"] == "ok") & samples["position"].notna()]
        steps = _visits(fills).assign(series=self.series_of(fills), case=self.case_of(fills))
        steps = steps.drop_duplicates(["series", "case", "visit", "document", "position"])
        count = steps.groupby(["series", "case", "visit"], sort=False).size().reset_index(name="step")
        share = count["step"] / count.groupby(["case", "visit"])["step"].transform("max")
        return count.assign(stage="fill", share=share)[share < LEAST_SHARE]

    def conditions_of(self, stage: str) -> tuple[str, ...]:
        """The sets of conditions under which a stage was timed rightly, as recorded first."""
        return tuple(dict.fromkeys(self.timing.loc[self.timing["stage"] == stage, "conditions"]))

    def headline_of(self, stage: str) -> str | None:
        """The conditions whose numbers stand for the stage; None where it was not timed."""
        found = self.records.loc[(self.records["stage"] == stage) & (self.records["samples"] > 0), "conditions"]
        there = self.conditions_of(stage)
        wanted = conditions_text(HEADLINE.get(stage, {}))
        if wanted in there:
            return wanted
        common = [c for c in found.mode() if c in there]
        return common[0] if common else there[0] if there else None

    def ranking(self, stage: str, conditions: str) -> Ranking | None:
        """Series side by side on their common set; None where fewer than two have a right case in common."""
        chosen = self.timing[(self.timing["stage"] == stage) & (self.timing["conditions"] == conditions)]
        by_series = {s: dict(zip(g["case"], g["median_ns"], strict=True)) for s, g in chosen.groupby("series")}
        ranked = [s for s in self.series if s in by_series]
        if len(ranked) < 2:
            return None
        shared = set.intersection(*(set(by_series[s]) for s in ranked))
        if not shared:
            return None
        cases = tuple(c for c in dict.fromkeys(chosen["case"]) if c in shared)
        values = {s: np.array([by_series[s][c] for c in cases]) for s in ranked}
        medians = sorted(((float(np.median(v)), s) for s, v in values.items()))
        quartiles = {s: (float(np.quantile(v, 0.25)), float(np.quantile(v, 0.75))) for s, v in values.items()}
        left_out = tuple(s for s in self.series if s not in by_series)
        return Ranking(stage, conditions, cases, {s: m for m, s in medians}, quartiles, left_out)

    @cached_property
    def fills(self) -> pd.DataFrame:
        """Raw fill samples of right cells, with ``series`` and ``case``."""
        frame = self.samples_of("fill")
        right = self.timing[self.timing["stage"] == "fill"]
        return frame[_among(_visits(frame), _visits(right), "series", "case", "visit")]

    def samples_of(self, stage: str) -> pd.DataFrame:
        """Raw samples of a stage's right cells, with ``series`` and ``case``."""
        samples = self.run.samples
        frame = samples[(samples["stage"] == stage) & (samples["outcome"] == "ok")]
        frame = frame.assign(series=self.series_of(frame), case=self.case_of(frame))
        return frame[_among(frame, self.timing[self.timing["stage"] == stage], "series", "case")]

    def distribution(self, visit: str | None) -> Distribution:
        """Fill times of a visit (None: those recorded without one), on the common set where there is one."""
        conditions = f"visit={visit}" if visit else ""
        ranking = self.ranking("fill", conditions)
        fills = self.fills
        chosen = fills[fills["visit"] == visit] if visit else fills[fills["visit"].isna()]
        if ranking:
            chosen = chosen[chosen["case"].isin(ranking.cases)]
        series = {}
        for label in self.series:
            own = chosen[chosen["series"] == label]
            if own.empty:
                continue
            share = own.groupby("case")["time_ns"].transform("size")
            series[label] = Weighted.of(own["time_ns"].to_numpy(dtype=float), 1.0 / share.to_numpy(dtype=float))
        return Distribution(visit, ranking is not None, tuple(dict.fromkeys(chosen["case"])), series)

    @cached_property
    def visits(self) -> tuple[str | None, ...]:
        """The visits under which fill was timed: later, first, or one without a name."""
        present = [None if v != v else v for v in self.fills["visit"].astype(object).unique()]
        return tuple(v for v in ("later", "first", None) if v in present)


@dataclass(frozen=True)
class Distribution:
    """Fill times of one kind of visit, per series. common: over ``cases``, the common set; else each series over its
    own right cases among them, which are not comparable."""

    visit: str | None
    common: bool
    cases: tuple[str, ...]
    series: Mapping[str, Weighted]

    @property
    def title(self) -> str:
        return f"{self.visit.capitalize()} visit of a state" if self.visit else "Fill"

    @property
    def on(self) -> str:
        return _on(self.common or len(self.series) == 1, self.common, len(self.cases))


def _among(frame: pd.DataFrame, others: pd.DataFrame, *keys: str) -> pd.Series[bool]:
    """Which rows of ``frame`` agree in ``keys`` with some row of ``others``."""
    import pandas as pd

    allowed = set(zip(*(others[key] for key in keys), strict=True))
    found = [key in allowed for key in zip(*(frame[key] for key in keys), strict=True)]
    return pd.Series(found, index=frame.index, dtype=bool)


def _visits(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with ``visit`` as text, empty where there is none."""
    visit = frame["visit"].astype(object)
    return frame.assign(visit=visit.where(visit.notna(), ""))


def _position(stage: str) -> int:
    return STAGE_ORDER.index(stage) if stage in STAGE_ORDER else len(STAGE_ORDER)


@dataclass(frozen=True)
class Walk:
    """Fill times along the longest document of one case. samples: columns series, visit, position, time_ns."""

    case: str
    document: str
    positions: int
    samples: pd.DataFrame


def walks(study: Study, most: int = 4, least_positions: int = 16) -> list[Walk]:
    """The cases with the longest documents, those timed for the most series first."""
    fills = study.fills
    fills = fills[fills["position"].notna()]
    if fills.empty:
        return []
    keys = ["case", "document"]
    lengths = fills.groupby(keys, sort=False, observed=True).agg(
        longest=("position", "max"), series=("series", "nunique")
    )
    longest: dict[str, tuple[int, int, str]] = {}
    for row in lengths.reset_index().to_dict("records"):
        of_document = (int(row["longest"]) + 1, int(row["series"]), str(row["document"]))
        longest[row["case"]] = max(longest.get(row["case"], of_document), of_document)
    found = [(n, positions, case, document) for case, (positions, n, document) in longest.items()]
    found = [f for f in found if f[1] >= least_positions]
    found.sort(key=lambda f: (-f[0], -f[1]))
    return [
        Walk(
            case,
            document,
            positions,
            fills.loc[
                (fills["case"] == case) & (fills["document"] == document), ["series", "visit", "position", "time_ns"]
            ],
        )
        for _, positions, case, document in found[:most]
    ]


@dataclass(frozen=True)
class Growth:
    """Fill against position, of a series that was timed to the end of a walk. ratio: median in the last quarter of
    positions over that in the first. correlation: Spearman's, of position and median time: a document whose end merely
    differs from its beginning has a ratio, but no correlation."""

    ratio: float
    correlation: float

    @property
    def rises(self) -> bool:
        return self.ratio >= NOTABLE and self.correlation >= 0.5


def growth(study: Study, walk: Walk) -> dict[str, Growth]:
    """Per series that was timed to the end of a walk; on later visits where there are any."""
    found = {}
    for label in study.series:
        own = walk.samples[walk.samples["series"] == label]
        later = own[own["visit"] == "later"]
        own = later if len(later) else own
        first = float(own.loc[own["position"] < walk.positions / 4, "time_ns"].median())
        last = float(own.loc[own["position"] >= walk.positions * 3 / 4, "time_ns"].median())
        if not first > 0 or math.isnan(last):
            continue
        times = own.groupby("position")["time_ns"].median().reset_index().astype(float)
        ranks = times.rank()
        correlation = ranks["position"].corr(ranks["time_ns"]) if times["time_ns"].nunique() > 1 else 0.0
        found[label] = Growth(last / first, float(correlation))
    return found


@dataclass(frozen=True)
class CompileState:
    """Compile in one cache state. common: over ``cases``, those timed in this state for every series that has it; else
    each series over its own among them, which do not compare. medians_ns: per series, median of per-case medians."""

    state: str
    common: bool
    cases: tuple[str, ...]
    medians_ns: Mapping[str, float]

    @property
    def on(self) -> str:
        return _on(self.common or len(self.medians_ns) == 1, self.common, len(self.cases))


def compile_states(study: Study) -> dict[str, CompileState]:
    """By cache state, those that were timed. Not every case need be timed in every state, so two states compare within
    a case alone: see ``compile_ratio``."""
    timing = study.timing
    own = timing[(timing["stage"] == "compile") & timing["cache"].notna()]
    found = {}
    for state in dict.fromkeys(own["cache"]):
        conditions = conditions_text({"cache": state})
        ranking = study.ranking("compile", conditions)
        if ranking:
            found[state] = CompileState(state, True, ranking.cases, ranking.medians_ns)
        else:
            rows = own[own["cache"] == state]
            medians = {str(s): float(m) for s, m in rows.groupby("series", sort=False)["median_ns"].median().items()}
            found[state] = CompileState(state, False, tuple(dict.fromkeys(rows["case"])), medians)
    return found


def compile_ratio(study: Study, series: str, state: str, to: str) -> float | None:
    """How long a compile in ``state`` takes over one in ``to``: median over a series' cases, timed in both, of the
    ratio of their medians; None where there is no such case."""
    timing = study.timing
    own = timing[(timing["stage"] == "compile") & (timing["series"] == series)]
    by_state = {
        name: dict(zip(rows["case"], rows["median_ns"], strict=True))
        for name in (state, to)
        for rows in (own[own["cache"] == name],)
    }
    ratios = [by_state[state][case] / by_state[to][case] for case in by_state[state].keys() & by_state[to].keys()]
    return float(np.median(ratios)) if ratios else None


def _on(comparable: bool, common: bool, cases: int) -> str:
    if not comparable:
        return f"no common case ({plural(cases, 'case')} in all)"
    return plural(cases, "common case" if common else "case")


def all_of(study: Study, field: str) -> dict[str, Any]:
    """A mapping field of run.json, merged over the runs."""
    return {name: value for run in study.run.runs for name, value in (run.get(field) or {}).items()}
