"""The state of stateful bolts between micro-batches: immutable files in the checkpoint folder.

    CHECKPOINT/state/COMPONENT/000000000007.1-4.state      after batch 7, by task 1 of 4

A file holds the entries that changed since older files, which its end lists: together they are the
whole state of a task (a log-structured merge tree). A task of batch N opens the state after batch
N-1, reads the blocks of the keys that it is asked for, and writes one file under N's name. If its
driver died before the batch was committed, Spark runs the batch again, with the same number and the
same input: it opens N-1 again and replaces the file of N, so that every tuple is in the state once.

The folder is a local path (the same on every machine) or a URL that fsspec supports.

    segment   the format of a file                                   pure, but reading and writing
    store     the state of a task in one batch: what a bolt sees
    owner     the task that an entry belongs to when the number of tasks changes
    place     the files of a component: where they are, which are needed, how large they are
"""
