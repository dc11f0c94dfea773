"""`storm state`: look into stored state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say
from squall_common.names import decode_znode

if TYPE_CHECKING:
    from squall_common.state.checkpoint_store import CheckpointStore
    from squall_common.state.inspect import StoredTaskState
    from squall_common.telemetry.live_state import Entry, TaskAnswer

_VALUE_CHARS_MAX = 200


@click.group("state", cls=Group)
def command() -> None:
    """Look into the stored state of topologies."""


@command.command("inspect")
@click.argument("where", metavar="URL|TOPOLOGY")
@click.option("--topology", metavar="NAME", help="Of a URL: only the state of this topology.")
@click.option("--component", metavar="ID", help="Only the state of this bolt.")
@click.option("--keys", "list_keys", is_flag=True, help="List keys with their values.")
@click.option("--key", metavar="KEY", help="Print the value of a key: JSON, or plain text.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="List at most N keys.",
)
@click.option("--live", is_flag=True, help="Ask the workers of a running topology.")
@click.option(
    "--prefix",
    metavar="TEXT",
    help="With --live: list keys that begin with it; a JSON list for tuples.",
)
@click.option(
    "--after", metavar="ORDER", help="With --live: list what follows the last key of a page."
)
@click.option(
    "--stored",
    is_flag=True,
    help="With --live and --key: also the value in the last checkpoint.",
)
@json_option
@settings_options
def inspect(
    settings: Settings,
    where: str,
    topology: str | None,
    component: str | None,
    list_keys: bool,
    key: str | None,
    limit: int,
    live: bool,
    prefix: str | None,
    after: str | None,
    stored: bool,
    as_json: bool,
) -> None:
    """Show the stored state of bolts: tasks, keys and sizes.

    The store is named by its URL or path, or by a topology that runs, whose
    topology.state.url is asked for. The place of a savepoint is a store, too.
    Of a topology with checkpoints the last complete one is shown. With --keys
    or --key, its entries are read; a tuple is written as a JSON list. What is
    not stored yet, at most an interval's changes, is not shown.

    With --live the workers of a running topology are asked instead, which
    takes some seconds. They read their state between two tuples, and say
    whether a value is stored yet.
    """
    from squall_common.errors import SquallError
    from squall_common.state.checkpoint_store import CheckpointStore

    if live:
        if "/" in where or topology is not None:
            raise click.UsageError("--live asks a running topology: give its name")
        if stored and key is None:
            raise click.UsageError("--stored is for --key")
        lists = list_keys or prefix is not None or after is not None
        _print_live(
            settings, where, component, key, lists, prefix, limit, after, stored, as_json=as_json
        )
        return
    if prefix is not None or after is not None or stored:
        raise click.UsageError("--prefix, --after and --stored are for --live")

    url, epoch = where, 0
    if "/" not in where:
        (url, epoch), topology = _url_of(settings, where), where
    found = list(_states(CheckpointStore(url), topology, component, epoch))
    if not found:
        what = "".join(
            f" of {kind} {name!r}"
            for kind, name in (("topology", topology), ("bolt", component))
            if name is not None
        )
        raise SquallError(f"state{what} was not found in {url}")
    if list_keys or key is not None:
        _print_entries(found, key, limit, as_json=as_json)
    elif as_json:
        print_json([_as_json(one) for one in found])
    else:
        _print_tasks(found)
    damaged = [one.damage for one in found if one.damage is not None]
    if damaged:
        raise SquallError("\n".join(damaged))


def _print_live(
    settings: Settings,
    name: str,
    component: str | None,
    key: str | None,
    lists: bool,
    prefix: str | None,
    limit: int,
    after: str | None,
    stored: bool,
    *,
    as_json: bool,
) -> None:
    from squall_cli.observe.live_state import (
        ask,
        entries_as_json,
        require_answered,
        sizes_as_json,
        sizes_table,
    )
    from squall_common.errors import SquallError
    from squall_common.telemetry.live_state import LIMIT_MAX, Question

    if limit > LIMIT_MAX:
        raise click.UsageError(f"with --live a page has at most {LIMIT_MAX} keys (--limit)")
    question = Question(component, key, lists, prefix, limit, after)
    found = ask(settings.client(), name, question)
    if key is None and not lists:
        if as_json:
            print_json(sizes_as_json(name, found))
        elif found.tasks:
            print_table(*sizes_table(found))
        require_answered(found)
        if not found.tasks:
            raise SquallError(f"topology {name!r} has no bolt with state")
        return
    entries, more = found.entries(limit)
    kept = _stored_entries(settings, name, component, key) if stored and key is not None else []
    if as_json:
        print_json(entries_as_json(name, entries, kept, found))
    elif entries or kept:
        _print_live_entries(entries, kept, whole=key is not None)
    require_answered(found)
    if key is not None and not entries and not kept:
        raise SquallError(f"the key {key} was not found in any task's state")
    if more and entries:
        import shlex

        say(f"More keys follow: --after {shlex.quote(entries[-1][1].order)}")


def _stored_entries(
    settings: Settings, name: str, component: str | None, key: str
) -> list[dict[str, Any]]:
    """The entries of a key in the last checkpoint, or in what tasks have stored last."""
    from squall_common.state.checkpoint_store import CheckpointStore

    url, epoch = _url_of(settings, name)
    wanted, found = _forms_of(key), []
    for one in _states(CheckpointStore(url), name, component, epoch):
        for each, value in one.entries():
            if _plain(each) in wanted:
                entry = {"key": _plain(each), "value": _plain(value)}
                place = {"topology": name, "component": one.component, "task": one.task}
                as_of = f"checkpoint {epoch}" if epoch else "last snapshot"
                found.append({**place, **entry, "as_of": as_of})
    return found


def _print_live_entries(
    entries: Sequence[tuple[TaskAnswer, Entry]], kept: Sequence[dict[str, Any]], *, whole: bool
) -> None:
    from squall_cli.observe.live_state import as_of

    rows: list[tuple[object, ...]] = []
    for task, entry in entries:
        value = _short(entry.value, whole=whole) + (" (cut)" if entry.cut else "")
        what = as_of(entry, task.epoch, "checkpoint")
        rows.append((task.component, task.task, _short(entry.key), value, what))
    for one in kept:
        value = _short(one["value"], whole=whole)
        rows.append((one["component"], one["task"], _short(one["key"]), value, one["as_of"]))
    print_table(("BOLT", "TASK", "KEY", "VALUE", "AS OF"), rows)


def _url_of(settings: Settings, name: str) -> tuple[str, int]:
    """Where the state of a running topology is stored, and its last complete checkpoint (0: it
    takes none, or none was reported)."""
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_cli.cluster.state_place import state_options
    from squall_common.errors import SquallError

    client = settings.client()
    options = state_options(client, name)
    takes_checkpoints = options.topology_checkpoint_interval_secs is not None
    is_stored = options.topology_state_provider == "store" or takes_checkpoints
    if not is_stored or options.topology_state_url is None:
        raise SquallError(
            f"the state of {name!r} is not in a store: its topology.state.provider is "
            f"{options.topology_state_provider!r}",
            hint="only state of the provider 'store' and of checkpoints can be inspected",
        )
    if not takes_checkpoints:
        return options.topology_state_url, 0
    topology_id = call_nimbus(client, "getTopologySummaryByName", name).id
    page = call_nimbus(client, "getTopologyPageInfo", topology_id, ":all-time", False)
    return options.topology_state_url, page.checkpoints.epoch if page.checkpoints else 0


def _states(
    store: CheckpointStore, topology: str | None, component: str | None, epoch: int
) -> Iterator[StoredTaskState]:
    """The states that are in a store: of checkpoints, of a savepoint, or stored task by task."""
    from squall_common.state.inspect import (
        checkpoint_states,
        has_checkpoints,
        last_checkpoint,
        stored_states,
    )
    from squall_common.state.savepoint import find_savepoint

    savepoint = find_savepoint(store)
    if savepoint is not None:
        if topology in (None, savepoint.topology):
            yield from checkpoint_states(store, savepoint.manifest, component)
        return
    names = store.names() if topology is None else [topology]
    for name in names:
        if has_checkpoints(store, name):
            manifest = last_checkpoint(store, name, epoch)
            if manifest is not None:
                yield from checkpoint_states(store, manifest, component)
        else:
            yield from stored_states(
                store, decode_znode(name) if topology is None else name, component
            )


def _as_json(one: StoredTaskState) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "topology": one.topology,
        "component": one.component,
        "task": one.task,
    }
    if one.damage is not None:
        return {**answer, "damage": one.damage}
    footer = one.segments[-1].footer
    return {
        **answer,
        "tasks": footer.tasks,
        "max_parallelism": footer.max_parallelism,
        "keys": footer.keys,
        "bound_keys": footer.bound,
        "bytes": one.size,
        "segments": len(one.segments),
        "epoch": footer.epoch,
        "generation": footer.generation,
    }


def _print_tasks(found: Iterable[StoredTaskState]) -> None:
    rows: list[tuple[object, ...]] = []
    for one in found:
        if one.damage is not None:
            rows.append((one.topology, one.component, one.task, "damaged", "", "", "", ""))
            continue
        last = one.segments[-1].footer
        sizes = (last.keys, last.bound, one.size, len(one.segments), last.epoch)
        rows.append((one.topology, one.component, one.task, *map(str, sizes)))
    columns = ("TOPOLOGY", "BOLT", "TASK", "KEYS", "BOUND", "BYTES", "SEGMENTS", "EPOCH")
    print_table(columns, rows)


def _print_entries(
    found: Iterable[StoredTaskState], key: str | None, limit: int, *, as_json: bool
) -> None:
    from squall_common.errors import SquallError

    wanted = None if key is None else _forms_of(key)
    rows: list[tuple[StoredTaskState, Any, Any]] = []
    more = 0
    for one in found:
        for each, value in one.entries():
            if wanted is not None and _plain(each) not in wanted:
                continue
            if len(rows) < limit:
                rows.append((one, each, value))
            else:
                more += 1
    if key is not None and not rows:
        raise SquallError(f"the key {key} was not found in any task's state")
    if as_json:
        print_json(
            [
                {
                    "topology": one.topology,
                    "component": one.component,
                    "task": one.task,
                    "key": _plain(each),
                    "value": _plain(value),
                }
                for one, each, value in rows
            ]
        )
    else:
        columns = ("BOLT", "TASK", "KEY", "VALUE")
        listed = [
            (one.component, one.task, _short(each), _short(value, whole=key is not None))
            for one, each, value in rows
        ]
        print_table(columns, listed)
    if more:
        say(f"{more} more keys are not shown (--limit).")


def _forms_of(key: str) -> list[Any]:
    """What a key on the command line may mean."""
    import json

    try:
        return [key, json.loads(key)]
    except ValueError:
        return [key]


def _plain(value: Any) -> Any:
    """A value as JSON can have it."""
    from squall_common.state.stored_windows import StoredWindows

    if isinstance(value, StoredWindows):
        value = value.as_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    return repr(value)


def _short(value: Any, *, whole: bool = False) -> str:
    text = repr(value)
    return text if whole or len(text) <= _VALUE_CHARS_MAX else text[:_VALUE_CHARS_MAX] + "..."
