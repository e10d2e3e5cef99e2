"""Where the built-in scenarios and schemas, results and reports are: in a checkout, or in an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The root of the checkout this package runs from, or None where it is installed as a wheel."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "scenarios").is_dir() else None


def _data(name: str) -> Path:
    root = checkout()
    return root / name if root else _PACKAGE / "_data" / name


def scenarios() -> Path:
    return _data("scenarios")


def schemas() -> Path:
    return _data("schemas")


def results() -> Path:
    """Where runs are written unless told otherwise: in the checkout, else below the current folder."""
    return (checkout() or Path.cwd()) / "results"


def reports() -> Path:
    return (checkout() or Path.cwd()) / "reports"


def cache() -> Path:
    """Where derived files (vocabulary files) are kept; safe to delete."""
    root = checkout()
    if root:
        return root / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "masktax"
