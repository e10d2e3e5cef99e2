"""Which documents of an outside corpus can be held against a backend under its policy. Worker side.

The labels of a corpus are somebody else's and say what validators of JSON Schema say, most of them with ``format`` as
an assertion. A backend that declares another policy (keys in declared order, no keys beside the declared ones,
``format`` as an annotation) is right to go by that. So the reference engine is asked about every document, as it is
spelled: where it agrees with the label under the backend's own profile, the document stays. The others are left out,
each with its reason: nobody is blamed by a label that does not hold for him, or that is in doubt.

Documents of the built-in constraints are never touched: their labels hold under every profile, which tests check.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.cell import Cell, Document, is_outside
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile

if TYPE_CHECKING:
    from harness.reference.automaton import Automaton

LIMIT_S = 30.0
"""How long the documents of one cell may take to decide, compiling aside; what is left then is not decided."""

POLICY = "its label does not hold under this policy"
DISPUTED = "the reference engine disputes its label"

# What labels go by: the standards, for documents in which no key is repeated; ``format`` binds only against a document.
_OF_VALID = Profile(duplicate_keys="forbidden")
_OF_INVALID = replace(_OF_VALID, format="assertion")


def settle(cell: Cell, profile: Profile, clock: Callable[[], float] = time.monotonic) -> tuple[Cell, dict[str, str]]:
    """The cell with the documents that stay, and ``{name: why}`` of those left out. clock: seconds."""
    if not is_outside(cell.constraint_name):
        return cell, {}
    from harness.reference import compile as compiler
    from harness.reference.automaton import TooComplex

    deadline = clock() + LIMIT_S

    @cache
    def automaton(under: Profile) -> Automaton[Any]:
        return compiler.compile(cell.constraint, under)

    def is_in(document: Document, under: Profile) -> bool:
        state = automaton(under).start()
        for byte in document.text.encode():
            if state is None:
                return False
            if clock() > deadline:
                raise TooComplex(f"more than {LIMIT_S:g} s for the documents of a cell")
            state = automaton(under).step(state, byte)
        return state is not None and automaton(under).accepting(state)

    own = replace(profile, tokens="all")  # which tokens spell a text does not change which texts there are
    left_out: dict[str, str] = {}

    def stays(document: Document, label: bool) -> bool:
        try:
            if is_in(document, own) == label:
                return True
            holds = is_in(document, _OF_VALID if label else _OF_INVALID) == label
            left_out[document.name] = POLICY if holds else DISPUTED
        except UnsupportedError as error:
            left_out[document.name] = f"not decided: {error.reason}"
        except (CompileError, TooComplex) as error:
            left_out[document.name] = f"not decided: {error}"
        return False

    valid = tuple(d for d in cell.valid if stays(d, True))
    invalid = tuple(d for d in cell.invalid if stays(d, False))
    return replace(cell, valid=valid, invalid=invalid), left_out
