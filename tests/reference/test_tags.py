"""Structural tags and choices against plain code that cuts texts up in every way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.reference import automaton
from harness.reference.choice import Choice
from harness.reference.compile import compile
from harness.reference.tags import StructuralTag, Structure
from tests.reference.test_grammar import is_dead_end

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "cases" / "cases.jsonl"

# (begin, the texts that stand for JSON, end)
Plain = tuple[str, Sequence[str], str]


def tag(triggers: Sequence[str], structures: Sequence[Plain]) -> StructuralTag:
    return StructuralTag(triggers, [Structure(begin, Choice(texts), end) for begin, texts, end in structures])


def allowed(triggers: Sequence[str], structures: Sequence[Plain], text: str) -> bool:
    """By the definition: find the first trigger, try every structure that it begins, go on behind it."""
    for at in range(len(text) + 1):
        for trigger in triggers:
            if not text[:at].endswith(trigger):
                continue
            start = at - len(trigger)
            for begin, texts, end in structures:
                if begin.startswith(trigger) and text.startswith(begin, start):
                    for json_ in texts:
                        whole = begin + json_ + end
                        if text.startswith(whole, start) and allowed(triggers, structures, text[start + len(whole) :]):
                            return True
            return False
    return True


TAGS: dict[str, tuple[Sequence[str], Sequence[Plain], str]] = {
    "one": (["<a"], [("<a>", ["1", "12"], "b")], "<a>12b"),
    "a trigger is the whole begin": (["<"], [("<", ["1"], ">")], "<1>a"),
    "JSON that may go on as its end begins": (["<"], [("<", ["1", "12", "122"], "2>")], "<12>"),
    "no end": (["<"], [("<", ["1", "11", "1<"], "")], "<1"),
    "begins that share a trigger": (["<"], [("<a", ["1"], ">"), ("<ab", ["1", "2"], ">"), ("<a", ["b2"], "")],
                                   "<ab12>"),
    "triggers that overlap": (["ab", "ba"], [("ab1", ["1"], "a"), ("ba", ["2"], "b")], "ab12"),
    "a trigger that overlaps itself": (["aab"], [("aab", ["1"], "a")], "ab1"),
    "a trigger that begins another": (["<", "<a"], [("<b", ["1"], ""), ("<a", ["1"], "")], "<ab1"),
    "no JSON at all": (["<", "a"], [("<1", [], ""), ("ab", ["1"], "")], "<1ab"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_a_tag_allows_exactly_what_the_definition_says(name: str) -> None:
    triggers, structures, alphabet = TAGS[name]
    machine = tag(triggers, structures)
    states: dict[str, Any] = {"": machine.start()}
    for length in range(7 if len(set(alphabet)) < 5 else 6):
        for letters in itertools.product(sorted(set(alphabet)), repeat=length):
            text = "".join(letters)
            if text:
                before = states[text[:-1]]
                states[text] = None if before is None else machine.step(before, ord(text[-1]))
            state = states[text]
            assert (state is not None and machine.accepting(state)) == allowed(triggers, structures, text), text
    for state in set(states.values()) - {None}:
        assert not is_dead_end(machine, state, alphabet.encode())
    follow: dict[Any, Any] = {}
    for state in filter(None, states.values()):
        now = [machine.step(state, byte) for byte in alphabet.encode()]
        assert follow.setdefault(state, now) == now, "equal states have equal futures"


def test_places_in_begin_json_and_end_are_never_taken_for_each_other() -> None:
    machine = tag(["<"], [("<abc", ["123"], "xyz9")])
    states = [automaton.run(machine, b"<abc123xyz9"[:n]) for n in range(11)]
    assert len(set(states)) == 11


def test_free_text_is_whole_characters_and_may_end_inside_a_trigger() -> None:
    machine = tag(["é€"], [("é€", ["1"], "")])
    assert automaton.accepts(machine, "aé".encode())
    assert automaton.accepts(machine, "éé€1𝄞".encode())
    assert automaton.run(machine, "é€".encode()) is not None
    assert not automaton.accepts(machine, "é€".encode())
    for wrong in (b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xff", b"\xf4\x90", "é€2".encode()):
        assert automaton.run(machine, wrong) is None
    half = automaton.run(machine, b"\xc3")
    assert half is not None
    assert not machine.accepting(half)


def test_a_character_whose_every_end_is_a_dead_trigger_is_never_begun() -> None:
    triggers = [chr(c) for c in range(0xC0, 0x100)]
    machine = tag(triggers, [(t, [], "") for t in triggers])
    assert automaton.run(machine, b"\xc3") is None
    assert automaton.run(machine, b"\xc2") is not None
    machine = tag(triggers, [(t, ["1"] if t == "é" else [], "") for t in triggers])
    state = automaton.run(machine, b"\xc3")
    assert [b for b in range(256) if machine.step(state, b) is not None] == ["é".encode()[1]]


@pytest.mark.parametrize("triggers", [["abc", "b"], ["abc", "bc"], ["a", "ba", "c"]])
def test_triggers_inside_others_are_refused(triggers: list[str]) -> None:
    with pytest.raises(UnsupportedError, match="lies inside trigger") as caught:
        tag(triggers, [(t, ["1"], "") for t in triggers])
    assert caught.value.keyword == "triggers"
    assert caught.value.pointer.startswith("/triggers/")


def schema_tag(schema: Any, end: str = "</n>", **profile: Any) -> Callable[[str], bool]:
    data = {"triggers": ["<n"], "structures": [{"begin": "<n>", "schema": schema, "end": end}]}
    machine = compile(Constraint("structural_tag", json.dumps(data)), Profile(**profile))
    return lambda text: automaton.accepts(machine, text.encode())


def test_json_in_a_tag_is_json_under_the_profile() -> None:
    takes = schema_tag({"type": "integer", "maximum": 20}, whitespace="compact", outer_whitespace=False)
    assert takes("a <n>12</n> b<n>-3</n>")
    assert not takes("<n>21</n>")
    assert not takes("<n> 12</n>")
    assert schema_tag({"type": "integer"})("<n> 12 </n>")
    digits = schema_tag({"type": "integer"}, end="0", numbers="plain", integer_spelling="digits")
    assert digits("<n>10")
    assert digits("<n>100")
    assert not digits("<n>0")
    assert not digits("<n>12")


def test_regions_of_json_are_regions_of_the_tag() -> None:
    data = {"triggers": ["<"], "structures": [{"begin": "<", "schema": {"enum": ["a", "ab"]}, "end": ">"}]}
    machine: Any = compile(Constraint("structural_tag", json.dumps(data)), Profile())
    state = automaton.run(machine, b'x<"a')
    region = machine.region(state)
    if region is None:
        pytest.skip("the automaton of the schema offers no region here")
    closed = region.machine.step(region.state, ord('"'))
    by_region = region.resume(closed)
    assert by_region == machine.step(state, ord('"'))


def test_an_unsupported_schema_is_named_with_its_place() -> None:
    data = {"triggers": ["<"], "structures": [{"begin": "<", "schema": {"pattern": "(a)\\1"}, "end": ">"}]}
    with pytest.raises(UnsupportedError) as caught:
        compile(Constraint("structural_tag", json.dumps(data)), Profile())
    assert caught.value.pointer.startswith("/structures/0/schema")


# --- choices -----------------------------------------------------------------------------------------------------


def test_a_choice_is_exactly_its_texts() -> None:
    texts = ["", "a", "ab", "é", "𝄞", "a\nb", 'say "x"', "\0"]
    machine = Choice(texts)
    for text in [*texts, "b", "aba", "a\n", "è", "\0\0"]:
        assert automaton.accepts(machine, text.encode()) == (text in texts)
    assert sorted(machine.viable_bytes(0)) == [b for b in range(256) if machine.step(0, b) is not None]


def test_a_choice_of_nothing_is_empty_and_a_deep_one_is_no_trouble() -> None:
    assert Choice([]).start() is None
    machine = Choice("a" * n for n in range(1, 3000))
    assert automaton.accepts(machine, b"a" * 2999)
    assert not automaton.accepts(machine, b"a" * 3000)


# --- the built-in constraints and the shared cases ---------------------------------------------------------------


def spelled(document: Any) -> str:
    if isinstance(document, str):
        return document
    return "".join(
        part if isinstance(part, str)
        else part["begin"] + json.dumps(part["value"], ensure_ascii=False) + part["end"]
        for part in document
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["choice", "structural_tag"])
def test_built_in_constraints(kind: str) -> None:
    files = sorted((ROOT / "schemas" / kind).glob("*.json"))
    if not files:
        pytest.skip(f"schemas/{kind} is absent")
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        machine = compile(Constraint(data["kind"], json.dumps(data["constraint"])), Profile())
        for document in data["valid"]:
            assert automaton.accepts(machine, spelled(document).encode()), (file.name, document)
        for wrong in data["invalid"]:
            assert not automaton.accepts(machine, spelled(wrong["instance"]).encode()), (file.name, wrong)


@pytest.mark.shared
def test_shared_cases() -> None:
    if not CASES.exists():
        pytest.skip("../shared/cases/cases.jsonl is absent")
    found = 0
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["constraint_type"] not in ("choice", "structural_tag"):
            continue
        machine = compile(Constraint(case["constraint_type"], json.dumps(case["constraint"])), Profile())
        assert all(automaton.accepts(machine, t.encode()) for t in case["accept"]), case["id"]
        assert not any(automaton.accepts(machine, t.encode()) for t in case["reject"]), case["id"]
        found += 1
    assert found
