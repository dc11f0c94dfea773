"""`storm upload-credentials`: replace the credentials of a running topology."""

from __future__ import annotations

from pathlib import Path

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument
from squall_common.errors import SquallError


@click.command("upload-credentials")
@topology_argument
@click.argument("pairs", nargs=-1, metavar="[KEY VALUE]...")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Java properties file with credentials: lines of key=value. Keys on the command line "
    "take precedence.",
)
@click.option("-u", "--user", "owner", metavar="USER", help="The owner of the topology.")
@click.option(
    "-e",
    "--exception-when-empty",
    "fail_when_empty",
    is_flag=True,
    help="Fail if there are no credentials.",
)
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    pairs: tuple[str, ...],
    path: Path | None,
    owner: str | None,
    fail_when_empty: bool,
    as_json: bool,
) -> None:
    """Replace the credentials of a running topology.

    They are stored in ZooKeeper, and 'storm admin creds' prints them. Workers of this version do
    not read them. Values on a command line are visible to other users of this machine; --file
    avoids that.
    """
    from squall_thrift import storm

    if len(pairs) % 2:
        raise click.UsageError(f"{pairs[-1]!r} has no value: give pairs of KEY and VALUE")
    credentials = {} if path is None else _read_properties(path)
    credentials |= dict(zip(pairs[::2], pairs[1::2], strict=True))
    client = settings.client()
    if credentials:
        sent = storm.Credentials(creds=credentials, topoOwner=owner)
        call_nimbus(client, "uploadNewCredentials", topology_name, sent)
    elif fail_when_empty:
        raise SquallError("there are no credentials to upload")
    if as_json:
        print_json({"topology": topology_name, "keys": sorted(credentials)})
    elif credentials:
        say(f"Uploaded {len(credentials)} credentials to {topology_name}.")
    else:
        say("There are no credentials to upload, and nothing was changed.")


def _read_properties(path: Path) -> dict[str, str]:
    """A file of `key=value`, `key: value` or `key value` lines; # and ! begin comments, and a
    backslash continues a line. Raises SquallError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SquallError(f"cannot read {path}: {reason}") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file."""
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """At the first separator that no backslash escapes."""
    at = 0
    while at < len(line) and line[at] not in "=: \t":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip()
    return line[:at], rest[1:].lstrip() if rest[:1] in ("=", ":") else rest


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        code = text[at + 2 : at + 6]
        if text[at + 1 : at + 2] == "u" and len(code) == 4 and _is_hex(code):
            parts.append(chr(int(code, 16)))
            at += 6
        else:
            following = text[at + 1 : at + 2]
            parts.append(_ESCAPES.get(following, following))
            at += 2
    return "".join(parts)


def _is_hex(text: str) -> bool:
    return all(one in "0123456789abcdefABCDEF" for one in text)
