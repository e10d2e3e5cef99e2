"""A scenario file means one thing, and a mistake in it is one line that names file, key and the nearest valid name."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import scenario as scenarios
from harness.cell import OUTCOMES
from harness.errors import MasktaxError
from harness.measure import Plan
from harness.scenario import Known, Point, Scenario, expand, load, parse_overrides

KNOWN = Known(
    constraints=("flat/person", "flat/order", "nested/order", "regex/date", "ebnf/arithmetic"),
    vocabularies=("synthetic", "deepseek", "qwen3"),
    backends=("naive", "xgrammar", "outlines"),
    profiles={"naive": ("default",), "xgrammar": ("default", "any_order"), "outlines": ("default",)},
)

BASE = """
format = 1
name = "demo"
title = "A demonstration"

[analysis]
question = "What is asked?"
reading = "How to read it."

[workload]
stages = ["compile", "fill", "accept"]

[axes]
backend = ["xgrammar", "outlines"]
vocabulary = ["deepseek"]
constraint = ["flat/*"]
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*more: str, replace: tuple[str, str] = ("", ""), name: str = "demo") -> Path:
        assert replace[0] in BASE
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join((BASE.replace(*replace, 1) if replace[0] else BASE, *more)), encoding="utf-8")
        return path

    return write


def read(path: Path) -> Scenario:
    return load(path, KNOWN)


def ids(points: list[Point]) -> list[str]:
    return [p.id for p in points]


def complaint(path: Path) -> str:
    with pytest.raises(MasktaxError) as error:
        read(path)
    message = str(error.value)
    assert "\n" not in message
    assert path.name in message
    return message


# --- expansion -----------------------------------------------------------------------------------------------------


def test_the_matrix_is_the_product_of_the_outer_axes_in_a_stable_order(write: Write) -> None:
    points = expand(read(write()))
    assert ids(points) == [
        "demo/xgrammar/deepseek/flat/person/default/p0",
        "demo/outlines/deepseek/flat/person/default/p0",
        "demo/xgrammar/deepseek/flat/order/default/p0",
        "demo/outlines/deepseek/flat/order/default/p0",
    ]
    assert points == expand(read(write()))
    assert all(p.stages == ("compile", "fill", "accept") for p in points)


def test_replicates_are_outermost_so_that_they_lie_apart_in_time(write: Write) -> None:
    points = expand(read(write("process = 2")))
    assert [p.process for p in points] == [0] * 4 + [1] * 4
    assert points[4].id == "demo/xgrammar/deepseek/flat/person/default/p1"


def test_stages_run_in_their_own_order_whatever_the_file_says(write: Write) -> None:
    path = write(replace=('["compile", "fill", "accept"]', '["accept", "compile"]'))
    assert read(path).workload.stages == ("compile", "accept")


def test_globs_that_overlap_name_each_constraint_once(write: Write) -> None:
    path = write(replace=('["flat/*"]', '["*/order", "flat/*", "flat/order"]'))
    assert [p.constraint for p in expand(read(path))][::2] == ["flat/order", "nested/order", "flat/person"]


def test_a_single_value_may_be_written_without_a_list(write: Write) -> None:
    path = write(replace=('["flat/*"]', '"flat/person"'))
    assert len(expand(read(path))) == 2


def test_inner_axes_make_conditions_not_cells_with_the_stages_defaults_spelled_out(write: Write) -> None:
    (first, *_) = points = expand(read(write('cache = ["new_schema"]')))
    assert len(points) == 4
    assert first.conditions["cache"] == ("new_schema",)
    assert set(first.conditions["visit"]) == {"first", "later"}
    assert "rollback_tokens" not in first.conditions


def test_a_shared_axis_name_narrows_only_the_stage_whose_values_it_names(write: Write) -> None:
    path = write('cache = ["new_schema"]', replace=('"fill"', '"first_mask"'))
    assert expand(read(path))[0].conditions["cache"] == ("new_schema", "cold", "warm")


def test_whole_number_axes_take_any_positive_number(write: Write) -> None:
    path = write("rollback_tokens = [1, 64]", replace=('"fill"', '"rollback"'))
    assert expand(read(path))[0].conditions["rollback_tokens"] == (1, 64)


def test_a_variant_is_a_backend_with_options_under_its_own_name(write: Write) -> None:
    path = write(
        '[variants.slow]\nadapter = "some.module:make"\noptions = {threads = 1}', replace=('"outlines"', '"slow"')
    )
    slow = expand(read(path))[1]
    assert (slow.backend, slow.adapter, slow.options) == ("slow", "some.module:make", {"threads": 1})
    assert slow.id == "demo/slow/deepseek/flat/person/default/p0"


def test_another_environment_shows_in_the_id(write: Write) -> None:
    path = write(f'environment = ["default", "old"]\n[environments.old]\npython = "{sys.executable}"')
    assert "demo/xgrammar@old/deepseek/flat/person/default/p0" in ids(expand(read(path)))


# --- includes, excludes, expects -----------------------------------------------------------------------------------

COLD = """
[[include]]
reason = "A cold compile needs fresh processes."
stages = ["compile"]
constraint = ["flat/order"]
process = 10
cache = ["process_cold"]
valid = 1
"""


def test_an_include_adds_a_block_whose_ids_name_its_stages(write: Write) -> None:
    points = expand(read(write(COLD)))
    added = points[4:]
    assert len(added) == 20
    assert added[0].id == "demo/xgrammar/deepseek/flat/order/default/p0/compile"
    assert all(p.stages == ("compile",) and p.conditions == {"cache": ("process_cold",)} for p in added)
    assert (added[0].workload.valid, points[0].workload.valid) == (1, None)


def test_blocks_that_meet_in_a_cell_make_one_cell_that_does_what_either_asks(write: Write) -> None:
    path = write(
        'cache = ["new_schema"]',
        '[[include]]\nreason = "r"\nconstraint = "flat/order"\ncache = ["same_schema"]\ntime_limit_s = 500',
    )
    by_id = {p.id: p for p in expand(read(path))}
    assert len(by_id) == 4
    both = by_id["demo/xgrammar/deepseek/flat/order/default/p0"]
    assert both.conditions["cache"] == ("new_schema", "same_schema")
    assert both.workload.time_limit_s == 500


def test_an_exclude_takes_out_cells_or_stages_or_inner_values(write: Write) -> None:
    cells = expand(read(write('[[exclude]]\nbackend = "outlines"\nconstraint = "*/order"\nreason = "r"')))
    assert len(cells) == 3
    stages = expand(read(write('[[exclude]]\nbackend = "out*"\nstages = ["compile"]\nreason = "r"')))
    assert [p.stages for p in stages[:2]] == [("compile", "fill", "accept"), ("fill", "accept")]
    assert "cache" not in stages[1].conditions
    inner = expand(read(write('[[exclude]]\nbackend = "outlines"\ncache = "respelled"\nreason = "r"')))
    assert "respelled" in inner[0].conditions["cache"] and "respelled" not in inner[1].conditions["cache"]


def test_a_stage_left_without_a_value_of_its_axis_is_not_run(write: Write) -> None:
    points = expand(
        read(write('cache = "respelled"\n[[exclude]]\nbackend = "outlines"\ncache = "respelled"\nreason = "r"'))
    )
    assert points[1].stages == ("fill", "accept")


def test_expected_outcomes_default_to_ok_and_the_last_match_wins(write: Write) -> None:
    path = write(
        '[[expect]]\nbackend = "outlines"\noutcome = "unsupported"\nreason = "first"',
        '[[expect]]\nbackend = "*"\nconstraint = "flat/order"\nstages = "fill"\noutcome = "wrong"\nreason = "second"',
    )
    person_x, person_o, order_x, order_o = expand(read(path))
    assert {e.outcome for e in person_x.expected.values()} == {"ok"}
    assert {e.outcome for e in person_o.expected.values()} == {"unsupported"}
    assert order_x.expected["fill"].outcome == "wrong" and order_x.expected["compile"].outcome == "ok"
    assert order_o.expected["fill"].reason == "second" and order_o.expected["compile"].reason == "first"


# --- overrides -----------------------------------------------------------------------------------------------------


def test_set_replaces_the_values_of_an_axis(write: Write) -> None:
    points = expand(read(write()), {"backend": ["naive"], "vocabulary": ["qwen3", "synthetic"], "process": ["2"]})
    assert len(points) == 8
    assert {p.backend for p in points} == {"naive"}
    assert points[0].id == "demo/naive/qwen3/flat/person/default/p0"


def test_set_narrows_an_include_that_names_the_axis_and_drops_it_where_nothing_is_left(write: Write) -> None:
    scenario = read(write(COLD))
    assert len(expand(scenario, {"constraint": ["flat/*"]})) == 4 + 20
    assert len(expand(scenario, {"constraint": ["flat/person"]})) == 2
    assert len(expand(scenario, {"cache": ["new_schema"]})) == 4
    assert len(expand(scenario, {"process": ["3"]})) == 12 + 6
    assert {p.vocabulary for p in expand(scenario, {"vocabulary": ["qwen3"]})} == {"qwen3"}


def test_set_never_renames_a_cell(write: Write) -> None:
    scenario = read(write(COLD))
    everything = set(ids(expand(scenario)))
    for override in ({"stages": ["compile"]}, {"cache": ["process_cold"]}, {"backend": ["outlines"]}):
        assert set(ids(expand(scenario, override))) <= everything


def test_set_stages_keeps_only_these(write: Write) -> None:
    points = expand(read(write(COLD)), {"stages": ["fill"]})
    assert len(points) == 4 and all(p.stages == ("fill",) and "cache" not in p.conditions for p in points)


def test_set_inner_whole_numbers(write: Write) -> None:
    path = write(replace=('"fill"', '"rollback"'))
    assert expand(read(path), {"rollback_tokens": ["2", "3"]})[0].conditions["rollback_tokens"] == (2, 3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"backend": ["xgramar"]}, "did you mean 'xgrammar'"),
        ({"constraint": ["falt/person"]}, "did you mean 'flat/person'"),
        ({"cache": ["new_scema"]}, "did you mean 'new_schema'"),
        ({"process": ["0"]}, "at least 1"),
        ({"process": ["2", "3"]}, "whole number"),
        ({"process": ["two"]}, "whole number"),
        ({"stages": ["rollback"]}, "not one of this scenario's"),
        ({"rollback_tokens": ["4"]}, "no stage that varies it"),
        ({"profile": ["defualt"]}, "did you mean 'default'"),
    ],
)
def test_set_is_checked_as_the_file_is(write: Write, override: dict[str, list[str]], message: str) -> None:
    with pytest.raises(MasktaxError, match=message) as error:
        expand(read(write()), override)
    assert str(error.value).startswith("--set ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backend", "write axis=value"),
        ("backend=", "write axis=value"),
        ("bakend=naive", "did you mean 'backend'"),
    ],
)
def test_an_assignment_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(MasktaxError, match=message):
        parse_overrides([text])


def test_assignments_are_split_at_commas_and_made_once() -> None:
    assert parse_overrides(["backend=a, b", "process=2"]) == {"backend": ("a", "b"), "process": ("2",)}
    with pytest.raises(MasktaxError, match="set twice"):
        parse_overrides(["backend=a", "backend=b"])


def test_nothing_left_to_run_says_why(write: Write) -> None:
    path = write('[[exclude]]\nbackend = "outlines"\nreason = "too slow"')
    with pytest.raises(MasktaxError, match=r"no cell is left to run.*too slow"):
        expand(read(path), {"backend": ["outlines"]})


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        # keys, in every kind of table
        (("title =", "titel ="), "titel: unknown key; did you mean 'title'"),
        (("question =", "qestion ="), "analysis.qestion: unknown key; did you mean 'question'"),
        (("stages =", "stage ="), "workload.stage: unknown key; did you mean 'stages'"),
        (("backend =", "backends ="), "axes.backends: unknown key; did you mean 'backend'"),
        (("[workload]", "[measure]\nmin_sample = 3\n[workload]"), "measure.min_sample: unknown key; did you mean"),
        # what must be there
        (('title = "A demonstration"', ""), "title: missing, and required"),
        (("format = 1", ""), "format: missing, and required"),
        (("format = 1", "format = 2"), "format: is 2; this version reads format 1"),
        (('reading = "How to read it."', ""), "analysis.reading: missing"),
        (('question = "What is asked?"', 'question = " "'), "analysis.question: is empty"),
        (('vocabulary = ["deepseek"]', ""), "axes.vocabulary: missing"),
        (('name = "demo"', 'name = "dome"'), "name: is 'dome', but the file is called 'demo'"),
        # values
        (('"xgrammar"', '"xgramar"'), "axes.backend: unknown backend 'xgramar'; did you mean 'xgrammar'"),
        (('"deepseek"', '"deepsek"'), "axes.vocabulary: unknown vocabulary 'deepsek'; did you mean 'deepseek'"),
        (('"flat/*"', '"flat/persn"'), "axes.constraint: no constraint matches 'flat/persn'; did you mean 'flat/pers"),
        (('"flat/*"', '"falt/*"'), "axes.constraint: no constraint matches 'falt/*'"),
        (('"fill"', '"fil"'), "workload.stages: unknown stage 'fil'; did you mean 'fill'"),
        (("constraint =", 'profile = "defalt"\nconstraint ='), "axes.profile: unknown profile 'defalt'; did you mean"),
        (("constraint =", 'environment = "old"\nconstraint ='), "axes.environment: unknown environment 'old'"),
        (("constraint =", 'cache = "cold_proces"\nconstraint ='), "axes.cache: unknown cache 'cold_proces'"),
        (("constraint =", 'rollback_tokens = 4\nconstraint ='), "axes.rollback_tokens: only 'rollback' varies it"),
        # types and ranges
        (('["xgrammar", "outlines"]', "3"), "axes.backend: must be text or a list of texts, not a whole number (3)"),
        (('["xgrammar", "outlines"]', "[]"), "axes.backend: is an empty list"),
        (('["xgrammar", "outlines"]', '["xgrammar", "xgrammar"]'), "axes.backend: names 'xgrammar' twice"),
        (("constraint =", "process = true\nconstraint ="), "axes.process: must be a whole number, not true/false"),
        (("constraint =", "process = 0\nconstraint ="), "axes.process: must be at least 1, not 0"),
        (("[axes]", "valid = 0\n[axes]"), "workload.valid: must be at least 1"),
        (("[axes]", 'time_limit_s = "60"\n[axes]'), "workload.time_limit_s: must be a number, not text (60)"),
        (("[axes]", "time_limit_s = inf\n[axes]"), "workload.time_limit_s: must be positive"),
        (("[axes]", "memory_limit_mb = 1.5\n[axes]"), "workload.memory_limit_mb: must be a whole number"),
        (("[axes]", "[measure]\nmin_samples = 1.5\n[axes]"), "measure.min_samples: must be a whole number"),
        (("[axes]", "[measure]\nmin_samples = 9\nmax_samples = 8\n[axes]"), "min_samples 9 exceeds"),
        (("[axes]", "[measure]\ntime_cap_s = 0\n[axes]"), "measure.time_cap_s must be positive"),
        (("[analysis]", "[[analysis]]"), "analysis: must be a table"),
        (("[axes]", "[axes"), "not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place_and_the_nearest_name(
    write: Write, replace: tuple[str, str], message: str
) -> None:
    assert message in complaint(write(replace=replace))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[include]]; reson = "r"', "include[0].reson: unknown key; did you mean 'reason'"),
        ('[[include]]; process = 2', "include[0].reason: missing"),
        ('[[include]]; r; backend = "xgramer"', "include[0].backend: unknown backend 'xgramer'"),
        ('[[include]]; r; stages = "compil"', "include[0].stages: unknown stage 'compil'"),
        ('[[include]]; r; constraint = "flat/order"', "include[0]: adds nothing"),
        ('[include]; r', "include: must be written [[include]]"),
        ('[[exclude]]; backend = "outlines"', "exclude[0].reason: missing"),
        ('[[exclude]]; r', "exclude[0]: names no axis and no stage"),
        ('[[exclude]]; r; backend = "outlnes"', "exclude[0]: excludes nothing: no backend 'outlnes' here; did"),
        ('[[exclude]]; r; cache = "cold"', "exclude[0]: excludes nothing: no cache 'cold' here"),
        ('[[exclude]]; r; backend = "*"', "no cell is left to run: exclude[0] (r)"),
        ('[[exclude]]; r; stages = "fill"; cache = "respelled"', "not both; write two"),
        ('[[expect]]; backend = "outlines"; outcome = "ok"', "expect[0].reason: missing"),
        ('[[expect]]; backend = "outlines"; r', "expect[0].outcome: missing"),
        ('[[expect]]; backend = "outlines"; outcome = "unsuported"; r', "did you mean 'unsupported'"),
        ('[[expect]]; backend = "outline"; outcome = "ok"; r', "no backend 'outline' here; did you mean 'outlines'"),
        ('[[expect]]; backend = "outlines"; stages = "rollback"; outcome = "ok"; r', "expect[0]: matches no cell"),
        ('[[expect]]; backend = "outlines"; cache = "warm"; outcome = "ok"; r', "expect[0].cache: unknown key"),
        ('[[expect]]; backend = "o*"; outcome = "wrong"; r; [[expect]]; backend = "*"; outcome = "ok"; r', "overruled"),
        ('[variants.fast]; adaptor = "xgrammar"', "variants.fast.adaptor: unknown key; did you mean 'adapter'"),
        ('[variants.fast]; adapter = "xgramar"', "variants.fast.adapter: unknown backend 'xgramar'; did you mean"),
        ('[variants.outlines]; adapter = "xgrammar"', "variants.outlines: is the name of a backend"),
        ('[variants."a/b"]; adapter = "xgrammar"', "a name may not hold"),
        ('[environments.old]; pyton = "x"', "environments.old.pyton: unknown key; did you mean 'python'"),
        ('[environments.default]; python = "x"', "environments.default: is the interpreter that masktax itself"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_block_or_rule_is_one_line_too(write: Write, more: str, message: str) -> None:
    text = (f"{more};").replace("; r;", '; reason = "r";').replace(";", "\n")
    assert message in complaint(write(text))


def test_a_profile_that_no_backend_beside_it_declares_is_a_mistake(write: Write) -> None:
    path = write('profile = "any_order"', replace=('["xgrammar", "outlines"]', '"outlines"'))
    assert "axes.profile: no backend here has a profile 'any_order'" in complaint(path)
    assert len(expand(read(write('profile = "any_order"')))) == 4


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    absent = tmp_path / "absent.toml"
    assert "cannot be read: No such file" in complaint(absent)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in complaint(binary)


def test_a_scenario_is_found_by_path_or_built_in_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quick.toml").touch()
    monkeypatch.setattr(scenarios.paths, "scenarios", lambda: tmp_path)
    assert scenarios.find("quick") == tmp_path / "quick.toml"
    assert scenarios.find(str(tmp_path / "quick.toml")) == tmp_path / "quick.toml"
    for wrong, message in (("quik", "did you mean 'quick'"), ("a/quick.toml", "no such"), (str(tmp_path), "a folder")):
        with pytest.raises(MasktaxError, match=message):
            scenarios.find(wrong)


def test_a_vocabulary_may_be_a_local_tokenizer_named_by_its_folder(write: Write, tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model" / "tokenizer.json").touch()
    for written in ("./my model", "./my model/tokenizer.json"):
        (point, *_) = expand(read(write(replace=('["deepseek"]', f'"{written}"'))))
        assert point.id == "demo/xgrammar/my_model/flat/person/default/p0"
        assert point.vocabulary_source.startswith(str(tmp_path / "my model"))
    assert "no such file or folder" in complaint(write(replace=('"deepseek"', '"./absent/tokenizer.json"')))
    twice = write(replace=('["deepseek"]', '["./my model", "./my model/tokenizer.json"]'))
    assert "two vocabularies are called 'my_model'" in complaint(twice)


# --- environments --------------------------------------------------------------------------------------------------


def test_interpreters_are_resolved_and_checked_only_where_used(write: Write, tmp_path: Path) -> None:
    environments = '[environments.old]\npython = "./venv/bin/python"'
    path = write('environment = ["default", "old"]', environments)
    scenario = read(path)
    with pytest.raises(MasktaxError, match=r"environments.old.python: ./venv/bin/python: no such interpreter"):
        scenarios.interpreters(scenario, expand(scenario))
    only_default = expand(scenario, {"environment": ["default"]})
    assert scenarios.interpreters(scenario, only_default) == {"default": Path(sys.executable)}
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    # The link itself, not what it points to: that is what makes it the environment's interpreter.
    assert scenarios.interpreters(scenario, expand(scenario))["old"] == link


# --- properties ----------------------------------------------------------------------------------------------------


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True)


_AXES = st.fixed_dictionaries(
    {},
    optional={
        "backend": _some(KNOWN.backends),
        "vocabulary": _some(KNOWN.vocabularies),
        "constraint": _some((*KNOWN.constraints, "*", "flat/*", "*/order")),
        "stages": _some(("compile", "fill", "accept")),
        "cache": _some(("process_cold", "new_schema", "same_schema", "respelled")),
        "process": st.integers(1, 3),
    },
)


def _toml(table: dict[str, object]) -> str:
    return "\n".join(f"{key} = {value!r}".replace("'", '"') for key, value in table.items())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(includes=st.lists(_AXES, max_size=3), exclude=_AXES, override=_AXES)
def test_no_expansion_ever_holds_an_id_twice(
    write: Write, includes: list[dict[str, object]], exclude: dict[str, object], override: dict[str, object]
) -> None:
    blocks = [f'[[include]]\nreason = "r"\n{_toml(i)}' for i in includes]
    exclude = {k: v for k, v in exclude.items() if k not in ("cache", "process")}
    if exclude:
        blocks.append(f'[[exclude]]\nreason = "r"\n{_toml(exclude)}')
    settings_ = {k: [str(v)] if isinstance(v, int) else v for k, v in override.items()}
    try:
        points = expand(read(write(*blocks)), settings_)  # type: ignore[arg-type]
    except MasktaxError:
        return  # the file, or what is set, was refused by name
    assert len(set(ids(points))) == len(points)
    assert all(p.stages and set(p.expected) == set(p.stages) for p in points)


# --- what is shipped, and what is written about it ------------------------------------------------------------------

BUILT_IN = (
    "apply", "backends", "bounded", "compile", "copy", "jump_forward", "overlap", "positions", "quick", "reference",
    "rollback", "speculation", "tax", "threshold", "vocabulary",
)  # fmt: skip
ALWAYS = ("compile", "first_mask", "fill", "accept", "validate", "rollback")
LIBRARIES = {"xgrammar", "llguidance", "outlines", "lm-format-enforcer"}
UNLIMITED = (LIBRARIES - {"lm-format-enforcer"}) | {"lm-format-enforcer-unlimited", "reference"}
# The judge is set beside the libraries that it should keep up with, and is in no comparison of libraries.
COMPARED = dict.fromkeys(BUILT_IN, LIBRARIES) | {
    "reference": {"reference", "xgrammar", "llguidance"},
    "threshold": LIBRARIES | {"reference"},
    "jump_forward": LIBRARIES | {"reference"},
    # Their documents have longer arrays than the library takes by default.
    **dict.fromkeys(("bounded", "rollback", "speculation"), UNLIMITED),
    # Here the backend makes the masks and is not what is compared.
    "apply": {"xgrammar"},
    "copy": {"xgrammar"},
}


@pytest.fixture(scope="module")
def shipped() -> dict[str, Scenario]:
    known = scenarios.known()
    return {path.stem: load(path, known) for path in scenarios.built_in()}


def test_the_built_in_scenarios_are_these_and_free_of_mistakes(shipped: dict[str, Scenario]) -> None:
    assert tuple(shipped) == BUILT_IN
    for name, scenario in shipped.items():
        assert {p.backend for p in expand(scenario)} == COMPARED[name]
        assert scenario.question.endswith("?")
        assert len(scenario.reading) > 200


def test_quick_times_every_stage_and_its_cold_compile_in_ten_processes(shipped: dict[str, Scenario]) -> None:
    points = expand(shipped["quick"])
    assert {p.vocabulary for p in points} == {"deepseek"}
    assert {s for p in points for s in p.stages} == set(ALWAYS)
    assert len({p.constraint.partition("/")[0] for p in points}) >= 8
    cold = [p for p in points if p.conditions.get("cache") == ("process_cold",)]
    for library in LIBRARIES:
        assert len({p.process for p in cold if p.backend == library}) == 10


def test_backends_takes_two_constraints_of_every_tier(shipped: dict[str, Scenario]) -> None:
    scenario = shipped["backends"]
    taken = Counter(name.partition("/")[0] for name in {p.constraint for p in expand(scenario)})
    assert taken == {name.partition("/")[0]: 2 for name in scenario.known.constraints}


def test_reference_asks_the_engine_and_two_libraries_the_very_same(shipped: dict[str, Scenario]) -> None:
    asked: dict[str, list[object]] = {name: [] for name in COMPARED["reference"]}
    for p in expand(shipped["reference"]):
        asked[p.backend].append((p.vocabulary, p.constraint, p.stages, p.conditions))
    engine, *others = asked.values()
    assert others == [engine, engine]
    assert len({p.constraint.partition("/")[0] for p in expand(shipped["reference"])}) >= 8


def test_threshold_fills_on_both_sides_of_vllms_threshold_by_every_policy(shipped: dict[str, Scenario]) -> None:
    for p in expand(shipped["threshold"]):
        assert {128, 129} <= {*p.conditions["rows"]} or "threads" in p.conditions
        if "threads" not in p.conditions:
            assert p.conditions["policy"] == scenarios.INNER["policy"]["batch_fill"]


def test_tax_sets_sharing_beside_filling_each_over_mixes_that_share_more_and_less(shipped: dict[str, Scenario]) -> None:
    for p in expand(shipped["tax"]):
        assert p.conditions["policy"] == ("serial", "state_shared")
        assert p.conditions["mix"] == ("identical", "positions", "schemas")
        assert p.workload.companions


def test_apply_and_copy_span_two_sizes_of_vocabulary_and_batches_from_one_row_to_256(
    shipped: dict[str, Scenario],
) -> None:
    for name in ("apply", "copy"):
        points = expand(shipped[name])
        assert {p.vocabulary for p in points} == {"deepseek", "qwen3.6"}
        assert {p.conditions["rows"] for p in points} == {(1, 16, 64, 128, 256)}
    kernels = set(scenarios.INNER["kernel"]["apply"])
    # The definition is what the others are held against.
    assert {k for p in expand(shipped["apply"]) for k in p.conditions["kernel"]} == kernels - {"definition"}


def test_vocabulary_spans_four_sizes(shipped: dict[str, Scenario]) -> None:
    assert {p.vocabulary for p in expand(shipped["vocabulary"])} == {"mistral", "deepseek", "qwen3", "qwen3.6"}


def test_compile_has_at_least_ten_fresh_processes_for_every_cache_state(shipped: dict[str, Scenario]) -> None:
    points = expand(shipped["compile"])
    states = set(scenarios.INNER["cache"]["compile"])
    for at in {(p.backend, p.constraint) for p in points}:
        here = [p for p in points if (p.backend, p.constraint) == at]
        assert len({p.process for p in here}) >= 10
        assert set().union(*(p.conditions["cache"] for p in here)) == states


def test_the_description_names_every_key_axis_and_value(tmp_path: Path) -> None:
    text = (scenarios.paths.scenarios() / "README.md").read_text(encoding="utf-8")
    for word in (
        *(f"`{axis}`" for axis in scenarios.AXES),
        *(f"`{stage}`" for stage in scenarios.STAGES),
        *(f"`{v}`" for by in scenarios.INNER.values() for vs in by.values() for v in vs if isinstance(v, str)),
        *(f"`{name}`" for name in Plan.names()),
        *(f"`{name}`" for name in scenarios.Workload.__dataclass_fields__),
        *(f"`{outcome}`" for outcome in OUTCOMES),
    ):
        assert word in text, word
    example = text.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "strings.toml").write_text(example, encoding="utf-8")
    assert len(expand(load(tmp_path / "strings.toml"))) > 4


def test_companions_are_constraints_named_by_globs(write: Write) -> None:
    named = read(
        write(replace=('stages = ["compile", "fill", "accept"]', 'stages = ["fill"]\ncompanions = ["regex/*"]'))
    )
    assert named.workload.companions == ("regex/date",)
    with pytest.raises(MasktaxError, match=r"workload\.companions: no constraint matches"):
        read(write(replace=('stages = ["compile", "fill", "accept"]', 'stages = ["fill"]\ncompanions = ["regx/*"]')))
