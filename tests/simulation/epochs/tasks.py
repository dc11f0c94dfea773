"""What the tasks of one generation do: sources, the bolt that counts, the sink."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.epochs.outside import Batch, Message, Row
from tests.simulation.epochs.rules import Rule

from squall_engine.epochs.messages import TaskName
from squall_engine.epochs.task import TaskEpochs, TaskState

GROUPS = 8  # key groups; a real topology has 128 at least
TRIES_MAX = 3
_IN_FLIGHT_MAX = 3

Shape = dict[str, int]  # tasks of each component

SOURCES = ("log", "broker")
# Who emits to whom.
DOWNSTREAM = {"log": "count", "broker": "once", "once": "count", "count": "sink", "sink": None}
UPSTREAM = {
    "log": (),
    "broker": (),
    "once": ("broker",),
    "count": ("log", "once"),
    "sink": ("count",),
}


def tasks_of(shape: Shape, component: str) -> list[TaskName]:
    return [(component, i) for i in range(shape[component])]


def owner(shape: Shape, component: str, group: int) -> TaskName:
    """The task that has a key group: contiguous ranges."""
    return component, group * shape[component] // GROUPS


def group_of_key(key: str) -> int:
    return ord(key[0]) % GROUPS


@dataclass(frozen=True, slots=True)
class Barrier:
    """Stands in an inbox behind all that its sender has emitted for the epoch. `full`: parts have
    all state, not what changed."""

    epoch: int
    full: bool


@dataclass(slots=True)
class Work:
    """What the messages are."""

    keys: dict[Message, str]
    fails: dict[Message, int]  # tries that fail

    def row(self, message: Message, count: int | None) -> Row:
        return message, self.keys[message], count


class Surroundings(Protocol):
    """What a task sees of the world."""

    @property
    def random(self) -> random.Random: ...
    @property
    def work(self) -> Work: ...
    @property
    def splits(self) -> list[int]:
        """Lengths of the parts of the log."""

    def keeps(self, rule: Rule) -> bool: ...
    def deliver(self) -> int | None:
        """A message of the broker, if there is one."""

    def acknowledge(self, numbers: Iterable[int]) -> None: ...
    def commit(self, batches: dict[Batch, list[Row]], confirmed: Callable[[], None]) -> None:
        """Write to the database; `confirmed` is called if and when that is known."""


class Task:
    """One task in one generation, which has begun at `epoch` of a `history`. `send(to, frame)`
    hands a frame to the link."""

    def __init__(
        self,
        name: TaskName,
        epoch: int,
        shape: Shape,
        around: Surroundings,
        send: Callable[[TaskName, Any], None],
        history: str,
    ) -> None:
        self.name = name
        self.history = history
        self.component, self.index = name
        self.shape = shape
        self.around = around
        self.send = send
        self.upstream = [t for c in UPSTREAM[self.component] for t in tasks_of(shape, c)]
        self.inbox: dict[TaskName, deque[Any]] = {t: deque() for t in self.upstream}
        self.epochs = TaskEpochs(self.upstream, epoch)
        self.snapshot: tuple[int, Any] | None = None  # the last one, until it is durable

    # -- barriers

    def _take(self, epoch: int) -> None:
        full = self.epochs.wants_full(epoch)
        self.snapshot = (epoch, self.capture(epoch, full))
        self.epochs.took(epoch)
        below = DOWNSTREAM[self.component]
        for task in tasks_of(self.shape, below) if below else ():
            self.send(task, Barrier(epoch, full))

    # -- steps

    def step(self) -> bool:
        """Do one thing; returns whether there was one."""
        self.epochs.validate()
        if (epoch := self.epochs.due) is not None:
            if not self.around.keeps(Rule.SETTLE_FIRST) or self.settle():
                self._take(epoch)
            return True
        if self.epochs.state is TaskState.SILENT and self.around.keeps(Rule.QUIET):
            return False
        return self.work()

    def settle(self) -> bool:
        """Finish something that was begun; True if nothing is left."""
        return True

    def work(self) -> bool:
        ready = [t for t, frames in self.inbox.items() if frames]
        if not ready:
            return False
        upstream = self.around.random.choice(ready)
        frame = self.inbox[upstream][0]
        if isinstance(frame, Barrier):
            self.epochs.barrier(upstream, frame.epoch, frame.full)
        elif not self.receive(frame):
            return False
        self.inbox[upstream].popleft()
        return True

    def receive(self, frame: Any) -> bool:
        """Take a tuple; False: not now."""
        raise NotImplementedError

    # -- snapshots

    def capture(self, epoch: int, full: bool) -> Any:
        """A part of an epoch: what changed since the last one, or all."""
        raise NotImplementedError

    def restore(self, parts: Iterable[Any]) -> None:
        """From all parts of its component, oldest first."""
        raise NotImplementedError

    def completed(self, epoch: int) -> None:
        """An epoch is complete. May be said again, and late."""

    def end(self) -> None:
        """Its generation is over, and its process lives on."""


class Log(Task):
    """Reads splits of a log from the position that the last epoch has."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        mine = range(self.index, len(self.around.splits), self.shape["log"])
        self.positions = dict.fromkeys(mine, 0)

    def work(self) -> bool:
        ready = [s for s, at in self.positions.items() if at < self.around.splits[s]]
        if not ready:
            return False
        split = self.around.random.choice(ready)
        message = (split, self.positions[split])
        self.positions[split] += 1
        key = self.around.work.keys[message]
        self.send(owner(self.shape, "count", group_of_key(key)), message)
        return True

    def capture(self, epoch: int, full: bool) -> dict[int, int]:
        return dict(self.positions)

    def restore(self, parts: Iterable[dict[int, int]]) -> None:
        for part in parts:
            self.positions.update({s: at for s, at in part.items() if s in self.positions})


class BrokerSource(Task):
    """Takes messages with ids from a broker, and acknowledges each after the epoch that has it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unacknowledged: dict[int, int] = {}  # id: the epoch that will have it

    def work(self) -> bool:
        number = self.around.deliver()
        again = number in self.unacknowledged
        if number is None or (again and self.around.random.random() < 0.95):
            return False
        # A redelivery may only be acknowledged later than what was meant before.
        self.unacknowledged[number] = self.epochs.taken + 1
        self.send(owner(self.shape, "once", number % GROUPS), (-1, number))
        return True

    def completed(self, epoch: int) -> None:
        done = [number for number, at in self.unacknowledged.items() if at <= epoch]
        self.around.acknowledge(done)
        for number in done:
            del self.unacknowledged[number]

    def capture(self, epoch: int, full: bool) -> None:
        return None

    def restore(self, parts: Iterable[None]) -> None:
        pass


class Keyed(Task):
    """State by key; a part has what changed since the last epoch that is known to be complete."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state: dict[Any, int] = {}
        self.changed: dict[Any, int] = {}  # key: the first epoch that can have its last change

    def group(self, key: Any) -> int:
        raise NotImplementedError

    def put(self, key: Any, value: int) -> None:
        self.state[key] = value
        self.changed[key] = self.epochs.taken + 1

    def capture(self, epoch: int, full: bool) -> dict[Any, int]:
        part = {key: self.state[key] for key in (self.state if full else self.changed)}
        if not self.around.keeps(Rule.KEEP_CHANGES):
            self.changed.clear()
        return part

    def completed(self, epoch: int) -> None:
        self.changed = {key: at for key, at in self.changed.items() if at > epoch}

    def restore(self, parts: Iterable[dict[Any, int]]) -> None:
        for part in parts:
            for key, value in part.items():
                mine = owner(self.shape, self.component, self.group(key)) == self.name
                if mine or not self.around.keeps(Rule.ONE_OWNER):
                    self.state[key] = value


class Once(Keyed):
    """Lets each id through once."""

    def group(self, key: int) -> int:
        return key % GROUPS

    def receive(self, frame: Message) -> bool:
        number = frame[1]
        if number not in self.state:
            self.put(number, 1)
            key = self.around.work.keys[frame]
            self.send(owner(self.shape, "count", group_of_key(key)), frame)
        return True


@dataclass(slots=True)
class _Begun:
    message: Message
    tries: int = field(default=0)


class Count(Keyed):
    """Counts by key. Some of its calls are under way while others begin, never two of one key; a
    message whose tries all fail becomes a dead letter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun_calls: dict[str, _Begun] = {}

    def group(self, key: str) -> int:
        return group_of_key(key)

    def receive(self, frame: Message) -> bool:
        key = self.around.work.keys[frame]
        if key in self.begun_calls or len(self.begun_calls) >= _IN_FLIGHT_MAX:
            return False
        self.begun_calls[key] = _Begun(frame)
        return True

    def work(self) -> bool:
        if self.begun_calls and self.around.random.random() < 0.5:
            self.settle()
            return True
        return super().work() or not self.settle()

    def settle(self) -> bool:
        if not self.begun_calls:
            return True
        key = self.around.random.choice(sorted(self.begun_calls))
        call = self.begun_calls[key]
        call.tries += 1
        fails = call.tries <= self.around.work.fails[call.message]
        if not fails or not self.around.keeps(Rule.ATOMIC):
            self.put(key, self.state.get(key, 0) + 1)
        if fails and call.tries < TRIES_MAX:
            return False
        row = self.around.work.row(call.message, None if fails else self.state[key])
        self.send(("sink", group_of_key(key) % self.shape["sink"]), row)
        del self.begun_calls[key]
        return False


class Sink(Task):
    """Keeps rows in its snapshots until the database has them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: list[Row] = []
        self.pending: dict[Batch, list[Row]] = {}

    def receive(self, frame: Row) -> bool:
        self.open.append(frame)
        return True

    def capture(self, epoch: int, full: bool) -> dict[Batch, list[Row]]:
        self.pending[self.history, self.index, epoch] = self.open
        self.open = []
        return dict(self.pending)

    def completed(self, epoch: int) -> None:
        batches = {batch: rows for batch, rows in self.pending.items() if batch[2] <= epoch}
        if batches:
            self.around.commit(batches, lambda: self._confirmed(batches))

    def _confirmed(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.pending.pop(batch, None)

    def restore(self, parts: Iterable[dict[Batch, list[Row]]]) -> None:
        for part in parts:
            for batch, rows in part.items():
                if batch[1] % self.shape["sink"] == self.index:
                    if not self.around.keeps(Rule.ROWS_KEEP_HISTORY):
                        batch = (self.history, *batch[1:])
                    self.pending[batch] = rows

    def end(self) -> None:
        """Its generation is over."""
        if not self.around.keeps(Rule.COMMIT_COMPLETED):
            self.completed(self.epochs.taken)


KINDS: dict[str, type[Task]] = {
    "log": Log,
    "broker": BrokerSource,
    "once": Once,
    "count": Count,
    "sink": Sink,
}
