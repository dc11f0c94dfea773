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
    cdef bint given  # the bolt has the lists of the batch
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
        cdef Tuple tup
        cdef list column
        if not self.given:
            return self.batch.tuple_at(row)
        tup = Tuple.__new__(Tuple)
        tup._id = self.batch._ids[row]
        tup._root = self.batch._roots[row]
        tup.source = self.source
        # For an error's text at most: what the bolt has left of the row.
        tup.values = tuple(
            [column[row] for column in self.batch.columns if row < PyList_GET_SIZE(column)]
        )
        return tup

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
        cdef const uint64_t* ids = batch._ids
        cdef const uint64_t* roots = batch._roots
        cdef const uint64_t* axors = self.axors
        cdef const uint8_t* settled = self.settled
        cdef uint64_t root, last = 0, merged = 0
        if failed or self.calls._notes_acks or batch.several is not None:
            for i in range(self.rows):
                if not self.settled[i]:
                    self.settle(i, failed)
        elif batch.anchored:
            # Tuples of one root often come in a row: one look-up for all of them.
            for i in range(self.rows):
                if settled[i]:
                    continue
                root = roots[i]
                if root == last:
                    merged ^= ids[i] ^ axors[i]
                else:
                    if last:
                        ledger.add_ack(last, merged)
                    last = root
                    merged = ids[i] ^ axors[i]
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


cdef list own_columns(Columns columns, Py_ssize_t* changed):
    """The columns of a batch, which a bolt may change: its own lists, unless someone will ask for
    its rows. None: a row was changed after it was emitted, and `changed` is the place of the
    first."""
    cdef Batch batch = columns.batch
    cdef Py_ssize_t i, fields = len(batch.source.fields)
    if batch.columns is not None:
        if columns.calls._on_settled is None:
            columns.given = True
            return batch.columns[:]
        return [(<list>column)[:] for column in batch.columns]
    changed[0] = other_row(batch.values, 0, fields)
    if changed[0] >= 0:
        return None
    return [column_of(batch.values, i) for i in range(fields)]


cdef bint are_counts(tuple counts, Py_ssize_t emitted, Py_ssize_t rows) except -1:
    """Whether these are plain numbers, one for each row, which add up to `emitted`."""
    cdef Py_ssize_t row, left = emitted
    cdef long long count
    cdef int overflow = 0
    cdef object one
    if PyTuple_GET_SIZE(counts) != rows:
        return False
    for row in range(rows):
        one = <object>PyTuple_GET_ITEM(counts, row)
        if not PyLong_CheckExact(one):
            return False
        count = PyLong_AsLongLongAndOverflow(one, &overflow)
        if overflow or count < 0 or count > left:
            return False
        left -= count
    return left == 0


@cython.final
cdef class ColumnCalls(CarefulCalls):
    """The calls of a bolt that is fed with columns, and the loop that feeds it."""

    cdef object _execute
    cdef bint _auto_ack
    cdef bint _auto_anchor
    cdef object _on_changed_row
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
        on_changed_row=None,
    ):
        """`on_outside()` is called after each call that is made while no batch is executed,
        because there is something for a turn to do; `on_changed_row(tup, error)` for a tuple that
        cannot be a row, as its list was changed after it was emitted. It returns whether the tuple
        is done; otherwise, or when it raises, that fails."""
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
        self._on_changed_row = on_changed_row

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
        cdef list lists = columns_of(output.source, columns)
        cdef Columns current = self._current
        cdef Py_ssize_t n = PyList_GET_SIZE(lists[0]) if PyList_GET_SIZE(lists) else 0
        cdef int32_t* places = NULL  # the origins, if they are anchors
        try:
            if current is not None and self._auto_anchor:
                places = self.places_of(origins, n, current)
            if (
                output.one is None or output.direct or n < ROWS_FOR_COLUMNS * output.one.count
                or (places is not NULL and current.batch.several is not None)
            ):
                self.send_rows(output, list(zip(*lists)), current, places)
            else:
                self.send_columns(output, lists, n, current, places)
        finally:
            free(places)
        self.outside()

    cdef int32_t* places_of(self, object origins, Py_ssize_t n, Columns current) except? NULL:
        """The row of the current batch to which each of `n` tuples is anchored, for the caller to
        free; NULL: they are anchored to none. Raises EmitError and SettledTupleError."""
        cdef Py_ssize_t i, origin
        cdef bint some_settled = current.left < current.rows
        cdef int32_t* places
        if type(origins) is FanOut:
            return self.places_of_counts(origins.counts, n, current)
        if origins is None and n == current.rows and not some_settled:
            return self.places_of_rows(n, current)
        if not PyList_CheckExact(origins) or PyList_GET_SIZE(origins) != n:
            origins = checked_origins(origins, n, current.rows)
            if origins is None:
                return NULL
            origins = list(origins)
        places = <int32_t*>malloc((n + 1) * sizeof(int32_t))
        if places is NULL:
            raise MemoryError
        try:
            for i in range(n):
                if i >= PyList_GET_SIZE(origins):
                    raise RuntimeError("emit_columns: the origins changed meanwhile")
                origin = <object>PyList_GET_ITEM(origins, i)
                if origin < 0 or origin >= current.rows:
                    checked_origins(origins, n, current.rows)
                    raise no_row(origin, current.rows)
                if some_settled:
                    current.check(origin, "emit_columns")
                places[i] = <int32_t>origin
        except BaseException:
            free(places)
            raise
        if not current.batch.anchored:
            free(places)
            return NULL
        return places

    cdef int32_t* places_of_rows(self, Py_ssize_t n, Columns current) except? NULL:
        """`places_of` where each row of the batch has one tuple."""
        cdef Py_ssize_t row
        cdef int32_t* places
        if not current.batch.anchored:
            return NULL
        places = <int32_t*>malloc((n + 1) * sizeof(int32_t))
        if places is NULL:
            raise MemoryError
        for row in range(n):
            places[row] = <int32_t>row
        return places

    cdef int32_t* places_of_counts(
        self, tuple counts, Py_ssize_t n, Columns current
    ) except? NULL:
        """`places_of`, of a `FanOut`."""
        cdef Py_ssize_t i, row, end = 0, start = 0
        cdef int32_t* places
        if not are_counts(counts, n, current.rows):
            counts = checked_counts(counts, n, current.rows)
        # From here on the counts are an immutable tuple of plain ints.
        if current.left < current.rows:
            for row in range(current.rows):
                if PyLong_AsSsize_t(<object>PyTuple_GET_ITEM(counts, row)):
                    current.check(row, "emit_columns")
        if not current.batch.anchored:
            return NULL
        places = <int32_t*>malloc((n + 1) * sizeof(int32_t))
        if places is NULL:
            raise MemoryError
        for row in range(current.rows):
            end = start + PyLong_AsSsize_t(<object>PyTuple_GET_ITEM(counts, row))
            for i in range(start, end):
                places[i] = <int32_t>row
            start = end
        return places

    cdef int send_rows(
        self, Output output, list rows, Columns current, const int32_t* places
    ) except -1:
        """One row after the other."""
        cdef Emitter emitter = self._emitter
        cdef Picker one = output.one
        cdef Py_ssize_t i
        cdef object row
        cdef Tuple anchor
        cdef Edge edge
        cdef uint64_t bits, root
        if output.direct or (places is not NULL and current.batch.several is not None):
            one = None
        for i in range(PyList_GET_SIZE(rows)):
            row = <object>PyList_GET_ITEM(rows, i)
            if one is None:
                edges = emitter.edges(output, row)
                if places is NULL:
                    emitter.send(output, edges, row, (), None)
                else:
                    anchor = current.tuple_at(places[i])
                    current.axors[places[i]] ^= emitter.send(output, edges, row, (anchor,), anchor)
                continue
            edge = one.pick(row)
            output.emitted += 1
            bits = root = 0
            if places is not NULL:
                root = current.batch._roots[places[i]]
                if root:
                    bits = next_id(&emitter.rng)
                    current.axors[places[i]] ^= bits
            edge.add(row, bits, root, output.source)
        return 0

    cdef int send_columns(
        self, Output output, list columns, Py_ssize_t n, Columns current, const int32_t* places
    ) except -1:
        """All rows at once, which stay columns. `places` NULL: they are anchored to none."""
        cdef ColumnsOut out = ColumnsOut.__new__(ColumnsOut)
        cdef Random rng
        cdef Py_ssize_t i, place = -1
        cdef uint64_t bits, root = 0, merged = 0
        out.pick(output, columns, n)
        if places is not NULL:
            out.make_ids()
            rng = self._emitter.rng
            # Tuples of one row often follow each other: one look-up for all of them.
            for i in range(out.done):
                if places[i] != place:
                    if place >= 0:
                        current.axors[place] ^= merged
                    place = places[i]
                    root = current.batch._roots[place]
                    merged = 0
                if root:
                    bits = next_id(&rng)
                    merged ^= bits
                    out.ids[i] = bits
                    out.roots[i] = root
            if place >= 0:
                current.axors[place] ^= merged
            self._emitter.rng = rng
        out.send()
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
            self.run_source(batch)
        else:
            for part in batch.by_source():
                self.run_source(part)

    cdef int run_source(self, Batch batch) except -1:
        """All of a batch, which is of one source; around each row that was changed."""
        cdef Py_ssize_t changed
        while True:
            changed = self.run_whole(batch)
            if changed < 0:
                return 0
            if changed:
                self.run_source(batch.take(changed))
            self.refuse(batch.take(1).tuple_at(0))
            if len(batch) == 0:
                return 0
            batch = batch.take(len(batch))

    cdef Py_ssize_t run_whole(self, Batch batch) except -2:
        """Returns the place of the first row that was changed, and executes nothing if there is
        one; otherwise -1."""
        cdef Py_ssize_t changed = -1
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
            columns.columns = own_columns(columns, &changed)
            if changed < 0:
                self._execute(columns)
        except Exception as error:
            columns.settle_all(True)
            self.report_error(error)
        else:
            if self._auto_ack and changed < 0:
                columns.settle_all(False)
        finally:
            self._current = None
        return changed

    cdef int refuse(self, Tuple tup) except -1:
        """A tuple that cannot be a row."""
        cdef Source source = tup.source
        cdef bint is_done = False
        error = changed_row(source.component, source.stream, len(source.fields), tup.values)
        try:
            if self._on_changed_row is not None:
                is_done = self._on_changed_row(tup, error)
        except Exception as raised:
            error = raised
        if is_done:
            self.ack(tup)
        else:
            self.fail(tup)
            self.report_error(error)
        return 0


def held_origins(object origins, Py_ssize_t emitted, Py_ssize_t rows, Py_ssize_t first):
    cdef Py_ssize_t i, origin
    cdef list held
    if type(origins) is FanOut:
        held = []
        for i, count in enumerate(checked_counts(origins.counts, emitted, rows), first):
            held += [i] * count
        return held
    if not PyList_CheckExact(origins) or PyList_GET_SIZE(origins) != emitted:
        origins = checked_origins(origins, emitted, rows)
        if origins is None:
            return []
    held = list(origins)  # an origin of a class of its own may change them
    for i in range(len(held)):
        origin = held[i]
        if origin < 0 or origin >= rows:
            checked_origins(held, emitted, rows)
            raise no_row(origin, rows)
        if first or not PyLong_CheckExact(held[i]):  # otherwise the number is there already
            held[i] = first + origin
    return held
