"""Finding a backend by name. Worker side.

Built-in adapters are a static table, so that they are found where this package is only on the path (another
environment's interpreter). A third party registers its own under the entry point group ``masktax.backends``: a
callable that takes the options as keywords and returns a ``Backend``. While it is being written it can be named by
its place instead, ``package.module:factory``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from harness.backends.protocol import Backend
from harness.errors import MasktaxError

GROUP = "masktax.backends"

BUILT_IN: Mapping[str, str] = {
    "naive": "harness.backends.reference:Naive",
    "reference": "harness.backends.reference:Reference",
    "xgrammar": "harness.backends.xgrammar:XGrammar",
    "llguidance": "harness.backends.llguidance:LLGuidance",
    "outlines": "harness.backends.outlines:Outlines",
    "lm-format-enforcer": "harness.backends.lm_format_enforcer:LMFormatEnforcer",
}


def names() -> tuple[str, ...]:
    """Every known backend, built-in ones first."""
    others = sorted({e.name for e in entry_points(group=GROUP)} - BUILT_IN.keys())
    return (*BUILT_IN, *others)


def create(name: str, options: Mapping[str, Any] | None = None) -> Backend:
    """A new instance of the named backend, with none of another instance's caches or tables."""
    place = BUILT_IN.get(name, name)
    if ":" in place:
        module, _, attribute = place.partition(":")
        try:
            factory = getattr(importlib.import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError) as error:
            raise MasktaxError(f"backend {name}: no such place ({error})") from error
    else:
        found = {e.name: e for e in entry_points(group=GROUP)}
        if name not in found:
            raise MasktaxError(f"unknown backend {name!r}; known: {', '.join(names())}")
        factory = found[name].load()
    try:
        backend: Backend = factory(**(options or {}))
    except TypeError as error:
        raise MasktaxError(f"backend {name}: options {dict(options or {})!r} do not fit ({error})") from error
    return backend
