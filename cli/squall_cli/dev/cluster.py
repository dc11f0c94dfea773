"""Starts the daemons of a plan, waits until all of them answer, keeps them alive, stops them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from squall_cli.daemons import daemon_argv, write_daemon_conf
from squall_cli.dev import guardian
from squall_cli.dev.plan import DevPlan, SupervisorPlan
from squall_cli.dev.process import KeptProcess, describe_status, open_output
from squall_cli.dev.ready import registered_supervisors, wait_listening, wait_nimbus, wait_zookeeper
from squall_common.client.nimbus import nimbus_credentials
from squall_common.daemon.files import write_atomic
from squall_common.daemon.ports import LOOPBACK
from squall_common.daemon.run import CONF_VARIABLE
from squall_common.errors import ConfigError, SquallError

START_TIMEOUT_SECS = 60.0
_LOOK_SECS = 2.0  # how often to check that the data folder still exists
# A daemon that exits this often before the cluster is up will not start: report it instead of
# retrying. One exit can be an accident, such as a port that a dying predecessor still holds.
_ENDS_BEFORE_GIVING_UP = 3
_STOP_GRACE_SECS = 10.0
_KILL_WORKERS_TIMEOUT_SECS = 60.0
_LOG_LINES_SHOWN = 8


class DevCluster:
    """A running development cluster; an asynchronous context manager.

    Entering starts everything and returns when ZooKeeper serves, Nimbus leads and every
    supervisor is registered; it raises SquallError, with nothing left behind, when that fails.
    Leaving stops everything, workers included. `notify` is called with messages for a person.
    """

    def __init__(self, plan: DevPlan, notify: Callable[[str], None]) -> None:
        self.plan = plan
        self._notify = notify
        self._mark = uuid.uuid4().hex  # in the environment of all processes that are started
        self._up = False
        self._lock_fd = -1
        self._guardian: subprocess.Popen[bytes] | None = None
        self._failed: asyncio.Future[str] | None = None
        self._zookeeper: KeptProcess | None = None
        self._nimbus: KeptProcess | None = None
        self._drpc: KeptProcess | None = None
        self._ui: KeptProcess | None = None
        self._logviewer: KeptProcess | None = None
        self._supervisors: dict[str, KeptProcess] = {}
        self._supervisor_ids: dict[int, tuple[str, int | None]] = {}  # number -> (id, port)

    async def __aenter__(self) -> DevCluster:
        self._failed = asyncio.get_running_loop().create_future()
        self._prepare_folders()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        self._up = True
        self._write_state()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    def state(self) -> dict[str, Any]:
        """What `storm dev --json` prints. A pid is null while its daemon is being restarted."""
        plan = self.plan
        return {
            "nimbus": {"host": LOOPBACK, "port": plan.nimbus_port, "pid": _pid(self._nimbus)},
            "zookeeper": {
                "host": LOOPBACK,
                "port": plan.zookeeper_port,
                "pid": _pid(self._zookeeper),
            },
            "supervisors": [self._supervisor_state(supervisor) for supervisor in plan.supervisors],
            "ui": {"host": LOOPBACK, "port": plan.web.ui, "pid": _pid(self._ui)},
            "logviewer": {
                "host": LOOPBACK,
                "port": plan.web.logviewer,
                "pid": _pid(self._logviewer),
            },
            "drpc": {"host": LOOPBACK, **asdict(plan.drpc), "pid": _pid(self._drpc)},
            "pid": os.getpid(),
            "data_dir": str(plan.data_dir),
            "log_dir": str(plan.logs),
            "conf_file": str(plan.conf_file),
        }

    def _supervisor_state(self, supervisor: SupervisorPlan) -> dict[str, Any]:
        supervisor_id, port = self._supervisor_ids.get(supervisor.number, (None, None))
        return {
            "id": supervisor_id,
            "pid": _pid(self._supervisors.get(supervisor.name)),
            "port": port,
            "slots": list(supervisor.slots),
            "log_dir": str(self.plan.log_dir(supervisor.name)),
        }

    # Folders ----------------------------------------------------------------------------------

    def _prepare_folders(self) -> None:
        data_dir = self.plan.data_dir
        try:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.plan.logs.mkdir(exist_ok=True)
            self._lock_fd = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot use {data_dir} as the data folder: {error.strerror}",
                hint="Choose another folder with --data-dir.",
            ) from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_fd)
            raise SquallError(
                f"another 'storm dev' is using {data_dir}",
                hint="Stop it, or choose another folder with --data-dir.",
            ) from None
        try:
            write_atomic(
                self.plan.conf_file,
                b"# Written by 'storm dev': how other commands reach this cluster.\n"
                + yaml.safe_dump(self.plan.client_conf(), sort_keys=False).encode(),
                mode=0o600,
            )
        except OSError as error:
            os.close(self._lock_fd)
            raise SquallError(f"cannot write {self.plan.conf_file}: {error.strerror}") from error
        self._write_state()

    async def wait_removed(self) -> None:
        """Wait until the data folder is gone. Without its files no daemon can start: every restart
        would fail, again and again."""
        while os.fstat(self._lock_fd).st_nlink:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(_LOOK_SECS)

    def _write_state(self) -> None:
        """Write the state file. If the disk refuses, that is reported and stops nothing."""
        try:
            write_atomic(self.plan.state_file, json.dumps(self.state()).encode(), mode=0o600)
        except OSError as error:
            self._notify(f"{self.plan.state_file} cannot be written: {error.strerror}.")

    # Start ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        from squall_cli.cluster.zookeeper import DevZooKeeper

        plan = self.plan
        argv = [sys.executable, "-P", "-m", "squall_cli.dev.guardian", self._mark]
        with open_output(plan.logs / "guardian.out") as output:
            self._guardian = subprocess.Popen(  # noqa: ASYNC220 - a fork, nothing to wait for
                [*argv, str(plan.data_dir)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if plan.secure:
            from squall_cli.dev.secure import make_identities

            await asyncio.to_thread(make_identities, plan)
        argv = DevZooKeeper(plan.folder("zookeeper"), port=plan.zookeeper_port).prepare()
        self._zookeeper = self._keep("zookeeper", argv, {})
        await self._bounded(self._bring_up())

    def _keep(self, name: str, argv: list[str], environment: dict[str, str]) -> KeptProcess:
        process = KeptProcess(
            name,
            argv,
            environment={**os.environ, guardian.MARK_VARIABLE: self._mark, **environment},
            output=self.plan.logs / f"{name}.out",
            on_change=self._on_change,
        )
        process.start()
        return process

    def _keep_daemon(self, name: str, package: str, conf: dict[str, Any]) -> KeptProcess:
        path = write_daemon_conf(self.plan.folder(name), conf)
        return self._keep(name, daemon_argv(package), {CONF_VARIABLE: str(path)})

    async def _bring_up(self) -> None:
        plan = self.plan
        # The others start only after this: a client that connects while the server listens but does
        # not serve yet may wait for its session's timeout.
        await wait_zookeeper(plan.zookeeper_port)
        self._nimbus = self._keep_daemon("nimbus", "squall_nimbus", plan.nimbus_conf())
        for supervisor in plan.supervisors:
            conf = plan.supervisor_conf(supervisor)
            self._supervisors[supervisor.name] = self._keep_daemon(
                supervisor.name, "squall_supervisor", conf
            )
        self._supervisor_ids = await registered_supervisors(plan)
        known = {supervisor_id for supervisor_id, _ in self._supervisor_ids.values()}
        if plan.secure:
            from squall_cli.dev.secure import make_token, user_options

            await wait_nimbus(plan.nimbus_port, known, nimbus_credentials(user_options(plan)))
            await asyncio.to_thread(make_token, plan)
        self._drpc = self._keep_daemon("drpc", "squall_drpc", plan.drpc_conf())
        await self._bring_up_web()
        await wait_listening(plan.drpc.http_port)  # the last that it opens
        if not plan.secure:
            await wait_nimbus(plan.nimbus_port, known)

    async def _bring_up_web(self) -> None:
        plan = self.plan
        self._logviewer = self._keep_daemon(
            "logviewer", "squall_ui.logviewer", plan.logviewer_conf()
        )
        self._ui = self._keep_daemon("ui", "squall_ui", plan.ui_conf())
        await wait_listening(plan.web.logviewer)
        await wait_listening(plan.web.ui)

    async def _bounded(self, bring_up: Coroutine[Any, Any, None]) -> None:
        """Run it until it is done, a daemon has exited too often, or the time is up."""
        assert self._failed is not None
        steps = asyncio.ensure_future(bring_up)
        waits: list[asyncio.Future[Any]] = [steps, self._failed]
        try:
            await asyncio.wait(
                waits, timeout=START_TIMEOUT_SECS, return_when=asyncio.FIRST_COMPLETED
            )
            if self._failed.done():
                raise SquallError(self._failed.result())
            if not steps.done():
                raise SquallError(
                    f"the cluster did not answer within {START_TIMEOUT_SECS:.0f} s",
                    hint=f"The logs are in {self.plan.logs}.",
                )
            steps.result()
        finally:
            steps.cancel()
            await asyncio.gather(steps, return_exceptions=True)

    # While it runs ----------------------------------------------------------------------------

    def _on_change(self, process: KeptProcess) -> None:
        self._write_state()
        if process.pid is not None:
            if process.restarts:
                self._notify(f"{process.name} was restarted (process {process.pid}).")
            return
        how = describe_status(process.last_status)
        self._notify(f"{process.name} {how}; restarting it.")
        if self._up or self._failed is None or self._failed.done():
            return
        if process.restarts + 1 >= _ENDS_BEFORE_GIVING_UP:
            self._failed.set_result(
                f"{process.name} {how} {process.restarts + 1} times while the cluster started\n"
                + _last_lines(process.output)
            )

    # Stop -------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Stop everything. A part that fails to stop is reported, and the others still stop."""
        await self._try_all([s.stop(_STOP_GRACE_SECS) for s in self._supervisors.values()])
        await self._try_all([self._kill_workers(name) for name in self._supervisors])
        for daemon in (self._ui, self._logviewer, self._drpc, self._nimbus, self._zookeeper):
            if daemon is not None:
                await self._try_all([daemon.stop(_STOP_GRACE_SECS)])
        await asyncio.to_thread(guardian.end_workers_left, self.plan.data_dir)
        killed = await asyncio.to_thread(guardian.end_marked, self._mark, 0.0)
        if killed:
            self._notify(f"Killed the remaining processes of the cluster: {killed}.")
        self._write_state()
        if self._guardian is not None:
            await asyncio.to_thread(self._guardian.communicate, guardian.DONE)
        os.close(self._lock_fd)

    async def _try_all(self, steps: list[Coroutine[Any, Any, None]]) -> None:
        for result in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(result, Exception):
                self._notify(f"A part of the cluster could not be stopped: {result!r}")

    async def _kill_workers(self, name: str) -> None:
        conf = self.plan.folder(name) / "daemon-conf.json"
        with open_output(self.plan.logs / f"{name}.out") as output:
            process = await asyncio.create_subprocess_exec(
                *daemon_argv("squall_supervisor", ("--kill-workers",)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, CONF_VARIABLE: str(conf)},
                start_new_session=True,
            )
        try:
            status = await asyncio.wait_for(process.wait(), _KILL_WORKERS_TIMEOUT_SECS)
        except TimeoutError:
            process.kill()
            status = await process.wait()
        if status != 0:
            self._notify(f"Not all workers of {name} could be stopped (status {status}).")


def _pid(process: KeptProcess | None) -> int | None:
    return process.pid if process is not None else None


def _last_lines(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return "\n".join([f"The last lines of {path}:", *(f"  {line}" for line in lines)])
