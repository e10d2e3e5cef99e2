"""The page: whole for every shape of run, self-contained, escaped, the same each time; figures legible."""

from __future__ import annotations

import re
import struct
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.cell import Outcome
from harness.errors import MasktaxError
from harness.profile import Profile
from harness.report import build
from harness.report.figures import draw
from harness.report.study import Study
from harness.report.style import context
from harness.results import load
from tests.report.exact import OK, later, line, study
from tests.report.synthetic import (
    VOCABULARIES,
    always_ok,
    difference,
    never_ok,
    records,
    write_run,
)

# Every kind of outcome once; and as little as a page can be made of.
FEW = {"constraints": ["flat/user", "nested/tree-config", "patterns/phone", "recursive/comment-thread", "regex/uuid"],
       "processes": 2, "positions": 40}  # fmt: skip

ONE = {"constraints": ["flat/user"], "processes": 1, "positions": 20, "judge": always_ok}


class Page(HTMLParser):
    """What a page holds, and whether its tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.references: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in ("meta", "br", "link", "img"):
            self._open.append(tag)
        self._attributes(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._attributes(attrs)

    def _attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in ("href", "src", "xlink:href", "srcset", "data", "action"):
                self.references.append((name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "title"):
            self.text.append(data)
        if self._open and self._open[-1] == "h2":
            self.headings.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(path: Path) -> Page:
    return Page((path / "index.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a run with outcomes of every kind, built once."""
    folder = tmp_path_factory.mktemp("usual")
    lines = list(records(**FEW))
    lines[0] |= {"expected": "unsupported", "as_expected": False, "expected_reason": "it was so last week"}
    lines += [
        line("lm-format-enforcer", "tools/search", "fill", Outcome("crash", "<script>alert('signal 11')</script>"))
    ]
    build([write_run(folder / "run", lines)], folder / "report")
    return folder / "report"


def test_a_report_is_a_page_figures_and_a_summary(usual: Path) -> None:
    names = {"overview", "stages", "fill_distribution", "fill_position", "compile_cache", "axes"}
    assert {f.stem for f in (usual / "figures").glob("*.png")} == names
    assert {f.stem for f in (usual / "figures").glob("*.svg")} == names
    page = page_of(usual)
    assert page.tags["figure"] == page.tags["figcaption"] == page.tags["svg"] == len(names)
    assert page.headings == [
        "What was run, and the short answer", "Unexpected outcomes", "Coverage beside speed", "Per stage", "Fill",
        "Compile by cache state", "Against the inner axes", "Wrong masks", "Unsupported, failed, timed out, crashed",
        "Every case", "Machine, clock and environments", "How to reproduce",
    ]  # fmt: skip


def test_the_page_needs_nothing_but_itself(usual: Path) -> None:
    text = (usual / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert "@import" not in text
    for name, value in page.references:
        assert value.startswith("#") or re.fullmatch(r"figures/\w+\.(png|svg)", value), (name, value)
    # Fills and clips refer to the page's own ids.
    inside = set(re.findall(r"url\(#([^)]+)\)", text)) | {v[1:] for _, v in page.references if v.startswith("#")}
    assert re.findall(r"url\((?!#)", text) == []
    assert inside <= set(page.ids)


def test_no_id_occurs_twice(usual: Path) -> None:
    assert [i for i, n in page_of(usual).ids.items() if n > 1] == []


def test_every_figure_says_in_words_what_it_shows(usual: Path) -> None:
    text = (usual / "index.html").read_text(encoding="utf-8")
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', text)
    assert len(labels) == 6
    assert all(len(label) > 60 for label in labels)
    captions = re.findall(r"<figcaption>(.+?) <a", text)
    assert len(captions) == 6
    assert all(re.search(r"\d", c) for c in captions)


def test_figures_follow_the_page_s_colours_and_files_keep_their_own(usual: Path) -> None:
    text = (usual / "index.html").read_text(encoding="utf-8")
    assert "#1c1d1f" not in text.partition("</style>")[2]
    assert "var(--ink)" in text.partition("</style>")[2]
    assert "var(" not in (usual / "figures" / "overview.svg").read_text(encoding="utf-8")


def test_what_a_library_said_is_shown_and_never_interpreted(usual: Path) -> None:
    text = (usual / "index.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#39;signal 11&#39;)&lt;/script&gt;" in text
    assert "<script>alert('signal 11')</script>" in page_of(usual).words
    assert "\\<script\\>" in (usual / "summary.md").read_text(encoding="utf-8")


def test_the_page_shows_the_first_difference_of_a_wrong_mask(usual: Path) -> None:
    words = page_of(usual).words
    first = difference("patterns/phone")
    assert f"patterns/phone, {first.document}, step {first.step}: token {first.token}" in words
    assert first.token_bytes in words
    assert "too loose" in words
    assert f"judge: {first.judge}" in words


def test_the_page_says_on_what_it_ran_and_how_to_run_it_again(usual: Path) -> None:
    words = page_of(usual).words
    for expected in ("Invented CPU", "governor unknown", "perf_counter_ns", "3.11.9", "ab" * 32, "129,280",
                     "git checkout 0123456789abcdef", "masktax run quick -o 'results/made up'",
                     "Not run on a GPU"):  # fmt: skip
        assert expected in words, expected


def test_the_summary_says_what_the_page_says(usual: Path) -> None:
    summary = (usual / "summary.md").read_text(encoding="utf-8")
    words = page_of(usual).words
    sentences = [s[2:].replace("\\", "") for s in summary.splitlines() if s.startswith("- ")]
    assert len(sentences) >= 5
    assert all(" ".join(s.split()) in words for s in sentences)
    assert "](figures/overview.png)" in summary


def test_the_overview_is_1600_pixels_wide(usual: Path) -> None:
    head = (usual / "figures" / "overview.png").read_bytes()[:24]
    width, height = struct.unpack(">II", head[16:24])
    assert width == 1_600
    assert height < width / 2


SHAPES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[str], list[str]]] = {
    # lines, run.json, what the page must say, what it must not
    "no ok cell": (
        list(records(**FEW, judge=never_ok)),
        {},
        ["compiles no such kind", "All 4 are right on none of"],
        ["µs"],
    ),
    "one cell": ([line("xgrammar", "flat/a", "fill", OK, later(1_000.0, 2_000.0))], {}, ["1.50 µs"], ["common case."]),
    "one backend": (
        list(records(**ONE, backends=["outlines"], stages=["compile", "fill"])), {}, ["outlines"],
        ["The highest of these"],
    ),
    "missing stages": (
        list(records(**ONE, stages=["accept"])), {}, ["accept"], ["Fill, "],
    ),
    "unknown stages": ([line("mine", "flat/a", "step", OK, later(1e6))], {}, ["step"], ["Fill, "]),
    "untimed": (
        list(records(**FEW, timed=False)), {"timed": False}, ["is a verification: nothing was timed"], ["µs", "GPU"],
    ),
    "interrupted": (
        list(records(**ONE))[:2], {"interrupted": True, "finished_at": None, "stages_planned": 240},
        ["was interrupted: 2 of 240 stages are recorded"], [],
    ),
    "killed": (
        list(records(**ONE))[:2], {"finished_at": None, "stages_planned": 240}, ["is in progress, or was killed"], [],
    ),
    "nothing yet": ([], {"finished_at": None}, ["Nothing is recorded yet"], ["µs", "Coverage"]),
    "declared profiles": (
        [line("xgrammar", "flat/a", "accept", OK), line("llguidance", "flat/a", "accept", OK)],
        {"profiles": {"xgrammar": {"default": Profile(whitespace="compact").to_json()}}},
        ["xgrammar default whitespace: compact", "llguidance default not recorded"], [],
    ),
    "little known": (
        [line("xgrammar", "flat/a", "fill", OK, later(1_000.0))],
        dict.fromkeys(("machine", "sessions", "environments", "git", "vocabularies", "scenarios", "command", "seed")),
        ["the command is not recorded"], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", list(SHAPES))
def test_any_shape_of_run_gets_a_whole_page(tmp_path: Path, shape: str) -> None:
    lines, fields, there, gone = SHAPES[shape]
    out = tmp_path / "out"
    assert build([write_run(tmp_path / "run", lines, **fields)], out) == out / "index.html"
    page = page_of(out)
    for sentence in there:
        assert sentence in page.words
    for sentence in gone:
        assert sentence not in page.words
    assert page.tags["svg"] == len(list((out / "figures").glob("*.png")))
    assert (out / "summary.md").read_text(encoding="utf-8").startswith("# ")
    assert " nan" not in page.words.lower()


def test_several_runs_make_one_report_with_a_series_for_each(tmp_path: Path) -> None:
    lines = list(records(**ONE, backends=["xgrammar", "llguidance"], stages=["accept"]))
    paths = [write_run(tmp_path / name, lines, run=name) for name in ("monday", "tuesday")]
    build(paths, tmp_path / "out")
    words = page_of(tmp_path / "out").words
    assert "xgrammar (monday)" in words
    assert "xgrammar (tuesday)" in words


def test_vocabularies_get_a_figure_where_there_are_several(tmp_path: Path) -> None:
    small = {"vocabularies": {"tiny": {"size": 32_000, "sha256": "0" * 64}} | {
        n: {"size": s, "sha256": "ab" * 32} for n, s in VOCABULARIES.items()
    }}  # fmt: skip
    lines = list(records(**ONE, vocabularies=("tiny", "deepseek"), stages=["fill"]))
    study = Study(load(write_run(tmp_path / "run", lines, **small)))
    found = {d.name: d for d in draw(study)}
    assert "Fill with deepseek over fill with tiny: xgrammar" in found["fill_vocabulary"].finding


def test_building_again_gives_the_same_bytes_and_leaves_no_old_figure(tmp_path: Path) -> None:
    lines = list(records(**ONE, backends=["xgrammar", "llguidance"], stages=["fill"]))
    run, out = write_run(tmp_path / "run", lines), tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "old.png").write_bytes(b"")
    build([run], out)
    assert not (out / "figures" / "old.png").exists()
    first = {f.name: f.read_bytes() for f in out.rglob("*") if f.is_file()}
    build([run], out)
    assert {f.name: f.read_bytes() for f in out.rglob("*") if f.is_file()} == first


def test_what_is_not_a_run_leaves_an_earlier_report_alone(usual: Path, tmp_path: Path) -> None:
    before = (usual / "index.html").read_bytes()
    with pytest.raises(MasktaxError, match="is not a run"):
        build([tmp_path], usual)
    assert (usual / "index.html").read_bytes() == before


def test_without_its_libraries_a_report_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MasktaxError, match=r"a report needs matplotlib: pip install 'masktax\[report\]'"):
        build([tmp_path], tmp_path / "out")


def test_wrong_cells_are_not_drawn(tmp_path: Path) -> None:
    wrong = Outcome("wrong", difference=difference("flat/a"))
    made = study(tmp_path, line("xgrammar", "flat/a", "fill", wrong, later(*[7.0] * 50)))
    assert [d.name for d in draw(made)] == ["overview"]  # coverage alone


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The usual figures, laid out."""
    path = write_run(tmp_path_factory.mktemp("drawn") / "run", list(records(**FEW)))
    figures = draw(Study(load(path)))
    with context():
        for one in figures:
            one.figure.canvas.draw()
    return figures


def test_tick_labels_do_not_overlap(drawn: list[Any]) -> None:
    for one in drawn:
        renderer = one.figure.canvas.get_renderer()
        for axes in one.figure.axes:
            for axis, low, high in ((axes.xaxis, "x0", "x1"), (axes.yaxis, "y0", "y1")):
                boxes = [
                    t.get_window_extent(renderer) for t in axis.get_ticklabels() if t.get_text() and t.get_visible()
                ]
                boxes = sorted((b for b in boxes if b.width and b.height), key=lambda b: getattr(b, low))
                for left, right in pairwise(boxes):
                    assert getattr(left, high) <= getattr(right, low) + 1, (one.name, axes.get_title(loc="left"))


def test_every_time_axis_has_a_label_and_two_ticks_with_units(drawn: list[Any]) -> None:
    for one in drawn:
        for axes in one.figure.axes:
            for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
                if "time" not in axis.get_label_text():
                    continue
                assert scale == "log"
                low, high = sorted(axis.get_view_interval())
                shown = [axis.get_major_formatter()(v, 0) for v in axis.get_majorticklocs() if low <= v <= high]
                assert len(shown) >= 2, (one.name, axes.get_title(loc="left"), shown)
                assert all(re.fullmatch(r"[\d,.]+ (ns|µs|ms|s)", text) for text in shown)


def test_nothing_is_drawn_outside_the_picture(drawn: list[Any]) -> None:
    for one in drawn:
        renderer = one.figure.canvas.get_renderer()
        width, height = one.figure.canvas.get_width_height()
        box = one.figure.get_tightbbox(renderer).extents * one.figure.dpi
        assert box[0] >= -1 and box[1] >= -1, one.name
        assert box[2] <= width + 1 and box[3] <= height + 1, one.name
