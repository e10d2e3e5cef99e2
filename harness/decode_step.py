"""What constrained decoding adds to a decode step, from measured parts. Worker side; pure arithmetic, times in ns.

What depends on what, in the step that samples token n of every row of a batch:

* the *forward* pass gives the logits of token n; it needs token n − 1 as an input and no mask;
* *fill* writes the masks of token n; it needs every matcher to have accepted token n − 1;
* *copy* and *apply* bring the masks to the logits; they need both the masks and the logits;
* *accept* advances the matchers by token n; it needs the token, which is sampled after *apply*.

So of the grammar's work only what precedes *copy* can run while the device is busy with the forward pass. Three modes
say how much of that does:

* ``overlapped``: the masks are filled while the forward pass of the same step runs; accept comes after sampling, before
  the next forward pass starts. vLLM's engine: the model is executed without waiting, masks are filled, the result is
  awaited, a separate call samples, ``update_from_output`` accepts.
  ``exposed = max(0, fill − forward) + copy + apply + accept``
* ``barrier``: the next forward pass starts before the sampled tokens are known on the host; while it runs, the host
  accepts the tokens of the step before, and then fills. SGLang's overlap scheduler with its grammar barrier.
  ``exposed = max(0, accept + fill − forward) + copy + apply``
* ``serialised``: nothing is hidden. A batch under a speculation algorithm that SGLang's overlap does not support, and
  an engine that fills after the forward pass (as reported of vLLM in its issue 23881): the most that a step can cost.
  ``exposed = fill + copy + apply + accept``

In every mode the whole batch waits for its slowest row, since one sampling call takes all rows: the parts are those of
a whole batch, not of a row. Sampling itself is done with or without a grammar and is no part; nor are the scheduler's
own work and, where overlap is lost, what else it had hidden. Hence ``barrier ≤ overlapped ≤ serialised``, always.

Sources: the order of a step, the barrier and the loss of overlap as in vLLM's engine core (``execute_model`` without
waiting, ``get_grammar_bitmask``, ``sample_tokens``) and SGLang's scheduler (``need_grammar_sync``,
``_advance_pending_grammar``); the formulas are arithmetic on that order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["overlapped", "serialised", "barrier"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Parts:
    """The grammar's work in one step of a whole batch, each part measured by itself, ns."""

    fill_ns: float
    copy_ns: float
    apply_ns: float
    accept_ns: float

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a time of at least 0 ns, not {value!r}")


@dataclass(frozen=True)
class DecodeStep:
    """One decode step. forward_ns: how long the device takes for the forward pass. rows: of the batch; each of them
    gets one token from the step."""

    mode: Mode
    parts: Parts
    forward_ns: float
    rows: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if not (self.forward_ns > 0 and math.isfinite(self.forward_ns)):
            raise ValueError(f"forward_ns must be positive, not {self.forward_ns!r}")
        if self.rows < 1:
            raise ValueError(f"rows must be at least 1, not {self.rows}")

    @property
    def beside_ns(self) -> float:
        """The work that runs beside the forward pass."""
        return beside_ns(self.mode, self.parts)

    @property
    def sticks_out_ns(self) -> float:
        """The part of that work that is not over when the forward pass is."""
        return max(0.0, self.beside_ns - self.forward_ns)

    @property
    def after_ns(self) -> float:
        """The work that begins after both: never hidden."""
        parts = self.parts
        after = parts.copy_ns + parts.apply_ns
        if self.mode == "serialised":
            return parts.fill_ns + after + parts.accept_ns
        return after + parts.accept_ns if self.mode == "overlapped" else after

    @property
    def exposed_ns(self) -> float:
        """By how much the grammar makes the step longer. Every request of the batch waits that long for its token."""
        return self.sticks_out_ns + self.after_ns

    @property
    def exposed_per_token_ns(self) -> float:
        """``exposed / rows``: what a token costs in throughput. (In latency a token costs ``exposed_ns``.)"""
        return self.exposed_ns / self.rows

    @property
    def step_ns(self) -> float:
        return self.forward_ns + self.exposed_ns

    @property
    def share(self) -> float:
        """``exposed / step``, from 0 to below 1: the share of the throughput that the grammar takes."""
        return self.exposed_ns / self.step_ns


def beside_ns(mode: Mode, parts: Parts) -> float:
    """The work of a step that runs beside the forward pass under a mode."""
    if mode == "serialised":
        return 0.0
    return parts.fill_ns if mode == "overlapped" else parts.accept_ns + parts.fill_ns


@dataclass(frozen=True)
class HiddenBatch:
    """The largest batch whose work beside the forward pass is over when that is.

    bound: ``at``: ``rows`` were found between two measured sizes (or are one); ``at_least``: the largest that was
    measured still hides; ``below``: the smallest that was measured does not.
    """

    rows: int
    bound: Literal["at", "at_least", "below"]

    def __str__(self) -> str:
        words = {"at": "{} rows", "at_least": "at least {} rows", "below": "fewer than {} rows"}
        return words[self.bound].format(self.rows)


def largest_hidden_batch(beside_by_rows: Mapping[int, float], forward_ns: float) -> HiddenBatch:
    """The largest batch that hides behind a forward pass of ``forward_ns``, from measured work by rows.

    beside_by_rows: ``{rows: ns of work beside the forward pass}`` (``beside_ns``). ValueError where it is empty.

    Between two measured sizes the work is taken to grow linearly, and the whole number of rows at or below the crossing
    counts. Work is made monotone first: a size counts with the most that it or any smaller one was measured at, so that
    one lucky measurement of a large batch hides nothing. Nothing is said beyond the sizes that were measured. The same
    forward time is taken for every size; an engine's grows with the batch, so take that of a batch about as large as
    the answer.
    """
    if not beside_by_rows:
        raise ValueError("no batch was measured: nothing can be said of any")
    fitting, fitting_ns = 0, 0.0
    for rows in sorted(beside_by_rows):
        work_ns = max(fitting_ns, beside_by_rows[rows])
        if work_ns > forward_ns:
            if not fitting:
                return HiddenBatch(rows, "below")
            more = (rows - fitting) * (forward_ns - fitting_ns) / (work_ns - fitting_ns)
            return HiddenBatch(fitting + math.floor(more), "at")
        fitting, fitting_ns = rows, work_ns
    return HiddenBatch(fitting, "at_least")
