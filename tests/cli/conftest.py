"""A small world for the command: one fake backend, the synthetic vocabulary, one choice, folders of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import paths
from harness.cli import main
from harness.runner import manager
from harness.runner.manager import Environment

ROOT = Path(__file__).resolve().parents[2]

SCENARIO = """
format = 1
name = "{name}"
title = "A small one"
[analysis]
question = "Does the command work?"
reading = "It says so."
[workload]
stages = ["compile", "accept"]
time_limit_s = 30
[measure]
time_cap_s = 0.02
max_samples = 20
[axes]
backend = [{backends}]
vocabulary = ["synthetic"]
constraint = ["choice/answer"]
cache = ["new_schema"]
{more}
"""

ANSWER = {
    "about": "a",
    "kind": "choice",
    "constraint": ["yes, sir", "no"],
    "valid": ["yes, sir", "no", "no"],
    "invalid": [{"instance": text, "why": "no choice"} for text in ("nope", "maybe", "yes")],
}


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class World:
    root: Path
    call: Callable[..., Said]

    def scenario(self, *fakes: str, name: str = "small", more: str = "") -> str:
        """Write a built-in scenario whose backends are these of ``tests.fake_backends`` (``Flips(3)`` with a token)."""
        variants = []
        for fake in fakes:
            kind, _, token = fake.rstrip(")").partition("(")
            options = f"options = {{token = {token}}}" if token else ""
            variants.append(f'[variants.{kind.lower()}]\nadapter = "tests.fake_backends:{kind}"\n{options}\n')
        backends = ", ".join(f'"{fake.partition("(")[0].lower()}"' for fake in fakes)
        text = SCENARIO.format(name=name, backends=backends, more="\n".join([*variants, more]))
        (self.root / "scenarios" / f"{name}.toml").write_text(text, encoding="utf-8")
        return name

    @property
    def results(self) -> Path:
        return self.root / "results"

    def run_folder(self) -> Path:
        (folder,) = self.results.iterdir()
        return folder


@pytest.fixture(scope="session")
def probed() -> Callable[..., dict[str, Any]]:
    """The real answer of an interpreter, asked for once: reading what is installed takes a second."""
    real, answers = manager.probe, {}

    def probe(environment: Environment, backends: Sequence[str] = ()) -> dict[str, Any]:
        key = (environment.python, tuple(backends))
        if key not in answers:
            answers[key] = real(environment, backends)
        return answers[key]

    return probe


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], probed: Any) -> World:
    monkeypatch.setattr(manager, "probe", probed)
    for name in ("scenarios", "results", "reports", "cache"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(paths, name, lambda folder=tmp_path / name: folder)
    (tmp_path / "schemas" / "choice").mkdir(parents=True)
    (tmp_path / "schemas" / "choice" / "answer.json").write_text(json.dumps(ANSWER), encoding="utf-8")
    monkeypatch.setattr(paths, "schemas", lambda: tmp_path / "schemas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Said(status, out, err)

    return World(tmp_path, call)
