"""``masktax report``: figures and a page from results."""

from __future__ import annotations

from pathlib import Path

import typer

EXAMPLE = "[bold]Example[/bold]: masktax report results/quick-20250101-120000 -o reports/quick"


RUNS = typer.Argument(None, metavar="RUN", help="Folders of runs. Default: the newest in results/.")
OUTPUT = typer.Option(None, "-o", "--output", metavar="DIR", help="Folder of the report. Default: reports/<run>.")


def report(run: list[Path] = RUNS, output: Path | None = OUTPUT) -> None:
    """Write a report: one self-contained page, figures as PNG and SVG, and a summary.

    It reads results and nothing else, so it can be written again at any time, on any machine.
    """
    from harness import paths, scenario
    from harness import report as reports
    from harness.cli import session
    from harness.errors import MasktaxError

    chosen = list(run or ())
    if not chosen:
        found = session.runs()
        if not found:
            raise MasktaxError(f"no run in {scenario.shown(paths.results())}; make one with `masktax run quick`")
        chosen = [found[-1][0]]
    out = output or paths.reports() / "+".join(path.resolve().name for path in chosen)
    with session.writing(out):
        page = reports.build(chosen, out)
    print(scenario.shown(page))
