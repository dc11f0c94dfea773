"""`storm version`: what this installation is."""

import platform

import click

from squall_cli.options import json_option
from squall_cli.output import print_json
from squall_cli.version import squall_version


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the versions of Squall and of Python."""
    if as_json:
        print_json({"squall": squall_version(), "python": platform.python_version()})
    else:
        click.echo(f"Squall {squall_version()}")
        click.echo(f"Python {platform.python_version()}")
