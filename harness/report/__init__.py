"""From results to a page: figures, coverage beside speed, and sentences that are computed. Manager side.

Everything here only reads results. Importing this package is light; matplotlib and jinja2 are imported by ``build``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import MasktaxError

__all__ = ["build"]


def build(runs: Sequence[Path], out: Path) -> Path:
    """Write ``index.html`` (one self-contained file), ``figures/*.png`` and ``*.svg`` and ``summary.md`` of one or
    several runs into folder ``out``, made where absent; the page's path. MasktaxError where a run cannot be read or
    the report's own libraries are missing."""
    try:
        import jinja2
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise MasktaxError(f"a report needs {error.name}: pip install 'masktax[report]'") from error
    del jinja2
    from harness.report.page import write

    return write(runs, out)
