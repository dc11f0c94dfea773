"""A worker's part in acking: the ledger of its tasks, and the tables of its ackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from squall_engine.core.pure.acking import AckerTable, Ledger, PendingRoots
from squall_engine.core.sections import acker_of
from squall_engine.core.values import AckerCounts, Outcome, Settled


class Trees:
    """The trees that this worker's ackers watch. Nothing here sends or calls anything."""

    def __init__(self, ackers: int, local: Sequence[int], bits: Callable[[int], int]) -> None:
        """`local` are the indexes of this worker's ackers among the topology's `ackers`; `bits(n)`
        draws n random bits."""
        self._ackers = ackers
        self._tables = {index: AckerTable() for index in local}
        self.ledger = Ledger(ackers, self._tables, bits(64))

    def __len__(self) -> int:
        """The number of roots that are kept here."""
        return sum(map(len, self._tables.values()))

    def attach(self, task: int, pending: PendingRoots) -> None:
        """Hand the completed roots of `task`, a spout of this worker, to its `pending` directly:
        they are in no `Outcome`, but in `PendingRoots.take_completed`."""
        for table in self._tables.values():
            table.attach(task, pending)

    def settle(self) -> Outcome | None:
        """Settle what the tasks did to the trees since the last time. None: nothing."""
        outcome = Outcome()
        worked = False
        for index in range(self._ackers):
            table = self._tables.get(index)
            if table is None:
                sections = self.ledger._take_sections(index)
                if sections:
                    outcome.sections[index] = sections
                continue
            fails, resets = self.ledger._take_fails(index), self.ledger._take_resets(index)
            worked |= bool(fails or resets)
            _add(outcome.failed, table.fail(fails))
            _add(outcome.reset, table.reset_timeout(resets))
            _collect(table, outcome)
        return outcome if worked or outcome != Outcome() else None

    def receive_acks(self, section: bytes) -> Outcome:
        """Apply an ACKS section to an acker of this worker; one for another's (a stale route) is
        dropped. Raises CodecError."""
        outcome = Outcome()
        table = self._tables.get(acker_of(section))
        if table is not None:
            table.apply_section(section)
            _collect(table, outcome)
        return outcome

    def fail(self, index: int, roots: Iterable[int]) -> Outcome:
        """Fail these trees of the acker `index`, as another worker asks."""
        table = self._tables.get(index)
        return Outcome() if table is None else Outcome(failed=table.fail(roots))

    def reset_timeout(self, index: int, roots: Iterable[int]) -> Outcome:
        """Reset the timeout of these trees of the acker `index`, as another worker asks."""
        table = self._tables.get(index)
        return Outcome() if table is None else Outcome(reset=table.reset_timeout(roots))

    def give_up(self) -> Outcome:
        """Fail the trees whose spout is known, because the ackers of this worker end."""
        outcome = Outcome()
        for table in self._tables.values():
            _add(outcome.failed, table.fail(table.known()))
        return outcome

    def rotate_ackers(self) -> None:
        """A message timeout has passed."""
        for table in self._tables.values():
            table.rotate()

    def counts(self, index: int) -> AckerCounts:
        """The counts of the acker `index` of this worker."""
        table = self._tables[index]
        return AckerCounts(table.inits, table.done, table.failed)


def _collect(table: AckerTable, outcome: Outcome) -> None:
    done, failed = table.take_settled()
    _add(outcome.done, done)
    _add(outcome.failed, failed)


def _add(settled: Settled, more: Mapping[int, list[int]]) -> None:
    for task, roots in more.items():
        settled.setdefault(task, []).extend(roots)
