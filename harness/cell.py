"""One point of a scenario's matrix, and what is recorded of it. Worker side: standard library only.

A ``Cell`` is what the manager sends a worker as one JSON line; a ``Record`` is what comes back for each of the cell's
stages. Both are plain data with ``to_json``/``from_json``. docs/FORMAT.md documents the record for readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from harness.constraint import Constraint
from harness.errors import MasktaxError

RECORD_FORMAT = 1

OutcomeKind = Literal["ok", "unsupported", "compile_error", "wrong", "timeout", "out_of_memory", "crash"]
OUTCOMES: tuple[OutcomeKind, ...] = get_args(OutcomeKind)

OUTSIDE_TIER = "corpus"
"""The tier of every constraint of an outside corpus; no built-in one is called so."""


def is_outside(constraint: str) -> bool:
    """Whether a constraint's name, or a glob over names, is of an outside corpus."""
    return constraint.startswith(f"{OUTSIDE_TIER}/")


@dataclass(frozen=True)
class Document:
    """A document of the cell's constraint: its text as spelled under the profile, and as token ids (the trace).

    name: ``valid/0``, ``invalid/2`` …, by position in the constraint's file; an eos id is never part of ``tokens``.
    """

    name: str
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Companion:
    """Another constraint that shares a batch with the cell's own, with its valid documents (never empty)."""

    name: str
    constraint: Constraint
    documents: tuple[Document, ...]


@dataclass(frozen=True)
class Cell:
    """One cell: everything its worker needs to know, and nothing that needs the manager side to interpret.

    id: unique within a run, stable across runs of the same scenario: readable, made of the axes' values.
    backend: the name shown and compared; adapter, options: what ``harness.backends.registry.create`` is given.
    environment: name of the interpreter. process: replicate number; every replicate is a fresh process.
    constraint_name: ``tier/name``. profile: a name in the backend's ``profiles``.
    stages: in the order in which they run. conditions: the inner axes, ``{axis: values}``: what is varied inside the
    process and labels samples instead of making cells (``cache``, ``rollback_tokens``, ``draft_tokens``).
    companions: other constraints for stages that fill batches of several. plan: keyword arguments of
    ``harness.measure.Plan``. time_limit_s and memory_limit_bytes: for the cell's whole process group.
    """

    id: str
    scenario: str
    backend: str
    adapter: str
    environment: str
    vocabulary: str
    vocabulary_path: str
    vocabulary_sha256: str
    constraint_name: str
    constraint: Constraint
    stages: tuple[str, ...]
    valid: tuple[Document, ...]
    invalid: tuple[Document, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "default"
    process: int = 0
    conditions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    companions: tuple[Companion, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    time_limit_s: float = 120.0
    memory_limit_bytes: int = 8 << 30

    @property
    def tier(self) -> str:
        return self.constraint_name.partition("/")[0]

    def with_stages(self, stages: tuple[str, ...]) -> Cell:
        """The same cell with fewer stages (those still missing after an interruption)."""
        return replace(self, stages=stages)

    def to_json(self) -> dict[str, Any]:
        companions = [asdict(c) | {"constraint": c.constraint.to_json()} for c in self.companions]
        return asdict(self) | {"constraint": self.constraint.to_json(), "companions": companions}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        fields = dict(data)
        fields["constraint"] = Constraint.from_json(fields["constraint"])
        for name in ("valid", "invalid"):
            fields[name] = _documents(fields[name])
        fields["companions"] = tuple(
            Companion(c["name"], Constraint.from_json(c["constraint"]), _documents(c["documents"]))
            for c in fields.get("companions", ())
        )
        fields["stages"] = tuple(fields["stages"])
        fields["conditions"] = {k: tuple(v) for k, v in fields.get("conditions", {}).items()}
        return cls(**fields)


def _documents(data: Iterable[Mapping[str, Any]]) -> tuple[Document, ...]:
    return tuple(Document(d["name"], d["text"], tuple(d["tokens"])) for d in data)


@dataclass(frozen=True)
class Difference:
    """The first point at which a backend's masks are wrong.

    document, step: where (step counts accepted tokens before it). token: the id whose bit is wrong, token_bytes its
    bytes (latin-1 text, so that any byte survives JSON), ``"<eos>"`` for an eos. direction: ``too loose`` (allowed,
    must be forbidden) or ``too strict``. judge: what says so (``trace``, ``invalid document``, ``reference``,
    ``json``, ``refused token``, ``contract``). prefix: the text before it. count: how many bits of the row are wrong
    in all, where a whole row was compared.
    """

    document: str
    step: int
    token: int
    token_bytes: str
    direction: Literal["too loose", "too strict"]
    judge: str
    prefix: str
    explanation: str
    count: int = 1

    def __str__(self) -> str:
        return (
            f"step {self.step} of {self.document}: token {self.token} ({self.token_bytes!r}) is {self.direction} "
            f"after {self.prefix[-40:]!r}, by {self.judge}: {self.explanation}"
        )


@dataclass(frozen=True)
class Outcome:
    """What became of one stage of one cell; every (cell, stage) has exactly one.

    ``ok``; ``unsupported`` (reason: the backend's honest no); ``compile_error`` (reason: the library's message);
    ``wrong`` (difference: the first one; times are kept but never ranked); ``timeout``, ``out_of_memory`` (reason: the
    limit); ``crash`` (reason: the signal, exit status or exception). not_reached: the cell ended before this stage
    began, for the reason given.
    """

    kind: OutcomeKind
    reason: str = ""
    difference: Difference | None = None
    not_reached: bool = False

    def __post_init__(self) -> None:
        if self.kind not in OUTCOMES:
            raise MasktaxError(f"outcome {self.kind!r} is none of {', '.join(OUTCOMES)}")


@dataclass(frozen=True)
class Measurement:
    """Raw observations under one set of conditions.

    conditions: ``{inner axis: value}``, the same for all samples. samples_ns: time per iteration, nanoseconds, in the
    order observed. iterations: how many iterations each sample spans. columns: per-sample labels, each as long as
    samples_ns (``position``, ``document``). outliers: per sample ``""``, ``mild`` or ``severe`` (Tukey's fences); kept,
    never dropped. stop_reason: why measuring ended. warmup_iterations: run before, not recorded.
    """

    conditions: Mapping[str, Any]
    samples_ns: tuple[float, ...]
    iterations: tuple[int, ...]
    columns: Mapping[str, tuple[Any, ...]]
    outliers: tuple[str, ...]
    stop_reason: str
    warmup_iterations: int = 0


@dataclass(frozen=True)
class Refusal:
    """Conditions of a stage that were not timed, while others were: ``unsupported`` (a policy that the library does
    not have, a kernel that needs a device) or ``wrong`` (checked before timing, and found to give another result)."""

    conditions: Mapping[str, Any]
    kind: Literal["unsupported", "wrong"]
    reason: str


@dataclass(frozen=True)
class Record:
    """What is known of one stage of one cell: an outcome and, where it was timed, its measurements.

    clock: name, resolution_ns, overhead_ns of the clock, measured in this very process. facts: one-off facts the
    worker saw (peak resident bytes, thread count, …). refusals: the conditions under which it was not timed, and why.
    """

    stage: str
    outcome: Outcome
    measurements: tuple[Measurement, ...] = ()
    clock: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()

    def to_json(self, cell: Cell) -> dict[str, Any]:
        """The line for cells.jsonl, with the cell's own coordinates."""
        return {
            "format": RECORD_FORMAT,
            "scenario": cell.scenario,
            "cell": cell.id,
            "backend": cell.backend,
            "adapter": cell.adapter,
            "options": dict(cell.options),
            "environment": cell.environment,
            "vocabulary": cell.vocabulary,
            "vocabulary_sha256": cell.vocabulary_sha256,
            "constraint": cell.constraint_name,
            "constraint_sha256": cell.constraint.sha256,
            "kind": cell.constraint.kind,
            "tier": cell.tier,
            "profile": cell.profile,
            "process": cell.process,
            "stage": self.stage,
            "outcome": self.outcome.kind,
            "reason": self.outcome.reason,
            "difference": None if self.outcome.difference is None else asdict(self.outcome.difference),
            "not_reached": self.outcome.not_reached,
            "measurements": [asdict(m) for m in self.measurements],
            "refusals": [asdict(r) for r in self.refusals],
            "clock": dict(self.clock),
            "facts": dict(self.facts),
        }
