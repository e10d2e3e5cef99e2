"""The command as such, and its verbs that only look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import __version__, machine
from harness import report as reports
from harness.errors import MasktaxError
from tests.cli.conftest import ROOT, World

HEAVY = ("numpy", "pandas", "pyarrow", "matplotlib", "psutil", "jinja2", "harness.scenario", "harness.runner")


@pytest.mark.parametrize("verb", ["", "run", "list", "verify", "report", "doctor"])
def test_every_verb_has_help_with_an_example(world: World, verb: str) -> None:
    said = world.call(*([verb] if verb else []), "--help")
    assert said.status == 0
    assert f"masktax {verb}".strip() in said.out
    assert ("Example: masktax" if verb else "masktax run quick") in said.out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['masktax', 'run', '--help']\n"
        "from harness.cli import main\n"
        "status = main()\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "sys.exit(f'imported: {heavy}' if heavy or status else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_bare_and_version(world: World) -> None:
    assert "Usage: masktax" in world.call().out
    assert world.call("--version").out == f"{__version__}\n"


def test_an_unknown_verb_is_one_line_and_status_2(world: World) -> None:
    said = world.call("rnu")
    assert said.status == 2 and said.err.count("\n") == 1 and "No such command 'rnu'" in said.err


def test_list_shows_scenarios_with_their_questions_and_cells(world: World) -> None:
    world.scenario("Good", "Raises")
    said = world.call("list")
    assert said.status == 0 and "small" in said.out and "Does the command work?" in said.out
    (row,) = json.loads(world.call("list", "--json").out)
    assert (row["name"], row["cells"], row["stages"]) == ("small", 2, 4)


@pytest.mark.parametrize(
    ("what", "name"), [("schemas", "choice/answer"), ("vocabularies", "deepseek"), ("backends", "xgrammar")]
)
def test_list_shows_what_the_axes_may_name(world: World, what: str, name: str) -> None:
    assert name in world.call("list", what).out
    rows = json.loads(world.call("list", what, "--json").out)
    assert name in [row["name"] for row in rows]


def test_a_mistake_in_a_built_in_scenario_is_told_by_list(world: World) -> None:
    world.scenario("Good", more="[nonsense]")
    assert (
        world.call("list").err
        == ("masktax: scenarios/small.toml: nonsense: unknown key; did you mean 'environments'?\n")
        or "nonsense: unknown key" in world.call("list").err
    )


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Path], Path]]:
    """Stands in for the report's own code; what it was asked to build."""
    asked: list[tuple[list[Path], Path]] = []

    def build(runs: list[Path], out: Path) -> Path:
        asked.append((runs, out))
        return out / "index.html"

    monkeypatch.setattr(reports, "build", build)
    return asked


def test_report_takes_the_newest_run_unless_told(world: World, built: list[tuple[list[Path], Path]]) -> None:
    for name, made in (("b", "2020-01-01"), ("a", "2021-01-01")):
        (world.results / name).mkdir()
        (world.results / name / "run.json").write_text(json.dumps({"created_at": made}))
    (world.results / "broken").mkdir()
    (world.results / "broken" / "run.json").write_text("{")
    assert world.call("report").out == "reports/a/index.html\n"
    assert world.call("report", "results/a", "results/b", "-o", "out").out == "out/index.html\n"
    assert built == [
        ([world.results / "a"], world.root / "reports" / "a"),
        ([Path("results/a"), Path("results/b")], Path("out")),
    ]


def test_report_without_any_run_says_what_to_do(world: World) -> None:
    said = world.call("report")
    assert said.status == 2 and said.err == "masktax: no run in results; make one with `masktax run quick`\n"


def test_report_of_what_is_no_run_is_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(runs: list[Path], out: Path) -> Path:
        raise MasktaxError(f"{runs[0]} is not a run: it has no run.json")

    monkeypatch.setattr(reports, "build", build)
    said = world.call("report", "nowhere")
    assert said.status == 2 and said.err == "masktax: nowhere is not a run: it has no run.json\n"


def test_doctor_says_what_is_here_and_what_will_be_skipped(world: World) -> None:
    more = f'[environments.old]\npython = "./absent"\n[environments.same]\npython = "{sys.executable}"\n'
    path = world.root / "scenarios" / f"{world.scenario('Good', more=more)}.toml"
    path.write_text(path.read_text().replace("[axes]", '[axes]\nenvironment = ["default", "old", "same"]'))
    found = json.loads(world.call("doctor", "--json").out)
    assert {b["name"] for b in found["backends"]} >= {"naive", "xgrammar", "llguidance", "outlines"}
    assert found["clock"]["overhead_ns"] >= 0 and found["clock"]["resolution_ns"] > 0
    assert found["machine"]["cpu"]["cores_logical"] == machine.describe()["cpu"]["cores_logical"]
    environments = {e["name"]: e for e in found["environments"]}
    assert environments["default"]["executable"] == sys.executable and not environments["same"]["trouble"]
    (skipped,) = [s for s in found["skipped"] if s["what"] == "environment old"]
    assert "./absent: no such interpreter" in skipped["why"] and skipped["scenarios"] == ["small"]
    said = world.call("doctor")
    for word in ("environment default", "backends", "vocabularies", "overhead", "cores:", "governor", "GPU", "valgrind",
                 "what will be skipped", "environment old (asked for by small)"):  # fmt: skip
        assert word in said.out


def test_doctor_explains_what_bends_numbers() -> None:
    from harness.doctor import warnings

    cpu = {"affinity": [0, 1], "cores_logical": 2, "quota_cores": 1.5, "governor": "powersave", "boost": True}
    described = {"cpu": cpu, "system": {"hypervisor": True}}
    lines = list(warnings(described, {"load_1min": 1.5}))
    for word in ("quota of 1.5 cores on 2", "governor powersave", "boost is on", "virtual machine", "load 1.5 on 2"):
        assert any(word in line for line in lines), word
    quiet = {"affinity": [0, 1], "cores_logical": 2, "quota_cores": "unlimited", "governor": "performance"}
    calm = {"cpu": quiet | {"boost": False}, "system": {"hypervisor": False}}
    assert list(warnings(calm, {"load_1min": 0.1})) == []
