"""One run: processes, links, late messages and writes, faults, and what must hold."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.epochs.outside import (
    Batch,
    Broker,
    Database,
    Kept,
    Message,
    Row,
    Store,
    Znode,
)
from tests.simulation.epochs.processes import Manifest, Process
from tests.simulation.epochs.rules import Rule
from tests.simulation.epochs.savepoints import is_halted
from tests.simulation.epochs.tasks import KINDS, TRIES_MAX, Shape, Work

from squall_common.cluster.values import SavepointRequest
from squall_engine.epochs import coordinator_table as asks
from squall_engine.epochs.messages import Name, Record, TaskName

# A run has faults for so many steps, and may take so many more to come to its end.
_FAULTY_STEPS = 5_000
_STEPS_MAX = 150_000
_KEYS = "abcdef"
# Of requests for savepoints: they are not older than those that are carried out.
_NOW_MS = int(time.time() * 1000)


class Violation(AssertionError):
    """Something was lost, doubled or invented, or the topology stands still."""


class World:
    """A run from a seed; `broken` are the rules that its parts do not keep to."""

    def __init__(self, seed: int, broken: Collection[Rule] = ()) -> None:
        self.random = random.Random(seed)
        self.broken = frozenset(broken)
        self.workers = self.random.randint(1, 3)
        # Each run has other troubles: what is rare in one is common in another.
        self._failure_rate = self.random.choice((0.0005, 0.001, 0.003))
        self._zombie_share = self.random.choice((0.1, 0.5, 0.9))
        self._zombie_end_rate = self.random.choice((0.001, 0.01))
        self._write_rate = self.random.choice((0.02, 0.05, 0.15))
        self._trouble_share = self.random.choice((0.1, 0.3, 0.6))  # of writes
        self._give_up_rate = self.random.choice((0.0, 0.01, 0.05))
        self._rescale_rate = self.random.choice((0.0, 0.02, 0.1))
        # What users do has a chance of its own, and a third of the runs has none of it.
        self.user = random.Random(f"user {seed}")
        self.has_savepoints = seed % 3 != 1
        self._request_rate = self.user.choice((0.003, 0.01))
        self._stop_share = self.user.choice((0.2, 0.9))
        self._withdrawal_rate = self.user.choice((0.0, 0.0002, 0.001))
        self._move_rate = self.user.choice((0.0003, 0.001, 0.02))
        self._slow_copies = self.user.choice((0.0, 0.9, 0.97))
        self._rebalance_rate = self.user.choice((0.0, 0.0, 0.0005))
        self.starts = self.placements = 1
        self.begins_with: Kept | None = None  # the savepoint that this start goes on from
        self.request: SavepointRequest | None = None
        self._requests = 0
        self.shape: Shape = {}
        self.events: Counter[str] = Counter()
        self.znode = Znode()
        self.store = Store()
        self.database = Database()
        self.splits = [self.random.randint(0, 40) for _ in range(self.random.randint(1, 3))]
        self.broker = Broker(set(range(self.random.randint(0, 30))))
        messages: list[Message] = [
            (split, at) for split, length in enumerate(self.splits) for at in range(length)
        ]
        messages += [(-1, number) for number in self.broker.waiting]
        self.work = Work(
            {message: self.random.choice(_KEYS) for message in messages},
            {message: self.random.choice((0, 0, 0, 1, 2, TRIES_MAX)) for message in messages},
        )
        self._incarnations = Counter[int]()
        self._processes: list[Process] = []
        self._newest: dict[int, Process] = {}
        self._links: dict[tuple[Process, TaskName, TaskName], deque[tuple[int, Any]]] = {}
        self._control: list[Callable[[], None]] = []
        self._writes: list[Callable[[], None]] = []
        self._faulty = True
        self.steps = 0
        self._reshape()
        for worker in range(self.workers):
            self._start(worker)

    def keeps(self, rule: Rule) -> bool:
        return rule not in self.broken

    # -- where things are

    def worker_of(self, task: TaskName) -> int:
        return (len(task[0]) + task[1]) % self.workers

    def name_of(self, generation: int, epoch: int, task: TaskName) -> Name:
        """Of the part of a task."""
        by = generation if self.keeps(Rule.GENERATIONS_IN_NAMES) else 0
        return Name(by, epoch, f"{task[0]}/{task[1]}")

    def _reshape(self) -> None:
        self.shape = {component: self.random.randint(1, 3) for component in KINDS}

    def _start(self, worker: int) -> None:
        self._incarnations[worker] += 1
        process = Process(self, worker, self._incarnations[worker])
        self._processes.append(process)
        self._newest[worker] = process

    # -- messages between processes

    def link(self, source: Process, sender: TaskName, to: TaskName) -> deque[tuple[int, Any]]:
        return self._links.setdefault((source, sender, to), deque())

    def to_worker(self, source: Process, worker: int, message: Any) -> None:
        self._say(lambda: self._reached(source, worker).hear, message)

    def to_coordinator(self, source: Process, message: Any) -> None:
        self._say(lambda: self._reached(source, 0).hear_as_coordinator, message)

    def later(self, source: Process, answer: asks.Event) -> None:
        """Answer a coordinator some time."""
        self._control.append(lambda: source.coordinate(answer))

    def _reached(self, source: Process, worker: int) -> Process:
        """The process that a message to a worker reaches: the newest of its placement, or one that
        it replaced."""
        if worker == source.worker:
            return source
        living = [
            p
            for p in self._processes
            if p.worker == worker and p.placement == source.placement and p.alive
        ]
        last = max(
            (p for p in self._processes if p.worker == worker and p.placement == source.placement),
            key=lambda p: p.incarnation,
        )
        return self.random.choice(living or [last])

    def _say(self, to: Callable[[], Callable[[Any], None]], message: Any) -> None:
        """May be late, lost or doubled."""
        copies = self.random.choice((0, 1, 1, 1, 1, 2)) if self._faulty else 1
        self._control += [lambda: to()(message)] * copies

    # -- writes to what outlives processes

    def _request(
        self, process: Process, apply: Callable[[], Any], outcome: Callable[[Any], None]
    ) -> None:
        """Apply something some time; `outcome` gets its result, or None if that is not known."""
        fate = "done"
        if self._faulty and self.random.random() < self._trouble_share:
            fate = self.random.choice(("unheard", "late", "lost"))

        def answer(result: Any) -> None:
            self._control.append(lambda: outcome(result) if process.alive else None)

        def run() -> None:
            if fate == "done":
                answer(apply())
            elif fate == "unheard":
                apply()
                answer(None)
            else:
                answer(None)
                if fate == "late":
                    self._writes.append(apply)

        self._writes.append(run)

    def write_record(
        self, process: Process, wanted: Record, outcome: Callable[[bool | None], None]
    ) -> None:
        def apply() -> bool:
            before = self.znode.record.epoch
            succeeded = self.znode.replace(wanted)
            if succeeded and wanted.epoch > before:
                self.events["epochs"] += 1
                self._check_epoch()
            return succeeded

        self._request(process, apply, outcome)

    def put(
        self,
        process: Process,
        name: Name,
        value: Any,
        written: Callable[[], None],
    ) -> None:
        """Write an object, again and again until it is known to be there."""

        def apply() -> bool:
            self.store.objects[name] = value
            return True

        def outcome(result: bool | None) -> None:
            if result:
                written()
            else:
                self.put(process, name, value, written)

        self._request(process, apply, outcome)

    def commit(
        self,
        process: Process,
        batches: dict[Batch, list[Row]],
        confirmed: Callable[[], None],
    ) -> None:
        def apply() -> bool:
            self.database.commit(batches, once=self.keeps(Rule.APPLIED_IN_TRANSACTION))
            return True

        self._request(process, apply, lambda result: confirmed() if result else None)

    # -- savepoints

    def soon(self, process: Process, call: Callable[[], None]) -> None:
        """Have a process do something some time, if it lives then."""
        self._control.append(lambda: call() if process.alive else None)

    def copy_slowly(self, process: Process, call: Callable[[], None]) -> None:
        """The same, and a part may be large."""

        def go_on() -> None:
            if self._faulty and self.user.random() < self._slow_copies:
                self._writes.append(go_on)
            elif process.alive:
                call()

        self._writes.append(go_on)

    def request_of(self, process: Process) -> SavepointRequest | None:
        """What a process reads of its topology's status: that of a start that is over is gone."""
        return self.request if process.start == self.starts else None

    def keep_savepoint(self, name: str, kept: Kept) -> None:
        """Write the head of a savepoint."""
        self.events["savepoints"] += 1
        stops = self.request is not None and (self.request.name, self.request.stop) == (name, True)
        # Without a stop, sinks may have rows of later epochs by now.
        self._check_manifest(kept.manifest, kept.parts, f"in savepoint {name}", rows=stops)
        self.store.savepoints[name] = kept

    def require(self, problem: str | None) -> None:
        if problem is not None:
            raise Violation(problem)

    def require_replaced(self, process: Process, name: Name) -> None:
        """A part that a savepoint needs may only be gone if another process coordinates."""
        if self.znode.record.coordinator == process.incarnation:
            raise Violation(f"{name} was removed while a savepoint was copied from it")

    def _use_savepoints(self) -> None:
        """What a user does now and then."""
        chance = self.user.random()
        newest = self._newest[0]
        if self.request is None:
            if chance < self._request_rate:
                self._requests += 1
                stop = self.user.random() < self._stop_share
                asked_ms = _NOW_MS + self._requests
                self.request = SavepointRequest(f"s{self._requests}", asked_ms, None, stop)
        elif is_halted(newest):
            if chance < self._move_rate:
                self._begin_anew(self.store.savepoints[self.request.name])
        elif chance < self._withdrawal_rate:
            self.events["withdrawn"] += 1
            self.request = None
        elif self.request.name in self.store.savepoints and not self.request.stop:
            self.request = None

    def _begin_anew(self, kept: Kept) -> None:
        """Kill the topology, and start it with the savepoint that has stopped it, and with other
        numbers of tasks."""
        self.events["moved"] += 1
        self.starts += 1
        self.request, self.begins_with = None, kept
        self._place_anew()

    def _place_anew(self) -> None:
        """All workers get other tasks, and do not meet those of before, some of which live on."""
        self.placements += 1
        self._reshape()
        for process in self._newest.values():
            process.alive &= self.random.random() < self._zombie_share
        for worker in range(self.workers):
            self._start(worker)

    # -- reading is certain

    def manifest(self, name: Name | None) -> Manifest | None:
        if name is None:
            return None
        if name not in self.store.objects:
            raise Violation(f"{name} is the manifest of the last epoch, and does not exist")
        manifest: Manifest = self.store.objects[name]
        return manifest

    def read_parts(self, manifest: Manifest | None, component: str) -> list[Any]:
        if manifest is None:
            return []
        parts = []
        for name in manifest.parts[component]:
            if name not in self.store.objects:
                raise Violation(f"{name} belongs to epoch {manifest.epoch}, and does not exist")
            parts.append(self.store.objects[name])
        return parts

    def around(self, process: Process) -> Around:
        return Around(self, process)

    # -- what the coordinator is asked for, by chance

    def asks_for_other_shape(self) -> bool:
        if self._faulty and self.random.random() < self._rescale_rate:
            self.events["rescaled"] += 1
            self._reshape()
            return True
        return False

    def gives_up(self) -> bool:
        given_up = self._faulty and self.random.random() < self._give_up_rate
        self.events["given up"] += given_up
        return given_up

    # -- the run

    def run(self) -> Counter[str]:
        """Play the run to its end; raises Violation."""
        for step in range(_STEPS_MAX):
            self.steps = step
            if self._faulty and step >= _FAULTY_STEPS:
                self._faulty, self._write_rate, self.request = False, 0.2, None
                for process in self._processes:
                    process.alive &= self._newest[process.worker] is process
            self._restart_ended()
            if self._faulty and self.random.random() < self._failure_rate:
                self._fail()
            if self._faulty and self.has_savepoints:
                self._use_savepoints()
                if self.user.random() < self._rebalance_rate:
                    self.events["rebalanced"] += 1
                    self._place_anew()
            self._step()
            if not self._faulty and step % 50 == 0 and self._is_done():
                self._check_rows(self.database.rows, set(self.work.keys), "in the end")
                return self.events
        phases = [p.coordinator.state.name for p in self._living() if p.coordinator]
        raise Violation(f"it stands still: {phases}")

    def _living(self) -> list[Process]:
        return [process for process in self._processes if process.alive]

    def _restart_ended(self) -> None:
        for worker, process in self._newest.items():
            if not process.alive:
                self._start(worker)

    def _fail(self) -> None:
        process = self.random.choice(list(self._newest.values()))
        if self.random.random() < self._zombie_share:
            self.events["zombies"] += 1
            self._start(process.worker)
        else:
            self.events["crashes"] += 1
            process.alive = False

    def _step(self) -> None:
        choice = self.random.random()
        if choice < 0.35 + len(self._control) / 200 and self._control:
            self._pop(self._control)()
        elif choice < 0.35 + self._write_rate and self._writes:
            self._pop(self._writes)()
        elif choice < 0.75 and self._links:
            key = self.random.choice(list(self._links))
            (_, sender, to), frames = key, self._links[key]
            generation, frame = frames.popleft()
            if not frames:
                del self._links[key]
            self._host(to, generation).receive(sender, to, generation, frame)
        elif living := self._living():
            process = self.random.choice(living)
            if (
                self._newest[process.worker] is not process
                and self.random.random() < self._zombie_end_rate
            ):
                process.alive = False  # a zombie ends
            process.step()

    def _host(self, task: TaskName, generation: int) -> Process:
        """Where a link ends: at the process of its generation, dead or alive, if there is one."""
        worker = self.worker_of(task)
        for process in self._processes:
            if process.worker == worker and process.generation == generation:
                return process
        return self._newest[worker]

    def _pop(self, things: list[Callable[[], None]]) -> Callable[[], None]:
        """Any: they overtake each other."""
        at = self.random.randrange(len(things)) if self._faulty else 0
        return things.pop(at)

    # -- what must hold

    def _is_done(self) -> bool:
        return not self.broker.waiting and len(self.database.rows) >= len(self.work.keys)

    def _check_epoch(self) -> None:
        """The state of an epoch is that of exactly the messages before it."""
        manifest = self.manifest(self.znode.record.manifest)
        assert manifest is not None
        parts = {
            name: part
            for component, names in manifest.parts.items()
            for name, part in zip(names, self.read_parts(manifest, component), strict=True)
        }
        self._check_manifest(manifest, parts, f"in epoch {manifest.epoch}")

    def _check_manifest(
        self, manifest: Manifest, found: Mapping[Name, Any], where: str, *, rows: bool = True
    ) -> None:
        def of(component: str) -> list[Any]:
            return [found[name] for name in manifest.parts[component]]

        consumed: set[Message] = set()
        for part in of("log"):
            for split, position in part.items():
                consumed |= {(split, at) for at in range(position)}
        for part in of("once"):
            consumed |= {(-1, number) for number in part}
        counts: dict[str, int] = {}
        for part in of("count"):
            counts.update(part)
        written = list(self.database.rows)
        for part in of("sink"):
            for batch, more in part.items():
                if not self.database.has(batch):
                    written += more
        if rows:
            self._check_rows(written, consumed, where)
        expected = self._counts(consumed)
        if counts != expected:
            raise Violation(f"{where} the state is {counts}, and should be {expected}")

    def _counts(self, messages: Iterable[Message]) -> dict[str, int]:
        counts: defaultdict[str, int] = defaultdict(int)
        for message in messages:
            if self.work.fails[message] < TRIES_MAX:
                counts[self.work.keys[message]] += 1
        return dict(counts)

    def _check_rows(self, rows: list[Row], messages: set[Message], when: str) -> None:
        times = Counter(row[0] for row in rows)
        doubled = [message for message, count in times.items() if count > 1]
        lost = messages - times.keys()
        invented = times.keys() - messages
        if doubled or lost or invented:
            raise Violation(f"{when}: {doubled=} {lost=} {invented=}")
        seen = Counter((key, count) for _, key, count in rows if count is not None)
        expected = Counter(
            (key, at) for key, total in self._counts(messages).items() for at in range(1, total + 1)
        )
        if seen != expected:
            raise Violation(f"{when} the counts are {seen}, and should be {expected}")


@dataclass(slots=True)
class Around:
    """What the tasks of a process see."""

    world: World
    process: Process

    @property
    def random(self) -> random.Random:
        return self.world.random

    @property
    def work(self) -> Work:
        return self.world.work

    @property
    def splits(self) -> list[int]:
        return self.world.splits

    def keeps(self, rule: Rule) -> bool:
        return self.world.keeps(rule)

    def deliver(self) -> int | None:
        waiting = sorted(self.world.broker.waiting)
        return self.random.choice(waiting) if waiting else None

    def acknowledge(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.world.broker.acknowledge(number)

    def commit(self, batches: dict[Batch, list[Row]], confirmed: Callable[[], None]) -> None:
        self.world.commit(self.process, batches, confirmed)
