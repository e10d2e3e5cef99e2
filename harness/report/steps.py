"""Figures of the decode step: batches, kernels, rewinds, drafts, bounded repetition and what of it is exposed. Manager
side.

Like those of ``figures``: each one question, None where there is nothing to draw, times of wrong cells never drawn.
Within a panel a backend keeps its colour; policies, dtypes and modes differ by marker and dash.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.report import style
from harness.report.canvas import Drawn, canvas, categories, legend
from harness.report.study import Study
from harness.report.style import FAINT, INK, PAPER, duration, listed, plural, times
from harness.shapes import Ratio, ratio, shapes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES = (
    "rows",
    "threshold",
    "chunk",
    "threads",
    "history",
    "draft_tokens",
    "rollback_tokens",
    "forward_us",
    "bound_ns",
)
CHOICES = ("policy", "mix", "kernel", "dtype", "memory", "mode", "transport", "shape", "drafts", "wait", "device")
SWITCH_ROWS = 128
"""Up to so many rows vLLM fills one after the other."""
STEP_NS = 20e6
"""The decode step of which shares are taken, as in the scenario ``tax``."""


def _timed(study: Study, stage: str) -> pd.DataFrame:
    """Times of a stage's right cells: sizes as numbers, and every axis a column, missing where it was not recorded."""
    own = study.timing[study.timing["stage"] == stage]
    own = own.reindex(columns=[*own.columns, *(c for c in (*SIZES, *CHOICES) if c not in own)])
    return own.assign(**{name: pd.to_numeric(own[name]).astype(float) for name in SIZES})


def _chosen(frame: pd.DataFrame, *keys: str) -> tuple[tuple[Any, ...], pd.DataFrame]:
    """Of the groups by ``keys`` the one that was timed for the most series, then under the most conditions; of equals
    the one recorded first."""
    groups = list(frame.groupby(list(keys), sort=False, dropna=False, observed=True))
    key, own = max(groups, key=lambda group: (group[1]["series"].nunique(), len(group[1])))
    return tuple(key), own


def _line(panel: Axes, values: pd.Series[float], colour: str, variant: tuple[str, Any]) -> None:
    """Values against their index, in order; a single one is a marker."""
    values = values.sort_index()
    marker, dash = variant
    x = values.index.to_numpy(dtype=float)
    panel.plot(x, values.to_numpy(), color=colour, marker=marker, linestyle=dash, markeredgecolor=PAPER)


def _size_axis(panel: Axes, label: str, values: Sequence[float], most: int = 5) -> None:
    """A logarithmic x axis with ticks at some of the sizes themselves, the largest always among them."""
    from matplotlib.ticker import NullLocator

    sizes = sorted(set(values))
    ticks = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if size * (sizes[-1] / sizes[0]) ** (1 / most) <= ticks[-1]:
            ticks.append(size)
    panel.set_xscale("log")
    panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel(label)


def _handles(variants: Mapping[str, tuple[str, Any]]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=INK, marker=marker, linestyle=dash, label=label.replace("_", " "))
        for label, (marker, dash) in variants.items()
    ]


def _series(study: Study, frame: pd.DataFrame) -> list[str]:
    return [s for s in study.series if (frame["series"] == s).any()]


def _distinct(column: pd.Series[Any]) -> list[Any]:
    return list(dict.fromkeys(column.dropna()))


# Batches.

_SETTING = ("policy", "rows", "threshold", "chunk", "threads")


def threshold(study: Study) -> Drawn | None:
    """Time of a batch against its rows, by policy; from where on the pool is faster."""
    frame = _timed(study, "batch_fill")
    frame = frame[frame["rows"].notna()]
    if frame["rows"].nunique() < 2 or "vllm_pool" not in set(frame["policy"]):
        return None
    (case, mix), own = _chosen(frame, "case", "mix")
    # Of several chunks and pools, those recorded first: a scenario's own before what it includes.
    own = own.drop_duplicates(["series", "policy", "threshold", "rows"])
    several = own["threshold"].nunique() > 1
    own = own.assign(
        line=[
            f"{policy} (threshold {at:g})" if several and at == at else policy
            for policy, at in zip(own["policy"], own["threshold"], strict=True)
        ]
    )
    variants = style.variants(_distinct(own["line"]))
    labels = _series(study, own)
    figure, panels = canvas(5.6, 2, len(labels), sharex=True, sharey="row")
    for column, label in enumerate(labels):
        of_series = own[own["series"] == label]
        for row, divide in enumerate((True, False)):
            panel = panels[row * len(labels) + column]
            for line, some in of_series.groupby("line", sort=False):
                values = some.set_index("rows")["median_ns"]
                values = values / values.index if divide else values
                _line(panel, values, study.looks[label].colour, variants[str(line)])
            panel.axvline(SWITCH_ROWS, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
            _size_axis(panel, "" if divide else "rows", own["rows"].tolist(), most=4)
            style.time_axis(panel, "y", ("time per row" if divide else "time per batch") if not column else "")
        panels[column].set_title(label)
    figure.legend(handles=_handles(variants), loc="outside upper center", ncols=3)
    samples = study.samples_of("batch_fill")
    samples = samples[(samples["case"] == case) & (samples["mix"] == mix)]
    said = listed([f"{label} {_from_where(own[own['series'] == label], samples)}" for label in labels])
    finding = (
        f"The pool is faster than serial: {said}. {case}, mix {mix}, states met before; dashed: vLLM's switch at "
        f"{SWITCH_ROWS} rows. Faster means at every larger size timed too, with the whole 95 % interval of the ratio."
    )
    return Drawn(
        "threshold",
        "A pool of threads against one row after the other",
        figure,
        finding,
        f"Time per row and per batch against rows for {listed(labels)}, a line for each policy "
        f"({', '.join(variants)}). {finding}",
    )


def _from_where(own: pd.DataFrame, samples: pd.DataFrame) -> str:
    """From how many rows on the pool is faster than serial, for one series. own: its chosen measurements."""
    samples = samples[samples["series"] == own["series"].iloc[0]]
    serial = {row["rows"]: row for row in own[own["policy"] == "serial"].to_dict("records")}
    pool = own[(own["policy"] == "vllm_pool") & (own["rows"] > own["threshold"])].sort_values("threshold")
    found: dict[float, Ratio] = {}
    for row in pool.drop_duplicates("rows").sort_values("rows").to_dict("records"):
        if row["rows"] in serial:
            found[row["rows"]] = ratio(_times(samples, row), _times(samples, serial[row["rows"]]))
    if not found:
        return "not timed under both"
    since = None
    for rows in sorted(found, reverse=True):
        if found[rows].high >= 1:
            break
        since = rows
    largest = max(found)
    where = "never" if since is None else f"from {since:g} rows on"
    return f"{where} ({found[largest]} at {largest:g} rows)"


def _times(samples: pd.DataFrame, row: Mapping[Hashable, Any]) -> Any:
    """Samples of one measurement of a batch."""
    for axis in _SETTING:
        if axis in samples:
            value = row[axis]
            samples = samples[samples[axis] == value] if value == value else samples[samples[axis].isna()]
    return samples["time_ns"].to_numpy()


def share_of_step(study: Study) -> Drawn | None:
    """Filling every row, and every state once, as a share of a step of 20 ms."""
    frame = _timed(study, "batch_fill")
    frame = frame[frame["rows"].notna() & frame["policy"].isin(("serial", "state_shared"))]
    if frame["policy"].nunique() < 2:
        return None
    (case,), own = _chosen(frame, "case")
    own = own.drop_duplicates(["series", "policy", "mix", "rows"])
    variants = style.variants(["serial", "state_shared"])
    labels, mixes = _series(study, own), _distinct(own["mix"])
    figure, panels = canvas(3.6, 1, len(mixes), sharey=True)
    said = []
    for panel, mix in zip(panels, mixes, strict=True):
        of_mix = own[own["mix"] == mix]
        largest = of_mix["rows"].max()
        parts = []
        for label in labels:
            shares = {}
            for policy, variant in variants.items():
                some = of_mix[(of_mix["series"] == label) & (of_mix["policy"] == policy)]
                if len(some):
                    values = 100 * some.set_index("rows")["median_ns"] / STEP_NS
                    _line(panel, values, study.looks[label].colour, variant)
                    if largest in values.index:
                        shares[policy] = f"{values[largest]:.2g} % {policy.replace('_', ' ')}"
            if shares:
                parts.append(f"{label} {', '.join(shares.values())}")
        said.append(f"{mix}, {largest:g} rows: {'; '.join(parts)}.")
        _size_axis(panel, "rows", own["rows"].tolist())
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(True, axis="y")
        panel.set_title(f"mix {mix}")
    panels[0].set_ylabel("% of a step of 20 ms (log scale)")
    legend(figure, study, labels, _handles(variants))
    finding = f"Filling a batch as a share of a step of 20 ms that hides none of it, {case}. " + " ".join(said)
    return Drawn("share_of_step", "Every row, or every state once", figure, finding, finding)


# Kernels and copies.

_WAYS: Mapping[str, tuple[str, str | None]] = {
    "apply": ("kernel", "dtype"),
    "copy": ("memory", "mode"),
    "serialize": ("transport", None),
}


def against_bound(study: Study) -> Drawn | None:
    """Measured time over the time that moving the bytes takes at the measured bandwidth."""
    found = []
    for stage, (way, kind) in _WAYS.items():
        frame = _timed(study, stage)
        frame = frame[frame["bound_ns"] > 0]
        frame = frame.assign(
            device=frame["device"].fillna("cpu"),
            way=frame[way],
            kind=frame[kind].astype(str).str.replace("_", " ") if kind else "",
            ratio=frame["median_ns"] / frame["bound_ns"],
        )
        found += [(stage, str(device), own) for device, own in frame.groupby("device", sort=False)]
    if not found:
        return None
    columns = min(len(found), 2)
    rows = -(-len(found) // columns)
    most = max(own["way"].nunique() for *_, own in found)
    figure, panels = canvas(rows * (1.2 + 0.3 * most), rows, columns)
    kinds = style.variants(sorted({kind for *_, own in found for kind in own["kind"] if kind}))
    said = [_bound_panel(panel, kinds, *one) for panel, one in zip(panels, found, strict=False)]
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    if kinds:
        handles = _handles({label: (marker, "") for label, (marker, _) in kinds.items()})
        figure.legend(handles=handles, loc="outside upper center", ncols=6)
    if all(device == "cpu" for _, device, _ in found):
        said.append("Not run on a GPU.")
    finding = " ".join(said)
    return Drawn(
        "against_bound",
        "Measured against the bound",
        figure,
        finding,
        "Time divided by the bound, on a logarithmic axis, a row for each way and a marker for each kind. " + finding,
    )


def _bound_panel(panel: Axes, kinds: Mapping[str, tuple[str, Any]], stage: str, device: str, own: pd.DataFrame) -> str:
    """Draws the largest batch, over the cases in which the most ways were timed; what was fastest, of each kind."""
    largest = own["rows"].max()
    own = own[own["rows"] == largest] if largest == largest else own
    ways = own.groupby("case")["conditions"].nunique()
    own = own[own["case"].isin(ways[ways == ways.max()].index)]
    names = _distinct(own["way"])
    medians = own.groupby(["kind", "way"], sort=False)[["median_ns", "ratio"]].median().reset_index()
    for row in medians.to_dict("records"):
        marker = kinds[row["kind"]][0] if row["kind"] else "o"
        panel.plot([row["ratio"]], [names.index(row["way"])], marker, color=INK, markersize=7, markeredgecolor=PAPER)
    panel.axvline(1.0, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    categories(panel, names)
    for y in range(1, len(names)):
        panel.axhline(y - 0.5, color=FAINT, linewidth=0.8)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.grid(True, axis="x")
    panel.set_xlabel("measured over bound (log scale)")
    sized = f", {plural(int(largest), 'row')}" if largest == largest else ""
    panel.set_title(f"{stage} on {device}{sized}")
    parts = []
    for kind, some in medians.groupby("kind", sort=False):
        best: dict[Any, Any] = some.nsmallest(1, "median_ns").to_dict("records")[0]
        named = f"{best['way']} ({kind!s})" if kind else str(best["way"])
        parts.append(f"{named} {duration(float(best['median_ns']))}, {times(float(best['ratio']))} the bound")
    cases = plural(int(own["case"].nunique()), "case")
    return f"{stage} on {device}{sized}, {cases}, fastest right {_WAYS[stage][0]}: {'; '.join(parts)}."


# Rewinds and drafts.


def rollback_history(study: Study) -> Drawn | None:
    """Rewinding against what was accepted before, with the fitted growth."""
    frame = _timed(study, "rollback")
    frame = frame[frame["history"] >= 1]
    if frame["history"].nunique() < 2:
        return None
    (case,), own = _chosen(frame, "case")
    labels, counts = _series(study, own), sorted(_distinct(own["rollback_tokens"]))
    samples = study.samples_of("rollback")
    fits = shapes(samples[samples["case"] == case], "history", ["series", "rollback_tokens"])
    figure, panels = canvas(3.6, 1, len(counts), sharey=True)
    said = []
    for panel, count in zip(panels, counts, strict=True):
        of_count = own[own["rollback_tokens"] == count]
        for label in labels:
            look = study.looks[label]
            line = of_count[of_count["series"] == label].set_index("history")["median_ns"]
            _line(panel, line, look.colour, (look.marker, look.dash))
        _size_axis(panel, "tokens accepted before (log scale)", own["history"].tolist())
        panel.set_title(f"rewind of {plural(int(count), 'token')}")
        parts = [f"{label}: {fits[label, count]}" for label in labels if (label, count) in fits]
        said.append(f"Rewind of {plural(int(count), 'token')}: {'; '.join(parts)}.")
    for panel in panels:
        style.time_axis(panel, "y", "time of one rewind" if panel is panels[0] else "")
    legend(figure, study, labels)
    finding = f"{case}. " + " ".join(said) + " Fitted to medians by history; in brackets the 95 % interval."
    return Drawn("rollback_history", "Rewind against history", figure, finding, finding)


def speculation(study: Study) -> Drawn | None:
    """A sequence's drafts against how many they are, by shape, where they come from, and who walks them."""
    frame = _timed(study, "speculate")
    frame = frame[frame["draft_tokens"] >= 1]
    if frame.empty:
        return None
    (case,), own = _chosen(frame, "case")
    own = own.drop_duplicates(["series", "shape", "drafts", "policy", "draft_tokens"])
    labels, policies = _series(study, own), _distinct(own["policy"])
    shapes_of, sources = _distinct(own["shape"]), _distinct(own["drafts"])
    variants = style.variants(policies)
    figure, panels = canvas(0.6 + 2.6 * len(shapes_of), len(shapes_of), len(sources), sharex=True, sharey=True)
    said = []
    grid = [(shape, source) for shape in shapes_of for source in sources]
    for panel, (shape, source) in zip(panels, grid, strict=True):
        here = own[(own["shape"] == shape) & (own["drafts"] == source)]
        parts = []
        for label in labels:
            lines = {}
            for policy in policies:
                some = here[(here["series"] == label) & (here["policy"] == policy)]
                if len(some):
                    lines[policy] = some.set_index("draft_tokens")["median_ns"].sort_index()
                    _line(panel, lines[policy], study.looks[label].colour, variants[policy])
            parts += [f"{label} {policy} {duration(float(line.iloc[-1]))}" for policy, line in lines.items()]
        if parts:
            said.append(f"{shape}, {source.replace('_', ' ')} drafts, {here['draft_tokens'].max():g}: {listed(parts)}.")
        panel.set_title(f"{shape}, {source.replace('_', ' ')} drafts")
        _size_axis(panel, "draft tokens", own["draft_tokens"].tolist())
    for i, panel in enumerate(panels):
        style.time_axis(panel, "y", "time of one sequence" if i % len(sources) == 0 else "")
    legend(figure, study, labels, _handles(variants))
    finding = f"The rows of one sequence's drafts, {case}, at the largest number of draft tokens. " + " ".join(said)
    return Drawn("speculation", "Drafts", figure, finding, finding)


# Bounded repetition.


def bounded(study: Study) -> Drawn | None:
    """Later fills of a bounded repetition against its bound, and against its twin without one."""
    fills = study.fills
    fills = fills[(fills["visit"] == "later") & fills["constraint"].astype(str).str.startswith("bounded/")]
    if fills.empty:
        return None
    parts = fills["constraint"].astype(str).str.extract(r"^bounded/(?P<family>.+)_(?P<bound>\d+|unbounded)$")
    fills = fills.assign(family=parts["family"], bound=pd.to_numeric(parts["bound"], errors="coerce"))
    fills = fills[fills["family"].notna()]
    twins = dict(list(fills[fills["bound"].isna()].groupby(["family", "series"], observed=True)))
    families = [f for f in _distinct(fills["family"]) if (fills["bound"].notna() & (fills["family"] == f)).any()]
    if not families:
        return None
    labels = _series(study, fills[fills["family"].isin(families)])
    columns = min(2, len(families))
    rows = -(-len(families) // columns)
    figure, panels = canvas(0.6 + 2.7 * rows, rows, columns)
    said = []
    for panel, family in zip(panels, families, strict=False):
        own = fills[(fills["family"] == family) & fills["bound"].notna()]
        found = []
        for label in labels:
            some = own[own["series"] == label]
            look = study.looks[label]
            if some.empty:
                continue
            _line(panel, some.groupby("bound")["time_ns"].median(), look.colour, (look.marker, look.dash))
            twin = twins.get((family, label))
            if twin is None:
                continue
            panel.axhline(float(twin["time_ns"].median()), color=look.colour, linewidth=0.9, linestyle=(0, (1, 2)))
            largest = some["bound"].max()
            found.append(f"{label} {_over_twin(some[some['bound'] == largest], twin)} at {largest:g}")
        if found:
            said.append(f"{family.replace('_', ' ')}: {', '.join(found)}.")
        _size_axis(panel, "bound (log scale)", own["bound"].tolist())
        style.time_axis(panel, "y", "time of one fill")
        panel.set_title(family.replace("_", " "))
    for panel in panels[len(families) :]:
        panel.set_axis_off()
    legend(figure, study, labels)
    finding = (
        " ".join(["Later fills, bounded over unbounded at the positions that both have.", *said])
        + " Dotted: all of the unbounded twin's. Wrong cells are left out."
    )
    return Drawn("bounded", "Bounded repetition", figure, finding, finding)


def _over_twin(fills: pd.DataFrame, twin: pd.DataFrame) -> str:
    """The ratio of the medians, where the two documents stand at the same position."""
    steps = ["document", "position"]
    common = set(zip(*(fills[c] for c in steps), strict=True)) & set(zip(*(twin[c] for c in steps), strict=True))
    one, other = (
        frame[[step in common for step in zip(*(frame[c] for c in steps), strict=True)]] for frame in (fills, twin)
    )
    return str(ratio(one["time_ns"].to_numpy(), other["time_ns"].to_numpy())) if common else "has no common position"


# The step.


def exposed(study: Study) -> Drawn | None:
    """By how much the grammar makes a step longer, by what runs beside the forward pass."""
    frame = _timed(study, "step")
    frame = frame[frame["rows"].notna() & frame["mode"].notna()]
    if frame.empty:
        return None
    (case, policy, wait), own = _chosen(frame, "case", "policy", "wait")
    own = own.drop_duplicates(["series", "mode", "rows", "forward_us"])
    labels, forwards = _series(study, own), sorted(_distinct(own["forward_us"]))
    variants = style.variants(_distinct(own["mode"]))
    figure, panels = canvas(3.8, 1, len(forwards), sharey=True)
    said = []
    for panel, forward in zip(panels, forwards, strict=True):
        here = own[own["forward_us"] == forward]
        largest = here["rows"].max()
        parts = []
        for label in labels:
            for mode, variant in variants.items():
                line = here[(here["series"] == label) & (here["mode"] == mode)].set_index("rows")["median_ns"]
                line = line[line > 0]  # nothing exposed has no place on a logarithmic axis
                if len(line):
                    _line(panel, line, study.looks[label].colour, variant)
                if largest in line.index:
                    parts.append(f"{label} {mode} {duration(float(line[largest]))}")
        said.append(f"Pass of {duration(forward * 1e3)}, {plural(int(largest), 'row')}: {listed(parts)}.")
        _size_axis(panel, "rows", own["rows"].tolist())
        panel.set_title(f"forward pass of {duration(forward * 1e3)}")
    for panel in panels:
        style.time_axis(panel, "y", "exposed time of a step" if panel is panels[0] else "")
    legend(figure, study, labels, _handles(variants))
    finding = f"By how much a step is longer, {case}, policy {policy}, wait {wait}, medians. " + " ".join(said)
    return Drawn("exposed", "Exposed time by mode", figure, finding, finding)


STEPS: Sequence[Callable[[Study], Drawn | None]] = (
    threshold, share_of_step, against_bound, rollback_history, speculation, bounded, exposed,
)  # fmt: skip
"""Those of this file, in the order in which a report shows them."""
NAMES = tuple(make.__name__ for make in STEPS)
"""Each is named as its function is."""
OWN_FIGURE = ("batch_fill", "apply", "copy", "serialize", "speculate", "step")
"""Stages whose conditions mean little when mixed with one another: shown here and nowhere else."""
