"""Does the harness tax what it measures? One cell of each library, with the harness and without it, interleaved.

    python -m tests.benchmarks.bare_loop [--rounds 15] [--vocabulary deepseek] [--constraint flat/order] [LIBRARY…]

The bare side is written against each library alone: it takes nothing of the harness but the vocabulary's bytes and the
document's tokens, and times a plain loop with ``time.perf_counter_ns``. The other side runs the harness's own stages on
its own adapter. Both fill along one document's positions on later visits, and accept the same documents; rounds of the
two alternate, in random order, in one process. Printed: the medians over rounds of each round's median, and their
difference. Exit 1 where a difference exceeds 3 % or 100 ns, whichever is larger.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness import catalogue, clocks, encoders, loaders
from harness.backends import registry
from harness.catalogue import spell
from harness.cell import Cell, Document
from harness.measure import Plan
from harness.stages import Job, accept, fill
from harness.vocabulary import Vocabulary

LIBRARIES = ("xgrammar", "llguidance", "outlines", "lm-format-enforcer")
LIMIT_SHARE, LIMIT_NS = 0.03, 100.0
# A fill shorter than this is repeated at its position by the harness; the bare loop then does the same.
PLAN = Plan(time_cap_s=0.4, min_samples=20, max_samples=20_000, relative_interval=1e-4, plateau_improvement=0.0)


@dataclass(frozen=True)
class Bare:
    """A library alone: ``matcher()`` makes a fresh one, ``fill(m, row)`` and ``accept(m)`` give its plain calls."""

    matcher: Callable[[], Any]
    fill: Callable[[Any, Any], Callable[[], object]]
    accept: Callable[[Any], Callable[[int], object]]


def bare_xgrammar(vocabulary: Vocabulary, schema: str) -> Bare:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        list(vocabulary.tokens),
        xgrammar.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=list(vocabulary.eos_ids),
    )
    grammar = xgrammar.GrammarCompiler(info, max_threads=8).compile_json_schema(schema)

    def filler(matcher: Any, row: Any) -> Callable[[], object]:
        return lambda: matcher.fill_next_token_bitmask(row)

    return Bare(
        lambda: xgrammar.GrammarMatcher(grammar, max_rollback_tokens=-1), filler, lambda matcher: matcher.accept_token
    )


def bare_llguidance(vocabulary: Vocabulary, schema: str) -> Bare:
    import llguidance

    from harness.backends.llguidance import tokenizer_json

    # The same tokens on both sides: the file as it is marks some ordinary tokens special.
    assert vocabulary.encoder is not None
    tokenizer = llguidance.LLTokenizer(tokenizer_json(vocabulary.encoder, vocabulary), n_vocab=vocabulary.size)
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)

    def filler(matcher: Any, row: Any) -> Callable[[], object]:
        address, size = row.ctypes.data, row.nbytes
        return lambda: matcher.unsafe_compute_mask_ptr(address, size)

    # Requests are copies of one matcher, as in the adapter: a matcher made anew has its lexer's states to find again.
    pristine = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    return Bare(pristine.deep_copy, filler, lambda matcher: matcher.consume_token)


def bare_outlines(vocabulary: Vocabulary, schema: str) -> Bare:
    import outlines_core
    from outlines_core.json_schema import build_regex_from_schema

    ids: dict[bytes, list[int]] = {}
    for token, piece in enumerate(vocabulary.tokens):
        if piece:
            ids.setdefault(piece, []).append(token)
    table = outlines_core.Vocabulary(vocabulary.eos_ids[0], ids)
    index = outlines_core.Index(build_regex_from_schema(schema), table)

    def filler(guide: Any, row: Any) -> Callable[[], object]:
        address, size = row.ctypes.data, row.size
        return lambda: guide.write_mask_into(address, size, 4)

    def accepter(guide: Any) -> Callable[[int], object]:
        return lambda token: guide.advance(token, False)

    return Bare(lambda: outlines_core.Guide(index), filler, accepter)


def bare_lm_format_enforcer(vocabulary: Vocabulary, schema: str) -> Bare:
    import json

    import torch
    from lmformatenforcer import JsonSchemaParser, TokenEnforcer, TokenEnforcerTokenizerData

    def text(piece: bytes) -> str:
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return ""

    texts = [text(t) for t in vocabulary.tokens]
    data = TokenEnforcerTokenizerData(
        [(i, t, False) for i, t in enumerate(texts) if t],
        lambda tokens: "".join(texts[i] for i in tokens),
        list(vocabulary.eos_ids),
        True,
        vocabulary.size,
    )
    enforcer = TokenEnforcer(data, JsonSchemaParser(json.loads(schema)))
    ask = enforcer.get_allowed_tokens

    def filler(prefix: list[int], row: Any) -> Callable[[], object]:
        write = torch.from_numpy(row).copy_
        return lambda: write(ask(prefix).allowed_tokens)

    def accepter(prefix: list[int]) -> Callable[[int], object]:
        def advance(token: int) -> None:
            assert ask(prefix).is_token_allowed(token)
            prefix.append(token)

        return advance

    return Bare(list, filler, accepter)


BARE: dict[str, Callable[[Vocabulary, str], Bare]] = {
    "xgrammar": bare_xgrammar,
    "llguidance": bare_llguidance,
    "outlines": bare_outlines,
    "lm-format-enforcer": bare_lm_format_enforcer,
}


def bare_fill(bare: Bare, words: int, tokens: Sequence[int], counts: Sequence[int], seconds: float) -> float:
    """Median fill, ns, over walks along the document for about ``seconds``, each with a row of its own, since what
    memory a row lies in shows; ``counts``: repeats at each position."""
    now = time.perf_counter_ns
    samples = []
    end = now() + seconds * 1e9
    while now() < end:
        matcher, row = bare.matcher(), np.zeros(words, dtype=np.int32)
        call, advance = bare.fill(matcher, row), bare.accept(matcher)
        for position, count in enumerate(counts):
            before = now()
            for _ in range(count):
                call()
            after = now()
            samples.append((after - before) / count)
            if position < len(tokens):
                advance(tokens[position])
    return statistics.median(samples)


def bare_accept(bare: Bare, tokens: Sequence[int], copies: int, seconds: float) -> float:
    """Median accept, ns, over whole documents."""
    now = time.perf_counter_ns
    samples = []
    end = now() + seconds * 1e9
    while now() < end:
        calls = [bare.accept(bare.matcher()) for _ in range(copies)]
        before = now()
        for advance in calls:
            for token in tokens:
                advance(token)
        samples.append((now() - before) / copies / len(tokens))
    return statistics.median(samples)


def compare(library: str, vocabulary: Vocabulary, path: str, name: str, rounds: int) -> bool:
    """Print the library's two lines; whether both are within the limit."""
    (entry,) = catalogue.select([name])
    backend = registry.create(library)
    profile = backend.profiles["default"]
    text = spell(entry, entry.valid[0], profile)
    document = Document("valid/0", text, encoders.encode(vocabulary, text))
    cell = Cell(
        f"bare/{library}", "bare", library, library, "default", vocabulary.name, path, vocabulary.sha256, entry.name,
        entry.constraint, ("fill", "accept"), (document,), (), conditions={"visit": ("later",)},
    )  # fmt: skip
    job = Job(cell, backend, vocabulary, profile, (document,), clocks.wall(), PLAN)
    bare = BARE[library](vocabulary, entry.constraint.text)

    counts: list[int] = []  # repeats of a fill within one sample, by position, and documents within one sample of
    copies = 1  # accepts: the bare loop does as the harness did last, for the clock's cost is shared by them

    def with_harness() -> tuple[float, float]:
        nonlocal counts, copies
        # fill.run also walks for first visits, which are not asked for here and not recorded.
        (later,) = fill.run(job)
        (accepts,) = accept.run(job)
        counts = [n for _, n in sorted(set(zip(later.columns["position"], later.iterations, strict=True)))]
        copies = accepts.iterations[0] // len(document.tokens)
        return statistics.median(later.samples_ns), statistics.median(accepts.samples_ns)

    def alone() -> tuple[float, float]:
        return (
            bare_fill(bare, vocabulary.words, document.tokens, counts, PLAN.time_cap_s),
            bare_accept(bare, document.tokens, copies, PLAN.time_cap_s),
        )

    with_harness()
    alone()  # both sides warm
    seen: dict[str, list[tuple[float, float]]] = {"bare": [], "harness": []}
    order = random.Random(0)
    for _ in range(rounds):
        for side in order.sample(["bare", "harness"], 2):
            seen[side].append(alone() if side == "bare" else with_harness())
    good = True
    for i, stage in enumerate(("fill", "accept")):
        without, using = (statistics.median(r[i] for r in seen[side]) for side in ("bare", "harness"))
        difference = using - without
        within = abs(difference) <= max(LIMIT_SHARE * without, LIMIT_NS)
        good = good and within
        print(
            f"{library:20} {stage:7} bare {without:12,.0f} ns   harness {using:12,.0f} ns   "
            f"difference {difference:+9,.0f} ns ({difference / without:+.1%})  {'ok' if within else 'TOO MUCH'}",
            flush=True,
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="*", choices=[*LIBRARIES, []], help="default: all four")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--vocabulary", default=loaders.DEFAULT)
    parser.add_argument("--constraint", default="flat/order")
    options = parser.parse_args()
    from harness import paths

    path, vocabulary = loaders.file_for(options.vocabulary, paths.cache())
    results = [
        compare(library, vocabulary, str(path), options.constraint, options.rounds)
        for library in options.library or LIBRARIES
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
