# The hash of a fields grouping: strings, numbers, bytes and tuples of them are hashed here (CRC-32,
# as `squall_common.component.groupings` says), the rest there.

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


cdef inline uint32_t crc_first(uint8_t first) noexcept nogil:
    """The register of a CRC-32 after one byte."""
    return CRC[0][(<uint32_t>0xFFFFFFFF ^ first) & 0xFF] ^ (<uint32_t>0xFFFFFFFF >> 8)


cdef inline uint32_t crc_more(uint32_t c, const char* data, Py_ssize_t size) noexcept nogil:
    """The register `c` after more bytes, eight at a time."""
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
    return c


cdef inline uint32_t crc32(uint8_t first, const char* data, Py_ssize_t size) noexcept nogil:
    """zlib's CRC-32 of the byte `first` and then `data`."""
    return crc_more(crc_first(first), data, size) ^ <uint32_t>0xFFFFFFFF


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
    if PyTuple_CheckExact(value):
        return hash_of_tuple(<tuple>value, number)
    return False


cdef bint hash_of_tuple(tuple values, uint32_t* number) except -1:
    """The same for a tuple of such values: of each the size of its encoding, and that."""
    cdef uint32_t c = crc_first(c'l')
    cdef Py_ssize_t i, size
    cdef const char* data
    cdef int64_t hashed
    cdef object value
    cdef char[5] head  # size of what follows (32 bits, little-endian) and a letter
    for i in range(PyTuple_GET_SIZE(values)):
        value = <object>PyTuple_GET_ITEM(values, i)
        if PyUnicode_CheckExact(value):
            data = PyUnicode_AsUTF8AndSize(value, &size)
            if data is NULL:
                PyErr_Clear()  # a lone surrogate
                return False
            head[4] = c's'
        elif PyLong_CheckExact(value) or (PyFloat_CheckExact(value) and value == value):
            hashed = PyObject_Hash(value)
            data, size = <const char*>&hashed, 8
            head[4] = c'n'
        elif PyBytes_CheckExact(value):
            data, size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
            head[4] = c'b'
        else:
            return False
        if size >= <int64_t>0xFFFFFFFF:
            return False  # refused there
        head[0] = <char>((size + 1) & 0xFF)
        head[1] = <char>(((size + 1) >> 8) & 0xFF)
        head[2] = <char>(((size + 1) >> 16) & 0xFF)
        head[3] = <char>(((size + 1) >> 24) & 0xFF)
        c = crc_more(crc_more(c, head, 5), data, size)
    number[0] = c ^ <uint32_t>0xFFFFFFFF
    return True
