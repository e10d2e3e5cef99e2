"""Tiny cells over the synthetic vocabulary, run by real workers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.cell import Cell, Document
from harness.constraint import Constraint
from harness.runner.manager import Environment
from harness.vocabulary import Vocabulary, synthetic

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("compile", "fill", "accept", "validate")

MakeCell = Callable[..., Cell]


@pytest.fixture(scope="session", autouse=True)
def fakes_can_be_imported() -> Iterator[None]:
    """By workers, wherever they are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # it would hide what a worker forgets to flush
        yield


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return synthetic()


@pytest.fixture(scope="session")
def vocabulary_path(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "synthetic.npz"
    vocabulary.write(path)
    return path


@pytest.fixture(scope="session")
def environments() -> dict[str, Environment]:
    return {"default": Environment("default", Path(sys.executable))}


@pytest.fixture(scope="session")
def make_cell(vocabulary: Vocabulary, vocabulary_path: Path) -> MakeCell:
    """``make_cell("Hang", id=…, at="fill")``: a cell of the fake backend with these fields and options."""

    def spell(text: str) -> tuple[int, ...]:
        return tuple(vocabulary.tokens.index(bytes([b])) for b in text.encode())

    def make(fake: str, *, id: str = "", stages: tuple[str, ...] = STAGES, fields: Any = None, **options: Any) -> Cell:
        return Cell(
            id=id or fake,
            scenario="faults",
            backend=fake,
            adapter=f"tests.fake_backends:{fake}",
            environment="default",
            vocabulary=vocabulary.name,
            vocabulary_path=str(vocabulary_path),
            vocabulary_sha256=vocabulary.sha256,
            constraint_name="flat/answer",
            constraint=Constraint("choice", json.dumps(["yes, sir", "no"])),
            stages=stages,
            valid=(Document("valid/0", "yes, sir", spell("yes, sir")), Document("valid/1", "no", spell("no"))),
            invalid=(Document("invalid/0", "nope", spell("nope")),),
            options=options,
            plan={"time_cap_s": 0.02, "max_samples": 20},
            **({"time_limit_s": 30.0} | (fields or {})),
        )

    return make


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody reaps."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
