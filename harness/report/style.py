"""How every figure and the page look: one colour and marker per backend everywhere, units, sizes. Manager side.

No figure chooses a colour, a font or a unit of its own. Colours are Okabe and Ito's (distinguishable with any colour
vision); a marker and a dash go with each, so that print in grey can be read too.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.cell import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Foreground, faint lines and background. In the page's own copies these become CSS variables (``themed``), so that a
# figure follows light, dark and print; the exact values are unlikely to occur otherwise.
INK, FAINT, PAPER = "#1c1d1f", "#d4d6d9", "#fdfdfe"
ON_COLOUR, ON_GREY = "#ffffff", "#111213"  # text on a bar, which keeps its colour in every theme
_THEME = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "var(--paper)"}

# https://jfly.uni-koeln.de/color/ (Okabe & Ito 2008); yellow is left out, for it cannot be read on white. The last two
# are a grey and the wine red of Paul Tol's muted scheme (https://personal.sron.nl/~pault/).
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, GREY, WINE = "#e69f00", "#56b4e9", "#8a8a8a", "#882255"

_KNOWN: Mapping[str, tuple[str, str]] = {
    "xgrammar": (BLUE, "o"),
    "llguidance": (VERMILION, "s"),
    "outlines": (GREEN, "^"),
    "lm-format-enforcer": (PURPLE, "D"),
    "naive": (GREY, "X"),
    "reference": (WINE, "p"),
}
_OTHERS = ((ORANGE, "v"), (ORANGE, "<"), (SKY, ">"), (WINE, "h"), (ORANGE, "8"), (SKY, "*"))
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))

OUTCOME_MARKS: Mapping[str, tuple[str, str]] = dict(
    zip(
        OUTCOMES,
        (
            ("", ""),
            ("#e4e5e7", ""),
            ("#c3c5c9", "..."),
            (INK, ""),
            ("#9a9da3", "///"),
            ("#b4b6bb", "\\\\\\"),
            ("#77797f", "xxx"),
        ),
        strict=True,
    )
)
"""Fill and hatch of an outcome in a bar; ``ok`` takes its backend's colour, ``wrong`` the foreground's."""


@dataclass(frozen=True)
class Look:
    """How one series is drawn. dash: a matplotlib line style."""

    colour: str
    marker: str
    dash: Any


def backend_look(name: str) -> tuple[str, str]:
    """Colour and marker of a backend: fixed for those known, the same in every report for any other."""
    digest = hashlib.sha256(name.encode()).digest()
    return _KNOWN.get(name) or _OTHERS[digest[0] % len(_OTHERS)]


def looks(series: Sequence[tuple[str, str]]) -> dict[str, Look]:
    """A look for each series, given as ``(label, backend)``. Several series of one backend share its colour and marker
    and differ by dash; unknown backends that would look alike are told apart by the next free marker."""
    taken: dict[tuple[str, str], str] = {}
    count: dict[str, int] = {}
    chosen: dict[str, Look] = {}
    for label, backend in series:
        look = backend_look(backend)
        if taken.get(look, backend) != backend and backend not in count:
            look = next((other for other in _OTHERS if other not in taken), look)
        elif backend in count:
            look = next(own for own, owner in taken.items() if owner == backend)
        taken.setdefault(look, backend)
        chosen[label] = Look(*look, _DASHES[count.get(backend, 0) % len(_DASHES)])
        count[backend] = count.get(backend, 0) + 1
    return chosen


def variants(labels: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Marker and dash for what is compared within a backend (policies, dtypes, modes), which keeps its colour."""
    markers = "osDvXP*h"
    return {label: (markers[i % len(markers)], _DASHES[i % len(_DASHES)]) for i, label in enumerate(labels)}


def order(backend: str) -> tuple[int, str]:
    """Sort key: known backends first, in their fixed order."""
    known = list(_KNOWN)
    return (known.index(backend), "") if backend in known else (len(known), backend)


_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def duration(ns: float) -> str:
    """A time with its unit, three significant digits: ``1.23 µs``; an en dash where there is none."""
    if math.isnan(ns):
        return "–"
    for unit, size in _UNITS:
        if ns >= 0.9995 * size or unit == "ns":
            return f"{_three(ns / size)} {unit}"
    raise AssertionError("unreachable")


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def times(ratio: float) -> str:
    """A ratio in words: ``3.2 times``, ``140 times``."""
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def size(count: float) -> str:
    """Bytes for a reader: ``2.0 GiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:,.0f} B"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """``1 cell``, ``1,200 cells``; nouns: a plural that is not made by an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def possessive(name: str) -> str:
    """``xgrammar's``, ``outlines'``."""
    return name + ("'" if name.endswith("s") else "'s")


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def context() -> Any:
    """Inside this, matplotlib draws in our style."""
    import matplotlib

    return matplotlib.rc_context(
        {
            "figure.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "axes.facecolor": PAPER,
            "text.color": INK,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.labelcolor": INK,
            "grid.color": FAINT,
            "font.family": "DejaVu Sans",
            "font.size": 9.0,
            "axes.titlesize": 9.5,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.labelsize": 9.0,
            "xtick.labelsize": 8.5,
            "ytick.labelsize": 8.5,
            "legend.fontsize": 8.5,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.8,
            "axes.grid": False,
            "axes.axisbelow": True,
            "grid.linewidth": 0.7,
            "lines.linewidth": 1.6,
            "lines.markersize": 5.0,
            "lines.markeredgewidth": 0.7,
            "hatch.color": PAPER,
            "hatch.linewidth": 0.8,
            "svg.fonttype": "path",
            "svg.hashsalt": "masktax",
            "figure.constrained_layout.use": True,
        }
    )


def time_axis(axes: Axes, which: Literal["x", "y"], label: str, most_ticks: int = 6) -> None:
    """Make the x or y axis a logarithmic one of nanoseconds, its ticks written with units (``10 µs``). Call it after
    the data are drawn: the ticks are chosen by the range shown."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    decades = math.log10(high / low) if low > 0 else 1.0
    every = max(1, math.ceil(decades / most_ticks))
    subs = (1.0,) if decades > 2 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(base=10.0**every, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda ns, _: _tick(ns)))
    axis.set_minor_locator(
        LogLocator(base=10.0, subs=(2, 3, 4, 5, 6, 7, 8, 9)) if 2 < decades <= most_ticks else NullLocator()
    )
    axis.set_minor_formatter(NullFormatter())
    axis.set_label_text(label)
    axes.grid(True, which="major", axis=which)


def _tick(ns: float) -> str:
    for unit, factor in _UNITS:
        if ns >= 0.9995 * factor:
            return f"{ns / factor:,.3g} {unit}"
    return f"{ns:.3g} ns"


def themed(svg: str, name: str) -> str:
    """A figure's SVG for the page: ids made unique by the figure's name, foreground and background as CSS variables,
    no fixed size."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'((?:xlink:)?href)="#([^"]+)"', rf'\1="#{name}-\2"', body)
    for value, variable in _THEME.items():
        body = body.replace(value, variable)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    return re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body))
