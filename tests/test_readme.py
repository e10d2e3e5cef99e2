"""The README does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest

from harness.runner.manager import Environment, run
from tests.making import choice_cell

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_notebook_example_plots_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from harness.results import RunStore

    mpl.use("Agg")
    with RunStore.create(tmp_path / "results" / "RUN", {"run": "RUN"}) as store:
        cells = [choice_cell(tmp_path)]
        run(cells, store, {"default": Environment("default", Path(sys.executable))})
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    from matplotlib import pyplot as plt

    axes = plt.gcf().axes
    assert axes
    assert [t.get_text() for t in axes[0].get_xticklabels()] == ["naive"]


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert links
    assert [target for target in links if not (ROOT / target).exists()] == []


def test_every_make_target_and_verb_that_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        if scenario := re.fullmatch(r"bench-(\w+)", target):  # of the pattern bench-%
            assert (ROOT / "scenarios" / f"{scenario[1]}.toml").exists(), target
            target = "bench-%"
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    from harness.cli import app

    verbs = {command.name for command in app.registered_commands}
    assert set(re.findall(r"^    masktax ([a-z]+)", README, re.MULTILINE)) <= verbs
