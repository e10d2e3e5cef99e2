"""Making cells over the synthetic vocabulary, for tests that run in one process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import encoders
from harness.cell import Cell, Document
from harness.constraint import Constraint
from harness.vocabulary import Vocabulary, synthetic

VOCABULARY = synthetic()
CHOICES = ("yes", "no", "name")


def document(name: str, text: str, vocabulary: Vocabulary = VOCABULARY) -> Document:
    return Document(name, text, encoders.encode(vocabulary, text))


def write_corpus(folder: Path, files: Mapping[str, Any]) -> Path:
    """A corpus: each value as the JSON file of that name, text as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def choice_cell(
    folder: Path,
    *,
    adapter: str = "naive",
    stages: Sequence[str] = ("compile", "fill"),
    valid: Sequence[str] = CHOICES,
    invalid: Sequence[str] = ("maybe", "yesno", "na"),
    **changes: Any,
) -> Cell:
    """A cell that asks for one of three words."""
    path = folder / "synthetic.vocab.npz"
    if not path.exists():
        VOCABULARY.write(path)
    fields: dict[str, Any] = {
        "id": f"test/{adapter}", "scenario": "test", "backend": adapter, "adapter": adapter, "environment": "default",
        "vocabulary": "synthetic", "vocabulary_path": str(path), "vocabulary_sha256": VOCABULARY.sha256,
        "constraint_name": "choice/words", "constraint": Constraint("choice", json.dumps(CHOICES)),
        "stages": tuple(stages),
        "valid": tuple(document(f"valid/{i}", t) for i, t in enumerate(valid)),
        "invalid": tuple(document(f"invalid/{i}", t) for i, t in enumerate(invalid)),
        "plan": {"min_samples": 6, "max_samples": 12, "time_cap_s": 0.05, "warmup_iterations": 1},
    }  # fmt: skip
    return Cell(**(fields | changes))
