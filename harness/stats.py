"""Small, plain statistics of repeated timings. Manager side; knows no file and no figure.

Nothing here drops a sample or smooths one. A tail percentile is given only where there are samples enough for it to
be an observation and not an extrapolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = Sequence[float] | Array


@dataclass(frozen=True)
class Summary:
    """Order statistics of some timings, in nanoseconds; ``nan`` where there is nothing to say.

    samples: how many there are. iqr_low_ns, iqr_high_ns: the quartiles. p90_ns, p99_ns, p999_ns: ``nan`` below 10,
    100 and 1,000 samples (see ``tail``).
    """

    samples: int
    median_ns: float
    iqr_low_ns: float
    iqr_high_ns: float
    p90_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: float


def tail(values: Values, q: float) -> float:
    """The ``q`` quantile, by linear interpolation; ``nan`` where fewer than ``1 / (1 - q)`` samples were seen, because
    then not a single one is expected to lie above it."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or data.size * (1.0 - q) < 1.0 - 1e-9:
        return float("nan")
    return float(np.quantile(data, q))


def summary(values: Values) -> Summary:
    """The order statistics of ``values`` (nanoseconds, any order)."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        nan = float("nan")
        return Summary(0, nan, nan, nan, nan, nan, nan, nan)
    low, median, high = (float(x) for x in np.quantile(data, (0.25, 0.5, 0.75)))
    return Summary(
        samples=int(data.size),
        median_ns=median,
        iqr_low_ns=low,
        iqr_high_ns=high,
        p90_ns=tail(data, 0.9),
        p99_ns=tail(data, 0.99),
        p999_ns=tail(data, 0.999),
        max_ns=float(data.max()),
    )


@dataclass(frozen=True)
class Weighted:
    """A distribution of weighted samples. values_ns: ascending. share: the share of the weight at or below each.
    samples: how many there are. effective: Kish's effective sample size, (Σw)² / Σw²."""

    values_ns: Array
    share: Array
    samples: int
    effective: float

    @classmethod
    def of(cls, values: Array, weights: Array) -> Weighted:
        by_value = np.argsort(values, kind="stable")
        cumulated = np.cumsum(weights[by_value])
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        return cls(values[by_value], cumulated / cumulated[-1], int(values.size), effective)

    def quantile(self, q: float) -> float:
        """The smallest value with at least share ``q`` at or below it; nan where the (effective) samples are too few
        for one of them to be expected beyond it."""
        if self.effective * (1.0 - q) < 1.0 - 1e-9:
            return math.nan
        return float(self.values_ns[np.searchsorted(self.share, q - 1e-12)])

    @property
    def max_ns(self) -> float:
        return float(self.values_ns[-1])
