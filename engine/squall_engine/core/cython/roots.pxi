# Where roots lie in the tables of ackers and spouts.
#
# A spout takes its roots from blocks of 16 that follow each other (`RootDraw`), and what it emitted
# together is mostly acked together. So the tables keep a block's roots side by side: a look-up finds
# the next root in a line of the cache that is there already, and the processor foresees its branches.
#
# A table is open addressing over `mask` + 1 places, a multiple of 16, in the order `order_of`: all
# first places of the blocks, then all second places ... The next place to look at (`place_after`) is
# the same one of the next block, so that a root that is removed leaves its neighbours alone.

cdef enum:
    BLOCK_BITS = 4
    BLOCK_ROOTS = 16


cdef inline Py_ssize_t home_of(uint64_t root, Py_ssize_t mask) noexcept nogil:
    """The place where a root belongs."""
    cdef uint64_t block = root >> (ACKER_INDEX_BITS + BLOCK_BITS)
    # Each block has an order of its own. When one row of 16 is slow (they went to 16 tasks by turns,
    # and one of these is stuck), its roots would all wait at the same place of their blocks.
    cdef uint64_t within = ((root >> ACKER_INDEX_BITS) ^ (root >> (64 - BLOCK_BITS))) & (BLOCK_ROOTS - 1)
    return <Py_ssize_t>((block << BLOCK_BITS) & <uint64_t>mask | within)


cdef inline Py_ssize_t place_after(Py_ssize_t i, Py_ssize_t mask) noexcept nogil:
    """The place to look at after the place `i`."""
    i += BLOCK_ROOTS
    return i if i <= mask else (i + 1) & (BLOCK_ROOTS - 1)


cdef inline Py_ssize_t order_of(Py_ssize_t i, Py_ssize_t mask) noexcept nogil:
    """How far the place `i` is from the first one, in the order of `place_after`."""
    return (i & (BLOCK_ROOTS - 1)) * ((mask + 1) >> BLOCK_BITS) + (i >> BLOCK_BITS)


cdef inline bint may_move(Py_ssize_t to, Py_ssize_t i, Py_ssize_t home, Py_ssize_t mask) noexcept nogil:
    """Whether what lies at `i` and belongs at `home` is still found when it lies at `to`, which is
    before `i`: whether `home` is not between the two."""
    if home == i:
        return False  # most lie where they belong
    i = order_of(i, mask)
    return ((i - order_of(home, mask)) & mask) >= ((i - order_of(to, mask)) & mask)


@cython.final
cdef class RootDraw:
    """Roots for one acker, in blocks that follow each other."""

    cdef uint64_t next  # 0: a new block is due

    cdef inline uint64_t draw(self, Random* rng, uint64_t acker) noexcept nogil:
        cdef uint64_t root = self.next
        if root == 0:
            root = next_id(rng) >> (ACKER_INDEX_BITS + BLOCK_BITS) << (ACKER_INDEX_BITS + BLOCK_BITS) | acker
        self.next = root + (<uint64_t>1 << ACKER_INDEX_BITS)
        if (self.next >> ACKER_INDEX_BITS) & (BLOCK_ROOTS - 1) == 0:
            self.next = 0
        return root
