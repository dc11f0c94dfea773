# A worker's part in acking: the ledger of its tasks, and the tables of its ackers.

cdef int add_settled(dict settled, dict more) except -1:
    for task, roots in more.items():
        known = settled.get(task)
        if known is None:
            settled[task] = roots
        else:
            known.extend(roots)
    return 0


@cython.final
cdef class Trees:
    """The trees that this worker's ackers watch. Nothing here sends or calls anything."""

    cdef readonly Ledger ledger
    cdef dict tables

    def __init__(self, ackers, local, bits):
        self.tables = {index: AckerTable() for index in local}
        self.ledger = Ledger(ackers, self.tables, bits(64))

    def __len__(self):
        """The number of roots that are kept here."""
        return sum(map(len, self.tables.values()))

    def attach(self, task, PendingRoots pending):
        """Hand the completed roots of `task`, a spout of this worker, to its `pending` directly:
        they are in no `Outcome`, but in `PendingRoots.take_completed`."""
        cdef AckerTable table
        for table in self.tables.values():
            table.attach(task, pending)

    cdef int collect(self, AckerTable table, outcome) except -1:
        if table.done_roots or table.failed_late:
            done, failed = table.take_settled()
            add_settled(outcome.done, done)
            add_settled(outcome.failed, failed)
        return 0

    def settle(self):
        """Settle what the tasks did to the trees since the last time. None: nothing."""
        cdef Ledger ledger = self.ledger
        cdef AckerTable table
        cdef Py_ssize_t i
        cdef bint any_ = False
        outcome = Outcome()
        for i in range(ledger.ackers):
            table = ledger.tables[i]
            if table is None:
                found = ledger.take_sections(i)
                if found:
                    outcome.sections[i] = found
                    any_ = True
                continue
            if ledger.noted:
                fails, resets = ledger.fails[i], ledger.resets[i]
                if fails:
                    add_settled(outcome.failed, table.fail(dict.fromkeys(fails)))
                    fails.clear()
                    any_ = True
                if resets:
                    add_settled(outcome.reset, table.reset_timeout(dict.fromkeys(resets)))
                    resets.clear()
                    any_ = True
            if table.done_roots or table.failed_late:
                self.collect(table, outcome)
                any_ = True
        ledger.noted = False
        return outcome if any_ else None

    def receive_acks(self, bytes section):
        """Apply an ACKS section to an acker of this worker; one for another's (a stale route) is
        dropped. Raises CodecError."""
        cdef AckerTable table = self.tables.get(acker_of(section))
        outcome = Outcome()
        if table is not None:
            table.apply_section(section)
            self.collect(table, outcome)
        return outcome

    def fail(self, index, roots):
        """Fail these trees of the acker `index`, as another worker asks."""
        cdef AckerTable table = self.tables.get(index)
        return Outcome() if table is None else Outcome(failed=table.fail(roots))

    def give_up(self):
        """Fail the trees whose spout is known, because the ackers of this worker end."""
        cdef AckerTable table
        outcome = Outcome()
        for table in self.tables.values():
            add_settled(outcome.failed, table.fail(table.known()))
        return outcome

    def reset_timeout(self, index, roots):
        """Reset the timeout of these trees of the acker `index`, as another worker asks."""
        cdef AckerTable table = self.tables.get(index)
        return Outcome() if table is None else Outcome(reset=table.reset_timeout(roots))

    def rotate_ackers(self):
        """A message timeout has passed."""
        cdef AckerTable table
        for table in self.tables.values():
            table.rotate()

    def counts(self, index):
        """The counts of the acker `index` of this worker."""
        return (<AckerTable?>self.tables[index]).counts()
