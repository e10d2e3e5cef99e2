"""What every figure is drawn on: its size, its panels, its legend, and what goes with it on the page. Manager side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 10.0
DPI = 160  # 1,600 pixels wide


@dataclass(frozen=True)
class Drawn:
    """A figure ready to be saved. name: its file's stem. finding: a computed caption; alt: what it shows, in words."""

    name: str
    title: str
    figure: Figure
    finding: str
    alt: str


def canvas(height: float, rows: int = 1, columns: int = 1, **kwargs: Any) -> tuple[Figure, list[Axes]]:
    """A figure of ``height`` inches and its panels, row by row. kwargs: of matplotlib's ``Figure.subplots``."""
    # Not pyplot: nothing global is kept, and no window system is looked for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DPI)
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False, **kwargs)
    return figure, list(panels.flat)


def legend(figure: Figure, study: Study, labels: Sequence[str], extra: Sequence[Any] = ()) -> None:
    """Above the panels, the series named, each in its look; extra: further handles."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=label)
        for label in labels
        for look in (study.looks[label],)
    ]
    figure.legend(handles=[*handles, *extra], loc="outside upper center", ncols=min(len(handles) + len(extra), 6))


def categories(axes: Axes, labels: Sequence[str]) -> None:
    """Categories on the y axis, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
