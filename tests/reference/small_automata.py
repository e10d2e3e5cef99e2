"""Small automata for the masker's tests: written out here, so that nothing of the schema layer is needed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from harness.reference import regular
from harness.reference.automaton import Region
from harness.reference.numbers import Number, NumberSet
from harness.reference.regular import Node
from harness.reference.spelling import JsonString, State


@dataclass(frozen=True)
class Bytes:
    """Exactly these byte strings; a state is the text read so far."""

    texts: tuple[bytes, ...]

    def start(self) -> bytes | None:
        return b"" if self.texts else None

    def step(self, state: bytes, byte: int) -> bytes | None:
        after = state + bytes([byte])
        return after if any(text.startswith(after) for text in self.texts) else None

    def accepting(self, state: bytes) -> bool:
        return state in self.texts


class Listing:
    """``["…","…"]``: one string for each language, in order, white space before any of ``[],"`` where ``spaces``.

    A state is (place, string's state or None): place 2i is before string i or its comma, 2i + 1 inside it or after it.
    """

    def __init__(self, nodes: list[Node], *, spaces: bool = False, **policy: Any) -> None:
        self._strings = [JsonString(node, **policy) for node in nodes]
        self._spaces = spaces

    def start(self) -> Hashable | None:
        return None if any(s.start() is None for s in self._strings) else ("before", 0)

    def accepting(self, state: Any) -> bool:
        return bool(state == ("end",))

    def step(self, state: Any, byte: int) -> Hashable | None:
        if state[0] == "in":
            _, index, inner = state
            after = self._strings[index].step(inner, byte)
            return None if after is None else self._wrapped(index, after)
        if self._spaces and byte == 0x20 and state != ("end",):
            return state  # type: ignore[no-any-return]
        match state:
            case ("before", 0) if byte == ord("["):
                return ("item", 0)
            case ("item", index) if byte == ord('"'):
                inner = self._strings[index].start()
                assert inner is not None
                opened = self._strings[index].step(inner, byte)
                assert opened is not None
                return ("in", index, opened)
            case ("after", index) if index + 1 < len(self._strings):
                return ("item", index + 1) if byte == ord(",") else None
            case ("after", _) if byte == ord("]"):
                return ("end",)
        return None

    def _wrapped(self, index: int, inner: State) -> Hashable:
        return ("after", index) if inner.at == "closed" else ("in", index, inner)


class ListingWithRegions(Listing):
    def region(self, state: Any) -> Region[Any] | None:
        if state[0] != "in":
            return None
        _, index, inner = state
        return Region(self._strings[index], inner, True, lambda _: ("after", index))


class Telling(Listing):
    """The same, where what follows string 0 depends on its text: string 1 is that text again, and no other. A state
    inside string 0 holds the bytes read of it."""

    def start(self) -> Hashable | None:
        return ("before", 0) if super().start() is not None else None

    def step(self, state: Any, byte: int) -> Hashable | None:
        if state[0] == "telling":
            _, inner, text = state
            inside = self._strings[0].step(inner, byte)
            return None if inside is None else self._told(inside, text + bytes([byte]))
        if state[0] == "repeating":
            _, text, read = state
            read += bytes([byte])
            if not text.startswith(read):
                return None
            return ("after", 1) if read == text else ("repeating", text, read)
        if state[0] == "told":
            return ("repeating", state[1], b"") if byte == ord(",") else None
        after = super().step(state, byte)
        if after is not None and after[0] == "in":  # type: ignore[index]
            return ("telling", after[2], b'"')  # type: ignore[index]
        return after

    def _told(self, inner: State, text: bytes) -> Hashable:
        return ("told", text) if inner.at == "closed" else ("telling", inner, text)

    def region(self, state: Any) -> Region[Any] | None:
        if state[0] != "telling":
            return None
        _, inner, before = state
        return Region(self._strings[0], inner, False, lambda text: ("told", before + text))


class Amounts:
    """``[n,n,…]``: numbers of some sets, each of which may also end the list. A state is (place, number's state)."""

    def __init__(self, sets: tuple[NumberSet, ...], *, regions: bool) -> None:
        self._number = Number(sets)
        if regions:
            self.region = self._region

    def start(self) -> Hashable | None:
        return ("open", None)

    def accepting(self, state: Any) -> bool:
        return bool(state[0] == "end")

    def step(self, state: Any, byte: int) -> Hashable | None:
        place, number = state
        if place == "open":
            return ("item", None) if byte == ord("[") else None
        if place == "end":
            return None
        if place == "item":
            number = self._number.start()
        after = None if number is None else self._number.step(number, byte)
        if after is not None:
            return ("in", after)
        if place == "in" and self._number.accepting(number) and byte in b",]":
            return ("item" if byte == ord(",") else "end", None)
        return None

    def _region(self, state: Any) -> Region[Any] | None:
        if state[0] != "in":
            return None

        def resume(text: bytes) -> Any:
            at = state[1]
            for byte in text:
                at = self._number.step(at, byte)
                assert at is not None
            return ("in", at)

        return Region(self._number, state[1], False, resume, open=True, follow=b",]")


class ListingWithFollow(ListingWithRegions):
    def region(self, state: Any) -> Region[Any] | None:
        region = super().region(state)
        return None if region is None else replace(region, constant=state[1] == 0, follow=b" ,]")


class TellingWithFollow(Telling):
    def region(self, state: Any) -> Region[Any] | None:
        region = super().region(state)
        return None if region is None else replace(region, follow=b", ")


class ListingWithBytes(ListingWithRegions):
    def viable_bytes(self, state: Any) -> list[int]:
        return [byte for byte in range(255, -1, -1) if self.step(state, byte) is not None]


def words(*texts: str) -> Node:
    return regular.texts(texts)
