"""The declared language policy under which a backend is judged. Worker side: standard library only.

Standards leave things open (how much white space, which key order); a backend decides them one way or another. It
states its decisions here, and the judge compiles the same constraint under the same profile, so that a declared
choice is never reported as a fault and an undeclared one always is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from harness.errors import MasktaxError


@dataclass(frozen=True)
class Profile:
    """A language policy. The defaults are the standards' own: RFC 8259 JSON in full, JSON Schema as written.

    whitespace: between JSON tokens. ``any``: RFC 8259, any amount of space, tab, LF, CR. ``bounded``: the same, at
        most ``whitespace_limit`` characters in one place. ``one_space``: none or one U+0020 in each place.
        ``compact``: none. ``spaced``: exactly ``", "`` and ``": "`` and none elsewhere. ``indented``: newline and
        ``indent`` spaces for each level of depth inside non-empty containers, ``": "`` after keys.
    outer_whitespace: whether the same white space may also stand before and after the whole document.
    key_order: ``any``; ``declared``: keys named in ``properties`` come in the order written there, other keys after
        them; ``sorted``: by code point of the decoded key.
    duplicate_keys: ``forbidden``; ``last_wins`` (the last value of a key is the one that is validated); ``any``
        (every value is validated, repetition allowed).
    additional_properties, additional_items: the value that the keywords take where a schema that has
        ``properties`` (``prefixItems``) does not say. The standard says True.
    numbers: ``rfc8259`` with fraction and exponent; ``plain``: digits and an optional fraction, no exponent.
    integer_spelling: how ``"type": "integer"`` may be written. ``value``: any spelling whose value is integral
        (``7.0``, ``1e3``); ``digits``: digits only.
    escapes: ``any`` spelling of a string; ``minimal``: only the escapes that RFC 8259 demands, shortest form.
    literal_escapes: the same for the strings that a schema writes out: keys of ``properties``, ``enum``, ``const``.
        Where ``escapes`` is ``minimal`` it holds for these, too.
    lone_surrogates: whether ``\\ud800`` without its partner is a string.
    pattern: whether ``pattern`` searches (the standard) or must match the full string.
    regex_dialect: what ``\\d \\w \\s`` and the dot mean.
    format: ``annotation`` (never binds) or ``assertion``.
    tokens: ``all``: every token whose bytes keep the prefix viable is allowed (the definition). ``canonical``: where
        the text is forced, only the tokenizer's own tokens for it are.
    """

    whitespace: Literal["any", "bounded", "one_space", "compact", "spaced", "indented"] = "any"
    whitespace_limit: int = 0
    indent: int = 0
    outer_whitespace: bool = True
    key_order: Literal["any", "declared", "sorted"] = "any"
    duplicate_keys: Literal["forbidden", "last_wins", "any"] = "last_wins"
    additional_properties: bool = True
    additional_items: bool = True
    numbers: Literal["rfc8259", "plain"] = "rfc8259"
    integer_spelling: Literal["value", "digits"] = "value"
    escapes: Literal["any", "minimal"] = "any"
    literal_escapes: Literal["any", "minimal"] = "any"
    lone_surrogates: bool = False
    pattern: Literal["search", "full"] = "search"
    regex_dialect: Literal["ecma262", "rust", "python"] = "ecma262"
    format: Literal["annotation", "assertion"] = "annotation"
    tokens: Literal["all", "canonical"] = "all"

    def __post_init__(self) -> None:
        hints = get_type_hints(Profile)
        for field in fields(self):
            allowed = get_args(hints[field.name])
            value = getattr(self, field.name)
            if allowed and value not in allowed:
                raise MasktaxError(f"profile: {field.name} = {value!r} is none of {', '.join(map(str, allowed))}")
            if not allowed and type(value) is not hints[field.name]:
                raise MasktaxError(f"profile: {field.name} = {value!r} must be of type {hints[field.name].__name__}")
        if self.whitespace_limit < 0 or self.indent < 0:
            raise MasktaxError("profile: whitespace_limit and indent are never negative")
        if (self.whitespace == "bounded") != (self.whitespace_limit > 0):
            raise MasktaxError("profile: whitespace_limit goes with whitespace = 'bounded', and must be positive there")
        if (self.whitespace == "indented") != (self.indent > 0):
            raise MasktaxError("profile: indent goes with whitespace = 'indented', and must be positive there")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        unknown = sorted(data.keys() - {f.name for f in fields(cls)})
        if unknown:
            raise MasktaxError(
                f"profile: unknown field {unknown[0]!r}; known: {', '.join(f.name for f in fields(cls))}"
            )
        return cls(**data)


def differences(one: Profile, other: Profile) -> dict[str, tuple[Any, Any]]:
    """The fields in which two profiles differ, as ``{field: (in one, in other)}``."""
    return {
        f.name: (getattr(one, f.name), getattr(other, f.name))
        for f in fields(Profile)
        if getattr(one, f.name) != getattr(other, f.name)
    }
