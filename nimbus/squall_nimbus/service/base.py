"""Shared by all calls: their permission, and how errors reach the caller."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from squall_common.client.leader_search import WITHOUT_ZOOKEEPER
from squall_common.cluster.leader import NotLeaderError
from squall_common.cluster.store import StoreError
from squall_common.daemon.logs import get_logger
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.security.access import Access, caller_of
from squall_common.security.acl import Object, Topology
from squall_common.security.actions import ACTIONS, Kind, action
from squall_nimbus.blobs.keys import KeyRefusedError
from squall_nimbus.blobs.store import BlobExistsError, BlobNotFoundError
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.topologies.lifecycle import NoTransitionError
from squall_nimbus.topologies.lifecycle_shell import ALLOWED, TopologyNotAliveError
from squall_nimbus.topologies.submit import TopologyAliveError
from squall_thrift import storm
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError
from squall_thrift.serving.authorization import Call

log = get_logger(__name__)

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")


def client_of(call: Call) -> str:
    """Return what identifies a client: its authenticated principal, else its address."""
    return call.principal or call.peer.rpartition(":")[0]


def user_of(call: Call) -> str | None:
    """The user who calls, whose quotas count; None for daemons, and in an open cluster."""
    caller = caller_of(call)
    return None if caller is None else caller.user


class Calls:
    """A group of calls."""

    def __init__(self, nimbus: Nimbus) -> None:
        self.nimbus = nimbus

    def _check_sessions(self, call: Call) -> None:
        """Raise QuotaError for a user who may not open another upload or download."""
        user = user_of(call)
        if user is not None:
            nimbus, peer = self.nimbus, client_of(call)
            has = nimbus.inbox.sessions_of(peer) + nimbus.blob_sessions.sessions_of(peer)
            nimbus.submitter.quotas.quotas.check_sessions(user, has)

    def _shown(
        self, call: Call, summaries: Sequence[storm.TopologySummary]
    ) -> list[storm.TopologySummary]:
        """The topologies of a list that the caller may look at."""
        nimbus = self.nimbus
        return nimbus.access.shown(
            call,
            "getTopologySummary",
            summaries,
            lambda one: nimbus.objects.topology(one.id, one.owner),
        )


# Finds the object of a call: (service, arguments) -> object.
Find = Callable[["Calls", tuple[Any, ...]], Awaitable[Object]]


def operation(
    action_name: str,
    *,
    by_name: str | None = None,
    by_id: str | None = None,
    by_either: str | None = None,
    of: Find | None = None,
    decides: bool = False,
) -> Callable[[F], F]:
    """Declare a call with its action and the object that it acts on, and translate its errors.

    The object is a topology that an argument names (`by_name`), has the id of (`by_id`) or either,
    or what `of` finds. With `decides` the method asks `nimbus.access` itself. Raises TypeError if
    the action needs an object and none of these is given.
    """

    def declare(method: F) -> F:
        find = of or _topology(method, by_name, by_id, by_either)
        if find is None and not decides and ACTIONS[action_name].kind is not Kind.CLUSTER:
            raise TypeError(f"{method.__name__} does not say which object {action_name} acts on")

        argument = by_name or by_either
        said = None if argument is None else _position(method, argument)

        @action(action_name)
        @functools.wraps(method)
        async def call(*args: Any) -> Any:
            try:
                service, request = args[:2]
                access = service.nimbus.access
                if find is not None and access.secured:
                    thing = await find(service, args[2:])
                    if isinstance(thing, Topology):
                        _require_visible(access, request, action_name, thing, args[2:])
                    access.require(request, action_name, thing)
                    if said is not None and isinstance(thing, Topology):
                        token = ALLOWED.set((args[said], thing.id))
                        try:
                            return await method(*args)
                        finally:
                            ALLOWED.reset(token)
                return await method(*args)
            except Exception as error:
                translated = _translated(error)
                if translated is None:
                    raise
                raise translated from error

        return cast(F, call)

    return declare


def _require_visible(
    access: Access, call: Call, action_name: str, thing: Topology, arguments: tuple[Any, ...]
) -> None:
    """A topology that its caller may not even look at does not exist for it. Raises
    TopologyNotAliveError, as for one that does not."""
    if not (access.may(call, action_name, thing) or access.may(call, "getTopologyInfo", thing)):
        with contextlib.suppress(storm.AuthorizationException):
            access.require(call, action_name, thing)  # for the audit log
        raise TopologyNotAliveError(thing.name if thing.name in arguments else thing.id)


def _position(method: Callable[..., Any], argument: str) -> int:
    return list(inspect.signature(method).parameters).index(argument)


def _topology(
    method: Callable[..., Any], by_name: str | None, by_id: str | None, by_either: str | None
) -> Find | None:
    """Finds the topology that an argument of a method says."""
    argument = by_name or by_id or by_either
    if argument is None:
        return None
    at = _position(method, argument) - 2  # self, call

    async def find(service: Calls, arguments: tuple[Any, ...]) -> Object:
        said = needed(arguments[at], argument)
        nimbus = service.nimbus
        if by_id is not None or (
            by_either is not None and said in await nimbus.state.topology_ids()
        ):
            return nimbus.objects.topology(said, (await nimbus.reader.base(said)).owner)
        topology_id, base = await nimbus.lifecycle.find(said)
        return nimbus.objects.topology(topology_id, base.owner)

    return find


def _translated(error: Exception) -> Exception | None:
    """Return the exception that the caller gets. One that a method does not declare must be a
    ThriftApplicationError; unexpected errors stay as they are, and the server logs them."""
    match error:
        case TopologyNotAliveError():
            return storm.NotAliveException(msg=str(error))
        case TopologyAliveError():
            return storm.AlreadyAliveException(msg=str(error))
        case InvalidTopologyError():
            return storm.InvalidTopologyException(msg=str(error))
        case BlobNotFoundError():
            return storm.KeyNotFoundException(msg=f"there is no blob {error.args[0]}")
        case KeyRefusedError():
            return storm.AuthorizationException(msg=str(error))
        case BlobExistsError():
            return storm.KeyAlreadyExistsException(msg=f"blob {error.args[0]} exists already")
        case NoTransitionError() | SquallError():
            return refused(str(error))
        case NotLeaderError():
            return refused(f"no longer the leader: {error}")
        case StoreError():
            log.warning("call_failed_on_zookeeper", error=error)
            return refused(f"{WITHOUT_ZOOKEEPER}: {error}")
    return None


def refused(message: str) -> ThriftApplicationError:
    """Return an error for the caller where the interface declares none that fits."""
    return ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, message)


def needed(value: T | None, name: str) -> T:
    """Return an argument that must be present: on the wire, all of Thrift's are optional."""
    if value is None:
        raise ThriftApplicationError(
            ApplicationErrorType.PROTOCOL_ERROR, f"argument {name} is missing"
        )
    return value
