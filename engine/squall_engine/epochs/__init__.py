"""Epochs: how a topology's state, the positions of its sources and the rows of its sinks take
effect exactly once, whatever fails.

    coordinator_table   the states of the coordinator, what happens to it, and what it asks for
    coordinator         starts epochs and completes them; raises the generation
    member              one worker: restores, goes, and reports snapshots
    task                one task: when its snapshot is due, and while it has to be silent
    messages            what coordinator and workers say to each other, and the record that decides

These are pure: they get events and return commands. The model of `tests/simulation/epochs` runs
them against crashes, late writes, and processes that live on beside those that replace them. The
others do what they ask for:

    driver              the tasks of one engine: takes snapshots, passes barriers on
    window_entries      the windows of a task as entries of its state
    parts               snapshots and manifests in the store
    background          calls that block, and coroutines that wait for them
    record              where the record is: a file, or a znode
    coordinating        the shell of the coordinator: time, the record, manifests
    taking_part         the shell of a worker: restores, writes snapshots, and says so
    savepoints          takes savepoints, and begins a topology with one
    wire                messages as sections, between the workers of a cluster
    in_process          all of it for a topology that runs in one process
    cluster             all of it for one worker of a topology on a cluster

An epoch is a cut through the topology. The coordinator begins it at the sources; a task whose
upstream tasks have all taken their snapshots, and that has nothing left to do, takes its own. Until
all tasks have taken theirs, those that have are silent, so nothing is ever behind the cut. Once all
snapshots are durable, one compare-and-set of the record completes the epoch. After a fault, every
task goes back to the last complete epoch in a new *generation*.

May import `atomic`, `core`, `tasks`, and `squall_common`; of `dataflow` types and `fence`.
"""
