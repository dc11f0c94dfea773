# Entries of state in a table on disk: see `pure.table_rows`.

cdef Py_ssize_t AHEAD = 8
cdef Py_ssize_t TABLE_NAME_MAX = KEY_BYTES_MAX
cdef Py_ssize_t GROUP_BYTES = 4

cdef struct NamedRow:
    uint64_t start  # of its name, without what all begin with: big-endian
    const uint8_t* name  # its bytes follow; until all are there, the place in the arena
    uint32_t skip  # how many bytes of the name all others begin with, too
    uint32_t name_size
    uint64_t size


cdef inline uint64_t number_at(const uint8_t* at, int size) noexcept:
    """A big-endian number."""
    cdef uint64_t number = 0
    cdef int i
    for i in range(size):
        number = (number << 8) | at[i]
    return number


cdef int compare_names(const void* one, const void* other) noexcept nogil:
    cdef const NamedRow* a = <const NamedRow*>one
    cdef const NamedRow* b = <const NamedRow*>other
    cdef int found
    if a.start != b.start:
        return -1 if a.start < b.start else 1
    found = memcmp(a.name + a.skip, b.name + b.skip, min(a.name_size, b.name_size) - a.skip)
    return found if found else (a.name_size > b.name_size) - (a.name_size < b.name_size)


cdef object plain_value(const uint8_t* at, Py_ssize_t size, object default):
    """The value that msgpack begins with, if it is plain."""
    cdef uint8_t head
    cdef Py_ssize_t length
    cdef int width
    cdef uint64_t word
    cdef double real
    if size < 1:
        return default
    head = at[0]
    at += 1
    size -= 1
    if head < 0x80:
        return head
    if head >= 0xE0:
        return <int>head - 256
    if 0xA0 <= head < 0xC0:
        length = head & 0x1F
        return (<char*>at)[:length].decode("utf-8") if length <= size else default
    if head == 0xC0:
        return None
    if head == 0xC2:
        return False
    if head == 0xC3:
        return True
    if 0xC4 <= head <= 0xC6 or 0xD9 <= head <= 0xDB:
        width = 1 << (head - 0xC4 if head <= 0xC6 else head - 0xD9)
        if size < width:
            return default
        length = <Py_ssize_t>number_at(at, width)
        if length > size - width:
            return default
        if head <= 0xC6:
            return (<char*>at)[width : width + length]
        return (<char*>at)[width : width + length].decode("utf-8")
    if head == 0xCB and size >= 8:
        word = number_at(at, 8)
        memcpy(&real, &word, 8)
        return real
    if 0xCC <= head <= 0xCF:
        width = 1 << (head - 0xCC)
        return number_at(at, width) if size >= width else default
    if 0xD0 <= head <= 0xD3:
        width = 1 << (head - 0xD0)
        if size < width:
            return default
        word = number_at(at, width)
        if width < 8 and word >> (8 * width - 1):
            word |= ~<uint64_t>0 << (8 * width)
        return <int64_t>word
    return default


@cython.final
cdef class TableRows:
    cdef uint32_t groups
    cdef GroupPacker packer  # for its scratch

    def __init__(self, Py_ssize_t groups):
        self.groups = <uint32_t>groups
        self.packer = GroupPacker(0)

    cdef bytes name_of_key(self, object key):
        cdef const char* data
        cdef Py_ssize_t size
        cdef int overflow = 0
        cdef uint8_t head
        cdef bytes name
        if PyUnicode_CheckExact(key):
            data = PyUnicode_AsUTF8AndSize(key, &size)
            if data is NULL:
                PyErr_Clear()  # a lone surrogate
                return None
            head = c's'
        elif PyBytes_CheckExact(key):
            data, size, head = PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), c'b'
        elif PyLong_CheckExact(key):
            PyLong_AsLongLongAndOverflow(key, &overflow)
            if overflow:
                return None
            size = self.packer.pack(0, key)
            data, head = <const char*>self.packer.scratch, c'm'
        else:
            return None
        if size >= TABLE_NAME_MAX:
            return None
        name = PyBytes_FromStringAndSize(NULL, size + 1)
        PyBytes_AS_STRING(name)[0] = <char>head
        memcpy(PyBytes_AS_STRING(name) + 1, data, size)
        return name

    def name(self, key):
        return self.name_of_key(key)

    def value(self, key, bytes data not None, default):
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), used
        if size < GROUP_BYTES + 2 or at[GROUP_BYTES - 1] & 0x80 or not is_plain_key(key):
            return default
        if at[GROUP_BYTES] != 0x91 or not 0x92 <= at[GROUP_BYTES + 1] <= 0x93:
            return default
        at += GROUP_BYTES + 2
        size -= GROUP_BYTES + 2
        used = self.packer.pack(0, key)
        if used == 0 or used > size or memcmp(at, self.packer.scratch, used) != 0:
            return default
        return plain_value(at + used, size - used, default)

    def batch(self):
        return TableBatch(self)


@cython.final
cdef class TableBatch:
    cdef TableRows rows
    cdef uint8_t* arena  # names and rows, one after the other
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef NamedRow* named
    cdef Py_ssize_t count
    cdef Py_ssize_t named_max
    cdef bint is_sorted
    # Of the portion under way:
    cdef Py_ssize_t at
    cdef Py_ssize_t left

    def __init__(self, rows):
        if type(rows) is not TableRows:
            raise TypeError(f"rows: a TableRows, not {rows!r:.100}")
        self.rows = rows

    def __dealloc__(self):
        free(self.arena)
        free(self.named)

    def __len__(self):
        return self.count

    cdef int append(
        self, const char* name, Py_ssize_t name_size, const void* data, Py_ssize_t size
    ) except -1:
        cdef uint8_t* arena
        cdef NamedRow* named
        cdef NamedRow* one
        cdef Py_ssize_t more
        if self.is_sorted:
            raise ValueError("it was handed out")
        if name_size > <Py_ssize_t>0xFFFFFFFF:
            raise ValueError("a name of more than 4 GiB")
        if self.used + name_size + size > self.room:
            more = 2 * (self.used + name_size + size)
            arena = <uint8_t*>realloc(self.arena, more)
            if arena is NULL:
                raise MemoryError
            self.arena, self.room = arena, more
        if self.count == self.named_max:
            more = 2 * self.named_max + 64
            named = <NamedRow*>realloc(self.named, more * sizeof(NamedRow))
            if named is NULL:
                raise MemoryError
            self.named, self.named_max = named, more
        one = self.named + self.count
        one.name = <const uint8_t*>self.used
        one.name_size = <uint32_t>name_size
        one.size = size
        memcpy(self.arena + self.used, name, name_size)
        memcpy(self.arena + self.used + name_size, data, size)
        self.used += name_size + size
        self.count += 1
        return 0

    def add(self, bytes name not None, bytes data not None):
        self.append(
            PyBytes_AS_STRING(name),
            PyBytes_GET_SIZE(name),
            PyBytes_AS_STRING(data),
            PyBytes_GET_SIZE(data),
        )

    def add_dict(self, dict entries not None, skipped):
        cdef list rest = []
        cdef GroupPacker packer = self.rows.packer
        cdef PyObject* key
        cdef PyObject* value
        cdef Py_ssize_t at = 0, used
        cdef uint32_t hashed, group
        cdef bytes name
        while PyDict_Next(entries, &at, &key, &value):
            if skipped and <object>key in skipped:
                continue
            used = 0
            name = self.rows.name_of_key(<object>key)
            if name is not None and fast_hash(<object>key, &hashed):
                group = hashed % self.rows.groups
                memcpy(packer.scratch, &group, GROUP_BYTES)
                packer.scratch[GROUP_BYTES] = 0x91
                packer.scratch[GROUP_BYTES + 1] = 0x92
                used = packer.pack(GROUP_BYTES + 2, <object>key)
                if used:
                    used = packer.pack(used, <object>value)
            if used:
                self.append(
                    PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), packer.scratch, used
                )
            else:
                rest.append((<object>key, <object>value))
        return rest

    cdef int sort(self) except -1:
        cdef NamedRow* one
        cdef Py_ssize_t i
        cdef uint32_t skip = 0
        cdef int room
        if self.is_sorted:
            raise ValueError("it was handed out")
        self.is_sorted = True
        for i in range(self.count):
            one = self.named + i
            one.name = self.arena + <Py_ssize_t>one.name
            skip = one.name_size if i == 0 else min(skip, one.name_size)
            while memcmp(one.name, self.named.name, skip) != 0:
                skip -= 1
        for i in range(self.count):
            one = self.named + i
            one.skip = skip
            room = <int>min(one.name_size - skip, 8)
            one.start = number_at(one.name + skip, room)
            if 0 < room < 8:
                one.start <<= 8 * (8 - room)
        if self.count:
            qsort(self.named, self.count, sizeof(NamedRow), compare_names)
        return 0

    def portions(self, Py_ssize_t bytes_max):
        self.sort()
        while self.at < self.count:
            self.left = bytes_max
            yield self

    def __iter__(self):
        return self

    def __next__(self):
        cdef NamedRow* one = self.named + self.at
        cdef const uint8_t* ahead
        if not self.is_sorted or self.left < 0 or self.at >= self.count:
            raise StopIteration
        # They lie anywhere in the arena: the processor fetches some at once.
        ahead = self.named[min(self.at + AHEAD, self.count - 1)].name
        prefetch(ahead)
        prefetch(ahead + 64)
        self.at += 1
        self.left -= one.size
        return (
            (<char*>one.name)[: one.name_size],
            (<char*>one.name)[one.name_size : one.name_size + <Py_ssize_t>one.size],
        )
