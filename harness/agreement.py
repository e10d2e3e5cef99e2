"""How far a decode step acted out agrees with the one computed from its parts, and what makes the difference. Worker
side; pure arithmetic, times in ns.

The replay's exposed time is, but for readings of the clock, the sum of what follows the end of the forward pass: how
late the main thread knew of it (``wait``), how long it then waited for the masks (``masks``), ``copy``, ``apply``, and
``accept`` where that is not beside the pass. The model has the same sum from parts that were measured by themselves,
with 0 for ``wait``. So the difference of a step is a sum of differences, and one of them is the largest. Medians do not
add up like that: where steps vary a lot, as on a busy machine, none of the parts may explain what lies between two
medians, and that is said too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.decode_step import DecodeStep
from harness.measure import quantile
from harness.overlap import StepTimes

TOLERANCE = 0.10


@dataclass(frozen=True)
class Agreement:
    """replay_ns, modelled_ns: medians of the exposed time. ratio: replay over model (0 where the model has none).
    differences_ns: replay less model, the median over steps, by what a step consists of. because: empty where the ratio
    is within ``TOLERANCE`` of 1; else which part makes at least half of the difference, in words, or that none does."""

    replay_ns: float
    modelled_ns: float
    ratio: float
    differences_ns: Mapping[str, float]
    because: str


def agreement(replayed: Sequence[StepTimes], computed: Sequence[DecodeStep], usual_late_ns: float) -> Agreement:
    """Of steps of one mode: the same step acted out and computed, in pairs, at least one. usual_late_ns: how late the
    main thread knows of a pass with nothing beside it, which is the wait's and the machine's, not the grammar's."""
    pairs = list(zip(replayed, computed, strict=True))
    replay_ns = statistics.median(times.exposed_ns(step.forward_ns) for times, step in pairs)
    modelled_ns = statistics.median(step.exposed_ns for step in computed)
    apart = [_apart(times, step) for times, step in pairs]
    differences = {name: statistics.median(d[name] for d in apart) for name in apart[0]}
    ratio = replay_ns / modelled_ns if modelled_ns else 0.0
    near = abs(ratio - 1) <= TOLERANCE or replay_ns == modelled_ns
    because = "" if near else _because(pairs, differences, replay_ns - modelled_ns, usual_late_ns)
    return Agreement(replay_ns, modelled_ns, ratio, differences, because)


def _apart(times: StepTimes, step: DecodeStep) -> dict[str, float]:
    parts = step.parts
    due_ns = parts.fill_ns if step.mode == "serialised" else step.sticks_out_ns
    apart = {
        "wait": times.late_ns,
        "masks": times.joined_ns - due_ns,
        "copy": times.copy_ns - parts.copy_ns,
        "apply": times.apply_ns - parts.apply_ns,
    }
    return apart if step.mode == "barrier" else apart | {"accept": times.accept_ns - parts.accept_ns}


def _because(
    pairs: Sequence[tuple[StepTimes, DecodeStep]],
    differences: Mapping[str, float],
    apart_ns: float,
    usual_late_ns: float,
) -> str:
    name = max(differences, key=lambda n: differences[n] / apart_ns)
    if differences[name] / apart_ns < 0.5:
        exposed = sorted(times.exposed_ns(step.forward_ns) / 1e3 for times, step in pairs)
        middle = f"{quantile(exposed, 0.25):.1f} to {quantile(exposed, 0.75):.1f} µs"
        return f"no one part makes half of it; the middle half of the steps added {middle}"
    amount = f"{differences[name] / 1e3:+.1f} µs"
    if name == "wait":
        usual = f"{usual_late_ns / 1e3:+.1f} µs"
        return f"the main thread knew late that the forward pass was over: {amount}, with nothing beside it {usual}"
    part = "fill" if name == "masks" else name
    here = statistics.median(getattr(times, f"{part}_ns") for times, _ in pairs)
    alone = statistics.median(getattr(step.parts, f"{part}_ns") for _, step in pairs)
    stretch = f"{here / alone:.2f} times as long as by itself" if alone else "longer than no time at all"
    return f"{'the wait for the masks' if name == 'masks' else name}: {amount}; {part} took {stretch}"
