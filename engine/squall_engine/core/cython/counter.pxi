# A counter of users' metrics: `squall_common.component.metrics.instruments.Counter`, in C.

@cython.final
cdef class Counter:
    """`squall_common.component.metrics.instruments.Counter`."""

    kind = "counter"
    cdef readonly long long count

    def __init__(self):
        self.count = 0

    def inc(self, long long n=1):
        self.count += n

    def dec(self, long long n=1):
        self.count -= n
