# Rows of state, as msgpack by key group: see `GroupPacker` in `pure`.

cdef inline uint8_t* put_number(uint8_t* at, uint8_t head, uint64_t number, int size) noexcept:
    """A byte, and a big-endian number of `size` bytes."""
    at[0] = head
    cdef int i
    for i in range(size):
        at[1 + i] = <uint8_t>(number >> (8 * (size - 1 - i)))
    return at + 1 + size


cdef inline Py_ssize_t array_head(uint8_t* head, Py_ssize_t count) noexcept:
    """Begin an array of so many. Returns the size of that."""
    if count < 16:
        head[0] = <uint8_t>(0x90 | count)
        return 1
    if count < 65536:
        return put_number(head, 0xDC, count, 2) - head
    return put_number(head, 0xDD, count, 4) - head


@cython.final
cdef class GroupPacker:
    cdef Py_ssize_t groups
    cdef list packed
    cdef list counts
    cdef uint8_t* scratch
    cdef Py_ssize_t room

    def __init__(self, Py_ssize_t groups):
        self.groups = groups
        self.packed = [None] * groups
        self.counts = [0] * groups
        self.room = 256
        free(self.scratch)  # NULL, unless it is called again
        self.scratch = <uint8_t*>malloc(self.room)
        if self.scratch is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.scratch)

    cdef uint8_t* grow(self, uint8_t* at, Py_ssize_t more) except NULL:
        """Make room for so many bytes from `at` on. Returns where that is then."""
        cdef Py_ssize_t used = at - self.scratch
        cdef uint8_t* larger
        if used + more > self.room:
            larger = <uint8_t*>realloc(self.scratch, 2 * (used + more))
            if larger is NULL:
                raise MemoryError
            self.scratch = larger
            self.room = 2 * (used + more)
        return self.scratch + used

    cdef Py_ssize_t pack(self, Py_ssize_t used, object value) except -1:
        """Append a value to the scratch, of which so much is used. Returns how much is then; 0: it
        is not plain."""
        cdef uint8_t* at = self.grow(self.scratch + used, 16)
        cdef Py_ssize_t size
        cdef const char* data
        cdef long long number
        cdef unsigned long long large
        cdef double real
        cdef uint64_t word
        cdef int overflow = 0
        if PyUnicode_CheckExact(value):
            data = PyUnicode_AsUTF8AndSize(value, &size)
            if data is NULL:
                PyErr_Clear()  # a lone surrogate
                return 0
            if size < 32:
                at[0] = <uint8_t>(0xA0 | size)
                at += 1
            elif size < 256:
                at = put_number(at, 0xD9, size, 1)
            elif size < 65536:
                at = put_number(at, 0xDA, size, 2)
            elif size <= 0xFFFFFFFF:
                at = put_number(at, 0xDB, size, 4)
            else:
                return 0
            at = self.grow(at, size)
            memcpy(at, data, size)
            at += size
        elif PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow < 0:
                return 0
            if overflow > 0:
                try:
                    large = value
                except OverflowError:
                    return 0
                at = put_number(at, 0xCF, large, 8)
            elif number >= 0:
                if number < 128:
                    at[0] = <uint8_t>number
                    at += 1
                elif number < 256:
                    at = put_number(at, 0xCC, number, 1)
                elif number < 65536:
                    at = put_number(at, 0xCD, number, 2)
                elif number <= 0xFFFFFFFF:
                    at = put_number(at, 0xCE, number, 4)
                else:
                    at = put_number(at, 0xCF, number, 8)
            elif number >= -32:
                at[0] = <uint8_t>number
                at += 1
            elif number >= -128:
                at = put_number(at, 0xD0, <uint64_t>number, 1)
            elif number >= -32768:
                at = put_number(at, 0xD1, <uint64_t>number, 2)
            elif number >= -2147483648:
                at = put_number(at, 0xD2, <uint64_t>number, 4)
            else:
                at = put_number(at, 0xD3, <uint64_t>number, 8)
        elif PyFloat_CheckExact(value):
            real = value
            memcpy(&word, &real, 8)
            at = put_number(at, 0xCB, word, 8)
        elif PyBytes_CheckExact(value):
            size = PyBytes_GET_SIZE(value)
            if size < 256:
                at = put_number(at, 0xC4, size, 1)
            elif size < 65536:
                at = put_number(at, 0xC5, size, 2)
            elif size <= 0xFFFFFFFF:
                at = put_number(at, 0xC6, size, 4)
            else:
                return 0
            at = self.grow(at, size)
            memcpy(at, PyBytes_AS_STRING(value), size)
            at += size
        elif value is None:
            at[0] = 0xC0
            at += 1
        elif value is True or value is False:
            at[0] = 0xC3 if value is True else 0xC2
            at += 1
        else:
            return 0
        return at - self.scratch

    cdef bint add_row(self, object key, object value) except -1:
        """Take a row; False if it is not plain."""
        cdef uint32_t hashed
        cdef Py_ssize_t group, before, used = 0
        cdef object buffer
        self.scratch[0] = 0x92
        if fast_hash(key, &hashed):
            used = self.pack(1, key)
            if used:
                used = self.pack(used, value)
        if not used:
            return False
        group = hashed % <uint32_t>self.groups
        buffer = self.packed[group]
        if buffer is None:
            buffer = self.packed[group] = bytearray()
        before = PyByteArray_GET_SIZE(buffer)
        PyByteArray_Resize(buffer, before + used)
        memcpy(PyByteArray_AS_STRING(buffer) + before, self.scratch, used)
        self.counts[group] = self.counts[group] + 1
        return True

    def add(self, list rows not None):
        cdef list rest = []
        cdef tuple row
        for row in rows:
            if not self.add_row(row[0], row[1]):
                rest.append(row)
        return rest

    cdef Py_ssize_t add_some(self, dict values, Py_ssize_t at, Py_ssize_t count, list rest) except -2:
        """Take so many entries from `at` on. Returns where the next is; -1: there is none."""
        cdef PyObject* key
        cdef PyObject* value
        while count > 0:
            if not PyDict_Next(values, &at, &key, &value):
                return -1
            count -= 1
            if not self.add_row(<object>key, <object>value):
                rest.append((<object>key, <object>value))
        return at

    def add_dict(self, dict values not None, Py_ssize_t count):
        cdef Py_ssize_t at = 0
        cdef list rest
        while at >= 0:
            rest = []
            at = self.add_some(values, at, count, rest)
            yield rest

    def frames(self):
        cdef dict found = {}
        cdef Py_ssize_t group
        cdef uint8_t[5] head
        cdef Py_ssize_t size
        for group in range(self.groups):
            buffer = self.packed[group]
            if buffer is None:
                continue
            size = array_head(head, self.counts[group])
            found[group] = (<char*>head)[:size] + buffer
            self.packed[group] = None
        return found
