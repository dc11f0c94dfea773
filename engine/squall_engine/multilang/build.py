"""Makes the task of a shell component from its description."""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall_common.component.component import ShellWrapper
from squall_common.component.context import TopologyContext
from squall_common.component.shell_logs import make_log_handler
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.errors import SquallError
from squall_common.topology.model import Component, ComponentKind, ShellObject
from squall_engine.core.invocation import InvocationMode
from squall_engine.multilang.bolt import ShellBolt
from squall_engine.multilang.handshake import handshake
from squall_engine.multilang.messages import Serializer
from squall_engine.multilang.shell import Shell, ShellSetting
from squall_engine.multilang.spout import ShellSpout

# Of the worker's own environment. Unbuffered, a child's stray prints would be torn apart and mixed
# with its messages; the rest are settings of the worker's own Python.
_NOT_PASSED_ON = ("PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONHOME", "PYTHONSTARTUP")
# Java's names of the machine, as Storm's resources/<os>-<arch> have them.
_ARCHITECTURES = {"x86_64": "amd64"}


class ShellProgram:
    """The stand-in for the user's object of a shell component."""

    auto_ack = False
    auto_anchor = False

    def __init__(self, component: Component, wrapper: ShellWrapper | None = None) -> None:
        self.component = component
        self.wrapper = wrapper
        if wrapper is None:
            assert isinstance(component.object, ShellObject)
            self.program = component.object
        else:
            self.program = ShellObject(wrapper.shell.command, wrapper.shell.script)
        is_spout = component.kind is ComponentKind.SPOUT
        self.invocation_mode = InvocationMode.SHELL_SPOUT if is_spout else InvocationMode.SHELL_BOLT
        self._task: ShellBolt | ShellSpout | None = None

    def _bind(self, calls: Any, context: TopologyContext) -> None:
        """The task makes its calls itself, or has its wrapper make them."""
        if self.wrapper is not None:
            self.wrapper._bind(calls, context)  # type: ignore[attr-defined]  # it is a Bolt

    def attach(
        self,
        task: ShellBolt | ShellSpout,
        conf: Mapping[str, Any],
        options: TopologyOptions,
        context: TopologyContext,
        now: Callable[[], float],
    ) -> None:
        """Give the task its shell; `options` are those of its `conf`. Raises SquallError for a
        configuration that cannot be."""
        self._task = task
        resources = resources_dir(context)
        changes = options.topology_multilang_change_child_cwd
        pid_dir = context.pid_dir or _local_pid_dir()
        setting = ShellSetting(
            component=task.component,
            task=task.task,
            argv=(self.program.command, self.program.script),
            cwd=resources if changes else Path.cwd(),
            env=child_environment(os.environ, options, resources),
            pid_dir=pid_dir,
            handshake=handshake(conf, context, str(pid_dir)),
            timeout_secs=timeout_secs(options, WorkerOptions.read(conf)),
            message_bytes_max=options.topology_multilang_message_bytes_max,
            linger_secs=linger_secs(options),
            dies_with_us=context.pid_dir is None,
        )
        task.shell = Shell(
            setting,
            make_serializer(options.topology_multilang_serializer),
            task,
            context.shell_metrics,
            make_log_handler(options.topology_multilang_log_handler, context),
            beats=isinstance(task, ShellBolt),
            now=now,
        )
        if isinstance(task, ShellBolt):
            task.waiting_max = options.topology_shellbolt_max_pending
            task.keep_secs = None
            if options.topology_enable_message_timeouts:
                task.keep_secs = 2 * options.topology_message_timeout_secs
            if self.wrapper is not None:
                task.calls = self.wrapper.calls_of_child()
                task.admits = self.wrapper.admits
            task.dies = options.topology_bolt_die_on_error

    # -- what the engine calls --

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Start the child. It is not waited for: all children of a worker start at once."""
        assert self._task is not None
        if self.wrapper is not None:
            self.wrapper.prepare(conf, context)  # type: ignore[attr-defined]  # it is a Bolt
        self._task.shell.start()

    prepare = open

    def ack(self, msg_id: Any) -> None:
        """Never called: the task tells its child itself."""

    fail = ack

    def activate(self) -> None:
        assert isinstance(self._task, ShellSpout)
        self._task.send_command("activate")

    def deactivate(self) -> None:
        assert isinstance(self._task, ShellSpout)
        self._task.send_command("deactivate")

    async def close(self) -> None:
        """End the child, where the task has not done so."""
        if self._task is not None and hasattr(self._task, "shell"):
            await self._task.shell.close()

    cleanup = close


def timeout_secs(options: TopologyOptions, worker: WorkerOptions) -> float:
    """How long a child may be silent, like Storm's ShellUtils.getShellTimeout."""
    return options.topology_subprocess_timeout_secs or worker.supervisor_worker_timeout_secs


def linger_secs(options: TopologyOptions) -> float:
    """How long to look for a child's next message; not where the child needs our only core."""
    micros = options.topology_multilang_linger_micros
    return micros / 1e6 if len(os.sched_getaffinity(0)) > 1 else 0.0


def make_serializer(name: str) -> Serializer:
    """By `topology.multilang.serializer`: json, msgpack, or the name of a Java class that does one
    of them. Raises SquallError for any other."""
    from squall_engine.multilang.jsonline import JsonSerializer
    from squall_engine.multilang.messagepack import MessagePackSerializer

    last = name.rpartition(".")[2].lower()
    if "json" in last:
        return JsonSerializer()
    if "msgpack" in last or "messagepack" in last:
        return MessagePackSerializer()
    raise SquallError(f"topology.multilang.serializer is {name!r}", hint="expected json or msgpack")


def resources_dir(context: TopologyContext) -> Path:
    """`resources/` of the package. Without a package (a LocalCluster in somebody's program) that
    of the working directory, or the working directory itself."""
    code = context.code_dir
    if code is not None:
        for folder in (code / "resources", code.parent / "resources"):
            if folder.is_dir():
                return folder.resolve()
        return code
    here = Path.cwd()
    return here / "resources" if (here / "resources").is_dir() else here


def child_environment(
    own: Mapping[str, str], options: TopologyOptions, resources: Path
) -> dict[str, str]:
    """The worker's environment, `topology.environment`, and the libraries in resources/ (as
    Storm's BasicContainer sets the worker's java.library.path and LD_LIBRARY_PATH)."""
    env = {name: value for name, value in own.items() if name not in _NOT_PASSED_ON}
    given = [
        *(options.topology_environment or {}).items(),
        *(options.topology_multilang_environment or {}).items(),
    ]
    for name, value in given:
        text = str(value)
        if not name or "=" in name or "\0" in name or "\0" in text:
            continue  # no environment can hold it
        # What squall needs of PYTHONPATH stays first; in a worker the supervisor has seen to that.
        env[name] = _joined(env.get(name, ""), text) if name == "PYTHONPATH" else text
    machine = platform.machine()
    native = f"{platform.system()}-{_ARCHITECTURES.get(machine, machine)}"
    env["LD_LIBRARY_PATH"] = _joined(
        str(resources / native), str(resources), env.get("LD_LIBRARY_PATH", "")
    )
    return env


def _joined(*paths: str) -> str:
    parts = [part for path in paths for part in path.split(os.pathsep) if part]
    return os.pathsep.join(dict.fromkeys(parts))


_pid_dir: Path | None = None


def _local_pid_dir() -> Path:
    """In local mode: a folder of this process's own."""
    global _pid_dir
    if _pid_dir is None:
        _pid_dir = Path(tempfile.mkdtemp(prefix="squall-pids-"))
        atexit.register(shutil.rmtree, _pid_dir, ignore_errors=True)
    return _pid_dir
