"""What a report says: sentences computed from a study. Manager side.

A sentence is returned only where the data bear it out; there is none that is always true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.causes import coverage, faults
from harness.report.study import NOTABLE, Growth, Ranking, Study, all_of, compile_ratio, growth, stage_text, walks
from harness.report.style import duration, listed, plural, possessive, times
from harness.results import conditions_text

if TYPE_CHECKING:
    import pandas as pd

# Sentences. Each function returns those that hold, and only those.


def answer(study: Study) -> list[str]:
    """The short answer: what was run and what was found, most important first."""
    return [
        *_what(study),
        *_right(study),
        *_surprising(study),
        *_fastest(study),
        *_cut_short(study),
        *_tails(study),
        *_compile(study),
        *_positions(study),
        *_gpu(study),
    ]


def _what(study: Study) -> list[str]:
    if study.records.empty:
        return ["Nothing is recorded yet."]
    cases = study.cases
    processes = study.records.groupby(["series", "case"])["process"].nunique()
    vocabularies = [
        f"{name} ({int(facts['size']):,} tokens)" if facts.get("size") else name
        for name, facts in all_of(study, "vocabularies").items()
        if name in set(cases["vocabulary"])
    ] or list(dict.fromkeys(cases["vocabulary"]))
    low, high = int(processes.min()), int(processes.max())
    each = plural(low, "process", "processes") if low == high else f"{low} to {high} processes"
    return [
        f"{listed(study.series)}: {plural(int(cases['constraint'].nunique()), 'constraint')} of "
        f"{plural(int(cases['tier'].nunique()), 'tier')}, vocabulary {listed(vocabularies)}, {each} per case; "
        f"{plural(int(study.records['cell'].nunique()), 'cell')}, {plural(len(study.records), 'stage')} recorded"
        + ("." if study.timed else ", verified and not timed.")
    ]


def _right(study: Study) -> list[str]:
    said = []
    rows = [coverage(study, s) for s in study.series]
    totals = {r.total for r in rows}
    if len(totals) == 1:
        (total,) = totals
        said.append(f"Right, of {plural(total, 'case')}: {listed([f'{r.series} {r.right}' for r in rows])}.")
    elif rows:
        said.append(f"Right: {listed([f'{r.series} on {r.right} of {r.total}' for r in rows])} cases.")
    if len(rows) > 1 and len(study.cases):
        of_case = study.cases.groupby("case")["outcome"].agg(list)
        shared = [o for o in of_case if len(o) == len(rows) and set(o) == {"ok"}]
        said.append(
            f"All {len(rows)} are right on {len(shared)} of {plural(len(of_case), 'case')}."
            if shared
            else f"All {len(rows)} are right on none of {plural(len(of_case), 'case')}."
        )
    for row in rows:
        if row.counts.get("wrong"):
            own = [f for f in faults(study) if f.series == row.series]
            directions = listed(list(dict.fromkeys(f.direction for f in own if f.direction)))
            said.append(
                f"{possessive(row.series)} masks are wrong on {plural(row.counts['wrong'], 'case')}"
                + (f" ({directions})" if directions else "")
                + (": those times are kept in the results and ranked nowhere." if study.timed else ".")
            )
    if "fact_rows_judged" in study.records:
        judged = study.records.groupby("cell")["fact_rows_judged"].max().fillna(0)
        if (judged > 0).any():
            said.append(
                f"Whole mask rows were compared with an independent judge in {int((judged > 0).sum()):,} of "
                f"{plural(int(judged.size), 'cell')} ({plural(int(judged.sum()), 'row')}); every cell reached was held "
                "to its traces, end-of-sequence, refused tokens and invalid documents."
            )
    return said


def _surprising(study: Study) -> list[str]:
    records = study.records
    unexpected = records[~records["as_expected"]]
    if len(unexpected):
        cells = int(unexpected["cell"].nunique())
        return [f"{plural(cells, 'cell')} did not end as the scenario expects; see Unexpected outcomes."]
    return []


def _compared(ranking: Ranking) -> str:
    order = [f"{series} {duration(median)}" for series, median in ranking.medians_ns.items()]
    what = ranking.what[0].upper() + ranking.what[1:]
    return (
        f"{what}, median of per-case medians over the {plural(len(ranking.cases), 'case')} on which all of them are "
        f"right: {listed(order)}."
    )


def _fastest(study: Study) -> list[str]:
    conditions = study.headline_of("fill")
    ranking = study.ranking("fill", conditions) if conditions is not None else None
    if ranking is None:
        return _alone(study, conditions)
    values = list(ranking.medians_ns.values())
    said = [_compared(ranking)]
    if values[-1] / values[0] >= NOTABLE:
        slowest = list(ranking.medians_ns)[-1]
        said.append(f"The highest of these ({slowest}) is {times(values[-1] / values[0])} the lowest.")
    if ranking.left_out:
        said.append(f"Not ranked, for want of right fills: {listed(ranking.left_out)}.")
    return said


def _cut_short(study: Study) -> list[str]:
    frame = study.cut_short if study.timed else None
    if frame is None or frame.empty:
        return []
    counts = frame.groupby(["series", "visit"], sort=False).size().reset_index(name="cases")
    parts = [
        f"{row['series']} on {plural(row['cases'], 'case')}" + (f" ({row['visit']} visit)" if row["visit"] else "")
        for row in counts.to_dict("records")
    ]
    return [f"Left out of comparisons of fill, because time ran out before half of the steps: {listed(parts)}."]


def _alone(study: Study, conditions: str | None) -> list[str]:
    """The fill times of the only series that has any."""
    own = study.timing[(study.timing["stage"] == "fill") & (study.timing["conditions"] == conditions)]
    if own["series"].nunique() != 1:
        return []
    what = stage_text("fill", conditions or "")
    only = own["series"].iloc[0]
    return [
        (
            f"{what[0].upper() + what[1:]}, median of per-case medians over {plural(len(own), 'right case')} of "
            f"{only}, the only one timed: {duration(float(own['median_ns'].median()))}."
        )
    ]


def _tails(study: Study) -> list[str]:
    said = []
    for visit in study.visits:
        distribution = study.distribution(visit)
        parts = []
        for label, w in distribution.series.items():
            middle, tail = w.quantile(0.5), w.quantile(0.99)
            if tail == tail and tail / middle >= 3:
                parts.append(f"{label} {duration(tail)} ({times(tail / middle)} its median)")
        if parts and (distribution.common or len(distribution.series) == 1):
            name = f"a {visit} visit" if visit else "a fill"
            said.append(f"At p99, {name} takes {listed(parts)}.")
    return said


def _compile(study: Study) -> list[str]:
    said = []
    headline = study.headline_of("compile")
    ranking = study.ranking("compile", headline) if headline is not None else None
    if ranking:
        said.append(_compared(ranking))
    cached, not_cached = [], []
    for label in study.series:
        ratio = compile_ratio(study, label, "new_schema", "same_schema")
        if ratio is not None and ratio >= 2:
            cached.append(f"{label} ({times(ratio)} faster)")
        elif ratio is not None and ratio < NOTABLE:
            not_cached.append(label)
    if cached:
        said.append(f"The same schema again compiles faster: {listed(cached)}.")
    if not_cached:
        said.append(f"The same schema again costs about as much as a new one: {listed(not_cached)}.")
    return said


def _positions(study: Study) -> list[str]:
    """Series whose fills rise with position in most of the long documents shown."""
    found: dict[str, list[Growth]] = {}
    for walk in walks(study):
        if walk.positions >= 64:
            for label, one in growth(study, walk).items():
                found.setdefault(label, []).append(one)
    rising = [
        f"{label} ({times(float(np.median([one.ratio for one in of_series])))})"
        for label, of_series in found.items()
        if sum(one.rises for one in of_series) > len(of_series) / 2
    ]
    if not rising:
        return []
    return [
        f"Fills get slower along long documents, from the first to the last quarter of positions: {listed(rising)}."
    ]


def _gpu(study: Study) -> list[str]:
    if not study.timed or study.records.empty:
        return []
    samples = study.run.samples
    devices = set(samples["device"].dropna().astype(str)) if "device" in samples else set()
    if samples.empty or devices - {"cpu"}:
        return []
    return ["Not run on a GPU: every time here is the CPU's."]


def clock_notes(study: Study) -> list[str]:
    """What the clock can tell apart, and where its own cost is a visible share of what it measured."""
    records = study.records[study.records["samples"] > 0]
    said = []
    for name, group in records.groupby("clock"):
        resolution, overhead = group["clock_resolution_ns"], group["clock_overhead_ns"]
        if overhead.notna().any():
            said.append(
                f"Clock {name}: resolution {_range(resolution)}, overhead {_range(overhead)} per sample, measured in "
                "each cell's own process and not subtracted."
            )
    samples = study.run.samples if len(records) else None
    if samples is None or samples.empty:
        return said
    import pandas as pd

    overheads = dict(
        zip(zip(records["cell"], records["stage"], strict=True), records["clock_overhead_ns"], strict=True)
    )
    cell = samples["run"].astype(object) + "\n" + samples["cell"].astype(object)
    stage = samples["stage"].astype(object)
    costs = np.array([overheads.get(key, math.nan) for key in zip(cell, stage, strict=True)], dtype=float)
    spent = samples["time_ns"].to_numpy(dtype=float) * samples["iterations"].to_numpy(dtype=float, na_value=1)
    keys = {"stage": stage, "series": study.series_of(samples)}
    keys |= {axis: samples[axis].astype(object) for axis in ("cache", "visit")}
    frame = pd.DataFrame(keys | {"share": costs / np.maximum(spent, 1.0)})
    medians = frame.groupby([*keys], sort=False, dropna=False)["share"].median().reset_index()
    heavy = [
        f"{stage_text(row['stage'], conditions_text({a: row[a] for a in ('cache', 'visit') if row[a] == row[a]}))} "
        f"of {row['series']} ({100 * row['share']:.0f} %)"
        for row in medians.to_dict("records")
        if row["share"] >= 0.05
    ]
    if heavy:
        said.append(f"The clock's own cost is 5 % or more of the median sample in: {listed(heavy)}.")
    return said


def _range(values: pd.Series[float]) -> str:
    low, high = float(values.min()), float(values.max())
    return duration(low) if duration(low) == duration(high) else f"{duration(low)} to {duration(high)}"


def stop_reasons(study: Study) -> list[tuple[str, Sequence[tuple[str, int]]]]:
    """Per stage, why measuring ended and how many measurements ended so."""
    frame = study.run.measurements
    frame = frame[frame["samples"] > 0]
    found: list[tuple[str, Sequence[tuple[str, int]]]] = []
    for stage in study.stages:
        counts = frame.loc[frame["stage"] == stage, "stop_reason"].value_counts()
        if len(counts):
            found.append((stage, [(str(reason), int(n)) for reason, n in counts.items()]))
    return found


def machine_notes(run: Mapping[str, Any]) -> list[str]:
    """What about the machine may have bent this run's numbers."""
    machine = run.get("machine") or {}
    cpu = machine.get("cpu") or {}
    said = []
    if "governor" in cpu:
        governor = cpu["governor"]
        if governor is None:
            said.append("The frequency governor cannot be read here: whether clocks were steady is not known.")
        elif governor != "performance":
            said.append(f"The frequency governor is {governor}: clocks may follow the load.")
    quota, cores = cpu.get("quota_cores"), cpu.get("cores_logical")
    if isinstance(quota, int | float) and cores and quota < cores:
        said.append(f"A control group allows {quota:g} of {cores} cores.")
    gpus = machine.get("gpus")
    if gpus:
        said.append(f"{plural(len(gpus), 'GPU')} present: {listed([str(g.get('name')) for g in gpus])}.")
    for session in run.get("sessions") or ():
        said += _bent(session.get("before") or {}, session.get("after") or {})
    return said


def _bent(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    said = []
    loads = [s["load_1min"] for s in (before, after) if s.get("load_1min") is not None]
    if len(loads) == 2:
        busy = " The machine was not idle when the run began." if loads[0] > 0.5 else ""
        said.append(f"Load (1 min): {loads[0]:.2f} before, {loads[1]:.2f} after.{busy}")
    for name, text in (
        ("throttled_count", "The control group's quota held processes back in {} periods while this ran."),
        ("thermal_throttles_core", "Cores were slowed for heat {} times while this ran."),
        ("thermal_throttles_package", "The processor was slowed for heat {} times while this ran."),
    ):
        if before.get(name) is not None and after.get(name) is not None and after[name] > before[name]:
            said.append(text.format(f"{after[name] - before[name]:,}"))
    if before.get("steal_s") is not None and after.get("steal_s") is not None:
        stolen = after["steal_s"] - before["steal_s"]
        if stolen >= 0.1:
            said.append(f"The hypervisor gave {stolen:.1f} s of processor time to others while this ran.")
    return said
