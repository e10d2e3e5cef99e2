"""The built-in constraints and their documents: read from ``schemas/``, chosen by name, spelled under a profile.

schemas/README.md describes the file format. Manager side. Nothing here decides whether a document is valid: the files
say so, and the tests have independent validators check every one of them.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, get_args, get_type_hints

from harness import key_order, paths
from harness.constraint import KINDS, SYNTAXES, Constraint
from harness.errors import MasktaxError
from harness.profile import Profile

MINIMUM_INSTANCES = 3
MANIFEST = "manifest.toml"

_FIELDS = frozenset({"about", "kind", "syntax", "constraint", "constraint_file", "valid", "valid_where", "invalid"})
_MISSING = object()
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Instance:
    """One document, before it is spelled.

    value: a JSON value (kinds json_schema, json_object); the text itself (regex, grammar, choice); for a
        structural_tag the text in parts, each a string or ``{"begin": text, "value": JSON value, "end": text}``.
    why: of an invalid document, the one thing that is wrong with it.
    at: of an invalid document, JSON pointer into the constraint: without the keyword there, it would be valid. Empty
        where the constraint is not made of JSON keywords.
    where: of a valid document, the profile fields without which it is outside the language.
    literal: ``value`` is the document's text, whatever the profile says.
    name: ``valid/0``, ``invalid/2`` …, by position in the file; ``valid_where`` counts on where ``valid`` ends, so a
        name means the same document under every profile.
    """

    value: Any
    why: str = ""
    at: str = ""
    where: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    literal: bool = False
    name: str = ""

    @property
    def keyword(self) -> str:
        """The keyword that refuses an invalid document; empty where ``at`` is."""
        return self.at.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """A built-in constraint with its documents.

    name: ``tier/name``. about: one line. valid: documents that every profile can spell. valid_where: further ones,
    each valid under the standards and outside a narrower profile (``valid_under`` chooses). invalid: documents with
    exactly one thing wrong. features, complexity: from the manifest, which defines them; empty and 0 in a folder that
    has none.
    """

    name: str
    tier: str
    about: str
    constraint: Constraint
    valid: tuple[Instance, ...]
    invalid: tuple[Instance, ...]
    features: frozenset[str]
    complexity: int
    valid_where: tuple[Instance, ...] = ()


def load(root: Path | None = None) -> dict[str, Entry]:
    """Every constraint below ``root`` (default: the built-in ones), by name, in the order of their names.

    MasktaxError, with the file and a JSON pointer into it, for a file that does not keep to the format.
    """
    root = paths.schemas() if root is None else root
    files = {f"{p.parent.name}/{p.stem}": p for p in sorted(root.glob("*/*.json"))}
    if not files:
        raise MasktaxError(f"{root}: no constraints there; expected <tier>/<name>.json")
    described = _manifest(root / MANIFEST, files)
    return {name: read_entry(path, *described.get(name, (frozenset(), 0))) for name, path in files.items()}


def select(patterns: Sequence[str], root: Path | None = None) -> list[Entry]:
    """The constraints whose name matches one of ``patterns`` (``flat/order``, ``flat/*``, ``*``), each once, by name.

    MasktaxError for a pattern that matches nothing, with the nearest name.
    """
    entries = load(root)
    chosen: set[str] = set()
    for pattern in patterns:
        matched = [name for name in entries if fnmatchcase(name, pattern)]
        if not matched:
            tiers = {f"{entry.tier}/*" for entry in entries.values()}
            near = difflib.get_close_matches(pattern, [*entries, *sorted(tiers)], n=1, cutoff=0.0)[0]
            raise MasktaxError(f"no constraint is called {pattern!r}; the nearest is {near!r} (`masktax list` has all)")
        chosen.update(matched)
    return [entry for name, entry in entries.items() if name in chosen]


def valid_under(entry: Entry, profile: Profile) -> tuple[Instance, ...]:
    """The valid documents that are in the language under ``profile``: all of ``valid``, and what fits of
    ``valid_where``."""
    fitting = (i for i in entry.valid_where if all(getattr(profile, name) == v for name, v in i.where.items()))
    return (*entry.valid, *fitting)


def spell(entry: Entry, instance: Instance, profile: Profile) -> str:
    """The document's text under the profile: its white space and key order, with the shortest escapes.

    White space of a free choice (any, bounded, one_space) is spelled compact. Text that is no JSON stays as it is.
    """
    if instance.literal:
        return str(instance.value)
    if entry.constraint.kind == "json_schema" and profile.key_order == "declared":
        return _dump(key_order.declared(instance.value, entry.constraint.json()), profile)
    if entry.constraint.kind == "structural_tag":
        return "".join(
            part if isinstance(part, str) else part["begin"] + _dump(part["value"], profile) + part["end"]
            for part in instance.value
        )
    return _dump(instance.value, profile)


def _dump(value: Any, profile: Profile) -> str:
    indent = profile.indent if profile.whitespace == "indented" else None
    separators = {"spaced": (", ", ": "), "indented": (",", ": ")}.get(profile.whitespace, (",", ":"))
    # Python compares strings by code point, which is the order that the profile means.
    ordered = profile.key_order == "sorted"
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=indent, sort_keys=ordered)


def _manifest(path: Path, files: Mapping[str, Path]) -> dict[str, tuple[frozenset[str], int]]:
    """``{name: (features, complexity)}``, empty where there is no manifest; it must name exactly the files."""
    if not path.is_file():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["constraints"]
        described = {name: (frozenset(t["features"]), int(t["complexity"])) for name, t in tables.items()}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise MasktaxError(
            f'{path}: need [constraints."tier/name"] with features and complexity ({error!r})'
        ) from error
    for name in sorted(files.keys() ^ described.keys()):
        if name in files:
            raise MasktaxError(f"{path}: {name} is missing; add its features and complexity")
        raise MasktaxError(f"{path}: {name} has no file {name}.json beside it; remove it")
    return described


def read_entry(path: Path, features: frozenset[str] = frozenset(), complexity: int = 0) -> Entry:
    """One constraint from its file, which is ``<tier>/<name>.json``."""
    data = _read(path)
    unknown = sorted(data.keys() - _FIELDS)
    if unknown:
        near = difflib.get_close_matches(unknown[0], _FIELDS, n=1, cutoff=0.0)[0]
        _fail(path, f"/{unknown[0]}", f"unknown field; the nearest is {near!r}")
    about = _need(path, data, "about", str)
    if not about or "\n" in about:
        _fail(path, "/about", "must be one line of text")
    constraint = _constraint(path, data)
    valid = [
        replace(_instance(path, f"/valid/{i}", constraint, value), name=f"valid/{i}")
        for i, value in enumerate(_need(path, data, "valid", list))
    ]
    where = [
        replace(_valid_where(path, f"/valid_where/{i}", constraint, item), name=f"valid/{len(valid) + i}")
        for i, item in enumerate(_need(path, data, "valid_where", list, []))
    ]
    invalid = [
        replace(_invalid(path, f"/invalid/{i}", constraint, item), name=f"invalid/{i}")
        for i, item in enumerate(_need(path, data, "invalid", list))
    ]
    for pointer, count in (("/valid", len(valid)), ("/invalid", len(invalid))):
        if count < MINIMUM_INSTANCES:
            _fail(path, pointer, f"has {count} instances; at least {MINIMUM_INSTANCES} are needed")
    tier = path.parent.name
    return Entry(
        f"{tier}/{path.stem}",
        tier,
        about,
        constraint,
        tuple(valid),
        tuple(invalid),
        features,
        complexity,
        tuple(where),
    )


def _constraint(path: Path, data: Mapping[str, Any]) -> Constraint:
    kind = _need(path, data, "kind", str)
    if kind not in KINDS:
        _fail(path, "/kind", f"{kind!r} is none of {', '.join(KINDS)}")
    syntax = data.get("syntax")
    if (kind == "grammar") != (syntax is not None):
        _fail(path, "/syntax", "a grammar must name its syntax, and nothing else may")
    if syntax is not None and syntax not in SYNTAXES:
        _fail(path, "/syntax", f"{syntax!r} is none of {', '.join(SYNTAXES)}")
    sources = [s for s in ("constraint", "constraint_file") if s in data]
    if len(sources) != (0 if kind == "json_object" else 1):
        wanted = "neither" if kind == "json_object" else "exactly one"
        _fail(path, "", f"a {kind} needs {wanted} of constraint and constraint_file")
    if not sources:
        text = ""
    elif sources == ["constraint_file"]:
        text = _beside(path, _need(path, data, "constraint_file", str))
    elif kind in ("regex", "grammar"):
        text = _need(path, data, "constraint", str)
    else:
        text = json.dumps(data["constraint"], separators=(",", ":"), ensure_ascii=False)
    try:
        return Constraint(kind, text, syntax)
    except MasktaxError as error:
        _fail(path, "/constraint", str(error))


def _beside(path: Path, name: str) -> str:
    file = path.parent / name
    if Path(name).name != name or not file.is_file():
        _fail(path, "/constraint_file", f"there is no file {name!r} beside this one")
    return file.read_text(encoding="utf-8")


def _instance(path: Path, pointer: str, constraint: Constraint, value: Any) -> Instance:
    """An instance with its value checked for the shape that the kind wants."""
    match constraint.kind:
        case "regex" | "grammar" | "choice":
            if not isinstance(value, str):
                _fail(path, pointer, f"an instance of a {constraint.kind} is a string")
            return Instance(value, literal=True)
        case "structural_tag":
            parts = [value] if isinstance(value, str) else value
            if not isinstance(parts, list):
                _fail(path, pointer, "an instance of a structural_tag is a string or a list of parts")
            for i, part in enumerate(parts):
                whole = isinstance(part, dict) and part.keys() == {"begin", "value", "end"}
                if not isinstance(part, str) and not whole:
                    _fail(path, f"{pointer}/{i}", "a part is a string, or an object with begin, value and end")
            return Instance(parts)
        case _:
            return Instance(value)


def _invalid(path: Path, pointer: str, constraint: Constraint, item: Any) -> Instance:
    if not isinstance(item, dict):
        _fail(path, pointer, "an invalid instance is an object with instance and why")
    unknown = sorted(item.keys() - {"instance", "text", "at", "why"})
    if unknown:
        _fail(path, f"{pointer}/{unknown[0]}", "unknown field; known are instance, text, at, why")
    if ("instance" in item) == ("text" in item):
        _fail(path, pointer, "needs exactly one of instance and text")
    why = _need(path, item, "why", str, at=pointer)
    if not why:
        _fail(path, f"{pointer}/why", "must say what is wrong")
    at = _need(path, item, "at", str, _MISSING if constraint.kind == "json_schema" else "", at=pointer)
    if at or constraint.kind == "json_schema":
        _resolve(path, f"{pointer}/at", constraint, at)
    if "text" in item:
        if constraint.kind != "json_object":
            _fail(path, f"{pointer}/text", "only a json_object has documents that are no JSON value; use instance")
        return Instance(_need(path, item, "text", str, at=pointer), why, at, literal=True)
    base = _instance(path, f"{pointer}/instance", constraint, item["instance"])
    return Instance(base.value, why, at, literal=base.literal)


def _valid_where(path: Path, pointer: str, constraint: Constraint, item: Any) -> Instance:
    if not isinstance(item, dict) or item.keys() != {"instance", "profile"}:
        _fail(path, pointer, "needs instance and profile, and nothing else")
    where = item["profile"]
    if not isinstance(where, dict) or not where:
        _fail(path, f"{pointer}/profile", "must name at least one field of a profile")
    hints = get_type_hints(Profile)
    for name, value in where.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1, cutoff=0.0)[0]
            _fail(path, f"{pointer}/profile/{name}", f"no field of a profile; the nearest is {near!r}")
        allowed = get_args(hints[name])
        if not (value in allowed if allowed else type(value) is hints[name]):
            _fail(path, f"{pointer}/profile/{name}", f"{value!r} is no value of this field")
    base = _instance(path, f"{pointer}/instance", constraint, item["instance"])
    return Instance(base.value, where=MappingProxyType(dict(where)), literal=base.literal)


def _resolve(path: Path, pointer: str, constraint: Constraint, at: str) -> None:
    """Refuse an ``at`` that leads nowhere in the constraint."""
    node = constraint.json() if constraint.kind in ("json_schema", "structural_tag") else None
    if not at.startswith("/"):
        _fail(path, pointer, f"{at!r} is no JSON pointer into the constraint")
    for step in at[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            _fail(path, pointer, f"{at!r} leads nowhere in the constraint")


def _read(path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"the key {key!r} is there twice")
        return dict(pairs)

    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except ValueError as error:
        _fail(path, "", f"not JSON: {error}")
    if not isinstance(data, dict):
        _fail(path, "", "must be a JSON object")
    return data


def _need(path: Path, data: Mapping[str, Any], name: str, kind: type, default: Any = _MISSING, *, at: str = "") -> Any:
    """The field's value, checked for its type; ``default``, where there is one, if it is absent."""
    if name not in data:
        if default is _MISSING:
            _fail(path, f"{at}/{name}", "is missing")
        return default
    if not isinstance(data[name], kind):
        _fail(path, f"{at}/{name}", f"must be a {'list' if kind is list else 'string'}")
    return data[name]


def _fail(path: Path, pointer: str, message: str) -> NoReturn:
    raise MasktaxError(f"{path}#{pointer}: {message}")
