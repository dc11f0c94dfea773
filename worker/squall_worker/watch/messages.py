"""Names the messages of trees, for errors about calls that do not return.

A worker knows the messages of its own spouts. It asks for those of other workers through the
cluster state (see `squall_common.cluster.questions`), since its own run loop may be stuck. In turn
it answers the questions of others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from squall_common.cluster import questions
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import Store, StoreError
from squall_common.config.options.typed import WorkerOptions
from squall_common.daemon.logs import get_logger
from squall_common.worker_files.zookeeper_file import ZooKeeperFile

log = get_logger(__name__)

ASK_SECS = 3.0
_NAMES_MAX = 100
_AGAIN_SECS = 5.0  # after a reading that failed

# Asks which messages trees belong to, for at most about the given seconds.
Ask = Callable[[Collection[int], float], Mapping[int, str]]
# The message of a tree, when it is in flight from a spout of this worker.
MessageOf = Callable[[int], str | None]


class MessageNames:
    """Known messages, by the root of their tree. `look_up` and `names` belong to one thread; asking
    is done on another."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._wanted: dict[int, None] = {}
        self._asking: threading.Thread | None = None

    @property
    def names(self) -> Mapping[int, str]:
        return self._names

    def look_up(self, roots: Sequence[int], message_of: MessageOf) -> None:
        """Find the messages of these trees, and keep them: a tree may fail before its name is
        needed."""
        for root in roots:
            name = message_of(root)
            if name is not None:
                self._keep({root: name})
            elif root not in self._names and len(self._wanted) < _NAMES_MAX:
                self._wanted[root] = None

    def ask(self) -> None:
        """Ask for the missing messages, one question at a time. Does not wait."""
        if self._wanted and not self.is_asking:
            roots = list(self._wanted)
            self._wanted.clear()
            self._asking = threading.Thread(
                target=self._ask_for, args=(roots,), name="ask for messages", daemon=True
            )
            self._asking.start()

    @property
    def is_asking(self) -> bool:
        return self._asking is not None and self._asking.is_alive()

    def wait_answered(self, secs: float) -> None:
        """From any thread."""
        asking = self._asking
        if asking is not None:
            asking.join(secs)

    def _ask_for(self, roots: Sequence[int]) -> None:
        try:
            self._keep(self._ask(roots, ASK_SECS))
        except Exception as error:
            log.warning("messages_not_known", trees=len(roots), error=error)

    def _keep(self, names: Mapping[int, str]) -> None:
        with self._lock:
            kept = {**self._names, **names}
            self._names = dict(list(kept.items())[-_NAMES_MAX:])


def ask_aside(options: WorkerOptions, topology_id: str, digest: ZooKeeperFile) -> Ask:
    """Asks with a temporary loop and ZooKeeper session of its own."""

    def ask(roots: Collection[int], secs: float) -> Mapping[int, str]:
        async def run() -> Mapping[int, str]:
            state = ClusterState.of(options, digest.read())
            try:
                async with asyncio.timeout(secs):
                    await state.store.start()
                return await questions.ask(state.store, topology_id, roots, secs)
            finally:
                await state.close()

        return asyncio.run(run())

    return ask


async def answer_questions(store: Store, topology_id: str, message_of: MessageOf) -> None:
    """Answer the questions of other workers, until the topology is gone."""
    changed = asyncio.Event()

    def fired(path: str) -> None:
        changed.set()

    while True:
        changed.clear()
        try:
            roots = await questions.asked(store, topology_id, fired)
            if roots is None:
                return
            for root in roots:
                name = message_of(root)
                if name is not None:
                    await questions.answer(store, topology_id, root, name)
        except StoreError:
            await asyncio.sleep(_AGAIN_SECS)
        else:
            await changed.wait()
