"""A small masking engine that is its own definition: the judge of whole mask rows, for the part that it covers.

A constraint under a profile denotes a set of byte strings. A token is allowed exactly if its bytes keep the prefix
viable (some completion is in the set); an end-of-sequence exactly if the prefix itself is in the set. What cannot be
decided exactly is refused with ``UnsupportedError``, never approximated: ``compile`` is the test of coverage. It has
no ambition to be fast, and is never what a library is compared with in speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import harness
from harness.backends.naive import ebnf, json_schema, regular_expression
from harness.backends.naive.expressions import words
from harness.backends.naive.masks import Masks, Tree, build
from harness.backends.naive.network import Automaton, Network, State
from harness.backends.protocol import Capabilities
from harness.bitmask import Row
from harness.constraint import Constraint
from harness.errors import UnsupportedError
from harness.profile import Profile
from harness.vocabulary import Vocabulary


class Naive:
    """The backend. It has no policy of its own: any profile may be asked for, and is followed or refused."""

    name = "naive"
    capabilities = Capabilities(
        kinds=frozenset({"json_schema", "json_object", "regex", "grammar", "choice"}),
        syntaxes=frozenset({"ebnf"}),
        rollback=True,
        fork=True,
        reset=True,
        validate=True,
        forced=True,
        notes={"kinds": "structural tags are not written; of the other kinds a subset, refused by name outside it"},
    )
    profiles: Mapping[str, Profile] = {
        "default": Profile(
            key_order="declared", duplicate_keys="any", integer_spelling="digits", literal_escapes="minimal"
        ),
    }

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}

    @property
    def version(self) -> str:
        return harness.__version__

    def load(self) -> None:
        """There is no library to import."""

    def bind(self, vocabulary: Vocabulary) -> None:
        if vocabulary.sha256 not in self._trees:
            self._trees[vocabulary.sha256] = build(vocabulary)

    def compile(self, constraint: Constraint, vocabulary: Vocabulary, profile: Profile) -> NaiveGrammar:
        """UnsupportedError for whatever is outside the subset, for an empty language, and for a profile that cannot be
        followed exactly."""
        try:
            automaton = compile_automaton(constraint, profile)
        except RecursionError as error:
            raise UnsupportedError("nested too deeply for this engine", keyword="size") from error
        self.bind(vocabulary)  # takes a second or two: not before it is known to be needed
        return NaiveGrammar(automaton, Masks(automaton, self._trees[vocabulary.sha256]), vocabulary)

    def forget(self) -> None:
        """Nothing to empty: no compiled grammar is kept."""


def compile_automaton(constraint: Constraint, profile: Profile) -> Automaton:
    """The constraint's byte language as an automaton, without any vocabulary."""
    if profile.tokens == "canonical":
        raise UnsupportedError("decides the definition only, not tokens = 'canonical'", keyword="tokens")
    network = Network()
    match constraint.kind:
        case "regex":
            body = regular_expression.full_match(constraint.text, profile.regex_dialect)
            root = network.rule("expression", body)
        case "choice":
            root = network.rule("choice", words(constraint.json()))
        case "grammar":
            if constraint.syntax != "ebnf":
                raise UnsupportedError(f"grammars in {constraint.syntax} notation", keyword="grammar")
            root = ebnf.compile_grammar(constraint.text, network)
        case "json_schema" | "json_object":
            schema = constraint.text if constraint.kind == "json_schema" else '{"type": "object"}'
            root = json_schema.compile_schema(schema, profile, network)
        case "structural_tag":
            raise UnsupportedError("structural tags", keyword="structural_tag")
        case _ as unknown:
            assert_never(unknown)
    return Automaton(network, root)


class NaiveGrammar:
    """A compiled constraint. Its matchers share the rows of the states they meet."""

    def __init__(self, automaton: Automaton, masks: Masks, vocabulary: Vocabulary) -> None:
        self.automaton = automaton
        self.masks = masks
        self.vocabulary = vocabulary
        self.eos = frozenset(vocabulary.eos_ids)

    def native_matcher(self) -> NaiveMatcher:
        return NaiveMatcher(self, [self.automaton.start])


class NaiveMatcher:
    """The states after each accepted token, the start's first. States are values, so nothing is ever undone."""

    def __init__(self, grammar: NaiveGrammar, states: list[State]) -> None:
        self._grammar = grammar
        self._states = states

    def fill(self, row: Row) -> None:
        row[:] = self._grammar.masks.row(self._states[-1])

    def accept(self, token: int) -> bool:
        after = self._after(self._states[-1], token)
        if not after:
            return False
        self._states.append(after)
        return True

    def is_accepting(self) -> bool:
        return self._grammar.automaton.accepting(self._states[-1])

    def validate(self, tokens: Sequence[int]) -> int:
        state = self._states[-1]
        for count, token in enumerate(tokens):
            state = self._after(state, token)
            if not state:
                return count
            if token in self._grammar.eos:
                return count + 1
        return len(tokens)

    def rollback(self, count: int) -> None:
        del self._states[len(self._states) - count :]

    def forced(self) -> bytes:
        automaton, state = self._grammar.automaton, self._states[-1]
        out = bytearray()
        while not automaton.accepting(state) and len(viable := automaton.viable(state)) == 1:
            out += bytes(viable)
            state = automaton.step(state, out[-1])
        return bytes(out)

    def fork(self) -> NaiveMatcher:
        return NaiveMatcher(self._grammar, list(self._states))

    def reset(self) -> None:
        del self._states[1:]

    def fill_call(self, row: Row) -> Callable[[], object]:
        return lambda: self.fill(row)

    def accept_call(self) -> Callable[[int], object]:
        return self.accept

    def validate_call(self) -> Callable[[list[int]], object]:
        return self.validate

    def rollback_call(self) -> Callable[[int], object]:
        return self.rollback

    def _after(self, state: State, token: int) -> State:
        """The state after a token; empty where it is not allowed. An eos leaves the state as it is."""
        automaton = self._grammar.automaton
        if token in self._grammar.eos:
            return state if automaton.accepting(state) else frozenset()
        data = self._grammar.vocabulary.tokens[token]
        if not data:
            return frozenset()
        for byte in data:
            state = automaton.step(state, byte)
            if not state:
                break
        return state
