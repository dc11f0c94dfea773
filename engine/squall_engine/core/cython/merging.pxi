# Blocks of one key group, put together: see `pure.merging`.

cdef Py_ssize_t MERGED_ROW_MAX = 0xFFFFFFFF  # bytes


cdef struct MergedRow:
    const uint8_t* at
    uint32_t size
    uint32_t key_size  # 0: it was deleted


cdef struct Merge:
    MergedRow* rows
    Py_ssize_t count
    Py_ssize_t room
    uint64_t* slots  # a hash, and the number of the row plus one; 0: nothing
    Py_ssize_t mask
    Py_ssize_t live


cdef inline uint64_t big_endian(const uint8_t* at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int i
    for i in range(size):
        number = (number << 8) | at[i]
    return number


cdef Py_ssize_t value_size(const uint8_t* at, Py_ssize_t room) noexcept nogil:
    """The size of any value of msgpack in so many bytes; 0: there is none."""
    cdef Py_ssize_t used = 0, values = 1, size
    cdef uint8_t head
    while values > 0:
        if used >= room:
            return 0
        head = at[used]
        values -= 1
        size = 1
        if head < 0x80 or head >= 0xE0 or head == 0xC0 or head == 0xC2 or head == 0xC3:
            pass
        elif head < 0x90:
            values += 2 * (head & 0x0F)
        elif head < 0xA0:
            values += head & 0x0F
        elif head < 0xC0:
            size += head & 0x1F
        elif head == 0xC1:
            return 0
        elif head == 0xCC or head == 0xD0:
            size = 2
        elif head == 0xCD or head == 0xD1:
            size = 3
        elif head == 0xCA or head == 0xCE or head == 0xD2:
            size = 5
        elif head == 0xCB or head == 0xCF or head == 0xD3:
            size = 9
        elif 0xD4 <= head <= 0xD8:
            size = 2 + (1 << (head - 0xD4))
        else:
            # A size follows, of 1, 2 or 4 bytes.
            if head == 0xC4 or head == 0xD9 or head == 0xC7:
                size = 1
            elif head == 0xC5 or head == 0xDA or head == 0xC8 or head == 0xDC or head == 0xDE:
                size = 2
            else:
                size = 4
            if used + 1 + size > room:
                return 0
            if head == 0xDC or head == 0xDD:
                values += <Py_ssize_t>big_endian(at + used + 1, <int>size)
                size += 1
            elif head == 0xDE or head == 0xDF:
                values += 2 * <Py_ssize_t>big_endian(at + used + 1, <int>size)
                size += 1
            else:
                size += (
                    1 + (0xC7 <= head <= 0xC9) + <Py_ssize_t>big_endian(at + used + 1, <int>size)
                )
        used += size
    return used if used <= room else 0


cdef inline bint is_plain_packed(uint8_t head) noexcept nogil:
    """Whether a packed key is text, bytes or a whole number: equal ones are the same bytes."""
    return (
        head < 0x80
        or head >= 0xE0
        or 0xA0 <= head < 0xC0
        or 0xC4 <= head <= 0xC6
        or 0xCC <= head <= 0xD3
        or 0xD9 <= head <= 0xDB
    )


cdef int take_row(Merge* merge, const uint8_t* row, Py_ssize_t size, bint is_dead) noexcept nogil:
    """Have a row in place of an earlier one of its key. 1; 0: it cannot be merged; -1: no memory."""
    cdef const uint8_t* key = row + 1
    cdef Py_ssize_t key_size, slot, number
    cdef uint32_t hashed
    cdef MergedRow* other
    if row[0] < 0x91 or row[0] > 0x94 or not is_plain_packed(key[0]):
        return 0
    key_size = value_size(key, size - 1)
    if not key_size or size > MERGED_ROW_MAX:
        return 0
    if merge.count == merge.room and not grow_merge(merge):
        return -1
    hashed = hash_of_bytes(key, key_size)
    slot = hashed & <uint32_t>merge.mask
    while merge.slots[slot]:
        if <uint32_t>(merge.slots[slot] >> 32) == hashed:
            other = merge.rows + <uint32_t>merge.slots[slot] - 1
            # Keys are not each the beginning of another, so the sizes need no comparison.
            if other.size > key_size and memcmp(other.at + 1, key, key_size) == 0:
                merge.live += (not is_dead) - (other.key_size > 0)
                other.key_size = 0 if is_dead else <uint32_t>key_size
                if not is_dead:
                    other.at = row
                    other.size = <uint32_t>size
                return 1
        slot = (slot + 1) & merge.mask
    if is_dead:
        return 1
    merge.rows[merge.count] = MergedRow(row, <uint32_t>size, <uint32_t>key_size)
    merge.count += 1
    merge.live += 1
    merge.slots[slot] = (<uint64_t>hashed << 32) | <uint64_t>merge.count
    return 1


cdef bint grow_merge(Merge* merge) noexcept nogil:
    """Have room for twice as many rows."""
    cdef Py_ssize_t room = max(64, 2 * merge.room), i, slot
    cdef MergedRow* rows = <MergedRow*>realloc(merge.rows, room * sizeof(MergedRow))
    cdef uint64_t* slots = <uint64_t*>calloc(2 * room, sizeof(uint64_t))
    cdef uint64_t taken
    if rows is not NULL:
        merge.rows = rows
    if rows is NULL or slots is NULL:
        free(slots)
        return False
    for i in range(merge.mask + 1 if merge.slots is not NULL else 0):
        taken = merge.slots[i]
        if taken:
            slot = (taken >> 32) & <uint64_t>(2 * room - 1)
            while slots[slot]:
                slot = (slot + 1) & (2 * room - 1)
            slots[slot] = taken
    free(merge.slots)
    merge.slots = slots
    merge.mask = 2 * room - 1
    merge.room = room
    return True


cdef int take_block(Merge* merge, const uint8_t* at, Py_ssize_t room) noexcept nogil:
    """All rows of a block, as `take_row`."""
    cdef const uint8_t* end = at + room
    cdef bint is_dead = True  # the first frame has deleted keys
    cdef Py_ssize_t length, rows, size
    cdef const uint8_t* frame_end
    cdef int taken
    while at < end:
        if end - at < 4:
            return 0
        length = (
            <Py_ssize_t>at[0] | (<Py_ssize_t>at[1] << 8)
            | (<Py_ssize_t>at[2] << 16) | (<Py_ssize_t>at[3] << 24)
        )
        at += 4
        if length > end - at:
            return 0
        frame_end = at + length
        if length:
            if 0x90 <= at[0] < 0xA0:
                rows = at[0] & 0x0F
                at += 1
            elif at[0] == 0xDC and length >= 3:
                rows = <Py_ssize_t>big_endian(at + 1, 2)
                at += 3
            elif at[0] == 0xDD and length >= 5:
                rows = <Py_ssize_t>big_endian(at + 1, 4)
                at += 5
            else:
                return 0
            while rows > 0:
                size = value_size(at, frame_end - at)
                if size < 2:
                    return 0
                taken = take_row(merge, at, size, is_dead)
                if taken != 1:
                    return taken
                at += size
                rows -= 1
            if at != frame_end:
                return 0
        is_dead = False
    return 1


def merge_blocks(list blocks not None):
    cdef Merge merge
    cdef Py_ssize_t i, size = 0, used
    cdef const uint8_t* at
    cdef uint8_t* to
    cdef uint8_t[5] head
    cdef int taken
    cdef bytes block, made
    memset(&merge, 0, sizeof(Merge))
    try:
        for block in blocks:
            at = <const uint8_t*>PyBytes_AS_STRING(block)
            used = PyBytes_GET_SIZE(block)
            with nogil:
                taken = take_block(&merge, at, used)
            if taken < 0:
                raise MemoryError
            if not taken:
                return None
        for i in range(merge.count):
            if merge.rows[i].key_size:
                size += merge.rows[i].size
        if not merge.live:
            return b"", 0
        used = array_head(head, merge.live)
        if used + size > MERGED_ROW_MAX:
            return None
        made = PyBytes_FromStringAndSize(NULL, 8 + used + size)
        to = <uint8_t*>PyBytes_AS_STRING(made)
        memset(to, 0, 4)  # nothing is deleted
        size += used
        for i in range(4):
            to[4 + i] = <uint8_t>(size >> (8 * i))
        memcpy(to + 8, head, used)
        to += 8 + used
        with nogil:
            for i in range(merge.count):
                if merge.rows[i].key_size:
                    memcpy(to, merge.rows[i].at, merge.rows[i].size)
                    to += merge.rows[i].size
        return made, merge.live
    finally:
        free(merge.rows)
        free(merge.slots)
