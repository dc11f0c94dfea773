"""Operations that take several requests: whole subtrees, missing parents and many nodes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from squall_common.cluster.store import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Store,
    parent_of,
)

# A node that others keep filling while we empty it is given up after so many rounds.
_ROUNDS_MAX = 20
# Answers that arrive together are decoded together: 64 assignments hold the loop for some 10 ms.
_READ_AT_ONCE = 64

_T = TypeVar("_T")


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


async def read_each(
    names: Iterable[str], read: Callable[[str], Awaitable[_T]]
) -> dict[str, _T | BaseException]:
    """Return what `read` gives for each name, or the exception that it raised, without holding the
    loop for long however many there are. Later answers may be newer than earlier ones."""
    rest = iter(names)
    found: dict[str, _T | BaseException] = {}
    while batch := list(islice(rest, _READ_AT_ONCE)):
        answers = await asyncio.gather(*map(read, batch), return_exceptions=True)
        found.update(zip(batch, answers, strict=True))
    return found
