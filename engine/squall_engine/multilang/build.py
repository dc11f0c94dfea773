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
_MESSAGE_BYTES_MAX = 33_554_432
_TIMEOUT_SECS = 30.0
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
        self.feed = InvocationMode.SHELL_SPOUT if is_spout else InvocationMode.SHELL_BOLT
        self._task: ShellBolt | ShellSpout | None = None

    def _bind(self, calls: Any, context: TopologyContext) -> None:
        """The task makes its calls itself, or has its wrapper make them."""
        if self.wrapper is not None:
            self.wrapper._bind(calls, context)  # type: ignore[attr-defined]  # it is a Bolt

    def attach(
        self,
        task: ShellBolt | ShellSpout,
        conf: Mapping[str, Any],
        context: TopologyContext,
        now: Callable[[], float],
    ) -> None:
        """Give the task its shell. Raises SquallError for a configuration that cannot be."""
        self._task = task
        resources = resources_dir(context)
        changes = conf.get("topology.multilang.change.child.cwd")
        pid_dir = context.pid_dir or _local_pid_dir()
        setting = ShellSetting(
            component=task.component,
            task=task.task,
            argv=(self.program.command, self.program.script),
            cwd=Path.cwd() if changes is False else resources,
            env=child_environment(os.environ, conf, resources),
            pid_dir=pid_dir,
            handshake=handshake(conf, context, str(pid_dir)),
            timeout_secs=timeout_secs(conf),
            message_bytes_max=int(
                conf.get("topology.multilang.message.bytes.max") or _MESSAGE_BYTES_MAX
            ),
            linger_secs=linger_secs(conf),
            dies_with_us=context.pid_dir is None,
        )
        task.shell = Shell(
            setting,
            make_serializer(conf.get("topology.multilang.serializer")),
            task,
            context.shell_metrics,
            make_log_handler(conf.get("topology.multilang.log.handler"), context),
            beats=isinstance(task, ShellBolt),
            now=now,
        )
        if isinstance(task, ShellBolt):
            task.waiting_max = int(conf.get("topology.shellbolt.max.pending") or 100)
            timeout = float(conf.get("topology.message.timeout.secs") or 30)
            never = conf.get("topology.enable.message.timeouts") is False
            task.keep_secs = None if never else 2 * timeout
            if self.wrapper is not None:
                task.calls = self.wrapper.calls_of_child()
                task.admits = self.wrapper.admits
            task.dies = bool(conf.get("topology.bolt.die.on.error"))

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
        self._task.tell("activate")

    def deactivate(self) -> None:
        assert isinstance(self._task, ShellSpout)
        self._task.tell("deactivate")

    async def close(self) -> None:
        """End the child, where the task has not done so."""
        if self._task is not None and hasattr(self._task, "shell"):
            await self._task.shell.close()

    cleanup = close


def timeout_secs(conf: Mapping[str, Any]) -> float:
    """How long a child may be silent, like Storm's ShellUtils.getShellTimeout."""
    own = conf.get("topology.subprocess.timeout.secs")
    return float(own or conf.get("supervisor.worker.timeout.secs") or _TIMEOUT_SECS)


def linger_secs(conf: Mapping[str, Any]) -> float:
    """How long to look for a child's next message; not where the child needs our only core."""
    micros = conf.get("topology.multilang.linger.micros", 50)
    return float(micros or 0) / 1e6 if len(os.sched_getaffinity(0)) > 1 else 0.0


def make_serializer(name: object) -> Serializer:
    """By `topology.multilang.serializer`: json, msgpack, or the name of a Java class that does one
    of them. Raises SquallError for any other."""
    from squall_engine.multilang.jsonline import JsonSerializer
    from squall_engine.multilang.messagepack import MessagePackSerializer

    last = "json" if not name else str(name).rpartition(".")[2].lower()
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
    own: Mapping[str, str], conf: Mapping[str, Any], resources: Path
) -> dict[str, str]:
    """The worker's environment, `topology.environment`, and the libraries in resources/ (as
    Storm's BasicContainer sets the worker's java.library.path and LD_LIBRARY_PATH)."""
    env = {name: value for name, value in own.items() if name not in _NOT_PASSED_ON}
    given = [
        *(conf.get("topology.environment") or {}).items(),
        *(conf.get("topology.multilang.environment") or {}).items(),
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
