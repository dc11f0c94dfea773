"""`storm dev-zookeeper`: a real ZooKeeper server for development."""

from __future__ import annotations

from pathlib import Path

import click

from squall_cli.options import Settings, json_option, settings_options


@click.command("dev-zookeeper")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    metavar="PORT",
    help="Client port; 0 chooses a free one (default: storm.zookeeper.port).",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the server's data (default: dev.zookeeper.path).",
)
@json_option
@settings_options
def command(settings: Settings, port: int | None, data_dir: Path | None, as_json: bool) -> int:
    """Run a real ZooKeeper server on 127.0.0.1 until Ctrl-C.

    The server comes from the jars that PySpark ships, or from Debian's package. With --json, one
    line of JSON on stdout gives its address, once it serves.
    """
    import asyncio

    from squall_common.config.options.typed import ClientOptions

    options = ClientOptions.read(settings.load(daemon=True))
    folder = data_dir or Path(options.dev_zookeeper_path)
    client_port = options.storm_zookeeper_port if port is None else port
    return asyncio.run(_serve(folder.absolute(), client_port, as_json=as_json))


async def _serve(data_dir: Path, port: int, *, as_json: bool) -> int:
    import asyncio
    import json
    import signal
    import sys

    from squall_cli.cluster.zookeeper import DevZooKeeper
    from squall_cli.output import say
    from squall_common.errors import SquallError

    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked.set)
    server = DevZooKeeper(data_dir, port=port)
    try:
        await server.start()
        if as_json:
            place = {"host": server.host, "port": server.port, "pid": server.pid}
            sys.stdout.write(json.dumps({**place, "data_dir": str(data_dir)}) + "\n")
            sys.stdout.flush()
        else:
            say(f"ZooKeeper serves on {server.address} (process {server.pid}), data in {data_dir}")
            say("Ctrl-C stops it.")
        pid = server.pid
        if pid is not None and not await _asked_before_end(asked, pid):
            raise SquallError("ZooKeeper exited unexpectedly", hint=f"See {server.log_file}")
    finally:
        await server.stop()
    return 0


async def _asked_before_end(asked: object, pid: int) -> bool:
    """Wait until we are asked to stop (True), or the process exits by itself (False)."""
    import asyncio
    import os

    assert isinstance(asked, asyncio.Event)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    loop.add_reader(pidfd, ended.set)
    waits = [asyncio.ensure_future(event.wait()) for event in (asked, ended)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return asked.is_set()
