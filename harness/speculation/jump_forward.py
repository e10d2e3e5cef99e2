"""A document written with jump-forward: text that the grammar forces needs no forward pass of the model.

Where every continuation begins with the same text, it is written without asking the model. A model reads tokens, not
text, so the whole text is cut into tokens anew: the longest common prefix of old and new tokens stays, what was
accepted after it is taken back in the grammar and in the model's cache, and the new tokens are accepted. Where that
would change the prompt's last token ("token fusion") the jump is refused and the model says the next token, as SGLang
did while it had jump-forward; since the whole text is cut anew every time, a prompt that fuses once mostly refuses
every jump of its document. Nothing is ever jumped to from a state in which the document may end: ending is a choice,
and the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.backends.protocol import NativeMatcher
from harness.reference.forced import Encode, Retokenised, TokenFusionError, recut, whole_characters
from harness.vocabulary import Vocabulary


class ForcedTextError(Exception):
    """A library's forced text contradicts a document that it accepts, or what it accepts itself. One line."""


@dataclass(frozen=True)
class Jump:
    """history: the tokens before it, without the prompt's. text: what is forced. change: the tokens it took back, which
    is how many positions of the model's cache it invalidated, and those it wrote."""

    history: tuple[int, ...]
    text: bytes
    change: Retokenised


@dataclass(frozen=True)
class Written:
    """One document, written. tokens: as they stand in the end. sampled: how many of all tokens the model said, each one
    forward pass. fusions: jumps refused because the prompt's tokens would change."""

    tokens: tuple[int, ...]
    sampled: int
    jumps: tuple[Jump, ...]
    fusions: int

    @property
    def forced_bytes(self) -> int:
        return sum(len(jump.text) for jump in self.jumps)

    @property
    def forced_tokens(self) -> int:
        """Tokens gained by jumps: those written less those taken back."""
        return sum(len(jump.change.accepted) - jump.change.rolled_back for jump in self.jumps)

    @property
    def positions_invalidated(self) -> int:
        return sum(jump.change.rolled_back for jump in self.jumps)


class Writer:
    """Writes one document; the model says the tokens of which the document is made wherever it is asked.

    text: the document. tokens: its trace. prompt: tokens that are with the model already. Tokens that the model says
    where a jump ended inside one of the trace's are worked out once, so that a second ``write`` of the same document
    spends its time on the grammar and the jumps alone.
    """

    def __init__(
        self, vocabulary: Vocabulary, encode: Encode, text: bytes, tokens: Sequence[int], prompt: Sequence[int] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._encode = encode
        self._text = text
        self._prompt = prompt
        self._next: dict[int, int] = {}
        self._know(0, tokens)

    def write(self, matcher: NativeMatcher) -> Written:
        """Write it with a matcher at its start. ForcedTextError where the library contradicts itself or the text."""
        accept, rewind = matcher.accept_call(), matcher.rollback_call()
        history: list[int] = []
        jumps: list[Jump] = []
        offset = sampled = fusions = 0
        while offset < len(self._text):
            forced = self.forced(matcher, offset)
            if forced:
                try:
                    change = recut(self._vocabulary, self._encode, self._prompt, history, forced)
                except TokenFusionError:
                    fusions += 1
                else:
                    jumps.append(Jump(tuple(history), forced, change))
                    if change.rolled_back:
                        rewind(change.rolled_back)
                        del history[-change.rolled_back :]
                    for token in change.accepted:
                        if not accept(token):
                            raise ForcedTextError(f"token {token} of the forced text {forced[:40]!r} is refused")
                    history += change.accepted
                    offset += len(forced)
                    continue
            token = self._said(offset)
            if not accept(token):
                raise ForcedTextError(f"token {token} of the document is refused at byte {offset}")
            history.append(token)
            sampled += 1
            offset += len(self._vocabulary.tokens[token])
        return Written(tuple(history), sampled, tuple(jumps), fusions)

    def forced(self, matcher: NativeMatcher, offset: int) -> bytes:
        """The whole characters that are forced after ``offset`` bytes of the text; none where the document may end
        there, or inside a character."""
        if matcher.is_accepting() or self._inside_character(offset):
            return b""
        text = whole_characters(matcher.forced())
        if not self._text.startswith(text, offset):
            rest = self._text[offset : offset + len(text)]
            raise ForcedTextError(
                f"{text[:40]!r} is forced at byte {offset} of a valid document, which has {rest[:40]!r}"
            )
        return text

    def _inside_character(self, offset: int) -> bool:
        return self._text[offset] & 0xC0 == 0x80

    def _said(self, offset: int) -> int:
        """The token that the model says after ``offset`` bytes: the document's own, cut anew where a jump ended inside
        one."""
        if offset not in self._next:
            self._know(offset, self._encode(self._text[offset:].decode()))
        return self._next[offset]

    def _know(self, offset: int, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._next.setdefault(offset, token)
            offset += len(self._vocabulary.tokens[token])
