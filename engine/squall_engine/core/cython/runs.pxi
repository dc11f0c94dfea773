# What a task has executed, and how long it took.

cdef Py_ssize_t LAST_BUCKET = BUCKET_MAX
cdef double BUCKET_STEPS = STEPS
cdef double BUCKET_UNIT_SECS = UNIT_SECS


cdef inline Py_ssize_t latency_bucket(double secs) noexcept:
    """As `history.histogram.bucket_of`."""
    cdef double bucket
    if secs <= BUCKET_UNIT_SECS:
        return 0
    bucket = 1 + BUCKET_STEPS * log2(secs / BUCKET_UNIT_SECS)
    return <Py_ssize_t>bucket if bucket < LAST_BUCKET else LAST_BUCKET


@cython.final
cdef class TimedRuns:
    """What a task has executed of one input, or what became of the messages of one stream of a
    spout: sums, and how many tuples each bucket of `history.histogram` has."""

    cdef readonly uint64_t executed
    cdef readonly double execute_secs
    # Process latency of a bolt, complete latency of a spout.
    cdef readonly uint64_t process_events
    cdef readonly double process_secs
    cdef uint64_t* executes  # by bucket
    cdef uint64_t* processes  # likewise

    def __cinit__(self):
        self.executes = <uint64_t*>calloc(2 * (LAST_BUCKET + 1), sizeof(uint64_t))
        if self.executes is NULL:
            raise MemoryError
        self.processes = self.executes + LAST_BUCKET + 1

    def __dealloc__(self):
        free(self.executes)

    @property
    def execute_buckets(self):
        return [self.executes[i] for i in range(LAST_BUCKET + 1)]

    @property
    def process_buckets(self):
        return [self.processes[i] for i in range(LAST_BUCKET + 1)]

    cpdef add_executed(self, Py_ssize_t n, double secs, Py_ssize_t processed):
        """`n` tuples, at least one, were executed in `secs`, and `processed` of them acked by the
        end of it. Each counts with the mean."""
        self.executed += n
        self.execute_secs += secs
        self.executes[latency_bucket(secs / n)] += n
        if processed:
            self.add_processed(processed, secs)

    cpdef add_processed(self, Py_ssize_t n, double secs):
        """`n` tuples, at least one, took `secs` altogether from their arrival to their ack."""
        self.process_events += n
        self.process_secs += secs
        self.processes[latency_bucket(secs / n)] += n
