"""Operations that take several requests: whole subtrees and missing parents, on any store."""

import asyncio

from squall_common.cluster.store import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Store,
    parent_of,
)

# A node that others keep filling while we empty it is given up after so many rounds.
_ROUNDS_MAX = 20


async def delete_tree(store: Store, path: str) -> None:
    """Delete `path` and everything below it, children first; fine when it is not there.

    Not atomic. Raises NotEmptyError when others kept adding children.
    """
    for attempt in range(_ROUNDS_MAX):
        try:
            names = await store.children(path)
            await asyncio.gather(*(delete_tree(store, f"{path}/{name}") for name in names))
            await store.delete(path)
            return
        except NoNodeError:
            return
        except NotEmptyError:
            if attempt == _ROUNDS_MAX - 1:
                raise


async def make_parents(store: Store, path: str) -> None:
    """Create what is missing above `path`."""
    parent = parent_of(path)
    if parent != "/" and await store.exists(parent) is None:
        await make_parents(store, parent)
        try:
            await store.create(parent)
        except NodeExistsError:
            pass
