"""The command ``masktax``: one thin file for each verb. Manager side.

Nothing heavy is imported before a verb runs, so that ``--help`` answers at once. Mistakes of a user are one line on
the standard error and exit status 2, never a traceback.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from harness.cli import conformance, differences, doctor, list_, report, run, verify
from harness.errors import MasktaxError

EXIT_UNEXPECTED, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130

# The common base of typer's usage errors: public in click, which typer was built on until it took a copy inside.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="masktax",
    help="What constrained decoding costs, stage by stage, and whether the masks are right.",
    epilog="[bold]Start here[/bold]: masktax run quick, then masktax report. Exit status: 0; 1 where an outcome is "
    "not the expected one; 2 for a mistake; 130 after Ctrl-C.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(name: str, verb: Callable[..., object], example: str) -> None:
    """Add a verb; its docstring is the help, each paragraph flowing to the width of the terminal."""
    paragraphs = (inspect.getdoc(verb) or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(p.split()) for p in paragraphs), epilog=example)(verb)


_add("run", run.run, run.EXAMPLE)
_add("list", list_.list_, list_.EXAMPLE)
_add("verify", verify.verify, verify.EXAMPLE)
_add("differences", differences.differences, differences.EXAMPLE)
_add("report", report.report, report.EXAMPLE)
_add("conformance", conformance.conformance, conformance.EXAMPLE)
_add("doctor", doctor.doctor, doctor.EXAMPLE)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Say which version this is, and end."),
) -> None:
    if version:
        from harness import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    try:
        status = app(args=arguments, prog_name="masktax", standalone_mode=False)
    except MasktaxError as error:
        return complain(str(error))
    except _UsageError as error:
        at = getattr(error.ctx, "command_path", "masktax") if getattr(error, "ctx", None) else "masktax"
        return complain(f"{error.format_message()} (see `{at} --help`)")
    return status if isinstance(status, int) else 0


def complain(message: str) -> int:
    """One line on the standard error; the exit status of a mistake."""
    print(f"masktax: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_MISTAKE
