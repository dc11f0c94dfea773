"""`storm version`: describes this installation."""

import platform

import click

from squall_cli.options import json_option
from squall_cli.output import print_json
from squall_cli.version import core_name, squall_version

_WHY = {"pure": " (pure Python, two to three times slower: reinstall with a C compiler)"}


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the versions of Squall and Python, and the core that workers run."""
    core = core_name()
    if as_json:
        print_json({"squall": squall_version(), "python": platform.python_version(), "core": core})
    else:
        click.echo(f"Squall {squall_version()}")
        click.echo(f"Python {platform.python_version()}")
        click.echo(f"Core {core}" + ("" if core == "compiled" else _WHY.get(core, "")))
