"""The Nimbus process: configuration, logs, signals, ZooKeeper, the listener.

Once it answers calls, it writes one line to stdout, from which a parent process learns a port that
was left open: `{"nimbus": {"host": "127.0.0.1", "port": 6627, "pid": 4711}}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from squall_common.authentication.latch import require_role
from squall_common.cluster.access.configured import daemon_access
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import AccessDeniedError, StoreError
from squall_common.config.load import warn_of_ignored
from squall_common.config.options.typed import NimbusOptions
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
from squall_common.security.access import SecuredAccess
from squall_common.security.identity import Role
from squall_nimbus.composition import build_nimbus
from squall_nimbus.service import NimbusService
from squall_nimbus.service.limits import LIMITS
from squall_thrift import storm
from squall_thrift.serving.server import InsecureListenerError, ThriftServer

if TYPE_CHECKING:
    from squall_common.telemetry.page import DaemonMetrics
    from squall_thrift.serving.authentication import Authenticator

log = get_logger(__name__)

# After this long without ZooKeeper, tell the person who is waiting why.
_ZOOKEEPER_PATIENCE_SECS = 3.0
_STOP_GRACE_SECS = 5.0
_PROOFS_SECS = 2.0


def main() -> int:
    """Run with the configuration that the environment names; return the exit status."""
    begin_daemon()
    try:
        return run(read_daemon_conf(os.environ, "storm nimbus"))
    except SquallError as error:
        print_if_possible(f"nimbus: {error}", sys.stderr)
        return 1


def run(conf: Mapping[str, Any]) -> int:
    """Run Nimbus until SIGTERM or SIGINT. Raises SquallError for problems that a person can fix."""
    options = NimbusOptions.read(conf)
    level, folder = options.storm_log_level, options.storm_log_dir
    set_up_daemon_log("nimbus", level=level, folder=folder, form=options.storm_log_format)
    warn_of_ignored(conf)
    return run_daemon(_run(options, conf))


def reachable_host(options: NimbusOptions) -> str:
    """Return the name under which others reach this Nimbus: `storm.local.hostname`; else the
    address it listens on, if that is loopback; else this machine's name."""
    if options.storm_local_hostname is not None:
        return options.storm_local_hostname
    bind = options.storm_bind_host
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(bind)
        return bind if not address.is_unspecified else socket.getfqdn()
    return bind


async def _run(options: NimbusOptions, conf: Mapping[str, Any]) -> int:
    stop = stop_signals()
    bind, port = options.storm_bind_host, options.nimbus_thrift_port
    _check_port(bind, port)
    if options.nimbus_legacy_thrift_port is not None:
        _check_port(bind, options.nimbus_legacy_thrift_port, "nimbus.legacy.thrift.port")
    access = daemon_access(options)
    state = ClusterState.of(options, access)
    metrics = None
    if options.nimbus_metrics_port is not None or _has_reporters(options):
        # Imported only when it is wanted: it takes some 30 ms.
        from squall_common.telemetry.page import DaemonMetrics

        metrics = DaemonMetrics("nimbus")
        metrics.follow(state.store)
    try:
        if not await _connect(state, options, stop):
            return 0
        port = port or _check_port(bind, 0)
        return await _serve(options, conf, state, port, stop, metrics, access)
    finally:
        await state.close()


def _has_reporters(options: NimbusOptions) -> bool:
    return bool(
        options.storm_daemon_metrics_reporters or options.storm_daemon_metrics_reporter_plugins
    )


def _check_port(host: str, port: int, key: str = "nimbus.thrift.port") -> int:
    """Return the port to listen on (0: a free one). This is checked first, so that a second Nimbus
    on the same port says so at once. Raises SquallError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise _cannot_listen(host, port, error, key) from error
        return int(probe.getsockname()[1])


def _cannot_listen(host: str, port: int, error: OSError, key: str) -> SquallError:
    if error.errno == errno.EADDRINUSE:
        return SquallError(
            f"port {port} on {host} is in use",
            hint=f"Is another Nimbus running? Stop it, or choose another {key}.",
        )
    return SquallError(
        f"cannot listen on {host}:{port}: {error.strerror or error}",
        hint=f"See storm.bind.host and {key}.",
    )


async def _end_stale(
    servers: Mapping[str, ThriftServer], ended: Callable[[Any], str | None]
) -> None:
    """Hang up on who waits with a proof that counts no longer. A call that has begun is answered:
    the next one would be refused."""
    for server in servers.values():
        server.end_stale(ended, calls=False)


async def _connect(state: ClusterState, options: NimbusOptions, stop: asyncio.Event) -> bool:
    """Wait for ZooKeeper, and say so; return False if asked to stop meanwhile."""
    connecting = asyncio.create_task(state.start())
    stopping = asyncio.create_task(stop.wait())
    timeout: float | None = _ZOOKEEPER_PATIENCE_SECS
    try:
        while not connecting.done() and not stopping.done():
            done, _ = await asyncio.wait(
                (connecting, stopping), timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                servers = ",".join(options.storm_zookeeper_servers)
                where = f"{servers} (port {options.storm_zookeeper_port})"
                log.warning("waiting_for_zookeeper", servers=where)
                print_if_possible(f"nimbus: waiting for ZooKeeper at {where}", sys.stderr)
                timeout = None
        if connecting.done():
            try:
                connecting.result()
            except AccessDeniedError as error:
                raise SquallError(str(error)) from error
            return True
        return False
    finally:
        for task in (connecting, stopping):
            task.cancel()
        await asyncio.gather(connecting, stopping, return_exceptions=True)


async def _serve(
    options: NimbusOptions,
    conf: Mapping[str, Any],
    state: ClusterState,
    port: int,
    stop: asyncio.Event,
    metrics: DaemonMetrics | None,
    access: StoreAccess | None,
) -> int:
    host, bind = reachable_host(options), options.storm_bind_host
    trusted = require_role(options, Role.NIMBUS, options.storm_local_dir)
    nimbus = build_nimbus(
        options, conf, state, address=(host, port), trusted=trusted, access=access
    )
    service, observe = NimbusService(nimbus), None if metrics is None else metrics.observe_call

    def listener(port: int, authenticator: Authenticator | None) -> ThriftServer:
        return ThriftServer(
            storm.Nimbus,
            service,
            host=bind,
            port=port,
            frame_bytes_max=options.nimbus_thrift_max_buffer_size,
            insecure=options.storm_security_insecure,
            authorizer=nimbus.access,
            authenticator=authenticator,
            limits=LIMITS,
            observe=observe,
        )

    servers = {"nimbus.thrift.port": listener(port, nimbus.authenticator)}
    if nimbus.legacy is not None:
        legacy_port = options.nimbus_legacy_thrift_port
        assert legacy_port is not None
        servers["nimbus.legacy.thrift.port"] = listener(legacy_port, nimbus.legacy)
    web = reporters = None
    if metrics is not None:
        from squall_common.telemetry.reporters import DaemonReporters
        from squall_nimbus.metrics_page import metrics_server, show_nimbus

        show_nimbus(metrics, nimbus)
        if options.nimbus_metrics_port is not None:
            web = metrics_server(metrics, nimbus, options.nimbus_metrics_port)
        reporters = DaemonReporters(
            metrics, options, "nimbus", host=host, port=port, log_dir=options.storm_log_dir
        )
    try:
        if web is not None:
            await web.start()
        if metrics is not None:
            metrics.start()
        try:
            await nimbus.start()
            for key, server in servers.items():
                try:
                    await server.start()
                except OSError as error:
                    raise _cannot_listen(bind, server.port, error, key) from error
        except InsecureListenerError as error:
            raise SquallError(str(error)) from error
        except StoreError as error:
            raise SquallError(f"lost ZooKeeper during startup: {error}") from error
        if isinstance(nimbus.access, SecuredAccess):
            look = functools.partial(_end_stale, servers, nimbus.access.ended)
            nimbus.tasks.every("proofs", _PROOFS_SECS, look)
        log.info("nimbus_started", host=host, port=port, pid=os.getpid())
        watch_loop()
        if reporters is not None:
            reporters.start()
        ready = {"host": host, "port": port, "pid": os.getpid()}
        if web is not None:
            ready["metrics_port"] = web.port
        print_if_possible(json.dumps({"nimbus": ready}), sys.stdout)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((stopping, nimbus.crashed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if nimbus.crashed.done():
            print_if_possible(f"nimbus: a task crashed: {nimbus.crashed.result()!r}", sys.stderr)
            return 1
        log.info("nimbus_stopping")
        return 0
    finally:
        if reporters is not None:
            await reporters.close()
        if metrics is not None:
            metrics.stop()
        if web is not None:
            await web.stop()
        await asyncio.gather(*(server.stop(_STOP_GRACE_SECS) for server in servers.values()))
        await nimbus.close()
