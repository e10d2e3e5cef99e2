"""Where schemas lie and what references lead to. Nothing here knows what a keyword means, only where it leads.

A *place* is one schema in one document; the same schema is the same place, so places compare by identity. A *resource*
is a schema with a URI of its own (the document's root, or one with an embedded ``$id``) with its anchors. Documents
beside the main one come from ``resources`` alone: nothing is ever fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from harness.errors import CompileError, UnsupportedError
from harness.reference import drafts
from harness.reference.drafts import Draft, escape

# Decimal exponents in a schema's numbers past this are refused: 1e1000000000 is no number anybody can write out.
EXPONENT_BOUND = 5_000
DEPTH_BOUND = 2_000


class Resource:
    """A schema with a URI. dynamic: its dynamic anchors (``$recursiveAnchor`` under the empty name)."""

    __slots__ = ("anchors", "asserts_formats", "draft", "dynamic", "off", "root", "uri")

    def __init__(self, uri: str, draft: Draft, off: frozenset[str]) -> None:
        self.uri = uri
        self.draft = draft
        self.off = off  # keywords switched off by the meta-schema's vocabularies
        self.asserts_formats = "format-assertion" in off
        self.anchors: dict[str, Place] = {}
        self.dynamic: dict[str, Place] = {}
        self.root: Place | None = None  # until the root's place exists


class Place:
    """A schema and where it lies. pointer: from its document's root."""

    __slots__ = ("document", "pointer", "resource", "schema")

    def __init__(self, schema: Any, resource: Resource, document: str, pointer: str) -> None:
        self.schema = schema
        self.resource = resource
        self.document = document
        self.pointer = pointer

    @property
    def draft(self) -> Draft:
        return self.resource.draft

    def __repr__(self) -> str:
        return f"<{self.document}#{self.pointer}>"


def parse(text: str) -> Any:
    """JSON with exact numbers: integers as int, others as Fraction."""

    def exact(digits: str) -> Fraction:
        exponent = re.search(r"[eE]([+-]?\d+)$", digits)
        if exponent and len(exponent.group(1).lstrip("+-0")) > 4:
            raise UnsupportedError(f"a number with an exponent beyond {EXPONENT_BOUND}", keyword="number")
        return Fraction(digits)

    def refuse(name: str) -> None:
        raise CompileError(f"{name} is no JSON value (RFC 8259)")

    try:
        return json.loads(text, parse_float=exact, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CompileError(f"the schema is not JSON: {error}") from error


def exact(value: Any) -> Any:
    """The same JSON value with floats as the fractions that their shortest texts say."""
    if isinstance(value, float):
        return Fraction(repr(value))
    if isinstance(value, list):
        return [exact(v) for v in value]
    if isinstance(value, dict):
        return {k: exact(v) for k, v in value.items()}
    return value


class Documents:
    """All schemas of one compilation.

    resources: documents by URI that references may lead to, beside the main one.
    """

    def __init__(self, schema: Any, default: Draft, resources: Mapping[str, Any] | None = None) -> None:
        self._given = {_bare(uri): document for uri, document in (resources or {}).items()}
        self._default = default
        self._resources: dict[str, Resource] = {}
        self._places: dict[int, Place] = {}  # by id() of the schema's dict; the dicts live in their documents
        self._booleans: dict[tuple[str, str], Place] = {}
        self._kept: list[Any] = []
        self.root = self._add("", schema, default)

    # --- loading ---------------------------------------------------------------------------------------------------

    def _add(self, uri: str, schema: Any, default: Draft) -> Place:
        self._kept.append(schema)
        if not isinstance(schema, dict | bool):
            raise CompileError(f"{uri}#: a schema must be an object or a boolean")
        root_place: Place | None = None
        stack: list[tuple[Any, Resource | None, str, int]] = [(schema, None, "", 0)]
        while stack:
            at, resource, pointer, depth = stack.pop()
            if depth > DEPTH_BOUND:
                raise UnsupportedError(f"too complex: schemas nested deeper than {DEPTH_BOUND}", pointer=pointer[:80])
            if isinstance(at, dict) and id(at) in self._places:
                continue
            resource = self._resource(at, resource, uri, default, pointer)
            place = Place(at, resource, uri, pointer)
            resource.root = resource.root or place
            if root_place is None:
                root_place = place
                if uri:
                    self._resources.setdefault(_bare(uri), resource)
            if isinstance(at, bool):
                self._booleans[(uri, pointer)] = place
                continue
            drafts.check(at, resource.draft, f"{uri}#{pointer}")
            self._places[id(at)] = place
            self._anchor(at, place)
            stack.extend((inner, resource, f"{pointer}/{where}", depth + 1) for where, inner in _inner(at, resource))
        assert root_place is not None
        return root_place

    def _resource(self, schema: Any, outer: Resource | None, uri: str, default: Draft, pointer: str) -> Resource:
        """The resource that a schema belongs to: its own where it has an id."""
        draft, off = (outer.draft, outer.off) if outer else (default, frozenset())
        base = outer.uri if outer else uri
        if not isinstance(schema, dict):
            return outer or self._new_resource(base, draft, off)
        declared = schema.get("$schema")
        named = schema.get("$id", schema.get("id") if (draft.number == 4 or outer is None) else None)
        if isinstance(declared, str) and (outer is None or isinstance(named, str)):
            draft, off = self._dialect(declared, f"{uri}#{pointer}")
        named = schema.get(draft.id_keyword)
        if isinstance(named, str) and not (draft.number < 2019 and "$ref" in schema):
            without, fragment = urldefrag(named)
            if without or not fragment:
                return self._new_resource(_bare(_join(base, named)), draft, off)
        return outer or self._new_resource(base, draft, off)

    def _new_resource(self, uri: str, draft: Draft, off: frozenset[str]) -> Resource:
        resource = Resource(uri, draft, off)
        self._resources.setdefault(uri, resource)
        return resource

    def _dialect(self, declared: str, where: str) -> tuple[Draft, frozenset[str]]:
        bare = declared.split("#")[0]
        if bare in drafts.BY_URI:
            return drafts.BY_URI[bare], frozenset()
        meta = self._given.get(bare)
        if not isinstance(meta, dict):
            raise UnsupportedError(f"unknown dialect {declared}", keyword="$schema", pointer=where.split("#")[-1])
        base = meta.get("$schema")
        draft, off = self._dialect(base, where) if isinstance(base, str) and base != declared else (self._default, None)
        vocabulary = meta.get("$vocabulary")
        if isinstance(vocabulary, dict):
            present = {v.rsplit("/", 1)[-1] for v in vocabulary}
            for name, needed in vocabulary.items():
                if needed is True and not re.search(r"json-schema\.org/draft/[\d-]+/vocab/", name):
                    raise UnsupportedError(f"unknown vocabulary {name}", keyword="$vocabulary")
            off = frozenset().union(*(words for name, words in drafts.VOCABULARY.items() if name not in present))
            off |= present & {"format-assertion"}  # no keyword, so it switches none off
        return draft, off or frozenset()

    def _anchor(self, schema: dict[str, Any], place: Place) -> None:
        resource, draft = place.resource, place.draft
        if draft.number >= 2019:
            for keyword in ("$anchor", "$dynamicAnchor") if draft.number >= 2020 else ("$anchor",):
                name = schema.get(keyword)
                if isinstance(name, str):
                    resource.anchors[name] = place
                    if keyword == "$dynamicAnchor":
                        resource.dynamic[name] = place
            if draft.number == 2019 and schema.get("$recursiveAnchor") is True and resource.root is place:
                resource.dynamic[""] = place
        else:
            name = schema.get(draft.id_keyword)
            if isinstance(name, str) and "$ref" not in schema and "#" in name:
                without, fragment = urldefrag(name)
                if fragment and not without:
                    resource.anchors[fragment] = place

    # --- finding ---------------------------------------------------------------------------------------------------

    def below(self, place: Place, *path: str | int) -> Place:
        """The place of a subschema, given the keywords and indexes that lead to it."""
        at = place.schema
        for token in path:
            at = at[token]
        pointer = place.pointer + "".join(f"/{escape(str(t))}" for t in path)
        return self._placed(at, place.resource, place.document, pointer)

    def _placed(self, schema: Any, resource: Resource, document: str, pointer: str) -> Place:
        if isinstance(schema, dict):
            found = self._places.get(id(schema))
            if found is None:
                # Below a keyword that the draft does not know: read now, because something leads here.
                drafts.check(schema, resource.draft, f"{document}#{pointer}")
                found = self._places[id(schema)] = Place(schema, resource, document, pointer)
            return found
        key = (document, pointer)
        if not isinstance(schema, bool):
            raise CompileError(f"{document}#{pointer}: a schema must be an object or a boolean")
        if key not in self._booleans:
            self._booleans[key] = Place(schema, resource, document, pointer)
        return self._booleans[key]

    def resolve(self, place: Place, reference: str, keyword: str = "$ref") -> tuple[Place, str]:
        """What a reference leads to, and its fragment where that is an anchor's name (else "")."""
        uri, fragment = urldefrag(_join(place.resource.uri, reference))
        fragment = unquote(fragment)
        resource = self._find(uri, place, keyword, reference)
        assert resource.root is not None
        if not fragment:
            return resource.root, ""
        if not fragment.startswith("/"):
            if fragment not in resource.anchors:
                raise CompileError(f"{place.document}#{place.pointer}/{keyword}: {reference!r} leads to no anchor")
            return resource.anchors[fragment], fragment
        return self._follow(resource.root, fragment, place, keyword, reference), ""

    def _find(self, uri: str, place: Place, keyword: str, reference: str) -> Resource:
        bare = _bare(uri)
        if bare in self._resources:
            return self._resources[bare]
        if bare in self._given:
            return self._add(bare, self._given[bare], place.draft).resource
        raise UnsupportedError(
            f"a reference to {bare or reference}, which is not given", keyword=keyword, pointer=place.pointer
        )

    def _follow(self, root: Place, fragment: str, place: Place, keyword: str, reference: str) -> Place:
        at, here, pointer = root.schema, root, root.pointer
        for token in fragment.split("/")[1:]:
            token = drafts.unescape(token)
            pointer = f"{pointer}/{escape(token)}"
            if isinstance(at, dict) and token in at:
                at = at[token]
            elif isinstance(at, list) and re.fullmatch(r"0|[1-9]\d{0,8}", token) and int(token) < len(at):
                at = at[int(token)]
            else:
                raise CompileError(
                    f"{place.document}#{place.pointer}/{keyword}: {reference!r} leads nowhere (at /{escape(token)})"
                )
            if isinstance(at, dict) and id(at) in self._places:
                here = self._places[id(at)]
        return self._placed(at, here.resource, root.document, pointer)


def _inner(schema: dict[str, Any], resource: Resource) -> Iterator[tuple[str, Any]]:
    """The subschemas of a schema with the pointers that lead to them; none where ``$ref`` hides its siblings, except
    definitions, which references may lead to."""
    draft = resource.draft
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in draft.named:
                for name, inner in value.items():
                    if isinstance(inner, dict | bool):
                        yield f"{keyword}/{escape(name)}", inner
            elif keyword in draft.single:
                yield keyword, value
        elif isinstance(value, list) and keyword in draft.many:
            yield from ((f"{keyword}/{i}", inner) for i, inner in enumerate(value))
        elif isinstance(value, bool) and keyword in draft.single:
            yield keyword, value


def _bare(uri: str) -> str:
    """A URI without an empty fragment."""
    return uri[:-1] if uri.endswith("#") else uri


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return urldefrag(base)[0] + reference
    if not reference:
        return base
    return urljoin(base, reference)
