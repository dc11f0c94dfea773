"""`storm blobstore`: files on the cluster that topologies share (`topology.blobstore.map`)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say


def _parse_acl(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    from squall_cli.cluster.blobs import parse_acl

    try:
        return parse_acl(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_file_option = click.option(
    "-f",
    "--file",
    "--FILE",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file (default: standard input or output).",
)


@contextlib.contextmanager
def _source(path: Path | None) -> Iterator[IO[bytes]]:
    """Raises SquallError."""
    from squall_common.errors import SquallError

    if path is None:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise SquallError(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        yield file


@contextlib.contextmanager
def _target(path: Path | None) -> Iterator[IO[bytes]]:
    """Write a file so that it is either complete or unchanged. Raises SquallError."""
    from squall_common.errors import SquallError

    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise SquallError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@click.group("blobstore", cls=Group)
def command() -> None:
    """List, read and change the files that topologies share.

    An access list says who may read, write and administer a blob: u:alice:rwa for a user, o::r for
    everyone else, separated by commas.
    """


@command.command("list")
@click.argument("keys", nargs=-1)
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Also the blobs of topologies: packages, configurations, keys and wheels.",
)
@json_option
@settings_options
def list_(settings: Settings, keys: tuple[str, ...], show_all: bool, as_json: bool) -> None:
    """Show the blobs of users, or the named ones."""
    from datetime import UTC, datetime

    from squall_cli.cluster.blobs import list_keys, run_blobs, show_acl
    from squall_common.names import is_system_blob
    from squall_thrift import storm

    async def ask(nimbus: Any) -> list[tuple[str, Any, int]]:
        rows = []
        for key in keys or await list_keys(nimbus):
            if not keys and not show_all and is_system_blob(key):
                continue
            try:
                meta = await nimbus.call("getBlobMeta", key)
                rows.append((key, meta, await nimbus.call("getBlobReplication", key)))
            except (storm.KeyNotFoundException, storm.AuthorizationException):
                if keys:
                    raise  # the others were deleted meanwhile, or this user may not read them
        return rows

    found = run_blobs(settings.client(), ask)
    if as_json:
        print_json(
            [
                {
                    "key": key,
                    "version": meta.version,
                    "replication": copies,
                    "acl": show_acl(meta.settable.acl),
                }
                for key, meta, copies in found
            ]
        )
        return
    if not found:
        say("There are no blobs." if show_all else "There are no blobs of users; --all lists all.")
        return
    print_table(
        ("KEY", "WRITTEN", "COPIES", "ACCESS"),
        (
            (
                key,
                datetime.fromtimestamp(meta.version / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
                copies,
                show_acl(meta.settable.acl),
            )
            for key, meta, copies in found
        ),
    )


@command.command("cat")
@click.argument("key")
@_file_option
@settings_options
def cat(settings: Settings, key: str, path: Path | None) -> None:
    """Write a blob's content to a file or to standard output."""
    from squall_cli.cluster.blobs import download, run_blobs

    client = settings.client()
    with _target(path) as target:
        run_blobs(client, lambda nimbus: download(nimbus, key, target))


def _done(as_json: bool, action: str, key: str, message: str, **more: Any) -> None:
    if as_json:
        print_json({"key": key, "action": action, **more})
    else:
        say(message)


@command.command("create")
@click.argument("key")
@_file_option
@click.option("-a", "--acl", metavar="LIST", callback=_parse_acl, help="The access list.")
@click.option(
    "-r",
    "--replication-factor",
    "replication",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of copies wanted (every Nimbus keeps one).",
)
@json_option
@settings_options
def create(
    settings: Settings,
    key: str,
    path: Path | None,
    acl: list[Any] | None,
    replication: int | None,
    as_json: bool,
) -> None:
    """Create a blob from a file or from standard input."""
    from squall_cli.cluster.blobs import run_blobs, upload
    from squall_thrift import storm

    meta = storm.SettableBlobMeta(acl=acl or [], replication_factor=replication)

    async def send(nimbus: Any) -> int:
        return await upload(nimbus, await nimbus.call("beginCreateBlob", key, meta), source)

    with _source(path) as source:
        size = run_blobs(settings.client(), send)
    _done(as_json, "create", key, f"Created blob {key}: {size} bytes.", bytes=size)


@command.command("update")
@click.argument("key")
@_file_option
@json_option
@settings_options
def update(settings: Settings, key: str, path: Path | None, as_json: bool) -> None:
    """Replace a blob's content; workers that use it get the new version."""
    from squall_cli.cluster.blobs import run_blobs, upload

    async def send(nimbus: Any) -> int:
        return await upload(nimbus, await nimbus.call("beginUpdateBlob", key), source)

    with _source(path) as source:
        size = run_blobs(settings.client(), send)
    _done(as_json, "update", key, f"Updated blob {key}: {size} bytes.", bytes=size)


@command.command("delete")
@click.argument("key")
@json_option
@settings_options
def delete(settings: Settings, key: str, as_json: bool) -> None:
    """Delete a blob that no topology uses."""
    from squall_cli.cluster.blobs import run_blobs

    run_blobs(settings.client(), lambda nimbus: nimbus.call("deleteBlob", key))
    _done(as_json, "delete", key, f"Deleted blob {key}.")


@command.command("set-acl")
@click.argument("key")
@click.option(
    "-s",
    "--set",
    "acl",
    required=True,
    metavar="LIST",
    callback=_parse_acl,
    help="The new access list.",
)
@json_option
@settings_options
def set_acl(settings: Settings, key: str, acl: list[Any], as_json: bool) -> None:
    """Replace a blob's access list."""
    from squall_cli.cluster.blobs import run_blobs, show_acl
    from squall_thrift import storm

    async def send(nimbus: Any) -> str:
        await nimbus.call("setBlobMeta", key, storm.SettableBlobMeta(acl=acl))
        return show_acl((await nimbus.call("getBlobMeta", key)).settable.acl)

    now = run_blobs(settings.client(), send)
    _done(as_json, "set-acl", key, f"Blob {key}: {now}", acl=now)


@command.command("replication")
@click.argument("key")
@click.option("--read", "read", is_flag=True, help="Show the number of copies.")
@click.option("--update", "change", is_flag=True, help="Set the number of copies wanted.")
@click.option(
    "-r",
    "--replication-factor",
    "replication",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of copies, with --update.",
)
@json_option
@settings_options
def replication_(
    settings: Settings,
    key: str,
    read: bool,
    change: bool,
    replication: int | None,
    as_json: bool,
) -> None:
    """Show the number of copies of a blob, or set the number wanted."""
    from squall_cli.cluster.blobs import run_blobs

    if read == change:
        raise click.UsageError("Use either --read or --update.")
    if change and replication is None:
        raise click.UsageError("--update needs -r N.")

    async def ask(nimbus: Any) -> int:
        if change:
            return int(await nimbus.call("updateBlobReplication", key, replication))
        return int(await nimbus.call("getBlobReplication", key))

    copies = run_blobs(settings.client(), ask)
    if as_json:
        print_json({"key": key, "replication": copies})
    else:
        print(f"{key} current replication factor {copies}")
