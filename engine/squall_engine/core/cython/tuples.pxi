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
    cdef public dict anchors  # root -> edge, when the root is MANY

    def __init__(self, values, id, root, source, settled=False, anchors=None):
        self.values = values
        self._id = id
        self._root = root
        self.source = source
        self.settled = settled
        self.anchors = anchors

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
    """Tuples of one stream on their way to one task, perhaps from several."""

    cdef readonly Source source
    cdef list values
    cdef uint64_t* _ids
    cdef uint64_t* _roots  # MANY: look in `several`
    cdef Py_ssize_t room
    cdef Py_ssize_t start  # what lies before has been taken
    cdef bint anchored  # some root is not zero
    cdef dict several  # index -> {root: id}, or None
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
            batch.push(tup.values, tup._id, tup._root, tup.anchors, tup.source)
        return batch

    cdef int grow(self, Py_ssize_t room) except -1:
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
        self.room = room
        return 0

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

    cdef int push(self, object values, uint64_t id_, uint64_t root, dict anchors, Source source) except -1:
        if anchors is not None:
            if self.several is None:
                self.several = {}
            self.several[PyList_GET_SIZE(self.values)] = anchors
        self.add(values, id_, root, source)
        return 0

    cdef dict anchors_at(self, Py_ssize_t i):
        return self.several.get(i) if self.several is not None else None

    cdef inline Source source_at(self, Py_ssize_t i):
        if self.sources is None:
            return self.source
        return <Source>PyList_GET_ITEM(self.sources, i)

    cdef Tuple tuple_at(self, Py_ssize_t i):
        cdef Tuple tup = Tuple.__new__(Tuple)
        tup.values = <object>PyList_GET_ITEM(self.values, i)
        tup._id = self._ids[i]
        tup._root = self._roots[i]
        tup.source = self.source_at(i)
        if self.several is not None:
            tup.anchors = self.several.get(i)
        return tup

    def __len__(self):
        return PyList_GET_SIZE(self.values) - self.start

    cpdef Batch take(self, Py_ssize_t count):
        """Remove the first `count` tuples; returns them as a batch of their own."""
        cdef Py_ssize_t i, n = min(count, PyList_GET_SIZE(self.values) - self.start)
        cdef Batch head = new_batch(self.source, n)
        cdef Py_ssize_t start = self.start
        head.values = self.values[start : start + n]
        memcpy(head._ids, self._ids + start, n * 8)
        memcpy(head._roots, self._roots + start, n * 8)
        head.anchored = self.anchored
        if self.several is not None:
            head.several = {
                i - start: anchors for i, anchors in self.several.items() if start <= i < start + n
            }
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
        for i in range(self.start, PyList_GET_SIZE(self.values)):
            source = self.source_at(i)
            batch = found.get(source)
            if batch is None:
                batch = found[source] = new_batch(source, 16)
            batch.push(self.values[i], self._ids[i], self._roots[i], self.anchors_at(i), source)
        return list(found.values())

    def as_tuples(self):
        cdef Py_ssize_t i
        return [self.tuple_at(i) for i in range(self.start, PyList_GET_SIZE(self.values))]

    def rows(self):
        """The values of each tuple."""
        return self.values[self.start :]

    def roots(self):
        """The trees that these tuples belong to, each once."""
        cdef Py_ssize_t i
        cdef dict found = {}, several
        for i in range(self.start, PyList_GET_SIZE(self.values)):
            several = self.anchors_at(i)
            if several is not None:
                found.update(dict.fromkeys(several))
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
        if tup.anchors is not None:
            found.update(dict.fromkeys(tup.anchors))
        elif tup._root:
            found[tup._root] = None
    return list(found)
