"""``masktax conformance``: the official JSON Schema test suite through the reference engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.run import JSON

if TYPE_CHECKING:
    from rich.console import Console

    from harness.conformance import Outcome, Part, Verdict

EXAMPLE = "[bold]Example[/bold]: masktax conformance --draft draft7 --optional --format"

DRAFT: list[str] = typer.Option(
    [], "--draft", metavar="DRAFT",
    help="A folder of the suite; may be given several times. Default: draft2020-12, draft7, draft6, draft4.",
)  # fmt: skip
SUITE: Path | None = typer.Option(
    None, "--suite", metavar="DIR", help="A checkout of the suite. Default: the pinned one, fetched by pip once."
)
OPTIONAL: bool = typer.Option(False, "--optional", help="Also the tests that the suite calls optional.")
FORMAT: bool = typer.Option(False, "--format", help="Also the tests of format, which then is an assertion.")


def conformance(
    draft: list[str] = DRAFT,
    suite: Path | None = SUITE,
    optional: bool = OPTIONAL,
    format_: bool = FORMAT,
    as_json: bool = JSON,
) -> int:
    """Run the official JSON Schema test suite through the reference engine, byte by byte.

    Every test is decided, unsupported (refused, with the reason) or wrong. Exit status 1 where any is wrong.
    """
    from harness import conformance as suites
    from harness.cli import EXIT_UNEXPECTED

    asked: dict[Part, bool] = {"required": True, "optional": optional, "format": format_}
    folder = suites.get_suite(suite)
    verdicts = list(
        suites.run(folder, draft or suites.DEFAULT_DRAFTS, [part for part, wanted in asked.items() if wanted])
    )
    if as_json:
        print(json.dumps(suites.to_json(verdicts), indent=1, ensure_ascii=False))
    else:
        _tell(verdicts)
    return EXIT_UNEXPECTED if suites.counts(verdicts)["wrong"] else 0


def _tell(verdicts: Sequence[Verdict]) -> None:
    from rich.console import Console

    from harness.conformance import by_draft, by_keyword, counts, refusals

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    _table(console, "keyword", by_keyword(verdicts))
    print()
    parts = {f"{draft} {part}": row for draft, rows in by_draft(verdicts).items() for part, row in rows.items()}
    _table(console, "draft", parts | {"total": counts(verdicts)})
    refused = refusals(verdicts)
    if refused:
        print("\nunsupported")
    for refusal in refused:
        print(f"  {refusal.tests} {f'({refusal.keyword}) ' if refusal.keyword else ''}{refusal.reason}")
        for place, tests in refusal.places.items():
            print(f"      {place} ({tests})")
    wrong = [v for v in verdicts if v.outcome == "wrong"]
    if wrong:
        print("\nwrong")
    for v in wrong:
        print(f"  {v.test.draft}/{v.test.keyword}: {v.test.case}: {v.test.description}")
        print(f"      {v.reason}")


def _table(console: Console, head: str, rows: Mapping[str, Mapping[Outcome, int]]) -> None:
    from rich.table import Table

    from harness.conformance import OUTCOMES

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(head, no_wrap=True)
    for outcome in (*OUTCOMES, "tests", "decided %"):
        table.add_column(outcome, justify="right")
    for name, row in rows.items():
        tests = sum(row.values())
        # Rounded down: only a whole is shown as 100.
        share = f"{1000 * row['decided'] // tests / 10:.1f}" if tests else ""
        table.add_row(name, *(str(row[o]) for o in OUTCOMES), str(tests), share)
    console.print(table, highlight=False, markup=False)
