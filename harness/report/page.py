"""The page and the summary: what to put where. Manager side; numbers and sentences come from study, causes, findings.

The page is one file with no script and nothing fetched. All text is escaped by the template engine: a library's error
message is shown, never interpreted.
"""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.profile import Profile
from harness.report import findings, steps, style
from harness.report.canvas import Drawn
from harness.report.causes import Cause, Fault, Refused, Surprise, causes, coverage, faults, refusals, surprises, tiers
from harness.report.figures import PERCENTILES, draw, panels
from harness.report.study import Study, all_of, stage_text
from harness.report.style import duration, plural
from harness.results import load


def write(runs: Sequence[Path], out: Path) -> Path:
    """See ``harness.report.build``."""
    study = Study(load(list(runs)))
    drawn = draw(study)
    content = _content(study, runs, [d for d in drawn if d.name in steps.NAMES])
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("*.png"), *folder.glob("*.svg")]:  # of an earlier report, which may have had more
        stale.unlink()
    shown = {d.name: Shown(d.finding, d.alt, _saved(d, folder)) for d in drawn}
    page = out / "index.html"
    page.write_text(_render(content, shown), encoding="utf-8")
    (out / "summary.md").write_text(_summary(study, content, shown), encoding="utf-8")
    return page


@dataclass(frozen=True)
class Shown:
    """A figure on the page. svg: inline markup, ours."""

    finding: str
    alt: str
    svg: str


def _saved(drawn: Drawn, folder: Path) -> str:
    """Save a figure as PNG and SVG; its markup for the page."""
    with style.context():
        drawn.figure.savefig(folder / f"{drawn.name}.png", metadata={"Software": f"masktax {__version__}"})
        drawn.figure.set_layout_engine("none")  # the layout just found serves for the SVG too, and took half the time
        buffer = io.StringIO()
        drawn.figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": drawn.title})
    (folder / f"{drawn.name}.svg").write_text(buffer.getvalue(), encoding="utf-8")
    return style.themed(buffer.getvalue(), drawn.name)


def _render(content: Mapping[str, Any], shown: Mapping[str, Shown]) -> str:
    import jinja2
    from markupsafe import Markup, escape

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures: dict[str, Any] = dict.fromkeys(
        ("overview", "stages", "fill_distribution", "fill_position", "fill_vocabulary", "compile_cache", "axes")
    )
    for name, one in shown.items():
        label = f'<svg role="img" aria-label="{escape(one.alt)}"'
        figures[name] = {"finding": one.finding, "svg": Markup(one.svg.replace("<svg", label, 1))}
    page: str = environment.get_template("page.html").render(content, figures=figures)
    return page


def _content(study: Study, paths: Sequence[Path], of_steps: Sequence[Drawn]) -> dict[str, Any]:
    """Everything on the page but the figures. of_steps: the figures of the decode step that there are."""
    scenarios = [s for run in study.run.runs for s in run.get("scenarios") or ()]
    scenarios = list({s.get("name"): s for s in scenarios}.values())
    headline = study.headline_of("fill")
    content: dict[str, Any] = {
        "version": __version__,
        "title": " + ".join(dict.fromkeys(str(s.get("title") or s.get("name")) for s in scenarios))
        or ", ".join(r["run"] for r in study.run.runs),
        "subtitle": [_dated(run) for run in study.run.runs],
        "banners": [b for run in study.run.runs for b in _banners(study, run)],
        "scenarios": [{k: s.get(k) or "" for k in ("name", "title", "question", "reading")} for s in scenarios],
        "answer": findings.answer(study),
        "timed": study.timed and headline is not None,
        "fill_name": stage_text("fill", headline or ""),
        "series": study.series,
        "looks": study.looks,
        "stages": study.stages,
        "coverage": list(_coverage_rows(study)),
        "stage_rows": [_stage_row(study, stage, conditions) for stage, conditions in panels(study, every=True)],
        "percentiles": list(_percentile_rows(study)),
        "steps": [(d.name, d.title) for d in of_steps],
        "refusals": refusals(study),
        "surprises": surprises(study),
        "faults": faults(study),
        "causes": causes(study),
        "cases": list(_case_rows(study)),
        "profiles": list(_profile_rows(study)),
        "clock": findings.clock_notes(study),
        "runs": [_run(run) for run in study.run.runs],
        "vocabularies": [
            (name, f"{facts['size']:,}" if facts.get("size") else "–", facts.get("sha256", "–"))
            for name, facts in all_of(study, "vocabularies").items()
        ],
        "stop_reasons": findings.stop_reasons(study),
        "source": ", ".join(str(p) for p in paths),
    }
    return content | {"sections": list(_sections(content))}


def _sections(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "answer", "Short answer"
    for name, key, text in (
        ("unexpected", "surprises", "Unexpected"),
        ("coverage", "series", "Coverage"),
        ("stages", "stage_rows", "Stages"),
        ("fill", "percentiles", "Fill"),
        ("step", "steps", "Decode step"),
        ("wrong", "faults", "Wrong"),
        ("causes", "causes", "Unsupported and failed"),
        ("refusals", "refusals", "Not timed"),
        ("cases", "cases", "Every case"),
    ):
        if content[key]:
            yield name, text
    yield "machine", "Machine"
    yield "reproduce", "Reproduce"


def _dated(run: Mapping[str, Any]) -> str:
    finished = f", finished {run['finished_at']}" if run.get("finished_at") else ""
    return f"Run {run['run']}, begun {run.get('created_at', 'at an unknown time')}{finished}"


def _banners(study: Study, run: Mapping[str, Any]) -> Iterator[str]:
    recorded = int((study.records["run"] == run["run"]).sum())
    planned = run.get("stages_planned") or 0
    share = f"{recorded:,} of {planned:,} stages are recorded" if planned else f"{plural(recorded, 'stage')} recorded"
    if run.get("interrupted"):
        yield f"Run {run['run']} was interrupted: {share}. What follows is of those; go on with --resume."
    elif not run.get("finished_at"):
        yield f"Run {run['run']} is in progress, or was killed: {share}. What follows is of those."
    elif planned > recorded:
        yield f"Run {run['run']}: only {share}."
    if not run.get("timed", True):
        yield f"Run {run['run']} is a verification: nothing was timed."


def _coverage_rows(study: Study) -> Iterator[dict[str, Any]]:
    own = tiers(study)
    for tier in (*own, None) if len(own) > 1 else own:
        cells = [coverage(study, s, tier) for s in study.series]
        yield {
            "tier": tier,
            "cells": [
                {"counts": c.counts, "fill": None if math.isnan(c.fill_median_ns) else duration(c.fill_median_ns)}
                for c in cells
            ],
        }


def _stage_row(study: Study, stage: str, conditions: str) -> dict[str, Any]:
    ranking = study.ranking(stage, conditions)
    own = study.timing[(study.timing["stage"] == stage) & (study.timing["conditions"] == conditions)]
    values = []
    for label in study.series:
        times = own.loc[own["series"] == label, "median_ns"]
        if ranking and label in ranking.medians_ns:
            low, high = ranking.quartiles_ns[label]
            values.append((duration(ranking.medians_ns[label]), f"{duration(low)} – {duration(high)}"))
        elif len(times):
            values.append((duration(float(times.median())), f"its own {plural(len(times), 'case')}"))
        else:
            values.append(("–", ""))
    cases = f"{len(ranking.cases)} common" if ranking else "none in common" if own["series"].nunique() > 1 else "–"
    return {"what": stage_text(stage, conditions), "cases": cases, "numbers": values}


def _percentile_rows(study: Study) -> Iterator[dict[str, Any]]:
    for visit in study.visits:
        found = study.distribution(visit)
        for label, weighted in found.series.items():
            values = [*(weighted.quantile(q) for q in PERCENTILES), weighted.max_ns]
            yield {
                "visit": visit or "–",
                "cases": f"{len(found.cases)} common" if found.common else "its own",
                "series": label,
                "numbers": [*map(duration, values), f"{weighted.samples:,}"],
            }


def _case_rows(study: Study) -> Iterator[dict[str, Any]]:
    outcome = {(r["series"], r["case"]): r["outcome"] for r in study.cases.to_dict("records")}
    fill = study.timing[
        (study.timing["stage"] == "fill") & (study.timing["conditions"] == study.headline_of("fill"))
    ].to_dict("records")
    time = {(r["series"], r["case"]): duration(r["median_ns"]) for r in fill}
    for case in dict.fromkeys(study.cases["case"]):
        keys = [(s, case) for s in study.series]
        yield {"case": case, "cells": [(outcome.get(key), time.get(key)) for key in keys]}


def _profile_rows(study: Study) -> Iterator[tuple[str, str, str]]:
    """Under which language policy each series was judged: what it declares otherwise than the standards."""
    declared = all_of(study, "profiles")
    pairs = study.records[["series", "adapter", "profile"]].drop_duplicates()
    for series in study.series:
        for row in pairs[pairs["series"] == series].to_dict("records"):
            fields = (declared.get(row["adapter"]) or {}).get(row["profile"])
            yield series, row["profile"], "not recorded" if fields is None else _declared(fields)


def _declared(fields: Mapping[str, Any]) -> str:
    standard = Profile().to_json()
    other = [f"{name.replace('_', ' ')}: {value}" for name, value in fields.items() if standard.get(name) != value]
    return "; ".join(other) or "nothing"


# What it was run on.


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    sessions = [s for s in run.get("sessions") or () if s.get("before")]
    return {
        "name": run["run"],
        "notes": findings.machine_notes(run),
        "machine": list(_flat(run.get("machine") or {})),
        "sessions": [_session(number, len(sessions), s) for number, s in enumerate(sessions, 1)],
        "environments": [_environment(name, facts) for name, facts in (run.get("environments") or {}).items()],
        "reproduce": _reproduce(run),
    }


def _session(number: int, of: int, session: Mapping[str, Any]) -> dict[str, Any]:
    before, after = (dict(_flat(session.get(name) or {})) for name in ("before", "after"))
    which = f"Session {number} of {of}: how" if of > 1 else "How"
    cut = f", ended by {session['interrupted_by']}" if session.get("interrupted_by") else ""
    return {
        "caption": f"{which} the machine stood before and after{cut}",
        "rows": [(key, before.get(key, "–"), after.get(key, "–")) for key in dict.fromkeys((*before, *after))],
    }


def _environment(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    packages = facts.get("packages") or {}
    rest = {k: v for k, v in facts.items() if k not in ("packages", "backends")}
    backends = [
        (f"backend {backend}", said.get("version") or said.get("reason") or "–")
        for backend, said in (facts.get("backends") or {}).items()
    ]
    return {
        "name": name,
        "facts": [*backends, *_flat(rest)],
        "packages": [
            (package, said.get("version") or "–", said.get("record_sha256") or said.get("sha256") or "–")
            for package, said in packages.items()
        ],
    }


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as rows of words; units from the names' endings. What is unknown is said to be."""
    for name, value in facts.items():
        words = f"{above} {name}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, words)
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for number, one in enumerate(value):
                yield from _flat(one, f"{words} {number}")
        else:
            yield _with_unit(words, value)


def _with_unit(words: str, value: Any) -> tuple[str, str]:
    stem, _, unit = words.rpartition(" ")
    if value is None:
        return words, "unknown"
    if isinstance(value, bool):
        return words, "yes" if value else "no"
    if isinstance(value, list):
        return words, ", ".join(str(v) for v in value) or "none"
    if unit == "bytes" and isinstance(value, int | float):
        return stem, style.size(value)
    if unit == "ns" and isinstance(value, int | float):
        return stem, duration(float(value))
    if unit == "us" and isinstance(value, int | float):
        return stem, duration(value * 1e3)
    if isinstance(value, int | float):
        number = f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"
        return words, number
    return words, str(value)


def _reproduce(run: Mapping[str, Any]) -> str:
    lines = []
    git = run.get("git")
    if git and git.get("commit"):
        changed = "  # the tree had changes that are not in this commit" if git.get("dirty") else ""
        lines.append(f"git checkout {git['commit']}{changed}")
    else:
        lines.append(f"# masktax {run.get('masktax', 'of an unknown version')}, not from a checkout")
    command = run.get("command")
    lines.append(shlex.join(command) if command else "# the command is not recorded")
    if run.get("seed") is not None:
        lines.append(f"# seed {run['seed']}")
    lines += [f"# scenario {s.get('name')}: sha256 {s.get('sha256')}" for s in run.get("scenarios") or ()]
    return "\n".join(lines)


# summary.md


def _summary(study: Study, content: Mapping[str, Any], shown: Mapping[str, Shown]) -> str:
    lines = [f"# {_plain(content['title'])}", ""]
    for line in (*content["subtitle"], *content["banners"]):
        lines += [_plain(line), ""]
    lines += [f"- {_plain(sentence)}" for sentence in content["answer"]]
    if "overview" in shown:
        lines += ["", f"![{_plain(shown['overview'].alt)}](figures/overview.png)"]
    if study.series:
        lines += ["", "## Coverage beside speed", ""]
        rows = [[row["tier"] or "all", *(_coverage_text(c) for c in row["cells"])] for row in content["coverage"]]
        lines += _table(["tier", *study.series], rows)
    if content["stage_rows"]:
        lines += ["", "## Per stage, medians of per-case medians over the common cases", ""]
        rows = [[r["what"], r["cases"], *(value for value, _ in r["numbers"])] for r in content["stage_rows"]]
        lines += _table(["stage", "cases", *study.series], rows)
    if content["percentiles"]:
        lines += ["", "## Fill, percentiles", ""]
        rows = [[p["visit"], p["series"], p["cases"], *p["numbers"]] for p in content["percentiles"]]
        lines += _table(["visit", "backend", "cases", "p50", "p90", "p99", "p99.9", "max", "samples"], rows)
    for name, title in content["steps"]:
        lines += ["", f"## {title}", "", _plain(shown[name].finding)]
    lines += _trouble(content["surprises"], content["faults"], content["causes"], content["refusals"])
    lines += ["", "## How to reproduce", ""]
    for run in content["runs"]:
        lines += ["```", run["reproduce"], "```"]
    return "\n".join(lines) + "\n"


def _coverage_text(cell: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in cell["counts"].items())
    return counts + (f" · {cell['fill']}" if cell["fill"] else "") or "not asked"


def _trouble(
    odd: Sequence[Surprise], wrong: Sequence[Fault], why: Sequence[Cause], refused: Sequence[Refused]
) -> list[str]:
    lines: list[str] = []
    if odd:
        lines += ["", "## Unexpected outcomes", ""]
        rows = [[s.series, s.constraint, s.expected, s.outcome, str(s.cells), s.reason] for s in odd]
        lines += _table(["backend", "constraint", "expected", "outcome", "cells", "why"], rows)
    if wrong:
        lines += ["", "## Wrong masks", ""]
        rows = [[f.series, f.direction, str(f.cells), f.explanation, ", ".join(f.constraints)] for f in wrong]
        lines += _table(["backend", "direction", "cells", "what", "constraints"], rows)
    if why:
        lines += ["", "## Unsupported, failed, timed out, crashed", ""]
        rows = [[c.outcome, c.series, str(c.cells), ", ".join(c.stages), c.text] for c in why]
        lines += _table(["outcome", "backend", "cells", "stages", "why"], rows)
    if refused:
        lines += ["", "## Conditions that were not timed", ""]
        rows = [[r.kind, r.series, r.stage, r.conditions, str(r.cells), r.text] for r in refused]
        lines += _table(["kind", "backend", "stage", "conditions", "cells", "why"], rows)
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(map(_plain, head)) + " |",
        "|" + " --- |" * len(head),
        *("| " + " | ".join(map(_plain, row)) + " |" for row in rows),
    ]


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    escaped = "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text)
    return " ".join(escaped.split())
