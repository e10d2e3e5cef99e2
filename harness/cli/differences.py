"""``masktax differences``: where two backends' masks differ, grouped so that one fault is one line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.run import CORPUS, CORPUS_SAMPLE, JSON
from harness.cli.verify import JOBS

if TYPE_CHECKING:
    from harness.cell import Cell
    from harness.corpora import Corpus
    from harness.differences import Fault

EXAMPLE = "[bold]Example[/bold]: masktax differences xgrammar --constraint 'flat/*'"

NAME = "differences"
TIME_LIMIT_S, MEMORY_LIMIT_MB = 300.0, 8192

ONE = typer.Argument(..., metavar="A", help="The backend that is looked at.")
OTHER = typer.Argument("reference", metavar="[B]", help="The backend that it is compared with.", show_default=True)
CONSTRAINT: list[str] = typer.Option(
    [], "--constraint", metavar="GLOB",
    help="Constraints by name; may be given several times. Default: all of the corpus where there is one, else all "
    "built-in ones.",
)  # fmt: skip
VOCABULARY: str | None = typer.Option(None, "--vocabulary", metavar="NAME", help="Default: deepseek.")
PROFILE: str = typer.Option("default", "--profile", metavar="NAME", help="A language policy that A declares.")


@dataclass(frozen=True)
class NotCompared:
    """Documents of one constraint that were not compared, all for one reason."""

    constraint: str
    documents: tuple[str, ...]
    outcome: str
    reason: str


def differences(
    one: str = ONE,
    other: str = OTHER,
    constraint: list[str] = CONSTRAINT,
    corpus: Path | None = CORPUS,
    corpus_sample: int | None = CORPUS_SAMPLE,
    vocabulary: str | None = VOCABULARY,
    profile: str = PROFILE,
    jobs: int = JOBS,
    as_json: bool = JSON,
) -> int:
    """Walk each constraint's documents with two backends, and tell where their masks differ.

    Both are compiled under the policy that A declares, so B must be able to follow it; `reference` and `naive` follow
    any. Every row is compared, and what differs in the same way (direction, kind of character, place, keywords)
    is one line: in how many constraints, documents, rows and tokens, and the first example.

    Nothing is judged: the exit status is 0 whatever is found. After Ctrl-C what was found until then is told.
    """
    from harness import corpora
    from harness.cli import EXIT_INTERRUPTED, session
    from harness.differences import Fault, merge
    from harness.results import RunStore
    from harness.runner import manager
    from harness.runner.manager import Environment
    from harness.runner.progress import Progress
    from harness.scenario import DEFAULT_ENVIRONMENT

    cells = _cells(one, other, constraint, corpora.given(corpus, corpus_sample), vocabulary, profile)
    environments = {DEFAULT_ENVIRONMENT: Environment(DEFAULT_ENVIRONMENT, Path(sys.executable))}
    interrupted = False
    with (
        tempfile.TemporaryDirectory(prefix="masktax-differences-") as folder,
        session.writing(Path(folder)),
        RunStore.create(Path(folder) / NAME, {"timed": False}) as store,
    ):
        try:
            with Progress() as display:
                manager.run(
                    cells, store, environments,
                    timed=False, jobs=jobs or os.cpu_count() or 1, beside=other, on_event=display,
                )  # fmt: skip
        except manager.Interrupted as interruption:
            interrupted = True
            print(f"masktax: {interruption.args[0]}; this is what they showed", file=sys.stderr)
        place = {cell.id: number for number, cell in enumerate(cells)}
        records = sorted(store.records(), key=lambda record: place[record["cell"]])
    compared = [r for r in records if r["outcome"] == "ok"]
    faults = merge(Fault.from_json(f) for r in compared for f in r["facts"]["faults"])
    said = {
        "backend": one, "beside": other, "profile": profile, "vocabulary": cells[0].vocabulary,
        "versions": dict(compared[0]["facts"]["versions"]) if compared else {},
        "constraints": len({r["constraint"] for r in compared}), "documents": len(compared),
        "rows": sum(r["facts"]["rows"] for r in compared),
        "rows_differing": sum(r["facts"]["rows_differing"] for r in compared),
    }  # fmt: skip
    missing = _not_compared(records)
    if as_json:
        faults_said = [f.to_json() for f in faults]
        print(json.dumps(said | {"faults": faults_said, "not_compared": [asdict(n) for n in missing]}, indent=1))
    else:
        _tell(said, faults, missing)
    return EXIT_INTERRUPTED if interrupted else 0


def _cells(
    one: str, other: str, globs: Sequence[str], corpus: Corpus | None, vocabulary: str | None, profile: str
) -> list[Cell]:
    """A cell for each constraint, whose stages are its documents."""
    from harness import comparison, loaders, paths
    from harness import scenario as scenarios
    from harness.backends import registry
    from harness.cell import OUTSIDE_TIER, is_outside
    from harness.cli import session
    from harness.errors import MasktaxError
    from harness.prepare import cells_of
    from harness.scenario import DEFAULT_ENVIRONMENT, Point, Workload, nearest
    from harness.scenario.model import vocabulary_name
    from harness.scenario.reading import Table, values_of_axis

    declared = registry.create(one).profiles
    registry.create(other)
    if profile not in declared:
        raise MasktaxError(f"{one} declares no profile {profile!r}{nearest(profile, declared)}")
    known = scenarios.known(corpus)
    asked = list(globs) or ([f"{OUTSIDE_TIER}/*"] if corpus else ["*"])
    if corpus is None and any(map(is_outside, asked)):
        raise MasktaxError("--constraint: no outside corpus is given; name one with --corpus DIR")
    table = Table(f"masktax {NAME}", "", {"constraint": asked, "vocabulary": [vocabulary or loaders.DEFAULT]})
    (source,) = values_of_axis(table, "vocabulary", known, {}, {})
    points = [
        Point(
            id=name, scenario=NAME, backend=one, adapter=one, options={}, environment=DEFAULT_ENVIRONMENT,
            vocabulary=vocabulary_name(source), vocabulary_source=source, constraint=name, profile=profile, process=0,
            workload=Workload((NAME,), time_limit_s=TIME_LIMIT_S, memory_limit_mb=MEMORY_LIMIT_MB), conditions={},
        )
        for name in values_of_axis(table, "constraint", known, {}, {})
    ]  # fmt: skip
    outside = corpus.read([p.constraint for p in points if is_outside(p.constraint)]).entries if corpus else {}
    with session.writing(paths.cache()):
        cells = cells_of(points, {}, outside=outside)
    return [replace(cell, stages=tuple(d.name for d in comparison.documents(cell))) for cell in cells]


def _not_compared(records: Sequence[Mapping[str, Any]]) -> list[NotCompared]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for r in records:
        if r["outcome"] != "ok":
            found.setdefault((r["constraint"], r["outcome"], r["reason"]), []).append(r["stage"])
    return [NotCompared(name, tuple(stages), outcome, why) for (name, outcome, why), stages in found.items()]


def _tell(said: Mapping[str, Any], faults: Sequence[Fault], missing: Sequence[NotCompared]) -> None:
    def called(name: str) -> str:
        return f"{name} {said['versions'][name]}" if name in said["versions"] else name

    print(
        f"{called(said['backend'])} beside {called(said['beside'])}, policy {said['profile']}, vocabulary "
        f"{said['vocabulary']}: {said['constraints']:,} constraints, {said['documents']:,} documents, {said['rows']:,} "
        f"rows compared, {said['rows_differing']:,} differ"
    )
    for fault in faults:
        print(fault)
    alike: dict[tuple[str, str], list[NotCompared]] = {}
    for each in missing:
        alike.setdefault((each.outcome, each.reason), []).append(each)
    for (outcome, reason), group in sorted(alike.items(), key=lambda item: -len(item[1])):
        documents = sum(len(each.documents) for each in group)
        where = ", ".join(each.constraint for each in group[:3]) + (", …" if len(group) > 3 else "")
        print(f"not compared: {documents:,} documents of {where}: {outcome}: {reason}")
