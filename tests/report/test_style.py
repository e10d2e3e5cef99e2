"""One look per backend everywhere; times with units."""

from __future__ import annotations

import math

import pytest

from harness.backends import registry
from harness.report import style


def test_every_built_in_backend_has_a_look_of_its_own() -> None:
    looks = [style.backend_look(name) for name in registry.BUILT_IN]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == len(looks)


def test_a_backend_s_look_does_not_depend_on_who_else_is_there() -> None:
    alone = style.looks([("llguidance", "llguidance")])["llguidance"]
    crowd = style.looks([(n, n) for n in ("naive", "other", "xgrammar", "llguidance", "another")])["llguidance"]
    assert alone == crowd
    assert style.backend_look("somebody's own") == style.backend_look("somebody's own")


def test_no_two_backends_of_a_report_look_alike() -> None:
    names = [*registry.BUILT_IN, "a", "b", "c", "d", "e"]
    looks = style.looks([(n, n) for n in names])
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(names)


def test_series_of_one_backend_share_its_colour_and_differ_by_dash() -> None:
    old, new = style.looks([("x @ old", "xgrammar"), ("x @ new", "xgrammar")]).values()
    assert (old.colour, old.marker) == (new.colour, new.marker)
    assert old.dash != new.dash


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.5, "0.50 ns"), (41.0, "41.0 ns"), (999.4, "999 ns"), (999.6, "1.00 µs"), (1_234.0, "1.23 µs"),
        (12_345.0, "12.3 µs"), (123_456.0, "123 µs"), (2.5e6, "2.50 ms"), (3.36e9, "3.36 s"), (4e12, "4,000 s"),
        (math.nan, "–"), (0.0, "0.00 ns"),
    ],
)  # fmt: skip
def test_a_duration_has_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert style.duration(ns) == text


def test_words() -> None:
    assert [style.plural(n, "cell") for n in (0, 1, 1_200)] == ["0 cells", "1 cell", "1,200 cells"]
    assert style.plural(2, "process", "processes") == "2 processes"
    assert [style.possessive(n) for n in ("outlines", "naive")] == ["outlines'", "naive's"]
    assert [style.listed(w) for w in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [style.times(r) for r in (1.26, 9.99, 58.4, 1_234.0)] == [
        "1.3 times",
        "10.0 times",
        "58 times",
        "1,234 times",
    ]
    assert [style.size(b) for b in (12, 2048, 3 << 30)] == ["12 B", "2.0 KiB", "3.0 GiB"]
