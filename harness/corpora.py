"""An outside corpus of schemas as catalogue entries: a folder of files in the form of JSONSchemaBench's MaskBench.

Manager side. A file is an object: ``schema``; ``tests``, a list of ``{"valid": true or false, "data": any JSON}``;
optionally ``description`` and ``meta.features``; whatever else it holds is not looked at. The folder holds such files,
or a folder ``data`` of them. Beside them (or beside ``data``) there may be an ``index.json``, whose ``files`` say by
``label_disputed`` which tests of a file (by place) have a label that validators disagree about.

The labels are somebody else's, and so is the policy under which they hold: ``harness.labels`` looks at that in the
worker, cell by cell.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from harness.catalogue import Entry, Instance
from harness.cell import OUTSIDE_TIER
from harness.constraint import Constraint
from harness.errors import MasktaxError

VARIABLE = "MASKTAX_CORPUS"
INDEX = "index.json"


@dataclass(frozen=True)
class Corpus:
    """A corpus on the disk, nothing of it read but the names of its files and its index.

    path: the folder, absolute. files: ``corpus/<stem>`` → file, by name. found: how many the folder holds, where
    ``files`` is a sample. sample: how many were asked for, None for all. disputed: file name → places of tests with
    disputed labels.
    """

    path: Path
    files: Mapping[str, Path]
    found: int
    sample: int | None
    disputed: Mapping[str, frozenset[int]]

    def read(self, names: Iterable[str]) -> Selection:
        """The entries of these names, in the order given; MasktaxError, with file and place, for a malformed file."""
        left_out: Counter[str] = Counter()
        entries = {
            name: _entry(name, self.files[name], self.disputed.get(self.files[name].name, frozenset()), left_out)
            for name in names
        }
        return Selection(self, entries, dict(left_out))


@dataclass(frozen=True)
class Selection:
    """Entries that were read. left_out: why instances were left out → how many."""

    corpus: Corpus
    entries: Mapping[str, Entry]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Hex digest over what is used: names, texts of constraints, instances and their labels."""
        digest = hashlib.sha256()
        for name in sorted(self.entries):
            entry = self.entries[name]
            instances = [[[i.name, i.value] for i in kind] for kind in (entry.valid, entry.invalid)]
            digest.update(json.dumps([name, entry.constraint.text, instances]).encode() + b"\n")
        return digest.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """What run.json says of it (docs/FORMAT.md)."""
        return {
            "path": str(self.corpus.path),
            "files": self.corpus.found,
            "sample": self.corpus.sample,
            "used": len(self.entries),
            "instances_left_out": dict(self.left_out),
            "sha256": self.sha256,
        }


def given(folder: Path | None, sample: int | None) -> Corpus | None:
    """The corpus in ``folder``, else the one that the environment names; None where neither does."""
    named = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is not None:
        return find(named, sample)
    if sample is not None:
        raise MasktaxError(f"--corpus-sample {sample}: there is no corpus; name one by --corpus DIR, or by {VARIABLE}")
    return None


def find(folder: Path, sample: int | None = None) -> Corpus:
    """The corpus in a folder. sample: take so many of its files, evenly over their sorted names; all where it has no
    more than that."""
    if not folder.is_dir():
        raise MasktaxError(f"{folder}: there is no corpus: {'not a folder' if folder.exists() else 'no such folder'}")
    inner = folder / "data"
    place = inner if inner.is_dir() else folder
    files = sorted(p for p in place.glob("*.json") if p.name != INDEX)
    if not files:
        raise MasktaxError(f"{folder}: no corpus: there is neither data/*.json nor *.json in it")
    chosen = files
    if sample is not None and sample < len(files):
        chosen = [files[i * len(files) // sample] for i in range(sample)]
    return Corpus(
        folder.resolve(), {f"{OUTSIDE_TIER}/{p.stem}": p for p in chosen}, len(files), sample, _disputed(folder / INDEX)
    )


def _disputed(index: Path) -> dict[str, frozenset[int]]:
    """``{file name: places of tests}``; empty where there is no index."""
    if not index.exists():
        return {}
    files = _read(index)[0].get("files")
    if not isinstance(files, list):
        _fail(index, "/files", "must be a list")
    found: dict[str, frozenset[int]] = {}
    for i, item in enumerate(files):
        if not isinstance(item, dict) or not isinstance(item.get("file"), str):
            _fail(index, f"/files/{i}", "must be an object with file, a name")
        places = item.get("label_disputed", [])
        if not isinstance(places, list) or not all(type(p) is int for p in places):
            _fail(index, f"/files/{i}/label_disputed", "must be a list of places in the file's tests")
        found[item["file"]] = frozenset(places)
    return found


def _entry(name: str, path: Path, disputed: frozenset[int], left_out: Counter[str]) -> Entry:
    data, text = _read(path)
    if "schema" not in data:
        _fail(path, "/schema", "is missing")
    try:
        constraint = Constraint("json_schema", _own_text(text, "schema"))
    except MasktaxError as error:
        _fail(path, "/schema", str(error))
    tests = data.get("tests", [])
    if not isinstance(tests, list):
        _fail(path, "/tests", "must be a list")
    if beyond := sorted(p for p in disputed if not 0 <= p < len(tests)):
        _fail(path, "/tests", f"{INDEX} calls the label of test {beyond[0]} disputed, and there are {len(tests)} tests")
    valid: list[Instance] = []
    invalid: list[Instance] = []
    for i, test in enumerate(tests):
        if not isinstance(test, dict) or "data" not in test or not isinstance(test.get("valid"), bool):
            _fail(path, f"/tests/{i}", "must be an object with valid (true or false) and data")
        if i in disputed:
            left_out["its label is disputed"] += 1
        elif not _can_be_spelled(test["data"]):
            left_out["it has no spelling in UTF-8 that says the same (a lone surrogate, a number beyond a double)"] += 1
        elif test["valid"]:
            valid.append(Instance(test["data"], name=f"valid/{i}"))
        else:
            invalid.append(Instance(test["data"], _line(test.get("description")), name=f"invalid/{i}"))
    return Entry(
        name,
        OUTSIDE_TIER,
        _line(data.get("description")),
        constraint,
        tuple(valid),
        tuple(invalid),
        _features(path, data),
        0,
    )


def _features(path: Path, data: Mapping[str, Any]) -> frozenset[str]:
    meta = data.get("meta", {})
    features = meta.get("features", []) if isinstance(meta, dict) else None
    if not isinstance(features, list) or not all(isinstance(f, str) for f in features):
        _fail(path, "/meta/features", "must be a list of names")
    return frozenset(features)


def _line(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _can_be_spelled(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # an encoding error is a ValueError, too
        return False
    return True


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """The file's object, and its text."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=_refuse_constant)
    except OSError as error:
        raise MasktaxError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        _fail(path, "", f"not JSON: {error}")
    if not isinstance(data, dict):
        _fail(path, "", "must be a JSON object")
    return data, text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value (RFC 8259)")


def _own_text(text: str, wanted: str) -> str:
    """The value of a key of an object, exactly as it is written: reading it and writing it again could change numbers.

    text: JSON, known to be an object that has the key. Of a key that is there twice the last one counts, as in
    ``json.loads``.
    """
    decoder = json.JSONDecoder()
    found = ""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, start)
        if key == wanted:
            found = text[start:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    while text[at] in " \t\n\r":
        at += 1
    return at


def _fail(path: Path, pointer: str, message: str) -> NoReturn:
    raise MasktaxError(f"{path}#{pointer}: {message}")
