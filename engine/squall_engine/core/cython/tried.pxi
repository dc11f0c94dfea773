# Calls that take effect as a whole or not at all, and the state that they change: see `pure.tried`.

cdef inline bint is_plain_key(object key) noexcept:
    """Whether its hash and its equality run no code of users."""
    return PyUnicode_CheckExact(key) or PyLong_CheckExact(key) or PyBytes_CheckExact(key)


cdef dict dict_of(object given):
    """Raises TypeError for anything else, also for None, which Cython takes for a dict."""
    if type(given) is not dict:
        raise TypeError(f"a dict, not {given!r:.100}")
    return given


cdef inline bint is_plain_value(object value) noexcept:
    return (
        PyLong_CheckExact(value)
        or PyUnicode_CheckExact(value)
        or PyFloat_CheckExact(value)
        or value is None
        or value is True
        or value is False
        or PyBytes_CheckExact(value)
    )


cdef inline bint same_key(object one, object other) except -1:
    """Of plain keys."""
    if one is other:
        return True
    if PyUnicode_CheckExact(one) and PyUnicode_CheckExact(other):
        return <str>one == <str>other  # without a call, if they differ in length or hash
    return type(one) is type(other) and PyObject_RichCompareBool(one, other, Py_EQ)


cdef inline object value_at(object values, Py_ssize_t index):
    """Of a tuple's values: there may be fewer, as a component can change a list that it has
    emitted. Raises IndexError."""
    if PyTuple_CheckExact(values) and index < PyTuple_GET_SIZE(values):
        return <object>PyTuple_GET_ITEM(values, index)
    if PyList_CheckExact(values) and index < PyList_GET_SIZE(values):
        return <object>PyList_GET_ITEM(values, index)
    return values[<object>index]  # (An index of C would not be checked.)


@cython.final
cdef class KeyFinder:
    cdef dict places
    cdef object none
    cdef Source last
    cdef Py_ssize_t index  # of the last source's only field; -1: see `indexes`
    cdef tuple indexes

    def __init__(self, places, none):
        self.places = dict_of(places)
        self.none = none

    cdef int look(self, Source source) except -1:
        self.indexes = self.places.get(source.key, ())
        self.index = self.indexes[0] if len(self.indexes) == 1 else -1
        self.last = source
        return 0

    cdef object find(self, Tuple tup):
        cdef object values = tup.values
        cdef Py_ssize_t i
        if tup.source is not self.last:
            self.look(tup.source)
        if self.index >= 0:
            return value_at(values, self.index)
        if not self.indexes:
            return self.none
        return tuple([value_at(values, i) for i in self.indexes])

    def __call__(self, Tuple tup not None):
        return self.find(tup)

    def of_all(self, tuples):
        cdef set found = set()
        cdef Tuple tup
        cdef object key
        for tup in tuples:
            key = self.find(tup)
            if is_plain_key(key):
                found.add(key)
            elif key is not self.none:
                try:
                    found.add(key)
                except TypeError:  # it has no hash
                    pass
        return found


@cython.final
cdef class HotState:
    cdef readonly object slow
    cdef object slow_get
    cdef object slow_put
    cdef object absent
    cdef object no_key
    cdef dict values
    cdef dict owners
    cdef object look  # for what is not in `values`; None: there is nothing else
    cdef object make_room
    cdef Py_ssize_t values_max
    cdef dict changed
    cdef ChangeLog log
    cdef object current  # the key of the call under way
    cdef bint of_batches
    cdef object batch  # the keys of a batch, to be asked for
    cdef set keys  # those, once they are known
    cdef bint under_way  # a try is
    cdef bint slow_knows  # the slow state has heard of it
    # What was put in the try, with its value before, or absent. The first is apart from the others,
    # as most tries put one.
    cdef bint has_put
    cdef object first_key
    cdef object first_value
    cdef list before  # (key, value), one after the other
    # What was got here last, and nothing was put since; None: nothing was.
    cdef object last_key
    cdef object last_value
    cdef uint64_t last_spread  # of that key

    def __init__(
        self,
        slow,
        values,
        owners,
        *,
        absent,
        no_key,
        of_batches=False,
        beyond=None,
    ):
        self.slow = slow
        self.slow_get = slow.get
        self.slow_put = slow.put
        self.absent = absent
        self.no_key = no_key
        self.values = dict_of(values)
        self.owners = dict_of(owners)
        if beyond is not None:
            self.look = beyond.look
            self.make_room = beyond.make_room
            self.values_max = beyond.values_max
        self.current = no_key
        self.before = []
        self.changed = {}
        self.log = ChangeLog(1)
        self.of_batches = of_batches

    def renew(self, dict changed not None, Py_ssize_t groups):
        cdef ChangeLog log = ChangeLog(groups)
        log.follow(self.log)
        self.changed = changed
        self.log = log
        return log

    cdef inline bint is_hot(self, object key) except -1:
        """Whether an entry of the key belongs to it, and may be used here."""
        if not is_plain_key(key) or PyDict_Size(self.owners):
            return False
        if not self.of_batches:
            return same_key(key, self.current)
        if self.keys is None:
            if self.batch is None:
                return False
            self.keys = self.batch.all
        return key in self.keys

    # ---- for bolts ----

    def get(self, key, default=None):
        cdef PyObject* found
        cdef object value
        cdef uint64_t spread
        if self.is_hot(key):
            spread = self.log.come(key)
            found = PyDict_GetItemWithError(self.values, key)
            if found is not NULL:
                value = <object>found
            else:
                value = self.absent if self.look is None else self.look(key)
            if value is self.absent:
                self.last_key = key
                self.last_value = value
                self.last_spread = spread
                return default
            if is_plain_value(value):
                self.last_key = key
                self.last_value = value
                self.last_spread = spread
                return value
        self.tell()
        return self.slow_get(key, default)

    def put(self, key, value):
        cdef PyObject* found
        cdef object old
        cdef uint64_t spread = self.last_spread
        cdef bint was_got = key is self.last_key and key is not None
        if is_plain_value(value) and (was_got or self.is_hot(key)):
            if was_got:
                old = self.last_value
            else:
                spread = self.log.come(key)
                found = PyDict_GetItemWithError(self.values, key)
                if found is not NULL:
                    old = <object>found
                else:
                    old = self.absent if self.look is None else self.look(key)
            if self.look is None or old is not self.absent:  # that one counts its keys
                if self.has_put:
                    self.before.append(key)
                    self.before.append(old)
                else:
                    self.has_put = True
                    self.first_key = key
                    self.first_value = old
                self.last_key = None
                PyDict_SetItem(self.values, key, value)
                if (
                    PyDict_Size(self.changed) and key in self.changed
                ) or not self.log.note(spread, key, value, PyDict_Size(self.values)):
                    self.changed[key] = value
                if self.look is not None and PyDict_Size(self.values) > self.values_max:
                    self.make_room()
                return
        self.tell()
        self.slow_put(key, value)

    def delete(self, key):
        self.tell()
        self.slow.delete(key)

    def iterate(self):
        self.tell()
        return self.slow.iterate()

    def items(self):
        return self.iterate()

    def prefix(self, prefix):
        self.tell()
        return self.slow.prefix(prefix)

    def __len__(self):
        return len(self.values) if self.look is None else len(self.slow)

    # ---- tries ----

    cdef int start(self, object key) except -1:
        if self.under_way:  # one was broken off, as by `CancelledError`: what it has put stays
            self.forget()
        if self.of_batches:
            self.batch = key
        else:
            self.current = key
        self.under_way = True
        return 0

    cdef int forget(self) except -1:
        """No try is under way."""
        self.current = self.no_key
        self.batch = self.keys = None
        self.under_way = self.slow_knows = False
        self.last_key = self.last_value = None
        if self.has_put:
            self.has_put = False
            self.first_key = self.first_value = None
            if PyList_GET_SIZE(self.before):
                self.before.clear()
        return 0

    cdef int stop(self) except -1:
        if self.slow_knows:
            self.slow.end()
        return self.forget()

    cdef int tell(self) except -1:
        """Let the slow state know of the try, and of what was put in it so far."""
        cdef list before
        self.last_key = self.last_value = None
        if not self.under_way:
            return 0
        if not self.slow_knows:
            self.slow_knows = True
            self.slow.begin(self.batch if self.of_batches else self.current)
        if self.has_put:
            before, self.before = [self.first_key, self.first_value, *self.before], []
            self.has_put = False
            self.first_key = self.first_value = None
            self.slow.note_before(before)
        return 0

    def begin(self, key):
        self.start(key)

    def end(self):
        self.stop()

    def check(self):
        if self.slow_knows:
            self.slow.check()

    def undo(self):
        if self.slow_knows or self.has_put:
            self.tell()
            self.slow.undo()
        self.forget()


@cython.final
cdef class Trial:
    cdef bint under_way
    cdef list values  # of plain emits that are held
    cdef list calls  # instead, once there is another: (call, arguments); None: no other
    cdef public list failed
    cdef list parts
    cdef object failure
    cdef object on_fault
    cdef object execute
    cdef object on_failed
    cdef object key_of
    cdef KeyFinder finder  # that, if it is one
    cdef bint seeking  # the key of a tuple, in a loop that is to begin its try
    cdef object emit  # of the task, for what was held with `HeldEmit`
    cdef BoltCalls emits  # whose method that is; None: it is another's

    def __init__(self, parts, *, failure, on_fault):
        if type(parts) is not list:
            raise TypeError(f"parts: a list, not {parts!r:.100}")
        self.parts = parts
        self.failure = failure
        self.on_fault = on_fault
        self.values = []

    @property
    def held(self):
        if not self.under_way:
            return None
        if self.calls is None:
            self.calls = [(None, values) for values in self.values]
            self.values.clear()
        return self.calls

    def around(self, execute, on_failed, key_of=None):
        self.execute = execute
        self.on_failed = on_failed
        self.key_of = key_of
        self.finder = key_of if type(key_of) is KeyFinder else None
        return self

    def holding(self, emit, stream, arity, otherwise):
        owner = getattr(emit, "__self__", None)
        self.emit = emit
        self.emits = owner if type(owner) is BoltCalls and emit == owner.emit else None
        return HeldEmit(self, stream, arity, otherwise).emit

    def fail(self, what):
        if self.failed is None:
            self.failed = []
        self.failed.append(what)

    def __call__(self, tup):
        cdef object error = self.retry(tup)
        if error is not None:
            self.on_failed(tup, error)

    cpdef object retry(self, object tup):
        cdef object key
        try:
            key = self.find(tup)
        except Exception as error:
            return error
        return self.attempt(self.execute, tup, key)

    cpdef object attempt(self, object execute, object what, object key):
        cdef object error = None
        self.start(key)
        try:
            execute(what)
            if self.failed is not None:
                raise self.failure()
        except Exception as raised:
            error = raised
        if error is None:
            error = self.problem()
        if error is None:
            self.keep()
        else:
            self.undo()
        return error

    cdef inline object find(self, object tup):
        """The key of a tuple."""
        if self.finder is not None:
            return self.finder.find(<Tuple?>tup)
        return None if self.key_of is None else self.key_of(tup)

    cdef inline HotState only(self):
        """What calls change, if that is one `HotState` and nothing else."""
        if PyList_GET_SIZE(self.parts) == 1 and type(self.parts[0]) is HotState:
            return <HotState>self.parts[0]
        return None

    cdef int start(self, object key) except -1:
        cdef HotState only = self.only()
        self.failed = None
        if PyList_GET_SIZE(self.values) or self.calls is not None:
            # Of a call that was broken off, as by `CancelledError`.
            self.values.clear()
            self.calls = None
        if only is not None:
            only.start(key)
        else:
            for part in self.parts:
                part.begin(key)
        self.under_way = True
        return 0

    cdef object problem(self):
        """The error of what the call has left behind; None: there is none."""
        cdef HotState only = self.only()
        if only is not None and not only.slow_knows:
            return None
        try:
            for part in self.parts:
                part.check()
        except Exception as error:
            return error
        return None

    cdef int keep(self) except -1:
        """The try has succeeded."""
        cdef HotState only = self.only()
        self.under_way = False
        if only is not None:
            only.stop()
        else:
            for part in self.parts:
                part.end()
        if PyList_GET_SIZE(self.values) or self.calls is not None:
            self.release()
        return 0

    cdef int undo(self) except -1:
        """It has failed."""
        self.under_way = False
        self.values.clear()
        self.calls = None
        for part in self.parts:
            part.undo()
        return 0

    # A loop that calls `execute` itself: `begin` before, and `returned` or `refuse` after.

    cdef int begin(self, Tuple tup) except -1:
        cdef object key
        self.seeking = True  # what raises from here on is the error of a try
        key = self.find(tup)
        self.seeking = False
        self.start(key)
        return 0

    cdef int returned(self, Tuple tup) except -1:
        """The call has returned. Raises what the tries of a tuple that fails raise."""
        cdef object error = self.problem() if self.failed is None else self.failure()
        if error is None:
            self.keep()
        else:
            self.refuse(tup, error)
        return 0

    cdef int refuse(self, Tuple tup, object error) except -1:
        """The call has failed with this error, or the tuple has no key."""
        if self.seeking:
            self.seeking = False  # nothing was begun
        else:
            self.undo()
        self.on_failed(tup, error)
        return 0

    cdef int broken_off(self) except -1:
        """The loop ends, perhaps within a try."""
        self.under_way = self.seeking = False
        return 0

    cdef int release(self) except -1:
        """Make the calls that were held."""
        cdef list values = self.values, calls = self.calls
        cdef tuple made
        self.calls = None
        try:
            if self.emits is not None:
                for one in values:
                    self.emits.emit_plain(one)
            else:
                for one in values:
                    self.emit(one)
            if calls is not None:
                for made in calls:
                    if made[0] is None:
                        self.emit(made[1])
                    else:
                        made[0](*made[1])
        except Exception as error:
            self.on_fault(error)  # some of it may have left
            raise
        finally:
            values.clear()
        return 0


@cython.final
cdef class HeldEmit:
    cdef Trial trial
    cdef object stream
    cdef Py_ssize_t arity
    cdef object otherwise

    def __init__(self, trial, stream, arity, otherwise):
        self.trial = trial
        self.stream = stream
        self.arity = arity
        self.otherwise = otherwise

    def emit(self, values, anchors=None, stream=DEFAULT_STREAM):
        cdef Trial trial = self.trial
        cdef bint fits
        if trial.under_way and anchors is None and stream is self.stream:
            if PyTuple_CheckExact(values):
                fits = PyTuple_GET_SIZE(values) == self.arity
            else:
                fits = PyList_CheckExact(values) and PyList_GET_SIZE(values) == self.arity
            if fits:
                if trial.calls is None:
                    trial.values.append(values)
                else:
                    trial.calls.append((None, values))
                return ()
        return self.otherwise(values, anchors, stream)


@cython.final
cdef class PositionedEmit:
    cdef object send
    cdef dict positions
    cdef object ids
    cdef object otherwise

    def __init__(self, send, positions, ids, otherwise):
        self.send = send
        self.positions = dict_of(positions)
        self.ids = ids
        self.otherwise = otherwise

    def emit(self, values, *, message_id=None, stream=DEFAULT_STREAM, position=None):
        if message_id is not None:
            return self.otherwise(values, message_id=message_id, stream=stream, position=position)
        sent = self.send(values, None if self.ids is None else next(self.ids), stream)
        if position is not None:
            self.positions[position[0]] = position[1]
        return sent
