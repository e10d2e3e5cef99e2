"""What a request asks for: one of six kinds of constraint, as text. Worker side: standard library only.

Nothing here interprets a constraint beyond what every backend must agree on (is it JSON at all, is the list of
choices a list of strings); meaning belongs to the backends and to the reference engine.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.errors import MasktaxError

Kind = Literal["json_schema", "json_object", "regex", "grammar", "choice", "structural_tag"]
Syntax = Literal["ebnf", "lark", "gbnf"]

KINDS: tuple[Kind, ...] = get_args(Kind)
SYNTAXES: tuple[Syntax, ...] = get_args(Syntax)


@dataclass(frozen=True)
class Constraint:
    """One constraint.

    kind: which of the six.
    text: JSON Schema text; empty for ``json_object``; the regular expression; the grammar; a JSON array of strings
        for ``choice``; for ``structural_tag`` a JSON object
        ``{"triggers": [text, …], "structures": [{"begin": text, "schema": {…}, "end": text}, …]}``:
        free text until a trigger, then exactly one structure whose ``begin`` starts with that trigger.
    syntax: names the notation of a ``grammar``; None for every other kind.
    """

    kind: Kind
    text: str
    syntax: Syntax | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise MasktaxError(f"constraint kind {self.kind!r} is none of {', '.join(KINDS)}")
        if (self.kind == "grammar") != (self.syntax is not None):
            raise MasktaxError(f"a constraint of kind {self.kind!r} has syntax {self.syntax!r}: only a grammar has one")
        if self.syntax is not None and self.syntax not in SYNTAXES:
            raise MasktaxError(f"grammar syntax {self.syntax!r} is none of {', '.join(SYNTAXES)}")
        if self.kind == "choice":
            choices = self.json()
            if not isinstance(choices, list) or not choices or not all(isinstance(c, str) for c in choices):
                raise MasktaxError("a choice constraint's text must be a non-empty JSON array of strings")
        elif self.kind == "json_schema":
            if not isinstance(self.json(), dict | bool):
                raise MasktaxError("a json_schema constraint's text must be a JSON object or a boolean")
        elif self.kind == "structural_tag":
            tag = self.json()
            if not isinstance(tag, dict) or not {"triggers", "structures"} <= tag.keys():
                raise MasktaxError('a structural_tag constraint needs "triggers" and "structures"')

    def json(self) -> Any:
        """The text parsed as JSON (kinds json_schema, choice, structural_tag); MasktaxError where it is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise MasktaxError(f"the text of a {self.kind} constraint is not JSON: {error}") from error

    @property
    def sha256(self) -> str:
        """Hex digest over kind, syntax and text: two constraints are the same request exactly if these are equal."""
        return hashlib.sha256("\0".join((self.kind, self.syntax or "", self.text)).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "syntax": self.syntax}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Constraint:
        return cls(kind=data["kind"], text=data["text"], syntax=data.get("syntax"))
