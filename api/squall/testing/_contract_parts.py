"""The components and the waits that the contracts of sources and sinks share."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from squall import Bolt, ReplayingSpout, Tuple
from squall.testing._runs import KillableTopology, wait_until
from squall.testing.topologies import FeederSpout, _streams_of
from squall_common.topology.model import (
    Component,
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
)

GIVEN = PythonObject("squall.testing:FeederSpout", b'{"args":[],"kwargs":{}}')
QUIET_SECS = 1.0
WAIT_SECS = 120.0  # a server that is started again on a busy machine takes a minute


class ServerControl(Protocol):
    """The system that a connector talks to, as tests of outages need it."""

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""

    def restart(self) -> None:
        """Start it with the data that it had, and wait until it answers."""


class CollectingBolt(Bolt):
    """Keeps what it gets, and does with each tuple what `decide` says: "ack", "fail" or "hold"."""

    auto_ack = False

    def __init__(self, record_field: str) -> None:
        self._field = record_field
        self.decide: Callable[[str], str] = lambda record: "ack"
        self.got: list[str] = []
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        record = text_of(tup[self._field])
        self.got.append(record)
        decision = self.decide(record)
        if decision == "hold":
            self.held.append(tup)
        elif decision == "fail":
            self.fail(tup)
        else:
            self.ack(tup)

    def release(self) -> None:
        """Ack what is held, and hold no more."""
        self.decide = lambda record: "ack"
        for tup in self.held:
            self.ack(tup)
        self.held.clear()


class DeadLetterBolt(Bolt):
    """Keeps dead letters in `got`, each as the list of its values: those of a sink that runs in
    `SinkContract.running(letters=...)`, for tests of your own beside the contract's."""

    def __init__(self) -> None:
        self.got: list[list[Any]] = []

    def execute(self, tup: Tuple) -> None:
        self.got.append(list(tup.values))


class RecordingBolt(Bolt):
    """Appends each record to a file before it acks it: the file has what took effect."""

    def __init__(self, path: Path, record_field: str) -> None:
        self._path = path
        self._field = record_field

    def prepare(self, conf: Any, context: Any) -> None:
        self._file = self._path.open("ab", buffering=0)

    def execute(self, tup: Tuple) -> None:
        self._file.write(f"{text_of(tup[self._field])}\n".encode())

    def cleanup(self) -> None:
        self._file.close()


class LinesSpout(ReplayingSpout):
    """Emits the lines of a file, tab-separated into fields, and notes those that are acked in
    another. Started again it emits those that are not noted."""

    def __init__(self, path: Path, acked_path: Path, fields: Sequence[str]) -> None:
        self._path = path
        self._acked_path = acked_path
        self.outputs = list(fields)

    def open(self, conf: Any, context: Any) -> None:
        self._acked_file = self._acked_path.open("ab", buffering=0)
        done = set(self._acked_path.read_text().splitlines())
        lines = self._path.read_text().splitlines()
        self._lines = iter([line for line in lines if line not in done])

    def next_message(self) -> Sequence[Any] | None:
        line = next(self._lines, None)
        return None if line is None else line.split("\t")

    def acked(self, values: Sequence[Any]) -> None:
        self._acked_file.write(("\t".join(values) + "\n").encode())

    def close(self) -> None:
        self._acked_file.close()


class NotingFeeder(FeederSpout):
    """A feeder that notes what became of its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: list[Any] = []
        self.failed: list[Any] = []

    def ack(self, msg_id: Any) -> None:
        self.acked.append(msg_id)

    def fail(self, msg_id: Any) -> None:
        self.failed.append(msg_id)


# A killed worker's messages are another process's soon: nothing waits for a message timeout.
KILL_CONF: Mapping[str, Any] = {"topology.message.timeout.secs": 60}


def bolt_of(name: str, source: str, stream: str, bolt: Bolt | None = None) -> Component:
    return Component(
        name,
        ComponentKind.BOLT,
        GIVEN,
        inputs={GlobalStreamId(source, stream): Grouping(GroupingKind.SHUFFLE)},
        streams={} if bolt is None else _streams_of(bolt.outputs),
        conf={} if bolt is None else dict(bolt.component_conf),
    )


def numbers(count: int, *, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def wait_for_all(bolt: CollectingBolt, records: Sequence[str]) -> None:
    wanted = set(records)
    try:
        wait_until("the records", lambda: wanted <= set(bolt.got), WAIT_SECS, 0.02)
    except AssertionError as error:
        missing = sorted(wanted - set(bolt.got))
        raise AssertionError(f"{error}: {len(missing)} are missing: {missing[:5]}") from None


def wait_for_lines(path: Path, topology: KillableTopology, count: int) -> None:
    def there() -> bool:
        topology.check()
        return len(set(path.read_bytes().splitlines())) >= count

    wait_until(f"{count} different records", there, 120.0, 0.05)


def cpu_secs() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
