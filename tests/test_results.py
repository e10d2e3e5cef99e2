"""The record format: what is written survives a kill, what is read is what was written, and old runs stay readable."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import harness
from harness.cell import Measurement, Outcome, Record
from harness.errors import MasktaxError
from harness.results import LINES_FILE, RUN_FILE, SAMPLES_FILE, RunStore, load
from tests.report.synthetic import BACKENDS, Case, cell, never_ok, records, write_run

GOLDEN = Path(__file__).parent / "golden"
SMALL = {"constraints": ["flat/user"], "processes": 1, "positions": 5}


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    return list(records(**SMALL))


@pytest.fixture
def path(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    return write_run(tmp_path / "small", lines)


def one(stage: str = "fill", process: int = 0, **fields: Any) -> dict[str, Any]:
    of = cell(Case("xgrammar", "flat/user", "deepseek", process))
    return Record(stage, Outcome("ok")).to_json(of) | fields


def measurement(times: tuple[float, ...], conditions: dict[str, Any], **columns: tuple[Any, ...]) -> Measurement:
    n = len(times)
    return Measurement(conditions, times, (1,) * n, columns, ("",) * n, "max_samples")


def written(path: Path, *measurements: Measurement, stage: str = "fill") -> Path:
    of = cell(Case("xgrammar", "flat/user", "deepseek", 0))
    return write_run(path, [Record(stage, Outcome("ok"), measurements).to_json(of)])


# The store.


def test_a_new_run_says_what_made_it(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "new", {"command": ["masktax", "run", "quick"]}) as store:
        run = json.loads((store.path / RUN_FILE).read_text())
    assert run == store.run
    assert (run["format"], run["masktax"], run["run"]) == (1, harness.__version__, "new")
    assert (run["command"], run["finished_at"], run["interrupted"]) == (["masktax", "run", "quick"], None, False)


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_was(path: Path) -> None:
    before = {f.name: f.read_bytes() for f in path.iterdir()}
    with pytest.raises(MasktaxError, match=r"already holds a run: go on with it by --resume, or name another"):
        RunStore.create(path, {})
    assert {f.name: f.read_bytes() for f in path.iterdir()} == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MasktaxError, match="is a file"):
        RunStore.create(tmp_path / "file", {})


def test_every_record_is_there_without_the_store_having_been_closed(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {})
    store.append(one("compile"))
    store.append(one("fill"))
    assert (tmp_path / "run" / LINES_FILE).read_bytes().count(b"\n") == 2
    assert [r["stage"] for r in store.records()] == ["compile", "fill"]
    store.close()


def test_a_killed_writer_loses_nothing_it_had_appended(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    script = (
        f"import sys, time; sys.path.insert(0, {str(tests.parent)!r})\n"
        "from tests.report.synthetic import records, write_run\n"
        "from harness.results import RunStore\n"
        f"store = RunStore.create({str(tmp_path / 'run')!r}, {{}})\n"
        "for line in records(constraints=['flat/user'], processes=1, positions=5): store.append(line)\n"
        "print('appended', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tests.parent)
    assert process.stdout is not None
    assert process.stdout.readline() == b"appended\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with RunStore.open(tmp_path / "run") as store:  # the lock went with the process
        assert store.recorded() == {(r["cell"], r["stage"]) for r in records(**SMALL)}


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_torn_last_line_is_cut_off_and_can_be_written_again(
    path: Path, lines: list[dict[str, Any]], kept: int
) -> None:
    file = path / LINES_FILE
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:-1]) + whole[-1][:kept])
    with RunStore.open(path) as store:
        assert len(store.recorded()) == len(lines) - 1
        store.append(lines[-1])
    assert file.read_bytes() == b"".join(whole)


def test_a_last_line_that_lacks_only_its_newline_counts_as_torn(path: Path, lines: list[dict[str, Any]]) -> None:
    file = path / LINES_FILE
    file.write_bytes(file.read_bytes()[:-1])
    assert len(load(path).cells) == len(lines) - 1
    with RunStore.open(path) as store:
        assert len(store.recorded()) == len(lines) - 1


@pytest.mark.parametrize("read", [RunStore.open, load])
def test_a_corrupt_line_in_the_middle_is_named_by_file_and_number(path: Path, read: Any) -> None:
    file = path / LINES_FILE
    whole = file.read_bytes().splitlines(keepends=True)
    whole[2] = whole[2][:50] + b"\n"
    file.write_bytes(b"".join(whole))
    with pytest.raises(MasktaxError, match=rf"{LINES_FILE}:3: not a JSON line"):
        read(path)


def test_a_cell_and_stage_is_recorded_once(path: Path, lines: list[dict[str, Any]]) -> None:
    with RunStore.open(path) as store, pytest.raises(MasktaxError, match="recorded already"):
        store.append(lines[0])
    with (path / LINES_FILE).open("ab") as file:
        file.write((json.dumps(lines[0]) + "\n").encode())
    with pytest.raises(MasktaxError, match=rf"{LINES_FILE}:{len(lines) + 1}: .*recorded twice"):
        load(path)


def test_two_writers_of_one_run_are_refused(tmp_path: Path) -> None:
    with (
        RunStore.create(tmp_path / "run", {}),
        pytest.raises(MasktaxError, match="is being written by another masktax"),
    ):
        RunStore.open(tmp_path / "run")
    RunStore.open(tmp_path / "run").close()


def test_an_update_keeps_what_it_does_not_name_and_never_the_format(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", {"seed": 7}) as store:
        store.update(interrupted=True, format=9)
        run = json.loads((store.path / RUN_FILE).read_text())
    assert (run["seed"], run["interrupted"], run["format"]) == (7, True, 1)
    assert [f.name for f in (tmp_path / "run").iterdir() if "tmp" in f.name] == []


def test_an_update_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", {"seed": 7}) as store:
        before = (store.path / RUN_FILE).read_bytes()
        with pytest.raises(ValueError, match="not JSON compliant"):
            store.update(seed=math.nan)
        assert (store.path / RUN_FILE).read_bytes() == before


def test_a_number_that_json_has_not_is_refused_and_leaves_no_half_line(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", {}) as store:
        with pytest.raises(MasktaxError, match="cannot be written"):
            store.append(one(facts={"x": math.inf}))
        store.append(one())
        assert len(store.records()) == 1


def test_any_text_of_a_library_survives(tmp_path: Path) -> None:
    reason = "bad \ud800 surrogate, a\nnewline, \u2028 and \x00 nul"
    with RunStore.create(tmp_path / "run", {}) as store:
        store.append(one(reason=reason))
    assert load(tmp_path / "run").cells["reason"][0] == reason


@pytest.mark.parametrize("name", ["scenario", "cell", "backend", "stage", "outcome"])
def test_a_record_without_a_required_field_is_refused(tmp_path: Path, name: str) -> None:
    record = one()
    del record[name]
    with RunStore.create(tmp_path / "run", {}) as store, pytest.raises(MasktaxError, match=f"without '{name}'"):
        store.append(record)


def test_an_unknown_outcome_is_refused(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", {}) as store, pytest.raises(MasktaxError, match="none of ok, unsupported"):
        store.append(one(outcome="fine"))


# Reading.


def test_reading_writes_nothing(path: Path) -> None:
    (path / SAMPLES_FILE).unlink()
    before = {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in path.iterdir()}
    assert len(load(path).samples)
    assert {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in path.iterdir()} == before


def test_samples_are_the_same_from_the_table_and_from_the_lines(path: Path) -> None:
    from_table = load(path).samples
    (path / SAMPLES_FILE).unlink()
    pd.testing.assert_frame_equal(load(path).samples, from_table)


def test_a_table_older_than_the_lines_is_not_used(path: Path) -> None:
    before = len(load(path).samples)
    of = cell(Case("naive", "flat/user", "deepseek", 0))
    with RunStore.open(path) as store:
        store.append(Record("fill", Outcome("ok"), (measurement((1.0, 2.0), {"visit": "later"}),)).to_json(of))
        assert len(load(path).samples) == before + 2
        store.finish()
    assert len(load(path).samples) == before + 2


def test_a_table_that_cannot_be_read_is_an_error_that_names_the_remedy(path: Path) -> None:
    (path / SAMPLES_FILE).write_bytes(b"PAR1 nonsense")
    run = load(path)
    assert len(run.cells)
    with pytest.raises(MasktaxError, match="delete it, it is rebuilt"):
        _ = run.samples


def test_a_run_in_progress_is_read_as_far_as_it_got(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    with RunStore.create(tmp_path / "run", {}) as store:
        for line in lines[:3]:
            store.append(line)
            run = load(store.path)
            assert run.run["finished_at"] is None
        assert len(run.cells) == 3
        assert set(run.samples["stage"]) == {"compile", "first_mask", "fill"}


def test_a_run_without_records_has_the_same_columns_as_any_other(tmp_path: Path, path: Path) -> None:
    empty, full = load(write_run(tmp_path / "empty", [])), load(path)
    for name in ("cells", "measurements", "samples"):
        of_empty, of_full = getattr(empty, name), getattr(full, name)
        assert len(of_empty) == 0
        assert [c for c in of_full if not c.startswith("fact_")] == list(of_empty), name


def test_untimed_records_have_no_samples(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "run", list(records(**SMALL, timed=False)), timed=False))
    assert len(run.samples) == 0
    assert (run.cells["samples"] == 0).all()
    assert run.cells["median_ns"].isna().all()


def test_missing_labels_are_na_and_new_ones_become_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path / "run",
        measurement((1.0, 2.0), {"cache": "warm", "device": "cuda:0"}, position=(3, 4)),
        measurement((3.0,), {}),
        stage="copy",
    )
    samples = load(path).samples
    assert samples["position"].tolist()[:2] == [3, 4]
    assert samples["position"].isna().tolist() == [False, False, True]
    assert samples["visit"].isna().all()
    assert samples["device"].astype(object).tolist()[:2] == ["cuda:0", "cuda:0"]
    assert samples["sample"].tolist() == [0, 1, 0]
    assert samples["time_ns"].tolist() == [1.0, 2.0, 3.0]
    assert str(samples["rollback_tokens"].dtype) == "Int64"


def test_what_must_move_stands_beside_the_times_of_a_measurement(tmp_path: Path) -> None:
    bounded = measurement((7.0, 9.0), {"kernel": "numpy"}, bytes_moved=(100, 100), bound_ns=(2.5, 2.5))
    run = load(written(tmp_path / "run", bounded, measurement((1.0,), {"kernel": "torch"}), stage="apply"))
    frame = run.measurements.set_index("kernel")
    assert (frame.bytes_moved["numpy"], frame.bound_ns["numpy"]) == (100, 2.5)
    assert frame.median_ns["numpy"] / frame.bound_ns["numpy"] == 3.2
    assert pd.isna(frame.bound_ns["torch"])
    assert list(run.samples.bound_ns.dropna()) == [2.5, 2.5]


def test_every_raw_sample_is_one_row_with_its_cell(path: Path, lines: list[dict[str, Any]]) -> None:
    samples = load(path).samples
    assert len(samples) == sum(len(m["samples_ns"]) for line in lines for m in line["measurements"])
    of = lines[2]
    rows = samples[(samples["cell"] == of["cell"]) & (samples["stage"] == of["stage"])]
    assert rows["time_ns"].tolist() == [t for m in of["measurements"] for t in m["samples_ns"]]
    assert rows["visit"].astype(object).tolist() == ["first"] * 5 + ["later"] * 5
    assert set(rows["backend"]) == {of["backend"]}


def test_the_notebook_example_works(path: Path) -> None:
    samples = harness.load(path).samples
    medians = samples[samples["stage"] == "fill"].groupby("backend", observed=True)["time_ns"].median()
    assert set(medians.index) == set(BACKENDS)


@pytest.mark.parametrize(
    ("stage", "conditions", "expected"),
    [
        ("compile", [{"cache": "process_cold"}, {"cache": "new_schema"}], "cache=new_schema"),
        ("fill", [{"visit": "first"}, {"visit": "later"}], "visit=later"),
        ("fill", [{"visit": "first"}], "visit=first"),
        ("rollback", [{"rollback_tokens": 16}, {"rollback_tokens": 4}], "rollback_tokens=4"),
        ("novel", [{"kind": "b"}, {"kind": "a"}], "kind=b"),
        ("accept", [{}], ""),
    ],
)
def test_a_cell_s_statistics_are_of_conditions_that_it_names(
    tmp_path: Path, stage: str, conditions: list[dict[str, Any]], expected: str
) -> None:
    made = [measurement((10.0 * (n + 1),), c) for n, c in enumerate(conditions)]
    row = load(written(tmp_path / "run", *made, stage=stage)).cells.iloc[0]
    assert row["conditions"] == expected
    assert row["median_ns"] == 10.0 * (
        1 + [", ".join(f"{k}={v}" for k, v in c.items()) for c in conditions].index(expected)
    )


def test_several_runs_are_read_as_one(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    paths = [write_run(tmp_path / name, lines[:n], run=name) for name, n in (("one", 2), ("two", 3))]
    run = load(paths)
    assert run.cells["run"].tolist() == ["one"] * 2 + ["two"] * 3
    assert set(run.samples["run"]) == {"one", "two"}
    assert [r["run"] for r in run.runs] == ["one", "two"]
    pd.testing.assert_frame_equal(load(paths[:1]).samples, load(paths[0]).samples)


def test_two_runs_of_one_name_are_refused(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    paths = [write_run(tmp_path / name / "same", lines[:1]) for name in ("a", "b")]
    with pytest.raises(MasktaxError, match="two of the runs are named 'same'"):
        load(paths)
    with pytest.raises(MasktaxError, match="no run named"):
        load([])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 2}', r"is of format 2; this masktax reads up to 1: upgrade"),
        ('{"format": true}', "has no format number"),
        ('{"name": "package.json of something else"}', "has no format number"),
        ("[]", "has no format number"),
        ('{"format": 1', "cannot be read"),
    ],
)
def test_what_is_no_run_of_a_known_format_is_one_clear_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / RUN_FILE).write_text(content)
    with pytest.raises(MasktaxError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_path_without_a_run_is_one_clear_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MasktaxError, match=r"is not a run: it has no run\.json"):
        load(tmp_path / name)


def test_a_line_of_a_newer_format_is_refused(path: Path) -> None:
    with (path / LINES_FILE).open("ab") as file:
        file.write((json.dumps(one("novel", process=9, format=2)) + "\n").encode())
    with pytest.raises(MasktaxError, match="of format 2; this masktax reads up to 1"):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measurements": "fast"}, "'measurements' is no list"),
        ({"measurements": [7]}, "measurement 0: not an object"),
        ({"samples_ns": [None, 1]}, "measurement 0: 'samples_ns' is no list of numbers"),
        ({"iterations": []}, "measurement 0: 'iterations' is no list of one value for each"),
        ({"columns": {"position": []}}, "measurement 0: 'position' is no list of one value for each"),
        ({"conditions": None}, "measurement 0: 'conditions' is no object"),
        ({"facts": [1]}, "'facts' is no object"),
    ],
)
def test_a_line_of_another_shape_is_named_by_file_and_number(
    path: Path, lines: list[dict[str, Any]], change: dict[str, Any], message: str
) -> None:
    number, line = next((n, li) for n, li in enumerate(lines, 1) if li.get("measurements"))
    if change.keys() & {"measurements", "facts"}:
        line |= change
    else:
        line["measurements"][0] |= change
    (path / "cells.jsonl").write_text("".join(json.dumps(li) + "\n" for li in lines), encoding="utf-8")
    with pytest.raises(MasktaxError, match=f"cells.jsonl:{number}: {message}"):
        harness.load(path)


def test_a_run_whose_lines_are_gone_is_not_read_from_the_table(path: Path) -> None:
    assert (path / "samples.parquet").exists()
    (path / "cells.jsonl").unlink()
    with pytest.raises(MasktaxError, match=r"lost its cells.jsonl"):
        harness.load(path)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, harness, harness.results, harness.report\n"
        "heavy = {'pandas', 'pyarrow', 'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


# Old formats.


@pytest.mark.parametrize("with_table", [True, False])
def test_a_run_of_format_1_stays_readable(tmp_path: Path, with_table: bool) -> None:
    shutil.copytree(GOLDEN / "format-1", tmp_path / "golden")
    if not with_table:
        (tmp_path / "golden" / SAMPLES_FILE).unlink()
    run = load(tmp_path / "golden")
    assert run.run["run"] == "golden-1"
    assert run.run["interrupted"] is True
    assert run.run["vocabularies"]["deepseek"]["size"] == 129_280

    cells = run.cells.set_index(["backend", "stage"])
    assert cells["outcome"].to_dict() == {
        ("xgrammar", "compile"): "ok",
        ("xgrammar", "fill"): "ok",
        ("xgrammar", "rollback"): "ok",
        ("llguidance", "compile"): "wrong",
        ("llguidance", "fill"): "wrong",
        ("llguidance", "rollback"): "wrong",
        ("outlines", "compile"): "timeout",
        ("outlines", "fill"): "timeout",
        ("outlines", "rollback"): "timeout",
        ("lm-format-enforcer", "rollback"): "unsupported",
    }
    fill = cells.loc[("xgrammar", "fill")]
    assert (fill["conditions"], fill["samples"], fill["outliers"]) == ("visit=later", 5, 1)
    assert (fill["iqr_low_ns"], fill["median_ns"], fill["iqr_high_ns"]) == (2_000.0, 3_000.0, 4_000.0)
    assert fill["max_ns"] == 90_000.0
    assert math.isnan(fill["p90_ns"])
    assert (fill["clock"], fill["clock_resolution_ns"], fill["clock_overhead_ns"]) == ("fake", 1.0, 40.0)
    assert cells.loc[("xgrammar", "compile")]["median_ns"] == 2e6
    assert cells.loc[("xgrammar", "rollback")]["median_ns"] == 200.0
    wrong = cells.loc[("llguidance", "fill")]
    assert (wrong["difference_step"], wrong["difference_token"], wrong["difference_count"]) == (17, 4071, 3)
    assert (wrong["difference_direction"], wrong["difference_token_bytes"]) == ("too loose", '"<b>\\u00ff')
    assert cells["not_reached"].sum() == 2
    assert cells["as_expected"].sum() == 7
    assert cells.loc[("xgrammar", "compile")]["fact_rows_judged"] == 24
    assert json.loads(cells.loc[("outlines", "compile")]["fact_stderr"]) == ["still compiling"]

    samples = run.samples
    assert len(samples) == 4 + 7 + 6 + 3
    later = samples[(samples["backend"] == "xgrammar") & (samples["visit"] == "later")]
    assert later["time_ns"].tolist() == [1_000.0, 2_000.0, 3_000.0, 4_000.0, 90_000.0]
    assert later["position"].tolist() == [0, 1, 0, 1, 1]
    assert later["iterations"].tolist() == [20] * 5
    assert later["outlier"].astype(object).tolist() == ["", "", "", "", "severe"]
    assert set(later["stop_reason"]) == {"time_cap"}
    assert set(samples["rollback_tokens"].dropna()) == {1, 4}


def test_every_format_up_to_the_present_one_has_a_golden_run() -> None:
    from harness.cell import RECORD_FORMAT

    kept = [json.loads((folder / RUN_FILE).read_text())["format"] for folder in sorted(GOLDEN.glob("format-*"))]
    assert kept == list(range(1, RECORD_FORMAT + 1))


def test_outcomes_other_than_ok_have_rows_too(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "run", list(records(**SMALL, judge=never_ok))))
    assert set(run.cells["outcome"]) == {"unsupported"}
    assert run.cells["reason"].str.contains("compiles no such kind").all()


def test_refused_conditions_are_a_frame_of_their_own(tmp_path: Path) -> None:
    record = one() | {"refusals": [{"conditions": {"policy": "pool"}, "kind": "unsupported", "reason": "no pool here"}]}
    with RunStore.create(tmp_path / "run", {}) as store:
        store.append(record)
    (row,) = harness.load(tmp_path / "run").refusals.to_dict("records")
    assert (row["cell"], row["stage"], row["policy"]) == (record["cell"], record["stage"], "pool")
    assert (row["refusal"], row["refusal_reason"], row["conditions"]) == ("unsupported", "no pool here", "policy=pool")
