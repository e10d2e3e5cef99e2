"""What the keywords of a schema mean: a place becomes an expression over the places below it.

Each keyword binds only its own type. Which keywords there are and what they mean follows the place's draft; what the
standard leaves open follows the profile. ``unevaluated`` keywords are in ``unevaluated``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from harness.errors import CompileError, UnsupportedError
from harness.profile import Profile
from harness.reference import formats, numbers, regex_syntax, regular
from harness.reference.algebra import Algebra
from harness.reference.documents import Documents, Place, Resource
from harness.reference.numbers import ALL_NUMBERS, NumberSet
from harness.reference.regular import Node
from harness.reference.terms import Expr, Strings, canonical

# What the dynamic anchors of the resources entered so far lead to: (name, place), the outermost of each name.
Scope = tuple[tuple[str, Place], ...]

_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
# Keywords that speak of members of containers, or lead elsewhere.
_NOT_LEAF = frozenset(
    {
        "properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
        "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
        "items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems",
        "unevaluatedItems", "$ref", "$dynamicRef", "$recursiveRef",
    }
)  # fmt: skip
_ASSERTING = _NOT_LEAF | frozenset(
    {
        "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "format", "contentEncoding", "contentMediaType",
        *_IN_PLACE_ONE, *_IN_PLACE_MANY,
    }
)  # fmt: skip
_LEAF_DEPTH = 12
# Lengths of strings are counted one by one.
LENGTH_BOUND = 10_000_000


class Schemas:
    """The schemas of one compilation as expressions."""

    def __init__(self, documents: Documents, profile: Profile) -> None:
        self.documents = documents
        self.profile = profile
        # draft-04: an integer is a number *written* without fraction and exponent (validators read it so, too).
        self.is_draft4 = documents.root.draft.number == 4
        self.integer_spelling = "digits" if self.is_draft4 else profile.integer_spelling
        self.algebra = Algebra(
            self.unfold,
            repeats=profile.duplicate_keys == "any",
            ordered=profile.key_order == "declared",
            apart=profile.escapes == "any" and profile.literal_escapes == "minimal",
            digits=self.integer_spelling == "digits",
            lexical=self.is_draft4,
        )
        self._patterns: dict[tuple[str, bool], Node] = {}
        self._unfolded: dict[Expr, Expr] = {}
        self._types = {
            "null": self.algebra.value(null=True),
            "boolean": self.algebra.value(true=True, false=True),
            "string": self.algebra.value(strings=Strings(regular.ANY)),
            "number": self.algebra.value(nums=(ALL_NUMBERS,)),
            "integer": self.algebra.value(nums=(NumberSet(integer=True),)),
            "array": self.algebra.value(arrays=(self.algebra.any_array,)),
            "object": self.algebra.value(objects=(self.algebra.any_object,)),
        }

    def root(self) -> Expr:
        return self.at(self.documents.root, ())

    # --- places ----------------------------------------------------------------------------------------------------

    def at(self, place: Place, scope: Scope) -> Expr:
        """The expression of a place entered under a dynamic scope."""
        for _ in range(_LEAF_DEPTH):
            schema = place.schema
            if isinstance(schema, bool):
                return self.algebra.true if schema else self.algebra.false
            scope = entered(place.resource, scope)
            present = _ASSERTING & schema.keys()
            if not present:
                return self.algebra.true
            if present != {"$ref"}:
                break
            place, scope = self.documents.resolve(place, schema["$ref"])[0], scope
        if self._is_leaf(place, _LEAF_DEPTH):
            return self.unfold_place(place, scope)
        return self.algebra.loc(place, scope)

    def _is_leaf(self, place: Place, depth: int) -> bool:
        """Whether the schema, by its looks, speaks of no members and leads nowhere."""
        schema = place.schema
        if isinstance(schema, bool):
            return True
        if depth == 0 or _NOT_LEAF & schema.keys():
            return False
        values = [*schema.get("enum", ()), schema.get("const")]
        if any(isinstance(v, dict | list) for v in values):
            return False
        inner = [(k,) for k in _IN_PLACE_ONE if isinstance(schema.get(k), dict)]
        for keyword in _IN_PLACE_MANY:
            if isinstance(schema.get(keyword), list):
                inner.extend((keyword, i) for i in range(len(schema[keyword])))  # type: ignore[misc]
        return all(self._is_leaf(self.documents.below(place, *path), depth - 1) for path in inner)

    def unfold(self, expr: Expr) -> Expr:
        found = self._unfolded.get(expr)
        return found if found is not None else self.unfold_place(*expr.args)

    def look_at_everything(self, root: Expr) -> None:
        """Unfold every place that can be reached: what is unsupported or malformed by its own says so now."""
        seen = {root}
        waiting = [root]
        while waiting:
            expr = waiting.pop()
            below: list[Expr] = []
            if expr.op == "loc":
                unfolded = self._unfolded[expr] = self.unfold_place(*expr.args)
                below.append(unfolded)
            elif expr.op == "val":
                value = expr.args[0]
                for array in value.arrays:
                    for items in (array.items, *(w for w, _, _ in array.counted)):
                        below += [*items.prefix, items.rest]
                for shape in value.objects:
                    for keys in (shape.every, *(d.wanted for d in shape.some)):
                        below += keys.expressions()
            else:
                below += expr.args
            for inner in below:
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)

    def unfold_place(self, place: Place, scope: Scope) -> Expr:
        schema = place.schema
        if isinstance(schema, bool):
            return self.algebra.true if schema else self.algebra.false
        if place.draft.number < 2019 and "$ref" in schema:
            return self.at(self.documents.resolve(place, schema["$ref"])[0], scope)
        words = self.words(place)
        if "unevaluatedProperties" in words or "unevaluatedItems" in words:
            from harness.reference.unevaluated import unfold_with_unevaluated

            return unfold_with_unevaluated(self, place, scope)
        return self.algebra.and_(*self.members(place, scope), *self.in_place(place, scope))

    def words(self, place: Place) -> dict[str, Any]:
        """The keywords that count at a place."""
        schema: dict[str, Any] = place.schema
        off, number = place.resource.off, place.draft.number
        return {k: v for k, v in schema.items() if k not in off and _SINCE.get(k, 0) <= number <= _UNTIL.get(k, 9999)}

    # --- references and combinations in place ----------------------------------------------------------------------

    def in_place(self, place: Place, scope: Scope) -> Iterator[Expr]:
        """What the references and combinators of a place ask of the same value."""
        words, a = self.words(place), self.algebra
        below = self.documents.below
        yield from (self.at(p, s) for p, s in self.references(place, scope))
        for i in range(len(words.get("allOf", ()))):
            yield self.at(below(place, "allOf", i), scope)
        if "anyOf" in words:
            yield a.or_(*(self.at(below(place, "anyOf", i), scope) for i in range(len(words["anyOf"]))))
        if "oneOf" in words:
            yield a.or_(*self.exactly_one(place, scope))
        if "not" in words:
            yield a.not_(self.at(below(place, "not"), scope))
        if "if" in words:
            condition = self.at(below(place, "if"), scope)
            if "then" in words:
                yield a.or_(a.not_(condition), self.at(below(place, "then"), scope))
            if "else" in words:
                yield a.or_(condition, self.at(below(place, "else"), scope))
        for name, inner in self.dependent_schemas(place):
            yield a.or_(self.without(name), self.at(inner, scope))

    def exactly_one(self, place: Place, scope: Scope) -> list[Expr]:
        """For each member of ``oneOf``: that it holds and no other does."""
        a = self.algebra
        members = [self.at(self.documents.below(place, "oneOf", i), scope) for i in range(len(place.schema["oneOf"]))]
        return [
            a.and_(member, *(a.not_(other) for j, other in enumerate(members) if j != i))
            for i, member in enumerate(members)
        ]

    def references(self, place: Place, scope: Scope) -> Iterator[tuple[Place, Scope]]:
        """The places that a place refers to, with the scope to enter them by."""
        schema, number = place.schema, place.draft.number
        if "$ref" in schema:
            yield self.documents.resolve(place, schema["$ref"])[0], scope
        if number >= 2020 and "$dynamicRef" in schema:
            target, name = self.documents.resolve(place, schema["$dynamicRef"], "$dynamicRef")
            if name and target.resource.dynamic.get(name) is target:
                target = dict(scope).get(name, target)
            yield target, scope
        if number == 2019 and "$recursiveRef" in schema:
            target, _ = self.documents.resolve(place, schema["$recursiveRef"], "$recursiveRef")
            if target.resource.dynamic.get("") is target:
                target = dict(scope).get("", target)
            yield target, scope

    def dependent_schemas(self, place: Place) -> Iterator[tuple[str, Place]]:
        words = self.words(place)
        for keyword in ("dependentSchemas", "dependencies"):
            for name, inner in words.get(keyword, {}).items():
                if not isinstance(inner, list):
                    yield name, self.documents.below(place, keyword, name)

    def without(self, name: str) -> Expr:
        """Everything but objects with this key."""
        a = self.algebra
        keys = a.keys({name: a.false}, a.all_keys.classes)
        return self.only(objects=a.object(keys))

    # --- the other keywords ----------------------------------------------------------------------------------------

    def only(self, **of_type: Any) -> Expr:
        """Everything, but of one type only what is given."""
        a, all_ = self.algebra, self.algebra.anything
        parts = {
            "strings": all_.strings, "nums": all_.numbers, "arrays": all_.arrays, "objects": all_.objects, **of_type
        }  # fmt: skip
        return a.val(a.value(True, True, True, **parts))

    def members(self, place: Place, scope: Scope) -> Iterator[Expr]:
        """What the keywords of a place ask that hold no schema for the same value."""
        words, a = self.words(place), self.algebra
        if "type" in words:
            types = words["type"] if isinstance(words["type"], list) else [words["type"]]
            yield a.or_(*(a.val(self._types[t]) for t in types))
        if "enum" in words:
            yield a.constants(canonical(v) for v in words["enum"])
        if "const" in words:
            yield a.constant(canonical(words["const"]))
        yield from self._of_numbers(place, words)
        yield from self._of_strings(place, words)
        yield from self._of_objects(place, words, scope)
        yield from self._of_arrays(place, words, scope)

    def _of_numbers(self, place: Place, words: dict[str, Any]) -> Iterator[Expr]:
        low, low_open, high, high_open = words.get("minimum"), False, words.get("maximum"), False
        exclusive_low, exclusive_high = words.get("exclusiveMinimum"), words.get("exclusiveMaximum")
        if place.draft.number == 4:
            low_open, high_open = exclusive_low is True, exclusive_high is True
        else:
            if exclusive_low is not None and (low is None or exclusive_low >= low):
                low, low_open = exclusive_low, True
            if exclusive_high is not None and (high is None or exclusive_high <= high):
                high, high_open = exclusive_high, True
        multiple = words.get("multipleOf")
        if low is None and high is None and multiple is None:
            return
        wanted = NumberSet(
            low=None if low is None else Fraction(low),
            low_open=low_open and low is not None,
            high=None if high is None else Fraction(high),
            high_open=high_open and high is not None,
            multiples=frozenset() if multiple is None else frozenset((Fraction(multiple),)),
        )
        yield self.only(nums=() if numbers.is_empty(wanted) else (wanted,))

    def _of_strings(self, place: Place, words: dict[str, Any]) -> Iterator[Expr]:
        parts = []
        low, high = int(words.get("minLength", 0)), words.get("maxLength")
        if low or high is not None:
            if max(low, int(high or 0)) > LENGTH_BOUND:
                raise UnsupportedError(
                    f"too complex: a length beyond {LENGTH_BOUND}",
                    keyword="maxLength" if high is not None and high > low else "minLength",
                    pointer=place.pointer,
                )
            parts.append(regular.repeat(regular.ANY_CHAR, low, None if high is None else int(high)))
        if "pattern" in words:
            search = self.profile.pattern == "search"
            parts.append(self.pattern(words["pattern"], f"{place.pointer}/pattern", search=search))
        if "format" in words and (self.profile.format == "assertion" or place.resource.asserts_formats):
            node = formats.language(words["format"], place.draft.number, place.pointer)
            if node is not None:
                parts.append(node)
        if self.profile.format == "assertion" and place.draft.number == 7:
            for keyword in ("contentEncoding", "contentMediaType"):
                if keyword in words:
                    raise UnsupportedError(f"{keyword} as an assertion", keyword=keyword, pointer=place.pointer)
        if parts:
            yield self.only(strings=Strings(regular.intersection(*parts)))

    def pattern(self, text: str, pointer: str, *, search: bool) -> Node:
        key = (text, search)
        if key not in self._patterns:
            try:
                self._patterns[key] = regex_syntax.compile(text, dialect=self.profile.regex_dialect, search=search)
            except UnsupportedError as error:
                raise UnsupportedError(error.reason, keyword="pattern", pointer=pointer) from error
            except CompileError as error:
                raise CompileError(f"{pointer}: {error}") from error
        return self._patterns[key]

    def _of_objects(self, place: Place, words: dict[str, Any], scope: Scope) -> Iterator[Expr]:
        a, below = self.algebra, self.documents.below
        if {"properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"} & (
            words.keys()
        ):
            names, classes = self._members_of_objects(place, words, scope)
            required = words.get("required", ())
            order = tuple(words.get("properties", ())) if self.profile.key_order == "declared" else ()
            shapes = a.object(
                a.keys(names, classes),
                required=frozenset(required) if isinstance(required, list) else frozenset(),
                low=int(words.get("minProperties", 0)),
                high=None if "maxProperties" not in words else int(words["maxProperties"]),
                order=order,
                literals=a.written(words.get("properties", ())),
            )
            yield self.only(objects=shapes)
        if "propertyNames" in words:
            of_keys = a.expand_apart(self.at(below(place, "propertyNames"), scope))
            if of_keys is None:
                raise UnsupportedError(
                    "propertyNames leads back to the schema that it stands in",
                    keyword="propertyNames",
                    pointer=f"{place.pointer}/propertyNames",
                )
            allowed = a.texts.join(*of_keys.strings)
            if allowed is not regular.ANY:
                parts = [(allowed, a.true), (regular.complement(allowed), a.false)]
                keys = a.keys({}, a.merged(p for p in parts if not regular.is_empty(p[0])))
                yield self.only(objects=a.object(keys, literals=frozenset(a.texts.words(of_keys.strings.words))))
        for keyword in ("dependentRequired", "dependencies"):
            for name, needed in words.get(keyword, {}).items():
                if isinstance(needed, list):
                    yield a.or_(self.without(name), self.only(objects=a.object(a.all_keys, required=frozenset(needed))))

    def _members_of_objects(
        self, place: Place, words: dict[str, Any], scope: Scope
    ) -> tuple[dict[str, Expr], tuple[tuple[Node, Expr], ...]]:
        """``properties``, ``patternProperties`` and ``additionalProperties`` as a map of keys."""
        a, below = self.algebra, self.documents.below
        properties, patterns = words.get("properties", {}), words.get("patternProperties", {})
        found = [
            (self.pattern(p, f"{place.pointer}/patternProperties", search=True),
             self.at(below(place, "patternProperties", p), scope))
            for p in patterns
        ]  # fmt: skip
        names = {}
        for name in properties:
            own = self.at(below(place, "properties", name), scope)
            names[name] = a.and_(own, *(e for node, e in found if regular.matches(node, name)))
        if "additionalProperties" in words:
            rest = self.at(below(place, "additionalProperties"), scope)
        elif "properties" in words and not self.profile.additional_properties:
            rest = a.false
        else:
            rest = a.true
        matched = regular.union(*(node for node, _ in found))
        classes: tuple[tuple[Node, Expr], ...] = ((regular.ANY, a.true),)
        for node, expr in found:
            classes = a.cross(classes, a.merged(_parts(node, expr, a.true)))
        if rest is not a.true:
            classes = a.cross(classes, a.merged(_parts(matched, a.true, rest)))
        return names, classes

    def _of_arrays(self, place: Place, words: dict[str, Any], scope: Scope) -> Iterator[Expr]:
        a, below = self.algebra, self.documents.below
        if {
            "items",
            "prefixItems",
            "additionalItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
        } & words.keys():
            keyword, rest_keyword = (
                ("prefixItems", "items") if place.draft.number >= 2020 else ("items", "additionalItems")
            )
            prefix: tuple[Expr, ...] = ()
            rest = a.true
            if isinstance(words.get(keyword), list):
                prefix = tuple(self.at(below(place, keyword, i), scope) for i in range(len(words[keyword])))
                if rest_keyword in words:
                    rest = self.at(below(place, rest_keyword), scope)
                elif not self.profile.additional_items:
                    rest = a.false
            elif "items" in words:
                rest = self.at(below(place, "items"), scope)
            counted = []
            if "contains" in words:
                wanted = a.index((), self.at(below(place, "contains"), scope))
                most = words.get("maxContains")
                counted.append((wanted, int(words.get("minContains", 1)), None if most is None else int(most)))
            shapes = a.array(
                a.index(prefix, rest),
                int(words.get("minItems", 0)),
                None if "maxItems" not in words else int(words["maxItems"]),
                counted=counted,
                unique=True if words.get("uniqueItems") is True else None,
            )
            yield self.only(arrays=shapes)


# Keywords that the drafts brought and took away.
_SINCE = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "minContains": 2019,
    "maxContains": 2019, "dependentRequired": 2019, "dependentSchemas": 2019, "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019, "prefixItems": 2020,
}  # fmt: skip
# ``dependencies`` lives on as the compatibility that later drafts allow for it.
_UNTIL = {"additionalItems": 2019}


def _parts(node: Node, inside: Expr, outside: Expr) -> list[tuple[Node, Expr]]:
    """A language and the rest of all texts, with an expression each; empty ones are left out."""
    parts = ((node, inside), (regular.complement(node), outside))
    return [(n, e) for n, e in parts if not regular.is_empty(n)]


def entered(resource: Resource, scope: Scope) -> Scope:
    """The dynamic scope after entering a resource: outer anchors of the same name stay."""
    if not resource.dynamic:
        return scope
    known = {name for name, _ in scope}
    return scope + tuple((n, p) for n, p in sorted(resource.dynamic.items()) if n not in known)
