"""Calls to Nimbus: finds the leader, and turns its refusals into messages for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift.client import ThriftApplicationError

T = TypeVar("T")


class NotAliveError(NimbusError):
    """There is no such topology, or it is being killed."""


def call_nimbus(options: ClientOptions, method: str, *args: Any) -> Any:
    """One call to the leader. Raises NimbusError with the reason when no Nimbus answers or the
    call is refused. The result is the Thrift struct, hence Any."""

    async def ask(client: NimbusClient) -> Any:
        return await client.call(method, *args)

    return ask_nimbus(options, ask, method)


def ask_nimbus(
    options: ClientOptions, action: Callable[[NimbusClient], Awaitable[T]], method: str
) -> T:
    """Run `action`, which makes several calls, over one connection to the leader. Raises as
    `call_nimbus` does; errors name `method`."""
    from squall_common.client.nimbus import run_nimbus
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    try:
        return run_nimbus(options, action)
    except storm.NotAliveException as error:
        raise NotAliveError(
            _reason(error, "no such topology"),
            hint="'storm list' shows the running topologies.",
        ) from error
    except storm.AuthorizationException as error:
        raise NimbusError(f"not allowed: {_reason(error, method)}") from error
    except (storm.InvalidTopologyException, storm.AlreadyAliveException) as error:
        raise NimbusError(_reason(error, f"Nimbus refused {method}")) from error
    except ThriftApplicationError as error:
        if is_refusal(error):
            raise NimbusError(error.message) from error
        raise NimbusError(
            f"the call {method} failed in Nimbus: {error}", hint="Nimbus' log has details."
        ) from error


def is_refusal(error: ThriftApplicationError) -> bool:
    """Whether Nimbus understood the call and says why it does not do it, with an exception that
    Storm's interface does not declare for it. Then the message is for the user, and the log has no
    more. Failures inside a server, Squall's or Storm's, begin with "internal error"."""
    from squall_thrift.protocol.messages import ApplicationErrorType

    return (
        error.type is ApplicationErrorType.INTERNAL_ERROR
        and error.message != ""
        and not error.message.lower().startswith("internal error")
    )


def _reason(error: Exception, otherwise: str) -> str:
    return str(getattr(error, "msg", None) or otherwise)
