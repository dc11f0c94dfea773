"""The nodes of ZooKeeper in which a cluster keeps its state, for commands that inspect them."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall_cli.options import Settings
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from squall_common.cluster.access.digests import StoreAccess


def quiet_log() -> logging.Logger:
    """For a client whose faults the command reports itself: by default kazoo writes to stderr."""
    quiet = logging.getLogger("squall_cli.kazoo")
    if not quiet.handlers:
        quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet


@contextlib.contextmanager
def zookeeper(
    settings: Settings,
    *,
    servers: str | None = None,
    below_root: bool = True,
    timeout_secs: float | None = None,
) -> Iterator[KazooClient]:
    """A session with the ensemble of the configuration, or with `servers` (host:port,...); paths
    begin below `storm.zookeeper.root`, or at the top. Raises SquallError when it cannot connect,
    and for what ZooKeeper refuses meanwhile."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoAuthError
    from kazoo.handlers.threading import KazooTimeoutError

    from squall_common.cluster.access.configured import daemon_access

    options = settings.client()
    own = servers is None
    access = daemon_access(options) if own else None
    if servers is None:
        port = options.storm_zookeeper_port
        hosts = [f"[{one}]" if ":" in one else one for one in options.storm_zookeeper_servers]
        servers = ",".join(f"{host}:{port}" for host in hosts)
    root = options.storm_zookeeper_root if below_root else "/"
    client = KazooClient(
        hosts=servers + ("" if root == "/" else root),
        timeout=options.storm_zookeeper_session_timeout / 1000,
        logger=quiet_log(),
        auth_data=set() if access is None else {("digest", one) for one in access.payloads},
    )
    try:
        client.start(timeout_secs or options.storm_zookeeper_connection_timeout / 1000)
    except KazooTimeoutError as error:
        client.close()
        raise SquallError(
            f"ZooKeeper at {servers} does not answer",
            hint="storm.zookeeper.servers and storm.zookeeper.port say where it is looked for",
        ) from error
    except NoAuthError as error:
        client.stop()
        client.close()
        raise SquallError("ZooKeeper refused it: not allowed", hint=_NEEDS_DIGEST) from error
    try:
        if access is not None and below_root:
            client.default_acl = _default_acl(client, access)
        yield client
    except NoAuthError as error:
        raise SquallError(
            "ZooKeeper refused it: not allowed", hint=_NEEDS_DIGEST if own else None
        ) from error
    except KazooException as error:
        raise SquallError(f"ZooKeeper refused it: {reason(error)}") from error
    finally:
        client.stop()
        client.close()


_NEEDS_DIGEST = (
    "Its nodes are the daemons'. Run it on a node of the cluster, or with the daemons' "
    "storm.zookeeper.auth.payload.file."
)


def _default_acl(client: KazooClient, access: StoreAccess) -> list[Any] | None:
    """The list of nodes that a command makes: the daemons', once the cluster is closed."""
    from kazoo.exceptions import NoNodeError
    from kazoo.security import ACL, Id

    try:
        acls, _ = client.get_acls("/")
    except NoNodeError:
        return None
    if any(acl.id.scheme == "world" for acl in acls):
        return None
    return [ACL(one.rights, Id(one.who.scheme, one.who.id)) for one in access.lists.of("/")]


def reason(error: Exception) -> str:
    """What ZooKeeper answered, in words."""
    name = type(error).__name__.removesuffix("Error").removesuffix("Exception")
    words = {
        "NoNode": "there is no such node",
        "NodeExists": "the node exists already",
        "NotEmpty": "the node has children",
        "NoAuth": "not allowed",
        "NoChildrenForEphemerals": "an ephemeral node has no children",
        "BadVersion": "another version of the node is there",
    }
    return words.get(name, f"{name}: {error}" if str(error) else name)


def read_node(
    client: KazooClient,
    path: str,
    decode: Callable[[str, bytes], Any],
    missing: str | None = None,
) -> Any:
    """The value of a node as plain data for JSON. Raises SquallError if there is no such node, with
    `missing` as its hint, or if it cannot be decoded."""
    from kazoo.exceptions import NoNodeError

    try:
        data, _ = client.get(path)
    except NoNodeError:
        raise SquallError(f"there is no node {path} in the cluster's state", hint=missing) from None
    if not data:
        raise SquallError(f"nothing has been written to {path} yet")
    return plain(decode(path, data))


def signed_value(ca_file: str, kind: str, name: str, data: bytes) -> bytes:
    """The bytes that a node of a secured cluster carries signed. `kind` is the function of
    `squall_common.cluster.paths`. Raises SquallError for what does not count."""
    from squall_common.authentication.files import trust_of
    from squall_common.security.records import RecordError
    from squall_common.security.registrations import Registration
    from squall_common.security.topology_states import TopologyState

    trust = trust_of(ca_file)
    try:
        if kind == "supervisor":
            return Registration.verify(data, name, trust.cluster, trust.ca, (), time.time()).value
        if kind not in ("storm", "assignment"):
            return data
        state = TopologyState.verify(data.decode("ascii", "replace"), trust, name)
    except RecordError as error:
        raise SquallError(f"it is not what the cluster has signed: {error}") from error
    if kind == "storm":
        return state.base
    if state.assignment is None:
        raise SquallError(f"{name} has no assignment")
    return state.assignment


def plain(value: Any) -> Any:
    """A dataclass of the cluster's state as JSON has it; keys of maps become text such as `1-4` of
    an executor, or `NODE:PORT` of a slot."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {_key(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _key(key: Any) -> str:
    from squall_common.topology.model import Executor, WorkerSlot

    if isinstance(key, Executor):
        return f"{key.task_start}-{key.task_end}"
    if isinstance(key, WorkerSlot):
        return f"{key.node}:{key.port}"
    if isinstance(key, tuple):
        return ":".join(map(str, key))
    return str(key)
