"""`storm set_log_level`: change log levels in the workers of a topology."""

from __future__ import annotations

from typing import Any

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say
from squall_cli.topology_argument import topology_argument

# Storm's names.
_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
_SECS_MAX = 2**31 - 1


def _parse_levels(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[str, int]]:
    """LOGGER=LEVEL[:SECS] by logger; 0: without an end."""
    levels = {}
    for value in values:
        logger, equals, rest = value.rpartition("=")
        level, colon, secs = rest.partition(":")
        valid_secs = not colon or (secs.isdecimal() and secs.isascii() and len(secs) <= 10)
        if not equals or not logger or not valid_secs or int(secs or 0) > _SECS_MAX:
            raise click.BadParameter(f"{value!r} is not LOGGER=LEVEL or LOGGER=LEVEL:SECS")
        if level.upper() not in _LEVELS:
            raise click.BadParameter(f"{level!r} is not a level ({', '.join(_LEVELS)})")
        levels[logger] = (level.upper(), int(secs or 0))
    return levels


@click.command("set_log_level")
@topology_argument
@click.option(
    "-l",
    "levels",
    multiple=True,
    metavar="LOGGER=LEVEL[:SECS]",
    callback=_parse_levels,
    help="Set the level of a logger (repeatable), for SECS seconds or until it is removed. ROOT is "
    "the root logger.",
)
@click.option("-r", "removed", multiple=True, metavar="LOGGER", help="Remove a level that was set.")
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    levels: dict[str, tuple[str, int]],
    removed: tuple[str, ...],
    as_json: bool,
) -> None:
    """Set or remove log levels of a running topology; without options, show those that are set.

    LEVEL is ALL, TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF.
    """
    from squall_thrift import storm

    both = sorted(set(levels).intersection(removed))
    if both:
        raise click.UsageError(f"{', '.join(both)}: use either -l or -r")
    client = settings.client()
    changes = {name: storm.LogLevel(action=storm.LogLevelAction.REMOVE) for name in removed}
    for name, (level, secs) in levels.items():
        changes[name] = storm.LogLevel(
            action=storm.LogLevelAction.UPDATE,
            target_log_level=level,
            reset_log_level_timeout_secs=secs or None,
        )
    if changes:
        config = storm.LogConfig(named_logger_level=changes)
        call_nimbus(client, "setLogConfig", topology_name, config)
    found = call_nimbus(client, "getLogConfig", topology_name).named_logger_level or {}
    rows = [_row(name, level) for name, level in sorted(found.items())]
    if as_json:
        print_json({"topology": topology_name, "log_levels": rows})
    elif rows:
        print_table(("LOGGER", "LEVEL", "UNTIL"), (_shown(row) for row in rows))
    else:
        say(f"{topology_name} has no log levels of its own.")


def _row(name: str, level: Any) -> dict[str, Any]:
    """`level` is a LogLevel (Any: Thrift has every field optional)."""
    epoch_ms = level.reset_log_level_timeout_epoch
    return {
        "logger": name,
        "level": level.target_log_level,
        "until_secs": None if not epoch_ms else epoch_ms // 1000,
    }


def _shown(row: dict[str, Any]) -> tuple[str, str, str]:
    from datetime import datetime

    until = row["until_secs"]
    when = "" if until is None else f"{datetime.fromtimestamp(until):%Y-%m-%d %H:%M:%S}"
    return row["logger"], row["level"] or "", when
