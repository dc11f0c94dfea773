"""A model that keeps whole trees, for the acking of either core.

Random trees over several workers: tuples are emitted to random workers, with several anchors (so
trees are graphs and tuples belong to several roots), acked in any order, some failed. The messages
to the ackers are lost, repeated and reordered at random. The model knows the tuples of each tree
that are in flight, and asserts that no tree completes before them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall_engine.core.sections import ACKS, FAILS, parse_roots
from squall_engine.core.stats import TaskCounts


@dataclass
class Node:
    """A tuple of the model."""

    tup: Any
    roots: frozenset[int]


class Targets:
    """A grouper that takes the edges it is told."""

    def __init__(self) -> None:
        self.edges: tuple[Any, ...] = ()

    def choose(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return self.edges


@dataclass
class Worker:
    """One worker: a spout, a bolt whose tuples are acked one by one, and one with `auto_ack`."""

    index: int
    trees: Any
    pending: Any
    attached: bool
    edges: list[Any]
    targets: Targets
    spout: Any = None
    careful: Any = None
    bolt: Any = None
    source: Any = None
    execute: Callable[[Any], None] = lambda tup: None
    nodes: list[Node] = field(default_factory=list)  # in flight here


class World:
    """Workers, their ackers and the messages between them; and the truth about every root."""

    def __init__(self, core: Any, seed: int, workers: int, ackers: int) -> None:
        self.core = core
        self.rng = random.Random(seed)
        self.place = [i % workers for i in range(ackers)]  # of each acker
        self.workers = [self._worker(i, workers, ackers) for i in range(workers)]
        self.messages: list[tuple[int, bytes]] = []  # the acker, and a section
        self.alive: dict[int, int] = {}  # root -> tuples in flight
        self.failed: set[int] = set()
        self.reported_done: list[int] = []
        self.reported_failed: set[int] = set()

    def _worker(self, index: int, workers: int, ackers: int) -> Worker:
        core, bits = self.core, self.rng.getrandbits
        local = [acker for acker, place in enumerate(self.place) if place == index]
        trees, pending = core.Trees(ackers, local, bits), core.PendingRoots()
        attached = self.rng.random() < 0.5
        if attached:
            trees.attach(index, pending)
        source = core.Source("c", index, "default", ["x"])
        chosen = core.Source("c", index, "chosen", ["x"])
        edges = [core.Edge(i, source, local=i == index) for i in range(workers)]
        targets = Targets()
        by_turn, by_choice = core.Output(source, direct=False), core.Output(chosen, direct=False)
        by_turn.add_consumer(core.RoundRobin(edges, self.rng), edges)
        by_choice.add_consumer(targets, edges)
        emitter = core.Emitter(
            "c",
            index,
            {"default": by_turn, "chosen": by_choice},
            bits,
            on_rejected=lambda error, roots: None,
        )
        worker = Worker(index, trees, pending, attached, edges, targets, source=source)
        worker.spout = core.SpoutCalls(
            emitter,
            trees.ledger,
            pending,
            core.TurnState(0.0),
            acker=index % ackers,
            on_error=print,
        )
        worker.careful = core.CarefulCalls(
            emitter, trees.ledger, TaskCounts(), default_anchors=lambda: (), on_error=print
        )
        worker.bolt = core.BoltCalls(
            emitter,
            trees.ledger,
            TaskCounts(),
            lambda tup: worker.execute(tup),
            auto_ack=True,
            on_error=lambda error: None,
            now=lambda: 0.0,
            on_outside=lambda: None,
        )
        return worker

    # -- what components do --

    def begin(self) -> None:
        """A spout emits a message to some workers."""
        worker = self.rng.choice(self.workers)
        self._choose(worker)
        if self.rng.random() < 0.3:
            worker.spout.emit([0], message_id=len(self.alive))
        else:
            worker.spout.emit([0], message_id=len(self.alive), stream="chosen")
        root = worker.spout.last_root()
        self.alive[root] = 0
        self._collect(worker, frozenset([root]))

    def _choose(self, worker: Worker) -> None:
        count = self.rng.choice([0, 1, 1, 2, 3])
        edges = self.rng.sample(worker.edges, min(count, len(worker.edges)))
        worker.targets.edges = tuple(edges)

    def _collect(self, worker: Worker, roots: frozenset[int]) -> None:
        """Take over the tuples that were just emitted."""
        for edge in worker.edges:
            for tup in edge.take().as_tuples():
                self.workers[edge.task].nodes.append(Node(tup, roots))
                for root in roots:
                    self.alive[root] += 1

    @property
    def crowded(self) -> bool:
        return sum(len(worker.nodes) for worker in self.workers) >= 40

    def execute(self, *, fail: bool = False) -> None:
        """A bolt takes one to three tuples, emits children, and acks them."""
        busy = [worker for worker in self.workers if worker.nodes]
        if not busy:
            return
        worker = self.rng.choice(busy)
        if fail and self.rng.random() < 0.3:
            self._refuse(worker)
            return
        count = min(len(worker.nodes), self.rng.choice([1, 1, 1, 2, 3]))
        taken = [worker.nodes.pop(self.rng.randrange(len(worker.nodes))) for _ in range(count)]
        if self.rng.random() < 0.5:
            self._execute_together(worker, taken, fail=fail)
        else:
            self._execute_each(worker, taken, fail=fail)
        for node in taken:
            for root in node.roots:
                self.alive[root] -= 1

    def _refuse(self, worker: Worker) -> None:
        """A child is refused on its way, which fails its trees, and its anchor is acked.

        In the same turn, because the network of the model reorders all messages: between two
        workers the transport keeps their order, so that the ack never overtakes the fail."""
        node = worker.nodes.pop(self.rng.randrange(len(worker.nodes)))
        worker.trees.ledger.fail(node.roots)
        worker.careful.ack(node.tup)
        self.failed |= node.roots
        for root in node.roots:
            self.alive[root] -= 1

    def _execute_together(self, worker: Worker, taken: list[Node], *, fail: bool) -> None:
        """With children anchored to all."""
        if not self.crowded:
            self._choose(worker)
            anchors = [node.tup for node in taken]
            worker.careful.emit([0], anchors=anchors, stream="chosen")
            self._collect(worker, frozenset().union(*(node.roots for node in taken)))
        for number, node in enumerate(taken):
            if fail and number == 0:
                worker.careful.fail(node.tup)
                self.failed |= node.roots
            else:
                worker.careful.ack(node.tup)

    def _execute_each(self, worker: Worker, taken: list[Node], *, fail: bool) -> None:
        """As one batch of a bolt with `auto_ack`."""
        nodes = iter(taken)

        def execute(tup: Any) -> None:
            node = next(nodes)
            if not self.crowded:
                if self.rng.random() < 0.3:
                    worker.bolt.emit([0])
                if self.rng.random() < 0.3:
                    self._choose(worker)
                    worker.bolt.emit([0], stream="chosen")
                self._collect(worker, node.roots)
            if fail and node is taken[0]:
                self.failed.update(node.roots)
                raise ValueError("a bolt's error")

        worker.execute = execute
        batch = self.core.Batch.of(worker.source, [node.tup for node in taken])
        worker.bolt.run(batch, len(taken))

    def end_turn(self, worker: Worker) -> None:
        self._record(worker.trees.settle())
        for index, worker in enumerate(self.workers):
            completed = worker.pending.take_completed(0.0)
            if completed is not None:
                assert worker.attached, index
                roots = list(self.alive)
                self._done([roots[message_id] for message_id in completed.message_ids])

    def _record(self, outcome: Any) -> None:
        if outcome is None:
            return
        for roots in outcome.done.values():
            self._done(roots)
        for roots in outcome.failed.values():
            self.reported_failed |= set(roots)
        for index, sections in outcome.sections.items():
            self.messages += [(index, section) for section in sections]

    # -- what the network does --

    def deliver(self, *, lose: float = 0.0, repeat: float = 0.0) -> None:
        """Any message, out of order."""
        if not self.messages:
            return
        index, section = self.messages.pop(self.rng.randrange(len(self.messages)))
        if self.rng.random() < lose:
            return
        worker = self.workers[self.place[index]]
        for _ in range(2 if self.rng.random() < repeat else 1):
            if section[0] == ACKS:
                self._record(worker.trees.receive_acks(section))
            else:
                assert section[0] == FAILS
                self._record(worker.trees.fail(index, parse_roots(section).roots))
        self.end_turn(worker)

    def _done(self, roots: Sequence[int]) -> None:
        for root in roots:
            assert self.alive[root] == 0, "a root is done while tuples of it are in flight"
            self.reported_done.append(root)

    # -- the end --

    def finish(self) -> None:
        while any(worker.nodes for worker in self.workers):
            self.execute()
        for worker in self.workers:
            self.end_turn(worker)
        while self.messages:
            self.deliver()

    def kept(self) -> int:
        """The number of roots that are still in some table."""
        return sum(len(worker.trees) for worker in self.workers)


def run(
    core: Any, seed: int, workers: int, ackers: int, steps: int, faults: Mapping[str, float]
) -> World:
    """`faults` are the probabilities of `fail`, `lose` and `repeat`."""
    world = World(core, seed, workers, ackers)
    rng = world.rng
    network = {name: share for name, share in faults.items() if name != "fail"}
    for _ in range(steps):
        action = rng.random()
        if action < 0.1:
            world.begin()
        elif action < 0.6:
            world.execute(fail=rng.random() < faults.get("fail", 0.0))
        elif action < 0.8:
            world.end_turn(rng.choice(world.workers))
        else:
            world.deliver(**network)
    world.finish()
    return world


def check_sound(core: Any, seed: int, workers: int, ackers: int, steps: int) -> None:
    """With no fault, every root is reported done, once, and no memory is kept."""
    world = run(core, seed, workers, ackers, steps, {})
    assert sorted(world.reported_done) == sorted(world.alive)
    assert not world.reported_failed
    assert world.kept() == 0


def check_fails(core: Any, seed: int, workers: int, ackers: int, steps: int) -> None:
    """Failed trees are reported failed, and the others done."""
    world = run(core, seed, workers, ackers, steps, {"fail": 0.1})
    assert world.reported_failed == world.failed
    assert set(world.reported_done) == set(world.alive) - world.failed


def check_network(
    core: Any, seed: int, workers: int, ackers: int, steps: int, lose: float, repeat: float
) -> None:
    """Loss, repetition and reordering may keep a root from completing (it times out and is
    replayed), but never complete one with tuples in flight (`World` asserts it), nor a failed
    one; and in time all is forgotten."""
    world = run(core, seed, workers, ackers, steps, {"lose": lose, "repeat": repeat, "fail": 0.05})
    assert not set(world.reported_done) & world.failed
    for worker in world.workers:
        worker.trees.rotate_ackers()
        worker.trees.rotate_ackers()
    assert world.kept() == 0
