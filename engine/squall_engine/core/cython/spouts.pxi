# The calls of a spout: emitting, and starting the trees that its ackers watch.

@cython.final
cdef class TurnState:
    """The properties of the present turn that the calls of components need."""

    cdef public double now  # monotonic, read once a turn
    cdef public long bucket  # the current timeout bucket

    def __init__(self, now):
        self.now = now
        self.bucket = 0


@cython.final
cdef class SpoutCalls:
    """The calls of a spout (`squall_common.component.collector.SpoutCollector`), and the loop that
    asks it for tuples."""

    cdef Emitter emitter
    cdef Ledger ledger
    cdef PendingRoots pending
    cdef TurnState turn
    cdef bint acking
    cdef uint64_t acker
    cdef RootDraw roots
    cdef int32_t task
    cdef readonly object report_error
    # Messages that are acked without an acker (acking is off): (message id, stream).
    cdef readonly list untracked
    cdef Output default
    cdef Picker one
    cdef uint64_t emits
    cdef uint64_t emits_end
    cdef Py_ssize_t calls_left
    cdef Py_ssize_t limit
    cdef object interceptor  # takes the messages in place of these calls; nearly always None
    cdef uint64_t newest

    def __init__(
        self,
        Emitter emitter,
        Ledger ledger,
        PendingRoots pending,
        TurnState turn,
        *,
        acker,
        on_error,
    ):
        """`acker` is the index of the spout's acker among the topology's; None: acking is off, and
        a message counts as acked once it is emitted (as in Storm)."""
        self.emitter = emitter
        self.ledger = ledger
        self.pending = pending
        self.turn = turn
        self.acking = acker is not None
        self.acker = acker or 0
        self.roots = RootDraw()
        self.task = emitter.task
        self.report_error = on_error
        self.untracked = []
        self.default = emitter.outputs.get(DEFAULT_STREAM)
        self.one = None if self.default is None else self.default.one

    def set_interceptor(self, interceptor):
        """Have `interceptor(values, message_id, stream, task)` called in place of emit (task None)
        and emit_direct for all that has a message id; None ends it."""
        self.interceptor = interceptor

    def last_root(self):
        """The root of the message that was emitted last."""
        return self.newest

    cdef uint64_t new_root(self) noexcept:
        cdef uint64_t root
        while True:
            root = self.roots.draw(&self.emitter.rng, self.acker)
            # Not a root that lives, and not one that means something else.
            if root > ACKER_MASK and not self.pending.find(root).root:
                self.newest = root
                return root

    def emit(self, values, message_id=None, stream=DEFAULT_STREAM):
        cdef Edge edge
        cdef uint64_t root, bits
        cdef Output output = self.default
        if self.interceptor is not None and message_id is not None:
            return self.interceptor(values, message_id, stream, None)
        if self.one is None or stream is not DEFAULT_STREAM or (message_id is not None and not self.acking):
            return self.emit_any(values, message_id, stream)
        check_values(output, values)
        edge = self.one.pick(values)
        self.emits += 1
        output.emitted += 1
        if message_id is None:
            edge.add(values, 0, 0, output.source)
        else:
            root = self.new_root()
            bits = next_id(&self.emitter.rng)
            self.pending.add(root, message_id, DEFAULT_STREAM, self.turn.now, self.turn.bucket)
            self.ledger.add_init(root, bits, self.task)
            edge.add(values, bits, root, output.source)
        return edge.ids

    cdef object emit_any(self, object values, object message_id, object stream):
        cdef Output output = self.emitter.output(stream, values)
        return self.send(output, self.emitter.edges(output, values), values, message_id)

    def emit_direct(self, task, values, message_id=None, stream=DEFAULT_STREAM):
        if self.interceptor is not None and message_id is not None:
            return self.interceptor(values, message_id, stream, task)
        cdef Output output = self.emitter.output(stream, values)
        return self.send(output, self.emitter.direct_edges(output, task), values, message_id)

    cdef object send(self, Output output, tuple edges, object values, object message_id):
        cdef Tuple anchor
        cdef uint64_t root
        self.emits += 1
        stream = output.source.stream
        if message_id is None:
            self.emitter.send(output, edges, values, (), None)
        elif not self.acking:
            self.emitter.send(output, edges, values, (), None)
            self.untracked.append((message_id, stream))
        else:
            root = self.new_root()
            self.pending.add(root, message_id, stream, self.turn.now, self.turn.bucket)
            # The root as an anchor of its own: what is added to it is the init's XOR (zero when
            # no component consumes the stream, which completes the root at once).
            anchor = Tuple.__new__(Tuple)
            anchor.values = values
            anchor._root = root
            anchor.source = output.source
            self.ledger.add_init(
                root, self.emitter.send(output, edges, values, (anchor,), anchor), self.task
            )
        return ids_of(edges)

    def emit_columns(self, columns, message_ids=None, stream=DEFAULT_STREAM):
        cdef Output output = self.emitter.find(stream)
        cdef list lists = columns_of(output.source, columns), rows
        cdef Py_ssize_t i, n = PyList_GET_SIZE(lists[0]) if PyList_GET_SIZE(lists) else 0
        cdef object row
        cdef Edge edge
        cdef Picker one = output.one
        cdef uint64_t root, bits
        if message_ids is not None and len(message_ids) != n:
            raise EmitError(f"emit_columns: {len(message_ids)} message ids for {n} tuples")
        if (
            one is not None and not output.direct and n >= ROWS_FOR_COLUMNS * one.count
            and (message_ids is None or (self.acking and self.interceptor is None))
        ):
            self.send_columns(output, lists, n, None if message_ids is None else list(message_ids))
            return
        rows = list(zip(*lists))
        if self.interceptor is not None and message_ids is not None:
            for i in range(n):
                self.emit(rows[i], message_ids[i], stream)
            return
        if one is None or output.direct or (message_ids is not None and not self.acking):
            for i in range(n):
                self.emit_any(rows[i], None if message_ids is None else message_ids[i], stream)
            return
        if message_ids is None:
            for i in range(n):
                row = <object>PyList_GET_ITEM(rows, i)
                edge = one.pick(row)
                self.emits += 1
                output.emitted += 1
                edge.add(row, 0, 0, output.source)
            return
        i = 0
        for message_id in message_ids:
            row = <object>PyList_GET_ITEM(rows, i)
            i += 1
            edge = one.pick(row)
            self.emits += 1
            output.emitted += 1
            if message_id is None:
                edge.add(row, 0, 0, output.source)
                continue
            root = self.new_root()
            bits = next_id(&self.emitter.rng)
            self.pending.add(root, message_id, output.source.stream, self.turn.now, self.turn.bucket)
            self.ledger.add_init(root, bits, self.task)
            edge.add(row, bits, root, output.source)

    cdef int send_columns(self, Output output, list columns, Py_ssize_t n, list message_ids) except -1:
        """All rows at once, which stay columns."""
        cdef ColumnsOut out = ColumnsOut.__new__(ColumnsOut)
        cdef Py_ssize_t i
        cdef object stream = output.source.stream
        cdef object message_id
        cdef double now = self.turn.now
        cdef long bucket = self.turn.bucket
        cdef uint64_t root, bits
        out.pick(output, columns, n)
        self.emits += out.done
        if message_ids is not None:
            out.make_ids()
            for i in range(min(out.done, PyList_GET_SIZE(message_ids))):
                message_id = <object>PyList_GET_ITEM(message_ids, i)
                if message_id is None:
                    continue
                root = self.new_root()
                bits = next_id(&self.emitter.rng)
                self.pending.add(root, message_id, stream, now, bucket)
                self.ledger.add_init(root, bits, self.task)
                out.ids[i] = bits
                out.roots[i] = root
        out.send()
        return 0

    def emitted(self):
        """The number of emits so far."""
        return self.emits

    def run(self, next_tuple, Py_ssize_t calls, pending_max):
        """Call `next_tuple` that often, or until as many tuples were emitted; and only while fewer
        than `pending_max` roots are pending."""
        self.emits_end = self.emits + calls
        self.calls_left = calls
        self.limit = -1 if pending_max is None else pending_max
        call_while(self, next_tuple)

    def __iter__(self):
        return self

    def __next__(self):
        if (
            self.calls_left <= 0
            or self.emits >= self.emits_end
            or (self.limit >= 0 and self.pending.count >= self.limit)
        ):
            raise StopIteration
        self.calls_left -= 1
