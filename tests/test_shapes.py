"""A cost's growth is recovered from samples whose growth is known, and nothing is said of what they do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.shapes import in_bands, ratio, shape, shapes

SIZES = (16, 64, 256, 1024, 4096)


def samples(law: Any, noise: float = 0.05, count: int = 40, sizes: Any = SIZES) -> dict[float, Any]:
    random = np.random.default_rng(7)
    return {n: law(n) * np.exp(noise * random.standard_normal(count)) for n in sizes}


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("start", [0.0, 300.0])
def test_an_exponent_is_found_beside_a_price_that_does_not_grow(exponent: float, start: float) -> None:
    found = shape(samples(lambda n: start + 2.0 * n**exponent))
    assert found.verdict == "grows"
    assert found.low <= found.exponent <= found.high
    assert found.exponent == pytest.approx(exponent, abs=0.15)
    assert found.low - 0.1 <= exponent <= found.high + 0.1


def test_a_linear_part_is_found_though_it_is_smaller_than_the_rest() -> None:
    found = shape(samples(lambda n: 5_000 + n, noise=0.01))  # 5.0 µs at 16, 9.1 µs at 4,096
    assert found.verdict == "grows"
    assert found.exponent == pytest.approx(1.0, abs=0.25)
    assert found.growth == pytest.approx(9_096 / 5_016, rel=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_noise_alone_is_no_growth(noise: float) -> None:
    assert shape(samples(lambda n: 1_000.0, noise)).verdict == "constant"


def test_a_cost_that_falls_is_no_growth() -> None:
    assert shape(samples(lambda n: 1e6 / n)).verdict == "constant"


def test_growth_below_the_floor_is_none_and_above_it_is_one() -> None:
    assert shape(samples(lambda n: 1_000 + 150 * n / 4096, noise=0.01)).verdict == "constant"
    assert shape(samples(lambda n: 1_000 + 400 * n / 4096, noise=0.01)).verdict == "grows"


def test_two_sizes_are_no_shape() -> None:
    found = shape(samples(lambda n: float(n), sizes=(16, 64)))
    assert (found.verdict, found.sizes) == ("unclear", 2)
    assert shape({}).verdict == "unclear"


def test_the_same_samples_say_the_same() -> None:
    some = samples(lambda n: 10 + n)
    assert shape(some) == shape(some)


def test_groups_of_a_frame_are_told_apart() -> None:
    rows = [
        {"backend": backend, "history": n, "time_ns": t}
        for backend, law in (("slope", lambda n: 50.0 + n), ("flat", lambda n: 50.0))
        for n, times in samples(law).items()
        for t in times
    ]
    frame = pd.DataFrame([*rows, {"backend": "flat", "history": None, "time_ns": 1e9}])
    found = shapes(frame, "history", ["backend"])
    assert {key: s.verdict for key, s in found.items()} == {("slope",): "grows", ("flat",): "constant"}
    assert str(found["flat",]).startswith("constant from 16 to 4096")
    assert "n^1.0" in str(found["slope",]) or "n^0.9" in str(found["slope",])


def test_single_positions_are_gathered_into_bands() -> None:
    positions = np.arange(0, 513)
    bands = in_bands(positions, 100.0 + positions)
    assert sum(some.size for some in bands.values()) == 512  # position 0 is the start, not a size
    assert shape(bands).exponent == pytest.approx(1.0, abs=0.15)
    assert in_bands([], []) == {}


def test_a_ratio_has_an_interval_that_holds_it() -> None:
    found = ratio([30.0, 31.0, 29.0] * 20, [10.0, 10.1, 9.9] * 20)
    assert found.value == pytest.approx(3.0, rel=0.02)
    assert found.low <= found.value <= found.high
