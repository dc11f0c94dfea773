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
    found = tuple(dict.fromkeys(anchors))
    for anchor in found:
        if not isinstance(anchor, Tuple):
            raise TypeError(f"anchors are tuples that the bolt received, not {anchor!r}")
    return found


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
        cdef dict roots
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
            roots = {}
            for anchor in anchors:
                if anchor._root == 0:
                    continue
                # One id for each anchor, not one for each child: two anchors of the same root
                # would cancel each other out.
                bits = next_id(&self.rng)
                if anchor is current:
                    current_xor ^= bits
                else:
                    anchor._axor ^= bits
                for root in anchor.anchors or (anchor._root,):
                    roots[root] = roots.get(root, 0) ^ bits
            if not roots:
                edge.add(values, 0, 0, source)
            elif len(roots) == 1:
                root, one = next(iter(roots.items()))
                edge.add(values, one, root, source)
            else:
                edge.push(values, 0, MANY, roots, source)
        return current_xor
