# Tuples and batches. A batch is a list of values with C arrays of ids and roots; the tuple objects
# are made when a bolt is given them.

@cython.final
cdef class Source:
    """The properties that the tuples of one task on one stream have in common."""

    cdef readonly object component
    cdef readonly object task
    cdef readonly object stream
    cdef readonly tuple fields
    cdef readonly dict index
    cdef readonly tuple key
    cdef readonly bint is_tick
    cdef readonly bint local

    def __init__(self, component, task, stream, fields, *, local=True):
        self.local = local
        self.component = component
        self.task = task
        self.stream = stream
        self.fields = tuple(fields)
        self.index = {name: i for i, name in enumerate(self.fields)}
        self.key = (component, stream)
        self.is_tick = component == SYSTEM_COMPONENT and stream == TICK_STREAM


def tick_source():
    """The source of tick tuples."""
    return Source(SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM, ("rate_secs",))


cdef struct Tree:
    uint64_t root
    uint64_t edge  # the XOR of the ids that a tuple has in it


# Results of windows have hundreds of trees, of which a dictionary would be most of their cost.
@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Several:
    """The trees of a tuple that belongs to several: each root once, in the order in which they
    came."""

    cdef Tree* trees
    cdef Py_ssize_t count
    cdef dict given  # the dictionary that it was made of

    def __dealloc__(self):
        free(self.trees)

    cdef dict as_dict(self):
        """root -> edge"""
        cdef Py_ssize_t i
        cdef dict found
        if self.given is not None:
            return self.given
        found = {}
        for i in range(self.count):
            found[self.trees[i].root] = self.trees[i].edge
        return found

    cdef int put_roots(self, dict found) except -1:
        cdef Py_ssize_t i
        for i in range(self.count):
            found[self.trees[i].root] = None
        return 0


cdef Several new_several(Py_ssize_t room):
    """One with room for so many trees."""
    cdef Several several = Several.__new__(Several)
    several.trees = <Tree*>malloc(max(room, 1) * sizeof(Tree))
    several.count = 0
    if several.trees is NULL:
        raise MemoryError
    return several


cdef Several several_of(dict anchors):
    """That of {root: edge}. Raises OverflowError for what is not a 64-bit number."""
    cdef Several several = new_several(len(anchors))
    for root, edge in anchors.items():
        several.trees[several.count].root = root
        several.trees[several.count].edge = edge
        several.count += 1
    several.given = anchors
    return several


# Not tracked by the garbage collector: it holds plain values.
@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Tuple:
    """A tuple as a bolt receives it; see `squall.Tuple` for the public part."""

    cdef uint64_t _id  # `values` must follow: see `speed_up_values`
    cdef readonly object values
    cdef uint64_t _root
    cdef uint64_t _axor  # XOR of the edges that were anchored to it
    cdef public bint settled  # acked or failed
    cdef readonly Source source
    cdef Several several  # when the root is MANY

    def __init__(self, values, id, root, source, settled=False, anchors=None):
        self.values = values
        self._id = id
        self._root = root
        self.source = source
        self.settled = settled
        self.several = None if anchors is None else several_of(anchors)

    @property
    def anchors(self):
        """root -> edge, when the root is MANY."""
        return None if self.several is None else self.several.as_dict()

    @property
    def id(self):
        return self._id

    @property
    def root(self):
        return self._root

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
            return self.values[<object>place]
        return self.values[key]

    def get(self, field, default=None):
        cdef PyObject* place = PyDict_GetItem(self.source.index, field)
        return default if place is NULL else self.values[<object>place]

    def as_dict(self):
        return dict(zip(self.source.fields, self.values, strict=True))

    def __repr__(self):
        source = self.source
        return (
            f"Tuple({list(self.values)!r}, from {source.component}:{source.task} {source.stream})"
        )


cdef extern from *:
    """
    #include "structmember.h"

    /* A member descriptor instead of the property that Cython makes: the interpreter reads it in
       place, 10 ns faster. */
    static PyMemberDef squall_values_member = {"values", T_OBJECT_EX, 0, READONLY, NULL};

    static PyObject *squall_take_item(PyObject *list, Py_ssize_t i) {
        PyObject *item = PyList_GET_ITEM(list, i);
        Py_INCREF(Py_None);
        PyList_SET_ITEM(list, i, Py_None);
        return item;
    }

    /* Items move, so that none of them is touched. */
    static PyObject *squall_take_items(PyObject *list, Py_ssize_t start, Py_ssize_t n) {
        PyObject *items = PyList_New(n);
        Py_ssize_t i;
        if (items == NULL) return NULL;
        for (i = 0; i < n; i++) {
            PyList_SET_ITEM(items, i, PyList_GET_ITEM(list, start + i));
            PyList_SET_ITEM(list, start + i, Py_None);
        }
    #if PY_VERSION_HEX < 0x030C0000
        Py_SET_REFCNT(Py_None, Py_REFCNT(Py_None) + n); /* it is immortal since */
    #endif
        return items;
    }

    static int squall_speed_up_values(PyObject *type, Py_ssize_t offset) {
        PyObject *member;
        int status;
        squall_values_member.offset = offset;
        member = PyDescr_NewMember((PyTypeObject *)type, &squall_values_member);
        if (member == NULL) return -1;
        status = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, "values", member);
        Py_DECREF(member);
        PyType_Modified((PyTypeObject *)type);
        return status;
    }
    """
    object squall_take_item(list values, Py_ssize_t i)
    list squall_take_items(list values, Py_ssize_t start, Py_ssize_t n)
    int squall_speed_up_values(object type, Py_ssize_t offset) except -1


cdef int speed_up_values() except -1:
    cdef Tuple tup = Tuple.__new__(Tuple)
    cdef Py_ssize_t offset = <char*>&tup._id - <char*><PyObject*>tup + sizeof(uint64_t)
    tup.values = speed_up_values_mark
    # Only if it lies where it should.
    if (<PyObject**>(<char*><PyObject*>tup + offset))[0] == <PyObject*>speed_up_values_mark:
        squall_speed_up_values(Tuple, offset)
    return 0


cdef object speed_up_values_mark = object()
speed_up_values()


# Not tracked either: with a thousand tasks, a collection would look at one for each edge.
@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Batch:
    """Tuples of one stream on their way to one task, perhaps from several.

    Tuples that were emitted as columns stay columns until they are needed as rows: `columns` has one
    list for each field, `values` is the first of these, so that its length is that of the batch
    either way, and `room` is 0, so that whatever adds a row comes by `grow`, which makes rows of
    them. Such a batch has no `several`."""

    cdef readonly Source source
    cdef list values
    cdef list columns  # None: `values` are rows
    cdef Py_ssize_t column_room  # of `_ids` and `_roots`, while there are columns
    cdef uint64_t* _ids
    cdef uint64_t* _roots  # MANY: look in `several`
    cdef Py_ssize_t room
    cdef Py_ssize_t start  # what lies before has been taken
    cdef bint anchored  # some root is not zero
    cdef dict several  # index -> Several, or None
    cdef list sources  # of each row; None: all are of `source`

    def __cinit__(self):
        self.values = []
        self._ids = self._roots = NULL
        self.room = self.start = 0
        self.anchored = False

    def __dealloc__(self):
        free(self._ids)

    @classmethod
    def of(cls, source, tuples):
        """A batch of tuples that exist already."""
        cdef Batch batch = new_batch(source, 16)
        cdef Tuple tup
        for tup in tuples:
            batch.push(tup.values, tup._id, tup._root, tup.several, tup.source)
        return batch

    cdef int grow(self, Py_ssize_t room) except -1:
        """Make room for so many rows."""
        self.to_rows()
        self.reallocate(room)
        self.room = room
        return 0

    cdef int reallocate(self, Py_ssize_t room) except -1:
        """One block: the ids, then the roots."""
        cdef uint64_t* block = <uint64_t*>malloc(room * 16)
        cdef Py_ssize_t n = PyList_GET_SIZE(self.values)
        if block is NULL:
            raise MemoryError
        if self._ids is not NULL:
            memcpy(block, self._ids, n * 8)
            memcpy(block + room, self._roots, n * 8)
            free(self._ids)
        self._ids = block
        self._roots = block + room
        return 0

    cdef int to_rows(self) except -1:
        """Make rows of columns; `room` follows."""
        cdef list columns = self.columns
        if columns is not None:
            self.columns = None
            self.values = list(zip(*columns))
            self.room = self.column_room
        return 0

    cdef int add_columns(
        self, list columns, const uint64_t* ids, const uint64_t* roots, Source source
    ) except -1:
        """Add tuples as columns, which this batch keeps; it is empty or has columns. `ids` and
        `roots` NULL: they are zeros."""
        cdef Py_ssize_t i, n = PyList_GET_SIZE(self.values), more = PyList_GET_SIZE(columns[0])
        cdef list column
        if self.columns is None:
            self.column_room, self.room = self.room, 0
        if n + more > self.column_room:
            i = n + more if n == 0 else 2 * (n + more)
            self.reallocate(i)
            self.column_room = i
        if ids is NULL:
            memset(self._ids + n, 0, more * 8)
            memset(self._roots + n, 0, more * 8)
        else:
            memcpy(self._ids + n, ids, more * 8)
            memcpy(self._roots + n, roots, more * 8)
            for i in range(more):
                if roots[i]:
                    self.anchored = True
                    break
        if self.sources is not None:
            self.sources.extend([source] * more)
        elif source is not self.source:
            self.sources = [self.source] * n + [source] * more
        if self.columns is None:
            self.columns = columns
            self.values = <list>columns[0]
        else:
            for i in range(PyList_GET_SIZE(columns)):
                column = <list>PyList_GET_ITEM(self.columns, i)
                column.extend(<list>PyList_GET_ITEM(columns, i))
        return 0

    cdef tuple row_at(self, Py_ssize_t i):
        """A row of columns."""
        return tuple([(<list>column)[i] for column in self.columns])

    cdef inline int add(self, object values, uint64_t id_, uint64_t root, Source source) except -1:
        cdef Py_ssize_t n = PyList_GET_SIZE(self.values)
        if n >= self.room:
            self.grow(2 * n + 16)
        self._ids[n] = id_
        self._roots[n] = root
        if root:
            self.anchored = True
        if self.sources is not None:
            self.sources.append(source)
        elif source is not self.source:
            self.sources = [self.source] * n
            self.sources.append(source)
        self.values.append(values)
        return 0

    cdef int push(self, object values, uint64_t id_, uint64_t root, Several several, Source source) except -1:
        if several is not None:
            if self.several is None:
                self.several = {}
            self.several[PyList_GET_SIZE(self.values)] = several
        self.add(values, id_, root, source)
        return 0

    cdef Several several_at(self, Py_ssize_t i):
        return self.several.get(i) if self.several is not None else None

    cdef inline Source source_at(self, Py_ssize_t i):
        if self.sources is None:
            return self.source
        return <Source>PyList_GET_ITEM(self.sources, i)

    cdef Tuple tuple_at(self, Py_ssize_t i):
        cdef Tuple tup = Tuple.__new__(Tuple)
        if self.columns is None:
            tup.values = <object>PyList_GET_ITEM(self.values, i)
        else:
            tup.values = self.row_at(i)
        tup._id = self._ids[i]
        tup._root = self._roots[i]
        tup.source = self.source_at(i)
        if self.several is not None:
            tup.several = self.several.get(i)
        return tup

    def __len__(self):
        return PyList_GET_SIZE(self.values) - self.start

    cpdef Batch take(self, Py_ssize_t count):
        """Remove the first `count` tuples; returns them as a batch of their own."""
        cdef Py_ssize_t i, n = min(count, PyList_GET_SIZE(self.values) - self.start)
        cdef Batch head = new_batch(self.source, n)
        cdef Py_ssize_t start = self.start
        if self.columns is None:
            head.values = self.values[start : start + n]
        else:
            # No one looks at what lies before `start`, and no one else has these lists.
            head.columns = [squall_take_items(<list>column, start, n) for column in self.columns]
            head.values = <list>head.columns[0]
            head.column_room, head.room = head.room, 0
        memcpy(head._ids, self._ids + start, n * 8)
        memcpy(head._roots, self._roots + start, n * 8)
        head.anchored = self.anchored
        if self.several is not None:
            # Row by row: looking at all of them for each slice would be quadratic.
            for i in range(n):
                several = self.several.pop(start + i, None)
                if several is not None:
                    if head.several is None:
                        head.several = {}
                    head.several[i] = several
        if self.sources is not None and n:
            head.source = self.source_at(start)
            if n > 1:
                head.sources = self.sources[start : start + n]
        self.start = start + n
        return head

    cdef list by_source(self):
        """Its tuples as batches of one source each."""
        cdef Py_ssize_t i
        cdef dict found = {}
        cdef Batch batch
        cdef Source source
        if self.columns is not None:
            return self.columns_by_source()
        for i in range(self.start, PyList_GET_SIZE(self.values)):
            source = self.source_at(i)
            batch = found.get(source)
            if batch is None:
                batch = found[source] = new_batch(source, 16)
            batch.push(self.values[i], self._ids[i], self._roots[i], self.several_at(i), source)
        return list(found.values())

    cdef list columns_by_source(self):
        cdef Py_ssize_t i, at
        cdef dict found = {}
        cdef list places, batches = []
        cdef Batch batch
        for i in range(self.start, PyList_GET_SIZE(self.values)):
            source = self.source_at(i)
            places = found.get(source)
            if places is None:
                found[source] = [i]
            else:
                places.append(i)
        for source, places in found.items():
            batch = new_batch(source, PyList_GET_SIZE(places))
            batch.column_room, batch.room = batch.room, 0
            batch.columns = [[(<list>column)[i] for i in places] for column in self.columns]
            batch.values = <list>batch.columns[0]
            batch.anchored = self.anchored
            at = 0
            for i in places:
                batch._ids[at] = self._ids[i]
                batch._roots[at] = self._roots[i]
                at += 1
            batches.append(batch)
        return batches

    def as_tuples(self):
        cdef Py_ssize_t i
        self.to_rows()
        return [self.tuple_at(i) for i in range(self.start, PyList_GET_SIZE(self.values))]

    def rows(self):
        """The values of each tuple."""
        self.to_rows()
        return self.values[self.start :]

    def last_row(self):
        """The values of the last tuple."""
        cdef Py_ssize_t n = PyList_GET_SIZE(self.values)
        if n <= self.start:
            raise IndexError("an empty batch has no row")
        return self.values[n - 1] if self.columns is None else self.row_at(n - 1)

    def roots(self):
        """The trees that these tuples belong to, each once."""
        cdef Py_ssize_t i
        cdef dict found = {}
        cdef Several several
        for i in range(self.start, PyList_GET_SIZE(self.values)):
            several = self.several_at(i)
            if several is not None:
                several.put_roots(found)
            elif self._roots[i]:
                found[self._roots[i]] = None
        return list(found)


cdef Batch new_batch(Source source, Py_ssize_t room):
    cdef Batch batch = Batch.__new__(Batch)
    batch.source = source
    batch.grow(room if room > 0 else 1)
    return batch


cdef list roots_of(tuple anchors):
    """The trees that these tuples belong to, each once."""
    cdef dict found = {}
    cdef Tuple tup
    for tup in anchors:
        if tup.several is not None:
            tup.several.put_roots(found)
        elif tup._root:
            found[tup._root] = None
    return list(found)
