"""The command `sgldbg`: its subcommands, each imported when it is called, and its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from orchestrator.cli.interrupts import INTERRUPTED, begin_command, settle
from orchestrator.cli.outlets import Outlets, open_outlets
from orchestrator.userfile import reason_of

if TYPE_CHECKING:
    from orchestrator.errors import OrchestratorError

# Name -> one-line help. The command is `command` of the module of that name in `commands`; it
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

# What may have changed a host: their exit codes tell of hosts, whoever got the output.
CHANGING = frozenset({"run", "apply", "ask", "keep", "revert", "demo"})
# What works on hosts that are other than they were: interrupted, it cannot say how they are now.
RESTORING = frozenset({"ask", "keep", "revert"})

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
LOST_OUTPUT = 74  # sysexits.h: an error while writing
NOT_RESTORED = 7


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a user's day, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"orchestrator.cli.commands.{cmd_name}")
        begin_command(NOT_RESTORED if cmd_name in RESTORING else INTERRUPTED)
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
    """Run the command line; the exit code. Errors are told on stderr.

    Output that nobody gets does not fail a command, and never hides in what state hosts are.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = INTERRUPTED
    with open_outlets() as outlets:
        with suppress(KeyboardInterrupt):  # one that comes between the two
            code = _run(given)
            settle(code)
        outlets.stdout.flush()
        return _settle_output(outlets, code, given)


def _settle_output(outlets: Outlets, code: int, arguments: Sequence[str]) -> int:
    """The exit code where stdout was lost: success of what was to be read only is none then."""
    problem = outlets.stdout.problem
    if problem is None:
        return code
    changes = bool(CHANGING.intersection(arguments[:1]))
    if outlets.reader_left:
        if changes:
            click.echo("what stdout was to show was not read to its end", err=True)
        return code if changes or code else CLOSED_PIPE
    click.echo(f"stdout took no more: {reason_of(problem)}", err=True)
    return code if changes or code else LOST_OUTPUT


def _run(arguments: list[str]) -> int:
    # Not `group.main`: it has exit codes of its own, 1 among them, which here is an answer.
    try:
        with group.make_context("sgldbg", arguments) as context:
            return _invoke(context, arguments)
    except click.exceptions.Exit as done:  # `--help` and `--version`
        return done.exit_code
    except click.ClickException as error:
        return _show_usage(error)
    except (click.Abort, KeyboardInterrupt):
        return _tell_interrupted(arguments)


def _invoke(context: click.Context, arguments: list[str]) -> int:
    """Failures are told while the context stands, which knows what the command was given."""
    try:
        result = group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except click.ClickException as error:
        return _show_usage(error)
    except (click.Abort, KeyboardInterrupt):
        return _tell_interrupted(arguments)
    except Exception as error:
        from orchestrator.errors import OrchestratorError

        if isinstance(error, OrchestratorError):
            return _report(error)
        from orchestrator.cli.render import report_bug
        from orchestrator.session.kept.rundir import full_disk

        full = full_disk(error)
        return report_bug(error) if full is None else _report(full)
    return result if isinstance(result, int) else 0


def _show_usage(error: click.ClickException) -> int:
    from orchestrator.diagnostics import one_line

    plain = isinstance(error, click.UsageError) and type(error).show is click.UsageError.show
    if isinstance(error, click.UsageError) and plain:  # else it is a page of help
        # It may hold what the user has typed.
        click.UsageError(one_line(error.format_message()), error.ctx).show()
    else:
        error.show()
    return error.exit_code


def _tell_interrupted(arguments: Sequence[str]) -> int:
    """130 says that all is as it was, which a revert that was cut short cannot know."""
    from orchestrator.cli.render import say, show_failure
    from orchestrator.errors import SessionError

    cut_short = bool(RESTORING.intersection(arguments[:1]))
    text = "interrupted; `sgldbg status` shows what is left" if cut_short else "interrupted"
    code = NOT_RESTORED if cut_short else INTERRUPTED
    say(text)
    show_failure(code, SessionError(text))
    return code


def _report(error: OrchestratorError) -> int:
    from orchestrator.cli.render import find_exit_code, say_error, show_failure

    say_error(error)
    code = find_exit_code(error)
    show_failure(code, error)
    return code
