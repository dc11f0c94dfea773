# The columns of a section (see `column_format.py`, the reference).

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object, int*) except? -1
    object PyLong_FromLongLong(int64_t)
    object PyFloat_FromDouble(double)
    double PyFloat_AS_DOUBLE(object)
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    ctypedef struct PyTypeObject:
        pass
    PyTypeObject* Py_TYPE(object)
    list PyList_New(Py_ssize_t)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)

cdef extern from *:
    """
    /* Text of ASCII characters alone, which is most of it: PyUnicode_DecodeUTF8 would look at each
       piece again, where one look at all of them was enough. */
    static PyObject *squall_ascii(const char *data, Py_ssize_t size) {
        PyObject *text;
        if (size < 2) return PyUnicode_DecodeUTF8(data, size, NULL); /* these exist already */
        text = PyUnicode_New(size, 127);
        if (text != NULL) memcpy(PyUnicode_1BYTE_DATA(text), data, size);
        return text;
    }

    static int squall_is_ascii(const char *data, Py_ssize_t size) {
        uint64_t word, all = 0;
        while (size >= 8) {
            memcpy(&word, data, 8);
            all |= word;
            data += 8;
            size -= 8;
        }
        while (size-- > 0) all |= (uint8_t)*data++;
        return !(all & 0x8080808080808080ULL);
    }

    static int squall_are_of_type(PyObject *list, PyTypeObject *type) {
        Py_ssize_t i;
        for (i = 0; i < PyList_GET_SIZE(list); i++)
            if (Py_TYPE(PyList_GET_ITEM(list, i)) != type) return 0;
        return 1;
    }

    static inline void squall_set_item(PyObject *list, Py_ssize_t i, PyObject *item) {
        Py_INCREF(item);
        PyList_SET_ITEM(list, i, item);
    }
    """
    object squall_ascii(const char* data, Py_ssize_t size)
    bint squall_is_ascii(const char* data, Py_ssize_t size) noexcept
    bint squall_are_of_type(list values, PyTypeObject* cls) noexcept
    void squall_set_item(list items, Py_ssize_t i, object item)


cdef struct Piece:
    const char* data
    Py_ssize_t size  # -1: the same as the one before


cdef bytes with_head(uint8_t kind, uint8_t width, Py_ssize_t size, char** at):
    """A head and room for the payload, which begins at `at`."""
    cdef ColumnHead head
    cdef bytes made = PyBytes_FromStringAndSize(NULL, COLUMN_HEAD_BYTES + size)
    head.kind = kind
    head.width = width
    head.size = <uint32_t>size
    memcpy(PyBytes_AS_STRING(made), &head, COLUMN_HEAD_BYTES)
    at[0] = PyBytes_AS_STRING(made) + COLUMN_HEAD_BYTES
    return made


cdef bytes encode_ints(list column):
    """None: some do not fit into 8 bytes."""
    cdef Py_ssize_t i, n = PyList_GET_SIZE(column)
    cdef int overflow = 0
    cdef int64_t number, least = 0, greatest = 0
    cdef int64_t* numbers = <int64_t*>malloc(n * sizeof(int64_t))
    cdef char* at = NULL
    cdef bytes made
    if numbers is NULL:
        raise MemoryError
    try:
        for i in range(n):
            number = PyLong_AsLongLongAndOverflow(<object>PyList_GET_ITEM(column, i), &overflow)
            if overflow:
                return None
            numbers[i] = number
            if number < least:
                least = number
            elif number > greatest:
                greatest = number
        # (Zero fits any width, so it may stand for the first number.)
        if -0x80 <= least and greatest < 0x80:
            made = with_head(COLUMN_INT, 1, n, &at)
            for i in range(n):
                at[i] = <char>numbers[i]
        elif -0x8000 <= least and greatest < 0x8000:
            made = with_head(COLUMN_INT, 2, n * 2, &at)
            for i in range(n):
                memcpy(at + 2 * i, numbers + i, 2)  # (the low bytes come first)
        elif -0x80000000LL <= least and greatest < 0x80000000LL:
            made = with_head(COLUMN_INT, 4, n * 4, &at)
            for i in range(n):
                memcpy(at + 4 * i, numbers + i, 4)
        else:
            made = with_head(COLUMN_INT, 8, n * 8, &at)
            memcpy(at, numbers, n * 8)
        return made
    finally:
        free(numbers)


cdef bint is_repeat(Piece* last, const char* data, Py_ssize_t size) noexcept:
    """Whether a piece is the same as the one before. Values that differ often begin alike, such as
    lines of a log: their ends are compared first."""
    if last.size != size:
        return False
    if last.data == data:
        return True
    if size > 16 and memcmp(last.data + size - 16, data + size - 16, 16) != 0:
        return False
    return memcmp(last.data, data, size) == 0


cdef class ColumnOut:
    """A column about to be written: of pieces, which are copied only once, to where they go, or of
    bytes that are complete."""

    cdef bytes made  # with its head; None: pieces
    cdef list column  # keeps the pieces
    cdef Piece* pieces
    cdef Py_ssize_t size  # without its head
    cdef uint8_t kind, width

    def __cinit__(self):
        self.pieces = NULL

    def __dealloc__(self):
        free(self.pieces)

    cdef bint take_pieces(self, uint8_t kind, list column) except -1:
        """False: text that is not UTF-8, or a value that is too long."""
        cdef Py_ssize_t i, size, longest = 0, total = 0, n = PyList_GET_SIZE(column)
        cdef Piece* pieces = <Piece*>malloc(n * sizeof(Piece))
        cdef Piece* last = NULL
        cdef const char* data
        cdef object value
        if pieces is NULL:
            raise MemoryError
        self.pieces = pieces
        for i in range(n):
            value = <object>PyList_GET_ITEM(column, i)
            if kind == COLUMN_BYTES:
                data = PyBytes_AS_STRING(value)
                size = PyBytes_GET_SIZE(value)
            elif PyUnicode_IS_COMPACT_ASCII(value):
                data = <const char*>PyUnicode_DATA(value)
                size = PyUnicode_GET_LENGTH(value)
            else:
                data = PyUnicode_AsUTF8AndSize(value, &size)
                if data is NULL:
                    PyErr_Clear()  # a lone surrogate
                    return False
            if last is not NULL and is_repeat(last, data, size):
                pieces[i].size = -1
                continue
            last = pieces + i
            last.data = data
            last.size = size
            total += size
            if size > longest:
                longest = size
        if longest >= 0xFFFFFFFFLL:
            return False
        self.width = 1 if longest < 0xFF else 2 if longest < 0xFFFF else 4
        if n * self.width + total > 0xFFFFFFFFLL:
            return False
        self.kind = kind
        self.size = n * self.width + total
        self.column = column
        return True

    cdef Py_ssize_t bytes_out(self) noexcept:
        """With its head."""
        return COLUMN_HEAD_BYTES + self.size if self.made is None else PyBytes_GET_SIZE(self.made)

    cdef char* write(self, char* at) noexcept:
        """Write the column with its head; returns its end."""
        cdef ColumnHead head
        cdef Py_ssize_t i, n
        cdef uint32_t length
        cdef char* to
        if self.made is not None:
            memcpy(at, PyBytes_AS_STRING(self.made), PyBytes_GET_SIZE(self.made))
            return at + PyBytes_GET_SIZE(self.made)
        head.kind = self.kind
        head.width = self.width
        head.size = <uint32_t>self.size
        memcpy(at, &head, COLUMN_HEAD_BYTES)
        at += COLUMN_HEAD_BYTES
        n = PyList_GET_SIZE(self.column)
        to = at + n * self.width
        for i in range(n):
            # -1 is the greatest number of any width.
            length = <uint32_t>self.pieces[i].size
            if self.width == 1:
                at[i] = <char>length
            elif self.width == 2:
                memcpy(at + 2 * i, &length, 2)
            else:
                memcpy(at + 4 * i, &length, 4)
            if self.pieces[i].size > 0:
                memcpy(to, self.pieces[i].data, self.pieces[i].size)
                to += self.pieces[i].size
        return to


cdef ColumnOut column_out(list column, codec):
    cdef Py_ssize_t i, n = PyList_GET_SIZE(column)
    cdef object first = <object>PyList_GET_ITEM(column, 0)
    cdef ColumnOut out = ColumnOut.__new__(ColumnOut)
    cdef bytes made = None
    cdef char* at = NULL
    cdef double number
    if squall_are_of_type(column, Py_TYPE(first)):
        if PyUnicode_CheckExact(first):
            if out.take_pieces(COLUMN_STR, column):
                return out
        elif PyLong_CheckExact(first):
            made = encode_ints(column)
        elif PyFloat_CheckExact(first):
            made = with_head(COLUMN_FLOAT, 8, n * 8, &at)
            for i in range(n):
                number = PyFloat_AS_DOUBLE(<object>PyList_GET_ITEM(column, i))
                memcpy(at + 8 * i, &number, 8)
        elif PyBytes_CheckExact(first):
            if out.take_pieces(COLUMN_BYTES, column):
                return out
        elif first is True or first is False:
            made = with_head(COLUMN_BOOL, 1, n, &at)
            for i in range(n):
                at[i] = (<object>PyList_GET_ITEM(column, i)) is True
    if made is None:
        data = codec.encode_rows([column])
        made = with_head(COLUMN_VALUES, 0, PyBytes_GET_SIZE(data), &at)
        memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    out.made = made
    return out


cdef list columns_out(list columns, codec):
    return [column_out(<list>column, codec) for column in columns]


cdef Py_ssize_t columns_bytes(list outs) noexcept:
    """What `write_columns` will write."""
    cdef Py_ssize_t i, size = FIELDS_BYTES
    for i in range(PyList_GET_SIZE(outs)):
        size += (<ColumnOut>PyList_GET_ITEM(outs, i)).bytes_out()
    return size


cdef void write_columns(list outs, char* at) noexcept:
    cdef Py_ssize_t i
    cdef uint16_t fields = <uint16_t>PyList_GET_SIZE(outs)
    memcpy(at, &fields, FIELDS_BYTES)
    at += FIELDS_BYTES
    for i in range(PyList_GET_SIZE(outs)):
        at = (<ColumnOut>PyList_GET_ITEM(outs, i)).write(at)


cdef object wrong_size(Py_ssize_t rows, Py_ssize_t size):
    return CodecError(f"a column of {rows} rows has {size} bytes")


cdef inline int64_t int_at(const char* data, Py_ssize_t i, uint8_t width) noexcept:
    cdef int8_t one
    cdef int16_t two
    cdef int32_t four
    cdef int64_t eight
    if width == 1:
        memcpy(&one, data + i, 1)
        return one
    if width == 2:
        memcpy(&two, data + 2 * i, 2)
        return two
    if width == 4:
        memcpy(&four, data + 4 * i, 4)
        return four
    memcpy(&eight, data + 8 * i, 8)
    return eight


cdef list decode_pieces(bint is_text, uint8_t width, const char* data, Py_ssize_t size, Py_ssize_t rows):
    cdef Py_ssize_t i, at = rows * width
    cdef uint32_t length, repeated = 0xFFFFFFFF >> (32 - 8 * width)
    cdef object value = None
    cdef list values
    cdef bint ascii
    if at > size:
        raise wrong_size(rows, at)
    ascii = is_text and squall_is_ascii(data + at, size - at)
    values = PyList_New(rows)
    for i in range(rows):
        length = <uint32_t>int_at(data, i, width) & repeated
        if length != repeated:
            if length > size - at:
                raise wrong_size(rows, size)
            if ascii:
                value = squall_ascii(data + at, length)
            elif is_text:
                value = PyUnicode_DecodeUTF8(data + at, length, NULL)
            else:
                value = PyBytes_FromStringAndSize(data + at, length)
            at += length
        elif i == 0:
            raise wrong_size(rows, size)
        squall_set_item(values, i, value)
    if at != size:
        raise CodecError(f"a column has {size - at} surplus bytes")
    return values


cdef list decode_column(ColumnHead* head, const char* data, Py_ssize_t rows, codec):
    cdef Py_ssize_t i, size = head.size
    cdef uint8_t width = head.width
    cdef double number
    cdef list values, found
    if head.kind == COLUMN_VALUES and width == 0:
        found = codec.decode_rows(PyBytes_FromStringAndSize(data, size))
        if PyList_GET_SIZE(found) != 1 or len(found[0]) != rows:
            raise CodecError(f"a column of {rows} rows has other values")
        return found[0]
    if (head.kind == COLUMN_STR or head.kind == COLUMN_BYTES) and (width == 1 or width == 2 or width == 4):
        return decode_pieces(head.kind == COLUMN_STR, width, data, size, rows)
    if not (
        (head.kind == COLUMN_INT and (width == 1 or width == 2 or width == 4 or width == 8))
        or (head.kind == COLUMN_FLOAT and width == 8)
        or (head.kind == COLUMN_BOOL and width == 1)
    ):
        raise CodecError(f"a column is of an unknown kind: {head.kind}, width {width}")
    if size != rows * width:
        raise wrong_size(rows, size)
    values = PyList_New(rows)
    if head.kind == COLUMN_INT:
        for i in range(rows):
            squall_set_item(values, i, PyLong_FromLongLong(int_at(data, i, width)))
    elif head.kind == COLUMN_FLOAT:
        for i in range(rows):
            memcpy(&number, data + 8 * i, 8)
            squall_set_item(values, i, PyFloat_FromDouble(number))
    else:
        for i in range(rows):
            if <uint8_t>data[i] > 1:
                raise CodecError("a truth value is neither 0 nor 1")
            squall_set_item(values, i, True if data[i] else False)
    return values


cdef list decode_columns(const char* data, Py_ssize_t size, Py_ssize_t rows, codec):
    """Raises CodecError."""
    cdef uint16_t fields = 0
    cdef Py_ssize_t i, at = FIELDS_BYTES
    cdef ColumnHead head
    cdef list columns = []
    if rows == 0:
        raise CodecError("a section has columns without rows")
    if at > size:
        raise too_short(size)
    memcpy(&fields, data, FIELDS_BYTES)
    try:
        for i in range(fields):
            if size - at < COLUMN_HEAD_BYTES:
                raise too_short(size)
            memcpy(&head, data + at, COLUMN_HEAD_BYTES)
            at += COLUMN_HEAD_BYTES
            if head.size > size - at:
                raise CodecError("a column ends after its section")
            columns.append(decode_column(&head, data + at, rows, codec))
            at += head.size
    except CodecError:
        raise
    except ValueError as error:
        raise CodecError(f"columns that cannot be decoded: {error}") from error
    if at != size:
        raise CodecError(f"a section has {size - at} surplus bytes")
    if not columns:
        raise CodecError("a section has rows without columns")
    return columns
