"""State that survives: what a task's state is, how it is stored, and where.

    key_groups    key -> key group -> task, the same in every process
    task_state    the state of a task as the engine sees it: snapshot, restore, completed
    segment       the file of a task and an epoch, by key group
    manifest      the segments, positions and batches that make up an epoch
    checkpoint_store    files behind a URL (fsspec): put, get, names, delete

A *segment* holds the changes of a task since an older segment, or everything (a *base*). An *epoch*
is a number that rises; its *manifest* names the segments of all tasks. A *generation* is the number
of a coordinator's or a task's life: what has an older one is not believed any more.

May import `component`, `topology` and `daemon`.
"""
