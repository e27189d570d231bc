"""The command `sgldbg`: its subcommands, each imported when it is called, and its exit codes."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.errors import OrchestratorError

# Name -> one-line help. The command is `command` of the module of that name in this package; it
# is not imported for the help page, which so costs no more than importing click.
COMMANDS = {
    "check": "Check YAML files; with --against, where patches fit.",
    "new": "Write a patch for a line of source, with its case.",
    "hosts": "Show who answers, which SGLang, and which server runs there.",
    "plan": "Show the exact diff and the restart; writes nothing.",
    "run": "Apply, restart, observe, revert, and answer the session's question.",
    "apply": "The first half of run: patch, restart, arm, and leave it so.",
    "ask": "Put another question to a placed probe, without a restart.",
    "keep": "Let what apply placed stay without an end.",
    "status": "Show what is still patched, where, by whom, until when.",
    "revert": "Put everything back: after apply, or after a dead controller.",
    "demo": "Do the whole job on an embedded loopback cluster.",
    "schema": "Print the JSON Schema of a kind of file.",
}

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
OUR_BUG = 70
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a user's day, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"orchestrator.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of the help page, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"sgldbg {version('sgldbg')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version and leave.",
)
def group() -> None:
    """Remote debug orchestrator for SGLang: a question, an answer per worker, and no trace."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Errors are told on stderr."""
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError as error:
        if not _is_output_closed():
            return report_bug(error)
        # Whoever read our output has seen enough. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return CLOSED_PIPE
    return code


def _run(arguments: list[str]) -> int:
    # Not `group.main`: it takes a closed pipe for exit code 1, which here is an answer.
    try:
        with group.make_context("sgldbg", arguments) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        from orchestrator.errors import OrchestratorError

        if not isinstance(error, OrchestratorError):
            return report_bug(error)
        return _report(error)
    return result if isinstance(result, int) else 0


def _is_output_closed() -> bool:
    """Whether nobody reads our stdout or stderr any more."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _report(error: OrchestratorError) -> int:
    from orchestrator.cli.render import find_exit_code
    from orchestrator.diagnostics import render

    click.echo(render(error), err=True)
    return find_exit_code(error)


def report_bug(error: Exception) -> int:
    """Keep the trace in a file and name it; a page of internals helps no user."""
    from orchestrator.cli.render import keep_trace

    said = f"{type(error).__name__}: {error}"
    try:
        path = keep_trace(error)
    except OSError as failure:
        click.echo(f"{failure.filename}: {failure.strerror}; so here is the trace:", err=True)
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True)
        return OUR_BUG
    click.echo(f"error: a bug of sgldbg: {said}; please report it with {path}", err=True)
    return OUR_BUG
