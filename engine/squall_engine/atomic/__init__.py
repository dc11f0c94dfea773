"""Calls of bolts with checkpoints: what a call changes and emits takes effect when it returns, or
not at all.

    undo        what a failed try has changed in state and rows, taken back
    tries       one tuple after the other: each is tried again in place
    batches     lists of tuples and columns: as a whole first, then in ever smaller parts
    concurrent  coroutines: one after the other by key, side by side otherwise
    windows     windowed bolts: each window that fires is one call
    letters     where a tuple goes whose tries have all failed
    keys        what finds the keys of a bolt's input
    bolt        all of these for one bolt, in its mode

With checkpoints no message is replayed, so a call that raises is tried again in place, from the
state before it. A tuple whose tries all fail cannot be left out silently: it becomes a dead letter
of its bolt, or ends the topology if nothing consumes those.

May import `core`, `acking`, and `squall_common`.
"""
