"""What a call of a component was given, in words: where tuples are from, and their messages. Values
are left out. Any thread may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall_engine.acking.dead_letters import roots_of
from squall_engine.core import Source, Tuple
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

ROOTS_MAX = 3  # that are named
_MESSAGE_ID_CHARS_MAX = 200

# What the messages of trees are called that this worker does not know, by root.
Names = Mapping[int, str]


def describe_tuple(tup: Tuple, built: Sequence[Built], names: Names) -> str:
    """`a tuple of words (task 3), stream default, message id 17`."""
    source = tup.source
    text = f"a tuple of {source.component} (task {source.task}), stream {source.stream}"
    return f"{text}, {_messages(roots_of(tup), built, names)}"


def describe_batch(tuples: Sequence[Tuple], built: Sequence[Built], names: Names) -> str:
    """`20 tuple(s) of words, stream default, message id 17, message id 18 and others`."""
    return f"{describe_rows(len(tuples), tuples[0].source)}, " + _messages(
        roots_of_batch(tuples), built, names
    )


def describe_rows(count: int, source: Source) -> str:
    """`20 tuple(s) of words, stream default`."""
    return f"{count} tuple(s) of {source.component}, stream {source.stream}"


def roots_of_batch(tuples: Sequence[Tuple]) -> list[int]:
    """The trees of the first few tuples."""
    return [root for tup in tuples[: ROOTS_MAX + 1] for root in roots_of(tup)]


def messages_of(tuples: Sequence[Tuple], built: Sequence[Built]) -> dict[int, Any]:
    """The ids of the messages of the first few trees, by root, as far as they are in flight from
    spouts of this worker."""
    found = {root: _find_message(root, built) for root in roots_of_batch(tuples)}
    return {root: message[0] for root, message in found.items() if message is not None}


def _find_message(root: int, built: Sequence[Built]) -> tuple[Any] | None:
    for one in built:
        if isinstance(one.task, SpoutTask):
            found = one.task.pending.find_message(root)
            if found is not None:
                return found
    return None


def describe_message(root: int, built: Sequence[Built]) -> str | None:
    """The message of a tree, when it is in flight from a spout of this worker: `message id 7`."""
    found = _find_message(root, built)
    return None if found is None else describe_message_id(found[0])


def describe_message_id(message_id: Any) -> str:
    """`message id 7`, in bounded length."""
    message_id = getattr(message_id, "message_id", message_id)  # of a dead letter
    try:
        text = repr(message_id)
    except Exception as error:
        text = f"({type(error).__name__} in its repr)"
    if len(text) > _MESSAGE_ID_CHARS_MAX:
        text = f"{text[:_MESSAGE_ID_CHARS_MAX]}..."
    return f"message id {text}"


def _messages(roots: Sequence[int], built: Sequence[Built], names: Names) -> str:
    if not roots:
        return "unanchored"
    shown = ", ".join(
        describe_message(root, built) or names.get(root) or f"tree {root:016x}"
        for root in roots[:ROOTS_MAX]
    )
    return f"{shown} and others" if len(roots) > ROOTS_MAX else shown
