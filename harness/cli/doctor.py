"""``masktax doctor``: what is here, and what will be skipped and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.cli.run import JSON

if TYPE_CHECKING:
    from harness.doctor import Findings

EXAMPLE = "[bold]Example[/bold]: masktax doctor --json"


def doctor(as_json: bool = JSON) -> None:
    """Say what is installed, what the clock and the machine are like, and what will be skipped and why.

    Nothing is changed, and no grammar library is imported.
    """
    from harness import doctor as examiner

    findings = examiner.examine()
    if as_json:
        print(json.dumps(findings.to_json(), indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(findings)))


def _lines(f: Findings) -> Iterable[str]:
    cpu, memory, system = (f.machine[part] for part in ("cpu", "memory", "system"))
    for environment in f.environments:
        yield f"environment {environment.name}"
        if environment.trouble:
            yield f"  not usable: {environment.trouble}"
            continue
        yield f"  Python {environment.python}, numpy {environment.numpy}, {environment.executable}"
        if environment.name != "default":
            yield "  " + ", ".join(f"{name} {version}" for name, version in environment.backends.items())
    yield f"packages (masktax {f.masktax})"
    for extra, packages in f.extras.items():
        said = ", ".join(f"{name} {version or 'MISSING'}" for name, version in packages.items())
        yield f"  {extra}: {said}"
    yield "backends"
    for backend in f.backends:
        yield f"  {backend.name:<20}{backend.version or f'not usable: {backend.reason}'}"
    yield "vocabularies"
    for vocabulary in f.vocabularies:
        missing = f"not usable: {vocabulary.package} is not installed"
        yield f"  {vocabulary.name:<20}{missing if vocabulary.version is None else vocabulary.description}"
    yield "clock"
    yield (
        f"  {f.clock['name']}: resolution {f.clock['resolution_ns']:g} ns, overhead {f.clock['overhead_ns']:g} ns"
        f"; kernel clock source {_known(system['clock_source'])}"
    )
    yield "machine"
    affinity = len(cpu["affinity"] or ()) or "?"
    yield f"  {_known(cpu['model'])}, {_known(cpu['architecture'])}"
    yield (
        f"  cores: {_known(cpu['cores_physical'])} physical, {_known(cpu['cores_logical'])} logical, "
        f"{affinity} usable; quota {_known(cpu['quota_cores'])}"
    )
    yield f"  governor {_known(cpu['governor'])}; boost {_known(cpu['boost'])}; SMT {_known(cpu['smt'])}"
    yield (
        f"  memory {_gib(memory['total_bytes'])}, limit {_gib(memory['limit_bytes'])}, "
        f"{_gib(f.now['available_bytes'])} free"
    )
    yield f"  {_known(system['distribution'])}, kernel {_known(system['kernel'])}, {_known(system['libc'])}"
    yield f"  GPU: {_gpus(f.machine['gpus'])}"
    yield f"  valgrind: {f.machine['valgrind'] or 'not installed'}"
    yield "what bends numbers here"
    yield from (f"  {line}" for line in f.warnings or ("nothing that is known of",))
    yield "what will be skipped, and why"
    for skipped in f.skipped:
        yield f"  {skipped.what} (asked for by {', '.join(skipped.scenarios)}): {skipped.why}"
    if not f.skipped:
        yield "  nothing"


def _known(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _gib(value: Any) -> str:
    return f"{value / (1 << 30):.1f} GiB" if isinstance(value, int) else _known(value)


def _gpus(gpus: list[Mapping[str, Any]] | None) -> str:
    if gpus is None:
        return "a driver is there and does not answer"
    return ", ".join(f"{g['name']} ({_gib(g['memory_bytes'])})" for g in gpus) or "none"
