# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Bounded bytes in shared memory, from one writing process to one reading process.

    offset size
         0    8  head: bytes written since the beginning, published by the writer
        64    8  tail: bytes read since the beginning, published by the reader
       128    4  1: the reader sleeps, and wants to be woken at the next record
       192    4  1: the writer waits for room, and wants to be woken when some was freed
      4096    c  the data, a circle

A record is 4 bytes of length, 4 bytes that are zero, and that many bytes, padded to 8. It is
visible when the writer publishes a head beyond it, so a writer that is killed at any point leaves
whole records only. Nothing is locked.

The other process may write anything into all of this at any time. So each side keeps its own
position in memory of its own, reads each word of the other once, checks it, and goes by the copy;
records are copied out before anything looks at them. The memory is a sealed memfd: it cannot shrink
under a mapping.

The two flags are each one half of Dekker's algorithm: a side writes its word, fences, and reads the
other's. Either the sleeper sees the record, or the writer sees the sleeper.

What the writer writes lies in the cache of the reader's core, which has read what was there before:
an ordinary store would first fetch each line from there, and cost several times as much as all else
that is done with it. So whole lines are stored past the caches (decision 0163).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libc.errno cimport errno

import os

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif

    #ifndef SQUALL_RING_SOURCE_HASH
    #define SQUALL_RING_SOURCE_HASH ""
    #endif

    #define SQUALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

    static uint64_t squall_load(const char *at) {
        return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
    }
    static void squall_store(char *at, uint64_t value) {
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    }
    static uint32_t squall_load_flag(const char *at) {
        return __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
    }
    static uint32_t squall_exchange_flag(char *at, uint32_t value) {
        return __atomic_exchange_n((uint32_t *)at, value, __ATOMIC_SEQ_CST);
    }
    static void squall_fence(void) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    #ifdef __SSE2__
    #define SQUALL_LINE 64
    /* Below this, what is saved is not worth the fence. */
    #define SQUALL_STREAMED_MIN 512

    static void squall_copy_in(char *to, const char *from, uint64_t size) {
        uint64_t first;
        if (size < SQUALL_STREAMED_MIN) {
            memcpy(to, from, size);
            return;
        }
        first = -(uintptr_t)to & (SQUALL_LINE - 1);
        memcpy(to, from, first);
        for (to += first, from += first, size -= first; size >= SQUALL_LINE; size -= SQUALL_LINE) {
            __m128i a = _mm_loadu_si128((const __m128i *)from);
            __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
            __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));
            _mm_stream_si128((__m128i *)to, a);
            _mm_stream_si128((__m128i *)(to + 16), b);
            _mm_stream_si128((__m128i *)(to + 32), c);
            _mm_stream_si128((__m128i *)(to + 48), d);
            from += SQUALL_LINE;
            to += SQUALL_LINE;
        }
        memcpy(to, from, size);
        /* A release orders these stores only behind a fence of their own. */
        _mm_sfence();
    }

    /* A plain loop: the C library copies this much with `rep movsb`, which takes twice as long from
       lines that another core has written. */
    static void squall_copy_out(char *to, const char *from, uint64_t size) {
        for (; size >= SQUALL_LINE; size -= SQUALL_LINE) {
            __m128i a, b, c, d;
            _mm_prefetch(from + 16 * SQUALL_LINE, _MM_HINT_T0); /* (never faults) */
            a = _mm_loadu_si128((const __m128i *)from);
            b = _mm_loadu_si128((const __m128i *)(from + 16));
            c = _mm_loadu_si128((const __m128i *)(from + 32));
            d = _mm_loadu_si128((const __m128i *)(from + 48));
            _mm_storeu_si128((__m128i *)to, a);
            _mm_storeu_si128((__m128i *)(to + 16), b);
            _mm_storeu_si128((__m128i *)(to + 32), c);
            _mm_storeu_si128((__m128i *)(to + 48), d);
            from += SQUALL_LINE;
            to += SQUALL_LINE;
        }
        memcpy(to, from, size);
    }
    #else
    #define squall_copy_in memcpy
    #define squall_copy_out memcpy
    #endif

    static int squall_make(uint64_t size) {
        int fd = memfd_create("squall-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd >= 0 && (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, SQUALL_SEALS))) {
            close(fd);
            return -1;
        }
        return fd;
    }
    static int squall_is_ring(int fd, uint64_t size) {
        struct stat found;
        int seals = fcntl(fd, F_GET_SEALS);
        return seals >= 0 && (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) ==
               (F_SEAL_SHRINK | F_SEAL_GROW) && !(seals & F_SEAL_WRITE) &&
               fstat(fd, &found) == 0 && (uint64_t)found.st_size == size;
    }
    static char *squall_map(int fd, uint64_t size) {
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return at == MAP_FAILED ? NULL : (char *)at;
    }
    static void squall_unmap(char *at, uint64_t size) {
        munmap(at, size);
    }
    """
    const char *SQUALL_RING_SOURCE_HASH
    uint64_t squall_load(const char *at)
    void squall_store(char *at, uint64_t value)
    uint32_t squall_load_flag(const char *at)
    uint32_t squall_exchange_flag(char *at, uint32_t value)
    void squall_fence()
    void squall_copy_in(char *to, const char *data, uint64_t size)
    void squall_copy_out(char *to, const char *data, uint64_t size)
    int squall_make(uint64_t size)
    bint squall_is_ring(int fd, uint64_t size)
    char *squall_map(int fd, uint64_t size)
    void squall_unmap(char *at, uint64_t size)

SOURCE_HASH = (<bytes>SQUALL_RING_SOURCE_HASH).decode()

cdef enum:
    _HEAD = 0
    _TAIL = 64
    _SLEEPS = 128
    _WAITS = 192
    _DATA = 4096
    _PREFIX = 8  # of a record

# Of a frame (see `transport.frames`).
cdef enum:
    _HEADER = 72
    _NODE_AT = 5
    _EXTENSION_AT = 6
    _SEQUENCE_AT = 48  # what is before it is the same in all frames that `data_head` begins
    _ACKNOWLEDGED_AT = 56
    _PORT_AT = 64
    _COUNT_AT = 66
    _SIZE_AT = 68
    _LENGTH = 4
    _HEAD_MAX = _HEADER + 255

_PAGE = 4096
CAPACITY_MIN = 64 * 1024
CAPACITY_MAX = 64 * 1024 * 1024


class RingError(Exception):
    """The other process has written what cannot be true, or what it passed is not a ring."""


def whole_capacity(capacity):
    """The capacity that a ring of about so many bytes has. Raises ValueError."""
    if not CAPACITY_MIN <= capacity <= CAPACITY_MAX:
        raise ValueError(f"a ring of {capacity} bytes: from {CAPACITY_MIN} to {CAPACITY_MAX}")
    return capacity - capacity % _PAGE


cdef class _Ring:
    cdef char *_at
    cdef readonly uint64_t capacity
    cdef uint64_t _own  # the position of this side

    def __cinit__(self):
        self._at = NULL

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """Unmap the memory. What was written stays with the other side."""
        if self._at != NULL:
            squall_unmap(self._at, self.capacity + _DATA)
            self._at = NULL

    cdef int _map(self, int fd) except -1:
        self._at = squall_map(fd, self.capacity + _DATA)
        if self._at == NULL:
            raise OSError(errno, f"cannot map a ring: {os.strerror(errno)}")
        return 0

    cdef int _check_open(self) except -1:
        if self._at == NULL:
            raise RingError("the ring is closed")
        return 0

    cdef void _copy_in(self, uint64_t position, const char *data, uint64_t size) noexcept nogil:
        """`size` <= `capacity`."""
        cdef uint64_t start = position % self.capacity
        cdef uint64_t first = min(size, self.capacity - start)
        squall_copy_in(self._at + _DATA + start, data, first)
        squall_copy_in(self._at + _DATA, data + first, size - first)

    cdef void _copy_out(self, uint64_t position, char *data, uint64_t size) noexcept nogil:
        """`size` <= `capacity`."""
        cdef uint64_t start = position % self.capacity
        cdef uint64_t first = min(size, self.capacity - start)
        squall_copy_out(data, self._at + _DATA + start, first)
        squall_copy_out(data + first, self._at + _DATA, size - first)


cdef class Writer(_Ring):
    """The writing side, which makes the memory. `take_fd` gives the descriptor to pass on."""

    cdef int _fd
    cdef uint64_t _tail  # as last read

    def __init__(self, capacity):
        """Raises OSError, and ValueError for a capacity out of bounds."""
        if self._at != NULL:
            raise RingError("made twice")
        self.capacity = whole_capacity(capacity)
        self._fd = squall_make(self.capacity + _DATA)
        if self._fd < 0:
            raise OSError(errno, f"cannot make a ring: {os.strerror(errno)}")
        self._map(self._fd)
        squall_exchange_flag(self._at + _SLEEPS, 1)

    def __cinit__(self):
        self._fd = -1

    def __dealloc__(self):
        if self._fd >= 0:
            os.close(self._fd)

    def take_fd(self):
        """The descriptor of the memory; the caller closes it."""
        fd, self._fd = self._fd, -1
        return fd

    cdef uint64_t _room(self) except? 1:
        """Free bytes. Raises RingError."""
        cdef uint64_t tail = squall_load(self._at + _TAIL)
        if tail < self._tail or tail > self._own:
            raise RingError("the reader is where it cannot be")
        self._tail = tail
        return self.capacity - (self._own - tail)

    def write(self, list parts):
        """Write one record of these `bytes`, put together; returns False if there is no room for
        it now. Raises RingError, ValueError if it is larger than the ring."""
        cdef uint64_t size = 0, whole, position
        cdef uint32_t prefix[2]
        self._check_open()
        for part in parts:
            size += PyBytes_GET_SIZE(<bytes?>part)
        whole = _PREFIX + ((size + 7) & ~<uint64_t>7)
        if whole > self.capacity:
            raise ValueError(f"a record of {size} bytes in a ring of {self.capacity}")
        if self.capacity - (self._own - self._tail) < whole and self._room() < whole:
            return False
        prefix[0] = <uint32_t>size
        prefix[1] = 0
        position = self._own
        self._copy_in(position, <const char *>prefix, _PREFIX)
        position += _PREFIX
        for part in parts:
            size = PyBytes_GET_SIZE(<bytes>part)
            self._copy_in(position, PyBytes_AS_STRING(<bytes>part), size)
            position += size
        self._own += whole
        squall_store(self._at + _HEAD, self._own)
        return True

    def write_data(self, bytes head not None, uint64_t sequence, uint64_t acknowledged,
                   list sections not None):
        """Likewise one data frame without grants: `head` is what it begins with (see
        `frames.data_head`)."""
        cdef uint64_t size, whole, position
        cdef uint32_t length
        cdef uint32_t prefix[2]
        cdef uint16_t count
        cdef Py_ssize_t i, head_size = PyBytes_GET_SIZE(head), n = PyList_GET_SIZE(sections)
        cdef char start[_HEAD_MAX]
        self._check_open()
        if not _HEADER <= head_size <= _HEAD_MAX or not 0 < n <= 0xFFFF:
            raise ValueError(f"a frame of {n} sections, with a head of {head_size} bytes")
        size = <uint64_t>head_size
        for section in sections:
            size += _LENGTH + <uint64_t>PyBytes_GET_SIZE(<bytes?>section)
        whole = _PREFIX + ((size + 7) & ~<uint64_t>7)
        if whole > self.capacity:
            raise ValueError(f"a record of {size} bytes in a ring of {self.capacity}")
        if self.capacity - (self._own - self._tail) < whole and self._room() < whole:
            return False
        memcpy(start, PyBytes_AS_STRING(head), head_size)
        count = <uint16_t>n
        length = <uint32_t>size
        memcpy(start + _SEQUENCE_AT, &sequence, 8)
        memcpy(start + _ACKNOWLEDGED_AT, &acknowledged, 8)
        memcpy(start + _COUNT_AT, &count, 2)
        memcpy(start + _SIZE_AT, &length, 4)
        prefix[0] = length
        prefix[1] = 0
        position = self._own
        self._copy_in(position, <const char *>prefix, _PREFIX)
        position += _PREFIX
        self._copy_in(position, start, head_size)
        position += head_size
        for i in range(n):
            section = <object>PyList_GET_ITEM(sections, i)
            length = <uint32_t>PyBytes_GET_SIZE(<bytes>section)
            self._copy_in(position, <const char *>&length, _LENGTH)
            position += _LENGTH
            self._copy_in(position, PyBytes_AS_STRING(<bytes>section), length)
            position += length
        self._own += whole
        squall_store(self._at + _HEAD, self._own)
        return True

    def must_wake(self):
        """Whether the reader sleeps and no one has woken it: then the caller does. Call it after
        what it is to see was written."""
        self._check_open()
        squall_fence()
        return (squall_load_flag(self._at + _SLEEPS) != 0
                and squall_exchange_flag(self._at + _SLEEPS, 0) != 0)

    def wait(self):
        """Ask to be woken when the reader has read something. Returns False if nothing is unread
        meanwhile: then no one will."""
        self._check_open()
        squall_exchange_flag(self._at + _WAITS, 1)
        squall_fence()
        return self._room() < self.capacity

    def unread(self):
        """Bytes that the reader has not read. Raises RingError."""
        self._check_open()
        return self.capacity - self._room()


cdef class Reader(_Ring):
    """The reading side. Does not keep the descriptor."""

    cdef uint64_t _record_max

    def __init__(self, int fd, capacity, record_bytes_max):
        """Raises RingError if `fd` is not a sealed ring of that capacity, OSError, ValueError."""
        if self._at != NULL:
            raise RingError("made twice")
        self.capacity = whole_capacity(capacity)
        self._record_max = record_bytes_max
        if self.capacity != capacity or not squall_is_ring(fd, self.capacity + _DATA):
            raise RingError("the descriptor is not a sealed ring of that size")
        self._map(fd)

    cdef uint64_t _next(self, uint64_t *size) except? 1:
        """What the next record takes in the ring, and its `size`; 0: there is none. Raises
        RingError."""
        cdef uint64_t head, unread, whole
        cdef uint32_t prefix[2]
        self._check_open()
        head = squall_load(self._at + _HEAD)
        if head == self._own:
            return 0
        unread = head - self._own
        if head < self._own or unread > self.capacity or unread < _PREFIX or head & 7:
            raise RingError("the writer is where it cannot be")
        self._copy_out(self._own, <char *>prefix, _PREFIX)
        size[0] = prefix[0]
        whole = _PREFIX + ((size[0] + 7) & ~<uint64_t>7)
        if prefix[1] != 0 or size[0] > self._record_max or whole > unread:
            raise RingError("a record goes beyond what was written")
        return whole

    cdef void _take(self, uint64_t whole) noexcept:
        """Give the room of a record back."""
        self._own += whole
        squall_store(self._at + _TAIL, self._own)

    def read(self):
        """The next record as a frame (see `transport.frames`): `(head, sections, size)`, where the
        head is all before the first section and `size` the bytes of the record; None if there is
        none. Sections are copied once, to where they stay. A record whose lengths do not agree with
        each other is all head. Raises RingError."""
        cdef uint64_t size = 0, whole, at, end
        cdef uint16_t extension, count
        cdef uint8_t fixed[_HEADER]
        cdef tuple sections
        whole = self._next(&size)
        if whole == 0:
            return None
        at = self._own + _PREFIX
        end = at + size
        if size >= _HEADER:
            self._copy_out(at, <char *>fixed, _HEADER)
            memcpy(&extension, fixed + _EXTENSION_AT, 2)
            memcpy(&count, fixed + _COUNT_AT, 2)
            at += _HEADER + fixed[_NODE_AT] + extension
            sections = self._sections(at, end, count)
            if sections is not None:
                head = self._frame_head(fixed, fixed[_NODE_AT] + extension)
                self._take(whole)
                return head, sections, size
        data = self._bytes_at(self._own + _PREFIX, size)
        self._take(whole)
        return data, (), size

    def read_data(self, bytes head not None):
        """The next record, if it is a data frame without grants or flags that begins with `head`
        (see `frames.data_head`): `(sequence, acknowledged, sections, bytes of the sections)`. None
        if it is another one, which stays, or if there is none. Raises RingError."""
        cdef uint64_t size = 0, whole, at, sequence, acknowledged
        cdef uint32_t length
        cdef uint16_t count
        cdef uint64_t head_size = <uint64_t>PyBytes_GET_SIZE(head)
        cdef const char *expected = PyBytes_AS_STRING(head)
        cdef char start[_HEAD_MAX]
        cdef tuple sections
        whole = self._next(&size)
        if whole == 0 or size < head_size or not _HEADER <= head_size <= _HEAD_MAX:
            return None
        at = self._own + _PREFIX
        self._copy_out(at, start, head_size)
        memcpy(&count, start + _COUNT_AT, 2)
        memcpy(&length, start + _SIZE_AT, 4)
        if (
            count == 0
            or length != size
            or memcmp(start, expected, _SEQUENCE_AT) != 0
            or memcmp(start + _PORT_AT, expected + _PORT_AT, 2) != 0
            or memcmp(start + _HEADER, expected + _HEADER, head_size - _HEADER) != 0
        ):
            return None
        sections = self._sections(at + head_size, at + size, count)
        if sections is None:
            return None
        memcpy(&sequence, start + _SEQUENCE_AT, 8)
        memcpy(&acknowledged, start + _ACKNOWLEDGED_AT, 8)
        self._take(whole)
        return sequence, acknowledged, sections, size - head_size

    cdef tuple _sections(self, uint64_t at, uint64_t end, uint16_t count):
        """So many sections, which lie from `at` (perhaps beyond the end) to the end of a record.
        None if their lengths say otherwise."""
        cdef uint32_t length
        cdef Py_ssize_t i
        cdef list sections = []
        for i in range(count):
            if at + _LENGTH > end:
                return None
            self._copy_out(at, <char *>&length, _LENGTH)
            at += _LENGTH
            if length > end - at:
                return None
            sections.append(self._bytes_at(at, length))
            at += length
        return tuple(sections) if at == end else None

    cdef bytes _bytes_at(self, uint64_t position, uint64_t size):
        data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        self._copy_out(position, PyBytes_AS_STRING(data), size)
        return data

    cdef bytes _frame_head(self, const uint8_t *fixed, uint64_t more):
        """What was read of it once, and `more` bytes behind that."""
        data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(_HEADER + more))
        memcpy(PyBytes_AS_STRING(data), fixed, _HEADER)
        self._copy_out(self._own + _PREFIX + _HEADER, PyBytes_AS_STRING(data) + _HEADER, more)
        return data

    def sleep(self):
        """Ask to be woken at the next record. Returns False, and does not sleep, if there is one
        already."""
        self._check_open()
        squall_exchange_flag(self._at + _SLEEPS, 1)
        squall_fence()
        if squall_load(self._at + _HEAD) == self._own:
            return True
        squall_exchange_flag(self._at + _SLEEPS, 0)
        return False

    def must_wake(self):
        """Whether the writer waits for room and no one has woken it: then the caller does. Call it
        after reading."""
        self._check_open()
        squall_fence()
        return (squall_load_flag(self._at + _WAITS) != 0
                and squall_exchange_flag(self._at + _WAITS, 0) != 0)
