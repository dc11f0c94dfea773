"""Calls to Nimbus: the leader is found, and what it refuses becomes a message for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.errors import NimbusError


class NotAliveError(NimbusError):
    """There is no such topology, or soon no more."""


def call_nimbus(conf: Mapping[str, Any], method: str, *args: Any) -> Any:
    """One call to the leader. Raises NimbusError with the reason when nobody answers or the call
    is refused. The result is the Thrift struct, hence Any."""
    from squall_common.client.nimbus import NimbusClient, run_nimbus
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    async def ask(client: NimbusClient) -> Any:
        return await client.call(method, *args)

    try:
        return run_nimbus(conf, ask)
    except storm.NotAliveException as error:
        raise NotAliveError(
            _reason(error, "there is no such topology"),
            hint="'storm list' shows the topologies that run.",
        ) from error
    except storm.AuthorizationException as error:
        raise NimbusError(f"not allowed: {_reason(error, method)}") from error
    except (storm.InvalidTopologyException, storm.AlreadyAliveException) as error:
        raise NimbusError(_reason(error, f"Nimbus refused {method}")) from error
    except ThriftApplicationError as error:
        raise NimbusError(
            f"Nimbus could not do {method}: {error}", hint="Its log says more."
        ) from error


def _reason(error: Exception, otherwise: str) -> str:
    return str(getattr(error, "msg", None) or otherwise)
