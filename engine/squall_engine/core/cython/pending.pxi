# The roots that a spout task waits for: slots with what is known of each, and a table root -> slot.

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
    """The roots that a spout task waits for, oldest first.

    A root times out when the bucket that it lies in is more than `TIMEOUT_BUCKETS` old."""

    cdef Place* places  # root -> slot, open addressing (see `roots.pxi`)
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
        cdef Py_ssize_t i = home_of(root, self.mask)
        while self.places[i].root and self.places[i].root != root:
            i = place_after(i, self.mask)
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
        cdef Py_ssize_t i, j, found
        if not place.root:
            return -1
        found = place.slot
        self.count -= 1
        i = j = place - self.places
        while True:
            j = place_after(j, self.mask)
            if not self.places[j].root:
                break
            if may_move(i, j, home_of(self.places[j].root, self.mask), self.mask):
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
        """The id of the message whose root this is, alone in a tuple; None when it does not wait
        here. From any thread."""
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
        """Stop waiting for these roots; those that are not waited for are left out."""
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
        """The messages that the ackers of this worker have completed (see `Trees.attach`); None:
        none."""
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
        """Start the timeout of a root again from now."""
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
        """The roots that have timed out when `bucket` is the present one."""
        return self.in_order(bucket - TIMEOUT_BUCKETS, False)

    def expire(self, long bucket, double now):
        """Take what has timed out when `bucket` is the present one."""
        return self.take(self.expired(bucket), now)

    def oldest_first(self):
        return self.in_order(0, True)
