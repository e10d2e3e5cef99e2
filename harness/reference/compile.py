"""A constraint under a profile → its automaton.

Everything that can be known to be unsupported or malformed is said here, before a byte is read: every schema that the
constraint can lead to is looked at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from harness.constraint import Constraint, Syntax
from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.reference import drafts, ebnf, grammar, lark, regex_syntax
from harness.reference.automaton import Automaton, TooComplex
from harness.reference.choice import Choice
from harness.reference.documents import Documents, parse
from harness.reference.keywords import Schemas
from harness.reference.spelling import Utf8
from harness.reference.tags import StructuralTag, Structure
from harness.reference.tree import Tree

# Python frames that deeply nested schemas may take. Pure Python calls cost no C stack.
RECURSION_LIMIT = 20_000


def compile(
    constraint: Constraint,
    profile: Profile | None = None,
    *,
    default_draft: str = "2020-12",
    resources: Mapping[str, Any] | None = None,
) -> Automaton[Any]:
    """The automaton of a constraint.

    default_draft: the draft of a schema without ``$schema``. resources: documents by URI that references may lead to.
    UnsupportedError names what cannot be decided exactly, CompileError the place of what is malformed.
    """
    profile = profile or Profile()
    match constraint.kind:
        case "json_schema":
            return schema(parse(constraint.text), profile, default_draft=default_draft, resources=resources)
        case "json_object":
            return schema({"type": "object"}, profile)
        case "regex":
            return _guarded(
                lambda: Utf8(regex_syntax.compile(constraint.text, dialect=_dialect(profile), search=False))
            )
        case "choice":
            return Choice(json.loads(constraint.text))
        case "grammar":
            return _guarded(lambda: _grammar(constraint.text, constraint.syntax))
        case "structural_tag":
            return _structural_tag(parse(constraint.text), profile, default_draft=default_draft, resources=resources)


def _grammar(text: str, syntax: Syntax | None) -> Automaton[Any]:
    if syntax == "lark":
        return lark.compile(text)
    assert syntax is not None
    return grammar.automaton(ebnf.rules(text, syntax), ebnf.ROOT)


def _structural_tag(tag: Any, profile: Profile, **options: Any) -> Automaton[Any]:
    structures = []
    for i, structure in enumerate(tag["structures"]):
        try:
            automaton = schema(structure["schema"], profile, **options)
        except UnsupportedError as error:
            pointer = f"/structures/{i}/schema{error.pointer}"
            raise UnsupportedError(error.reason, keyword=error.keyword, pointer=pointer) from error
        structures.append(Structure(structure["begin"], automaton, structure["end"]))
    return StructuralTag(tag["triggers"], structures)


def schema(
    schema: Any,
    profile: Profile,
    *,
    default_draft: str = "2020-12",
    resources: Mapping[str, Any] | None = None,
) -> Tree:
    """The automaton of a parsed JSON Schema (numbers int or Fraction)."""
    if sys.getrecursionlimit() < RECURSION_LIMIT:
        sys.setrecursionlimit(RECURSION_LIMIT)

    def build() -> Tree:
        documents = Documents(schema, drafts.BY_NAME[default_draft], resources)
        schemas = Schemas(documents, profile)
        root = schemas.root()
        schemas.look_at_everything(root)
        return Tree(schemas, root)

    return _guarded(build)


Built = TypeVar("Built")


def _guarded(build: Callable[[], Built]) -> Built:
    try:
        return build()
    except TooComplex as bound:
        raise UnsupportedError(f"too complex: {bound}") from bound
    except RecursionError as error:
        raise UnsupportedError("too complex: nested too deep") from error


def _dialect(profile: Profile) -> Any:
    return profile.regex_dialect


__all__ = ["CompileError", "UnsupportedError", "compile", "schema"]
