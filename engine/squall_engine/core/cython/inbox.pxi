# What waits for a bolt's task.

@cython.final
cdef class Inbox:
    """Batches that wait for one task, in the order of arrival, and tuples of other workers that are
    still encoded: of any class, with their number as `count`."""

    cdef list waiting  # what lies before `first` has been removed
    cdef Py_ssize_t first
    cdef readonly Py_ssize_t queued  # tuples
    cdef readonly Py_ssize_t local  # of them, from tasks of this worker
    cdef public Py_ssize_t soft
    cdef Py_ssize_t until_sample
    cdef object decode
    cdef object on_sample
    cdef object on_full

    def __init__(self, decode, *, on_sample, on_full):
        """`decode(encoded)` makes a batch of encoded tuples; None: nothing could be read.
        `on_sample(values)` is called with the last row of every 16th batch that an outbox puts
        here, and `on_full()` after each such batch while there are more than `soft` local
        tuples."""
        self.decode = decode
        self.on_sample = on_sample
        self.on_full = on_full
        self.waiting = []
        self.soft = 1

    def __len__(self):
        """How many batches there are, decoded or not."""
        return PyList_GET_SIZE(self.waiting) - self.first

    def put(self, Batch batch not None):
        cdef Py_ssize_t n = len(batch)
        self.waiting.append(batch)
        self.queued += n
        if batch.source.local:
            self.local += n

    def put_encoded(self, encoded):
        cdef Py_ssize_t n = encoded.count
        self.waiting.append(encoded)
        self.queued += n

    cpdef put_from_here(self, Batch batch):
        """Add a batch of this worker, and see to the marks."""
        cdef Py_ssize_t n = PyList_GET_SIZE(batch.values) - batch.start
        self.until_sample -= 1
        if self.until_sample <= 0:
            self.until_sample = INBOX_SAMPLE_EVERY
            self.on_sample(batch.last_row())
        self.waiting.append(batch)
        self.queued += n
        self.local += n
        if self.local > self.soft:
            self.on_full()
        return 0

    def encoded(self):
        """What waits encoded. From any thread."""
        return [one for one in self.waiting[self.first :] if not isinstance(one, Batch)]

    cdef Batch head(self):
        """The batch at the head, without removing it; None when nothing waits."""
        cdef object first
        cdef Py_ssize_t n
        while self.first < PyList_GET_SIZE(self.waiting):
            first = <object>PyList_GET_ITEM(self.waiting, self.first)
            if type(first) is Batch:
                return <Batch>first
            batch = self.decode(first)
            if batch is not None:
                self.waiting[self.first] = <Batch?>batch
                return <Batch>batch
            n = first.count
            self.drop_head()
            self.queued -= n
        return None

    cdef int drop_head(self) except -1:
        cdef list waiting = self.waiting
        self.first += 1
        if self.first == PyList_GET_SIZE(waiting):
            self.first = 0
            waiting.clear()
        elif self.first >= 64 and 2 * self.first > PyList_GET_SIZE(waiting):
            del waiting[: self.first]
            self.first = 0
        else:
            waiting[self.first - 1] = None
        return 0

    cdef inline void count_out(self, Batch batch, Py_ssize_t n) noexcept:
        self.queued -= n
        if batch.source.local:
            self.local -= n

    def take(self, Py_ssize_t limit):
        """Remove and return at most `limit` tuples of the first batch; None when nothing waits."""
        cdef Batch batch = self.head()
        cdef Py_ssize_t n
        if batch is None:
            return None
        n = len(batch)
        if n > limit:
            n = limit
            batch = batch.take(n)
        else:
            self.drop_head()
        self.count_out(batch, n)
        return batch

    def pull(self, Py_ssize_t room):
        """The batches at the head that are all of one stream, as far as `room` tuples go, and how
        many tuples that is: these count as taken. The last batch may have more; it stays here, and
        the caller removes its first ones."""
        cdef list batches = []
        cdef Py_ssize_t n = self.pull_into(batches, room)
        return batches, n

    cdef Py_ssize_t pull_into(self, list batches, Py_ssize_t room) except -1:
        cdef Batch batch
        cdef tuple key = None
        cdef Py_ssize_t size, pulled, n = 0
        while n < room:
            batch = self.head()
            if batch is None:
                break
            if key is None:
                key = batch.source.key
            elif batch.source.key is not key and batch.source.key != key:
                break
            batches.append(batch)
            size = PyList_GET_SIZE(batch.values) - batch.start
            pulled = min(size, room - n)
            if pulled == size:
                self.drop_head()
            self.count_out(batch, pulled)
            n += pulled
        return n

    def empty(self):
        """Remove and return everything."""
        cdef list found = []
        cdef Batch batch
        while True:
            batch = self.head()
            if batch is None:
                break
            found.append(batch)
            self.drop_head()
        self.queued = self.local = 0
        return found
