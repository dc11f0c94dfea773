"""`storm savepoint`: keep a checkpoint of a topology, list and remove those that are kept."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say
from squall_cli.topology_argument import topology_argument
from squall_common.config.options.typed import ClientOptions

if TYPE_CHECKING:
    from squall_common.state.savepoint import Listed
    from squall_thrift import storm

_LOOK_SECS = 0.3


@click.command("savepoint")
@topology_argument
@click.option(
    "--stop",
    is_flag=True,
    help="Kill the topology when it is taken; nothing that came after it takes effect.",
)
@click.option(
    "--to",
    "folder",
    metavar="URL",
    help="The folder of savepoints: a URL, or a path that all nodes and this machine see "
    "(default: in the topology's topology.state.url).",
)
@click.option("--name", metavar="NAME", help="Its name (default: the date and time).")
@click.option(
    "--timeout",
    "timeout_secs",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    metavar="SECS",
    help="How long to wait for it.",
)
@click.option("--list", "lists", is_flag=True, help="List the savepoints that there are.")
@click.option("--remove", metavar="NAME", help="Remove the savepoint of this name.")
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    stop: bool,
    folder: str | None,
    name: str | None,
    timeout_secs: int,
    lists: bool,
    remove: str | None,
    as_json: bool,
) -> None:
    """Take a savepoint of a topology: a checkpoint that is kept until it is removed.

    `storm jar --from-savepoint` starts a topology of the same name from it, also one with other
    code, components and parallelism. --list and --remove read the store from this machine; with
    --to they need no running topology.
    """
    if sum((stop or name is not None, lists, remove is not None)) > 1:
        raise click.UsageError("--list and --remove go with --to only, and not with each other")
    if folder is not None and "://" not in folder:
        folder = os.path.abspath(os.path.expanduser(folder))  # workers have other folders
    if lists:
        _list(_folder(settings, topology_name, folder), topology_name, as_json=as_json)
    elif remove is not None:
        _remove(_folder(settings, topology_name, folder), topology_name, remove, as_json=as_json)
    else:
        client = settings.client()
        result = _take(client, topology_name, folder, name, stop=stop, timeout_secs=timeout_secs)
        _tell(result, topology_name, stop=stop, as_json=as_json)


def _take(
    client: ClientOptions,
    topology_name: str,
    folder: str | None,
    name: str | None,
    *,
    stop: bool,
    timeout_secs: int,
) -> storm.SavepointResult:
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError
    from squall_common.state.savepoint import name_problem
    from squall_thrift import storm

    name = name or time.strftime("%Y%m%d-%H%M%S")
    if (why := name_problem(name)) is not None:
        raise SquallError(f"{name!r} cannot be a savepoint's name: {why}")
    topology_id = call_nimbus(client, "getTopologySummaryByName", topology_name).id
    asked_ms = int(time.time() * 1000)
    request = storm.SavepointRequest(name=name, asked_ms=asked_ms, folder=folder, stop=stop or None)
    call_nimbus(client, "savepoint", topology_name, request)
    deadline = time.monotonic() + timeout_secs
    with _withdrawn_on_error(client, topology_name, asked_ms):
        while True:
            page = call_nimbus(client, "getTopologyPageInfo", topology_id, ":all-time", False)
            result: storm.SavepointResult | None = page.checkpoints and page.checkpoints.savepoint
            if result is not None and result.asked_ms == asked_ms:
                break
            if time.monotonic() >= deadline:
                raise SquallError(
                    f"the savepoint was not taken within {timeout_secs} s; it may still be",
                    hint=f"storm status {topology_name} says what holds checkpoints up; "
                    f"storm savepoint {topology_name} --list lists savepoints",
                )
            time.sleep(_LOOK_SECS)
        if result.error is not None:
            raise SquallError(
                f"the savepoint was not taken: {result.error}",
                hint="the topology goes on as before",
            )
    if stop:
        call_nimbus(client, "killTopologyWithOpts", topology_name, storm.KillOptions())
    return result


@contextlib.contextmanager
def _withdrawn_on_error(client: ClientOptions, topology_name: str, asked_ms: int) -> Iterator[None]:
    """Withdraw the request if the wait for it ends without a savepoint, also by Ctrl-C: a worker
    that replaces the coordinating one would carry it out, and with --stop halt the topology."""
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError
    from squall_thrift import storm

    try:
        yield
    except BaseException:
        nameless = storm.SavepointRequest(name="", asked_ms=asked_ms)
        try:
            call_nimbus(client, "savepoint", topology_name, nameless)
        except SquallError as error:
            say(f"warning: the request was not withdrawn: {error.message}")
        raise


def _tell(result: storm.SavepointResult, topology_name: str, *, stop: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topology": topology_name,
                "action": "stop" if stop else "savepoint",
                "name": result.name,
                "place": result.place,
                "epoch": result.epoch,
                "size_bytes": result.size_bytes,
            }
        )
        return
    click.echo(result.place)
    say(f"Savepoint {result.name} of {topology_name} is checkpoint {result.epoch}.")
    if stop:
        say(f"Killed {topology_name}: it is removed when its sinks have written their rows.")


def _folder(settings: Settings, topology_name: str, folder: str | None) -> str:
    """The folder of savepoints: as given, or the one of a running topology."""
    if folder is not None:
        return folder
    from squall_cli.cluster.nimbus import NotAliveError
    from squall_cli.cluster.state_place import checkpoints_url
    from squall_common.errors import SquallError
    from squall_common.state.savepoint import folder_of

    try:
        return folder_of(checkpoints_url(settings.client(), topology_name), topology_name)
    except NotAliveError as error:
        raise SquallError(
            f"topology {topology_name!r} does not run, so its topology.state.url is not known",
            hint=f"name the folder: --to URL/{topology_name}/savepoints",
        ) from error


def _list(folder: str, topology_name: str, *, as_json: bool) -> None:
    from squall_common.state.savepoint import list_savepoints

    found = [
        one
        for one in list_savepoints(folder)
        if one.savepoint is None or one.savepoint.topology == topology_name
    ]
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows: list[tuple[object, ...]] = []
    for one in found:
        if one.savepoint is None:
            rows.append((one.name, "", "", "", one.place, one.problem))
            continue
        manifest = one.savepoint.manifest
        taken = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.time_ms / 1000))
        size = f"{manifest.size / 2**20:.1f} MiB"
        rows.append((one.name, taken, str(manifest.epoch), size, one.place, ""))
    print_table(("NAME", "TAKEN", "CHECKPOINT", "SIZE", "PLACE", "PROBLEM"), rows)


def _as_json(one: Listed) -> dict[str, Any]:
    manifest = None if one.savepoint is None else one.savepoint.manifest
    return {
        "name": one.name,
        "place": one.place,
        "time_ms": None if manifest is None else manifest.time_ms,
        "epoch": None if manifest is None else manifest.epoch,
        "size_bytes": None if manifest is None else manifest.size,
        "problem": one.problem,
    }


def _remove(folder: str, topology_name: str, name: str, *, as_json: bool) -> None:
    from squall_common.errors import SquallError
    from squall_common.state.checkpoint_store import CheckpointStore
    from squall_common.state.errors import StateDamagedError
    from squall_common.state.savepoint import (
        find_savepoint,
        name_problem,
        place_in,
        remove_savepoint,
    )

    if (why := name_problem(name)) is not None:
        raise SquallError(f"{name!r} is not a savepoint's name: {why}")
    place = place_in(folder, name)
    try:
        found = find_savepoint(CheckpointStore(place))
    except StateDamagedError:
        found = None  # a damaged one may be removed, too
    if found is not None and found.topology != topology_name:
        raise SquallError(f"the savepoint in {place} is of topology {found.topology!r}")
    files = remove_savepoint(place)
    if as_json:
        print_json({"action": "remove", "name": name, "place": place, "files": files})
    else:
        say(f"Removed savepoint {name} ({files} files).")
