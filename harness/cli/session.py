"""What ``run`` and ``verify`` share: from names on the command line to a run's store, and back to what it found."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from harness import corpora, paths
from harness import scenario as scenarios
from harness.cell import OUTCOMES, Cell, is_outside
from harness.corpora import Corpus, Selection
from harness.errors import MasktaxError
from harness.prepare import declared, prepare
from harness.results import RUN_FILE, RunStore
from harness.runner.manager import Environment
from harness.scenario import Expected, Scenario

Overrides = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Batch:
    """All cells of the scenarios named in one command, with what each of their stages is expected to come to.

    outside: what they use of an outside corpus, None where they use nothing. notes: lines for people, of cells that are
    left out for want of a corpus.
    """

    scenarios: tuple[Scenario, ...]
    overrides: Overrides
    cells: tuple[Cell, ...]
    environments: Mapping[str, Environment]
    expected: Mapping[tuple[str, str], Expected]
    outside: Selection | None = None
    notes: tuple[str, ...] = ()

    @property
    def stages(self) -> int:
        return sum(len(cell.stages) for cell in self.cells)

    def annotate(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a record that say what was expected."""
        expected = self.expected[record["cell"], record["stage"]]
        return {
            "expected": expected.outcome,
            "as_expected": expected.outcome in (None, record["outcome"]),
            "expected_reason": expected.reason,
        }


def plan(names: Sequence[str], overrides: Overrides, corpus: Corpus | None = None) -> Batch:
    """Everything that can be known before a worker starts, all scenarios' mistakes included."""
    files = [scenarios.find(name) for name in names]
    known = scenarios.known(corpus)
    loaded = tuple(scenarios.load(file, known) for file in files)
    twice = [name for name, count in Counter(s.name for s in loaded).items() if count > 1]
    if twice:
        raise MasktaxError(f"scenario {twice[0]!r} is named twice; name it once")
    expanded = [(scenario, scenarios.expand(scenario, overrides)) for scenario in loaded]
    environments: dict[str, Environment] = {}
    for scenario, points in expanded:
        for name, python in scenarios.interpreters(scenario, points).items():
            if environments.setdefault(name, Environment(name, python)).python != python:
                raise MasktaxError(
                    f"environment {name!r} is {environments[name].python} in one scenario and {python} in another; "
                    "run them apart, or rename one"
                )
    used = dict.fromkeys(p.constraint for _, points in expanded for p in points if is_outside(p.constraint))
    outside = corpus.read(used) if corpus and used else None
    entries = outside.entries if outside else {}
    with writing(paths.cache()):
        cells = tuple(c for scenario, points in expanded for c in prepare(scenario, points, outside=entries))
    expected = {(p.id, stage): e for _, points in expanded for p in points for stage, e in p.expected.items()}
    notes = () if "constraint" in overrides else tuple(filter(None, map(_lacks_corpus, loaded)))
    return Batch(loaded, overrides, cells, environments, expected, outside, notes)


def _lacks_corpus(scenario: Scenario) -> str:
    """A line on the cells of a scenario that need an outside corpus where none is given; empty where there are none."""
    places = [block.place for block in scenario.blocks if block.lacks_corpus]
    if not places:
        return ""
    return (
        f"{scenarios.shown(scenario.path)}: {', '.join(places)}: names constraints of an outside corpus, and none is "
        f"given: these cells are left out; give one by --corpus DIR, or by {corpora.VARIABLE}"
    )


def tell(lines: Iterable[str]) -> None:
    """Lines for people, on the standard error."""
    for line in lines:
        print(f"masktax: {line}", file=sys.stderr)


@contextmanager
def writing(place: Path, remedy: str = "") -> Iterator[None]:
    """Turn the file system's refusal into one line naming the file."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        raise MasktaxError(f"{error.filename or place}: {what}{remedy and f'; {remedy}'}") from error


def run_fields(batch: Batch, command: Sequence[str], *, timed: bool) -> dict[str, Any]:
    """What run.json holds from the start; the manager adds the machine, the environments and the sessions."""
    return {
        "command": list(command),
        "timed": timed,
        "scenarios": [_scenario_fields(s, batch.overrides) for s in batch.scenarios],
        "vocabularies": _vocabularies(batch.cells),
        "profiles": _profiles(batch.cells),
        "corpus": batch.outside and batch.outside.to_json(),
        "cells_planned": len(batch.cells),
        "stages_planned": batch.stages,
        "git": git_state(),
    }


def _scenario_fields(scenario: Scenario, overrides: Overrides) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "question": scenario.question,
        "reading": scenario.reading,
        "path": scenarios.shown(scenario.path),
        "sha256": hashlib.sha256(scenario.text.encode()).hexdigest(),
        "text": scenario.text,
        "overrides": {axis: list(values) for axis, values in overrides.items()},
    }


def _vocabularies(cells: Iterable[Cell]) -> dict[str, dict[str, Any]]:
    from harness.vocabulary import Vocabulary

    found: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell.vocabulary not in found:
            size = Vocabulary.read(Path(cell.vocabulary_path), cell.vocabulary_sha256).size
            found[cell.vocabulary] = {"sha256": cell.vocabulary_sha256, "size": size}
    return found


def _profiles(cells: Iterable[Cell]) -> dict[str, dict[str, dict[str, Any]]]:
    """The language policy that each adapter declares, ``{adapter: {profile: its fields}}``, for the profiles in use."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in cells:
        of_adapter = found.setdefault(cell.adapter, {})
        if cell.profile not in of_adapter:
            profile = declared(cell.adapter, cell.options, cell.profile)
            if profile is not None:
                of_adapter[cell.profile] = profile.to_json()
    return found


def git_state() -> dict[str, Any] | None:
    """The checkout's commit, and whether anything in it is changed; None outside a checkout or without git."""
    root = paths.checkout()
    if root is None:
        return None

    def ask(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
        done.check_returncode()
        return done.stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


# Runs on the disk.


def new_folder(names: Sequence[str]) -> Path:
    """Where a new run of these scenarios goes."""
    shown = "+".join(names) if len(names) <= 3 else f"{names[0]}+{len(names) - 1}-more"
    return paths.results() / f"{shown}-{datetime.now():%Y%m%d-%H%M%S}"


def runs(root: Path | None = None) -> list[tuple[Path, dict[str, Any]]]:
    """The runs below ``root`` (default: the results folder) with their run.json, the newest last."""
    found: list[tuple[Path, dict[str, Any]]] = []
    for file in sorted((root or paths.results()).glob(f"*/{RUN_FILE}")):
        try:
            run = json.loads(file.read_bytes())
        except (OSError, ValueError):
            continue  # not a run that can be chosen by default; naming it says what is wrong with it
        if isinstance(run, dict):
            found.append((file.parent, run))
    return sorted(found, key=lambda item: str(item[1].get("created_at")))


def unfinished(names: Sequence[str]) -> Path:
    """The newest run of exactly these scenarios that has not finished."""
    for folder, run in runs()[::-1]:
        if [s.get("name") for s in run.get("scenarios", ())] == list(names) and not run.get("finished_at"):
            return folder
    raise MasktaxError(
        f"no unfinished run of {', '.join(names)} in {scenarios.shown(paths.results())}; name its folder with -o, or "
        "leave --resume out"
    )


def stored_overrides(folder: Path) -> Overrides:
    """What was set when the run in ``folder`` was begun."""
    with _reading(folder):
        said = json.loads((folder / RUN_FILE).read_bytes())["scenarios"][0]["overrides"]
        return {axis: tuple(values) for axis, values in said.items()}


def stored_corpus(folder: Path, moved_to: Path | None, sample: int | None) -> Corpus | None:
    """The corpus that the run in ``folder`` was begun with. moved_to: where it is now, None: where it was. sample: as
    on the command line now, None: as it was. None where the run has none and none is named."""
    with _reading(folder):
        said = json.loads((folder / RUN_FILE).read_bytes()).get("corpus")
        was, of = (None, None) if said is None else (Path(said["path"]), said["sample"])
    path = moved_to or was
    if path is None:
        return None
    if not moved_to and not path.is_dir():
        raise MasktaxError(f"{path}, the corpus of {folder}, is not there; say where it is now by --corpus DIR")
    return corpora.find(path, of if sample is None else sample)


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn what is wrong with a run.json into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise MasktaxError(f"{folder} holds no run to go on with; leave --resume out to begin one") from error
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise MasktaxError(f"{folder / RUN_FILE} cannot be read ({error}); begin a new run with -o") from error


def check_unchanged(store: RunStore, batch: Batch) -> None:
    """Refuse to go on with a run whose question has changed: its records would be of two kinds."""

    def refuse(what: str) -> NoReturn:
        raise MasktaxError(f"{scenarios.shown(store.path)} cannot be gone on with: {what}; begin a new run")

    fields = run_fields(batch, (), timed=True)
    names, before = ([s["name"] for s in f.get("scenarios", ())] for f in (fields, store.run))
    if names != before:
        refuse(f"it is a run of {', '.join(before)}, not of {', '.join(names)}")
    for now, then in zip(fields["scenarios"], store.run["scenarios"], strict=True):
        if now["overrides"] != then["overrides"]:
            refuse("--set says something else than when it was begun")
        if now["sha256"] != then["sha256"]:
            refuse(f"the file of scenario {now['name']} has changed since")
    corpus, corpus_before = fields["corpus"], store.run.get("corpus")
    if (corpus is None) != (corpus_before is None):
        refuse("it was begun without a corpus" if corpus_before is None else "it was begun with a corpus")
    if corpus and corpus_before and any(corpus[key] != corpus_before[key] for key in ("sample", "sha256")):
        refuse("what it uses of the corpus is not what it was when it was begun")
    if fields["vocabularies"] != store.run.get("vocabularies"):
        refuse("a vocabulary has changed since")
    digests = {cell.id: cell.constraint.sha256 for cell in batch.cells}
    for record in store.records():
        if digests.get(record["cell"]) != record.get("constraint_sha256"):
            refuse(f"constraint {record.get('constraint')} has changed since")


def resume_command(names: Sequence[str], overrides: Overrides, folder: Path) -> str:
    """The command line that goes on with a run."""
    sets = [word for axis, values in overrides.items() for word in ("--set", f"{axis}={','.join(values)}")]
    return shlex.join(["masktax", "run", *names, *sets, "--resume", "-o", scenarios.shown(folder)])


# What came of it.


def outcome_counts(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many stages have each outcome, in the order of ``OUTCOMES``; outcomes that did not occur are left out."""
    counts = Counter(record["outcome"] for record in records)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


@dataclass(frozen=True)
class Surprise:
    """Stages of one cell that came to something else than was expected, all in the same way. expected: None where
    nothing was."""

    cell: str
    stages: tuple[str, ...]
    outcome: str
    expected: str | None
    reason: str
    expected_reason: str
    difference: Mapping[str, Any] | None

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        because = f" ({self.expected_reason})" if self.expected_reason else ""
        expected = f", expected {self.expected}{because}" if self.expected else ""
        return f"{self.cell} [{', '.join(self.stages)}] is {self.outcome}{expected}{why}"


def surprises(records: Iterable[Mapping[str, Any]]) -> list[Surprise]:
    """Records whose outcome is not the expected one; stages of a cell that say the same are told once, and stages that
    were not reached are told with the one that ended the cell."""
    return _told([r for r in records if not r.get("as_expected", True)])


def unforeseen(records: Iterable[Mapping[str, Any]]) -> list[Surprise]:
    """The same of records of which nothing was expected: those of an outside corpus that are not ok."""
    return _told([r for r in records if r["expected"] is None and r["outcome"] != "ok"])


def outside_lines(batch: Batch, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of an outside corpus: how much of it was left out, and every outcome but ok. Empty without one."""
    if batch.outside is None:
        return []
    free = [r for r in records if r["expected"] is None]
    odd = unforeseen(free)
    counts = outcome_counts(free)
    said = ", ".join(f"{outcome} {count}" for outcome, count in counts.items())
    lines = [f"corpus: {len({r['cell'] for r in free})} cells, {len(free)} stages carry no expectation: {said}"]
    left_out = Counter(batch.outside.left_out)
    documents = {(r["cell"], name): why for r in free for name, why in r["facts"].get("documents_left_out", {}).items()}
    left_out.update(why.partition(":")[0] for why in documents.values())
    lines += [f"corpus: {count:,} documents left out: {why}" for why, count in left_out.most_common()]
    return lines + [f"corpus: {each}" for each in odd]


def _told(odd: Sequence[Mapping[str, Any]]) -> list[Surprise]:
    ended_by = {(r["cell"], r["outcome"], r["expected"]): r["reason"] for r in odd if not r["not_reached"]}
    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for record in odd:
        what = record["cell"], record["outcome"], record["expected"]
        reason = ended_by.get(what, record["reason"]) if record["not_reached"] else record["reason"]
        grouped.setdefault((*what, reason, record["expected_reason"]), []).append(record)
    return [
        Surprise(cell, tuple(r["stage"] for r in group), outcome, expected, reason, because, group[0]["difference"])
        for (cell, outcome, expected, reason, because), group in grouped.items()
    ]
