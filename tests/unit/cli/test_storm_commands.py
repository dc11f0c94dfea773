"""docs/commands.md has each of Storm's commands, as it is here."""

from __future__ import annotations

import re
from pathlib import Path

import click

from squall_cli.main import storm

_NAMES = """
    jar local kill activate deactivate rebalance list set_log_level get-errors upload-credentials
    blobstore heartbeats monitor node-health-check kill_workers admin drpc-client shell
    localconfvalue remoteconfvalue classpath server_classpath version nimbus supervisor ui logviewer
    drpc pacemaker dev-zookeeper repl
"""
STORM = set(_NAMES.split())
PAGE = (Path(__file__).parents[3] / "docs" / "commands.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `([\w-]+)`(?: \*)? \| (.*?) ?\|", PAGE, re.M))


def test_the_table_has_all_of_storms_commands() -> None:
    assert len(STORM) == 31
    assert set(ROWS) == STORM


def test_each_flag_of_the_table_exists() -> None:
    context = click.Context(storm)
    for name, flags in ROWS.items():
        command = storm.get_command(context, name)
        if command is None:
            assert not flags, name
            continue
        known = {one for each in walk(command) for param in each.params for one in param.opts}
        named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", flags))
        assert named <= known, name


def test_the_page_names_all_commands_that_storm_does_not_have() -> None:
    sentence = PAGE.split("Commands that Storm does not have: ")[1].partition(";")[0]
    ours = set(storm.list_commands(click.Context(storm))) - STORM
    assert set(re.findall(r"`([\w-]+)`", sentence)) == ours


def walk(command: click.Command) -> list[click.Command]:
    """A command and those in it."""
    if not isinstance(command, click.Group):
        return [command]
    return [command, *(one for each in command.commands.values() for one in walk(each))]
