"""The DRPC server's process: configuration, logs, signals, three listeners.

Once all of them listen, it prints one line on stdout:
`{"drpc": {"host": ..., "port": 3772, "invocations_port": 3773, "http_port": 3774, "pid": 4711}}`.
It keeps no requests on disk and needs no ZooKeeper. In a secured cluster every caller proves who it
is (`secured`). When it stops, it answers requests in progress with
SERVER_SHUTDOWN; when it is killed, their connections end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from squall_common.authentication.latch import require_role
from squall_common.config.load import warn_of_ignored
from squall_common.config.options.typed import ClientOptions, DrpcOptions
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
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
from squall_common.security.identity import Role
from squall_common.security.web_origin import known_hosts
from squall_common.telemetry.page import DaemonMetrics, FunctionCollector
from squall_common.telemetry.reporters import DaemonReporters
from squall_drpc.batches import INVOCATIONS
from squall_drpc.server.broker import RequestBroker
from squall_drpc.server.http import DrpcHttp
from squall_drpc.server.services import CallerService, Functions, WorkerService
from squall_thrift import storm
from squall_thrift.serving.server import FrameLimits, InsecureListenerError, ThriftServer

log = get_logger(__name__)

_STOP_GRACE_SECS = 5.0
_LOOK_SECS = 2.0  # between looks at whether the proofs of connected peers still count
_FILES_BESIDE_CONNECTIONS = 64
_WORKER_CONNECTIONS_MAX = 1024
# Calls that bring results, or long texts of errors.
_RESULTS = ("result", "failRequestV2", "settleRequests")


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    begin_daemon()
    try:
        return run(read_daemon_conf(os.environ, "storm drpc"))
    except SquallError as error:
        print_if_possible(f"drpc: {error}", sys.stderr)
        return 1


def run(conf: Mapping[str, Any]) -> int:
    """Run the server until SIGTERM or SIGINT. Raises SquallError for problems that the operator can
    fix."""
    options = DrpcOptions.read(conf)
    level, folder = options.storm_log_level, options.storm_log_dir
    set_up_daemon_log("drpc", level=level, folder=folder, form=options.storm_log_format)
    warn_of_ignored(conf)
    return run_daemon(_run(options, ClientOptions.read(conf)))


class DrpcServer:
    """The three listeners of a DRPC server and what they share."""

    def __init__(self, options: DrpcOptions, client: ClientOptions | None = None) -> None:
        """`client` says where Nimbus is: a server of a secured cluster asks it. Raises
        ConfigError, OSError."""
        trusted = require_role(options, Role.DRPC, options.storm_local_dir)
        secured = None
        if trusted is not None:
            # Imported only where a cluster is secured: it takes some 40 ms.
            from squall_drpc.server.secured import SecuredDrpc

            secured = SecuredDrpc(trusted, options, client or ClientOptions())
        self.secured = secured
        self._tasks = BackgroundTasks(
            lambda task, error: log.error("task_crashed", task=task, exc_info=error)
        )
        functions = (
            Functions() if secured is None else Functions(secured.access, secured.functions.of)
        )
        proofs: dict[str, Any] = (
            {}
            if secured is None
            else {"authorizer": secured.access, "authenticator": secured.peers}
        )
        self.broker = RequestBroker(options)
        self.metrics = DaemonMetrics("drpc")
        self.metrics.add(FunctionCollector(self._gauges))
        host = options.storm_bind_host
        insecure = options.storm_security_insecure
        bytes_max = options.drpc_max_buffer_size
        # A caller waits on its connection: there are as many as requests, and some idle ones.
        callers_max = _files_max(2 * options.drpc_requests_max + 256)
        self.callers = ThriftServer(
            storm.DistributedRPC,
            CallerService(self.broker, functions),
            host=host,
            port=options.drpc_port,
            frame_bytes_max=bytes_max,
            connections_max=callers_max,
            insecure=insecure,
            cancelled_on_hang_up=("execute",),
            observe=self.metrics.observe_call,
            **proofs,
        )
        self.workers = ThriftServer(
            INVOCATIONS,
            WorkerService(self.broker, functions),
            host=host,
            port=options.drpc_invocations_port,
            # Results come in batches of at most a frame, see `remote`.
            frame_bytes_max=4 * bytes_max,
            connections_max=_WORKER_CONNECTIONS_MAX,
            insecure=insecure,
            limits=FrameLimits(otherwise=65_536, by_method=dict.fromkeys(_RESULTS, 4 * bytes_max)),
            cancelled_on_hang_up=("fetchRequests",),
            observe=self.metrics.observe_call,
            **proofs,
        )
        self.http = DrpcHttp(self.broker, self.metrics.route(), functions=functions).server(
            host=host,
            port=options.drpc_http_port,
            body_bytes_max=bytes_max,
            insecure=insecure,
            hosts=_known_hosts(options),
            authenticator=None if secured is None else secured.web_peers,
        )
        self.reporters = DaemonReporters(
            self.metrics,
            options,
            "drpc",
            host=options.storm_local_hostname or host,
            port=options.drpc_port,
            log_dir=options.storm_log_dir,
        )

    def _gauges(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "squall_drpc_requests_under_way",
            "Requests that have not ended.",
            value=self.broker.under_way,
        )
        connections = GaugeMetricFamily(
            "squall_drpc_connections", "Open Thrift connections.", labels=["of"]
        )
        connections.add_metric(["callers"], self.callers.connections)
        connections.add_metric(["workers"], self.workers.connections)
        yield connections

    async def start(self) -> None:
        """Listen on all ports. Raises SquallError, with none of them listening."""
        try:
            if self.secured is not None:
                await self.secured.start()
                self._tasks.every("proofs", _LOOK_SECS, self._end_stale)
            for server, key in (
                (self.callers, "drpc.port"),
                (self.workers, "drpc.invocations.port"),
            ):
                try:
                    await server.start()
                except InsecureListenerError as error:
                    raise SquallError(str(error)) from error
                except OSError as error:
                    raise _cannot_listen(server.port, key, error) from error
            await self.http.start()
            self.metrics.start()
            self.reporters.start()
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_secs: float = _STOP_GRACE_SECS) -> None:
        """Answer the requests in progress with SERVER_SHUTDOWN, then close everything."""
        self.broker.stop()
        await self.reporters.close()
        await self._tasks.close()
        self.metrics.stop()
        await asyncio.gather(
            self.callers.stop(grace_secs), self.workers.stop(grace_secs), self.http.stop()
        )
        if self.secured is not None:
            await self.secured.close()

    async def _end_stale(self) -> None:
        """Hang up on who waits with a proof that counts no longer. HTTP does so by itself."""
        assert self.secured is not None
        for server in (self.callers, self.workers):
            server.end_stale(self.secured.ended)


def _known_hosts(options: DrpcOptions) -> frozenset[str]:
    names = [options.storm_bind_host]
    if options.storm_local_hostname is not None:
        names.append(options.storm_local_hostname)
    names += [server.partition(":")[0] for server in options.drpc_servers or ()]
    return known_hosts(options.storm_http_hosts, names)


def _cannot_listen(port: int, key: str, error: OSError) -> SquallError:
    if error.errno == errno.EADDRINUSE:
        return SquallError(
            f"port {port} is in use",
            hint=f"Is another DRPC server running? Stop it, or choose another {key}.",
        )
    return SquallError(
        f"cannot listen on port {port}: {error.strerror or error}",
        hint=f"See storm.bind.host and {key}.",
    )


def _files_max(wanted: int) -> int:
    """The number of connections allowed, after the process's limit on open files was raised as far
    as needed and as the system allows."""
    beside = _FILES_BESIDE_CONNECTIONS + 2 * _WORKER_CONNECTIONS_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = wanted + beside
    if soft != resource.RLIM_INFINITY and soft < min(wanted + beside, hard):
        with contextlib.suppress(ValueError, OSError):
            soft = min(wanted + beside, hard)
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(64, min(wanted, soft - beside))


async def _run(options: DrpcOptions, client: ClientOptions) -> int:
    stop = stop_signals()
    server = DrpcServer(options, client)
    await server.start()
    ready = {
        "host": options.storm_bind_host,
        "port": server.callers.port,
        "invocations_port": server.workers.port,
        "http_port": server.http.port,
        "pid": os.getpid(),
    }
    watch_loop()
    log.info("drpc_started", **ready)
    print_if_possible(json.dumps({"drpc": ready}), sys.stdout)
    await stop.wait()
    log.info("drpc_stopping", under_way=server.broker.under_way)
    await server.stop()
    return 0
