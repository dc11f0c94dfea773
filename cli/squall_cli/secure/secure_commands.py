"""`storm admin secure`: an open cluster becomes a secured one, and its workers run on.

Works on the CA's folder and on ZooKeeper: Nimbus is stopped meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, settings_options
from squall_cli.output import printable, say
from squall_cli.secure.options import authority_option

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from squall_cli.secure.securing import Found, Node, Procedure
    from squall_common.security.takeover import Takeover

_FILE = "secure.json"
_ISSUED = "issued"


@click.group("secure", cls=Group)
def secure() -> None:
    """Turn a running open cluster into a secured one, step by step."""


@secure.command("begin")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="TOPOLOGY=USER",
    help="The owner that a topology gets (repeatable).",
)
@authority_option
@settings_options
def begin(settings: Settings, folder: Path, owners: tuple[str, ...]) -> None:
    """Show what there is, and make the daemons' certificates and their digest for ZooKeeper.

    Repeat it until every topology has an owner, and whenever something has changed.
    """
    from squall_cli.secure.zookeeper_digest import FILE as DIGEST_FILE
    from squall_cli.secure.zookeeper_digest import make_digest

    named = {}
    for one in owners:
        name, equals, user = one.partition("=")
        if not (name and equals and user):
            raise click.UsageError(f"{one!r} is not TOPOLOGY=USER")
        named[name] = user
    procedure = _read(folder)
    with _open_cluster(settings) as client:
        topologies, _ = _topologies(client)
        found = procedure.begun(topologies, _nodes(client), _nimbuses(client), named)
        _withdraw(client)
    _issue(found, folder)
    (folder / _ISSUED).mkdir(mode=0o700, exist_ok=True)
    if not (folder / _ISSUED / DIGEST_FILE).exists():
        make_digest(folder / _ISSUED / DIGEST_FILE)
    _write(found, folder)
    for topology in found.topologies:
        say(f"{printable(topology.id)}: {found.owner(topology) or 'whose is it? (--owner)'}")
        for key, digest in sorted(topology.hashes.items()):
            say(f"  {digest}  {printable(key)}")
    say(
        f"The daemons' certificates are in {folder / _ISSUED}: take them to their machines, and set"
    )
    say("  storm.security.ca, storm.security.certificate and storm.security.key there;")
    say(f"  and storm.zookeeper.auth.payload.file: {DIGEST_FILE}, the same on all machines.")
    say("Then stop every Nimbus (workers run on), and run 'storm admin secure confirm'.")


@secure.command("confirm")
@authority_option
@settings_options
def confirm(settings: Settings, folder: Path) -> None:
    """Sign what 'begin' has shown, while no Nimbus runs."""
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_common.cluster import paths
    from squall_common.cluster.store import NODE_BYTES_MAX
    from squall_common.errors import SquallError

    procedure, authority = _read(folder), AuthorityFolder(folder).load()
    with _open_cluster(settings) as client:
        topologies, takeover = _topologies(client)
        found = procedure.confirmed(topologies, _nimbuses(client))
        owners = {one.id: found.owner(one) or "" for one in topologies}
        text = _signed(takeover, owners).sign(authority.cluster, authority.key)
        if len(text) > NODE_BYTES_MAX:
            raise SquallError(
                f"{len(topologies)} topologies are too many to confirm at once: signed, they have "
                f"{len(text)} bytes, and a node of ZooKeeper has at most {NODE_BYTES_MAX}",
                hint="Kill the largest, and submit them again to the secured cluster.",
            )
        # First: a kill in between, and it is confirmed again.
        _write(found, folder)
        client.ensure_path(paths.SECURITY)
        if client.exists(paths.TAKEOVER) is None:
            client.create(paths.TAKEOVER, text.encode())
        else:
            client.set(paths.TAKEOVER, text.encode())
    say(f"{len(topologies)} topologies are confirmed for the next 24 hours.")
    say("Now restart every supervisor with its certificate, then start Nimbus with its own.")
    say("'storm admin secure status' says when it is done.")


@secure.command("status")
@authority_option
@settings_options
def status(settings: Settings, folder: Path) -> int:
    """Say how far it has come, and what comes next. Ends with 1 until it is done."""
    from squall_cli.cluster.cluster_nodes import zookeeper
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.securing import Event, State, next_state
    from squall_common.cluster import paths
    from squall_common.security.records import RecordError
    from squall_common.security.signing import Trust
    from squall_common.security.topology_states import Catalog

    procedure, authority = _read(folder), AuthorityFolder(folder).load()
    with zookeeper(settings) as client:
        data = client.get(paths.CATALOG)[0] if client.exists(paths.CATALOG) else b""
        running = _nimbuses(client)
    trust = Trust(authority.cluster, AuthorityFolder(folder).authorities())
    try:
        catalog = Catalog.verify(data.decode("ascii", "replace"), trust) if data else None
    except RecordError as error:
        say(f"The catalog in ZooKeeper does not count: {error}")
        catalog = None
    if catalog is not None and procedure.state in (State.CONFIRMED, State.DONE):
        from dataclasses import replace

        procedure = replace(procedure, state=next_state(procedure.state, Event.TAKEN_OVER))
        _write(procedure, folder)
    if procedure.state is State.DONE:
        say("The cluster is secured.")
        return 0
    if procedure.state is State.NONE:
        say("Nothing was begun: 'storm admin secure begin'.")
    elif procedure.state is State.LISTED:
        for name in procedure.without_owner():
            say(f"{printable(name)} has no owner yet.")
        nimbus = f"stop Nimbus at {', '.join(running)}, and " if running else ""
        say(f"The cluster was read. Next: {nimbus}'storm admin secure confirm'.")
    else:
        say("It is confirmed, and no leader has taken it over yet: start Nimbus with its")
        say("certificate; its log says what is in the way (round_failed).")
    return 1


@secure.command("cancel")
@authority_option
@settings_options
def cancel(settings: Settings, folder: Path) -> None:
    """Give it up: the cluster stays open. Certificates that were made stay, too."""
    from squall_cli.secure.securing import Event, Procedure, next_state

    next_state(_read(folder).state, Event.CANCELLED)
    with _open_cluster(settings) as client:
        _withdraw(client)
    _write(Procedure(), folder)
    say("It is given up: start Nimbus and the supervisors as before.")


@contextmanager
def _open_cluster(settings: Settings) -> Iterator[KazooClient]:
    """ZooKeeper of a cluster that is open. Raises SquallError if it is secured."""
    from squall_cli.cluster.cluster_nodes import zookeeper
    from squall_common.cluster import paths
    from squall_common.errors import SquallError

    with zookeeper(settings) as client:
        if client.exists(paths.CATALOG) is not None:
            raise SquallError(
                "this cluster is secured: its topologies are signed",
                hint="'storm admin secure status' says whether it is done.",
            )
        yield client


def _withdraw(client: KazooClient) -> None:
    from squall_common.cluster import paths

    if client.exists(paths.TAKEOVER) is not None:
        client.delete(paths.TAKEOVER)


def _topologies(client: KazooClient) -> tuple[tuple[Found, ...], Takeover]:
    """All topologies, and what there is to sign of them (without owners). Raises SquallError for
    what cannot be decoded: it cannot be taken over."""
    from squall_cli.secure.securing import Found
    from squall_common.cluster import blob_codec, codec, paths
    from squall_common.names import ANONYMOUS
    from squall_common.security.takeover import Taken, Takeover

    blobs = {}
    for key in _children(client, paths.BLOBSTORE):
        data = _value(client, paths.blob(key))
        if data:
            blobs[key] = blob_codec.decode_blob_record(paths.blob(key), data).meta.sha256
    found, taken = [], {}
    for name in sorted(_children(client, paths.STORMS)):
        path = paths.storm(name)
        data = _value(client, path)
        if data is None:
            continue  # removed just now
        base = codec.decode_storm_base(path, data)
        own = {key: digest for key, digest in blobs.items() if key.startswith(f"{name}-storm")}
        owner = base.owner or ANONYMOUS
        found.append(Found.of(name, owner, own, data))
        taken[name] = Taken(owner, data, _value(client, paths.assignment(name)))
    return tuple(found), Takeover(taken, blobs, int(time.time()))


def _signed(takeover: Takeover, owners: dict[str, str]) -> Takeover:
    from dataclasses import replace

    taken = {name: replace(one, owner=owners[name]) for name, one in takeover.topologies.items()}
    return replace(takeover, topologies=taken)


def _nodes(client: KazooClient) -> tuple[Node, ...]:
    from squall_cli.secure.securing import Node
    from squall_common.cluster import codec, paths

    found = []
    for name in sorted(_children(client, paths.SUPERVISORS)):
        path = paths.supervisor(name)
        data = _value(client, path)
        if data:
            found.append(Node(name, codec.decode_supervisor(path, data).hostname))
    return tuple(found)


def _nimbuses(client: KazooClient) -> tuple[str, ...]:
    """Those that run."""
    from squall_common.cluster import paths

    return tuple(sorted(_children(client, paths.NIMBUSES)))


def _children(client: KazooClient, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


def _value(client: KazooClient, path: str) -> bytes | None:
    from kazoo.exceptions import NoNodeError

    try:
        return bytes(client.get(path)[0])
    except NoNodeError:
        return None


def _issue(procedure: Procedure, folder: Path) -> None:
    """The certificates that daemons lack."""
    from squall_cli.secure.authority_folder import CERTIFICATE_DAYS, AuthorityFolder
    from squall_cli.secure.enrolment import is_issued
    from squall_common.security.identity import Role

    authority, out = AuthorityFolder(folder), folder / _ISSUED
    authority.load()
    wanted = [
        *((Role.NIMBUS, one.rpartition(":")[0]) for one in procedure.nimbuses),
        *((Role.SUPERVISOR, one.id) for one in procedure.nodes),
    ]
    hosts = {one.id: one.host for one in procedure.nodes}
    for role, name in wanted:
        names = [hosts.get(name, name)] if role is Role.SUPERVISOR else [name]
        file = out / f"{role.value}-{name}.pem"
        if not is_issued(authority.certificate, file, role, name, names, time.time()):
            authority.issue(role, name, names, out, days=CERTIFICATE_DAYS)


def _read(folder: Path) -> Procedure:
    from squall_cli.secure.securing import Procedure
    from squall_common.errors import SquallError

    try:
        found = Procedure.from_json((folder / _FILE).read_text())
    except FileNotFoundError:
        return Procedure()
    except (OSError, ValueError) as error:
        raise SquallError(f"{folder / _FILE} cannot be read: {error}") from error
    found.validate()
    return found


def _write(procedure: Procedure, folder: Path) -> None:
    from squall_common.daemon.files import write_atomic
    from squall_common.errors import SquallError

    procedure.validate()
    try:
        write_atomic(folder / _FILE, procedure.to_json().encode(), mode=0o600)
    except OSError as error:
        raise SquallError(f"cannot write {folder / _FILE}: {error.strerror}") from error
