"""masktax: what constrained decoding costs, stage by stage, and whether the masks are right.

``harness.load(path)`` gives a run's results as pandas frames. Importing the package itself imports nothing heavy:
workers import it inside the interpreter under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from harness.results import load


def __getattr__(name: str) -> object:
    if name == "load":
        from harness.results import load

        return load
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
