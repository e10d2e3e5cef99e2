"""From points to cells: everything a worker needs to know, worked out once. Manager side.

Vocabularies are loaded and written to the cache folder; the documents of each constraint are spelled as the backend's
declared profile writes them, and encoded to traces. A backend's library is never imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness import catalogue, encoders, loaders, paths
from harness.backends import registry
from harness.catalogue import Entry, Instance
from harness.cell import Cell, Companion, Document
from harness.errors import MasktaxError
from harness.profile import Profile
from harness.scenario import Point, Scenario, Variant
from harness.vocabulary import Vocabulary

_MIB = 1 << 20


def prepare(
    scenario: Scenario,
    points: Iterable[Point],
    *,
    schemas: Path | None = None,
    outside: Mapping[str, Entry] = MappingProxyType({}),
    cache: Path | None = None,
) -> list[Cell]:
    """The cells of the points, in their order; ``cells_of`` with the scenario's plan."""
    return cells_of(points, scenario.measure, schemas=schemas, outside=outside, cache=cache)


def cells_of(
    points: Iterable[Point],
    measure: Mapping[str, Any],
    *,
    schemas: Path | None = None,
    outside: Mapping[str, Entry] = MappingProxyType({}),
    cache: Path | None = None,
) -> list[Cell]:
    """The cells of the points, in their order. measure: keyword arguments of ``harness.measure.Plan``.

    schemas: the folder of constraints (default: the built-in ones). outside: entries of an outside corpus. cache: where
    vocabulary files go (default: ``paths.cache()``). MasktaxError for a vocabulary that is not there, or a document
    that its encoder cannot spell.

    Documents are shared: two cells with the same vocabulary and spelling hold the very same objects.
    """
    points = list(points)
    named = [name for p in points for name in (p.constraint, *p.workload.companions)]
    built_in = [name for name in dict.fromkeys(named) if name not in outside]
    entries = {e.name: e for e in catalogue.select(built_in, root=schemas)} | dict(outside)
    desk = _Desk(paths.cache() if cache is None else cache)
    return [_cell(measure, point, entries, desk) for point in points]


def declared(adapter: str, options: Mapping[str, Any], name: str) -> Profile | None:
    """The adapter's profile of that name; None where it has none, or where only another environment can import it."""
    try:
        return registry.create(adapter, options).profiles.get(name)
    except MasktaxError:
        if adapter in registry.BUILT_IN:
            raise
        return None


class _Desk:
    """What has been worked out so far, so that nothing is worked out twice."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._vocabularies: dict[str, tuple[Path, Vocabulary]] = {}
        self._profiles: dict[tuple[str, str, str], Profile] = {}
        self._documents: dict[tuple[str, str, str, str], Document] = {}

    def vocabulary(self, source: str) -> tuple[Path, Vocabulary]:
        if source not in self._vocabularies:
            self._vocabularies[source] = loaders.file_for(source, self._cache)
        return self._vocabularies[source]

    def profile(self, variant: Variant, name: str) -> Profile:
        """The named profile as the backend declares it. Where it has none of that name, or where only another
        environment can import the adapter, the standards' own: the worker then says ``unsupported``, or uses what
        the adapter declares there."""
        key = (variant.adapter, repr(sorted(variant.options.items())), name)
        if key not in self._profiles:
            self._profiles[key] = declared(variant.adapter, variant.options, name) or Profile()
        return self._profiles[key]

    def document(self, constraint: str, name: str, text: str, vocabulary: Vocabulary) -> Document:
        key = (constraint, name, text, vocabulary.sha256)
        if key not in self._documents:
            try:
                tokens = encoders.encode(vocabulary, text)
            except MasktaxError as error:
                raise MasktaxError(f"{constraint}, {name}: {error}") from error
            self._documents[key] = Document(name, text, tokens)
        return self._documents[key]


def _cell(measure: Mapping[str, Any], point: Point, entries: Mapping[str, Entry], desk: _Desk) -> Cell:
    entry, workload = entries[point.constraint], point.workload
    path, vocabulary = desk.vocabulary(point.vocabulary_source)
    profile = desk.profile(Variant(point.adapter, point.options), point.profile)

    def documents(of: Entry, instances: Sequence[Instance], most: int | None) -> tuple[Document, ...]:
        return tuple(
            desk.document(of.name, instance.name, catalogue.spell(of, instance, profile), vocabulary)
            for instance in instances[:most]
        )

    def valid(of: Entry) -> tuple[Document, ...]:
        # The documents that only some profiles admit come last, so that the first few are the same everywhere.
        return documents(of, catalogue.valid_under(of, profile), workload.valid)

    return Cell(
        id=point.id,
        scenario=point.scenario,
        backend=point.backend,
        adapter=point.adapter,
        environment=point.environment,
        vocabulary=point.vocabulary,
        vocabulary_path=str(path.resolve()),
        vocabulary_sha256=vocabulary.sha256,
        constraint_name=point.constraint,
        constraint=entry.constraint,
        stages=point.stages,
        valid=valid(entry),
        invalid=documents(entry, entry.invalid, workload.invalid),
        options=dict(point.options),
        profile=point.profile,
        process=point.process,
        conditions=dict(point.conditions),
        companions=tuple(
            Companion(name, entries[name].constraint, valid(entries[name])) for name in workload.companions
        ),
        plan=dict(measure) | ({} if workload.time_cap_s is None else {"time_cap_s": workload.time_cap_s}),
        time_limit_s=workload.time_limit_s,
        memory_limit_bytes=workload.memory_limit_mb * _MIB,
    )
