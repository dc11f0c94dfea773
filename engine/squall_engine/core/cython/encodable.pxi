# Which values can surely be encoded, as in `pure.encodable`.

cdef int ENCODABLE_DEPTH_MAX = 64
cdef object DATETIME = datetime.datetime
cdef object UTC = datetime.UTC


cpdef bint surely_encodes(object value, frozenset types) except -1:
    return is_encodable(value, types, ENCODABLE_DEPTH_MAX)


cdef bint is_encodable(object value, frozenset types, int depth) except -1:
    cdef Py_ssize_t at = 0
    cdef PyObject* key
    cdef PyObject* found
    if is_plain_value(value):
        return True
    if depth == 0:
        return type(value) in types
    if PyList_CheckExact(value):
        for one in <list>value:
            if not is_encodable(one, types, depth - 1):
                return False
        return True
    if type(value) is dict:
        while PyDict_Next(<dict>value, &at, &key, &found):
            if not (
                is_encodable(<object>key, types, depth - 1)
                and is_encodable(<object>found, types, depth - 1)
            ):
                return False
        return True
    if PyTuple_CheckExact(value):
        for one in <tuple>value:
            if not is_encodable(one, types, depth - 1):
                return False
        return True
    if type(value) is set or type(value) is frozenset:
        for one in value:
            if not is_encodable(one, types, depth - 1):
                return False
        return True
    if type(value) is DATETIME:
        return value.tzinfo is None or value.tzinfo is UTC
    return type(value) in types
