# The way out of a task: which tasks a tuple goes to, and the edges where it waits for the end of the
# turn. The tasks of a component share their edges.

cdef Batch NO_BATCH = Batch.__new__(Batch)  # always empty


@cython.final
cdef class Edge:
    """From one stream of some tasks to one receiving task."""

    cdef readonly object task
    cdef readonly tuple ids
    cdef readonly Source source  # of one of its tasks
    cdef Batch batch  # NO_BATCH, which has no room, until `make_room` for the first tuple
    cdef Py_ssize_t room
    cdef readonly bint local
    cdef list touched  # of the outbox
    cdef object item  # likewise
    cdef public Inbox inbox  # where an outbox delivers what waits here; None: nowhere

    def __init__(self, task, Source source, *, local):
        """`source` is that of one of the tasks; `local`: the receiving task is in this worker."""
        self.task = task
        self.local = local
        self.ids = (task,)
        self.source = source
        self.room = 16
        self.batch = NO_BATCH

    cdef int make_room(self, Source source) except -1:
        cdef Py_ssize_t n = PyList_GET_SIZE(self.batch.values)
        if n == 0:
            self.batch = new_batch(source, self.room)
            if self.touched is not None:
                self.touched.append(self)
        else:
            self.batch.grow(2 * n + 16)
        return 0

    cdef inline int add(self, object values, uint64_t id_, uint64_t root, Source source) except -1:
        if PyList_GET_SIZE(self.batch.values) >= self.batch.room:
            self.make_room(source)
        return self.batch.add(values, id_, root, source)

    cdef int push(self, object values, uint64_t id_, uint64_t root, Several several, Source source) except -1:
        if PyList_GET_SIZE(self.batch.values) >= self.batch.room:
            self.make_room(source)
        return self.batch.push(values, id_, root, several, source)

    cdef int add_columns(
        self, list columns, const uint64_t* ids, const uint64_t* roots, Source source
    ) except -1:
        """Add tuples as columns (at least one tuple, and one column), which this edge keeps."""
        cdef Py_ssize_t i
        cdef object row
        if PyList_GET_SIZE(self.batch.values) == 0:
            self.batch = Batch.__new__(Batch)
            self.batch.source = source
            if self.touched is not None:
                self.touched.append(self)
        elif self.batch.columns is None:
            i = 0
            for row in zip(*columns):
                self.add(row, ids[i] if ids is not NULL else 0, roots[i] if ids is not NULL else 0, source)
                i += 1
            return 0
        self.batch.add_columns(columns, ids, roots, source)
        return 0

    def __len__(self):
        return PyList_GET_SIZE(self.batch.values)

    cpdef Batch take(self):
        """Remove and return what waits here."""
        cdef Batch batch = self.batch
        cdef Py_ssize_t n = PyList_GET_SIZE(batch.values)
        if n == 0:
            return new_batch(self.source, 1)
        # As much room as this one needed: the next turn will be like this one.
        self.room = min(max(n, 4), 4096)
        self.batch = NO_BATCH
        return batch

    def drop_oldest(self, keep):
        """Keep the `keep` newest only."""
        cdef Py_ssize_t n = PyList_GET_SIZE(self.batch.values)
        if keep <= 0:
            self.take()
        elif n > keep:
            self.batch.take(n - keep)
            self.batch = self.batch.take(keep)


@cython.final
cdef class Outbox:
    """The edges of a task, or of the tasks that share theirs, each with what the caller knows it
    by: which of them have something."""

    cdef list touched  # edges that were empty when a tuple came; some may have been taken since

    def __init__(self, items):
        cdef Edge edge
        self.touched = []
        for edge, item in items:
            edge.touched = self.touched
            edge.item = item
            if len(edge):
                self.touched.append(edge)

    @property
    def is_empty(self):
        """Whether no edge has anything."""
        cdef Edge edge
        for edge in self.touched:
            if PyList_GET_SIZE(edge.batch.values):
                return False
        return True

    def deliver(self):
        """Move what waits in the edges that have an inbox into these. True when something was
        moved."""
        cdef list touched = self.touched, rest = None
        cdef Edge edge
        cdef Py_ssize_t i = 0
        cdef bint moved = False
        # By place: an inbox calls Python, which could emit.
        while i < PyList_GET_SIZE(touched):
            edge = <Edge>PyList_GET_ITEM(touched, i)
            i += 1
            if edge.inbox is None:
                if rest is None:
                    rest = []
                rest.append(edge)
            elif PyList_GET_SIZE(edge.batch.values):
                edge.inbox.put_from_here(edge.take())
                moved = True
        touched.clear()
        if rest is not None:
            touched.extend(rest)
        return moved

    def take(self):
        """Those that have something, to be emptied by the caller: the next call may leave out
        what was named here and is not empty since (and may name one twice)."""
        cdef list touched = self.touched, items
        if not PyList_GET_SIZE(touched):
            return touched[:]
        items = [(<Edge>edge).item for edge in touched if PyList_GET_SIZE((<Edge>edge).batch.values)]
        touched.clear()
        return items


cdef class Picker:
    """A grouper that always picks one edge."""

    cdef tuple edges
    cdef Py_ssize_t count

    cdef Edge pick(self, object values):
        raise NotImplementedError

    cdef bint is_one_for_all(self, list columns) except -1:
        """Whether all rows of columns go to the only edge, whatever `pick_rows` finds."""
        return self.count == 1

    cdef int pick_rows(self, list columns, Py_ssize_t n, int32_t* chosen, Py_ssize_t* done) except -1:
        """Pick for each row of columns the place of an edge in `edges`. `done` is how many have
        one, also after an error."""
        raise NotImplementedError

    cdef Py_ssize_t send_columns(
        self, list columns, Py_ssize_t n, const int32_t* chosen, const uint64_t* ids,
        const uint64_t* roots, Source source
    ) except -1:
        """Put the first `n` rows of columns into the edges that were picked for them: for each edge
        the columns of its rows."""
        cdef Py_ssize_t i, j, field, at, parts = 0, fields = PyList_GET_SIZE(columns)
        cdef Py_ssize_t* part_of  # by edge: 1 + which part it gets; in the order of their first rows
        cdef Py_ssize_t* ends  # by part: its end among all rows, sorted by part
        cdef Py_ssize_t* places  # rows, sorted by part
        cdef Py_ssize_t* edge_of  # by part
        cdef uint64_t* sorted_ids = NULL
        cdef list part, column
        if n == 0:
            return 0
        if self.count == 1:  # and `chosen` may be NULL
            if n < PyList_GET_SIZE(columns[0]):
                columns = [(<list>column)[:n] for column in columns]
            (<Edge>PyTuple_GET_ITEM(self.edges, 0)).add_columns(columns, ids, roots, source)
            return 0
        part_of = <Py_ssize_t*>calloc(self.count + 3 * n + 1, sizeof(Py_ssize_t))
        if part_of is NULL:
            raise MemoryError
        ends = part_of + self.count
        edge_of = ends + n + 1
        places = edge_of + n
        try:
            if ids is not NULL:
                sorted_ids = <uint64_t*>malloc(2 * n * sizeof(uint64_t))
                if sorted_ids is NULL:
                    raise MemoryError
            for i in range(n):
                j = chosen[i]
                if part_of[j] == 0:
                    edge_of[parts] = j
                    parts += 1
                    part_of[j] = parts
                ends[part_of[j]] += 1
            for j in range(parts):
                ends[j + 1] += ends[j]
            # `ends[j]` is where part j begins, and moves on to its end.
            for i in range(n):
                j = part_of[chosen[i]] - 1
                at = ends[j]
                places[at] = i
                if sorted_ids is not NULL:
                    sorted_ids[at] = ids[i]
                    sorted_ids[n + at] = roots[i]
                ends[j] += 1
            at = 0
            for j in range(parts):
                part = []
                for field in range(fields):
                    column = <list>PyList_GET_ITEM(columns, field)
                    part.append(squall_gather(column, places + at, ends[j] - at))
                if sorted_ids is NULL:
                    (<Edge>PyTuple_GET_ITEM(self.edges, edge_of[j])).add_columns(part, NULL, NULL, source)
                else:
                    (<Edge>PyTuple_GET_ITEM(self.edges, edge_of[j])).add_columns(
                        part, sorted_ids + at, sorted_ids + n + at, source
                    )
                at = ends[j]
        finally:
            free(part_of)
            free(sorted_ids)
        return 0

    def choose(self, values):
        return (self.pick(values),)


cdef extern from *:
    """
    static int squall_are_text(PyObject *list) {
        Py_ssize_t i;
        for (i = 0; i < PyList_GET_SIZE(list); i++)
            if (!PyUnicode_CheckExact(PyList_GET_ITEM(list, i))) return 0;
        return 1;
    }

    static PyObject *squall_gather(PyObject *list, const Py_ssize_t *places, Py_ssize_t n) {
        PyObject *items = PyList_New(n);
        Py_ssize_t i;
        if (items == NULL) return NULL;
        for (i = 0; i < n; i++) {
            PyObject *item = PyList_GET_ITEM(list, places[i]);
            Py_INCREF(item);
            PyList_SET_ITEM(items, i, item);
        }
        return items;
    }
    """
    bint squall_are_text(list values) noexcept
    object squall_gather(list column, const Py_ssize_t* places, Py_ssize_t n)


@cython.final
cdef class RoundRobin(Picker):
    """shuffle, local-or-shuffle and none: every target in turn, in an order of its own for each
    source task, so that sources do not all hit the same task at once."""

    cdef Py_ssize_t next
    cdef Py_ssize_t step

    def __init__(self, edges, rng):
        self.set_ring(edges, *draw_steps(rng, len(edges)))

    def set_ring(self, edges, Py_ssize_t start, Py_ssize_t step):
        """Take these in turn from now on, from the place `start`, and then every `step` places
        (see `draw_steps`). A tuple of edges is not copied, so that many tasks may share one."""
        cdef tuple ring = edges_of(edges)
        cdef Py_ssize_t count = PyTuple_GET_SIZE(ring)
        if not (0 <= start < max(1, count) and 0 < step <= max(1, count)):
            raise ValueError(f"no ring of {count} edges from {start} in steps of {step}")
        self.edges = ring
        self.count = count
        self.next = start
        self.step = step

    cdef Edge pick(self, object values):
        cdef Py_ssize_t i = self.next, next = i + self.step
        self.next = next if next < self.count else next - self.count
        return <Edge>PyTuple_GET_ITEM(self.edges, i)

    cdef int pick_rows(self, list columns, Py_ssize_t n, int32_t* chosen, Py_ssize_t* done) except -1:
        cdef Py_ssize_t i, next = self.next
        for i in range(n):
            chosen[i] = <int32_t>next
            next += self.step
            if next >= self.count:
                next -= self.count
        self.next = next
        done[0] = n
        return 0


cdef tuple edges_of(object edges):
    """As a tuple. One that is a tuple already is shared by many tasks, and not looked at again."""
    if PyTuple_CheckExact(edges):
        return edges
    return tuple([(<Edge?>edge) for edge in edges])


cdef RoundRobin only(list edges):
    """Of one edge: there is no order to draw."""
    cdef RoundRobin ring = RoundRobin.__new__(RoundRobin)
    ring.set_ring(edges, 0, 1)
    return ring


@cython.final
cdef class ByFields(Picker):
    """fields: the stable hash of some values chooses the task."""

    cdef readonly tuple indexes
    cdef Py_ssize_t index
    cdef object hash_

    def __init__(self, edges, indexes, hash_):
        """`hash_` is of the value at the only index, or of the tuple of the values at several."""
        self.edges = edges_of(edges)
        self.count = len(self.edges)
        self.indexes = tuple(indexes)
        self.index = self.indexes[0] if len(self.indexes) == 1 else -1
        self.hash_ = hash_

    cdef Edge pick(self, object values):
        cdef uint32_t number = 0
        cdef object key
        if self.index < 0:
            key = tuple([values[i] for i in self.indexes])
        elif PyTuple_CheckExact(values):
            key = <object>PyTuple_GET_ITEM(values, self.index)
        elif PyList_CheckExact(values):
            key = <object>PyList_GET_ITEM(values, self.index)
        else:
            key = values[self.index]
        if self.count == 1 and PyUnicode_CheckExact(key):
            return <Edge>PyTuple_GET_ITEM(self.edges, 0)
        if fast_hash(key, &number):
            return <Edge>PyTuple_GET_ITEM(self.edges, number % <uint32_t>self.count)
        return self.edges[self.hash_(key) % self.count]

    cdef bint is_one_for_all(self, list columns) except -1:
        # (The type of another key may have no hash, which is an error.)
        return (
            self.count == 1 and self.index >= 0
            and squall_are_text(<list>columns[self.index])
        )

    cdef int pick_rows(self, list columns, Py_ssize_t n, int32_t* chosen, Py_ssize_t* done) except -1:
        cdef Py_ssize_t i
        cdef uint32_t number = 0
        cdef list column, keys
        cdef object key
        if self.index >= 0:
            column = <list>columns[self.index]
        else:
            keys = [columns[i] for i in self.indexes]
            column = list(zip(*keys))
        for i in range(n):
            done[0] = i
            key = <object>PyList_GET_ITEM(column, i)
            if self.count == 1 and PyUnicode_CheckExact(key):
                chosen[i] = 0
            elif fast_hash(key, &number):
                chosen[i] = <int32_t>(number % <uint32_t>self.count)
            else:
                chosen[i] = <int32_t>(self.hash_(key) % self.count)
        done[0] = n
        return 0


@cython.final
cdef class ColumnsOut:
    """Columns on their way out of a task: `pick`, `make_ids` if they are anchored, `send`."""

    cdef Output output
    cdef list columns
    cdef Py_ssize_t done  # the first rows, which leave: all, unless `error` ends them
    cdef object error
    cdef int32_t* chosen  # by row, the place of its edge; NULL: all go to the only one
    cdef uint64_t* ids  # by row; NULL: they are anchored to nothing
    cdef uint64_t* roots  # likewise; one block with `ids`

    def __dealloc__(self):
        free(self.chosen)
        free(self.ids)

    cdef int pick(self, Output output, list columns, Py_ssize_t n) except -1:
        """Pick the edges of `n` rows, and count these as emitted."""
        self.output = output
        self.columns = columns
        if output.one.is_one_for_all(columns):
            self.done = n
        else:
            self.chosen = <int32_t*>malloc(n * sizeof(int32_t))
            if self.chosen is NULL:
                raise MemoryError
            try:
                output.one.pick_rows(columns, n, self.chosen, &self.done)
            except Exception as error:
                self.error = error  # the rows before it leave, as they do one by one
        output.emitted += self.done
        return 0

    cdef int make_ids(self) except -1:
        """Make room for ids and roots, which are zeros."""
        self.ids = <uint64_t*>calloc(self.done + 1, 16)
        if self.ids is NULL:
            raise MemoryError
        self.roots = self.ids + self.done
        return 0

    cdef int send(self) except -1:
        """Put the rows into their edges. Raises what `pick` met."""
        self.output.one.send_columns(
            self.columns, self.done, self.chosen, self.ids, self.roots, self.output.source
        )
        if self.error is not None:
            raise self.error
        return 0


@cython.final
cdef class Fixed:
    """all (every target) and global (the one with the lowest id)."""

    cdef tuple edges

    def __init__(self, edges):
        self.edges = tuple(edges)

    def choose(self, values):
        return self.edges


@cython.final
cdef class Output:
    """One stream of one task."""

    cdef readonly Source source
    cdef readonly Py_ssize_t arity
    cdef readonly bint direct
    cdef list consumers  # a tuple of edges for each
    cdef list groupers
    cdef readonly dict direct_edges
    cdef uint64_t emitted
    cdef int64_t beyond  # what was transferred beyond one edge for each tuple emitted
    # The only grouper, when it picks one edge and no inspector looks; None: there is no fast path.
    cdef Picker one

    def __init__(self, Source source, *, direct):
        self.source = source
        self.arity = len(source.fields)
        self.direct = direct
        self.consumers = []
        self.groupers = []
        self.direct_edges = {}
        self.emitted = 0
        self.beyond = 0

    def add_consumer(self, grouper, edges, by_task=None):
        """`grouper` None: a direct grouping, which finds its edges in `by_task` (None: a table of
        its own). Before an `Emitter` is made of the output. A tuple of edges is not copied."""
        self.consumers.append(tuple(edges))
        if grouper is not None:
            self.groupers.append(grouper)
            return
        if by_task is None:
            by_task = {edge.task: edge for edge in edges}
        self.direct_edges = {**self.direct_edges, **by_task} if self.direct_edges else by_task

    @property
    def edges(self):
        """All of them, of one consumer after the other."""
        return [edge for edges in self.consumers for edge in edges]

    @property
    def first_edge(self):
        """The first of `edges`, if there are any."""
        for edges in self.consumers:
            if edges:
                return edges[0]
        return None

    cdef int set_fast_path(self) except -1:
        """All consumers are there."""
        if self.direct or len(self.groupers) != 1:
            return 0
        grouper = self.groupers[0]
        if isinstance(grouper, Picker):
            self.one = grouper
        elif isinstance(grouper, Fixed) and len(self.consumers[0]) == 1:
            self.one = only(list(self.consumers[0]))
        return 0

    cdef tuple route(self, object values):
        """The edges that a tuple takes, by every consumer's grouping."""
        cdef list groupers = self.groupers
        if len(groupers) == 1:
            return groupers[0].choose(values)
        chosen = ()
        for grouper in groupers:
            chosen += grouper.choose(values)
        return chosen

    def emitted_total(self):
        """The number of tuples that were emitted."""
        return self.emitted

    def transferred_total(self):
        """The same, counted once for each edge that a tuple took."""
        return <int64_t>self.emitted + self.beyond
