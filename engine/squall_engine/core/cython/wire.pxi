# Batches as sections and back (see `sections.py` for the format).

_pack = msgspec.msgpack.Encoder().encode
_unpack_anchors = msgspec.msgpack.Decoder(list[tuple[int, dict[int, int]]]).decode


cdef bint is_scalar(object value) noexcept:
    return (
        PyUnicode_CheckExact(value)
        or PyLong_CheckExact(value)
        or PyFloat_CheckExact(value)
        or PyBytes_CheckExact(value)
        or value is None
        or value is True
        or value is False
    )


cdef bint are_scalars(list rows) noexcept:
    cdef Py_ssize_t i, j
    cdef object row
    for i in range(PyList_GET_SIZE(rows)):
        row = <object>PyList_GET_ITEM(rows, i)
        if PyTuple_CheckExact(row):
            for j in range(PyTuple_GET_SIZE(row)):
                if not is_scalar(<object>PyTuple_GET_ITEM(row, j)):
                    return False
        elif PyList_CheckExact(row):
            for j in range(PyList_GET_SIZE(row)):
                if not is_scalar(<object>PyList_GET_ITEM(row, j)):
                    return False
        else:
            return False
    return True


cdef bint is_of_task(Batch batch, int32_t task) except -1:
    """Whether one task has emitted all tuples of a batch."""
    cdef Py_ssize_t i
    if batch.sources is None:
        return batch.source.task == task
    for i in range(batch.start, PyList_GET_SIZE(batch.values)):
        if batch.source_at(i).task != task:
            return False
    return True


cdef list columns_if_fit(Batch batch, codec):
    """The values of a batch as columns to be written; None: they have to be rows."""
    cdef Py_ssize_t i, fields = len(batch.source.fields)
    cdef list columns = batch.columns
    if PyList_GET_SIZE(batch.values) - batch.start < COLUMN_ROWS_MIN:
        return None
    if fields == 0 or fields > FIELDS_MAX:
        return None
    if batch.several is not None and any([i >= batch.start for i in batch.several]):
        return None
    if columns is None:
        if other_row(batch.values, batch.start, fields) >= 0:
            return None
        columns = [column_of(batch.values, i) for i in range(fields)]
        if batch.start:
            columns = [(<list>column)[batch.start :] for column in columns]
    else:
        # Lists that no one changes until they are written: a codec of the user's may run meanwhile.
        columns = [(<list>column)[batch.start :] for column in columns]
    return columns_out(columns, codec)


def encode_batches(Source source, batches, codec, *, columns=False):
    """Batches of one stream, each with its receiving task, as one TUPLES section; `source` is of
    some task that emits on it. `columns`: the receiver knows columns, and a single batch may be
    such. Raises ValueNotEncodableError when some value cannot travel, and ChangedRowError for a
    row with other than one value for each field, which no receiver takes."""
    cdef Batch batch
    cdef list rows
    cdef bytes data = None
    cdef Py_ssize_t changed, fields = len(source.fields)
    cdef list outs = None
    cdef Py_ssize_t total = 0, n, offset, size
    cdef bint anchored = False
    cdef list several = []
    cdef int32_t task
    cdef char* at
    cdef char* ids_at
    cdef char* roots_at
    cdef char* tasks_at
    cdef char* sources_at
    cdef bytes name = source.stream.encode(), start, packed = b""
    cdef uint8_t flags = 0
    cdef uint16_t name_size = len(name)
    cdef uint32_t packed_size
    cdef TuplesHead head
    if len(batches) == 1:
        flags |= SAME_TASK
        if columns:
            outs = columns_if_fit(batches[0][1], codec)
    if outs is None:
        rows = []
        for _, batch in batches:
            batch.to_rows()
            if len(batches) == 1 and batch.start == 0:
                rows = batch.values
            else:
                rows.extend(batch.rows())
        changed = other_row(rows, 0, fields)
        if changed >= 0:
            raise changed_row(source.component, source.stream, fields, rows[changed])
        data = codec.encode_scalar_rows(rows) if are_scalars(rows) else codec.encode_rows(rows)
    else:
        flags |= COLUMNS
    for _, batch in batches:
        n = len(batch)
        if batch.anchored:
            anchored = True
        if not is_of_task(batch, source.task):
            flags |= SEVERAL_SOURCES
        if batch.several is not None:
            several.extend(
                (total + i - batch.start, (<Several>trees).as_dict())
                for i, trees in batch.several.items()
                if i >= batch.start
            )
        total += n
    size = TUPLES_HEAD_BYTES + name_size + (TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total)
    if flags & SEVERAL_SOURCES:
        size += TASK_BYTES * total
    if anchored:
        flags |= ANCHORED
        size += (ID_BYTES + ROOT_BYTES) * total
        if several:
            flags |= SEVERAL_ROOTS
            packed = _pack(several)
            size += SIZE_BYTES
    if outs is not None:
        size += columns_bytes(outs)
    start = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(start)
    head.kind = KIND_TUPLES
    head.flags = flags
    head.source_task = source.task
    head.stream_bytes = name_size
    head.count = <uint32_t>total
    memcpy(at, &head, TUPLES_HEAD_BYTES)
    memcpy(at + TUPLES_HEAD_BYTES, PyBytes_AS_STRING(name), name_size)
    at += TUPLES_HEAD_BYTES + name_size
    tasks_at = at
    at += TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total
    sources_at = at
    if flags & SEVERAL_SOURCES:
        at += TASK_BYTES * total
    ids_at = at
    roots_at = at + ID_BYTES * total
    for to, batch in batches:
        n = PyList_GET_SIZE(batch.values) - batch.start
        if flags & SEVERAL_SOURCES:
            for offset in range(n):
                task = batch.source_at(batch.start + offset).task
                memcpy(sources_at, &task, TASK_BYTES)
                sources_at += TASK_BYTES
        task = to
        if flags & SAME_TASK:
            memcpy(tasks_at, &task, TASK_BYTES)
        else:
            for offset in range(n):
                memcpy(tasks_at, &task, TASK_BYTES)
                tasks_at += TASK_BYTES
        if anchored:
            memcpy(ids_at, batch._ids + batch.start, ID_BYTES * n)
            memcpy(roots_at, batch._roots + batch.start, ROOT_BYTES * n)
            ids_at += ID_BYTES * n
            roots_at += ROOT_BYTES * n
    if flags & SEVERAL_ROOTS:
        packed_size = <uint32_t>len(packed)
        memcpy(roots_at, &packed_size, SIZE_BYTES)
        return b"".join((start, packed, data))
    if outs is not None:
        # (Columns are for one task and of one root: nothing but ids and roots is before them.)
        write_columns(outs, roots_at if anchored else ids_at)
        return start
    return start + data


cdef object too_short(Py_ssize_t size):
    return CodecError(f"a section ends after {size} bytes; more were expected")


cdef object other_fields(str stream, Py_ssize_t fields, Py_ssize_t values):
    return CodecError(f"a section has {values} values for the {fields} fields of {stream!r}")


def decode_batches(bytes data, codec, source_of):
    """The inverse: batches by receiving task; none when `source_of(task, stream)` knows no source.
    Raises CodecError."""
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t total, at, i, tasks_at, sources_at = 0, ids_at = 0, roots_at = 0
    cdef uint8_t flags
    cdef int32_t task, source_task, batch_task = -1
    cdef uint32_t packed_size
    cdef TuplesHead head
    cdef uint64_t id_ = 0, root = 0
    cdef list rows = None, columns = None
    cdef Py_ssize_t fields
    cdef dict several_at = {}, by_task = {}
    cdef Batch batch = None
    cdef Source source, one
    cdef list sources = None
    if size < TUPLES_HEAD_BYTES or start[0] != KIND_TUPLES:
        raise too_short(size)
    memcpy(&head, start, TUPLES_HEAD_BYTES)
    flags = head.flags
    source_task = head.source_task
    total = head.count
    if flags & ~(SAME_TASK | ANCHORED | SEVERAL_ROOTS | SEVERAL_SOURCES | COLUMNS):
        raise CodecError(f"a section has flags that are unknown: {flags:#04x}")
    if flags & COLUMNS and (not flags & SAME_TASK or flags & SEVERAL_ROOTS):
        raise CodecError(f"a section of columns has flags that do not go with them: {flags:#04x}")
    tasks_at = TUPLES_HEAD_BYTES + head.stream_bytes
    at = tasks_at + (TASK_BYTES if flags & SAME_TASK else TASK_BYTES * total)
    if flags & SEVERAL_SOURCES:
        sources_at = at
        at += TASK_BYTES * total
    if flags & ANCHORED:
        ids_at = at
        roots_at = ids_at + ID_BYTES * total
        at = roots_at + ROOT_BYTES * total
    if at + (SIZE_BYTES if flags & SEVERAL_ROOTS else 0) > size:
        raise too_short(size)
    try:
        name = data[TUPLES_HEAD_BYTES:tasks_at].decode()
    except ValueError as error:
        raise CodecError(f"a section of {size} bytes cannot be read: {error}") from error
    if flags & SEVERAL_ROOTS:
        memcpy(&packed_size, start + at, SIZE_BYTES)
        at += SIZE_BYTES
        if at + <Py_ssize_t>packed_size > size:
            raise too_short(size)
        try:
            for i, found in _unpack_anchors(data[at : at + packed_size]):
                several_at[i] = several_of(found)
        except (ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise CodecError(f"a section of {size} bytes cannot be read: {error}") from error
        at += packed_size
    if flags & COLUMNS:
        columns = decode_columns(start + at, size - at, total, codec)
    else:
        rows = codec.decode_rows(memoryview(data)[at:])
        if PyList_GET_SIZE(rows) != total:
            raise CodecError(f"a section of {total} tuples has {len(rows)} rows")
    if flags & ANCHORED:
        several = 0
        for i in range(total):
            memcpy(&root, start + roots_at + ROOT_BYTES * i, ROOT_BYTES)
            if root == MANY:
                several += 1
                if i not in several_at:
                    several = -1
                    break
        if several != len(several_at):
            raise CodecError("a section has tuples of several roots that it does not name")
    elif several_at:
        raise CodecError("a section has tuples of several roots that it does not name")
    source = one = source_of(source_task, name)
    if source is None or total == 0:
        return {}
    fields = len(source.fields)
    if columns is not None:
        if PyList_GET_SIZE(columns) != fields:
            raise other_fields(name, fields, len(columns))
    else:
        for i in range(total):
            if PyList_GET_SIZE(<list>PyList_GET_ITEM(rows, i)) != fields:
                raise other_fields(name, fields, len(rows[i]))
    if flags & SEVERAL_SOURCES:
        sources = []
        known = {source_task: source}
        for i in range(total):
            memcpy(&task, start + sources_at + TASK_BYTES * i, TASK_BYTES)
            if task != source_task:
                source_task = task
                if source_task not in known:
                    known[source_task] = source_of(source_task, name)
                one = known[source_task]
                if one is None:
                    return {}
            sources.append(one)
    if flags & SAME_TASK:
        memcpy(&task, start + tasks_at, TASK_BYTES)
        batch = new_batch(source, total)
        if columns is None:
            batch.values = rows
        else:
            batch.columns = columns
            batch.values = <list>PyList_GET_ITEM(columns, 0)
            batch.column_room, batch.room = batch.room, 0
        batch.sources = sources
        if flags & ANCHORED:
            memcpy(batch._ids, start + ids_at, ID_BYTES * total)
            memcpy(batch._roots, start + roots_at, ROOT_BYTES * total)
            batch.anchored = True
            batch.several = several_at or None
        else:
            memset(batch._ids, 0, ID_BYTES * total)
            memset(batch._roots, 0, ROOT_BYTES * total)
        return {task: batch}
    for i in range(total):
        memcpy(&task, start + tasks_at + TASK_BYTES * i, TASK_BYTES)
        if flags & ANCHORED:
            memcpy(&id_, start + ids_at + ID_BYTES * i, ID_BYTES)
            memcpy(&root, start + roots_at + ROOT_BYTES * i, ROOT_BYTES)
        # (A section holds the tuples of one task in a row.)
        if batch is None or batch_task != task:
            batch = by_task.get(task)
            batch_task = task
            if batch is None:
                batch = by_task[task] = new_batch(source, 64)
        if sources is not None:
            one = <Source>PyList_GET_ITEM(sources, i)
        batch.push(
            <object>PyList_GET_ITEM(rows, i), id_, root, several_at.get(i) if several_at else None, one
        )
    return by_task
