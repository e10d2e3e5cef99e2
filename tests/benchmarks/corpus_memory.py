"""What does the reference engine take for a whole corpus of schemas in one process? Memory, and time at each step.

    python -m tests.benchmarks.corpus_memory FOLDER [--vocabulary deepseek] [--profile default]

FOLDER holds JSON files as MaskBench writes them: ``schema``, and ``tests`` with ``valid`` and ``data``. Every schema is
compiled and its first valid instance, in compact spelling, walked twice by matchers of the same grammar: the first
visit of every state, and a later one. A step is one fill and one accept. Grammars are let go after their walks, so what
the process has grown by at the end is what the engine keeps.

Printed: resident memory, percentiles of compiles and steps, the ten schemas that took longest until the end of their
first walk, and what was refused.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import bitmask, encoders, loaders
from harness.backends.reference import Reference
from harness.constraint import Constraint
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.profile import Profile
from harness.reference.matcher import Grammar
from harness.vocabulary import Vocabulary

PERCENTILES = (50, 90, 99, 99.9, 100)
SLOWEST = 10


@dataclass(frozen=True)
class Visit:
    """One schema: ns of its compile, ns of each step of the first and of the later walk; tokens: of the instance, of
    which a profile may refuse the end."""

    name: str
    compile_ns: int
    first_ns: Sequence[int]
    later_ns: Sequence[int]
    tokens: int

    @property
    def until_walked_ns(self) -> int:
        return self.compile_ns + sum(self.first_ns)


def peak_mb() -> float:
    """The most memory that this process has had resident so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def timed(call: Callable[[], Any]) -> tuple[Any, int]:
    before = time.perf_counter_ns()
    result = call()
    return result, time.perf_counter_ns() - before


def steps(grammar: Grammar, tokens: Sequence[int], row: bitmask.Row) -> list[int]:
    """ns of fill and accept at every token, up to one that is refused."""
    matcher = grammar.native_matcher()
    taken = []
    for token in tokens:
        before = time.perf_counter_ns()
        matcher.fill(row)
        accepted = matcher.accept(token)
        taken.append(time.perf_counter_ns() - before)
        if not accepted:
            break
    return taken


def visit(path: Path, vocabulary: Vocabulary, profile: Profile) -> Visit | None:
    """None where there is no valid instance."""
    data = json.loads(path.read_text())
    instance = next((test["data"] for test in data["tests"] if test["valid"]), None)
    if instance is None:
        return None
    tokens = encoders.encode(vocabulary, json.dumps(instance, separators=(",", ":"), ensure_ascii=False))
    constraint = Constraint("json_schema", json.dumps(data["schema"]))
    grammar, compile_ns = timed(lambda: Reference().compile(constraint, vocabulary, profile))
    row = bitmask.allocate_row(vocabulary.size)
    return Visit(path.stem, compile_ns, steps(grammar, tokens, row), steps(grammar, tokens, row), len(tokens))


def percentiles(name: str, samples: Sequence[int]) -> str:
    values = np.percentile(samples, PERCENTILES) / 1e6
    return f"{name:22} {len(samples):8,}" + "".join(f"{value:12,.3f}" for value in values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", default=loaders.DEFAULT)
    parser.add_argument("--profile", default="default", choices=Reference.profiles)
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json"))
    if not paths:
        print(f"{options.folder}: no JSON files; name a folder of schemas with their instances", file=sys.stderr)
        return 2
    vocabulary = loaders.load(options.vocabulary)
    Reference().bind(vocabulary)
    before_mb = peak_mb()
    visits: list[Visit] = []
    refused: list[str] = []
    without = 0
    for path in paths:
        try:
            found = visit(path, vocabulary, Reference.profiles[options.profile])
        except (UnsupportedError, CompileError) as error:
            refused.append(f"{path.stem}: {error}")
            continue
        if found is None:
            without += 1
        else:
            visits.append(found)
    cut = sum(len(v.first_ns) < v.tokens for v in visits)
    print(
        f"{len(paths)} schemas: {len(visits)} walked, {len(refused)} refused, {without} without a valid instance; "
        f"{cut} instances left before their end, which the profile does not have"
    )
    print(f"peak resident: {before_mb:,.0f} MB once the vocabulary was read, {peak_mb():,.0f} MB at the end")
    print(f"{'ms':22} {'samples':>8}" + "".join(f"{'p' + format(p, 'g'):>12}" for p in PERCENTILES))
    print(percentiles("compile", [v.compile_ns for v in visits]))
    print(percentiles("step, first visit", [ns for v in visits for ns in v.first_ns]))
    print(percentiles("step, later visit", [ns for v in visits for ns in v.later_ns]))
    print("slowest, ms: compile, first walk, its slowest step, tokens")
    for v in sorted(visits, key=lambda v: -v.until_walked_ns)[:SLOWEST]:
        print(
            f"{v.compile_ns / 1e6:10,.1f} {sum(v.first_ns) / 1e6:10,.1f} {max(v.first_ns) / 1e6:10,.1f} "
            f"{v.tokens:7,}  {v.name}"
        )
    for line in refused:
        print(f"refused: {line}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MasktaxError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
