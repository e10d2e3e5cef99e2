"""How a cost grows with a size: constant, or as a power of it. Manager side.

Times against a size n are fitted by t = a + b·n^e with a, b ≥ 0: a library's call has a price of its own (a), and what
grows beside it (b·n^e) is hidden in a plain log-log slope as long as a is the larger part. The fit is of the medians
at each size, by least squares of relative errors (a time twice too long counts alike at 1 µs and at 1 ms), over a grid
of exponents; for one exponent a and b are the solution of a non-negative least-squares problem of two unknowns, which
has a closed form. The interval is a percentile bootstrap: samples are drawn anew within each size (Efron 1979).

A growth is called one only if it is more than what repeating the measurement would show: the fitted time at the
largest size must exceed that at the smallest by ``FLOOR``, and by the noise of the medians.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from harness.stats import Values

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]

FLOOR = 0.25
"""Least growth over the whole range of sizes that is called one."""
SIZES = 3
"""Fewer sizes than this say nothing of a shape."""
EXPONENTS = np.arange(0.1, 4.01, 0.05)
RESAMPLES = 200
LEVEL = 0.95

Verdict = Literal["constant", "grows", "unclear"]


@dataclass(frozen=True)
class Shape:
    """How a time grows with a size.

    verdict: ``constant``; ``grows``; ``unclear`` where there are fewer than three sizes, or where the interval of the
    growth holds both. exponent: e of the fit, nan unless it grows; low, high: its 95 % bootstrap interval. growth: the
    fitted time at the largest size divided by that at the smallest; growth_low, growth_high: its interval. sizes: how
    many there were; smallest, largest: the range; nothing is said of what lies outside it.
    """

    verdict: Verdict
    exponent: float
    low: float
    high: float
    growth: float
    growth_low: float
    growth_high: float
    sizes: int
    smallest: float
    largest: float

    def __str__(self) -> str:
        if self.verdict == "unclear":
            return f"unclear ({self.sizes} sizes)"
        over = f"from {self.smallest:g} to {self.largest:g}"
        if self.verdict == "constant":
            return f"constant {over} (× {self.growth:.2f})"
        return f"grows as n^{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f}), × {self.growth:.3g} {over}"


def shape(times_by_size: Mapping[float, Values], *, seed: int = 0) -> Shape:
    """The shape of ``{size: its samples in nanoseconds}``. The same seed gives the same interval."""
    sizes = np.array(sorted(times_by_size), dtype=np.float64)
    samples = [np.asarray(times_by_size[n], dtype=np.float64) for n in sizes.tolist()]
    nan = float("nan")
    if sizes.size < SIZES:
        ends = (float(sizes.min()), float(sizes.max())) if sizes.size else (nan, nan)
        return Shape("unclear", nan, nan, nan, nan, nan, nan, int(sizes.size), *ends)
    random = np.random.default_rng(seed)
    exponent, growth = _fit(sizes, _medians(samples))
    drawn = [
        _fit(sizes, _medians([random.choice(some, some.size) for some in samples])) for _ in range(RESAMPLES)
    ]  # fmt: skip
    exponents, growths = (np.array(column) for column in zip(*drawn, strict=True))
    tails = (50 * (1 - LEVEL), 50 * (1 + LEVEL))
    growth_low, growth_high = (float(v) for v in np.percentile(growths, tails))
    limit = 1 + max(FLOOR, _noise(samples))
    verdict: Verdict = "grows" if growth_low > limit else "constant" if growth_high <= limit else "unclear"
    low, high = (float(v) for v in np.percentile(exponents, tails)) if verdict == "grows" else (nan, nan)
    return Shape(
        verdict,
        exponent if verdict == "grows" else nan,
        low,
        high,
        growth,
        growth_low,
        growth_high,
        int(sizes.size),
        float(sizes[0]),
        float(sizes[-1]),
    )


def shapes(frame: pd.DataFrame, size: str, by: Sequence[str]) -> dict[tuple[Any, ...], Shape]:
    """The shape of ``time_ns`` against the column ``size``, for each group of the columns ``by``.

    frame: rows of ``Run.samples``. Rows without the size are left out; sizes below 1 (the start of a document) are,
    too: no power of 0 tells anything.
    """
    known = frame[frame[size].notna() & (frame[size] >= 1)]
    found: dict[tuple[Any, ...], Shape] = {}
    for key, group in known.groupby(list(by), observed=True, sort=True):
        times = {float(str(n)): some["time_ns"].to_numpy() for n, some in group.groupby(size, observed=True)}
        found[key if isinstance(key, tuple) else (key,)] = shape(times)
    return found


def in_bands(positions: Values, times: Values, bands: int = 8) -> dict[float, Array]:
    """Samples at single positions gathered into bands of equal ratio, by the middle of each: where every position was
    seen but few times, and neighbours differ by what stands there in the document."""
    at, ns = np.asarray(positions, dtype=np.float64), np.asarray(times, dtype=np.float64)
    ns, at = ns[at >= 1], at[at >= 1]
    if not at.size:
        return {}
    edges = np.geomspace(1, max(float(at.max()), 2.0) * (1 + 1e-9), bands + 1)
    which = np.searchsorted(edges, at, side="right") - 1
    return {
        float(np.sqrt(edges[i] * edges[i + 1])): ns[which == i] for i in range(bands) if np.count_nonzero(which == i)
    }


def _medians(samples: Sequence[Array]) -> Array:
    return np.array([np.median(some) for some in samples])


def _noise(samples: Sequence[Array]) -> float:
    """By how much the median of a size is uncertain, relative to it: the widest over the sizes. The standard error of
    a median is about 1.25 standard deviations / √n, and an interquartile range 1.35 of them, for normal samples."""
    shares = []
    for some in samples:
        low, median, high = np.quantile(some, (0.25, 0.5, 0.75))
        shares.append(1.25 * (high - low) / 1.35 / np.sqrt(some.size) / median if median > 0 else 0.0)
    return float(2 * max(shares))


def _fit(sizes: Array, times: Array) -> tuple[float, float]:
    """The exponent of the best fit, and the fitted time at the largest size over that at the smallest."""
    best = (np.inf, float("nan"), 1.0)
    for exponent in EXPONENTS.tolist():
        powers = sizes**exponent
        a, b = _two(1 / times, powers / times)
        error = float(np.sum((1 - a / times - b * powers / times) ** 2))
        if error < best[0] - 1e-12:
            at_ends = (a + b * powers[0], a + b * powers[-1])
            best = (error, exponent, float(at_ends[1] / at_ends[0]))
    return best[1], best[2]


def _two(one: Array, other: Array) -> tuple[float, float]:
    """a, b ≥ 0 with a·one + b·other as near to 1 as may be, by least squares."""
    aa, bb, ab = float(one @ one), float(other @ other), float(one @ other)
    a1, b1 = float(one.sum()), float(other.sum())
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        a, b = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
        if a >= 0 and b >= 0:
            return a, b
    # On the edge of the quarter plane: the better of the two axes.
    alone = (a1 / aa, 0.0), (0.0, b1 / bb)
    return min(alone, key=lambda ab_: float(np.sum((1 - ab_[0] * one - ab_[1] * other) ** 2)))


@dataclass(frozen=True)
class Ratio:
    """One median divided by another, with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"× {self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def ratio(times: Values, base: Values, *, seed: int = 0) -> Ratio:
    """How many times longer ``times`` are than ``base`` (samples in nanoseconds), by their medians."""
    one, other = np.asarray(times, dtype=np.float64), np.asarray(base, dtype=np.float64)
    random = np.random.default_rng(seed)
    drawn = [
        np.median(random.choice(one, one.size)) / np.median(random.choice(other, other.size))
        for _ in range(RESAMPLES)
    ]  # fmt: skip
    low, high = np.percentile(drawn, (50 * (1 - LEVEL), 50 * (1 + LEVEL)))
    return Ratio(float(np.median(one) / np.median(other)), float(low), float(high))
