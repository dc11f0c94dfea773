"""Shared by all calls: their permission, and how errors reach the caller."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from squall_common.client.leader_search import WITHOUT_ZOOKEEPER
from squall_common.cluster.leader import NotLeaderError
from squall_common.cluster.store import StoreError
from squall_common.daemon.logs import get_logger
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.security.actions import action
from squall_nimbus.blobs.keys import KeyRefusedError
from squall_nimbus.blobs.store import BlobExistsError, BlobNotFoundError
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.topologies.lifecycle import NoTransitionError
from squall_nimbus.topologies.lifecycle_shell import TopologyNotAliveError
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


class Calls:
    """A group of calls."""

    def __init__(self, nimbus: Nimbus) -> None:
        self.nimbus = nimbus


def operation(permission_name: str) -> Callable[[F], F]:
    """Declare a call and the permission that it needs, and translate its errors."""

    def declare(method: F) -> F:
        @action(permission_name)
        @functools.wraps(method)
        async def call(*args: Any) -> Any:
            try:
                return await method(*args)
            except Exception as error:
                translated = _translated(error)
                if translated is None:
                    raise
                raise translated from error

        return cast(F, call)

    return declare


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
