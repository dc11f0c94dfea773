# What calls have put since the last snapshot, as rows of a segment: see `ChangeLog` in `pure`.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define squall_prefetch(place) __builtin_prefetch(place)
    #else
    #define squall_prefetch(place) ((void)(place))
    #endif
    /* Text keeps its hash. */
    static CYTHON_INLINE Py_hash_t squall_hash(PyObject *key) {
        if (PyUnicode_CheckExact(key) && ((PyASCIIObject *)key)->hash != -1)
            return ((PyASCIIObject *)key)->hash;
        return PyObject_Hash(key);
    }
    """
    void prefetch "squall_prefetch"(const void*) noexcept
    Py_hash_t squall_hash(object) except -1

cdef Py_ssize_t LOG_SLOTS_MIN = 256
cdef Py_ssize_t LOG_SLOTS_MAX = 1 << 16
cdef Py_ssize_t LOG_WAYS = 4  # slots in which a key may be: half a line of the cache
cdef Py_ssize_t LOG_ROWS_MIN = 1 << 16
cdef Py_ssize_t LOG_BYTES_MIN = LOG_ROWS_MIN * 64
cdef Py_ssize_t LOG_GROUP_BYTES_MAX = 1 << 31  # of a group: its places fit into 32 bits
cdef Py_ssize_t LOG_PACKED_AT_ONCE = 2_048
cdef Py_ssize_t LOG_AHEAD = 8  # rows whose key and value are fetched before they are packed
cdef Py_ssize_t LOG_SAMPLE = 512
cdef Py_ssize_t LOG_FOUND_AT_ONCE = 20_000  # rows that are looked at between two pauses
cdef Py_ssize_t LOG_ROW_MAX = ROW_BYTES_MAX
cdef uint32_t NO_PLACE = 0xFFFFFFFF  # of a row that a later one replaces
cdef uint64_t SPREAD = 0x9E3779B97F4A7C15U  # keys with a common factor, too, get slots of their own


cdef struct LogGroup:
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t room
    Py_ssize_t rows


cdef inline uint64_t spread_of(object key) except? 0:
    """The hash of a plain key; its upper bits differ where those of the hash are the same."""
    return <uint64_t>squall_hash(key) * SPREAD


cdef inline Py_ssize_t packed_size(const uint8_t* at) noexcept nogil:
    """The size of a plain value that `GroupPacker` has packed."""
    cdef uint8_t head = at[0]
    if head < 0x80 or head >= 0xE0 or head == 0xC0 or head == 0xC2 or head == 0xC3:
        return 1
    if 0xA0 <= head < 0xC0:
        return 1 + (head & 0x1F)
    if head == 0xCC or head == 0xD0:
        return 2
    if head == 0xCD or head == 0xD1:
        return 3
    if head == 0xCE or head == 0xD2:
        return 5
    if head == 0xCB or head == 0xCF or head == 0xD3:
        return 9
    if head == 0xC4 or head == 0xD9:
        return 2 + <Py_ssize_t>at[1]
    # 16 bits are enough for a size in a row of the log
    return 3 + ((<Py_ssize_t>at[1] << 8) | <Py_ssize_t>at[2])


cdef inline Py_ssize_t row_size(const uint8_t* row) noexcept nogil:
    cdef Py_ssize_t size = 1 + packed_size(row + 1)
    return size + packed_size(row + size)


cdef inline uint32_t hash_of_bytes(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint64_t found = <uint64_t>size, word
    while size >= 8:
        memcpy(&word, at, 8)
        found = (found ^ word) * SPREAD
        found ^= found >> 29
        at += 8
        size -= 8
    word = 0
    memcpy(&word, at, size)
    found = (found ^ word) * SPREAD
    return <uint32_t>(found >> 32)


@cython.final
cdef class _RowTable:
    """Finds rows of a block by their packed keys. The block must not move meanwhile."""

    cdef const uint8_t* data
    cdef uint64_t* slots  # a hash, and the number of the row plus one; 0: nothing
    cdef uint32_t* places  # of the rows
    cdef Py_ssize_t mask
    cdef Py_ssize_t rows

    def __dealloc__(self):
        free(self.slots)
        free(self.places)

    cdef int take(self, const uint8_t* data, Py_ssize_t used, Py_ssize_t rows) except -1:
        """Have these rows instead, of each key the last one."""
        cdef Py_ssize_t count = 8, at = 0, found
        while count < 2 * rows:
            count *= 2
        free(self.slots)
        free(self.places)
        self.places = NULL
        self.slots = <uint64_t*>calloc(count, sizeof(uint64_t))
        self.places = <uint32_t*>malloc(max(rows, 1) * sizeof(uint32_t))
        if self.slots is NULL or self.places is NULL:
            raise MemoryError
        self.data = data
        self.mask = count - 1
        self.rows = 0
        while at < used:
            at += self.add(at)
        return 0

    cdef inline Py_ssize_t add(self, Py_ssize_t place) noexcept:
        """Take the row at a place. Returns its size."""
        cdef const uint8_t* key = self.data + place + 1
        cdef Py_ssize_t size = packed_size(key)
        cdef uint32_t hashed = hash_of_bytes(key, size)
        cdef Py_ssize_t slot = self.slot_of(key, size, hashed)
        if self.slots[slot]:
            self.places[<uint32_t>self.slots[slot] - 1] = NO_PLACE
        self.places[self.rows] = <uint32_t>place
        self.rows += 1
        self.slots[slot] = (<uint64_t>hashed << 32) | <uint64_t>self.rows
        return 1 + size + packed_size(key + size)

    cdef inline Py_ssize_t slot_of(self, const uint8_t* key, Py_ssize_t size, uint32_t hashed) noexcept:
        """The slot of a packed key, or the free one that it would get."""
        cdef Py_ssize_t at = hashed & <uint32_t>self.mask
        cdef const uint8_t* other
        while self.slots[at]:
            if <uint32_t>(self.slots[at] >> 32) == hashed:
                other = self.data + self.places[<uint32_t>self.slots[at] - 1] + 1
                if packed_size(other) == size and memcmp(other, key, size) == 0:
                    break
            at = (at + 1) & self.mask
        return at

    cdef inline Py_ssize_t find(self, const uint8_t* key, Py_ssize_t size) noexcept:
        """The number of the last row of a packed key; -1: there is none."""
        cdef Py_ssize_t slot = self.slot_of(key, size, hash_of_bytes(key, size))
        return <Py_ssize_t><uint32_t>self.slots[slot] - 1


cdef Py_ssize_t kept_rows(LogGroup* group, _RowTable table) noexcept:
    """Leave out rows of which there is a later one, by a table of the group. Returns how many are
    left."""
    cdef Py_ssize_t i, size, at = 0, kept = 0
    cdef uint8_t* row
    for i in range(table.rows):
        if table.places[i] == NO_PLACE:
            continue
        row = group.data + table.places[i]
        size = row_size(row)
        if row != group.data + at:
            memmove(group.data + at, row, size)
        at += size
        kept += 1
    group.used = at
    group.rows = kept
    return kept


cdef inline bint is_packable(object value) except -1:
    """Whether msgpack has a plain value."""
    cdef int overflow = 0
    if PyLong_CheckExact(value):
        PyLong_AsLongLongAndOverflow(value, &overflow)
        return not overflow
    if PyUnicode_CheckExact(value) and PyUnicode_AsUTF8AndSize(value, NULL) is NULL:
        PyErr_Clear()  # a lone surrogate
        return False
    return True


cdef object NO_VALUE = object()  # of a key that was put before the last snapshot alone


cdef inline int set_item(list items, Py_ssize_t at, object value) except -1:
    """`items[at] = value`, where there is one."""
    cdef PyObject* old = PyList_GET_ITEM(items, at)
    Py_INCREF(value)
    PyList_SET_ITEM(items, at, value)
    Py_DECREF(<object>old)
    return 0


@cython.final
cdef class ChangeLog:
    # The keys that have a slot, with their last values: each once, and later than its rows below.
    # A log begins with the keys of the one before, without values. So most keys are the objects
    # that the state has, and lie in the processor's cache once instead of twice.
    cdef list keys
    cdef list values
    cdef Py_ssize_t valued  # keys that have a value
    cdef uint64_t* slots  # by hash: 32 bits of it, and where the key is, plus one; 0: nothing
    cdef Py_ssize_t slot_count
    cdef int shift
    # All others, packed.
    cdef LogGroup* groups
    cdef Py_ssize_t group_count
    cdef GroupPacker packer  # for its scratch
    cdef Py_ssize_t rows
    cdef Py_ssize_t used
    cdef Py_ssize_t rows_max  # with more rows or bytes it looks whether some can be left out
    cdef Py_ssize_t used_max
    cdef Py_ssize_t room_first  # bytes of a group that gets its first row

    def __cinit__(self, Py_ssize_t groups):
        if groups < 1:
            raise ValueError(f"at least 1 group, not {groups}")
        self.groups = <LogGroup*>calloc(groups, sizeof(LogGroup))
        if self.groups is NULL:
            raise MemoryError
        self.group_count = groups
        self.keys = []
        self.values = []
        self.packer = GroupPacker(0)
        self.rows_max = LOG_ROWS_MIN
        self.used_max = LOG_BYTES_MIN
        self.room_first = 256
        self.size_slots(LOG_SLOTS_MIN)

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.groups is not NULL:
            for i in range(self.group_count):
                free(self.groups[i].data)
        free(self.groups)
        free(self.slots)

    def __len__(self):
        return self.valued + self.rows

    cdef int size_slots(self, Py_ssize_t count) except -1:
        cdef uint64_t* slots = <uint64_t*>calloc(count, sizeof(uint64_t))
        cdef uint64_t* slot
        cdef Py_ssize_t i
        cdef uint64_t spread
        if slots is NULL:
            raise MemoryError
        free(self.slots)
        self.slots = slots
        self.slot_count = count
        self.shift = 64
        while count > 1:
            self.shift -= 1
            count >>= 1
        for i in range(PyList_GET_SIZE(self.keys)):
            spread = spread_of(<object>PyList_GET_ITEM(self.keys, i))
            slot = self.ways(spread)
            while slot[0]:  # there is one: those of fewer, larger ones had each its own
                slot += 1
            slot[0] = (spread << 32) | <uint64_t>(i + 1)
        return 0

    cdef inline uint64_t* ways(self, uint64_t spread) noexcept:
        """The first of the slots in which a key may be."""
        return self.slots + (<Py_ssize_t>(spread >> self.shift) & ~(LOG_WAYS - 1))

    cdef inline uint64_t come(self, object key) except? 0:
        """A plain key may be noted soon: have the processor fetch its slots, beside what else it
        waits for meanwhile. Returns its `spread_of`."""
        cdef uint64_t spread = spread_of(key)
        prefetch(self.ways(spread))
        return spread

    cdef bint note(
        self, uint64_t spread, object key, object value, Py_ssize_t key_count
    ) except -1:
        """A plain key with this `spread_of`, one of so many, has this plain value from now on.
        False if a log cannot have it as a row: then it must be kept elsewhere."""
        cdef uint64_t* ways
        cdef Py_ssize_t i, at, count = PyList_GET_SIZE(self.keys)
        if 2 * count >= self.slot_count and self.slot_count < LOG_SLOTS_MAX:
            self.size_slots(4 * self.slot_count)
        ways = self.ways(spread)
        for i in range(LOG_WAYS):
            if ways[i] == 0:
                if not (is_packable(key) and is_packable(value)):
                    return False
                self.keys.append(key)
                self.values.append(value)
                self.valued += 1
                ways[i] = (spread << 32) | <uint64_t>(count + 1)
                return True
            # This rules out most other keys without a look at them: they lie anywhere in memory.
            if <uint32_t>(ways[i] >> 32) == <uint32_t>spread:
                at = <Py_ssize_t><uint32_t>ways[i] - 1
                if same_key(<object>PyList_GET_ITEM(self.keys, at), key):
                    if not is_packable(value):
                        return False
                    self.valued += PyList_GET_ITEM(self.values, at) == <PyObject*>NO_VALUE
                    set_item(self.values, at, value)
                    return True
        return self.append(key, value, key_count)

    cdef bint append(self, object key, object value, Py_ssize_t key_count) except -1:
        """The same for a key that gets no slot."""
        cdef uint32_t hashed
        cdef GroupPacker packer = self.packer
        cdef LogGroup* group
        cdef Py_ssize_t size = 0
        if self.rows >= self.rows_max or self.used >= self.used_max:
            self.trim(key_count)
        packer.scratch[0] = 0x92
        if fast_hash(key, &hashed):
            size = packer.pack(1, key)
            if size:
                size = packer.pack(size, value)
        if not 0 < size <= LOG_ROW_MAX:
            return False
        group = self.groups + hashed % <uint32_t>self.group_count
        if group.used + size > group.room:
            if group.used + size > LOG_GROUP_BYTES_MAX:
                return False
            self.grow(group, size)
        memcpy(group.data + group.used, packer.scratch, size)
        group.used += size
        group.rows += 1
        self.rows += 1
        self.used += size
        return True

    cdef int grow(self, LogGroup* group, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(2 * group.room, group.used + more)
        cdef uint8_t* data
        if group.data is NULL:
            room = max(room, self.room_first)
        data = <uint8_t*>realloc(group.data, room)
        if data is NULL:
            raise MemoryError
        group.data = data
        group.room = room
        return 0

    cdef int follow(self, ChangeLog before) except -1:
        """Be the next log, which has nothing yet: the same keys may be put again, and it may become
        as large as the one before; its groups need not grow until then."""
        cdef Py_ssize_t mean = before.used // before.group_count
        self.room_first = max(256, mean + mean // 8)
        if 2 * before.valued < PyList_GET_SIZE(before.keys):
            return 0  # other keys are put now: these leave their slots
        self.size_slots(before.slot_count)
        memcpy(self.slots, before.slots, before.slot_count * sizeof(uint64_t))
        self.keys = before.keys[:]
        self.values = [NO_VALUE] * PyList_GET_SIZE(before.keys)
        return 0

    cdef int trim(self, Py_ssize_t key_count) except -1:
        """Leave out what was replaced, if that may be about half; or let the log grow."""
        cdef Py_ssize_t rows_max = LOG_ROWS_MIN + 2 * key_count
        if self.rows >= rows_max or self.has_repeats():
            self.compact()
            self.rows_max = LOG_ROWS_MIN + 2 * self.rows
            self.used_max = LOG_BYTES_MIN + 2 * self.used
        else:
            if self.rows >= self.rows_max:
                self.rows_max = min(2 * self.rows, rows_max)
            if self.used >= self.used_max:
                self.used_max = 2 * self.used
        return 0

    cdef int compact(self) except -1:
        cdef _RowTable table = _RowTable()
        cdef LogGroup* group
        cdef Py_ssize_t i
        self.rows = self.used = 0
        for i in range(self.group_count):
            group = self.groups + i
            if group.rows:
                table.take(group.data, group.used, group.rows)
                kept_rows(group, table)
                self.rows += group.rows
                self.used += group.used
        return 0

    cdef bint has_repeats(self) except -1:
        """Whether about half of the rows are of keys that come again, as far as those of a few
        groups say: all rows of a key are in one."""
        cdef _RowTable table = _RowTable()
        cdef LogGroup* group
        cdef Py_ssize_t i, number, looked_at = 0, again = 0
        for i in range(self.group_count):
            number = <Py_ssize_t>((<uint64_t>(i + self.rows) * 0x9E3779B1U) % <uint64_t>self.group_count)
            group = self.groups + number
            if group.rows:
                table.take(group.data, group.used, group.rows)
                looked_at += group.rows
                for number in range(table.rows):
                    again += table.places[number] == NO_PLACE
                if looked_at >= LOG_SAMPLE:
                    break
        return 3 * again >= looked_at

    def found(self, keys):
        cdef dict by_group = {}
        cdef dict asked
        cdef GroupPacker packer = GroupPacker(0)
        cdef _RowTable table = _RowTable()
        cdef Py_ssize_t looked_at = 0, number
        cdef uint32_t hashed
        others = set()
        for key in keys:
            if is_plain_key(key):
                packer.scratch[0] = 0x92
                number = packer.pack(1, key)
                if 0 < number <= LOG_ROW_MAX and fast_hash(key, &hashed):
                    asked = by_group.setdefault(hashed % <uint32_t>self.group_count, {})
                    asked[(<char*>packer.scratch)[:number]] = key
            else:
                others.add(key)
        wanted = set(keys)
        for number in range(0, PyList_GET_SIZE(self.keys), LOG_FOUND_AT_ONCE):
            yield wanted.intersection(self.valued_keys(number, number + LOG_FOUND_AT_ONCE))
        some = set()
        for number in range(self.group_count) if others else sorted(by_group):
            looked_at += self.groups[number].rows
            asked = by_group.get(number)
            if asked:
                self.find_in(self.groups + number, asked, some, table)
            if others:  # equal to a plain key, if that is in the log: a bool, a float, any class
                some.update(others.intersection(self.rows_of(number)))
            if looked_at >= LOG_FOUND_AT_ONCE:
                looked_at = 0
                yield some
                some = set()
        yield some

    cdef list valued_keys(self, Py_ssize_t start, Py_ssize_t end):
        """Those that have a value, of the keys in this range."""
        keys, values = self.keys[start:end], self.values[start:end]
        return [key for key, value in zip(keys, values) if value is not NO_VALUE]

    cdef int find_in(self, LogGroup* group, dict asked, set some, _RowTable table) except -1:
        """Add those keys that a group has, by their packed bytes, to `some`."""
        cdef bytes wanted = b"".join([packed + b"\xc0" for packed in asked])
        cdef list keys = list(asked.values())
        cdef Py_ssize_t at = 0, size, number
        cdef uint8_t* key
        table.take(<const uint8_t*>PyBytes_AS_STRING(wanted), PyBytes_GET_SIZE(wanted), len(keys))
        while at < group.used:
            key = group.data + at + 1
            size = packed_size(key)
            number = table.find(key, size)
            if number >= 0:
                some.add(keys[number])
            at += 1 + size + packed_size(key + size)
        return 0

    cdef dict rows_of(self, Py_ssize_t number):
        """The last value of each key of a group."""
        frame = self.frame(number, None)
        return {} if frame is None else dict(decode_rows(frame))

    cdef object frame(self, Py_ssize_t number, _RowTable dead):
        """The rows of a group, as `GroupPacker` frames them, without those of some keys. None:
        there are none."""
        cdef LogGroup* group = self.groups + number
        cdef Py_ssize_t at = 0, size, key_size, head_size, used = group.used, rows = group.rows
        cdef uint8_t[5] head
        cdef uint8_t* to
        cdef bytes found
        if dead is not None:
            used = rows = 0
            while at < group.used:
                key_size = packed_size(group.data + at + 1)
                size = 1 + key_size
                size += packed_size(group.data + at + size)
                if dead.find(group.data + at + 1, key_size) < 0:
                    used += size
                    rows += 1
                at += size
        if not rows:
            return None
        head_size = array_head(head, rows)
        found = PyBytes_FromStringAndSize(NULL, head_size + used)
        to = <uint8_t*>PyBytes_AS_STRING(found)
        memcpy(to, head, head_size)
        to += head_size
        if dead is None:
            memcpy(to, group.data, used)
            return found
        at = 0
        while at < group.used:
            key_size = packed_size(group.data + at + 1)
            size = 1 + key_size
            size += packed_size(group.data + at + size)
            if dead.find(group.data + at + 1, key_size) < 0:
                memcpy(to, group.data + at, size)
                to += size
            at += size
        return found

    def frames(self, dead):
        cdef Py_ssize_t number
        cdef dict by_group = {}
        cdef dict rows
        cdef GroupPacker packer
        cdef _RowTable table = None
        cdef bytes packed = b""
        others = [key for key in dead if not is_plain_key(key)]
        if dead and not others:
            packer = GroupPacker(0)
            parts = []
            for key in dead:
                packer.scratch[0] = 0x92
                number = packer.pack(1, key)
                if 0 < number <= LOG_ROW_MAX:
                    parts.append((<char*>packer.scratch)[:number] + b"\xc0")
            packed = b"".join(parts)
            table = _RowTable()
            table.take(<const uint8_t*>PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed), len(parts))
        for number in range(self.group_count):
            if not self.groups[number].rows:
                continue
            if others:  # they may be equal to a plain key
                rows = {key: value for key, value in self.rows_of(number).items() if key not in dead}
                frame = encode_rows(list(rows.items())) if rows else None
            else:
                frame = self.frame(number, table)
            if frame is not None:
                yield number, frame
        packer = GroupPacker(self.group_count)
        for number in range(0, PyList_GET_SIZE(self.keys), LOG_PACKED_AT_ONCE):
            self.pack_some(packer, number, LOG_PACKED_AT_ONCE, dead)
            with nogil:  # other threads have their turn
                pass
        yield from packer.frames().items()

    cdef int pack_some(self, GroupPacker packer, Py_ssize_t start, Py_ssize_t count, dead) except -1:
        cdef Py_ssize_t i, ahead, end = min(start + count, PyList_GET_SIZE(self.keys))
        cdef object key, value
        for i in range(start, end):
            # They lie anywhere in memory: the processor fetches some at once.
            ahead = min(i + LOG_AHEAD, end - 1)
            prefetch(PyList_GET_ITEM(self.keys, ahead))
            prefetch(<const char*>PyList_GET_ITEM(self.keys, ahead) + 64)
            prefetch(PyList_GET_ITEM(self.values, ahead))
            key = <object>PyList_GET_ITEM(self.keys, i)
            value = <object>PyList_GET_ITEM(self.values, i)
            if value is not NO_VALUE and (not dead or key not in dead):
                packer.add_row(key, value)
        return 0
