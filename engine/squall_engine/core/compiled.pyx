# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=False, auto_pickle=False
"""The core, compiled: the twin of `pure`, with the same interface and the same tests. Docstrings
are there; here is only what differs.

- A batch is a list of values with C arrays of ids and roots. The tuple objects are made when a bolt
  is given them, and used again for the next one when the bolt kept none.
- Ids are splitmix64, seeded from the engine's generator, a stream of its own for each task.
- An acker is a C hash table, and acks for the ackers of this worker go straight into it. What it
  completes goes straight to the spout, when that is in this worker too.
- Strings, numbers and bytes are hashed here (CRC-32, as `squall_common.component.groupings` says), the rest there.

The C tables hold no lock: nothing in them runs Python code while they are being changed (a message
id is released only after its table is in order again), and the interpreter's lock does the rest.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_Append, PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyObject_Hash
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

# The format of sections, in C: made of wire_format.py by hatch_build.py.
include "wire_format.pxi"

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*)
    void PyErr_Clear()
    Py_ssize_t Py_REFCNT(object)

cdef extern from *:
    """
    #ifndef SQUALL_SOURCE_HASH
    #define SQUALL_SOURCE_HASH ""
    #endif
    """
    const char* SQUALL_SOURCE_HASH

import difflib
import sys
from collections.abc import Iterable

import msgspec

from squall_common.names import DEFAULT_STREAM as _DEFAULT_STREAM
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM
from squall_engine.core.codec import CodecError
from squall_engine.core.drive import call_each, call_while
from squall_engine.core.pure.acking import Taken
from squall_engine.core.pure.outputs import Grouper
from squall_engine.core.values import (
    AckerCounts,
    EmitError,
    Outcome,
    checked_origins,
    no_field,
    no_row,
    rows_of,
    settled_error,
    wrong_values,
)
from squall_engine.core.sections import FAILS, RESETS, acker_of, serialize_roots

if sys.byteorder != "little":
    raise ImportError("the compiled core is for little-endian machines")

# Of this file and wire_format.py, when it was compiled: whoever loads the module compares it.
SOURCE_HASH = SQUALL_SOURCE_HASH.decode()

cdef object DEFAULT_STREAM = sys.intern(_DEFAULT_STREAM)

cdef uint64_t ACKER_MASK = (1 << ACKER_INDEX_BITS) - 1
cdef int TIMEOUT_BUCKETS = 10
cdef Py_ssize_t TABLE_MIN = 1024


# ---- ids ----

cdef struct Random:
    uint64_t state


cdef inline uint64_t next_id(Random* rng) noexcept nogil:
    """splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    cdef uint64_t z
    rng.state += <uint64_t>0x9E3779B97F4A7C15
    z = rng.state
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


# ---- the hash of a fields grouping ----

cdef uint32_t[8][256] CRC


cdef void fill_crc_tables() noexcept:
    cdef uint32_t c
    cdef int i, k
    for i in range(256):
        c = <uint32_t>i
        for k in range(8):
            c = (c >> 1) ^ (<uint32_t>0xEDB88320 if c & 1 else <uint32_t>0)
        CRC[0][i] = c
    for i in range(256):
        for k in range(1, 8):
            CRC[k][i] = (CRC[k - 1][i] >> 8) ^ CRC[0][CRC[k - 1][i] & 0xFF]


fill_crc_tables()


cdef inline uint32_t crc32(uint8_t first, const char* data, Py_ssize_t size) noexcept nogil:
    """zlib's CRC-32 of the byte `first` and then `data`, eight bytes at a time."""
    cdef uint32_t c = CRC[0][(<uint32_t>0xFFFFFFFF ^ first) & 0xFF] ^ (<uint32_t>0xFFFFFFFF >> 8)
    cdef const uint8_t* p = <const uint8_t*>data
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, p, 8)
        word ^= c
        c = (
            CRC[7][word & 0xFF] ^ CRC[6][(word >> 8) & 0xFF]
            ^ CRC[5][(word >> 16) & 0xFF] ^ CRC[4][(word >> 24) & 0xFF]
            ^ CRC[3][(word >> 32) & 0xFF] ^ CRC[2][(word >> 40) & 0xFF]
            ^ CRC[1][(word >> 48) & 0xFF] ^ CRC[0][word >> 56]
        )
        p += 8
        size -= 8
    while size > 0:
        c = (c >> 8) ^ CRC[0][(c ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return c ^ <uint32_t>0xFFFFFFFF


cdef inline bint fast_hash(object value, uint32_t* number) except -1:
    """`squall_common.component.groupings.stable_hash` of the commonest types; False for the others."""
    cdef Py_ssize_t size
    cdef const char* data
    cdef int64_t hashed
    if PyUnicode_CheckExact(value):
        data = PyUnicode_AsUTF8AndSize(value, &size)
        if data is NULL:
            PyErr_Clear()  # a lone surrogate
            return False
        number[0] = crc32(c's', data, size)
        return True
    if PyLong_CheckExact(value) or (PyFloat_CheckExact(value) and value == value):
        hashed = PyObject_Hash(value)
        number[0] = crc32(c'n', <const char*>&hashed, 8)
        return True
    if PyBytes_CheckExact(value):
        number[0] = crc32(c'b', PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return True
    return False


def stable_hash(value):
    """For the tests: the hash as it is computed here, None for a type that is left to
    `squall_common.component.groupings`."""
    cdef uint32_t number = 0
    return number if fast_hash(value, &number) else None


# ---- tuples ----

@cython.final
cdef class Source:
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
    return Source(SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM, ("rate_secs",))


# Not tracked by the garbage collector, as its twin is not: it holds plain values.
@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Tuple:
    cdef uint64_t _id  # `values` must follow: see `speed_up_values`
    cdef readonly object values
    cdef uint64_t _root
    cdef uint64_t _axor
    cdef public bint settled
    cdef readonly Source source
    cdef public dict anchors

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
    # Only if it lies where we think.
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
        return self.values[self.start :]

    def roots(self):
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


# ---- acking ----

cdef int UNKNOWN = -1  # owner of a root whose init has not come
cdef int FAILED_EARLY = -2  # ... and which has failed

cdef struct Entry:
    uint64_t root  # 0: free
    uint64_t xor
    int32_t owner  # the spout task
    int32_t age  # the generation that touched it last


@cython.final
cdef class RootTable:
    """root -> (XOR, owner): open addressing, linear probing, removal by shifting back."""

    cdef Entry* entries
    cdef Py_ssize_t mask
    cdef Py_ssize_t count

    def __cinit__(self):
        self.entries = <Entry*>calloc(TABLE_MIN, sizeof(Entry))
        if self.entries is NULL:
            raise MemoryError
        self.mask = TABLE_MIN - 1
        self.count = 0

    def __dealloc__(self):
        free(self.entries)

    cdef inline Entry* find(self, uint64_t root) noexcept nogil:
        """The entry of a root, or the free one where it belongs."""
        cdef Py_ssize_t i = <Py_ssize_t>(root >> ACKER_INDEX_BITS) & self.mask
        while self.entries[i].root and self.entries[i].root != root:
            i = (i + 1) & self.mask
        return &self.entries[i]

    cdef int resize(self, Py_ssize_t room) except -1:
        cdef Entry* old = self.entries
        cdef Py_ssize_t i, old_room = self.mask + 1
        cdef Entry* new = <Entry*>calloc(room, sizeof(Entry))
        if new is NULL:
            raise MemoryError
        self.entries = new
        self.mask = room - 1
        for i in range(old_room):
            if old[i].root:
                self.find(old[i].root)[0] = old[i]
        free(old)
        return 0

    cdef inline int fill(self, Entry* entry, uint64_t root, uint64_t xor, int32_t owner, int32_t age) except -1:
        """Take the free entry that `find` gave."""
        entry.root = root
        entry.xor = xor
        entry.owner = owner
        entry.age = age
        self.count += 1
        if 2 * self.count > self.mask:
            self.resize(2 * (self.mask + 1))
        return 0

    cdef void remove(self, Entry* entry) noexcept:
        cdef Py_ssize_t i = entry - self.entries
        cdef Py_ssize_t j = i, home
        self.count -= 1
        while True:
            j = (j + 1) & self.mask
            if not self.entries[j].root:
                break
            home = <Py_ssize_t>(self.entries[j].root >> ACKER_INDEX_BITS) & self.mask
            if ((j - home) & self.mask) >= ((j - i) & self.mask):
                self.entries[i] = self.entries[j]
                i = j
        self.entries[i].root = 0

    cdef int clear(self) except -1:
        if self.mask + 1 > TABLE_MIN and 8 * self.count < self.mask:
            memset(self.entries, 0, (self.mask + 1) * sizeof(Entry))
            self.count = 0
            self.resize((self.mask + 1) // 2)
        else:
            memset(self.entries, 0, (self.mask + 1) * sizeof(Entry))
            self.count = 0
        return 0

    # What an acker on another worker is to know, merged.

    cdef inline int merge_ack(self, uint64_t root, uint64_t xor) except -1:
        cdef Entry* entry = self.find(root)
        if entry.root:
            entry.xor ^= xor
        else:
            self.fill(entry, root, xor, UNKNOWN, 0)
        return 0

    cdef inline int merge_init(self, uint64_t root, uint64_t xor, int32_t owner) except -1:
        cdef Entry* entry = self.find(root)
        if entry.root:
            entry.xor ^= xor
            entry.owner = owner
        else:
            self.fill(entry, root, xor, owner, 0)
        return 0

    cdef bytes section(self, uint32_t acker):
        """An ACKS section (see `sections`) of all that is here."""
        cdef Py_ssize_t i, acks = self.count, inits = 0
        cdef AcksHead head
        cdef bytes data
        cdef char* at
        cdef Entry* entry
        for i in range(self.mask + 1):
            entry = &self.entries[i]
            if entry.root and entry.owner >= 0:
                inits += 1
        data = PyBytes_FromStringAndSize(
            NULL,
            ACKS_HEAD_BYTES + (ROOT_BYTES + XOR_BYTES) * acks + (ROOT_BYTES + TASK_BYTES) * inits,
        )
        at = PyBytes_AS_STRING(data)
        head.kind = KIND_ACKS
        head.flags = 0
        head.acker = acker
        head.acks = <uint32_t>acks
        head.inits = <uint32_t>inits
        memcpy(at, &head, ACKS_HEAD_BYTES)
        at += ACKS_HEAD_BYTES
        for i in range(self.mask + 1):
            entry = &self.entries[i]
            if entry.root:
                memcpy(at, &entry.root, ROOT_BYTES)
                memcpy(at + ROOT_BYTES * acks, &entry.xor, XOR_BYTES)
                at += ROOT_BYTES
        at += XOR_BYTES * acks
        if inits:
            for i in range(self.mask + 1):
                entry = &self.entries[i]
                if entry.root and entry.owner >= 0:
                    memcpy(at, &entry.root, ROOT_BYTES)
                    at += ROOT_BYTES
            for i in range(self.mask + 1):
                entry = &self.entries[i]
                if entry.root and entry.owner >= 0:
                    memcpy(at, &entry.owner, TASK_BYTES)
                    at += TASK_BYTES
        return data


cdef struct Slot:
    PyObject* message_id  # NULL: free
    PyObject* stream
    double emitted_at
    long bucket
    uint64_t order
    uint64_t root
    Py_ssize_t next_free

cdef struct Place:
    uint64_t root  # 0: free
    Py_ssize_t slot


@cython.final
cdef class PendingRoots:
    cdef Place* places  # root -> slot, open addressing
    cdef Py_ssize_t mask
    cdef Py_ssize_t count
    cdef Slot* slots
    cdef Py_ssize_t slots_room
    cdef Py_ssize_t slots_used
    cdef Py_ssize_t free_slot  # -1: none
    cdef uint64_t order  # counts what was put
    # What the acker has completed and the spout was not notified about yet.
    cdef list completed
    cdef PyObject* completed_stream
    cdef Py_ssize_t completed_count
    cdef double completed_sum  # of emitted_at
    cdef dict completed_other  # stream -> [count, sum of emitted_at]

    def __cinit__(self):
        self.places = <Place*>calloc(TABLE_MIN, sizeof(Place))
        self.slots = <Slot*>malloc(64 * sizeof(Slot))
        if self.places is NULL or self.slots is NULL:
            raise MemoryError
        self.mask = TABLE_MIN - 1
        self.slots_room = 64
        self.slots_used = self.count = 0
        self.free_slot = -1
        self.completed = []
        self.completed_stream = NULL
        self.completed_count = 0
        self.completed_sum = 0.0
        self.completed_other = None

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.slots_used):
            Py_XDECREF(self.slots[i].message_id)
            Py_XDECREF(self.slots[i].stream)
        Py_XDECREF(self.completed_stream)
        free(self.slots)
        free(self.places)

    cdef inline Place* find(self, uint64_t root) noexcept nogil:
        cdef Py_ssize_t i = <Py_ssize_t>(root >> ACKER_INDEX_BITS) & self.mask
        while self.places[i].root and self.places[i].root != root:
            i = (i + 1) & self.mask
        return &self.places[i]

    cdef int grow_places(self) except -1:
        cdef Place* old = self.places
        cdef Py_ssize_t i, old_room = self.mask + 1
        cdef Place* new = <Place*>calloc(2 * old_room, sizeof(Place))
        if new is NULL:
            raise MemoryError
        self.places = new
        self.mask = 2 * old_room - 1
        for i in range(old_room):
            if old[i].root:
                self.find(old[i].root)[0] = old[i]
        free(old)
        return 0

    cdef int grow_slots(self) except -1:
        cdef Slot* new = <Slot*>realloc(self.slots, 2 * self.slots_room * sizeof(Slot))
        if new is NULL:
            raise MemoryError
        self.slots = new
        self.slots_room *= 2
        return 0

    cdef inline int add(self, uint64_t root, object message_id, object stream, double now, long bucket) except -1:
        """A root that is not here."""
        cdef Place* place
        cdef Slot* slot
        cdef Py_ssize_t i
        if 2 * (self.count + 1) > self.mask:
            self.grow_places()
        if self.free_slot >= 0:
            i = self.free_slot
            self.free_slot = self.slots[i].next_free
        else:
            if self.slots_used == self.slots_room:
                self.grow_slots()
            i = self.slots_used
            self.slots_used += 1
        slot = &self.slots[i]
        Py_INCREF(message_id)
        Py_INCREF(stream)
        slot.message_id = <PyObject*>message_id
        slot.stream = <PyObject*>stream
        slot.emitted_at = now
        slot.bucket = bucket
        slot.order = self.order
        self.order += 1
        slot.root = root
        place = self.find(root)
        place.root = root
        place.slot = i
        self.count += 1
        return 0

    cdef Py_ssize_t pop(self, uint64_t root) noexcept:
        """Take a root out; returns its slot, whose objects are the caller's now, or -1. The slot
        must be freed with `release`."""
        cdef Place* place = self.find(root)
        cdef Py_ssize_t i, j, home, found
        if not place.root:
            return -1
        found = place.slot
        self.count -= 1
        i = j = place - self.places
        while True:
            j = (j + 1) & self.mask
            if not self.places[j].root:
                break
            home = <Py_ssize_t>(self.places[j].root >> ACKER_INDEX_BITS) & self.mask
            if ((j - home) & self.mask) >= ((j - i) & self.mask):
                self.places[i] = self.places[j]
                i = j
        self.places[i].root = 0
        return found

    cdef inline void release(self, Py_ssize_t i) noexcept:
        self.slots[i].message_id = NULL
        self.slots[i].stream = NULL
        self.slots[i].next_free = self.free_slot
        self.free_slot = i

    cdef inline int complete(self, uint64_t root) except -1:
        """The acker of this worker has completed a root."""
        cdef Py_ssize_t i = self.pop(root)
        cdef PyObject* message_id
        cdef PyObject* stream
        cdef double emitted_at
        if i < 0:
            return 0  # failed or timed out before
        message_id = self.slots[i].message_id
        stream = self.slots[i].stream
        emitted_at = self.slots[i].emitted_at
        self.release(i)
        if stream is not self.completed_stream:
            if self.completed_count:
                self.note_completed()
            Py_XDECREF(self.completed_stream)
            self.completed_stream = stream  # our reference goes there
        else:
            Py_DECREF(<object>stream)  # never the last
        self.completed_count += 1
        self.completed_sum += emitted_at
        PyList_Append(self.completed, <object>message_id)
        Py_DECREF(<object>message_id)  # never the last
        return 0

    cdef int note_completed(self) except -1:
        cdef list known
        cdef object stream = <object>self.completed_stream
        if self.completed_other is None:
            self.completed_other = {}
        known = self.completed_other.setdefault(stream, [0, 0.0])
        known[0] += self.completed_count
        known[1] += self.completed_sum
        self.completed_count = 0
        self.completed_sum = 0.0
        return 0

    # -- for the engine --

    def __len__(self):
        return self.count

    def __contains__(self, root):
        return self.find(root).root != 0

    def find_message(self, uint64_t root):
        cdef Place* place = self.find(root)
        if not place.root:
            return None
        return (<object>self.slots[place.slot].message_id,)

    def put(self, root, message_id, stream, now, bucket):
        cdef Py_ssize_t i = self.pop(root)
        if i >= 0:
            self.drop(i)
        self.add(root, message_id, stream, now, bucket)

    cdef int drop(self, Py_ssize_t i) except -1:
        cdef PyObject* message_id = self.slots[i].message_id
        cdef PyObject* stream = self.slots[i].stream
        self.release(i)
        Py_DECREF(<object>message_id)
        Py_DECREF(<object>stream)
        return 0

    def take(self, roots, double now):
        cdef Py_ssize_t i
        cdef object message_id, stream
        taken = Taken()
        for root in roots:
            i = self.pop(root)
            if i < 0:
                continue
            message_id = <object>self.slots[i].message_id
            stream = <object>self.slots[i].stream
            secs = now - self.slots[i].emitted_at
            self.drop(i)
            taken.add(message_id, stream, secs)
        return taken

    def take_completed(self, double now):
        if not PyList_GET_SIZE(self.completed):
            return None
        taken = Taken()
        taken.message_ids = self.completed
        self.completed = []
        self.note_completed()
        for stream, (count, emitted_sum) in self.completed_other.items():
            taken.by_stream[stream] = (count, count * now - emitted_sum)
        self.completed_other = None
        return taken

    def reset(self, root, long bucket):
        cdef Place* place = self.find(root)
        if place.root:
            self.slots[place.slot].bucket = bucket
            self.slots[place.slot].order = self.order
            self.order += 1

    cdef list in_order(self, long limit, bint all_):
        """The roots of buckets below `limit` (or all), as they were put or reset."""
        cdef Py_ssize_t i
        cdef list found = []
        if self.count:
            for i in range(self.slots_used):
                if self.slots[i].message_id is not NULL and (all_ or self.slots[i].bucket < limit):
                    found.append((self.slots[i].order, self.slots[i].root))
            found.sort()
        return [root for _, root in found]

    def expired(self, long bucket):
        return self.in_order(bucket - TIMEOUT_BUCKETS, False)

    def expire(self, long bucket, double now):
        return self.take(self.expired(bucket), now)

    def oldest_first(self):
        return self.in_order(0, True)

    def __iter__(self):
        return iter(self.in_order(0, True))


cdef int note(dict settled, int32_t task, uint64_t root) except -1:
    cdef list roots = settled.get(task)
    if roots is None:
        settled[task] = [root]
    else:
        roots.append(root)
    return 0


@cython.final
cdef class AckerTable:
    cdef RootTable table
    cdef int32_t age
    cdef dict attached  # spout task -> PendingRoots
    cdef int32_t last_owner  # the one looked up last
    cdef PendingRoots last_pending
    cdef dict done_roots  # spout task -> roots, of spouts that are not attached
    cdef dict failed_late  # spout task -> roots
    cdef dict counted_inits
    cdef int32_t init_owner  # a run of inits that `counted_inits` does not have yet
    cdef uint64_t init_count
    cdef readonly uint64_t done
    cdef readonly uint64_t failed

    def __init__(self):
        self.table = RootTable()
        self.attached = {}
        self.last_owner = UNKNOWN
        self.done_roots = {}
        self.failed_late = {}
        self.counted_inits = {}
        self.init_owner = UNKNOWN

    def __len__(self):
        return self.table.count

    def attach(self, task, PendingRoots pending):
        self.attached[task] = pending
        self.last_owner = UNKNOWN
        self.last_pending = None

    @property
    def inits(self):
        self.count_inits()
        return self.counted_inits

    cdef int count_inits(self) except -1:
        if self.init_count:
            owner = self.init_owner
            self.counted_inits[owner] = self.counted_inits.get(owner, 0) + self.init_count
            self.init_count = 0
        return 0

    cdef inline int complete(self, uint64_t root, int32_t owner) except -1:
        self.done += 1
        if owner != self.last_owner:
            self.last_pending = self.attached.get(owner)
            self.last_owner = owner
        if self.last_pending is not None:
            self.last_pending.complete(root)
        else:
            note(self.done_roots, owner, root)
        return 0

    cdef inline int xor(self, uint64_t root, uint64_t xor) except -1:
        cdef Entry* entry = self.table.find(root)
        cdef int32_t owner
        if not entry.root:
            self.table.fill(entry, root, xor, UNKNOWN, self.age)
            return 0
        entry.age = self.age
        entry.xor ^= xor
        if entry.xor == 0 and entry.owner >= 0:
            owner = entry.owner
            self.table.remove(entry)
            self.complete(root, owner)
        return 0

    cdef inline int init(self, uint64_t root, uint64_t xor, int32_t owner) except -1:
        cdef Entry* entry = self.table.find(root)
        if owner != self.init_owner:
            self.count_inits()
            self.init_owner = owner
        self.init_count += 1
        if not entry.root:
            if xor:
                self.table.fill(entry, root, xor, owner, self.age)
            else:
                self.complete(root, owner)
            return 0
        if entry.owner == FAILED_EARLY:
            self.table.remove(entry)
            self.failed += 1
            note(self.failed_late, owner, root)
            return 0
        entry.age = self.age
        entry.owner = owner
        entry.xor ^= xor
        if entry.xor == 0:
            self.table.remove(entry)
            self.complete(root, owner)
        return 0

    cdef tuple take_settled(self):
        """What `apply` returns: complete, and failed before their init."""
        done, failed = self.done_roots, self.failed_late
        if done:
            self.done_roots = {}
        if failed:
            self.failed_late = {}
        return done, failed

    def apply(self, dict acks, dict inits):
        for root, owner in inits.items():
            self.init(root, acks.pop(root, 0), owner)
        for root, xor in acks.items():
            self.xor(root, xor)
        inits.clear()
        return self.take_settled()

    def apply_remote(self, dict acks, dict inits):
        cdef Entry* entry
        for root in list(inits):
            entry = self.table.find(root)
            if entry.root and entry.owner >= 0:
                del inits[root]
                acks.pop(root, None)
        return self.apply(acks, inits)

    def apply_section(self, bytes data):
        cdef const char* at = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef AcksHead head
        cdef const char* xors
        cdef const char* new_roots
        cdef const char* owners
        cdef Py_ssize_t acks, inits, i
        cdef uint64_t root, xor
        cdef int32_t owner
        cdef Entry* entry
        cdef set skip = None
        if size < ACKS_HEAD_BYTES:
            raise CodecError(f"a section ends after {size} bytes; {ACKS_HEAD_BYTES} were expected")
        memcpy(&head, at, ACKS_HEAD_BYTES)
        at += ACKS_HEAD_BYTES
        size -= ACKS_HEAD_BYTES
        acks, inits = head.acks, head.inits
        if size != (ROOT_BYTES + XOR_BYTES) * acks + (ROOT_BYTES + TASK_BYTES) * inits:
            raise CodecError(
                f"a section of {acks} acks and {inits} inits has {size + ACKS_HEAD_BYTES} bytes"
            )
        xors = at + ROOT_BYTES * acks
        new_roots = xors + XOR_BYTES * acks
        owners = new_roots + ROOT_BYTES * inits
        # An init that is known already is a repetition, and its XOR is left out. (The other XORs
        # go first: without its init no root is complete.)
        for i in range(inits):
            memcpy(&root, new_roots + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&owner, owners + TASK_BYTES * i, TASK_BYTES)
            if root == 0 or owner < 0:
                raise CodecError("a section has an init without a root or a task")
            entry = self.table.find(root)
            if entry.root and entry.owner != UNKNOWN:
                if skip is None:
                    skip = set()
                skip.add(root)
                if entry.owner == FAILED_EARLY:
                    self.init(root, 0, owner)
        for i in range(acks):
            memcpy(&root, at + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&xor, xors + XOR_BYTES * i, XOR_BYTES)
            if root and (skip is None or root not in skip):
                self.xor(root, xor)
        for i in range(inits):
            memcpy(&root, new_roots + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&owner, owners + TASK_BYTES * i, TASK_BYTES)
            if skip is None or root not in skip:
                self.init(root, 0, owner)
        return self.take_settled()

    cdef int32_t forget(self, uint64_t root) noexcept:
        """Forget a root. Returns its owner."""
        cdef Entry* entry = self.table.find(root)
        cdef int32_t owner = UNKNOWN
        if entry.root:
            owner = entry.owner
            self.table.remove(entry)
        return owner

    def fail(self, roots):
        cdef int32_t owner
        cdef uint64_t one
        cdef dict failed = {}
        for root in roots:
            one = root
            owner = self.forget(one)
            if owner < 0:
                self.table.fill(self.table.find(one), one, 0, FAILED_EARLY, self.age)
            else:
                self.failed += 1
                note(failed, owner, one)
        return failed

    cdef list known(self):
        """The roots whose init has come."""
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.table.mask + 1):
            if self.table.entries[i].root and self.table.entries[i].owner >= 0:
                found.append(self.table.entries[i].root)
        return found

    def reset_timeout(self, roots):
        cdef Entry* entry
        cdef dict reset = {}
        for root in roots:
            entry = self.table.find(root)
            if entry.root:
                entry.age = self.age
                if entry.owner >= 0:
                    note(reset, entry.owner, entry.root)
        return reset

    def rotate(self):
        cdef Py_ssize_t i
        cdef list forgotten = []
        for i in range(self.table.mask + 1):
            if self.table.entries[i].root and self.table.entries[i].age < self.age:
                forgotten.append(self.table.entries[i].root)
        for root in forgotten:
            self.forget(root)
        self.age += 1


@cython.final
cdef class Ledger:
    cdef Py_ssize_t ackers
    cdef list tables  # AckerTable by index; None: on another worker
    cdef list remote  # RootTable by index
    cdef list fails
    cdef list resets
    cdef AckerTable only  # the acker, when there is one and it is here
    cdef Random rng
    cdef bint noted  # something is in `fails` or `resets`

    def __init__(self, ackers, tables, seed):
        tables = tables or {}
        self.rng.state = seed
        self.ackers = ackers
        self.tables = [tables.get(i) for i in range(ackers)]
        self.remote = [None if i in tables else RootTable() for i in range(ackers)]
        self.fails = [[] for _ in range(ackers)]
        self.resets = [[] for _ in range(ackers)]
        self.only = self.tables[0] if ackers == 1 else None

    cdef inline int add_ack(self, uint64_t root, uint64_t xor) except -1:
        cdef Py_ssize_t i
        cdef object table
        if self.only is not None:
            self.only.xor(root, xor)
            return 0
        i = <Py_ssize_t>(root & ACKER_MASK)
        if i >= self.ackers:
            return 0  # from a worker that is not of our mind
        table = <object>PyList_GET_ITEM(self.tables, i)
        if table is not None:
            (<AckerTable>table).xor(root, xor)
        else:
            (<RootTable>PyList_GET_ITEM(self.remote, i)).merge_ack(root, xor)
        return 0

    cdef inline int add_init(self, uint64_t root, uint64_t xor, int32_t task) except -1:
        cdef Py_ssize_t i
        cdef object table
        if self.only is not None:
            self.only.init(root, xor, task)
            return 0
        i = <Py_ssize_t>(root & ACKER_MASK)
        table = <object>PyList_GET_ITEM(self.tables, i)
        if table is not None:
            (<AckerTable>table).init(root, xor, task)
        else:
            (<RootTable>PyList_GET_ITEM(self.remote, i)).merge_init(root, xor, task)
        return 0

    def ack(self, root, xor):
        self.add_ack(root, xor)

    def init(self, root, xor, task):
        self.add_init(root, xor, task)

    def fresh(self):
        return Ledger(self.ackers, None, next_id(&self.rng))

    cpdef fail(self, roots):
        cdef uint64_t root
        for root in roots:
            if root == 0 or <Py_ssize_t>(root & ACKER_MASK) >= self.ackers:
                continue  # from a worker that is not of our mind
            (<list>self.fails[root & ACKER_MASK]).append(root)
            self.noted = True
            # A fresh random number: tuples of a failed tree may yet be acked, and the fail may never
            # reach the acker, but the tree must not complete.
            self.add_ack(root, next_id(&self.rng))

    cpdef reset(self, roots):
        for root in roots:
            (<list>self.resets[root & ACKER_MASK]).append(root)
            self.noted = True

    def merge(self, Ledger other):
        cdef RootTable theirs
        cdef Entry* entry
        cdef Py_ssize_t i
        for theirs in other.remote:
            if theirs is None or not theirs.count:
                continue
            for i in range(theirs.mask + 1):
                entry = &theirs.entries[i]
                if not entry.root:
                    continue
                if entry.owner >= 0:
                    self.add_init(entry.root, entry.xor, entry.owner)
                else:
                    self.add_ack(entry.root, entry.xor)
            theirs.clear()
        if other.noted:
            other.noted = False
            self.noted = True
            for mine, its in zip((*self.fails, *self.resets), (*other.fails, *other.resets)):
                mine.extend(its)
                its.clear()

    cdef list sections(self, Py_ssize_t index):
        """What an acker on another worker is to know."""
        cdef RootTable remote = self.remote[index]
        cdef list found = []
        if self.noted:
            fails, resets = self.fails[index], self.resets[index]
            # First, so that the acker fails a root of this turn at its init.
            if fails:
                found.append(serialize_roots(FAILS, index, dict.fromkeys(fails)))
                fails.clear()
        if remote.count:
            found.append(remote.section(<uint32_t>index))
            remote.clear()
        if self.noted and resets:
            found.append(serialize_roots(RESETS, index, dict.fromkeys(resets)))
            resets.clear()
        return found


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
    """(There is no table of the tuples in flight here: their edges are XORed like those of others,
    which costs no more when it is done in C.)"""

    cdef readonly Ledger ledger
    cdef dict tables

    def __init__(self, ackers, local, bits):
        self.tables = {index: AckerTable() for index in local}
        self.ledger = Ledger(ackers, self.tables, bits(64))

    def __len__(self):
        return sum(map(len, self.tables.values()))

    def attach(self, task, PendingRoots pending):
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
        cdef Ledger ledger = self.ledger
        cdef AckerTable table
        cdef Py_ssize_t i
        cdef bint any_ = False
        outcome = Outcome()
        for i in range(ledger.ackers):
            table = ledger.tables[i]
            if table is None:
                found = ledger.sections(i)
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
        cdef AckerTable table = self.tables.get(acker_of(section))
        outcome = Outcome()
        if table is not None:
            done, failed = table.apply_section(section)
            add_settled(outcome.done, done)
            add_settled(outcome.failed, failed)
        return outcome

    def fail(self, index, roots):
        cdef AckerTable table = self.tables.get(index)
        return Outcome() if table is None else Outcome(failed=table.fail(roots))

    def give_up(self):
        cdef AckerTable table
        outcome = Outcome()
        for table in self.tables.values():
            add_settled(outcome.failed, table.fail(table.known()))
        return outcome

    def reset_timeout(self, index, roots):
        cdef AckerTable table = self.tables.get(index)
        return Outcome() if table is None else Outcome(reset=table.reset_timeout(roots))

    def rotate_ackers(self):
        for table in self.tables.values():
            table.rotate()

    def rotate_trees(self):
        pass

    def counts(self, index):
        cdef AckerTable table = self.tables[index]
        return AckerCounts(table.inits, table.done, table.failed)


# ---- the way out of a task ----

SHARES_EDGES = True

cdef Batch NO_BATCH = Batch.__new__(Batch)  # always empty


@cython.final
cdef class Edge:
    cdef readonly object task
    cdef readonly tuple ids
    cdef readonly Source source  # of one of its tasks
    cdef Batch batch  # NO_BATCH, which has no room, until `make_room` for the first tuple
    cdef Py_ssize_t room
    cdef readonly bint local
    cdef list touched  # of the outbox
    cdef object item  # likewise

    def __init__(self, task, Source source, *, local):
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

    cdef int push(self, object values, uint64_t id_, uint64_t root, dict anchors, Source source) except -1:
        if PyList_GET_SIZE(self.batch.values) >= self.batch.room:
            self.make_room(source)
        return self.batch.push(values, id_, root, anchors, source)

    def __len__(self):
        return PyList_GET_SIZE(self.batch.values)

    cpdef Batch take(self):
        cdef Batch batch = self.batch
        cdef Py_ssize_t n = PyList_GET_SIZE(batch.values)
        if n == 0:
            return new_batch(self.source, 1)
        # As much room as this one needed: the next turn will be like this one.
        self.room = min(max(n, 4), 4096)
        self.batch = NO_BATCH
        return batch

    def drop_oldest(self, keep):
        cdef Py_ssize_t n = PyList_GET_SIZE(self.batch.values)
        if keep <= 0:
            self.take()
        elif n > keep:
            self.batch.take(n - keep)
            self.batch = self.batch.take(keep)


@cython.final
cdef class Outbox:
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
        cdef Edge edge
        for edge in self.touched:
            if PyList_GET_SIZE(edge.batch.values):
                return False
        return True

    def take(self):
        cdef list touched = self.touched, items
        if not PyList_GET_SIZE(touched):
            return touched[:]
        items = [(<Edge>edge).item for edge in touched if PyList_GET_SIZE((<Edge>edge).batch.values)]
        touched.clear()
        return items


cdef class Picker:
    """A grouper that always picks one edge."""

    cdef Edge pick(self, object values):
        raise NotImplementedError

    def choose(self, values):
        return (self.pick(values),)


@cython.final
cdef class RoundRobin(Picker):
    cdef list edges
    cdef Py_ssize_t next
    cdef Py_ssize_t count

    def __init__(self, edges, rng):
        self.edges = rng.sample(list(edges), len(edges))
        self.count = len(self.edges)
        self.next = 0

    def set_ring(self, edges):
        self.edges = [(<Edge?>edge) for edge in edges]
        self.count = len(self.edges)
        self.next = 0

    cdef Edge pick(self, object values):
        cdef Py_ssize_t i = self.next
        self.next = i + 1 if i + 1 < self.count else 0
        return <Edge>PyList_GET_ITEM(self.edges, i)


cdef RoundRobin only(list edges):
    """Of one edge: there is no order to draw."""
    cdef RoundRobin ring = RoundRobin.__new__(RoundRobin)
    ring.set_ring(edges)
    return ring


@cython.final
cdef class ByFields(Picker):
    cdef list edges
    cdef Py_ssize_t count
    cdef readonly tuple indexes
    cdef Py_ssize_t index
    cdef object hash_

    def __init__(self, edges, indexes, hash_):
        self.edges = list(edges)
        self.count = len(self.edges)
        self.indexes = tuple(indexes)
        self.index = self.indexes[0] if len(self.indexes) == 1 else -1
        self.hash_ = hash_

    cdef Edge pick(self, object values):
        cdef uint32_t number = 0
        cdef object key
        if self.index < 0:
            key = tuple([values[i] for i in self.indexes])
            return self.edges[self.hash_(key) % self.count]
        if PyTuple_CheckExact(values):
            key = <object>PyTuple_GET_ITEM(values, self.index)
        elif PyList_CheckExact(values):
            key = <object>PyList_GET_ITEM(values, self.index)
        else:
            key = values[self.index]
        if self.count == 1 and PyUnicode_CheckExact(key):
            return <Edge>PyList_GET_ITEM(self.edges, 0)
        if fast_hash(key, &number):
            return <Edge>PyList_GET_ITEM(self.edges, number % <uint32_t>self.count)
        return self.edges[self.hash_(key) % self.count]


@cython.final
cdef class Fixed:
    cdef tuple edges

    def __init__(self, edges):
        self.edges = tuple(edges)

    def choose(self, values):
        return self.edges


@cython.final
cdef class Output:
    cdef readonly Source source
    cdef readonly Py_ssize_t arity
    cdef readonly bint direct
    cdef readonly list edges
    cdef readonly list groupers
    cdef readonly dict direct_edges
    cdef uint64_t emitted
    cdef int64_t beyond  # what was transferred beyond one edge for each tuple emitted
    cdef Picker one  # the only grouper, when it picks one edge; None: there is no fast path

    def __init__(self, Source source, *, direct):
        self.source = source
        self.arity = len(source.fields)
        self.direct = direct
        self.edges = []
        self.groupers = []
        self.direct_edges = {}
        self.emitted = 0
        self.beyond = 0

    def add_consumer(self, grouper, edges):
        self.edges.extend(edges)
        if grouper is None:
            self.direct_edges.update((edge.task, edge) for edge in edges)
        else:
            self.groupers.append(grouper)

    def seal(self, *, fast):
        if not fast or self.direct or len(self.groupers) != 1:
            return
        grouper = self.groupers[0]
        if isinstance(grouper, Picker):
            self.one = grouper
        elif isinstance(grouper, Fixed) and len(self.edges) == 1:
            self.one = only(self.edges)

    cpdef tuple route(self, values):
        cdef list groupers = self.groupers
        if len(groupers) == 1:
            return groupers[0].choose(values)
        chosen = ()
        for grouper in groupers:
            chosen += grouper.choose(values)
        return chosen

    def emitted_total(self):
        return self.emitted

    def transferred_total(self):
        return <int64_t>self.emitted + self.beyond


cdef inline int check_values(Output output, object values) except -1:
    if PyList_CheckExact(values):
        if PyList_GET_SIZE(values) == output.arity:
            return 0
    elif PyTuple_CheckExact(values):
        if PyTuple_GET_SIZE(values) == output.arity:
            return 0
    elif not isinstance(values, (str, bytes)):
        try:
            if len(values) == output.arity:
                return 0
        except TypeError:
            pass
    raise wrong_values(output.source, values)


cdef object ids_of(tuple edges):
    if len(edges) == 1:
        return (<Edge>edges[0]).ids
    return tuple([edge.task for edge in edges])


cdef tuple as_anchors(object anchors):
    if isinstance(anchors, Tuple):
        return (anchors,)
    found = tuple(dict.fromkeys(anchors))
    for anchor in found:
        if not isinstance(anchor, Tuple):
            raise TypeError(f"anchors are tuples that the bolt received, not {anchor!r}")
    return found


@cython.final
cdef class Emitter:
    cdef readonly object component
    cdef readonly object task
    cdef readonly dict outputs
    cdef object inspector
    cdef object on_rejected
    cdef Random rng

    def __init__(
        self, component, task, outputs, ledger, next_bits, *, inspector=None, on_rejected
    ):
        self.component = component
        self.task = task
        self.outputs = dict(outputs)
        self.inspector = inspector
        self.on_rejected = on_rejected
        self.rng.state = next_bits(64)

    cpdef Output output(self, object stream, object values):
        cdef Output output = self.find(stream)
        check_values(output, values)
        return output

    cpdef Output find(self, object stream):
        cdef Output output = self.outputs.get(stream)
        if output is None:
            near = difflib.get_close_matches(stream, self.outputs, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise EmitError(f"{self.component!r} declares no stream {stream!r}{hint}")
        return output

    cpdef tuple edges(self, Output output, object values):
        if output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is direct: use emit_direct"
            )
        return output.route(values)

    cpdef tuple direct_edges(self, Output output, object task):
        if not output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is not direct: "
                "declare it with Stream(fields, direct=True), or use emit"
            )
        edge = output.direct_edges.get(task)
        return () if edge is None else (edge,)

    cdef uint64_t send(
        self, Output output, tuple edges, object values, tuple anchors, Tuple current
    ) except? 0:
        cdef Edge edge
        cdef Tuple anchor
        cdef uint64_t bits, current_xor = 0
        cdef dict roots
        cdef Source source = output.source
        output.emitted += 1
        if self.inspector is not None:
            try:
                values = self.inspector.inspect(source, values)
            except ValueError as error:
                output.beyond -= 1
                self.on_rejected(error, roots_of(anchors))
                return 0
        output.beyond += PyTuple_GET_SIZE(edges) - 1
        for edge in edges:
            if not anchors:
                edge.add(values, 0, 0, source)
                continue
            if len(anchors) == 1:
                anchor = anchors[0]
                if anchor._root != MANY:
                    if anchor._root:
                        bits = next_id(&self.rng)
                        if anchor is current:
                            current_xor ^= bits
                        else:
                            anchor._axor ^= bits
                        edge.add(values, bits, anchor._root, source)
                    else:
                        edge.add(values, 0, 0, source)
                    continue
            roots = {}
            for anchor in anchors:
                if anchor._root == 0:
                    continue
                # One edge an anchor, not one a child: two anchors of the same root would cancel
                # each other out.
                bits = next_id(&self.rng)
                if anchor is current:
                    current_xor ^= bits
                else:
                    anchor._axor ^= bits
                for root in anchor.anchors or (anchor._root,):
                    roots[root] = roots.get(root, 0) ^ bits
            if not roots:
                edge.add(values, 0, 0, source)
            elif len(roots) == 1:
                root, one = next(iter(roots.items()))
                edge.add(values, one, root, source)
            else:
                edge.push(values, 0, MANY, roots, source)
        return current_xor


# ---- the calls of a bolt ----

cdef int ack_roots(Ledger ledger, Tuple tup, uint64_t edges) except -1:
    if tup.anchors is not None:
        for root, edge in tup.anchors.items():
            ledger.add_ack(root, <uint64_t>edge ^ edges)
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


cdef Py_ssize_t IN_HAND_WORDS = 16


@cython.final
cdef class BoltCalls:
    """Of a bolt with a plain `execute` and `auto_anchor`: while a tuple is current, `root`, `axor`
    and `mode` are the truth about it. With `auto_ack` nothing is ever written to a tuple, and
    every tuple but the current one is settled by definition."""

    cdef Emitter emitter
    cdef Ledger ledger
    cdef object counts
    cdef object execute
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
    # Tuples of one root often come in a row: one look-up for all of them.
    cdef uint64_t last
    cdef uint64_t merged
    # Where the tree in hand is noted, for whoever comes after this process; NULL: nowhere.
    cdef uint64_t* in_hand
    cdef object hand_owner
    cdef uint64_t task

    cdef int hold_several(self, Tuple tup) except -1:
        cdef Py_ssize_t i = 2
        for root in tup.anchors or ():
            if i < IN_HAND_WORDS:
                self.in_hand[i] = root
                i += 1
        while i < IN_HAND_WORDS:
            self.in_hand[i] = 0
            i += 1
        self.in_hand[0] = MANY
        return 0

    def emit(self, values, anchors=None, stream=DEFAULT_STREAM):
        cdef Edge edge
        cdef uint64_t bits
        cdef Output output = self.default
        if anchors is not None or stream is not DEFAULT_STREAM or self.one is None or self.mode > ONE_ROOT:
            return self.emit_any(values, anchors, stream)
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

    cdef uint64_t settle(self, Tuple tup, str what) except? 0:
        cdef uint64_t edges
        if self.is_settled(tup):
            raise settled_error(tup, what)
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
            acked = self.counts.acked
            acked[tup.source.key] = acked.get(tup.source.key, 0) + 1
        if self.on_settled is not None:
            self.on_settled(tup, False)
        if self.current is None:
            self.on_outside()

    cpdef fail(self, Tuple tup):
        if tup is None:
            raise TypeError("fail(tup): expected a tuple, got None")
        self.settle(tup, "fail")
        fail_roots(self.ledger, tup)
        failed = self.counts.failed
        failed[tup.source.key] = failed.get(tup.source.key, 0) + 1
        if self.on_settled is not None:
            self.on_settled(tup, True)
        if self.current is None:
            self.on_outside()

    def reset_timeout(self, Tuple tup not None):
        if self.is_settled(tup):
            raise settled_error(tup, "reset_timeout")
        self.ledger.reset(roots_of((tup,)))
        if self.current is None:
            self.on_outside()

    cdef int raised(self, object error) except -1:
        cdef Tuple tup = self.current
        if not self.is_settled(tup):
            self.fail(tup)
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
                tup.anchors = None
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
            tup.anchors = batch.several.get(i)
        if batch.sources is not None:
            tup.source = <Source>PyList_GET_ITEM(batch.sources, i)
        self.root = root
        self.axor = 0
        self.mode = PLAIN if root == 0 else (SEVERAL if root == MANY else ONE_ROOT)
        if self.in_hand is not NULL:
            self.in_hand[0] = root
            if root == MANY:
                self.hold_several(tup)
        return tup

    cdef bint next_batch(self) except -1:
        cdef Batch batch
        cdef Py_ssize_t n
        while self.left > 0 and self.place < PyList_GET_SIZE(self.batches):
            batch = <Batch?>self.batches[self.place]
            self.place += 1
            n = min(self.left, PyList_GET_SIZE(batch.values) - batch.start)
            if n > 0:
                self.left -= n
                self.batch = batch
                self.at = batch.start
                batch.start = self.end = batch.start + n
                return True
        return False

    def run(self, Batch batch not None, Py_ssize_t count):
        self.run_each([batch], count)

    def run_each(self, list batches not None, Py_ssize_t count):
        if not batches:
            return
        cdef Batch first = batches[0]
        cdef object key = first.source.key
        cdef dict failed = self.counts.failed
        cdef dict acked = self.counts.acked
        cdef Py_ssize_t failed_before = failed.get(key, 0)
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
                    break
                except Exception as error:
                    self.raised(error)
        finally:
            if self.in_hand is not NULL:
                self.in_hand[0] = 0
            self.batch = None
            self.batches = None
            self.current = None
            self.mode = OUTSIDE
            if self.last:
                self.ledger.add_ack(self.last, self.merged)
            if self.auto_ack:
                acked[key] = acked.get(key, 0) + count - self.left - (failed.get(key, 0) - failed_before)


def bind_sync_bolt(
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
    cdef BoltCalls calls = BoltCalls.__new__(BoltCalls)
    cdef uint64_t[::1] words
    calls.in_hand = NULL
    calls.task = <uint64_t><int64_t>emitter.task
    if in_hand is not None:
        words = in_hand
        if words.shape[0] < IN_HAND_WORDS:
            raise ValueError(f"in_hand: {words.shape[0]} words, not {IN_HAND_WORDS}")
        calls.hand_owner = words
        calls.in_hand = &words[0]
    calls.emitter = emitter
    calls.ledger = ledger
    calls.counts = counts
    calls.execute = execute
    calls.auto_ack = auto_ack
    calls.report_error = on_error
    calls.now = now
    calls.on_outside = on_outside
    calls.on_settled = on_settled
    calls.default = emitter.outputs.get(DEFAULT_STREAM)
    calls.one = None if calls.default is None else calls.default.one
    calls.mode = OUTSIDE
    if on_settled is not None and auto_ack:

        def execute_observed(tup):
            execute(tup)
            if calls.mode != SETTLED:
                calls.ack(tup)

        calls.execute = execute_observed
    return calls


cdef class CarefulCalls:
    cdef Emitter _emitter
    cdef Ledger _ledger
    cdef object _counts
    cdef object _default_anchors
    cdef object _on_settled
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
        on_change=None,
    ):
        self._emitter = emitter
        self._ledger = ledger
        self._counts = counts
        self._default_anchors = default_anchors
        self._on_settled = on_settled
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

    cpdef ack(self, Tuple tup):
        cdef uint64_t edges = self._settle(tup, "ack")
        ack_roots(self._ledger, tup, edges)
        self._counts.add(self._counts.acked, tup.source.key)
        if self._on_settled is not None:
            self._on_settled(tup, False)
        if self._on_change is not None:
            self._on_change()

    cpdef fail(self, Tuple tup):
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
        if tup is None:
            raise TypeError(f"{what}(tup): expected a tuple, got None")
        if tup.settled:
            raise settled_error(tup, what)
        tup.settled = True
        return tup._axor


# ---- columns ----

cdef class Columns:
    """See `squall_common.component.columns.Columns`."""

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
        if self.calls._on_settled is not None:
            tup = self.tuple_at(row)
            tup.settled = True
            self.calls._on_settled(tup, failed)
        return 0

    cdef int settle_all(self, bint failed) except -1:
        cdef Py_ssize_t i, n = self.left
        cdef Batch batch = self.batch
        cdef Ledger ledger = self.calls._ledger
        cdef uint64_t root, last = 0, merged = 0
        if failed or self.calls._on_settled is not None or batch.several is not None:
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


cdef list column_of(list rows, Py_ssize_t field):
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


@cython.final
cdef class ColumnCalls(CarefulCalls):
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
        on_outside=None,
    ):
        CarefulCalls.__init__(
            self,
            emitter,
            ledger,
            counts,
            default_anchors=default_anchors,
            on_error=on_error,
            on_settled=on_settled,
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
        cdef Emitter emitter = self._emitter
        cdef Output output = emitter.find(stream)
        cdef list rows = rows_of(output.source, columns)
        cdef Columns current = self._current
        cdef Py_ssize_t i, origin, n = PyList_GET_SIZE(rows)
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
        output.emitted += n
        if chosen is None:
            for i in range(n):
                row = <object>PyList_GET_ITEM(rows, i)
                one.pick(row).add(row, 0, 0, output.source)
            self.outside()
            return
        for i in range(n):
            row = <object>PyList_GET_ITEM(rows, i)
            edge = one.pick(row)
            origin = chosen[i]
            root = current.batch._roots[origin]
            bits = 0
            if root:
                bits = next_id(&emitter.rng)
                current.axors[origin] ^= bits
            edge.add(row, bits, root, output.source)

    def run(self, Batch batch not None, Py_ssize_t count):
        cdef Batch part
        if count < len(batch) or batch.start:
            batch = batch.take(count)
        if batch.sources is None:
            self.run_whole(batch)
        else:
            for part in batch.by_source():
                self.run_whole(part)

    cdef int run_whole(self, Batch batch) except -1:
        """All of a batch, which is of one source."""
        cdef Columns columns = Columns.__new__(Columns)
        cdef Py_ssize_t i
        columns.source = batch.source
        columns.batch = batch
        columns.calls = self
        columns.rows = columns.left = PyList_GET_SIZE(batch.values)
        columns.axors = <uint64_t*>calloc(columns.rows, 9)
        if columns.axors is NULL:
            raise MemoryError
        columns.settled = <uint8_t*>(columns.axors + columns.rows)
        columns.columns = [
            column_of(batch.values, i) for i in range(len(batch.source.fields))
        ]
        self._current = columns
        try:
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


# ---- the calls of a spout ----

@cython.final
cdef class TurnState:
    cdef public double now
    cdef public long bucket

    def __init__(self, now):
        self.now = now
        self.bucket = 0


@cython.final
cdef class SpoutCalls:
    cdef Emitter emitter
    cdef Ledger ledger
    cdef PendingRoots pending
    cdef TurnState turn
    cdef bint acking
    cdef uint64_t acker
    cdef int32_t task
    cdef readonly object report_error
    cdef readonly list untracked
    cdef Output default
    cdef Picker one
    cdef uint64_t emits
    cdef uint64_t emits_end
    cdef Py_ssize_t calls_left
    cdef Py_ssize_t limit
    cdef object interceptor  # takes the messages in place of these calls; nearly always None
    cdef uint64_t newest

    def set_interceptor(self, interceptor):
        self.interceptor = interceptor

    def last_root(self):
        return self.newest

    cdef uint64_t new_root(self) noexcept:
        cdef uint64_t root
        while True:
            root = (next_id(&self.emitter.rng) & ~ACKER_MASK) | self.acker
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
        cdef list rows = rows_of(output.source, columns)
        cdef Py_ssize_t i, n = PyList_GET_SIZE(rows)
        cdef object row
        cdef Edge edge
        cdef Picker one = output.one
        cdef uint64_t root, bits
        if message_ids is not None and len(message_ids) != n:
            raise EmitError(f"emit_columns: {len(message_ids)} message ids for {n} tuples")
        if self.interceptor is not None and message_ids is not None:
            for i in range(n):
                self.emit(rows[i], message_ids[i], stream)
            return
        if one is None or output.direct or (message_ids is not None and not self.acking):
            for i in range(n):
                self.emit_any(rows[i], None if message_ids is None else message_ids[i], stream)
            return
        self.emits += n
        output.emitted += n
        if message_ids is None:
            for i in range(n):
                row = <object>PyList_GET_ITEM(rows, i)
                one.pick(row).add(row, 0, 0, output.source)
            return
        i = 0
        for message_id in message_ids:
            row = <object>PyList_GET_ITEM(rows, i)
            i += 1
            edge = one.pick(row)
            if message_id is None:
                edge.add(row, 0, 0, output.source)
                continue
            root = self.new_root()
            bits = next_id(&self.emitter.rng)
            self.pending.add(root, message_id, output.source.stream, self.turn.now, self.turn.bucket)
            self.ledger.add_init(root, bits, self.task)
            edge.add(row, bits, root, output.source)

    def emitted(self):
        return self.emits

    def run(self, next_tuple, Py_ssize_t calls, pending_max):
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


def bind_spout(Emitter emitter, Ledger ledger, PendingRoots pending, TurnState turn, *, acker, on_error):
    cdef SpoutCalls calls = SpoutCalls.__new__(SpoutCalls)
    calls.emitter = emitter
    calls.ledger = ledger
    calls.pending = pending
    calls.turn = turn
    calls.acking = acker is not None
    calls.acker = acker or 0
    calls.task = emitter.task
    calls.report_error = on_error
    calls.untracked = []
    calls.default = emitter.outputs.get(DEFAULT_STREAM)
    calls.one = None if calls.default is None else calls.default.one
    return calls


# ---- on the wire ----

_pack = msgspec.msgpack.Encoder().encode
_unpack_anchors = msgspec.msgpack.Decoder(list[tuple[int, dict[int, int]]]).decode


cdef bint is_scalar(object value) noexcept:
    return (
        PyUnicode_CheckExact(value)
        or PyLong_CheckExact(value)
        or PyFloat_CheckExact(value)
        or PyBytes_CheckExact(value)
        or value is None
        or value is True
        or value is False
    )


cdef bint are_scalars(list rows) noexcept:
    cdef Py_ssize_t i, j
    cdef object row
    for i in range(PyList_GET_SIZE(rows)):
        row = <object>PyList_GET_ITEM(rows, i)
        if PyTuple_CheckExact(row):
            for j in range(PyTuple_GET_SIZE(row)):
                if not is_scalar(<object>PyTuple_GET_ITEM(row, j)):
                    return False
        elif PyList_CheckExact(row):
            for j in range(PyList_GET_SIZE(row)):
                if not is_scalar(<object>PyList_GET_ITEM(row, j)):
                    return False
        else:
            return False
    return True


def encode_batches(Source source, batches, codec):
    cdef Batch batch
    cdef list rows
    cdef Py_ssize_t total = 0, n, offset, size
    cdef bint anchored = False
    cdef list several = []
    cdef int32_t task
    cdef char* at
    cdef char* ids_at
    cdef char* roots_at
    cdef char* tasks_at
    cdef char* sources_at
    cdef bytes name = source.stream.encode(), start, packed = b""
    cdef uint8_t flags = 0
    cdef uint16_t name_size = len(name)
    cdef uint32_t packed_size
    cdef TuplesHead head
    if len(batches) == 1:
        batch = batches[0][1]
        rows = batch.values if batch.start == 0 else batch.rows()
        flags |= SAME_TASK
    else:
        rows = []
        for _, batch in batches:
            rows.extend(batch.values if batch.start == 0 else batch.rows())
    data = codec.encode_scalar_rows(rows) if are_scalars(rows) else codec.encode_rows(rows)
    for _, batch in batches:
        n = len(batch)
        if batch.anchored:
            anchored = True
        if batch.sources is not None:
            flags |= SEVERAL_SOURCES
        if batch.several is not None:
            several.extend(
                (total + i - batch.start, anchors)
                for i, anchors in batch.several.items()
                if i >= batch.start
            )
        total += n
    size = TUPLES_HEAD_BYTES + name_size + (TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total)
    if flags & SEVERAL_SOURCES:
        size += TASK_BYTES * total
    if anchored:
        flags |= ANCHORED
        size += (ID_BYTES + ROOT_BYTES) * total
        if several:
            flags |= SEVERAL_ROOTS
            packed = _pack(several)
            size += SIZE_BYTES
    start = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(start)
    head.kind = KIND_TUPLES
    head.flags = flags
    head.source_task = source.task
    head.stream_bytes = name_size
    head.count = <uint32_t>total
    memcpy(at, &head, TUPLES_HEAD_BYTES)
    memcpy(at + TUPLES_HEAD_BYTES, PyBytes_AS_STRING(name), name_size)
    at += TUPLES_HEAD_BYTES + name_size
    tasks_at = at
    at += TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total
    sources_at = at
    if flags & SEVERAL_SOURCES:
        at += TASK_BYTES * total
    ids_at = at
    roots_at = at + ID_BYTES * total
    for to, batch in batches:
        n = PyList_GET_SIZE(batch.values) - batch.start
        if flags & SEVERAL_SOURCES:
            for offset in range(n):
                task = batch.source_at(batch.start + offset).task
                memcpy(sources_at, &task, TASK_BYTES)
                sources_at += TASK_BYTES
        task = to
        if flags & SAME_TASK:
            memcpy(tasks_at, &task, TASK_BYTES)
        else:
            for offset in range(n):
                memcpy(tasks_at, &task, TASK_BYTES)
                tasks_at += TASK_BYTES
        if anchored:
            memcpy(ids_at, batch._ids + batch.start, ID_BYTES * n)
            memcpy(roots_at, batch._roots + batch.start, ROOT_BYTES * n)
            ids_at += ID_BYTES * n
            roots_at += ROOT_BYTES * n
    if flags & SEVERAL_ROOTS:
        packed_size = <uint32_t>len(packed)
        memcpy(roots_at, &packed_size, SIZE_BYTES)
        return b"".join((start, packed, data))
    return start + data


cdef object too_short(Py_ssize_t size):
    return CodecError(f"a section ends after {size} bytes; more were expected")


def decode_batches(bytes data, codec, source_of):
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t total, at, i, tasks_at, sources_at = 0, ids_at = 0, roots_at = 0
    cdef uint8_t flags
    cdef int32_t task, source_task, batch_task = -1
    cdef uint32_t packed_size
    cdef TuplesHead head
    cdef uint64_t id_ = 0, root = 0
    cdef list rows
    cdef dict anchors = {}, by_task = {}
    cdef Batch batch = None
    cdef Source source, one
    cdef list sources = None
    if size < TUPLES_HEAD_BYTES or start[0] != KIND_TUPLES:
        raise too_short(size)
    memcpy(&head, start, TUPLES_HEAD_BYTES)
    flags = head.flags
    source_task = head.source_task
    total = head.count
    if flags & ~(SAME_TASK | ANCHORED | SEVERAL_ROOTS | SEVERAL_SOURCES):
        raise CodecError(f"a section has flags that are unknown: {flags:#04x}")
    tasks_at = TUPLES_HEAD_BYTES + head.stream_bytes
    at = tasks_at + (TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total)
    if flags & SEVERAL_SOURCES:
        sources_at = at
        at += TASK_BYTES * total
    if flags & ANCHORED:
        ids_at = at
        roots_at = ids_at + ID_BYTES * total
        at = roots_at + ROOT_BYTES * total
    if at + (SIZE_BYTES if flags & SEVERAL_ROOTS else 0) > size:
        raise too_short(size)
    try:
        name = data[TUPLES_HEAD_BYTES:tasks_at].decode()
    except ValueError as error:
        raise CodecError(f"a section of {size} bytes cannot be read: {error}") from error
    if flags & SEVERAL_ROOTS:
        memcpy(&packed_size, start + at, SIZE_BYTES)
        at += SIZE_BYTES
        if at + <Py_ssize_t>packed_size > size:
            raise too_short(size)
        try:
            anchors = dict(_unpack_anchors(data[at : at + packed_size]))
        except (ValueError, msgspec.MsgspecError) as error:
            raise CodecError(f"a section of {size} bytes cannot be read: {error}") from error
        at += packed_size
    rows = codec.decode_rows(memoryview(data)[at:])
    if PyList_GET_SIZE(rows) != total:
        raise CodecError(f"a section of {total} tuples has {len(rows)} rows")
    if flags & ANCHORED:
        several = 0
        for i in range(total):
            memcpy(&root, start + roots_at + ROOT_BYTES * i, ROOT_BYTES)
            if root == MANY:
                several += 1
                if i not in anchors:
                    several = -1
                    break
        if several != len(anchors):
            raise CodecError("a section has tuples of several roots that it does not name")
    elif anchors:
        raise CodecError("a section has tuples of several roots that it does not name")
    source = one = source_of(source_task, name)
    if source is None or total == 0:
        return {}
    if flags & SEVERAL_SOURCES:
        sources = []
        known = {source_task: source}
        for i in range(total):
            memcpy(&task, start + sources_at + TASK_BYTES * i, TASK_BYTES)
            if task != source_task:
                source_task = task
                if source_task not in known:
                    known[source_task] = source_of(source_task, name)
                one = known[source_task]
                if one is None:
                    return {}
            sources.append(one)
    if flags & SAME_TASK:
        memcpy(&task, start + tasks_at, TASK_BYTES)
        batch = new_batch(source, total)
        batch.values = rows
        batch.sources = sources
        if flags & ANCHORED:
            memcpy(batch._ids, start + ids_at, ID_BYTES * total)
            memcpy(batch._roots, start + roots_at, ROOT_BYTES * total)
            batch.anchored = True
            batch.several = anchors or None
        else:
            memset(batch._ids, 0, ID_BYTES * total)
            memset(batch._roots, 0, ROOT_BYTES * total)
        return {task: batch}
    for i in range(total):
        memcpy(&task, start + tasks_at + TASK_BYTES * i, TASK_BYTES)
        if flags & ANCHORED:
            memcpy(&id_, start + ids_at + ID_BYTES * i, ID_BYTES)
            memcpy(&root, start + roots_at + ROOT_BYTES * i, ROOT_BYTES)
        # (A section holds the tuples of one task in a row.)
        if batch is None or batch_task != task:
            batch = by_task.get(task)
            batch_task = task
            if batch is None:
                batch = by_task[task] = new_batch(source, 64)
        if sources is not None:
            one = <Source>PyList_GET_ITEM(sources, i)
        batch.push(
            <object>PyList_GET_ITEM(rows, i), id_, root, anchors.get(i) if anchors else None, one
        )
    return by_task


__all__ = [
    "Batch",
    "BoltCalls",
    "ByFields",
    "CarefulCalls",
    "ColumnCalls",
    "Columns",
    "Edge",
    "Emitter",
    "Fixed",
    "Grouper",
    "Ledger",
    "Outbox",
    "Output",
    "PendingRoots",
    "RoundRobin",
    "SHARES_EDGES",
    "Source",
    "SpoutCalls",
    "Taken",
    "Trees",
    "Tuple",
    "TurnState",
    "bind_spout",
    "bind_sync_bolt",
    "decode_batches",
    "encode_batches",
    "tick_source",
]
