"""What a worker knows of the trees that it has a part in: the ledger of its tasks, the tuples in
flight here, and the tables of its ackers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from squall_engine.core.pure.acking import AckerTable, Ledger, LocalTrees, PendingRoots, Settlement
from squall_engine.core.sections import FAILS, RESETS, parse_acks, serialize_acks, serialize_roots
from squall_engine.core.values import ACKER_INDEX_MASK, AckerCounts, Outcome, Settled


class Trees:
    """The pure part of acking, in one place. Nothing here sends or calls anybody."""

    def __init__(self, ackers: int, local: Sequence[int], bits: Callable[[int], int]) -> None:
        """`local` are the indexes of this worker's ackers among the topology's `ackers`; `bits(n)`
        draws n random bits."""
        self.ledger = Ledger()
        self._ackers = ackers
        self._local_trees = LocalTrees(bits)
        self._tables = {index: AckerTable() for index in local}
        self._inits: dict[int, Counter[int]] = {index: Counter() for index in local}
        self._done = dict.fromkeys(local, 0)
        self._failed = dict.fromkeys(local, 0)

    def __len__(self) -> int:
        """Roots that are kept here, in whatever table."""
        return len(self._local_trees) + sum(map(len, self._tables.values()))

    def attach(self, task: int, pending: PendingRoots) -> None:
        """Let `task`, a spout of this worker, learn of its roots without the engine: then they are
        in no `Outcome` but in `PendingRoots.take_completed`. (The compiled core does so.)"""

    def settle(self) -> Outcome | None:
        """Work in what the tasks did to the trees since the last time. None: nothing."""
        ledger = self.ledger
        if not (ledger.counts or ledger.xors or ledger.inits or ledger.fails or ledger.resets):
            return None
        settled = self._local_trees.settle(ledger)
        outcome = Outcome(settled.done, settled.failed)
        if settled.done and self._done:
            # As if the acker had done it.
            self._done[next(iter(self._done))] += sum(map(len, settled.done.values()))
        if settled.acks or settled.fails or settled.resets:
            for index in range(self._ackers):
                self._notify_acker(index, settled, outcome)
        return outcome

    def _notify_acker(self, index: int, settled: Settlement, outcome: Outcome) -> None:
        acks, inits = settled.acks, settled.inits
        fails, resets = settled.fails, settled.resets
        if self._ackers > 1:
            acks = {r: x for r, x in acks.items() if r & ACKER_INDEX_MASK == index}
            inits = {r: t for r, t in inits.items() if r & ACKER_INDEX_MASK == index}
            fails = [r for r in fails if r & ACKER_INDEX_MASK == index]
            resets = [r for r in resets if r & ACKER_INDEX_MASK == index]
        if not (acks or fails or resets):
            return
        table = self._tables.get(index)
        if table is None:
            # Fails first: what failed counts as settled in `acks`.
            sections = outcome.sections.setdefault(index, [])
            if fails:
                sections.append(serialize_roots(FAILS, index, fails))
            if acks:
                sections.append(serialize_acks(index, acks, inits))
            if resets:
                sections.append(serialize_roots(RESETS, index, resets))
            return
        if fails:
            self._count(index, {}, table.fail(fails), outcome)
        if resets:
            _add(outcome.reset, table.reset_timeout(resets))
        self._inits[index].update(inits.values())
        self._count(index, *table.apply(acks, inits), outcome)

    def _count(self, index: int, done: Settled, failed: Settled, outcome: Outcome) -> None:
        self._done[index] += sum(map(len, done.values()))
        self._failed[index] += sum(map(len, failed.values()))
        _add(outcome.done, done)
        _add(outcome.failed, failed)

    def receive_acks(self, section: bytes) -> Outcome:
        """An ACKS section, for an acker of this worker; for another's (a stale route) it is
        dropped. Raises CodecError."""
        outcome = Outcome()
        parsed = parse_acks(section)
        table = self._tables.get(parsed.acker)
        if table is not None:
            self._inits[parsed.acker].update(parsed.inits.values())
            settled = table.apply_remote(parsed.acks, parsed.inits)
            self._count(parsed.acker, *settled, outcome)
        return outcome

    def fail(self, index: int, roots: Iterable[int]) -> Outcome:
        """Another worker failed these trees, of the acker `index`."""
        outcome = Outcome()
        table = self._tables.get(index)
        if table is not None:
            self._count(index, {}, table.fail(roots), outcome)
        return outcome

    def reset_timeout(self, index: int, roots: Iterable[int]) -> Outcome:
        """Another worker resets the timeout of these trees, of the acker `index`."""
        table = self._tables.get(index)
        return Outcome() if table is None else Outcome(reset=table.reset_timeout(roots))

    def give_up(self) -> Outcome:
        """The ackers of this worker end: fail the trees whose spout they know."""
        outcome = Outcome()
        for index, table in self._tables.items():
            self._count(index, {}, table.fail(table.known()), outcome)
        return outcome

    def rotate_ackers(self) -> None:
        """A message timeout has passed."""
        for table in self._tables.values():
            table.rotate()

    def rotate_trees(self) -> None:
        """A multiple of it has passed."""
        self._local_trees.rotate()

    def counts(self, index: int) -> AckerCounts:
        """What the acker `index` of this worker did."""
        return AckerCounts(self._inits[index], self._done[index], self._failed[index])


def _add(settled: Settled, more: Mapping[int, list[int]]) -> None:
    for task, roots in more.items():
        settled.setdefault(task, []).extend(roots)
