# The column API: a batch as one list for each field. Columns that a task emits stay columns on their
# way to tasks of this worker (see `Batch`), as long as they are not divided among too many.

# So many rows for each target: for fewer, the lists cost more than the rows.
cdef enum:
    ROWS_FOR_COLUMNS = 4

cdef class Columns:
    """See `squall_common.component.columns.columns.Columns`."""

    cdef readonly Source source
    cdef readonly Py_ssize_t rows
    cdef Batch batch
    cdef ColumnCalls calls
    cdef list columns
    cdef uint64_t* axors  # XOR of the edges that were anchored to each row
    cdef uint8_t* settled
    cdef Py_ssize_t left  # rows that are not settled

    def __dealloc__(self):
        free(self.axors)

    @property
    def fields(self):
        return self.source.fields

    @property
    def source_component(self):
        return self.source.component

    @property
    def source_task(self):
        return self.source.task

    @property
    def source_stream(self):
        return self.source.stream

    @property
    def is_tick(self):
        return self.source.is_tick

    def __getitem__(self, key):
        cdef PyObject* place
        if PyUnicode_CheckExact(key):
            place = PyDict_GetItem(self.source.index, key)
            if place is NULL:
                raise no_field(self.source, key)
            return self.columns[<object>place]
        return self.columns[key]

    def __iter__(self):
        return iter(self.columns)

    def __repr__(self):
        source = self.source
        return f"Columns({self.rows} rows from {source.component}:{source.task} {source.stream})"

    cdef int check(self, Py_ssize_t row, str what) except -1:
        if row < 0 or row >= self.rows:
            raise no_row(row, self.rows)
        if self.settled[row]:
            raise settled_error(self.tuple_at(row), what)
        return 0

    cdef Tuple tuple_at(self, Py_ssize_t row):
        return self.batch.tuple_at(row)

    cdef int settle(self, Py_ssize_t row, bint failed) except -1:
        """One row, which is not settled."""
        cdef Tuple tup
        self.settled[row] = 1
        self.left -= 1
        if self.batch._roots[row]:
            tup = self.tuple_at(row)
            if failed:
                fail_roots(self.calls._ledger, tup)
            else:
                ack_roots(self.calls._ledger, tup, self.axors[row])
        if self.calls._notes_acks or (failed and self.calls._on_settled is not None):
            tup = self.tuple_at(row)
            tup.settled = True
            self.calls._on_settled(tup, failed)
        return 0

    cdef int settle_all(self, bint failed) except -1:
        cdef Py_ssize_t i, n = self.left
        cdef Batch batch = self.batch
        cdef Ledger ledger = self.calls._ledger
        cdef uint64_t root, last = 0, merged = 0
        if failed or self.calls._notes_acks or batch.several is not None:
            for i in range(self.rows):
                if not self.settled[i]:
                    self.settle(i, failed)
        elif batch.anchored:
            # Tuples of one root often come in a row: one look-up for all of them.
            for i in range(self.rows):
                if self.settled[i]:
                    continue
                root = batch._roots[i]
                if root == last:
                    merged ^= batch._ids[i] ^ self.axors[i]
                else:
                    if last:
                        ledger.add_ack(last, merged)
                    last = root
                    merged = batch._ids[i] ^ self.axors[i]
            if last:
                ledger.add_ack(last, merged)
        if self.left:
            memset(self.settled, 1, self.rows)
            self.left = 0
        self.calls.count(self.source.key, n, failed)
        return 0

    def ack(self, row=None):
        if row is None:
            self.settle_all(False)
        else:
            self.check(row, "ack")
            self.settle(row, False)
            self.calls.count(self.source.key, 1, False)

    def fail(self, row=None):
        if row is None:
            self.settle_all(True)
        else:
            self.check(row, "fail")
            self.settle(row, True)
            self.calls.count(self.source.key, 1, True)


cdef Py_ssize_t other_row(list rows, Py_ssize_t start, Py_ssize_t fields) except -2:
    """The first row from `start` on that has other than one value for each field: a component may
    change a list that it has emitted. -1: none has."""
    cdef Py_ssize_t i, size
    cdef object row
    for i in range(start, PyList_GET_SIZE(rows)):
        row = <object>PyList_GET_ITEM(rows, i)
        if PyTuple_CheckExact(row):
            size = PyTuple_GET_SIZE(row)
        elif PyList_CheckExact(row):
            size = PyList_GET_SIZE(row)
        else:
            size = len(row)
        if size != fields:
            return i
    return -1


cdef list column_of(list rows, Py_ssize_t field):
    """The caller has asked `other_row` in the same breath: no length is checked here."""
    cdef Py_ssize_t i
    cdef list column = []
    cdef object row
    for i in range(PyList_GET_SIZE(rows)):
        row = <object>PyList_GET_ITEM(rows, i)
        if PyTuple_CheckExact(row):
            column.append(<object>PyTuple_GET_ITEM(row, field))
        elif PyList_CheckExact(row):
            column.append(<object>PyList_GET_ITEM(row, field))
        else:
            column.append(row[field])
    return column


cdef list own_columns(Batch batch):
    """The columns of a batch, which a bolt may change. Raises ValueError for a row that was changed
    after it was emitted."""
    cdef Py_ssize_t i, fields = len(batch.source.fields)
    if batch.columns is not None:
        return [(<list>column)[:] for column in batch.columns]
    i = other_row(batch.values, 0, fields)
    if i >= 0:
        raise changed_row(batch.source.component, batch.source.stream, fields, batch.values[i])
    return [column_of(batch.values, i) for i in range(fields)]


@cython.final
cdef class ColumnCalls(CarefulCalls):
    """The calls of a bolt that is fed with columns, and the loop that feeds it."""

    cdef object _execute
    cdef bint _auto_ack
    cdef bint _auto_anchor
    cdef Columns _current

    def __init__(
        self,
        Emitter emitter,
        Ledger ledger,
        counts,
        execute_columns,
        *,
        auto_ack,
        auto_anchor,
        default_anchors,
        on_error,
        on_settled=None,
        notes_acks=True,
        on_outside=None,
    ):
        """`on_outside()` is called after each call that is made while no batch is executed,
        because there is something for a turn to do."""
        CarefulCalls.__init__(
            self,
            emitter,
            ledger,
            counts,
            default_anchors=default_anchors,
            on_error=on_error,
            on_settled=on_settled,
            notes_acks=notes_acks,
            on_change=on_outside,
        )
        self._execute = execute_columns
        self._auto_ack = auto_ack
        self._auto_anchor = auto_anchor

    cdef int count(self, object key, Py_ssize_t n, bint failed) except -1:
        if n:
            self._counts.add(self._counts.failed if failed else self._counts.acked, key, n)
            self.outside()
        return 0

    cdef int outside(self) except -1:
        """A call was made: while no batch is executed, there is something for a turn to do."""
        if self._current is None and self._on_change is not None:
            self._on_change()
        return 0

    def emit_columns(self, columns, origins=None, stream=DEFAULT_STREAM):
        """Emit one tuple for each row. `origins[i]` is the row of the current batch to which tuple
        `i` is anchored; None: its own; (): to none."""
        cdef Emitter emitter = self._emitter
        cdef Output output = emitter.find(stream)
        cdef list lists = columns_of(output.source, columns), rows
        cdef Columns current = self._current
        cdef Py_ssize_t i, origin, n = PyList_GET_SIZE(lists[0]) if PyList_GET_SIZE(lists) else 0
        cdef object row, chosen = None
        cdef Tuple anchor
        cdef Edge edge
        cdef Picker one = output.one
        cdef uint64_t bits, root
        if current is not None and self._auto_anchor:
            chosen = origins
            if not PyList_CheckExact(origins) or PyList_GET_SIZE(origins) != n:
                chosen = checked_origins(origins, n, current.rows)
            if chosen is not None:
                for origin in chosen:
                    if origin < 0 or origin >= current.rows or current.settled[origin]:
                        checked_origins(origins, n, current.rows)
                        current.check(origin, "emit_columns")
            if not current.batch.anchored:
                chosen = None
        if one is None or output.direct or (chosen is not None and current.batch.several is not None):
            rows = list(zip(*lists))
            for i in range(n):
                row = <object>PyList_GET_ITEM(rows, i)
                edges = emitter.edges(output, row)
                if chosen is None:
                    emitter.send(output, edges, row, (), None)
                else:
                    origin = chosen[i]
                    anchor = current.tuple_at(origin)
                    current.axors[origin] ^= emitter.send(output, edges, row, (anchor,), anchor)
            self.outside()
            return
        if n >= ROWS_FOR_COLUMNS * one.count:
            self.send_columns(output, lists, n, current, chosen)
            self.outside()
            return
        rows = list(zip(*lists))
        if chosen is None:
            for i in range(n):
                row = <object>PyList_GET_ITEM(rows, i)
                edge = one.pick(row)
                output.emitted += 1
                edge.add(row, 0, 0, output.source)
            self.outside()
            return
        for i in range(n):
            row = <object>PyList_GET_ITEM(rows, i)
            edge = one.pick(row)
            output.emitted += 1
            origin = chosen[i]
            root = current.batch._roots[origin]
            bits = 0
            if root:
                bits = next_id(&emitter.rng)
                current.axors[origin] ^= bits
            edge.add(row, bits, root, output.source)

    cdef int send_columns(
        self, Output output, list columns, Py_ssize_t n, Columns current, object origins
    ) except -1:
        """All rows at once, which stay columns. `origins` None: they are anchored to none."""
        cdef Py_ssize_t i, origin, done = 0
        cdef uint64_t* ids = <uint64_t*>calloc(n, 20)
        cdef uint64_t* roots = ids + n
        cdef int32_t* chosen = <int32_t*>(roots + n)
        cdef uint64_t root, bits
        cdef object error = None
        cdef list places = None if origins is None else list(origins)
        if ids is NULL:
            raise MemoryError
        try:
            try:
                output.one.pick_rows(columns, n, chosen, &done)
            except Exception as raised:
                error = raised  # the rows before it leave, as they do one by one
            output.emitted += done
            if places is None:
                output.one.send_columns(columns, done, chosen, NULL, NULL, output.source)
            else:
                for i in range(done):
                    origin = places[i]
                    root = current.batch._roots[origin]
                    if root:
                        bits = next_id(&self._emitter.rng)
                        current.axors[origin] ^= bits
                        ids[i] = bits
                        roots[i] = root
                output.one.send_columns(columns, done, chosen, ids, roots, output.source)
        finally:
            free(ids)
        if error is not None:
            raise error
        return 0

    def run(self, Batch batch not None, Py_ssize_t count):
        """Execute the first `count` tuples, which are then no longer in the batch; those of each
        source task in a call of their own."""
        cdef Batch part
        if count < len(batch) or batch.start:
            batch = batch.take(count)
        if PyList_GET_SIZE(batch.values) == 0:
            return
        if batch.sources is None:
            self.run_whole(batch)
        else:
            for part in batch.by_source():
                self.run_whole(part)

    cdef int run_whole(self, Batch batch) except -1:
        """All of a batch, which is of one source."""
        cdef Columns columns = Columns.__new__(Columns)
        columns.source = batch.source
        columns.batch = batch
        columns.calls = self
        columns.rows = columns.left = PyList_GET_SIZE(batch.values)
        columns.axors = <uint64_t*>calloc(columns.rows, 9)
        if columns.axors is NULL:
            raise MemoryError
        columns.settled = <uint8_t*>(columns.axors + columns.rows)
        self._current = columns
        try:
            columns.columns = own_columns(batch)
            self._execute(columns)
        except Exception as error:
            columns.settle_all(True)
            self.report_error(error)
        else:
            if self._auto_ack:
                columns.settle_all(False)
        finally:
            self._current = None
        return 0
