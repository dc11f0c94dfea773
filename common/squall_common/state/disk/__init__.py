"""State beyond memory: the entries of a task in a table on the worker's own disk.

    table    a table of bytes in a file that ends with the process
    keys     an entry's key as bytes, equal ones as equal bytes
    rows     what the core reads and writes of plain entries
    state    `DiskState`, a `KeyedState` whose entries are in such a table

The table is never restored: segments are, as for state in memory. May import the rest of `state`.
"""
