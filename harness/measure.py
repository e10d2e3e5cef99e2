"""The measuring loop: warm-up, calibration, samples, stopping, and the reason it stopped. Worker side.

It knows no backend: it is handed a callable and a clock. Whatever must happen between samples (a fresh matcher, a
cache emptied) happens in ``make``, outside the clock. Samples are kept in the order observed, outliers labelled.

Sources: the interval of the median is the distribution-free one from order statistics, from rank
``⌊n/2 − 1.96·√n/2⌋`` to its mirror image (normal approximation to the binomial, rounded outwards); outliers are
labelled by Tukey's fences, 1.5 and 3 interquartile ranges.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import repeat as times
from typing import Any

from harness.cell import Measurement
from harness.clocks import Clock
from harness.errors import MasktaxError

Z_95 = 1.959964  # two-sided 95 % quantile of the standard normal distribution
# Cap on iterations in one sample: a body faster than the clock's resolution over this many is not a body.
MAX_ITERATIONS = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    warmup_iterations: run first, not recorded. resolution_multiple: a sample spans so many iterations that it lasts
    at least this many times the clock's resolution or overhead, whichever is larger: at 100, what the clock itself
    adds is at most 1 %. min_samples, max_samples: bounds on the number of samples.
    relative_interval: stop once half the median's 95 % interval is at most this share of the median.
    plateau_improvement: looked at whenever the number of samples has doubled; stop if the interval has shrunk by less
    than this share since the last look (independent noise would shrink it by 29 %): more samples will not help.
    time_cap_s: stop after this long, preparation included; it wins over min_samples, but one sample is always taken.
    """

    warmup_iterations: int = 3
    resolution_multiple: int = 100
    min_samples: int = 20
    max_samples: int = 2_000
    relative_interval: float = 0.01
    plateau_improvement: float = 0.10
    time_cap_s: float = 1.0

    def __post_init__(self) -> None:
        positive = ("resolution_multiple", "min_samples", "max_samples", "relative_interval", "time_cap_s")
        for name in positive:
            if not getattr(self, name) > 0:
                raise MasktaxError(f"measure.{name} must be positive, not {getattr(self, name)!r}")
        if self.warmup_iterations < 0:
            raise MasktaxError(f"measure.warmup_iterations must not be negative, not {self.warmup_iterations!r}")
        if not 0 <= self.plateau_improvement < 1:
            raise MasktaxError(f"measure.plateau_improvement must be in [0, 1), not {self.plateau_improvement!r}")
        if self.min_samples > self.max_samples:
            raise MasktaxError(f"measure.min_samples {self.min_samples} exceeds measure.max_samples {self.max_samples}")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))

    def once(self) -> Plan:
        """The plan of an untimed run: the body runs once."""
        return replace(self, warmup_iterations=0, min_samples=1, max_samples=1)

    def share(self, parts: int) -> Plan:
        """The plan for one of ``parts`` measurements that together may take as long as this one."""
        return replace(
            self,
            time_cap_s=self.time_cap_s / max(parts, 1),
            max_samples=max(self.min_samples, self.max_samples // max(parts, 1)),
        )


@dataclass
class Samples:
    """Samples as they come, with per-sample columns. For bodies that cannot be repeated: single shots."""

    conditions: Mapping[str, Any]
    samples_ns: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, total_ns: int, iterations: int = 1, **columns: Any) -> None:
        """Record one sample that spanned ``iterations`` and lasted ``total_ns``; the same columns every time."""
        self.samples_ns.append(total_ns / iterations)
        self.iterations.append(iterations)
        for name, value in columns.items():
            self.columns.setdefault(name, []).append(value)

    def measurement(self, stop_reason: str, warmup_iterations: int = 0) -> Measurement:
        return Measurement(
            conditions=dict(self.conditions),
            samples_ns=tuple(self.samples_ns),
            iterations=tuple(self.iterations),
            columns={name: tuple(values) for name, values in self.columns.items()},
            outliers=outliers(self.samples_ns),
            stop_reason=stop_reason,
            warmup_iterations=warmup_iterations,
        )


def loop(body: Callable[[], object]) -> Callable[[int], Callable[[], object]]:
    """``make`` for a body that can simply be called again and again: n calls in one sample."""

    def make(n: int) -> Callable[[], object]:
        if n == 1:
            return body

        def block() -> None:
            for _ in times(None, n):
                body()

        return block

    return make


def measure(
    make: Callable[[int], Callable[[], object]],
    clock: Clock,
    plan: Plan,
    *,
    conditions: Mapping[str, Any] | None = None,
    columns: Mapping[str, Any] | None = None,
    unit: int = 1,
    repeatable: bool = True,
) -> Measurement:
    """Measure a body under a plan.

    make: ``make(n)`` prepares, outside the clock, a callable whose one call spans ``n`` units of work; it is called
    anew for every sample. unit: iterations in one unit (tokens in a trace), by which times are divided.
    repeatable: False pins n to 1. columns: the same value for every sample.
    """
    now = clock.now_ns
    started_ns = now()
    cap_ns = plan.time_cap_s * 1e9
    for _ in range(plan.warmup_iterations):
        make(1)()
    n = _calibrate(make, clock, plan) if repeatable else 1
    samples = Samples(conditions or {})
    ordered: list[float] = []
    look_at, last_interval = plan.min_samples, math.inf
    while True:
        block = make(n)
        before = now()
        block()
        after = now()
        samples.add(after - before, n * unit, **(columns or {}))
        insort(ordered, samples.samples_ns[-1])
        count = len(ordered)
        if count >= plan.min_samples:
            interval = relative_interval(ordered)
            if interval <= plan.relative_interval:
                return samples.measurement("relative_interval", plan.warmup_iterations)
            if count == look_at:
                if interval > (1 - plan.plateau_improvement) * last_interval:
                    return samples.measurement("noise_plateau", plan.warmup_iterations)
                look_at, last_interval = 2 * count, interval
        if count >= plan.max_samples:
            return samples.measurement("max_samples", plan.warmup_iterations)
        if now() - started_ns >= cap_ns:
            return samples.measurement("time_cap", plan.warmup_iterations)


def _calibrate(make: Callable[[int], Callable[[], object]], clock: Clock, plan: Plan) -> int:
    """The smallest n tried whose sample lasts long enough under the plan."""
    enough_ns = long_enough_ns(clock, plan)
    n = 1
    while True:
        block = make(n)
        before = clock.now_ns()
        block()
        lasted_ns = clock.now_ns() - before
        if lasted_ns >= enough_ns or n >= MAX_ITERATIONS:
            return n
        # Aim at the target from what was seen, at least doubling and at most tenfold: one reading may be off.
        aim = n * enough_ns / lasted_ns if lasted_ns > 0 else 10 * n
        n = min(max(2 * n, math.ceil(min(aim, 10 * n))), MAX_ITERATIONS)


def long_enough_ns(clock: Clock, plan: Plan) -> float:
    """How long a sample must last: ``resolution_multiple`` times the clock's resolution or overhead."""
    return plan.resolution_multiple * max(clock.resolution_ns, clock.overhead_ns)


def enough(estimate_ns: float, clock: Clock, plan: Plan) -> int:
    """Iterations for a sample of a body that lasts about ``estimate_ns``, by the same rule as calibration."""
    return min(max(1, math.ceil(long_enough_ns(clock, plan) / max(estimate_ns, 1.0))), 1_000)


def relative_interval(ordered: Sequence[float]) -> float:
    """Half the 95 % interval of the median, divided by the median; inf where there are fewer than 6 samples (no such
    interval exists below that)."""
    n = len(ordered)
    if n < 6:
        return math.inf
    half = Z_95 * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half) - 1)
    median = quantile(ordered, 0.5)
    return (ordered[n - 1 - low] - ordered[low]) / 2 / median if median > 0 else math.inf


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def outliers(samples: Sequence[float]) -> tuple[str, ...]:
    """A label per sample: ``""``, ``mild`` or ``severe`` (past 1.5 or 3 interquartile ranges from the quartiles)."""
    if len(samples) < 4:
        return ("",) * len(samples)
    ordered = sorted(samples)
    first, third = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = third - first

    def label(x: float) -> str:
        beyond = max(first - x, x - third)
        if beyond > 3 * reach:
            return "severe"
        return "mild" if beyond > 1.5 * reach else ""

    return tuple(label(x) for x in samples)


def merge(measurements: Sequence[Measurement]) -> Measurement:
    """One measurement from several made under the same conditions at different places (their columns tell which).

    Stop reasons are joined by ``+`` where they differ; outliers are those of each part, found among its own kind.
    """
    first = measurements[0]
    return Measurement(
        conditions=first.conditions,
        samples_ns=tuple(s for m in measurements for s in m.samples_ns),
        iterations=tuple(i for m in measurements for i in m.iterations),
        columns={name: tuple(v for m in measurements for v in m.columns[name]) for name in first.columns},
        outliers=tuple(o for m in measurements for o in m.outliers),
        stop_reason="+".join(sorted({m.stop_reason for m in measurements})),
        warmup_iterations=sum(m.warmup_iterations for m in measurements),
    )
