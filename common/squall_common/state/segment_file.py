"""Writes a segment to a store, also one that does not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.segment import Footer, SegmentParts, SegmentRef, encode_segment
from squall_common.state.task_state import Blocks


def put_segment(
    store: CheckpointStore, footer: Footer, blocks: Blocks, name: str, groups: range
) -> SegmentRef:
    """Write it; it is durable when this returns. `footer` comes without blocks, `groups` are those
    of the task. Raises StateStoreError."""
    if isinstance(blocks, Mapping):
        data, ref = encode_segment(footer, blocks, name, groups)
        store.put(name, data)
        return ref
    parts = SegmentParts(footer, blocks, name, groups)
    store.put_parts(name, parts)
    assert parts.ref is not None
    return parts.ref
