"""The life of a daemon with one HTTP listener: the UI and the logviewer.

Once it listens, it prints one line on stdout: `{NAME: {"host": ..., "port": 8080, "pid": 4711}}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from squall_common.config.load import warn_of_ignored
from squall_common.config.options.typed import LogviewerOptions, UiOptions
from squall_common.daemon.logs import get_logger
from squall_common.daemon.output.printing import print_if_possible
from squall_common.daemon.run import (
    begin_daemon,
    read_daemon_conf,
    run_daemon,
    set_up_daemon_log,
    stop_signals,
    watch_loop,
)
from squall_common.errors import SquallError

log = get_logger(__name__)

Conf = Mapping[str, Any]


class Server(Protocol):
    """A listener with what it needs."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def start(self) -> None:
        """Listen. Raises SquallError."""

    async def stop(self) -> None:
        """Close everything."""


def run_http_daemon(
    name: str,
    options_of: Callable[[Conf], UiOptions | LogviewerOptions],
    make_server: Callable[[Conf], Server],
) -> int:
    """Run with the configuration file named by the environment, until SIGTERM or SIGINT; returns
    the exit status. `make_server` is called on the event loop."""
    begin_daemon()
    try:
        conf = read_daemon_conf(os.environ, f"storm {name}")
        options = options_of(conf)
        set_up_daemon_log(
            name,
            level=options.storm_log_level,
            folder=options.storm_log_dir,
            form=options.storm_log_format,
        )
        warn_of_ignored(conf)
        return run_daemon(_serve(name, lambda: make_server(conf)))
    except SquallError as error:
        print_if_possible(f"{name}: {error}", sys.stderr)
        return 1


async def _serve(name: str, make_server: Callable[[], Server]) -> int:
    stop = stop_signals()
    server = make_server()
    await server.start()
    ready = {"host": server.host, "port": server.port, "pid": os.getpid()}
    watch_loop()
    log.info(f"{name}_started", **ready)
    print_if_possible(json.dumps({name: ready}), sys.stdout)
    await stop.wait()
    await server.stop()
    return 0
