"""The invocation modes of components."""

from __future__ import annotations

import enum


class InvocationMode(enum.Enum):
    """How the engine calls a component."""

    SYNC = "execute"
    BATCH = "execute_batch"
    COLUMNS = "execute_columns"
    ASYNC = "async execute"
    ASYNC_BATCH = "async execute_batch"
    THREAD = "execute on a thread"
    THREAD_BATCH = "execute_batch on a thread"
    NEXT_TUPLE = "next_tuple"
    ASYNC_NEXT_TUPLE = "async next_tuple"
    THREAD_NEXT_TUPLE = "next_tuple on a thread"
    SHELL_BOLT = "a child process"
    SHELL_SPOUT = "a child process that emits"
