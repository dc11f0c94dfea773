"""`storm proxy`: let old clients use a secured cluster from this machine."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import say

if TYPE_CHECKING:
    from squall_cli.proxy.thrift import Streams, ThriftProxy
    from squall_cli.proxy.web import WebProxy
    from squall_common.config.options.typed import ClientOptions

_PORT = click.IntRange(0, 65_535)


@click.command("proxy")
@click.option(
    "--port",
    type=_PORT,
    default=6627,
    show_default=True,
    metavar="PORT",
    help="Port for clients of Nimbus (Thrift); 0 is any free one.",
)
@click.option(
    "--drpc-port",
    type=_PORT,
    metavar="PORT",
    help="Port for callers of DRPC functions (Thrift); without it there is none.",
)
@click.option(
    "--ui",
    metavar="URL",
    help="Address of the UI, as https://ui.example.org:8080; without it there is no --ui-port.",
)
@click.option(
    "--ui-port",
    type=_PORT,
    default=8080,
    show_default=True,
    metavar="PORT",
    help="Port for clients of the UI's REST API (HTTP).",
)
@json_option
@settings_options
def command(
    settings: Settings,
    port: int,
    drpc_port: int | None,
    ui: str | None,
    ui_port: int,
    as_json: bool,
) -> None:
    """Let clients without TLS and tokens use a secured cluster: streamparse, scripts with Thrift or
    curl.

    It listens on 127.0.0.1 for your own user alone, and adds your token, or the certificate of your
    configuration, to what goes to the cluster. It runs until Ctrl-C; 'storm login' may renew the
    token meanwhile.
    """
    from squall_cli.proxy.thrift import ThriftProxy
    from squall_common.authentication.credentials import credentials_of
    from squall_common.errors import SquallError
    from squall_common.security.identity import Role

    options = settings.client()
    if credentials_of(options) is None:
        raise SquallError(
            "this cluster is open: clients reach it without a proxy",
            hint="storm.security.ca makes a cluster a secured one (docs/security.md).",
        )
    proxies: dict[str, ThriftProxy | WebProxy] = {
        "nimbus": ThriftProxy("Nimbus", port, lambda: _open_nimbus(options))
    }
    if drpc_port is not None:
        if not options.drpc_servers:
            raise SquallError(
                "no DRPC server is configured",
                hint="Set drpc.servers to the hosts on which `storm drpc` runs.",
            )
        proxies["drpc"] = ThriftProxy("DRPC", drpc_port, lambda: _open_drpc(options))
    if ui is not None:
        from squall_cli.proxy.web import WebProxy
        from squall_cli.secure.browser import base_of

        credentials = credentials_of(options, Role.UI)
        assert credentials is not None
        proxies["ui"] = WebProxy(base_of(ui), ui_port, credentials)
    asyncio.run(_run(proxies, as_json))


async def _run(proxies: dict[str, ThriftProxy | WebProxy], as_json: bool) -> None:
    from squall_common.daemon.run import stop_signals

    stop = stop_signals()
    started = []
    try:
        for proxy in proxies.values():
            await proxy.start()
            started.append(proxy)
        if as_json:
            ports: dict[str, Any] = {name: proxy.port for name, proxy in proxies.items()}
            click.echo(json.dumps({"proxy": {**ports, "pid": os.getpid()}}))  # one line
        for name, proxy in proxies.items():
            say(f"{name:8}127.0.0.1:{proxy.port}")
        say("For this user alone, until Ctrl-C.")
        await stop.wait()
    finally:
        for proxy in started:
            await proxy.stop()


async def _open_nimbus(options: ClientOptions) -> Streams:
    """A connection to the leader."""
    from squall_common.authentication.credentials import credentials_of
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift.client import open_proved

    async with await NimbusClient.connect(options) as nimbus:
        host, port = nimbus.host, nimbus.port
    return await open_proved(host, port, credentials_of(options))


async def _open_drpc(options: ClientOptions) -> Streams:
    """A connection to one of the servers: the first that answers."""
    from squall_common.authentication.credentials import credentials_of
    from squall_common.security.identity import Role
    from squall_thrift.client import ThriftTransportError, open_proved

    credentials = credentials_of(options, Role.DRPC)
    reasons = []
    for host in options.drpc_servers or ():
        try:
            return await open_proved(host, options.drpc_port, credentials)
        except ThriftTransportError as error:
            reasons.append(str(error))
    raise ThriftTransportError("; ".join(reasons), sent=False)
