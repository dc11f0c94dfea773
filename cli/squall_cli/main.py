"""The `storm` command: finds the sub-command, runs it, and turns its errors into a message.

Exit status: 0 success; 1 an expected failure, explained in one message on stderr; 2 wrong usage;
130 interrupted. Data goes to stdout, everything else to stderr.

Only click is imported before a sub-command is known, so that `storm --version` and shell completion
answer at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from squall_cli.groups import Group, summary
from squall_cli.options import Settings, settings_options

# The order and the groups in which `storm --help` shows them. Each has a module of its own in
# `squall_cli.commands`, named as here with "_" for "-".
SECTIONS: dict[str, tuple[str, ...]] = {
    "Topologies": (
        "new",
        "graph",
        "jar",
        "local",
        "flux",
        "spark",
        "shell",
        "package",
        "list",
        "status",
        "top",
        "monitor",
        "wait",
        "kill",
        "activate",
        "deactivate",
        "rebalance",
        "savepoint",
        "rolling-restart",
        "get-errors",
        "state",
        "logs",
        "report",
        "set_log_level",
        "upload-credentials",
        "profile",
        "drpc-client",
    ),
    "Files": ("blobstore",),
    "Security": ("login", "token", "proxy"),
    "Cluster on this machine": ("dev", "dev-zookeeper"),
    "Daemons": (
        "nimbus",
        "supervisor",
        "drpc",
        "ui",
        "logviewer",
        "kill_workers",
        "node-health-check",
        "doctor",
    ),
    "Information": ("localconfvalue", "remoteconfvalue", "version", "completion"),
    "Inspection": ("heartbeats", "admin"),
}

# Commands of Apache Storm that are not here, and why.
_LEFT_OUT = {
    "sql": "Storm SQL is not supported: its plans are compiled to Java. Write the query as bolts.",
    "classpath": "Squall has no class path: 'storm version' shows the Python that runs Squall, and "
    "docs/packages.md explains what a topology imports.",
    "server_classpath": "Squall has no class path: daemons run in the Python that 'storm version' "
    "shows.",
    "pacemaker": "Squall has no Pacemaker: workers report to Nimbus.",
    "repl": "Squall has no Clojure REPL: start python and import squall.",
}


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"squall_cli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["help"]:  # as Storm has it: `storm help`, `storm help jar`
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            import difflib

            if args[0] in _LEFT_OUT:
                ctx.fail(_LEFT_OUT[args[0]])
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint} 'storm --help' lists all commands.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, names in SECTIONS.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name, summary(command)))
            with formatter.section(section):
                formatter.write_dl(rows)


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from squall_cli.version import squall_version

        click.echo(f"Squall {squall_version()}")
        ctx.exit()


@click.group("storm", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Print the version and exit.",
)
@settings_options
def storm(settings: Settings) -> None:
    """Squall: Apache Storm for Python.

    Submit topologies to a cluster, manage them, and run the cluster's daemons. To try things out,
    start a cluster on this machine with: storm dev
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        result: Any = storm.main(args=args, prog_name="storm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (`storm list | head`), so there is nothing to say; the
        # interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from squall_common.errors import SquallError

        if not isinstance(error, SquallError):
            raise
        from squall_cli.output import print_error

        print_error(error)
        return 1
    return result if isinstance(result, int) else 0


def main() -> None:
    """The console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
