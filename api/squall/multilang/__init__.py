"""Shell components in Python: spouts and bolts that run as separate programs.

    from squall.multilang import BasicBolt

    class Split(BasicBolt):
        def process(self, tup):
            for word in tup.values[0].split():
                self.emit([word])

    if __name__ == "__main__":
        Split().run()

speaks Storm's multilang protocol on stdin and stdout. So the same file runs as a shell component
of Squall, under a different interpreter than the worker's, and as a shell component of Apache
Storm. This module needs only the standard library and works on Python 3.7 and later; it may also be
copied into `resources/` unchanged.

`print` is safe: its output goes to stderr, and from there to the worker's log, so it cannot disturb
the protocol on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import deque

__all__ = ["BasicBolt", "Bolt", "Component", "Spout", "Tuple"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

_LEVELS = {"trace": 0, "debug": 1, "info": 2, "warn": 3, "warning": 3, "error": 4}


class Tuple:
    """A tuple that a bolt receives. `tup[0]` returns a value by its position; `tup["word"]` returns
    one by its field if the worker sends the names of fields (Squall, and Storm 0.10 or later)."""

    __slots__ = ("component", "fields", "id", "stream", "task", "values")

    def __init__(
        self,
        id: str,
        component: str | None,
        stream: str,
        task: int,
        values: list[Any],
        fields: Sequence[str] = (),
    ) -> None:
        self.id = id
        self.component = component
        self.stream = stream
        self.task = task
        self.values = values
        self.fields = fields

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            try:
                return self.values[list(self.fields).index(key)]
            except ValueError:
                raise KeyError(key) from None
        return self.values[key]

    @property
    def is_tick(self) -> bool:
        """Whether this is a tick tuple (topology.tick.tuple.freq.secs)."""
        return self.component == "__system" and self.stream == "__tick"

    def __repr__(self) -> str:
        return f"Tuple({self.values!r}, from {self.component}:{self.task} {self.stream})"


class StormWentAway(Exception):
    """The worker has closed the pipe: it has exited, or wants this component to exit."""


class Component:
    """The base of spouts and bolts. `conf`, `context` (both from the handshake), `task_id` and
    `component` (the component's id) are available from `initialize` on."""

    def __init__(self, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> None:
        """Leave `stdin` and `stdout` out, except in tests: the process's own pipes are used, and
        its stdout becomes stderr for all other code, so that `print` and libraries cannot disturb
        the protocol."""
        self._in = stdin
        self._out = stdout
        self._commands: deque[dict[str, Any]] = deque()  # read while waiting for task ids
        self._task_ids: deque[list[int]] = deque()  # read while waiting for a command
        self.conf: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        self.task_id = -1
        self.component = ""

    # -- for users --

    def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
        """Called once, before anything else."""

    def log(self, message: str, level: str = "info") -> None:
        """Write to the worker's log: trace, debug, info, warn or error."""
        self._send({"command": "log", "msg": str(message), "level": _LEVELS[level]})

    def report_error(self, message: str | BaseException) -> None:
        """Report an error, which `storm get-errors` and the log will show, and continue."""
        if isinstance(message, BaseException):
            message = "".join(
                traceback.format_exception(type(message), message, message.__traceback__)
            )
        self._send({"command": "error", "msg": message})

    def report_metric(self, name: str, value: Any) -> None:
        """Update a metric. (Apache Storm requires a metric to be registered under this name.)"""
        self._send({"command": "metrics", "name": name, "params": value})

    def keep_alive(self) -> None:
        """Tell the worker that this component is alive, during work that takes longer than
        topology.subprocess.timeout.secs. For bolts only: in a spout it would end the turn."""
        raise NotImplementedError

    def run(self) -> None:
        """Serve the worker until it closes the pipe. An exception from an overridden method is
        reported and ends the process with status 1; the worker then starts another process."""
        self._take_pipes()
        try:
            self._shake_hands()
            self.initialize(self.conf, self.context)
            while True:
                self._serve()
        except StormWentAway:
            pass
        except Exception as error:
            self._end(error)

    # -- the protocol --

    def _serve(self) -> None:
        raise NotImplementedError

    def _end(self, error: Exception) -> None:
        try:
            self.report_error(error)
            self._failed()
        except StormWentAway:
            pass
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
        sys.stderr.flush()
        sys.exit(1)

    def _failed(self) -> None:
        """Send what the protocol requires after the error that ends this process."""

    def _take_pipes(self) -> None:
        if self._in is None:
            self._in = sys.stdin.buffer
        if self._out is None:
            sys.stdout.flush()
            self._out = os.fdopen(os.dup(1), "wb")
            os.dup2(2, 1)
            # So that printed lines reach the log at once.
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def _shake_hands(self) -> None:
        message = self._read()
        self.conf = message.get("conf") or {}
        self.context = message.get("context") or {}
        self.task_id = self.context.get("taskid", -1)
        components = self.context.get("task->component") or {}
        self.component = self.context.get("componentid") or components.get(str(self.task_id), "")
        pid_dir = message.get("pidDir")
        if pid_dir:
            open(os.path.join(pid_dir, str(os.getpid())), "w").close()
        self._send({"pid": os.getpid()})

    def _read(self) -> Any:
        """One message: JSON up to a line `end`."""
        assert self._in is not None
        lines: list[bytes] = []
        while True:
            line = self._in.readline()
            if not line:
                raise StormWentAway
            if line.rstrip(b"\r\n") == b"end":
                if lines:
                    return json.loads(b"".join(lines).decode("utf-8"))
                continue
            if line.strip():
                lines.append(line)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._out is not None
        try:
            self._out.write(json.dumps(message).encode("utf-8") + b"\nend\n")
            self._out.flush()
        except BrokenPipeError:
            raise StormWentAway from None

    def _read_command(self) -> dict[str, Any]:
        if self._commands:
            return self._commands.popleft()
        while True:
            message = self._read()
            if not isinstance(message, list):
                return message  # type: ignore[no-any-return]
            self._task_ids.append(message)

    def _read_task_ids(self) -> list[int]:
        if self._task_ids:
            return self._task_ids.popleft()
        while True:
            message = self._read()
            if isinstance(message, list):
                return message
            self._commands.append(message)

    def _emit(self, message: dict[str, Any], task: int | None, need_task_ids: bool) -> list[int]:
        if task is not None:
            message["task"] = task
            self._send(message)
            return [task]
        if not need_task_ids:
            message["need_task_ids"] = False
        self._send(message)
        return self._read_task_ids() if need_task_ids else []


class Spout(Component):
    """A spout. Override `next_tuple`, and `ack` and `fail` for reliable messages.

        from squall import multilang

        class Numbers(multilang.Spout):
            def next_tuple(self):
                self.emit([1], id="1")

        if __name__ == "__main__":
            Numbers().run()

    Without `id` a message is not tracked.
    """

    def next_tuple(self) -> None:
        """Emit one message, or return at once if there is none."""
        raise NotImplementedError

    def ack(self, message_id: Any) -> None:
        """Called when the whole tuple tree of the message with this id has been processed."""

    def fail(self, message_id: Any) -> None:
        """Called when the message with this id failed or timed out."""

    def activate(self) -> None:
        """Called when the topology is activated."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated: `next_tuple` is not called until it is activated
        again."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        id: Any = None,
        stream: str | None = None,
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Emit a tuple. If it has an `id` (a string or a number), it is tracked until `ack` or
        `fail`. Returns the ids of the tasks that receive it if `need_task_ids` or `task` is given,
        otherwise an empty list."""
        message: dict[str, Any] = {"command": "emit", "tuple": list(values)}
        if id is not None:
            message["id"] = id
        if stream is not None:
            message["stream"] = stream
        return self._emit(message, task, need_task_ids)

    def _serve(self) -> None:
        command = self._read_command()
        name = command.get("command")
        if name == "next":
            self.next_tuple()
        elif name == "ack":
            self.ack(command["id"])
        elif name == "fail":
            self.fail(command["id"])
        elif name == "activate":
            self.activate()
        elif name == "deactivate":
            self.deactivate()
        self._send({"command": "sync"})

    def _failed(self) -> None:
        self._send({"command": "sync"})


class Bolt(Component):
    """A bolt. Override `process`, and ack or fail each tuple. (`BasicBolt` does that for you.)

        from squall import multilang

        class Double(multilang.Bolt):
            def process(self, tup):
                self.emit([tup[0] * 2], anchors=[tup])
                self.ack(tup)

    End the file with `Double().run()`.
    """

    _current: Tuple | None = None

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        raise NotImplementedError

    def process_tick(self, tup: Tuple) -> None:
        """Process a tick tuple. It is acked when this method returns."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Sequence[Tuple] = (),
        stream: str | None = None,
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Emit a tuple, anchored to `anchors`. Returns the ids of the tasks that receive it if
        `need_task_ids` or `task` is given, otherwise an empty list."""
        message: dict[str, Any] = {
            "command": "emit",
            "anchors": [anchor.id for anchor in anchors],
            "tuple": list(values),
        }
        if stream is not None:
            message["stream"] = stream
        return self._emit(message, task, need_task_ids)

    def ack(self, tup: Tuple) -> None:
        """State that this tuple was processed."""
        self._send({"command": "ack", "id": tup.id})

    def fail(self, tup: Tuple) -> None:
        """State that this tuple could not be processed: its message fails at the spout."""
        self._send({"command": "fail", "id": tup.id})

    def keep_alive(self) -> None:
        self._send({"command": "sync"})

    def _serve(self) -> None:
        message = self._read_command()
        if message["stream"] == "__heartbeat" and message["task"] == -1:
            self._send({"command": "sync"})
            return
        component, stream = message.get("comp"), message["stream"]
        known = self.context.get("source->stream->fields") or {}
        fields = (known.get(component) or {}).get(stream) or ()
        tup = Tuple(message["id"], component, stream, message["task"], message["tuple"], fields)
        self._current = tup
        if tup.is_tick:
            self.process_tick(tup)
            self.ack(tup)
        else:
            self._process(tup)
        self._current = None

    def _process(self, tup: Tuple) -> None:
        self.process(tup)

    def _failed(self) -> None:
        if self._current is not None:
            self.fail(self._current)


class BasicBolt(Bolt):
    """A bolt that acks and anchors automatically. Override `process`: what it emits is anchored to
    its tuple, which is acked when `process` returns and failed when it raises.

        from squall import multilang

        class Split(multilang.BasicBolt):
            def process(self, tup):
                for word in tup["line"].split():
                    self.emit([word])

        if __name__ == "__main__":
            Split().run()
    """

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Sequence[Tuple] | None = None,
        stream: str | None = None,
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Emit a tuple, anchored to the current tuple unless `anchors` is given."""
        if anchors is None:
            anchors = () if self._current is None else (self._current,)
        return super().emit(
            values, anchors=anchors, stream=stream, task=task, need_task_ids=need_task_ids
        )

    def _process(self, tup: Tuple) -> None:
        self.process(tup)
        self.ack(tup)
