"""Calls that ask about one topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from squall_common.topology.thrift import to_thrift
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.store.topology_store import StoredTopology
from squall_nimbus.views import pages, stats, views
from squall_nimbus.views.cluster_reader import Errors
from squall_nimbus.views.views import TopologyView
from squall_thrift import codec, storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.off_loop import off_loop_if

T = TypeVar("T")

_ERRORS = {
    storm.NumErrorsChoice.ALL: Errors.ALL,
    storm.NumErrorsChoice.ONE: Errors.ONE,
    storm.NumErrorsChoice.NONE: Errors.NONE,
}


def _errors(options: storm.GetInfoOptions | None) -> Errors:
    choice = options.num_err_choice if options is not None else None
    return Errors.ALL if choice is None else _ERRORS[choice]


def _encoded(make: Callable[..., T], *args: Any) -> T:
    """Return the result of `make` as bytes: its objects are freed on the thread that made them."""
    made: Any = codec.encoded(make(*args))
    return made  # type: ignore[no-any-return]


class TopologyCalls(Calls):
    """Calls that take a topology's id, or its name where the method's name says so."""

    async def _id(self, name: str | None) -> str:
        return (await self.nimbus.lifecycle.find(needed(name, "name")))[0]

    async def _page(self, topology_id: str | None) -> tuple[TopologyView, StoredTopology]:
        view = await self.nimbus.reader.view(needed(topology_id, "id"))
        assert view.stored is not None
        return view, view.stored

    async def _info(self, topology_id: str, errors: Errors = Errors.ALL) -> storm.TopologyInfo:
        view = await self.nimbus.reader.view(topology_id, errors)
        return await off_loop_if(view.is_large, _encoded, views.topology_info, view)

    @operation("getTopologySummaries")
    async def getTopologySummaries(self, call: Call) -> list[storm.TopologySummary]:
        return self._shown(call, await self.nimbus.reader.summaries())

    @operation("getTopologySummaryByName", by_name="name")
    async def getTopologySummaryByName(self, call: Call, name: str | None) -> storm.TopologySummary:
        return await self.nimbus.reader.summary(await self._id(name))

    @operation("getTopologySummary", by_id="id")
    async def getTopologySummary(self, call: Call, id: str | None) -> storm.TopologySummary:
        return await self.nimbus.reader.summary(needed(id, "id"))

    @operation("getTopologyInfo", by_id="id")
    async def getTopologyInfo(self, call: Call, id: str | None) -> storm.TopologyInfo:
        return await self._info(needed(id, "id"))

    @operation("getTopologyInfo", by_id="id")
    async def getTopologyInfoWithOpts(
        self, call: Call, id: str | None, options: storm.GetInfoOptions | None
    ) -> storm.TopologyInfo:
        return await self._info(needed(id, "id"), _errors(options))

    @operation("getTopologyInfo", by_name="name")
    async def getTopologyInfoByName(self, call: Call, name: str | None) -> storm.TopologyInfo:
        return await self._info(await self._id(name))

    @operation("getTopologyInfo", by_name="name")
    async def getTopologyInfoByNameWithOpts(
        self, call: Call, name: str | None, options: storm.GetInfoOptions | None
    ) -> storm.TopologyInfo:
        return await self._info(await self._id(name), _errors(options))

    @operation("getTopologyPageInfo", by_id="id")
    async def getTopologyPageInfo(
        self, call: Call, id: str | None, window: str | None, is_include_sys: bool | None
    ) -> storm.TopologyPageInfo:
        view, stored = await self._page(id)
        page = await off_loop_if(
            view.is_large,
            pages.topology_page,
            view,
            stored,
            stats.known_window(window),
            bool(is_include_sys),
        )
        page.finished = await self.nimbus.reader.finished(view.id, page.finished)
        return page

    @operation("getComponentPageInfo", by_id="topology_id")
    async def getComponentPageInfo(
        self,
        call: Call,
        topology_id: str | None,
        component_id: str | None,
        window: str | None,
        is_include_sys: bool | None,
    ) -> storm.ComponentPageInfo:
        view, stored = await self._page(topology_id)
        component_id = needed(component_id, "component_id")
        if component_id not in stored.compiled.components:
            raise refused(f"topology {view.id} has no component {component_id!r}")
        return await off_loop_if(
            view.is_large,
            _encoded,
            pages.component_page,
            view,
            stored,
            component_id,
            stats.known_window(window),
            bool(is_include_sys),
        )

    @operation("getTopologyConf", by_id="id")
    async def getTopologyConf(self, call: Call, id: str | None) -> str:
        stored = await self.nimbus.reader.stored(needed(id, "id"))
        # Clients reconnect to the Nimbus that this names.
        options = self.nimbus.options
        here = {
            "nimbus.thrift.port": options.nimbus_thrift_port,
            "nimbus.seeds": options.nimbus_seeds,
        }
        return views.shown_conf({**stored.conf, **here, "storm.id": stored.id})

    @operation("getTopology", by_id="id")
    async def getTopology(self, call: Call, id: str | None) -> storm.StormTopology:
        stored = await self.nimbus.reader.stored(needed(id, "id"))
        return to_thrift(stored.compiled)

    @operation("getUserTopology", by_id="id")
    async def getUserTopology(self, call: Call, id: str | None) -> storm.StormTopology:
        return (await self.nimbus.reader.stored(needed(id, "id"))).submitted
