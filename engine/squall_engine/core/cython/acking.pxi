# Storm's acking (see `pure/acking.py`). Acks for the ackers of this worker go straight into their
# tables; those for another worker's wait, merged by root, for the end of the turn.

cdef int UNKNOWN = -1  # owner of a root whose init has not come
cdef int FAILED_EARLY = -2  # ... and which has failed

cdef struct Entry:
    uint64_t root  # 0: free
    uint64_t xor
    int32_t owner  # the spout task
    int32_t age  # the generation that touched it last


@cython.final
cdef class RootTable:
    """root -> (XOR, owner): open addressing (see `roots.pxi`), removal by shifting back."""

    cdef Entry* entries
    cdef Py_ssize_t mask
    cdef Py_ssize_t count

    def __cinit__(self):
        self.entries = <Entry*>calloc(TABLE_MIN, sizeof(Entry))
        if self.entries is NULL:
            raise MemoryError
        self.mask = TABLE_MIN - 1
        self.count = 0

    def __dealloc__(self):
        free(self.entries)

    cdef inline Entry* find(self, uint64_t root) noexcept nogil:
        """The entry of a root, or the free one where it belongs."""
        cdef Py_ssize_t i = home_of(root, self.mask)
        while self.entries[i].root and self.entries[i].root != root:
            i = place_after(i, self.mask)
        return &self.entries[i]

    cdef int resize(self, Py_ssize_t room) except -1:
        cdef Entry* old = self.entries
        cdef Py_ssize_t i, old_room = self.mask + 1
        cdef Entry* new = <Entry*>calloc(room, sizeof(Entry))
        if new is NULL:
            raise MemoryError
        self.entries = new
        self.mask = room - 1
        for i in range(old_room):
            if old[i].root:
                self.find(old[i].root)[0] = old[i]
        free(old)
        return 0

    cdef inline int fill(self, Entry* entry, uint64_t root, uint64_t xor, int32_t owner, int32_t age) except -1:
        """Take the free entry that `find` gave."""
        entry.root = root
        entry.xor = xor
        entry.owner = owner
        entry.age = age
        self.count += 1
        if 2 * self.count > self.mask:
            self.resize(2 * (self.mask + 1))
        return 0

    cdef void remove(self, Entry* entry) noexcept:
        cdef Py_ssize_t i = entry - self.entries
        cdef Py_ssize_t j = i
        self.count -= 1
        while True:
            j = place_after(j, self.mask)
            if not self.entries[j].root:
                break
            if may_move(i, j, home_of(self.entries[j].root, self.mask), self.mask):
                self.entries[i] = self.entries[j]
                i = j
        self.entries[i].root = 0


cdef struct Ack:
    uint64_t root
    uint64_t xor
    int32_t owner  # the spout task, if its init is among what was merged; else UNKNOWN


@cython.final
cdef class AckBuffer:
    """What an acker on another worker has yet to learn, merged by root, in the order of arrival: a
    dense array, and a table of the places in it (open addressing, see `roots.pxi`)."""

    cdef Ack* acks
    cdef int32_t* places  # index in `acks` + 1; 0: free
    cdef Py_ssize_t mask
    cdef Py_ssize_t count
    cdef Py_ssize_t inits  # how many have an owner

    def __cinit__(self):
        self.make_tables(TABLE_MIN)

    def __dealloc__(self):
        free(self.acks)
        free(self.places)

    cdef int make_tables(self, Py_ssize_t room) except -1:
        """Empty tables for `room` / 2 roots; the caller frees those that were here."""
        cdef Ack* acks = <Ack*>malloc(room // 2 * sizeof(Ack))
        cdef int32_t* places = <int32_t*>calloc(room, sizeof(int32_t))
        if acks is NULL or places is NULL:
            free(acks)
            free(places)
            raise MemoryError
        self.acks = acks
        self.places = places
        self.mask = room - 1
        self.count = self.inits = 0
        return 0

    cdef int grow(self) except -1:
        cdef Ack* acks = self.acks
        cdef int32_t* places = self.places
        cdef Py_ssize_t i, count = self.count, inits = self.inits
        self.make_tables(2 * (self.mask + 1))
        memcpy(self.acks, acks, count * sizeof(Ack))
        for i in range(count):
            self.place_of(acks[i].root)[0] = <int32_t>(i + 1)
        self.count = count
        self.inits = inits
        free(acks)
        free(places)
        return 0

    cdef inline int32_t* place_of(self, uint64_t root) noexcept nogil:
        """The place of a root, or the free one where it belongs."""
        cdef Py_ssize_t i = home_of(root, self.mask)
        while self.places[i] and self.acks[self.places[i] - 1].root != root:
            i = place_after(i, self.mask)
        return &self.places[i]

    cdef inline Ack* find(self, uint64_t root) except NULL:
        """The entry of a root, made if it is not here."""
        cdef int32_t* place = self.place_of(root)
        cdef Ack* ack
        if place[0]:
            return &self.acks[place[0] - 1]
        if 2 * (self.count + 1) > self.mask:
            self.grow()
            place = self.place_of(root)
        ack = &self.acks[self.count]
        self.count += 1
        place[0] = <int32_t>self.count
        ack.root = root
        ack.xor = 0
        ack.owner = UNKNOWN
        return ack

    cdef inline int merge_ack(self, uint64_t root, uint64_t xor) except -1:
        self.find(root).xor ^= xor
        return 0

    cdef inline int merge_init(self, uint64_t root, uint64_t xor, int32_t owner) except -1:
        cdef Ack* ack = self.find(root)
        ack.xor ^= xor
        if ack.owner == UNKNOWN:
            self.inits += 1
        ack.owner = owner
        return 0

    cdef int clear(self) except -1:
        """Forget all, and give up half of the tables when they have become too large."""
        cdef Ack* acks = self.acks
        cdef int32_t* places = self.places
        if self.mask + 1 > TABLE_MIN and 8 * self.count < self.mask:
            self.make_tables((self.mask + 1) // 2)
            free(acks)
            free(places)
        else:
            memset(places, 0, (self.mask + 1) * sizeof(int32_t))
            self.count = self.inits = 0
        return 0

    cdef bytes take_section(self, uint32_t acker):
        """All of it as an ACKS section (see `sections`)."""
        cdef Py_ssize_t i, acks = self.count, inits = self.inits
        cdef AcksHead head
        cdef bytes data = PyBytes_FromStringAndSize(
            NULL,
            ACKS_HEAD_BYTES + (ROOT_BYTES + XOR_BYTES) * acks + (ROOT_BYTES + TASK_BYTES) * inits,
        )
        cdef char* at = PyBytes_AS_STRING(data)
        cdef char* owners
        head.kind = KIND_ACKS
        head.flags = 0
        head.acker = acker
        head.acks = <uint32_t>acks
        head.inits = <uint32_t>inits
        memcpy(at, &head, ACKS_HEAD_BYTES)
        at += ACKS_HEAD_BYTES
        for i in range(acks):
            memcpy(at, &self.acks[i].root, ROOT_BYTES)
            memcpy(at + ROOT_BYTES * acks, &self.acks[i].xor, XOR_BYTES)
            at += ROOT_BYTES
        at += XOR_BYTES * acks
        owners = at + ROOT_BYTES * inits
        for i in range(acks):
            if self.acks[i].owner != UNKNOWN:
                memcpy(at, &self.acks[i].root, ROOT_BYTES)
                memcpy(owners, &self.acks[i].owner, TASK_BYTES)
                at += ROOT_BYTES
                owners += TASK_BYTES
        self.clear()
        return data


cdef int note(dict settled, int32_t task, uint64_t root) except -1:
    cdef list roots = settled.get(task)
    if roots is None:
        settled[task] = [root]
    else:
        roots.append(root)
    return 0


@cython.final
cdef class AckerTable:
    """The roots of one acker task.

    An entry that nothing has touched for one whole timeout, and at most two, is forgotten. The
    spout has long failed it by then; this only bounds the memory."""

    cdef RootTable table
    cdef int32_t age
    cdef dict attached  # spout task -> PendingRoots
    cdef int32_t last_owner  # the one looked up last
    cdef PendingRoots last_pending
    cdef dict done_roots  # spout task -> roots, of spouts that are not attached
    cdef dict failed_late  # spout task -> roots
    cdef dict counted_inits
    cdef int32_t init_owner  # a run of inits that `counted_inits` does not have yet
    cdef uint64_t init_count
    cdef uint64_t done
    cdef uint64_t failed

    def __init__(self):
        self.table = RootTable()
        self.attached = {}
        self.last_owner = UNKNOWN
        self.done_roots = {}
        self.failed_late = {}
        self.counted_inits = {}
        self.init_owner = UNKNOWN

    def __len__(self):
        return self.table.count

    cdef int attach(self, task, PendingRoots pending) except -1:
        self.attached[task] = pending
        self.last_owner = UNKNOWN
        self.last_pending = None
        return 0

    cdef object counts(self):
        """What this acker did so far."""
        self.count_inits()
        return AckerCounts(self.counted_inits, self.done, self.failed)

    cdef int count_inits(self) except -1:
        if self.init_count:
            owner = self.init_owner
            self.counted_inits[owner] = self.counted_inits.get(owner, 0) + self.init_count
            self.init_count = 0
        return 0

    cdef inline int complete(self, uint64_t root, int32_t owner) except -1:
        self.done += 1
        if owner != self.last_owner:
            self.last_pending = self.attached.get(owner)
            self.last_owner = owner
        if self.last_pending is not None:
            self.last_pending.complete(root)
        else:
            note(self.done_roots, owner, root)
        return 0

    cdef inline int ack(self, uint64_t root, uint64_t xor) except -1:
        """XOR edges into a root."""
        cdef Entry* entry = self.table.find(root)
        cdef int32_t owner
        if not entry.root:
            self.table.fill(entry, root, xor, UNKNOWN, self.age)
            return 0
        entry.age = self.age
        entry.xor ^= xor
        if entry.xor == 0 and entry.owner >= 0:
            owner = entry.owner
            self.table.remove(entry)
            self.complete(root, owner)
        return 0

    cdef inline int init(self, uint64_t root, uint64_t xor, int32_t owner) except -1:
        """A spout task has emitted a message."""
        cdef Entry* entry = self.table.find(root)
        if owner != self.init_owner:
            self.count_inits()
            self.init_owner = owner
        self.init_count += 1
        if not entry.root:
            if xor:
                self.table.fill(entry, root, xor, owner, self.age)
            else:
                self.complete(root, owner)
            return 0
        if entry.owner == FAILED_EARLY:
            self.table.remove(entry)
            self.failed += 1
            note(self.failed_late, owner, root)
            return 0
        entry.age = self.age
        entry.owner = owner
        entry.xor ^= xor
        if entry.xor == 0:
            self.table.remove(entry)
            self.complete(root, owner)
        return 0

    cdef tuple take_settled(self):
        """The roots that are complete, and those that had failed before their init, of spouts that
        are not attached."""
        done, failed = self.done_roots, self.failed_late
        if done:
            self.done_roots = {}
        if failed:
            self.failed_late = {}
        return done, failed

    cdef int apply_section(self, bytes data) except -1:
        """Apply an ACKS section of another worker. Raises CodecError.

        An init that is known already is a repetition, and its XOR is left out: taken twice, it
        would make a living tree look complete. (A repeated ack without an init leaves a number that
        is not zero, and the root times out.)"""
        cdef const char* at = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef AcksHead head
        cdef const char* xors
        cdef const char* new_roots
        cdef const char* owners
        cdef Py_ssize_t acks, inits, i
        cdef uint64_t root, xor
        cdef int32_t owner
        cdef Entry* entry
        cdef set skip = None
        if size < ACKS_HEAD_BYTES:
            raise CodecError(f"a section ends after {size} bytes; {ACKS_HEAD_BYTES} were expected")
        memcpy(&head, at, ACKS_HEAD_BYTES)
        at += ACKS_HEAD_BYTES
        size -= ACKS_HEAD_BYTES
        acks, inits = head.acks, head.inits
        if size != (ROOT_BYTES + XOR_BYTES) * acks + (ROOT_BYTES + TASK_BYTES) * inits:
            raise CodecError(
                f"a section of {acks} acks and {inits} inits has {size + ACKS_HEAD_BYTES} bytes"
            )
        xors = at + ROOT_BYTES * acks
        new_roots = xors + XOR_BYTES * acks
        owners = new_roots + ROOT_BYTES * inits
        for i in range(inits):
            memcpy(&root, new_roots + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&owner, owners + TASK_BYTES * i, TASK_BYTES)
            if root == 0 or owner < 0:
                raise CodecError("a section has an init without a root or a task")
        for i in range(inits):
            memcpy(&root, new_roots + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&owner, owners + TASK_BYTES * i, TASK_BYTES)
            entry = self.table.find(root)
            if entry.root and entry.owner != UNKNOWN:
                if skip is None:
                    skip = set()
                skip.add(root)
                if entry.owner == FAILED_EARLY:
                    self.init(root, 0, owner)
        # The XORs go first: without its init no root is complete.
        for i in range(acks):
            memcpy(&root, at + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&xor, xors + XOR_BYTES * i, XOR_BYTES)
            if root and (skip is None or root not in skip):
                self.ack(root, xor)
        for i in range(inits):
            memcpy(&root, new_roots + ROOT_BYTES * i, ROOT_BYTES)
            memcpy(&owner, owners + TASK_BYTES * i, TASK_BYTES)
            if skip is None or root not in skip:
                self.init(root, 0, owner)
        return 0

    cdef int32_t forget(self, uint64_t root) noexcept:
        """Forget a root. Returns its owner."""
        cdef Entry* entry = self.table.find(root)
        cdef int32_t owner = UNKNOWN
        if entry.root:
            owner = entry.owner
            self.table.remove(entry)
        return owner

    cdef dict fail(self, roots):
        """Forget these trees, which failed. Returns those whose spout is known; the others fail as
        soon as their init comes."""
        cdef int32_t owner
        cdef uint64_t one
        cdef dict failed = {}
        for root in roots:
            one = root
            if one == 0:
                continue
            owner = self.forget(one)
            if owner < 0:
                self.table.fill(self.table.find(one), one, 0, FAILED_EARLY, self.age)
            else:
                self.failed += 1
                note(failed, owner, one)
        return failed

    cdef list known(self):
        """The roots whose init has come, sorted."""
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.table.mask + 1):
            if self.table.entries[i].root and self.table.entries[i].owner >= 0:
                found.append(self.table.entries[i].root)
        found.sort()
        return found

    cdef dict reset_timeout(self, roots):
        """Make these roots young again. Returns those whose spout is known (it must do the
        same)."""
        cdef Entry* entry
        cdef dict reset = {}
        for root in roots:
            entry = self.table.find(root)
            if entry.root:
                entry.age = self.age
                if entry.owner >= 0:
                    note(reset, entry.owner, entry.root)
        return reset

    cdef int rotate(self) except -1:
        """Forget the entries untouched since the last rotation but one: a timeout has passed."""
        cdef Py_ssize_t i
        cdef list forgotten = []
        for i in range(self.table.mask + 1):
            if self.table.entries[i].root and self.table.entries[i].age < self.age:
                forgotten.append(self.table.entries[i].root)
        for root in forgotten:
            self.forget(root)
        self.age += 1
        return 0


@cython.final
cdef class Ledger:
    """Where the tasks of a worker report what they do to their trees."""

    cdef Py_ssize_t ackers
    cdef list tables  # AckerTable by index; None: on another worker
    cdef list remote  # AckBuffer by index; None: here
    cdef list fails
    cdef list resets
    cdef AckerTable only  # the acker, when there is one and it is here
    cdef Random rng
    cdef bint noted  # something is in `fails` or `resets`

    def __init__(self, ackers, tables, seed):
        tables = tables or {}
        self.rng.state = seed
        self.ackers = ackers
        self.tables = [tables.get(i) for i in range(ackers)]
        self.remote = [None if i in tables else AckBuffer() for i in range(ackers)]
        self.fails = [[] for _ in range(ackers)]
        self.resets = [[] for _ in range(ackers)]
        self.only = self.tables[0] if ackers == 1 else None

    cdef inline int add_ack(self, uint64_t root, uint64_t xor) except -1:
        cdef Py_ssize_t i
        cdef object table
        if self.only is not None:
            self.only.ack(root, xor)
            return 0
        i = <Py_ssize_t>(root & ACKER_MASK)
        if i >= self.ackers:
            return 0  # from a worker that knows other ackers
        table = <object>PyList_GET_ITEM(self.tables, i)
        if table is not None:
            (<AckerTable>table).ack(root, xor)
        else:
            (<AckBuffer>PyList_GET_ITEM(self.remote, i)).merge_ack(root, xor)
        return 0

    cdef inline int add_init(self, uint64_t root, uint64_t xor, int32_t task) except -1:
        cdef Py_ssize_t i
        cdef object table
        if self.only is not None:
            self.only.init(root, xor, task)
            return 0
        i = <Py_ssize_t>(root & ACKER_MASK)
        table = <object>PyList_GET_ITEM(self.tables, i)
        if table is not None:
            (<AckerTable>table).init(root, xor, task)
        else:
            (<AckBuffer>PyList_GET_ITEM(self.remote, i)).merge_init(root, xor, task)
        return 0

    def ack(self, root, xor):
        """XOR edges of a tree: those that were emitted, and those that were acked."""
        self.add_ack(root, xor)

    def init(self, root, xor, task):
        """The spout `task` begins a tree with these edges."""
        self.add_init(root, xor, task)

    def fresh(self):
        """An empty one, for a task that cannot share this (it is on a thread)."""
        return Ledger(self.ackers, None, next_id(&self.rng))

    cpdef fail(self, roots):
        """These trees failed."""
        cdef uint64_t root
        for root in roots:
            if root == 0 or <Py_ssize_t>(root & ACKER_MASK) >= self.ackers:
                continue  # from a worker that knows other ackers
            (<list>self.fails[root & ACKER_MASK]).append(root)
            self.noted = True
            # A fresh random number: tuples of a failed tree may yet be acked, and the fail may never
            # reach the acker, but the tree must not complete.
            self.add_ack(root, next_id(&self.rng))

    cpdef reset(self, roots):
        """Restart the timeouts of these trees."""
        cdef uint64_t root
        for root in roots:
            if <Py_ssize_t>(root & ACKER_MASK) < self.ackers:
                (<list>self.resets[root & ACKER_MASK]).append(root)
                self.noted = True

    def merge(self, Ledger other):
        """Take over what a `fresh` ledger holds, and empty it."""
        cdef AckBuffer theirs
        cdef Ack* ack
        cdef Py_ssize_t i
        for theirs in other.remote:
            if theirs is None or not theirs.count:
                continue
            for i in range(theirs.count):
                ack = &theirs.acks[i]
                if ack.owner != UNKNOWN:
                    self.add_init(ack.root, ack.xor, ack.owner)
                else:
                    self.add_ack(ack.root, ack.xor)
            theirs.clear()
        if other.noted:
            other.noted = False
            self.noted = True
            for mine, its in zip((*self.fails, *self.resets), (*other.fails, *other.resets)):
                mine.extend(its)
                its.clear()

    cdef list take_sections(self, Py_ssize_t index):
        """The sections for an acker on another worker. Fails go first, so that the acker fails a
        root of this turn at its init."""
        cdef AckBuffer remote = self.remote[index]
        cdef list found = [], fails = self.fails[index], resets = self.resets[index]
        if fails:
            found.append(serialize_roots(FAILS, index, dict.fromkeys(fails)))
            fails.clear()
        if remote.count:
            found.append(remote.take_section(<uint32_t>index))
        if resets:
            found.append(serialize_roots(RESETS, index, dict.fromkeys(resets)))
            resets.clear()
        return found
