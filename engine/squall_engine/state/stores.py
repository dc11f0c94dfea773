"""Where the state of a topology's bolts is stored: what `topology.state.provider` says."""

from __future__ import annotations

from collections.abc import Callable

from squall_common.component.stored_state import provider_of
from squall_common.config.options.typed import TopologyOptions
from squall_common.state.task_store import SegmentStore, TaskPlace, TaskStore

MakeStore = Callable[[TaskPlace], TaskStore]


def store_maker(options: TopologyOptions) -> MakeStore | None:
    """What makes the store of a task; None if state is only in memory. Raises ConfigError."""
    provider = provider_of(options)
    if provider.name == "memory":
        return None
    if provider.name == "redis":

        def of_redis(place: TaskPlace) -> TaskStore:
            from squall_common.state.redis_store import RedisStore

            return RedisStore(provider.url, place)

        return of_redis
    from squall_common.state.checkpoint_store import CheckpointStore

    store = CheckpointStore(provider.url)
    return lambda place: SegmentStore(store, place)
