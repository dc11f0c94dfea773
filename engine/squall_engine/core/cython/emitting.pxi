# Emitting with all that there is: any stream, any grouping, any anchors. The calls of components do
# the common case themselves and come here for the rest.

cdef inline int check_values(Output output, object values) except -1:
    if PyList_CheckExact(values):
        if PyList_GET_SIZE(values) == output.arity:
            return 0
    elif PyTuple_CheckExact(values):
        if PyTuple_GET_SIZE(values) == output.arity:
            return 0
    elif not isinstance(values, (str, bytes)):
        try:
            if len(values) == output.arity:
                return 0
        except TypeError:
            pass
    raise wrong_values(output.source, values)


cdef object ids_of(tuple edges):
    if len(edges) == 1:
        return (<Edge>edges[0]).ids
    return tuple([edge.task for edge in edges])


cdef tuple as_anchors(object anchors):
    if isinstance(anchors, Tuple):
        return (anchors,)
    found = tuple(anchors)  # (one that is named twice gets two ids, which are as good as one)
    for anchor in found:
        if not isinstance(anchor, Tuple):
            raise TypeError(f"anchors are tuples that the bolt received, not {anchor!r}")
    return found


cdef Py_ssize_t FEW_TREES = 8  # of which each is looked at


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Gathering:
    """Trees that are put together, each root once: `found`, and a table of the places in it (open
    addressing, linear probing)."""

    cdef Several found
    cdef int32_t* places  # index in `found` + 1; 0: free. NULL: there are few
    cdef Py_ssize_t mask

    def __cinit__(self, Py_ssize_t room):
        """For at most `room` trees."""
        self.found = new_several(room)
        self.places = NULL
        if room > FEW_TREES:
            self.mask = 16
            while self.mask < 2 * room:
                self.mask *= 2
            self.places = <int32_t*>calloc(self.mask, sizeof(int32_t))
            if self.places is NULL:
                raise MemoryError
            self.mask -= 1

    def __dealloc__(self):
        free(self.places)

    cdef inline void add(self, uint64_t root, uint64_t edge) noexcept:
        cdef Several found = self.found
        cdef Py_ssize_t i
        if self.places is NULL:
            for i in range(found.count):
                if found.trees[i].root == root:
                    found.trees[i].edge ^= edge
                    return
        else:
            i = <Py_ssize_t>(root >> ACKER_INDEX_BITS) & self.mask
            while self.places[i]:
                if found.trees[self.places[i] - 1].root == root:
                    found.trees[self.places[i] - 1].edge ^= edge
                    return
                i = (i + 1) & self.mask
            self.places[i] = <int32_t>(found.count + 1)
        found.trees[found.count].root = root
        found.trees[found.count].edge = edge
        found.count += 1


@cython.final
cdef class Emitter:
    """The outputs of one task."""

    cdef readonly object component
    cdef readonly object task
    cdef readonly dict outputs
    cdef object inspector
    cdef object on_rejected
    cdef Random rng

    def __init__(self, component, task, outputs, next_bits, *, inspector=None, on_rejected):
        """`outputs` are complete; `next_bits(n)` draws n random bits. `on_rejected(error, roots)`
        is called for a tuple that the inspector refused: it is not delivered, and its trees must
        fail."""
        cdef Output output
        self.component = component
        self.task = task
        self.outputs = dict(outputs)
        self.inspector = inspector
        self.on_rejected = on_rejected
        self.rng.state = next_bits(64)
        if inspector is None:
            for output in self.outputs.values():
                output.set_fast_path()

    cdef Output output(self, object stream, object values):
        """The output of a stream. Raises EmitError when it is not declared or `values` are not
        what it carries."""
        cdef Output output = self.find(stream)
        check_values(output, values)
        return output

    cdef Output find(self, object stream):
        """The output of a stream. Raises EmitError when it is not declared."""
        cdef Output output = self.outputs.get(stream)
        if output is None:
            near = difflib.get_close_matches(stream, self.outputs, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise EmitError(f"{self.component!r} declares no stream {stream!r}{hint}")
        return output

    cdef tuple edges(self, Output output, object values):
        """Where a tuple goes. Raises EmitError on a direct stream."""
        if output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is direct: use emit_direct"
            )
        return output.route(values)

    cdef tuple direct_edges(self, Output output, object task):
        """Where a direct tuple goes: nowhere when the task does not consume the stream (as in
        Storm). Raises EmitError on a stream that is not direct."""
        if not output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is not direct: "
                "declare it with Stream(fields, direct=True), or use emit"
            )
        edge = output.direct_edges.get(task)
        return () if edge is None else (edge,)

    cdef uint64_t send(
        self, Output output, tuple edges, object values, tuple anchors, Tuple current
    ) except? 0:
        """Put a tuple into `edges`, as a part of the trees of `anchors`. Returns the XOR of the
        edges that were anchored to `current`; those of other anchors are added to these."""
        cdef Edge edge
        cdef Tuple anchor
        cdef uint64_t bits, current_xor = 0
        cdef Several several
        cdef Source source = output.source
        output.emitted += 1
        if self.inspector is not None:
            try:
                values = self.inspector.inspect(source, values)
            except ValueError as error:
                output.beyond -= 1
                self.on_rejected(error, roots_of(anchors))
                return 0
        output.beyond += PyTuple_GET_SIZE(edges) - 1
        for edge in edges:
            if not anchors:
                edge.add(values, 0, 0, source)
                continue
            if len(anchors) == 1:
                anchor = anchors[0]
                if anchor._root != MANY:
                    if anchor._root:
                        bits = next_id(&self.rng)
                        if anchor is current:
                            current_xor ^= bits
                        else:
                            anchor._axor ^= bits
                        edge.add(values, bits, anchor._root, source)
                    else:
                        edge.add(values, 0, 0, source)
                    continue
            several = self.trees_of(anchors, current, &current_xor)
            if several.count == 0:
                edge.add(values, 0, 0, source)
            elif several.count == 1:
                edge.add(values, several.trees[0].edge, several.trees[0].root, source)
            else:
                edge.push(values, 0, MANY, several, source)
        return current_xor

    cdef Several trees_of(self, tuple anchors, Tuple current, uint64_t* current_xor):
        """The trees of these tuples, with a new edge that is added to them."""
        cdef Py_ssize_t i, room = 0
        cdef Tuple anchor
        cdef uint64_t bits
        cdef Gathering gathering
        for anchor in anchors:
            room += 1 if anchor.several is None else anchor.several.count
        gathering = Gathering.__new__(Gathering, room)
        for anchor in anchors:
            if anchor._root == 0:
                continue
            # One id for each anchor, not one for each child: two anchors of the same root would
            # cancel each other out.
            bits = next_id(&self.rng)
            if anchor is current:
                current_xor[0] ^= bits
            else:
                anchor._axor ^= bits
            if anchor.several is None:
                gathering.add(anchor._root, bits)
            else:
                for i in range(anchor.several.count):
                    gathering.add(anchor.several.trees[i].root, bits)
        return gathering.found
