"""Code points to bytes: UTF-8, and all the spellings of a character inside a JSON string.

A spelling is a sequence of byte sets; a set of code points becomes a few of them. UTF-8 here has no overlong forms,
no surrogates and nothing above U+10FFFF.
"""

from __future__ import annotations

import math

from harness.backends.naive.expressions import SURROGATES, Ranges, difference, intersection, union

Spelling = tuple[Ranges, ...]

# First and last code point, how many values each byte takes, and the smallest of each byte (RFC 3629, section 4).
_UTF8 = (
    (0x0, 0x7F, (128,), (0x00,)),
    (0x80, 0x7FF, (32, 64), (0xC0, 0x80)),
    (0x800, 0xFFFF, (16, 64, 64), (0xE0, 0x80, 0x80)),
    (0x10000, 0x10FFFF, (8, 64, 64, 64), (0xF0, 0x80, 0x80, 0x80)),
)
# RFC 8259, section 7.
_SHORT = {0x22: b'"', 0x5C: b"\\", 0x2F: b"/", 0x08: b"b", 0x0C: b"f", 0x0A: b"n", 0x0D: b"r", 0x09: b"t"}
_MUST_ESCAPE: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))


def digit_ranges(low: int, high: int, sizes: tuple[int, ...]) -> list[Spelling]:
    """The numbers low … high written with digits, most significant first, digit i out of ``sizes[i]`` values, as
    products of one interval per digit. Each number is in exactly one of them."""
    if low > high:
        return []
    if not sizes:
        return [()]
    rest = sizes[1:]
    unit = math.prod(rest)
    first, last = low // unit, high // unit
    if first == last:
        return [(((first, first),), *tail) for tail in digit_ranges(low % unit, high % unit, rest)]
    out: list[Spelling] = []
    after: list[Spelling] = []
    if low % unit:
        out = [(((first, first),), *tail) for tail in digit_ranges(low % unit, unit - 1, rest)]
        first += 1
    if high % unit != unit - 1:
        after = [(((last, last),), *tail) for tail in digit_ranges(0, high % unit, rest)]
        last -= 1
    if first <= last:
        out.append((((first, last),), *(((0, size - 1),) for size in rest)))
    return out + after


def utf8(ranges: Ranges) -> list[Spelling]:
    """The UTF-8 of the code points in ``ranges``; surrogates have none."""
    out: list[Spelling] = []
    for first, last, sizes, bases in _UTF8:
        for low, high in intersection(difference(ranges, SURROGATES), ((first, last),)):
            out += [
                tuple(((d[0][0] + base, d[0][1] + base),) for d, base in zip(digits, bases, strict=True))
                for digits in digit_ranges(low, high, sizes)
            ]
    return out


def _exactly(data: bytes) -> Spelling:
    return tuple(((byte, byte),) for byte in data)


def _hexadecimal(digit: Ranges, base: int = 0) -> Ranges:
    """The bytes, in either case, of the hexadecimal digits ``digit + base``."""
    (low, high) = digit[0]
    values = range(low + base, high + base + 1)
    return union((ord(c), ord(c)) for value in values for c in (f"{value:x}", f"{value:X}"))


def _unicode_escapes(ranges: Ranges, lone_surrogates: bool) -> list[Spelling]:
    r"""``\uXXXX`` for what it can name, two of them (high and low surrogate) above U+FFFF."""
    out: list[Spelling] = []
    plain = ranges if lone_surrogates else difference(ranges, SURROGATES)
    for low, high in intersection(plain, ((0, 0xFFFF),)):
        out += [(*_exactly(b"\\u"), *map(_hexadecimal, digits)) for digits in digit_ranges(low, high, (16, 16, 16, 16))]
    for low, high in intersection(ranges, ((0x10000, 0x10FFFF),)):
        # D800 + the upper ten bits, DC00 + the lower ten: the second digit of each is 8…B and C…F.
        for a, b, c, d, e, f in digit_ranges(low - 0x10000, high - 0x10000, (4, 16, 16, 4, 16, 16)):
            upper = (_hexadecimal(((13, 13),)), _hexadecimal(a, 8), _hexadecimal(b), _hexadecimal(c))
            lower = (_hexadecimal(((13, 13),)), _hexadecimal(d, 12), _hexadecimal(e), _hexadecimal(f))
            out.append((*_exactly(b"\\u"), *upper, *_exactly(b"\\u"), *lower))
    return out


def json_string(ranges: Ranges, *, minimal: bool, lone_surrogates: bool) -> list[Spelling]:
    """All spellings, inside a JSON string, of the code points in ``ranges``.

    minimal: only the escapes that RFC 8259 demands, shortest form (a hexadecimal digit in either case is equally
    short). lone_surrogates: whether ``\\ud800`` alone is a character.
    """
    out = utf8(difference(ranges, _MUST_ESCAPE))
    for code, letter in _SHORT.items():
        demanded = bool(intersection(((code, code),), _MUST_ESCAPE))
        if intersection(ranges, ((code, code),)) and (demanded or not minimal):
            out.append(_exactly(b"\\" + letter))
    if minimal:
        shorter = union((code, code) for code in _SHORT)
        controls = difference(intersection(ranges, ((0x00, 0x1F),)), shorter)
        ranges = union(controls, intersection(ranges, SURROGATES))
    return out + _unicode_escapes(ranges, lone_surrogates)
