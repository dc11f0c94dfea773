"""The supervisor as a process: configuration, log, signals, exit status."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from squall_common.cluster.access.configured import daemon_access
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import AccessDeniedError
from squall_common.config.load import local_dir, warn_of_ignored
from squall_common.config.options.typed import ClientOptions, SupervisorOptions
from squall_common.daemon.logs import get_logger
from squall_common.daemon.output.printing import print_if_possible
from squall_common.daemon.run import run_daemon, set_up_daemon_log, stop_signals, watch_loop
from squall_common.errors import ConfigError, SquallError
from squall_supervisor.composition import build_supervisor
from squall_supervisor.node.lock import NodeLock
from squall_supervisor.node.root import root_warning
from squall_supervisor.node.secured import SecuredServer, secured_conf
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.supervisor import Supervisor
from squall_thrift.serving.server import InsecureListenerError, ThriftServer

log = get_logger(__name__)


def run(conf: Mapping[str, Any]) -> int:
    """Supervise until SIGTERM or SIGINT, which leave the workers running; returns the exit status.

    Prints one JSON line when ready. Raises SquallError for problems that the operator can fix.
    """
    options = SupervisorOptions.read(conf)
    settings = SupervisorSettings.of(options)
    warning = root_warning(settings, os.geteuid())
    if settings.users is not None:
        # Workers of other users walk through our folders, without being able to list them, to files
        # that are theirs or were made readable (ownership.open_tree).
        os.umask(0o066)
    level = options.storm_log_level
    form = options.storm_log_format
    set_up_daemon_log("supervisor", level=level, folder=str(settings.log_dir), form=form)
    warn_of_ignored(conf)
    if warning is not None:
        log.warning("workers_run_as_root", warning=warning)
        print_if_possible(f"warning: {warning}", sys.stderr)
    lock = NodeLock(settings.lock_file)
    if not lock.acquire():
        raise ConfigError(
            f"another supervisor is using {settings.local_dir}",
            hint="Give each supervisor of a machine its own storm.local.dir and its own ports.",
        )
    try:
        return run_daemon(_supervise(conf))
    finally:
        lock.release()


async def _supervise(conf: Mapping[str, Any]) -> int:
    stop = stop_signals()
    log.info("supervisor_starting", pid=os.getpid(), local_dir=local_dir(conf))
    options = SupervisorOptions.read(conf)
    conf, trusted = secured_conf(conf, options)
    secured = None if trusted is None else SecuredServer(trusted, options)
    ca = None if secured is None else secured.ca
    make_server = ThriftServer if secured is None else secured.make
    trust: dict[str, Any] = {}
    if secured is not None:
        trust = {"trusted": trusted, "revoked": secured.serials}
    metrics_port, metrics, web, reporters = options.supervisor_metrics_port, None, None, None
    readers = None
    try:
        if metrics_port is None and not _has_reporters(options):
            supervisor = await build_supervisor(conf, server=make_server, ca=ca, **trust)
        else:
            # Imported only when they are wanted: they take some 30 ms.
            from squall_common.telemetry.page import DaemonMetrics
            from squall_common.telemetry.reporters import DaemonReporters
            from squall_supervisor.metrics_page import metrics_server, show_supervisor

            metrics, cluster = (
                DaemonMetrics("supervisor"),
                ClusterState.of(options, daemon_access(options)),
            )
            metrics.follow(cluster.store)
            observed = functools.partial(make_server, observe=metrics.observe_call)
            supervisor = await build_supervisor(
                conf, cluster=cluster, server=observed, ca=ca, **trust
            )
            show_supervisor(metrics, supervisor, supervisor.settings)
            if metrics_port is not None:
                if secured is not None:
                    readers = secured.metrics_readers(ClientOptions.read(conf))
                    readers.start()
                web = metrics_server(metrics, supervisor.settings, metrics_port, readers)
                await web.start()
            metrics.start()
        await supervisor.start()
        if metrics is not None:
            reporters = DaemonReporters(
                metrics,
                options,
                "supervisor",
                host=supervisor.settings.hostname,
                port=supervisor.port,
                log_dir=options.storm_log_dir,
            )
            reporters.start()
        if secured is not None:
            secured.start()
    except InsecureListenerError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise SquallError(
            f"the supervisor cannot start: {error}",
            hint="Is supervisor.thrift.port in use, or storm.local.dir not writable?",
        ) from error
    status = 0
    announce = asyncio.create_task(_announce(supervisor, None if web is None else web.port))
    stopping = asyncio.create_task(stop.wait())
    try:
        crash = await supervisor.wait_crashed(stopping)
        if crash is not None:
            status = 1
            log.error("supervisor_crashed", error=crash)
            if isinstance(crash, AccessDeniedError):  # of the configuration
                print_if_possible(f"supervisor: {crash}", sys.stderr)
    finally:
        for task in (announce, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if reporters is not None:
            await reporters.close()
        if metrics is not None:
            metrics.stop()
        if web is not None:
            await web.stop()
        await supervisor.close()
        if readers is not None:
            await readers.close()
        if secured is not None:
            await secured.close()
        log.info("supervisor_stopped", status=status)
    return status


def _has_reporters(options: SupervisorOptions) -> bool:
    return bool(
        options.storm_daemon_metrics_reporters or options.storm_daemon_metrics_reporter_plugins
    )


async def _announce(supervisor: Supervisor, metrics_port: int | None) -> None:
    await supervisor.wait_ready()
    watch_loop()
    ready = {
        "id": supervisor.id,
        "pid": os.getpid(),
        "slots": list(supervisor.settings.ports),
        "port": supervisor.port,
        **({} if metrics_port is None else {"metrics_port": metrics_port}),
    }
    log.info("supervisor_ready", ready=json.dumps(ready))
    print_if_possible(json.dumps({"supervisor": ready}), sys.stdout)


def fail(error: SquallError) -> int:
    """Print the error for the operator, on stderr, and return the exit status."""
    print_if_possible(str(error), sys.stderr)
    return 1
