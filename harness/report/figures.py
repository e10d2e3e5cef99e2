"""The figures of a report: each one question, drawn from a study, with a computed caption. Manager side.

A function answers None where there is nothing to draw. Colours, markers and units come from ``style`` alone. Times of
wrong cells are never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cell import OUTCOMES
from harness.report import style
from harness.report.canvas import Drawn, canvas, categories, legend
from harness.report.causes import coverage
from harness.report.steps import OWN_FIGURE, STEPS
from harness.report.study import (
    CompileState,
    Distribution,
    Study,
    Walk,
    all_of,
    compile_ratio,
    compile_states,
    growth,
    stage_text,
    walks,
)
from harness.report.style import FAINT, INK, PAPER, duration, listed, plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERCENTILES = (0.5, 0.9, 0.99, 0.999)


def draw(study: Study) -> list[Drawn]:
    """Every figure that the study has data for, in the order in which a report shows them."""
    makers: Sequence[Callable[[Study], Drawn | None]] = (
        overview, stages, distribution, positions, compile_cache, axes, vocabularies, *STEPS,
    )  # fmt: skip
    with style.context():
        return [drawn for make in makers if (drawn := make(study)) is not None]


# Fill times.


def _nines(share: Any) -> Any:
    """A share of samples as a height on which every further nine takes the same room: 0, 90 %, 99 %, 99.9 %."""
    return -np.log10(np.maximum(1.0 - np.asarray(share, dtype=float), 1e-9))


def _ecdf(
    axes: Axes, study: Study, found: Distribution, *, marks: Sequence[float] = PERCENTILES, dash: Any = None
) -> None:
    for label, weighted in found.series.items():
        look = study.looks[label]
        share = weighted.share
        # The last step would be at infinity: it is drawn half a sample below.
        top = _nines(np.minimum(share, 1.0 - 0.5 / max(weighted.effective, 1.0)))
        keep = _thinned(top)
        values = np.concatenate([[weighted.values_ns[0]], weighted.values_ns[keep]])
        heights = np.concatenate([[0.0], top[keep]])
        axes.step(values, heights, where="post", color=look.colour, linestyle=dash or look.dash)
        points = [(weighted.quantile(q), _nines(q)) for q in marks]
        points = [(x, y) for x, y in points if x == x]
        if points:
            axes.plot(*zip(*points, strict=True), look.marker, color=look.colour, markeredgecolor=PAPER)
    axes.set_yticks(_nines([0.0, *PERCENTILES]), ["0 %", "50 %", "90 %", "99 %", "99.9 %"])
    axes.set_ylim(0, None)
    axes.grid(True, axis="y")


def _thinned(heights: np.ndarray[Any, np.dtype[np.float64]], most: int = 500) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of at most about ``most`` points, evenly spread over the height, the last one always kept."""
    if heights.size <= most:
        return np.arange(heights.size)
    grid = np.linspace(0.0, heights[-1], most)
    return np.unique(np.append(np.searchsorted(heights, grid), heights.size - 1))


def distribution(study: Study) -> Drawn | None:
    found = [study.distribution(visit) for visit in study.visits]
    found = [d for d in found if d.series]
    if not found:
        return None
    figure, panels = canvas(4.2, 1, len(found), sharey=True)
    for axes, one in zip(panels, found, strict=True):
        _ecdf(axes, study, one)
        style.time_axis(axes, "x", "time of one fill (log scale)")
        axes.set_title(f"{one.title}, {one.on}")
    top = max(_nines(1.0 - 0.5 / max(w.effective, 1.0)) for d in found for w in d.series.values())
    panels[0].set_ylim(0, max(top, _nines(0.9)) * 1.03)
    panels[0].set_ylabel("share of fills at or below")
    legend(figure, study, [s for s in study.series if any(s in d.series for d in found)])
    said = [f"{one.title}, {one.on}: {_ends(one)}." for one in found]
    notes = ["Every case weighs the same. Markers: p50, p90, p99, p99.9, where there are samples enough."]
    if any(not d.common and len(d.series) > 1 for d in found):
        notes.append("Where there is no common case, the lines are of different cases and do not compare backends.")
    alt = [f"{one.title}: " + "; ".join(f"{s} {_percentiles(one, s)}" for s in one.series) + "." for one in found]
    return Drawn(
        "fill_distribution",
        "Distribution of fill times",
        figure,
        " ".join([*said, *notes, *_unequal(study)]),
        "Cumulative distribution of fill times per backend on a logarithmic time axis. " + " ".join(alt),
    )


def _ends(one: Distribution) -> str:
    """Lowest and highest of the median and of p99."""
    parts = []
    for name, q in (("median", 0.5), ("p99", 0.99)):
        known = sorted((v, s) for s, w in one.series.items() if (v := w.quantile(q)) == v)
        if len(known) == 1:
            parts.append(f"{name} {duration(known[0][0])} ({known[0][1]})")
        elif known:
            (low, least), (high, most) = known[0], known[-1]
            parts.append(f"{name} from {duration(low)} ({least}) to {duration(high)} ({most})")
    return "; ".join(parts)


def _percentiles(one: Distribution, label: str) -> str:
    weighted = one.series[label]
    named = [(f"p{q * 100:g}", weighted.quantile(q)) for q in PERCENTILES]
    known = [f"{name} {duration(value)}" for name, value in named if value == value]
    return ", ".join([*known, f"max {duration(weighted.max_ns)}"])


def _unequal(study: Study) -> list[str]:
    """Series whose time ran out before the end of documents that others were timed to the end of."""
    fills = study.fills
    reached = fills[fills["position"].notna()].groupby(["case", "document", "series"], observed=True)["position"].max()
    if reached.empty:
        return []
    table = reached.astype(float).unstack("series")
    short = [str(s) for s in table if bool((table[s] < table.max(axis=1)).any())]
    return [f"Time ran out before the end of some documents for {listed(short)}."] if short else []


def positions(study: Study) -> Drawn | None:
    found = walks(study)
    if not found:
        return None
    columns = 2 if len(found) > 1 else 1
    rows = math.ceil(len(found) / columns)
    figure, panels = canvas(0.6 + 2.9 * rows, rows, columns)
    for axes, walk in zip(panels, found, strict=False):
        _walk(axes, study, walk)
        style.time_axis(axes, "y", "time of one fill")
        axes.set_xlabel("position (tokens accepted before)")
        axes.set_title(f"{walk.case}, {walk.document}")
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    labels = [s for s in study.series if any((w.samples["series"] == s).any() for w in found)]
    legend(figure, study, labels)
    finding = " ".join(
        ["Line and band: median and interquartile range of later visits; dots: first visits.", *_slopes(study, found)]
    )
    alt = f"Fill time against position in {plural(len(found), 'document')} for {listed(labels)}. {finding}"
    return Drawn("fill_position", "Fill against position", figure, finding, alt)


def _slopes(study: Study, found: Sequence[Walk]) -> list[str]:
    parts = []
    for label in study.series:
        own = [one for walk in found if (one := growth(study, walk).get(label)) is not None]
        if own:
            rising = sum(one.rises for one in own)
            ratio = float(np.median([one.ratio for one in own]))
            parts.append(f"{label} {ratio:.2f} (rises steadily in {rising} of {len(own)})")
    return (
        [f"Last quarter of positions over the first, median over the documents: {', '.join(parts)}."] if parts else []
    )


def _walk(axes: Axes, study: Study, walk: Walk, bins: int = 40) -> None:
    for label in study.series:
        own = walk.samples[walk.samples["series"] == label]
        if own.empty:
            continue
        look = study.looks[label]
        first = own[own["visit"] == "first"]
        rest = own[own["visit"] != "first"]
        if len(first):
            dots = first.groupby("position")["time_ns"].median()
            axes.plot(
                dots.index.to_numpy(dtype=float), dots.to_numpy(), ".", color=look.colour, markersize=3, alpha=0.45,
                markeredgewidth=0, rasterized=len(dots) > 2_000,
            )  # fmt: skip
        if len(rest):
            width = max(1.0, walk.positions / bins)
            slot = np.floor(rest["position"].to_numpy(dtype=float) / width)
            q = rest.groupby(slot)["time_ns"].quantile(np.array([0.25, 0.5, 0.75])).unstack()
            x = (q.index.to_numpy(dtype=float) + 0.5) * width - 0.5
            axes.fill_between(x, q[0.25], q[0.75], color=look.colour, alpha=0.2, linewidth=0)
            axes.plot(x, q[0.5], color=look.colour, linestyle=look.dash)
            axes.plot(x[-1:], q[0.5].to_numpy()[-1:], look.marker, color=look.colour, markeredgecolor=PAPER)


# Stages.


def panels(study: Study, *, every: bool = False) -> list[tuple[str, str]]:
    """Which (stage, conditions) are shown: the headline of each stage and every visit of fill; or, with ``every``, all
    conditions of all stages."""
    chosen: list[tuple[str, str]] = []
    for stage in study.stages:
        headline = study.headline_of(stage)
        if headline is None:
            continue
        others = [c for c in study.conditions_of(stage) if c != headline and (every or c.startswith("visit="))]
        chosen += [(stage, c) for c in (headline, *others)]
    return chosen


def stages(study: Study) -> Drawn | None:
    chosen = panels(study)
    if not chosen:
        return None
    columns = 2 if len(chosen) > 1 else 1
    rows = math.ceil(len(chosen) / columns)
    figure, drawn = canvas(rows * (0.85 + 0.27 * len(study.series)), rows, columns, sharey=True)
    said = [_stage(axes, study, *panel) for axes, panel in zip(drawn, chosen, strict=False)]
    for axes in drawn[len(chosen) :]:
        axes.set_axis_off()
    finding = " ".join(
        [
            "Marker and bar: median and interquartile range over the cases of per-case medians; small dots: the cases.",
            *_lowest(study, chosen),
        ]
    )
    alt = "Per stage, one row per backend on a logarithmic time axis. " + " ".join(said)
    return Drawn("stages", "Per stage", figure, finding, alt)


def _lowest(study: Study, chosen: Sequence[tuple[str, str]]) -> list[str]:
    """Which backend has the lowest median, and in which stages."""
    by_series: dict[str, list[str]] = {}
    for stage, conditions in chosen:
        if ranking := study.ranking(stage, conditions):
            by_series.setdefault(next(iter(ranking.medians_ns)), []).append(ranking.what)
    said = [f"{series} in {'; '.join(whats)}" for series, whats in by_series.items()]
    return [f"Lowest median: {'. '.join(said)}."] if said else []


def _stage(axes: Axes, study: Study, stage: str, conditions: str) -> str:
    ranking = study.ranking(stage, conditions)
    own = study.timing[(study.timing["stage"] == stage) & (study.timing["conditions"] == conditions)]
    shown = own[own["case"].isin(ranking.cases)] if ranking else own
    for row, label in enumerate(study.series):
        look = study.looks[label]
        values = shown.loc[shown["series"] == label, "median_ns"].to_numpy(dtype=float)
        if not values.size:
            axes.annotate(
                "no right cell timed", (0.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=7.5,
                style="italic", alpha=0.7,
            )  # fmt: skip
            continue
        # Dots are spread a little in a fixed pattern, so that equal times do not hide one another.
        offset = 0.13 * (np.arange(values.size) % 5 - 2) / 2
        axes.plot(values, row + offset, ".", color=look.colour, alpha=0.35, markersize=4, markeredgewidth=0)
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        axes.plot([low, high], [row, row], color=look.colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot([middle], [row], look.marker, color=look.colour, markersize=7, markeredgecolor=PAPER)
    categories(axes, study.series)
    style.time_axis(axes, "x", "time per operation (log scale)")
    text = stage_text(stage, conditions)
    if ranking:
        axes.set_title(f"{text} ({plural(len(ranking.cases), 'common case')})")
        order = [f"{s} {duration(m)}" for s, m in ranking.medians_ns.items()]
        return f"{text}: {', '.join(order)}."
    alone = own["series"].nunique() < 2
    axes.set_title(f"{text} ({plural(int(own['case'].nunique()), 'case')}{'' if alone else ', none in common'})")
    medians = own.groupby("series", sort=False)["median_ns"].median()
    order = [f"{s} {duration(float(m))}" for s, m in medians.items()]
    return f"{text}{'' if alone else ' (different cases, not comparable)'}: {', '.join(order)}."


def compile_cache(study: Study) -> Drawn | None:
    found = compile_states(study)
    order = ("process_cold", "new_schema", "respelled", "same_schema")
    states = [found[c] for c in (*order, *(c for c in found if c not in order)) if c in found]
    if len(states) < 2:
        return None
    labels = [s for s in study.series if any(s in state.medians_ns for state in states)]
    figure, (axes,) = canvas(1.0 + 0.2 * len(states) * (len(labels) + 0.6))
    for row, state in enumerate(states):
        for place, label in enumerate(labels):
            value = state.medians_ns.get(label)
            if value is None:
                continue
            look = study.looks[label]
            y = row + (place - (len(labels) - 1) / 2) * 0.75 / len(labels)
            axes.plot([value], [y], look.marker, color=look.colour, markersize=7, markeredgecolor=PAPER)
            axes.annotate(duration(value), (value, y), (7, 0), textcoords="offset points", va="center", fontsize=7.5)
        if row:
            axes.axhline(row - 0.5, color=FAINT, linewidth=0.8)
    categories(axes, [f"{stage_text('', f'cache={s.state}').removeprefix(', ')}\n{s.on}" for s in states])
    axes.margins(x=0.12)
    style.time_axis(axes, "x", "time of one compile (log scale)")
    _legend_points(figure, study, labels)
    parts = [
        f"{s.state} ({s.on}) " + ", ".join(f"{label} {duration(value)}" for label, value in s.medians_ns.items())
        for s in states
    ]
    return Drawn(
        "compile_cache",
        "Compile by cache state",
        figure,
        " ".join(_cache_findings(study, labels)),
        "Compile time per cache state and backend. " + "; ".join(parts) + ".",
    )


def _cache_findings(study: Study, labels: Sequence[str]) -> list[str]:
    said = ["Medians of per-case medians; states may be of different cases, so their ratios are taken within cases."]
    cold = [(s, r) for s in labels if (r := compile_ratio(study, s, "process_cold", "new_schema")) is not None]
    if cold:
        parts = [f"{s} {ratio:,.1f}" for s, ratio in cold]
        said.append(f"A process's first compile over a later new schema: {', '.join(parts)}.")
    by_text = [s for s in labels if (compile_ratio(study, s, "respelled", "same_schema") or 0) >= 2]
    if by_text:
        said.append(f"Recognise the same text again, but not the same meaning in another spelling: {listed(by_text)}.")
    return said


def _legend_points(figure: Figure, study: Study, labels: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=study.looks[s].colour, marker=study.looks[s].marker, linestyle="", label=s) for s in labels
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=6)


def axes(study: Study) -> Drawn | None:
    """Stages against a numeric inner axis (rollback against tokens rewound, validate against draft tokens)."""
    found = []
    for stage in study.stages:
        own = study.timing[(study.timing["stage"] == stage) & ~study.timing["stage"].isin(OWN_FIGURE)]
        for axis in own.columns.difference(["median_ns", "processes"], sort=False):
            values = _numbers(own[axis])
            if values is not None and len(np.unique(values)) > 1:
                found.append((stage, axis, own.assign(value=values)))
    if not found:
        return None
    columns = min(len(found), 2)
    rows = math.ceil(len(found) / columns)
    figure, panels = canvas(0.6 + 2.7 * rows, rows, columns)
    said, labels = [], set()
    for panel, (stage, axis, own) in zip(panels, found, strict=False):
        parts = []
        for label in study.series:
            line = own[own["series"] == label].groupby("value")["median_ns"].median()
            if len(line) < 2:
                continue
            labels.add(label)
            look = study.looks[label]
            panel.plot(
                line.index.to_numpy(dtype=float), line.to_numpy(), color=look.colour, linestyle=look.dash,
                marker=look.marker, markeredgecolor=PAPER,
            )  # fmt: skip
            parts.append(f"{label} {line.iloc[-1] / line.iloc[0]:.1f}")
        ticks = sorted(set(own["value"]))
        panel.set_xscale("log") if ticks[0] > 0 else None
        panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
        panel.minorticks_off()
        panel.set_xlabel(axis.replace("_", " "))
        style.time_axis(panel, "y", "time per operation")
        panel.set_title(stage)
        if parts:
            said.append(f"{stage}, {axis.replace('_', ' ')} {ticks[-1]:g} over {ticks[0]:g}: {', '.join(parts)}.")
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    if not labels:
        return None
    legend(figure, study, [s for s in study.series if s in labels])
    finding = "Ratio of times, medians over each backend's own right cases of per-case medians. " + " ".join(said)
    return Drawn("axes", "Against the inner axes", figure, finding, "Time against inner axes. " + " ".join(said))


def _numbers(column: pd.Series[Any]) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """A column of numbers without gaps, or None."""
    if column.isna().any() or not all(isinstance(v, int | float | np.number) for v in column):
        return None
    return column.to_numpy(dtype=float)


def vocabularies(study: Study) -> Drawn | None:
    """Fill against the size of the vocabulary, over the constraints that are right with every vocabulary."""
    sizes = {name: facts.get("size") for name, facts in all_of(study, "vocabularies").items()}
    headline = study.headline_of("fill")
    own = study.timing[(study.timing["stage"] == "fill") & (study.timing["conditions"] == headline)]
    own = own[own["vocabulary"].isin([name for name, size in sizes.items() if size])]
    names = sorted(dict.fromkeys(own["vocabulary"]), key=lambda v: int(sizes[v] or 0))
    if len(names) < 2:
        return None
    figure, (panel,) = canvas(3.6)
    labels, said = [], []
    for label in study.series:
        mine = own[own["series"] == label]
        constraint = mine["case"].str.split(" · ").str[0]
        table = mine.assign(constraint=constraint).pivot_table(
            index="constraint", columns="vocabulary", values="median_ns", aggfunc="median", observed=True
        )
        table = table.dropna()
        there = [n for n in names if n in table]
        if len(there) < 2 or table.empty:
            continue
        look = study.looks[label]
        line = [float(table[n].median()) for n in there]
        x = [int(sizes[n] or 0) for n in there]
        panel.plot(x, line, color=look.colour, linestyle=look.dash, marker=look.marker, markeredgecolor=PAPER)
        labels.append(label)
        said.append(f"{label} {line[-1] / line[0]:.2f} ({plural(len(table), 'constraint')})")
    if not labels:
        return None
    panel.set_xscale("log")
    panel.set_xticks([int(sizes[n] or 0) for n in names], [f"{n}\n{int(sizes[n] or 0):,}" for n in names])
    panel.minorticks_off()
    panel.set_xlabel("vocabulary (tokens, log scale)")
    style.time_axis(panel, "y", "time of one fill (log scale)")
    panel.set_title(stage_text("fill", headline or ""))
    legend(figure, study, labels)
    finding = (
        f"Fill with {names[-1]} over fill with {names[0]}: {', '.join(said)}. Per backend, the constraints that are "
        "right with every vocabulary; vocabularies differ in more than size."
    )
    return Drawn("fill_vocabulary", "Fill against vocabulary", figure, finding, finding)


# The one picture.


def overview(study: Study) -> Drawn | None:
    """Fill, compile and coverage in one wide picture, fit to open a README."""
    if not study.series:
        return None
    found = [d for v in study.visits if (d := study.distribution(v)).series]
    compiled = {k: s for k, s in compile_states(study).items() if k in ("new_schema", "process_cold")}
    widths = [w for w, there in ((1.25, found), (1.0, compiled), (0.95, True)) if there]
    height = max(3.9, 1.9 + 0.42 * len(study.series)) if found or compiled else 1.6 + 0.42 * len(study.series)
    figure, panels = canvas(height, 1, len(widths), width_ratios=widths)
    left = iter(panels)
    said = []
    if found:
        said.append(_overview_fill(next(left), study, found))
    if compiled:
        said.append(_overview_compile(next(left), study, compiled))
    said.append(_overview_coverage(next(left), study))
    if compiled:
        panels[-1].tick_params(axis="y", labelleft=False)  # the panel beside it names the rows
    legend(figure, study, study.series, _visit_marks(found))
    return Drawn("overview", "At a glance", figure, " ".join(said), "Overview. " + " ".join(said))


_VISIT_DASHES: Mapping[str | None, Any] = {"later": "-", "first": (0, (1, 1)), None: "-"}


def _visit_marks(found: Sequence[Distribution]) -> list[Any]:
    """Legend entries for the visits of a fill, where there are two; with their cases, where those differ."""
    from matplotlib.lines import Line2D

    if len(found) < 2:
        return []
    same = len({(d.common, frozenset(d.cases)) for d in found}) == 1
    return [
        Line2D(
            [], [], color=INK, linestyle=_VISIT_DASHES[d.visit],
            label=f"{d.visit} visit" + ("" if same else f" ({plural(len(d.cases), 'case')})"),
        )
        for d in found
    ]  # fmt: skip


def _overview_fill(axes: Axes, study: Study, found: Sequence[Distribution]) -> str:
    for one in found:
        _ecdf(axes, study, one, dash=_VISIT_DASHES[one.visit], marks=(0.5, 0.99))
    style.time_axis(axes, "x", "time of one fill (log scale)")
    axes.set_ylabel("share of fills at or below")
    axes.set_title(f"Fill, {found[0].on}")
    parts = []
    for label, weighted in found[0].series.items():
        tail = weighted.quantile(0.99)
        parts.append(f"{label} {duration(weighted.quantile(0.5))}" + (f" / {duration(tail)}" if tail == tail else ""))
    return f"Fill, {found[0].title.lower()}, {found[0].on}, median / p99: {', '.join(parts)}."


def _overview_compile(axes: Axes, study: Study, compiled: Mapping[str, CompileState]) -> str:
    from matplotlib.lines import Line2D

    faces = {"process_cold": True, "new_schema": False}
    same = len({(s.common, frozenset(s.cases)) for s in compiled.values()}) == 1
    for row, label in enumerate(study.series):
        look = study.looks[label]
        own = {state: s.medians_ns[label] for state, s in compiled.items() if label in s.medians_ns}
        if len(own) == 2 and same:
            axes.plot([*own.values()], [row, row], color=look.colour, linewidth=1.0, zorder=1)
        for state, hollow in faces.items():
            if state in own:
                axes.plot(
                    [own[state]], [row], look.marker, color=look.colour, markersize=7, markeredgewidth=1.4,
                    markerfacecolor=PAPER if hollow else look.colour,
                )  # fmt: skip
        if "new_schema" in own:
            axes.annotate(
                duration(own["new_schema"]), (own["new_schema"], row), (0, 7), textcoords="offset points", ha="center",
                va="bottom", fontsize=7.5,
            )  # fmt: skip
    categories(axes, study.series)
    axes.margins(x=0.22)
    style.time_axis(axes, "x", "time of one compile (log scale)", most_ticks=4)
    shown = [compiled[state] for state in ("new_schema", "process_cold") if state in compiled]
    axes.set_title(f"Compile, {shown[0].on}")
    marks = [
        Line2D(
            [], [], color=INK, marker="o", linestyle="", markerfacecolor=PAPER if faces[s.state] else INK,
            label=s.state.replace("_", " ") + ("" if same else f" ({plural(len(s.cases), 'case')})"),
        )
        for s in shown
    ]  # fmt: skip
    _below_rows(axes, study, marks, columns=2 if same else 1)
    parts = [
        f"Compile, {s.state.replace('_', ' ')}, {s.on}, median: "
        + ", ".join(f"{label} {duration(s.medians_ns[label])}" for label in study.series if label in s.medians_ns)
        for s in shown
    ]
    return ". ".join(parts) + "."


def _below_rows(axes: Axes, study: Study, handles: Sequence[Any], columns: int = 2) -> None:
    """Room below the last row, the same in every panel of the overview, and a legend in it."""
    axes.set_ylim(len(study.series) - 0.5 + min(0.25 * len(study.series), 1.1), -0.65)
    if handles:
        axes.legend(
            handles=handles, loc="lower left", ncols=columns, handlelength=1.1, handletextpad=0.4, columnspacing=0.9,
            borderpad=0.1, fontsize=7.5, labelspacing=0.3,
        )  # fmt: skip


def _overview_coverage(axes: Axes, study: Study) -> str:
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    rows = [coverage(study, s) for s in study.series]
    most = max(r.total for r in rows)
    for y, row in enumerate(rows):
        left = 0
        for outcome in OUTCOMES:
            count = row.counts.get(outcome, 0)
            if not count:
                continue
            face, hatch = style.OUTCOME_MARKS[outcome]
            face = face or study.looks[row.series].colour
            axes.barh(y, count, left=left, color=face, hatch=hatch, height=0.62, edgecolor=PAPER, linewidth=0.8)
            if count >= 0.06 * most:
                axes.text(
                    left + count / 2, y, f"{count}", ha="center", va="center", fontsize=8, fontweight="bold",
                    color={"ok": style.ON_COLOUR, "wrong": PAPER}.get(outcome, style.ON_GREY),
                    bbox={"facecolor": face, "edgecolor": "none", "pad": 1.0} if hatch else None,
                )  # fmt: skip
            left += count
    categories(axes, study.series)
    axes.set_xlim(0, most)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlabel("cases")
    axes.set_title("Coverage (in colour: right)")
    seen = [o for o in OUTCOMES if o != "ok" and any(r.counts.get(o) for r in rows)]
    _below_rows(
        axes,
        study,
        [
            Patch(facecolor=face, hatch=hatch, edgecolor=PAPER, label=o.replace("_", " "))
            for o in seen
            for face, hatch in (style.OUTCOME_MARKS[o],)
        ],
    )
    return f"Right cases: {', '.join(f'{r.series} {r.right} of {r.total}' for r in rows)}."
