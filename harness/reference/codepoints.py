"""Sets of code points, as sorted, disjoint, non-adjacent inclusive ranges. Pure functions over tuples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]

MAX = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
NONE: Ranges = ()
ALL: Ranges = ((0, MAX),)
SCALARS: Ranges = ((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, MAX))


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The canonical form of any inclusive ranges."""
    done: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if low > high:
            continue
        if done and low <= done[-1][1] + 1:
            if high > done[-1][1]:
                done[-1] = (done[-1][0], high)
        else:
            done.append((low, high))
    return tuple(done)


def of(text: str) -> Ranges:
    """The characters of ``text``."""
    return ranges((ord(c), ord(c)) for c in text)


def union(*sets: Ranges) -> Ranges:
    return ranges(pair for s in sets for pair in s)


def complement(one: Ranges) -> Ranges:
    done, at = [], 0
    for low, high in one:
        if low > at:
            done.append((at, low - 1))
        at = high + 1
    if at <= MAX:
        done.append((at, MAX))
    return tuple(done)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    done, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            done.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(done)


def difference(one: Ranges, other: Ranges) -> Ranges:
    return intersection(one, complement(other))


def contains(one: Ranges, code_point: int) -> bool:
    at = bisect_right(one, (code_point, MAX)) - 1
    return at >= 0 and one[at][1] >= code_point


def meets(one: Ranges, low: int, high: int) -> bool:
    """Whether any code point of ``one`` lies in ``low…high``."""
    at = bisect_right(one, (high, MAX)) - 1
    return at >= 0 and one[at][1] >= low


# The code points of one, two, three and four bytes in UTF-8: the bits below the first byte's, and that byte's mark.
_LENGTHS = ((0, 0x7F, 0, 0), (0x80, 0x7FF, 6, 0xC0), (0x800, 0xFFFF, 12, 0xE0), (0x10000, MAX, 18, 0xF0))


def leads(one: Ranges) -> int:
    """The first bytes in UTF-8 of the code points, surrogates left out, as the bits of a number."""
    done = 0
    for low, high in intersection(one, SCALARS):
        for first, last, shift, mark in _LENGTHS:
            if low <= last and high >= first:
                start, end = mark | max(low, first) >> shift, mark | min(high, last) >> shift
                done |= (1 << end + 1) - (1 << start)
    return done
