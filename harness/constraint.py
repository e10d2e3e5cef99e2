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
        if not _has_utf8(self.text):
            raise MasktaxError(f"the text of a {self.kind} constraint holds a lone surrogate, which has no UTF-8")
        match self.kind:
            case "json_object":
                if self.text:
                    raise MasktaxError("a json_object constraint has no text: it allows any JSON object")
            case "json_schema":
                if not isinstance(self.json(), dict | bool):
                    raise MasktaxError("a json_schema constraint's text must be a JSON object or a boolean")
            case "choice":
                choices = self.json()
                if not isinstance(choices, list) or not choices or not all(_is_text(c) for c in choices):
                    raise MasktaxError(
                        "a choice constraint's text must be a non-empty JSON array of strings without lone surrogates"
                    )
            case "structural_tag":
                _check_structural_tag(self.json())

    def json(self) -> Any:
        """The text parsed as JSON (kinds json_schema, choice, structural_tag); MasktaxError where it is not JSON."""
        try:
            return json.loads(self.text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
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


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _has_utf8(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value (RFC 8259)")


def _check_structural_tag(tag: Any) -> None:
    if not isinstance(tag, dict) or not {"triggers", "structures"} <= tag.keys():
        raise MasktaxError('a structural_tag constraint needs "triggers" and "structures"')
    triggers, structures = tag["triggers"], tag["structures"]
    if not isinstance(triggers, list) or not triggers or not all(_is_text(t) and t for t in triggers):
        raise MasktaxError('"triggers" of a structural_tag constraint must be a non-empty array of non-empty strings')
    if not isinstance(structures, list) or not structures:
        raise MasktaxError('"structures" of a structural_tag constraint must be a non-empty array')
    for i, structure in enumerate(structures):
        place = f"/structures/{i} of a structural_tag constraint"
        if not isinstance(structure, dict) or not {"begin", "schema", "end"} <= structure.keys():
            raise MasktaxError(f'{place} needs "begin", "schema" and "end"')
        if not _is_text(structure["begin"]) or not _is_text(structure["end"]):
            raise MasktaxError(f'{place}: "begin" and "end" must be strings without lone surrogates')
        if not isinstance(structure["schema"], dict | bool):
            raise MasktaxError(f'{place}: "schema" must be a JSON object or a boolean')
        if not any(structure["begin"].startswith(trigger) for trigger in triggers):
            raise MasktaxError(f'{place}: no trigger begins its "begin" {structure["begin"]!r}; it could never start')
