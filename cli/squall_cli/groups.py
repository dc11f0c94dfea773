"""Groups of commands whose help shows the whole first sentence of each command."""

from __future__ import annotations

import click

_CHARS_MAX = 1000  # click would cut a sentence to what fits into one line


def summary(command: click.Command) -> str:
    """The first sentence of a command's help."""
    return command.get_short_help_str(limit=_CHARS_MAX)


class Group(click.Group):
    """A group of commands, such as `storm admin`."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries, which may take several lines."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, summary(one)) for name, one in found if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
