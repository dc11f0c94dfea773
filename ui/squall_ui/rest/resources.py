"""Memory and CPU of topologies and workers, under Storm's names. What Nimbus does not say is 0."""

from __future__ import annotations

from typing import Any

from squall_ui.rest.shapes import NUMBER, Shape, map_of, obj

_PARTS = {
    "MemOnHeap": "memonheap",
    "MemOffHeap": "memoffheap",
    "Cpu": "cpu",
}

RESOURCES: Shape = obj(
    requestedMemOnHeap=NUMBER,
    requestedMemOffHeap=NUMBER,
    requestedTotalMem=NUMBER,
    requestedCpu=NUMBER,
    requestedGenericResources=map_of(NUMBER),
    assignedMemOnHeap=NUMBER,
    assignedMemOffHeap=NUMBER,
    assignedTotalMem=NUMBER,
    assignedCpu=NUMBER,
    assignedGenericResources=map_of(NUMBER),
)

COMPONENT_RESOURCES: Shape = obj(
    requestedMemOnHeap=NUMBER, requestedMemOffHeap=NUMBER, requestedCpu=NUMBER,
    requestedGenericResourcesComp=map_of(NUMBER),
)  # fmt: skip


def resources(one: Any) -> dict[str, Any]:
    """Of a TopologySummary or a TopologyPageInfo."""
    found: dict[str, Any] = {}
    for kind in ("requested", "assigned"):
        for name, field in _PARTS.items():
            found[f"{kind}{name}"] = float(getattr(one, f"{kind}_{field}", None) or 0.0)
        total = found[f"{kind}MemOnHeap"] + found[f"{kind}MemOffHeap"]
        found[f"{kind}TotalMem"] = total
        generic = getattr(one, f"{kind}_generic_resources", None)
        found[f"{kind}GenericResources"] = dict(generic or {})
    return found


def component_resources(resources_map: dict[str, float] | None) -> dict[str, Any]:
    """What a component asks for, by the names of Storm's resource map."""
    left = dict(resources_map or {})
    return {
        "requestedMemOnHeap": left.pop("onheap.memory.mb", 0.0),
        "requestedMemOffHeap": left.pop("offheap.memory.mb", 0.0),
        "requestedCpu": left.pop("cpu.pcore.percent", 0.0),
        "requestedGenericResourcesComp": left,
    }
