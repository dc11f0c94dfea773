"""The rules that make epochs safe, each with what goes wrong without it."""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """What the parts keep to; a run may break some."""

    COMPLETE_ON_DURABLE = "An epoch completes when its parts are durable, not when they are taken."
    SETTLE_FIRST = "A task finishes what it has begun before it takes its snapshot."
    QUIET = "A task that has taken its snapshot emits nothing until all have taken theirs."
    ATOMIC = "The changes of a try that fails are undone."
    KEEP_CHANGES = "Changes are in every snapshot until an epoch that has them is complete."
    NO_SUCCESS_BY_GUESS = "A write with an unknown outcome is not taken for a success."
    GENERATIONS_IN_NAMES = "Names of objects have the generation that writes them."
    APPLIED_IN_TRANSACTION = "A sink's transaction writes up to which epoch it has been applied."
    MEMBERS_ONLY = "Only the incarnations that a rollback names take part in its generation."
    FILTER_GENERATIONS = "Frames of another generation are dropped."
    RAISE_THEN_READ = "A rollback goes to the epoch in the write that raised the generation."
    COLLECT_BY_NAME = "Garbage is what is older by its name, not what seems to be unused."
    ACK_WHAT_IS_RESTORED = "A source forgets at a rollback what it meant to acknowledge."
    DROP_UNTAKEN = "A rollback drops what lies in the inboxes."
    ROLL_BACK_ALL = "A worker that starts again takes the whole topology back."
    WAIT_FOR_ALL = "Tasks emit once all have restored."
    # Of savepoints and of other numbers of tasks.
    ONE_OWNER = "A key group is restored by the one task that has it now."
    PARTS_OF_ITS_EPOCH = "A rescale reads all parts that its epoch names."
    COMMIT_COMPLETED = "A sink that ends leaves rows of epochs that are not complete unwritten."
    PINNED = "What a savepoint is copied from is kept while it is copied."
    HEED_WITHDRAWAL = "A savepoint that was withdrawn is not carried out."
    HALT = "No epoch begins after that of a savepoint with stop."
    ROWS_KEEP_HISTORY = "Rows that a savepoint has keep the history in which they were counted."
