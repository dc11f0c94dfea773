# The calls of a bolt, and the loop that feeds it.

cdef int ack_roots(Ledger ledger, Tuple tup, uint64_t edges) except -1:
    """Report to its trees that a tuple was acked, and the XOR of the edges anchored to it."""
    cdef Several several = tup.several
    cdef Py_ssize_t i
    if several is not None:
        for i in range(several.count):
            ledger.add_ack(several.trees[i].root, several.trees[i].edge ^ edges)
    elif tup._root:
        ledger.add_ack(tup._root, tup._id ^ edges)
    return 0


cdef int fail_roots(Ledger ledger, Tuple tup) except -1:
    ledger.fail(roots_of((tup,)))
    return 0


cdef enum Mode:
    PLAIN  # the current tuple belongs to no tree
    ONE_ROOT
    SEVERAL
    SETTLED
    OUTSIDE  # no tuple is current


@cython.final
cdef class BoltCalls:
    """The calls of a bolt with a plain `execute` and `auto_anchor`
    (`squall_common.component.collector.BoltCollector`), and the loop that feeds it.

    While a tuple is current, `root`, `axor` and `mode` are the truth about it. With `auto_ack`
    nothing is ever written to a tuple, and every tuple but the current one is settled by
    definition."""

    cdef Emitter emitter
    cdef Ledger ledger
    cdef object counts
    cdef dict acked  # of `counts`
    cdef dict failed  # likewise
    cdef tuple key  # the input of the last slice
    cdef TimedRuns runs  # of this input; None: `counts` has no histograms
    cdef object execute
    cdef Trial trial  # that makes the calls of `execute` atomic; None: they are not
    cdef bint auto_ack
    cdef readonly object report_error
    cdef object now
    cdef object on_outside
    cdef object on_settled
    cdef Output default
    cdef Picker one  # of the default output
    cdef Tuple current
    cdef uint64_t root
    cdef uint64_t axor
    cdef Mode mode
    # One tuple at a time is timed from its execution to its ack, when acks are the bolt's own.
    cdef Tuple sample
    cdef double sample_start
    cdef bint sampling
    # What `run` works on: `left` tuples are in `batches` from `place` on, apart from `batch`.
    cdef list batches
    cdef Py_ssize_t place
    cdef Py_ssize_t left
    cdef Batch batch
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef Py_ssize_t fails  # since `run` began
    # Tuples of one root often come in a row: one look-up for all of them.
    cdef uint64_t last
    cdef uint64_t merged
    # Where the tree in hand is noted, for whoever comes after this process; NULL: nowhere.
    cdef uint64_t* in_hand
    cdef object hand_owner
    cdef uint64_t task

    def __init__(
        self,
        Emitter emitter,
        Ledger ledger,
        counts,
        execute,
        *,
        auto_ack,
        on_error,
        now,
        on_outside,
        on_settled=None,
        in_hand=None,
    ):
        """`on_error(error)` gets the errors that `execute` raises; `on_settled(tup, failed)` is
        called for every ack and fail (for the test kit); and `on_outside()` after each call that is
        made while no tuple is executed, because there is something for a turn to do. `in_hand` are
        words in which the trees of the current tuple are noted (see
        `squall_engine.tasks.in_hand`). Raises ValueError when they are too few."""
        cdef uint64_t[::1] words
        self.in_hand = NULL
        self.task = <uint64_t><int64_t>emitter.task
        if in_hand is not None:
            words = in_hand
            if words.shape[0] < HAND_WORDS:
                raise ValueError(f"in_hand: {words.shape[0]} words, not {HAND_WORDS}")
            self.hand_owner = words
            self.in_hand = &words[0]
        self.emitter = emitter
        self.ledger = ledger
        self.counts = counts
        self.acked, self.failed = counts.acked, counts.failed
        self.execute = execute
        if type(execute) is Trial and on_settled is None:
            # This loop begins and ends the tries, so the interpreter calls the bolt's own method.
            self.trial = <Trial>execute
            self.execute = self.trial.execute
        self.auto_ack = auto_ack
        self.report_error = on_error
        self.now = now
        self.on_outside = on_outside
        self.on_settled = on_settled
        self.default = emitter.outputs.get(DEFAULT_STREAM)
        self.one = None if self.default is None else self.default.one
        self.mode = OUTSIDE
        if on_settled is not None and auto_ack:
            self.execute = _observed(self, execute)

    cdef int hold_several(self, Tuple tup) except -1:
        """Note the trees of a tuple that has several."""
        cdef Py_ssize_t i
        cdef Py_ssize_t count = 0 if tup.several is None else tup.several.count
        for i in range(2, HAND_WORDS):
            self.in_hand[i] = tup.several.trees[i - 2].root if i - 2 < count else 0
        self.in_hand[0] = MANY
        return 0

    def emit(self, values, anchors=None, stream=DEFAULT_STREAM):
        if anchors is not None or stream is not DEFAULT_STREAM:
            return self.emit_any(values, anchors, stream)
        return self.emit_plain(values)

    cdef inline object emit_plain(self, object values):
        """`emit` of values alone."""
        cdef Edge edge
        cdef uint64_t bits
        cdef Output output = self.default
        if self.one is None or self.mode > ONE_ROOT:
            return self.emit_any(values, None, DEFAULT_STREAM)
        check_values(output, values)
        edge = self.one.pick(values)
        output.emitted += 1
        if self.mode == ONE_ROOT:
            bits = next_id(&self.emitter.rng)
            self.axor ^= bits
            edge.add(values, bits, self.root, output.source)
        else:
            edge.add(values, 0, 0, output.source)
        return edge.ids

    cdef object emit_any(self, object values, object anchors, object stream):
        cdef Output output = self.emitter.output(stream, values)
        return self.send(output, self.emitter.edges(output, values), values, anchors)

    def emit_direct(self, task, values, anchors=None, stream=DEFAULT_STREAM):
        cdef Output output = self.emitter.output(stream, values)
        return self.send(output, self.emitter.direct_edges(output, task), values, anchors)

    cdef object send(self, Output output, tuple edges, object values, object anchors):
        cdef tuple chosen = ()
        cdef Tuple anchor
        if anchors is not None:
            chosen = as_anchors(anchors)
        elif self.current is not None:
            chosen = (self.current,)
        for anchor in chosen:
            if self.is_settled(anchor):
                raise settled_error(anchor, "emit")
        self.axor ^= self.emitter.send(output, edges, values, chosen, self.current)
        if self.current is None:
            self.on_outside()
        return ids_of(edges)

    cdef bint is_settled(self, Tuple tup) noexcept:
        if tup is self.current:
            return self.mode == SETTLED
        return self.auto_ack or tup.settled

    cdef int report_merged(self) except -1:
        """Report the acks of a run of tuples of one root."""
        if self.last:
            self.ledger.add_ack(self.last, self.merged)
            self.last = 0
        return 0

    cdef uint64_t settle(self, Tuple tup, str what) except? 0:
        cdef uint64_t edges
        if self.is_settled(tup):
            raise settled_error(tup, what)
        self.report_merged()  # in the order of the tuples
        edges = tup._axor
        if tup is self.current:
            edges ^= self.axor
            self.mode = SETTLED
        if not self.auto_ack:
            tup.settled = True
            if tup is self.sample:
                self.sample = None
                if what == "ack":
                    self.counts.processed(tup.source.key, self.now() - self.sample_start)
        return edges

    def ack(self, Tuple tup not None):
        cdef uint64_t edges = self.settle(tup, "ack")
        ack_roots(self.ledger, tup, edges)
        if not self.auto_ack:
            self.acked[tup.source.key] = self.acked.get(tup.source.key, 0) + 1
        if self.on_settled is not None:
            self.on_settled(tup, False)
        if self.current is None:
            self.on_outside()

    def fail(self, Tuple tup not None):
        self.fail_tuple(tup)

    cdef int fail_tuple(self, Tuple tup) except -1:
        self.settle(tup, "fail")
        fail_roots(self.ledger, tup)
        self.failed[tup.source.key] = self.failed.get(tup.source.key, 0) + 1
        self.fails += 1
        if self.on_settled is not None:
            self.on_settled(tup, True)
        if self.current is None:
            self.on_outside()
        return 0

    def reset_timeout(self, Tuple tup not None):
        if self.is_settled(tup):
            raise settled_error(tup, "reset_timeout")
        self.ledger.reset(roots_of((tup,)))
        if self.current is None:
            self.on_outside()

    cdef int raised(self, object error) except -1:
        cdef Tuple tup = self.current
        if self.trial is not None and (self.trial.under_way or self.trial.seeking):
            try:
                self.trial.refuse(tup, error)
                return 0
            except Exception as last:
                error = last
        if not self.is_settled(tup):
            self.fail_tuple(tup)
        self.report_error(error)
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        """Settle the current tuple and make that of the next row current: the same object again,
        unless something else holds it."""
        cdef Tuple tup = self.current
        cdef Batch batch = self.batch
        cdef uint64_t root
        cdef Py_ssize_t i = self.at
        if self.trial is not None and self.trial.under_way:
            try:
                self.trial.returned(tup)
            except StopIteration as error:  # from here it would end the loop
                self.raised(error)
        if tup is not None:
            if not self.auto_ack:
                if self.mode != SETTLED:
                    tup._axor ^= self.axor
            elif self.mode == ONE_ROOT:
                if self.root == self.last:
                    self.merged ^= tup._id ^ self.axor
                else:
                    if self.last:
                        self.ledger.add_ack(self.last, self.merged)
                    self.last = self.root
                    self.merged = tup._id ^ self.axor
            elif self.mode == SEVERAL:
                self.report_merged()
                ack_roots(self.ledger, tup, self.axor)
        if i >= self.end:
            if not self.next_batch():
                self.current = None
                self.mode = OUTSIDE
                raise StopIteration
            batch = self.batch
            i = self.at
            # A tuple that is used again is of this batch now; one that was kept stays what it is.
            if tup is not None and Py_REFCNT(tup) <= 3:
                tup.source = batch.source
                tup.several = None
        self.at = i + 1
        # Ours, that of `current`, and that of the loop which called us.
        if tup is None or Py_REFCNT(tup) > 3:
            tup = Tuple.__new__(Tuple)
            tup.source = batch.source
            self.current = tup
            if self.sampling:
                self.sampling = False
                self.sample = tup
        root = batch._roots[i]
        # The batch gives up its row, so that the values are freed while they are in the cache.
        tup.values = squall_take_item(batch.values, i)
        tup._id = batch._ids[i]
        tup._root = root
        tup._axor = 0
        tup.settled = False
        if batch.several is not None:
            tup.several = batch.several.get(i)
        if batch.sources is not None:
            tup.source = <Source>PyList_GET_ITEM(batch.sources, i)
        self.root = root
        self.axor = 0
        self.mode = PLAIN if root == 0 else (SEVERAL if root == MANY else ONE_ROOT)
        if self.in_hand is not NULL:
            self.in_hand[0] = root
            if root == MANY:
                self.hold_several(tup)
        if self.trial is not None:
            self.trial.begin(tup)
        return tup

    cdef bint next_batch(self) except -1:
        cdef Batch batch
        cdef Py_ssize_t n
        while self.left > 0 and self.place < PyList_GET_SIZE(self.batches):
            batch = <Batch?>self.batches[self.place]
            self.place += 1
            n = min(self.left, PyList_GET_SIZE(batch.values) - batch.start)
            if n > 0:
                batch.to_rows()
                self.left -= n
                self.batch = batch
                self.at = batch.start
                batch.start = self.end = batch.start + n
                return True
        return False

    def run(self, Batch batch not None, Py_ssize_t count):
        """Execute the first `count` tuples, which are then no longer in the batch."""
        self.run_each([batch], count)

    def run_each(self, list batches not None, Py_ssize_t count):
        """Likewise with several batches of one stream."""
        if not batches:
            return
        self.execute_all(batches, count, (<Batch?>batches[0]).source.key)

    cdef int execute_all(self, list batches, Py_ssize_t count, tuple key) except -1:
        cdef Py_ssize_t acked
        cdef Tuple failed = None
        self.fails = 0
        self.batches = batches
        self.place = 0
        self.left = count
        self.at = self.end = 0
        self.next_batch()
        self.current = None
        self.last = self.merged = 0
        if self.in_hand is not NULL:
            self.in_hand[1] = self.task
        if not self.auto_ack and self.sample is None:
            self.sampling = True
            self.sample_start = self.now()
        try:
            while True:
                try:
                    call_each(self, self.execute)
                    if self.trial is None or not self.trial.seeking:
                        break
                    raise RuntimeError("the search for the key of a tuple: StopIteration")
                except Exception as error:
                    self.raised(error)
                    # `__next__` counts a reference of the loop, and that loop has ended.
                    failed = self.current
        finally:
            if self.in_hand is not NULL:
                self.in_hand[0] = 0
            self.batch = None
            self.batches = None
            self.current = None
            self.mode = OUTSIDE
            if self.trial is not None:
                self.trial.broken_off()
            self.report_merged()
            acked = count - self.left - self.fails
            if self.auto_ack and acked:
                # (None but the current tuple can have failed.)
                self.acked[key] = self.acked.get(key, 0) + acked
        return 0

    def run_slice(self, Inbox inbox not None, Py_ssize_t room):
        """Execute up to `room` tuples of one stream of an inbox, and count them. Returns how many
        there were, when that ended, and how many seconds it took; (0, 0, 0) if nothing waits."""
        cdef list batches = []
        cdef Py_ssize_t processed = 0, n = inbox.pull_into(batches, room)
        cdef double start, end
        cdef tuple key
        if n == 0:
            return 0, 0.0, 0.0
        key = self.noted((<Batch>PyList_GET_ITEM(batches, 0)).source.key)
        start = self.now()
        try:
            self.execute_all(batches, n, key)
            if self.auto_ack:
                processed = n
        finally:
            end = self.now()
            if self.runs is None:
                self.counts.executed_many(key, n, end - start, processed)
            else:
                self.runs.add_executed(n, end - start, processed)
        return n, end, end - start

    cdef tuple noted(self, tuple key):
        """The same key, perhaps another object. Each source has its own: with many, they are not in
        the cache."""
        if self.key is None or key != self.key:
            runs = self.counts.runs_of(key)
            self.runs = <TimedRuns>runs if type(runs) is TimedRuns else None
            self.key = key
        return self.key


def _observed(BoltCalls calls, execute):
    """`execute`, and then an ack that `on_settled` is called for."""

    def execute_observed(tup):
        execute(tup)
        if calls.mode != SETTLED:
            calls.ack(tup)

    return execute_observed


cdef class CarefulCalls:
    """A bolt's calls when several tuples are in flight. Not for two threads at once."""

    cdef Emitter _emitter
    cdef Ledger _ledger
    cdef object _counts
    cdef object _default_anchors
    cdef object _on_settled
    cdef bint _notes_acks
    cdef object _on_change
    cdef readonly object report_error

    def __init__(
        self,
        Emitter emitter,
        Ledger ledger,
        counts,
        *,
        default_anchors,
        on_error,
        on_settled=None,
        notes_acks=True,
        on_change=None,
    ):
        """`default_anchors()` are those of an emit that names none. `on_settled(tup, failed)` is
        called when a tuple was acked or failed (without `notes_acks`: when it failed),
        `on_change()` after every call that leaves something for the engine to do."""
        self._emitter = emitter
        self._ledger = ledger
        self._counts = counts
        self._default_anchors = default_anchors
        self._on_settled = on_settled
        self._notes_acks = notes_acks and on_settled is not None
        self._on_change = on_change
        self.report_error = on_error

    def emit(self, values, anchors=None, stream=DEFAULT_STREAM):
        cdef Output output = self._emitter.output(stream, values)
        return self._send(output, self._emitter.edges(output, values), values, anchors)

    def emit_direct(self, task, values, anchors=None, stream=DEFAULT_STREAM):
        cdef Output output = self._emitter.output(stream, values)
        return self._send(output, self._emitter.direct_edges(output, task), values, anchors)

    cdef object _send(self, Output output, tuple edges, object values, object anchors):
        cdef tuple chosen = self._default_anchors() if anchors is None else as_anchors(anchors)
        cdef Tuple anchor
        for anchor in chosen:
            if anchor.settled:
                raise settled_error(anchor, "emit")
        self._emitter.send(output, edges, values, chosen, None)
        if self._on_change is not None:
            self._on_change()
        return ids_of(edges)

    def ack(self, Tuple tup not None):
        cdef uint64_t edges = self._settle(tup, "ack")
        ack_roots(self._ledger, tup, edges)
        self._counts.add(self._counts.acked, tup.source.key)
        if self._notes_acks:
            self._on_settled(tup, False)
        if self._on_change is not None:
            self._on_change()

    def ack_rest(self, list tuples not None):
        """Ack those of these tuples that are not settled."""
        cdef Tuple tup
        cdef uint64_t last = 0, merged = 0  # of tuples of one root in a row: one look-up for them
        cdef Source source = None  # of the last ones, `n` of which are not counted yet
        cdef Py_ssize_t n = 0
        cdef bint changed = False
        if self._notes_acks:
            for tup in tuples:
                if not tup.settled:
                    self.ack(tup)
            return
        for tup in tuples:
            if tup.settled:
                continue
            tup.settled = changed = True
            if tup.source is not source:
                self._count_acked(source, n)
                source, n = tup.source, 0
            n += 1
            if tup.several is None and tup._root == last:
                merged ^= tup._id ^ tup._axor
                continue
            if last:
                self._ledger.add_ack(last, merged)
                last = 0
            if tup.several is not None:
                ack_roots(self._ledger, tup, tup._axor)
            else:
                last, merged = tup._root, tup._id ^ tup._axor
        if last:
            self._ledger.add_ack(last, merged)
        if changed:
            self._count_acked(source, n)
            if self._on_change is not None:
                self._on_change()

    cdef int _count_acked(self, Source source, Py_ssize_t n) except -1:
        if n:
            acked = self._counts.acked
            acked[source.key] = acked.get(source.key, 0) + n
        return 0

    def fail(self, Tuple tup not None):
        self._settle(tup, "fail")
        fail_roots(self._ledger, tup)
        self._counts.add(self._counts.failed, tup.source.key)
        if self._on_settled is not None:
            self._on_settled(tup, True)
        if self._on_change is not None:
            self._on_change()

    def reset_timeout(self, Tuple tup not None):
        if tup.settled:
            raise settled_error(tup, "reset_timeout")
        self._ledger.reset(roots_of((tup,)))
        if self._on_change is not None:
            self._on_change()

    cdef uint64_t _settle(self, Tuple tup, str what) except? 0:
        if tup.settled:
            raise settled_error(tup, what)
        tup.settled = True
        return tup._axor
