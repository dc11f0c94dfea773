# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=False, auto_pickle=False
"""The core, compiled. `compiled.pyi` is its interface, `pure` the same algorithms in plain Python.

One module, so that its classes are inlined into each other, out of one file for each subject
(`cython/*.pxi`). It differs from the reference in this:

- A batch is a list of values with C arrays of ids and roots. The tuple objects are made when a bolt
  is given them, and used again for the next one when the bolt kept none.
- An emit to the default stream with a single consumer that always picks one task takes a fast path.
- The tables of ackers are C hash tables. Consecutive acks of one root are looked up once.
- Strings, numbers and bytes are hashed here (CRC-32, as `squall_common.component.groupings` says),
  the rest there.

The C tables hold no lock: nothing in them runs Python code while they are being changed (a message
id is released only after its table is in order again), and the interpreter's lock does the rest.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_Append, PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsSsize_t, PyLong_CheckExact
from cpython.object cimport Py_EQ, PyObject, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.math cimport log2
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

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

import datetime
import difflib
import sys

import msgspec

from squall_common.component.columns.fan_out import FanOut
from squall_common.history.histogram import BUCKET_MAX, STEPS, UNIT_SECS
from squall_common.names import DEFAULT_STREAM as _DEFAULT_STREAM
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM
from squall_common.state.disk.keys import KEY_BYTES_MAX
from squall_engine.core.codec import CodecError
from squall_engine.core.drive import call_each, call_while
from squall_engine.core.sections import FAILS, RESETS, acker_of, serialize_roots
from squall_engine.core.values import (
    BUCKETS,
    IN_HAND_WORDS,
    ROW_BYTES_MAX,
    SAMPLE_EVERY,
    AckerCounts,
    EmitError,
    Outcome,
    Taken,
    checked_counts,
    checked_origins,
    changed_row,
    columns_of,
    draw_steps,
    no_field,
    no_row,
    settled_error,
    wrong_values,
)

if sys.byteorder != "little":
    raise ImportError("the compiled core is for little-endian machines")

# Of the files that it was compiled from: whoever loads the module compares it.
SOURCE_HASH = SQUALL_SOURCE_HASH.decode()

cdef object encode_rows = msgspec.msgpack.Encoder().encode
cdef object decode_rows = msgspec.msgpack.Decoder().decode
cdef object DEFAULT_STREAM = sys.intern(_DEFAULT_STREAM)

cdef uint64_t ACKER_MASK = (1 << ACKER_INDEX_BITS) - 1
cdef long TIMEOUT_BUCKETS = BUCKETS
cdef Py_ssize_t TABLE_MIN = 1024
cdef Py_ssize_t HAND_WORDS = IN_HAND_WORDS
cdef Py_ssize_t INBOX_SAMPLE_EVERY = SAMPLE_EVERY

include "cython/ids.pxi"
include "cython/roots.pxi"
include "cython/hashing.pxi"
include "cython/tuples.pxi"
include "cython/inbox.pxi"
include "cython/pending.pxi"
include "cython/acking.pxi"
include "cython/trees.pxi"
include "cython/runs.pxi"
include "cython/outputs.pxi"
include "cython/emitting.pxi"

cdef class Trial

include "cython/bolts.pxi"
include "cython/columns.pxi"
include "cython/spouts.pxi"
include "cython/column_wire.pxi"
include "cython/wire.pxi"
include "cython/counter.pxi"
include "cython/grouped.pxi"
include "cython/change_log.pxi"
include "cython/merging.pxi"
include "cython/tried.pxi"
include "cython/encodable.pxi"
include "cython/table_rows.pxi"


__all__ = [
    "Batch",
    "BoltCalls",
    "ByFields",
    "CarefulCalls",
    "ChangeLog",
    "ColumnCalls",
    "Columns",
    "Counter",
    "Edge",
    "Emitter",
    "Fixed",
    "GroupPacker",
    "HotState",
    "Inbox",
    "KeyFinder",
    "Ledger",
    "Outbox",
    "Output",
    "PendingRoots",
    "PositionedEmit",
    "RoundRobin",
    "Source",
    "SpoutCalls",
    "TableBatch",
    "TableRows",
    "TimedRuns",
    "Trees",
    "Trial",
    "Tuple",
    "TurnState",
    "decode_batches",
    "encode_batches",
    "held_origins",
    "merge_blocks",
    "surely_encodes",
    "tick_source",
]
