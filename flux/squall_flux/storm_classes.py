"""The Java classes that Storm's Flux files name, in Python: Flux's own wrappers, and the classes of
`org.apache.storm.testing` that its documentation uses."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from squall import Bolt, CustomGrouping, ShellBolt, ShellSpout, Spout, Tuple
from squall_common.errors import InvalidTopologyError
from squall_common.names import DEFAULT_STREAM

log = logging.getLogger("squall_flux")


class FluxShell:
    """A shell component: a command, its output streams, and configuration of its own."""

    kind: type[ShellSpout] | type[ShellBolt]

    def __init__(self, command: Sequence[str], output_fields: Sequence[str] | None = None) -> None:
        if not isinstance(command, list) or not all(isinstance(w, str) for w in command):
            raise InvalidTopologyError(
                f"the command is {command!r}; expected a list of text, such as "
                '["python3", "split.py"]'
            )
        if not command:
            raise InvalidTopologyError("the command is an empty list")
        self._command = list(command)
        self._streams: dict[str, list[str]] = {}
        self.conf: dict[str, Any] = {}
        if output_fields is not None:
            self.setDefaultStream(output_fields)

    def setDefaultStream(self, fields: Sequence[str]) -> None:
        """Declare the fields of the default stream."""
        self.setNamedStream(DEFAULT_STREAM, fields)

    def setNamedStream(self, name: str, fields: Sequence[str]) -> None:
        """Declare the fields of a stream."""
        if not isinstance(fields, list) or not all(isinstance(f, str) for f in fields):
            raise InvalidTopologyError(
                f"the fields of stream {name!r} are {fields!r}; expected a list of names"
            )
        self._streams[name] = list(fields)

    def addComponentConfig(self, key: str, value: Any) -> None:
        """Add an option to the component's configuration."""
        self.conf[key] = value

    def component(self) -> ShellSpout | ShellBolt:
        """As the topology's builder takes it."""
        command, script = _two_words(self._command)
        return self.kind(command, script, outputs=self._streams)


def _two_words(command: list[str]) -> tuple[str, str]:
    """A command of any length as the two words of Storm's ShellComponent: `env` runs one word, and
    `env -S` splits its argument by the quotes in it."""
    if len(command) == 2:
        return command[0], command[1]
    if len(command) == 1:
        return "env", command[0]
    quoted = (w.replace("\\", "\\\\").replace("'", "\\'") for w in command)
    return "env", "-S" + " ".join(f"'{w}'" for w in quoted)


class FluxShellSpout(FluxShell):
    """org.apache.storm.flux.wrappers.spouts.FluxShellSpout"""

    kind = ShellSpout


class FluxShellBolt(FluxShell):
    """org.apache.storm.flux.wrappers.bolts.FluxShellBolt"""

    kind = ShellBolt


class LogInfoBolt(Bolt):
    """Logs each tuple, at level INFO; in the worker's log on a cluster."""

    def execute(self, tup: Tuple) -> None:
        log.info("%s", list(tup.values))


class TestWordSpout(Spout):
    """Emits one of five names about ten times a second."""

    __test__ = False  # not for pytest
    outputs = ("word",)
    _WORDS = ("nathan", "mike", "jackson", "golda", "bertels")

    async def next_tuple(self) -> None:
        import asyncio

        await asyncio.sleep(0.1)
        self.emit([random.choice(self._WORDS)])


class TestWordCounter(Bolt):
    """Counts the values of the first field."""

    __test__ = False  # not for pytest
    outputs = ("word", "count")

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self._counts: Counter[Any] = Counter()

    def execute(self, tup: Tuple) -> None:
        word = tup.values[0]
        self._counts[word] += 1
        self.emit([word, self._counts[word]])


class NGrouping(CustomGrouping):
    """Sends each tuple to the first `n` tasks."""

    def __init__(self, n: int) -> None:
        self._n = n

    def prepare(self, context: Any, stream: Any, target_tasks: Sequence[int]) -> None:
        self._targets = sorted(target_tasks)[: self._n]

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return self._targets


STORM_CLASSES: Mapping[str, type] = {
    "org.apache.storm.flux.wrappers.bolts.FluxShellBolt": FluxShellBolt,
    "org.apache.storm.flux.wrappers.bolts.LogInfoBolt": LogInfoBolt,
    "org.apache.storm.flux.wrappers.spouts.FluxShellSpout": FluxShellSpout,
    "org.apache.storm.testing.NGrouping": NGrouping,
    "org.apache.storm.testing.TestWordCounter": TestWordCounter,
    "org.apache.storm.testing.TestWordSpout": TestWordSpout,
}
