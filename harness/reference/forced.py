"""What to do with text that is forced: the canonical token policy, and retokenising text that was jumped over.

A state forces text where one byte only can follow, and one only after that, and the text may not end before. Any way to
cut that text into tokens is right by the definition. A tokenizer cuts it in one way, and a model was trained on that.

**The canonical policy** (profile ``tokens = "canonical"``), in words. Let F be the text that the state forces, and p
the token accepted last, if any.

1. If F is empty, the row is the definition's.
2. Encode bytes(p) + F. If the result begins with p, the rest is T; otherwise T is what F alone is encoded to.
3. Drop from the end of T the tokens that what follows F could still change: let s be the longest proper or improper
   suffix of the bytes of T's last four tokens, of at most the longest token's length, such that some token is s + x
   with x not empty and viable after F. The fewest last tokens that hold s are dropped. Without such an s, none are.
4. If any of T is left, its first token alone is allowed; end-of-sequence never is (a state that forces text is not
   accepting). Otherwise the row is the definition's.

Accepting is wider than the row: any token whose bytes are viable is accepted, as by the library.

This is what llguidance 1.9.1 does (``compute_mask`` without fast-forward tokens). Where ours differs: of several ids
with equal bytes that library offers one, the definition's rows hold all of them; it looks at its own parse of the text
where ours looks at the language, so that where its grammar is wider than the schema, its forced text is shorter; and
text is encoded by the vocabulary's own encoder, with bytes that are no UTF-8 by the longest tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import bitmask
from harness.backends.guard import Matcher
from harness.bitmask import Row
from harness.errors import MasktaxError
from harness.reference import trie
from harness.reference.masker import Cell, Masker
from harness.reference.trie import Trie
from harness.vocabulary import Vocabulary

Encode = Callable[[str], Sequence[int]]

# Tokens at the end of forced text that what follows may change (the library's own constant).
LOOK_BACK = 4


def encode_bytes(encode: Encode, tree: Trie, text: bytes) -> list[int]:
    """The tokens of ``text``: what is UTF-8 by the encoder, other bytes by the longest tokens that spell them."""
    found: list[int] = []
    while text:
        try:
            found.extend(encode(text.decode()))
            break
        except UnicodeDecodeError as error:
            found.extend(encode(text[: error.start].decode()) if error.start else ())
            found.extend(trie.greedy(tree, text[error.start : error.end]))
            text = text[error.end :]
    return found


def canonical_token(masker: Masker, encode: Encode, cell: Cell, last: int | None) -> int | None:
    """The one token that the canonical policy allows in a state after the token ``last``; None where the definition's
    row stands."""
    text = masker.forced(cell)
    if not text:
        return None
    tree, vocabulary = masker.trie, masker.vocabulary
    tokens: list[int] | None = None
    if last is not None:
        together = encode_bytes(encode, tree, vocabulary.tokens[last] + text)
        if together[:1] == [last]:
            tokens = together[1:]
    if tokens is None:
        tokens = encode_bytes(encode, tree, text)
    after = masker.read(cell, text)
    assert after is not None
    fixed = len(tokens) - _changeable(masker, tokens, after)
    return tokens[0] if fixed > 0 else None


def _changeable(masker: Masker, tokens: Sequence[int], after: Cell) -> int:
    """How many of the last tokens of forced text what follows it could change."""
    tree, vocabulary = masker.trie, masker.vocabulary
    end = vocabulary.decode(tokens[-LOOK_BACK:])[-tree.longest :]
    for start in range(len(end)):
        node = tree.find(end[start:])
        if node > 0 and _goes_on(masker, node, after):
            missing, count = len(end) - start, 0
            while missing > 0:
                count += 1
                missing -= len(vocabulary.tokens[tokens[-count]])
            return count
    return 0


def _goes_on(masker: Masker, node: int, cell: Cell) -> bool:
    """Whether some token below a node of the tree is viable from a state that stands at that node."""
    tree = masker.trie
    waiting = [(node, cell)]
    while waiting:
        at, state = waiting.pop()
        for child in range(tree.first_list[at], tree.first_list[at + 1]):
            after = masker.step(state, tree.labels[child])
            if after is not None:
                if tree.token_first_list[child] < tree.token_first_list[child + 1]:
                    return True
                waiting.append((child, after))
    return False


def canonical_row(masker: Masker, encode: Encode, cell: Cell, last: int | None) -> Row:
    """The row of a state after the token ``last`` under the canonical policy."""
    token = canonical_token(masker, encode, cell, last)
    if token is None:
        return masker.row(cell)
    row = bitmask.allocate_row(masker.vocabulary.size)
    bitmask.set_bit(row, token)
    return row


# Jumping over forced text


class TokenFusionError(MasktaxError):
    """The tokenizer would join the prompt's end and what follows it: the prompt's tokens are with the model already."""


@dataclass(frozen=True)
class Retokenised:
    """What came of it. rolled_back: tokens taken back; accepted: tokens accepted in their place."""

    rolled_back: int
    accepted: tuple[int, ...]


def recut(
    vocabulary: Vocabulary, encode: Encode, prompt: Sequence[int], history: Sequence[int], text: bytes
) -> Retokenised:
    """How tokens change where ``text`` is written after them and all of it is cut as the tokenizer cuts it.

    The prompt's tokens, those accepted (``history``), and the text are encoded together; the longest common prefix
    stays, what was accepted after it has to be rolled back, and the new tokens accepted. A special token is an edge:
    only what follows the last one is encoded anew.

    TokenFusionError where the encoder would cut the prompt otherwise, MasktaxError where the whole text has no UTF-8 or
    where the encoder's tokens do not spell it.
    """
    told = [*prompt, *history]
    edge = max((i + 1 for i, token in enumerate(told) if token in vocabulary.special_ids), default=0)
    old = told[edge:]
    whole = vocabulary.decode(old) + text
    try:
        new = list(encode(whole.decode()))
    except UnicodeDecodeError as error:
        raise MasktaxError(f"cannot retokenise: the text so far has no UTF-8 at byte {error.start}") from error
    if vocabulary.decode(new) != whole:
        raise MasktaxError("cannot retokenise: the encoder's tokens do not spell the text")
    common = 0
    while common < min(len(old), len(new)) and old[common] == new[common]:
        common += 1
    if common < len(prompt) - edge:
        raise TokenFusionError(
            f"cannot retokenise: the encoder would change token {edge + common} of the prompt, of {len(prompt)}; "
            "end the prompt where a token ends whatever follows"
        )
    return Retokenised(len(old) - common, tuple(new[common:]))


def retokenise(matcher: Matcher, vocabulary: Vocabulary, encode: Encode, prompt: Sequence[int] = ()) -> Retokenised:
    """Accept the text that is forced, cut as the tokenizer cuts the whole text, the prompt included (``recut``).

    MasktaxError, with the matcher as it was, where that cannot be done or a token is refused. Of the forced text only
    whole characters are taken.
    """
    history = matcher.history
    text = whole_characters(matcher.forced())
    if not text:
        return Retokenised(0, ())
    change = recut(vocabulary, encode, prompt, history, text)
    matcher.rollback(change.rolled_back)
    count = 0
    while count < len(change.accepted) and matcher.accept(change.accepted[count]):
        count += 1
    if count < len(change.accepted):
        matcher.rollback(count)
        restored = all(matcher.accept(token) for token in history[len(history) - change.rolled_back :])
        raise MasktaxError(
            f"cannot retokenise: token {change.accepted[count]} of the forced text is refused"
            + ("" if restored else ", and so is what was accepted before")
        )
    return change


def whole_characters(text: bytes) -> bytes:
    """``text`` without a character that is cut off at its end."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text if length <= back else text[:-back]
    return text
