"""Finding the message that a tree belongs to: a worker asks, and the worker of its spout answers.

A worker that is stuck in a call knows the root of the tuple's tree, but only the worker of the
spout knows the message. Its run loop is stuck, and with it the links to the other workers, so the
question goes through the cluster state, by the session that reports the stuck call:

    /workerbeats/ID/questions/ROOT    ephemeral; empty, then the answer as text

A question goes with the session of who asks. Workers with spouts watch the list of questions, and
the one that knows the root writes the answer. If no worker answers (the tree has failed meanwhile,
the worker is from before this was there), who asks goes on without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from squall_common.cluster import paths
from squall_common.cluster.store import NodeExistsError, NoNodeError, Store, Watcher

QUESTIONS_MAX = 100  # that are looked at in one reading of the list
_ANSWER_BYTES_MAX = 1000


async def ask(
    store: Store, topology_id: str, roots: Collection[int], secs: float
) -> dict[int, str]:
    """The answers that come within `secs`, by root. Raises StoreError."""
    answers: dict[int, str] = {}
    changed = asyncio.Event()

    def fired(path: str) -> None:
        changed.set()

    try:
        async with asyncio.timeout(secs):
            await _make(store, paths.questions(topology_id))
            for root in roots:
                await _make(store, paths.question(topology_id, root), ephemeral=True)
            while True:
                changed.clear()
                for root in roots:
                    if root not in answers:
                        path = paths.question(topology_id, root)
                        value, _ = await store.get(path, fired)
                        if value:
                            answers[root] = value[:_ANSWER_BYTES_MAX].decode(errors="replace")
                if len(answers) == len(roots):
                    break
                await changed.wait()
    except (TimeoutError, NoNodeError):
        pass  # no worker knows, or the topology is gone
    return answers


async def asked(store: Store, topology_id: str, watch: Watcher) -> list[int] | None:
    """The roots that workers ask about, a bounded number of them; None if the topology is gone.
    Raises StoreError."""
    parent = paths.questions(topology_id)
    try:
        await _make(store, parent)
        names = await store.children(parent, watch)
    except NoNodeError:
        return None
    roots = (paths.root_of_question(name) for name in names[:QUESTIONS_MAX])
    return [root for root in roots if root is not None]


async def answer(store: Store, topology_id: str, root: int, text: str) -> None:
    """Answer a question; does nothing if it is no longer asked. Raises StoreError."""
    value = text.encode(errors="replace")[:_ANSWER_BYTES_MAX]
    try:
        await store.set(paths.question(topology_id, root), value)
    except NoNodeError:
        pass


async def _make(store: Store, path: str, *, ephemeral: bool = False) -> None:
    if await store.exists(path) is None:
        try:
            await store.create(path, ephemeral=ephemeral)
        except NodeExistsError:
            pass
