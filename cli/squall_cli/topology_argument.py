"""The argument TOPOLOGY_NAME, which a shell completes with the names that Nimbus knows."""

from __future__ import annotations

import contextlib
import io

import click

from squall_cli.options import Settings

# A person waits for the shell.
_QUICK = ("storm.nimbus.retry.times=0", "storm.thrift.socket.timeout.ms=2000")


def complete_topology(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of topologies that begin with `incomplete`; none when Nimbus does not answer."""
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError

    with contextlib.redirect_stderr(io.StringIO()):  # a warning would land in the line typed
        try:
            found = call_nimbus(_settings(ctx).client(), "getTopologySummaries")
        except SquallError:
            return []
    return sorted(one.name for one in found if one.name.startswith(incomplete))


def _settings(ctx: click.Context) -> Settings:
    """What was given on the line so far; commands have not run, so the contexts hold it."""
    settings = Settings(None, _QUICK)
    line: list[click.Context] = []
    at: click.Context | None = ctx
    while at is not None:
        line.insert(0, at)
        at = at.parent
    for one in line:
        settings = Settings(
            one.params.get("config_file") or settings.config_file,
            settings.overrides + tuple(one.params.get("overrides") or ()),
        )
    return settings


topology_argument = click.argument("topology_name", shell_complete=complete_topology)
