"""`storm admin`: look into a cluster's state and repair it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.groups import Group
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, printable, say
from squall_cli.secure.ca_commands import ca
from squall_cli.secure.secure_commands import secure

if TYPE_CHECKING:
    from kazoo.client import KazooClient


@click.group("admin", cls=Group)
def command() -> None:
    """Look into the state of a cluster, and repair it; make certificates."""


command.add_command(ca)
command.add_command(secure)


@command.command("zookeeper-digest")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--replace", is_flag=True, help="Put a new one before those that FILE has.")
def zookeeper_digest(file: Path, replace: bool) -> None:
    """Make the digest by which daemons prove to ZooKeeper who they are.

    FILE is for storm.zookeeper.auth.payload.file, the same on every node.
    """
    from squall_cli.secure.zookeeper_digest import make_digest, replace_digest

    if replace:
        replace_digest(file)
        say(f"{file} has a new digest, and those that are still accepted below it.")
        say("Copy it to every node; restart the supervisors, then each Nimbus (docs/security.md).")
    else:
        make_digest(file)
        say(f"storm.zookeeper.auth.payload.file: {file.absolute()}")


def _check_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value or "/" in value or value in (".", ".."):
        raise click.BadParameter(f"{value!r} cannot be an id")
    return value


_DECODERS = {
    "credentials": "decode_credentials",
    "storm": "decode_storm_base",
    "supervisor": "decode_supervisor",
    "assignment": "decode_assignment",
}


def _printer(name: str, node: str, help_text: str, missing: str | None = None) -> None:
    """Add a command that prints one node of the cluster's state; `node` is its function in
    `squall_common.cluster.paths`, `missing` what to know where there is none."""

    @command.command(name, help=help_text)
    @click.argument("node_id", metavar="ID", callback=_check_name)
    @settings_options
    def print_one(settings: Settings, node_id: str) -> None:
        from squall_cli.cluster.cluster_nodes import read_node, signed_value, zookeeper
        from squall_common.cluster import codec, paths

        path, decode = getattr(paths, node)(node_id), getattr(codec, _DECODERS[node])
        ca = settings.client().storm_security_ca
        with zookeeper(settings) as client:
            if ca is not None and node in ("storm", "assignment"):
                at = paths.signed_state(node_id)
            else:
                at = path

            def decode_signed(at: str, data: bytes) -> object:
                return decode(path, data if ca is None else signed_value(ca, node, node_id, data))

            print_json(read_node(client, at, decode_signed, missing))


_printer(
    "creds",
    "credentials",
    "Print the credentials that Storm, or an earlier version, left in ZooKeeper.",
    "Squall keeps credentials sealed with Nimbus, which shows them to no one; "
    "`storm upload-credentials` replaces them.",
)
_printer("print_topo", "storm", "Print the state of a topology as JSON.")
_printer("print_super", "supervisor", "Print what a supervisor has published as JSON.")
_printer("print_assignment", "assignment", "Print the assignment of a topology as JSON.")


@command.command("remove_corrupt_topologies")
@click.option("--dry-run", is_flag=True, help="Only list them.")
@json_option
@settings_options
def remove_corrupt_topologies(settings: Settings, dry_run: bool, as_json: bool) -> None:
    """Kill the topologies whose code or configuration no Nimbus has."""
    from squall_common.names import code_blob_key, conf_blob_key, jar_blob_key
    from squall_thrift import storm

    client = settings.client()
    corrupt = [
        one
        for one in call_nimbus(client, "getTopologySummaries")
        if one.status != "KILLED"
        and not all(
            call_nimbus(client, "isRemoteBlobExists", key(one.id))
            for key in (code_blob_key, conf_blob_key, jar_blob_key)
        )
    ]
    for one in corrupt:
        if not dry_run:
            options = storm.KillOptions(wait_secs=0)
            call_nimbus(client, "killTopologyWithOpts", one.name, options)
    if as_json:
        print_json({"corrupt": [one.id for one in corrupt], "removed": not dry_run})
    elif not corrupt:
        say("No topology is corrupt.")
    else:
        for one in corrupt:
            say(f"{'Found' if dry_run else 'Killed'} {one.id}: its code or configuration is lost.")


_ZK_HELP = """\
ls PATH             list the children of a node
get PATH            print a node's value
stat PATH           print a node's version, size and times
create PATH [DATA]  make a node                (with --write)
set PATH DATA       change a node's value      (with --write)
delete PATH         delete a node              (with --write)
deleteall PATH      delete a node and all below (with --write)
help, quit"""


@command.command("zk_cli")
@click.option("-s", "--server", metavar="HOST:PORT,...", help="Instead of the configured servers.")
@click.option(
    "-t",
    "--time-out",
    "timeout_secs",
    type=click.FloatRange(min=0.1),
    metavar="SECS",
    help="Time to connect (default: storm.zookeeper.connection.timeout).",
)
@click.option("-w", "--write", is_flag=True, help="Allow changes.")
@click.option("-n", "--no-root", is_flag=True, help="Begin at /, not at storm.zookeeper.root.")
@settings_options
def zk_cli(
    settings: Settings, server: str | None, timeout_secs: float | None, write: bool, no_root: bool
) -> int:
    """Read and change nodes of ZooKeeper, from a terminal or a pipe. Type 'help' for commands."""
    from squall_cli.cluster.cluster_nodes import zookeeper

    failed = False
    with zookeeper(
        settings, servers=server, below_root=not no_root, timeout_secs=timeout_secs
    ) as client:
        interactive = sys.stdin.isatty()
        while True:
            if interactive:
                click.echo("zk> ", nl=False, err=True)
            line = sys.stdin.readline()
            if not line or line.strip() in ("quit", "exit"):
                break
            try:
                answer = _answer(client, line, write=write)
            except _ZkError as error:
                failed = True
                say(f"error: {error}")
            else:
                if answer:
                    click.echo(answer)
    return 1 if failed and not interactive else 0


class _ZkError(Exception):
    """A line of zk_cli that was not carried out, and why."""


_READS = {"ls": 1, "get": 1, "stat": 1}  # by name: the number of arguments
_WRITES = {"create": 2, "set": 2, "delete": 1, "deleteall": 1}


def _answer(client: KazooClient, line: str, *, write: bool) -> str:
    """Carry out one line. Raises _ZkError."""
    from kazoo.exceptions import KazooException

    from squall_cli.cluster.cluster_nodes import reason

    try:
        name, *arguments = shlex.split(line) or ["help"] if line.strip() else [""]
    except ValueError as error:
        raise _ZkError(str(error)) from error
    if not name:
        return ""
    if name == "help":
        return _ZK_HELP
    number = {**_READS, **_WRITES}.get(name)
    if number is None:
        raise _ZkError(f"unknown command {name!r}; 'help' lists all")
    if name == "create" and len(arguments) == 1:
        arguments.append("")
    if len(arguments) != number:
        raise _ZkError(f"{name} takes {number} arguments, got {len(arguments)}")
    if name in _WRITES and not write:
        raise _ZkError(f"{name} changes nodes: start zk_cli with --write")
    try:
        return _carry_out(client, name, *arguments)
    except KazooException as error:
        raise _ZkError(f"{arguments[0]}: {reason(error)}") from error
    except ValueError as error:  # of a path that kazoo does not take
        raise _ZkError(str(error)) from error


def _carry_out(client: KazooClient, name: str, path: str, data: str = "") -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not a path such as /storms")
    if name == "ls":
        return "\n".join(printable(one) for one in sorted(client.get_children(path)))
    if name == "get":
        value, _ = client.get(path)
        return printable(_text(value))
    if name == "stat":
        _, found = client.get(path)
        fields: dict[str, Any] = found._asdict()
        return "\n".join(f"{key} {value}" for key, value in fields.items())
    if name == "create":
        client.create(path, data.encode())
    elif name == "set":
        client.set(path, data.encode())
    else:
        client.delete(path, recursive=name == "deleteall")
    return ""


def _text(value: bytes) -> str:
    """A node's value; the cluster's own are gzipped Thrift, which admin print_... decodes."""
    return value.decode("utf-8", "backslashreplace")
