"""Every command with --json has a schema on docs/json.md, and no schema is left over."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tests.support.json_schemas import schemas

from squall_cli.main import storm


def with_json(command: click.Command, name: str) -> Iterator[str]:
    """The commands that have a flag --json, by their full names."""
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), each)
            assert found is not None
            yield from with_json(found, f"{name} {each}")
    elif any("--json" in one.opts and one.name == "as_json" for one in command.params):
        yield name


def test_every_command_with_json_has_a_schema() -> None:
    assert set(schemas()) == set(with_json(storm, "storm"))
