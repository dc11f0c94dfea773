"""The cluster: its summary, Nimbus nodes, supervisors, owners, history, configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from squall_thrift import storm
from squall_ui.rest.endpoints import Ask, Endpoint, Param, RequestError, Site
from squall_ui.rest.resources import RESOURCES, resources
from squall_ui.rest.shapes import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    array,
    extended,
    map_of,
    nullable,
    obj,
)
from squall_ui.rest.text import Logviewers, encoded, log_link, pretty_secs, worker_log_link

# Under which names supervisors publish what they have.
_MEMORY = ("supervisor.memory.capacity.mb", "memory.mb")
_CPU = ("supervisor.cpu.capacity", "cpu.pcore.percent")
# The configuration of Nimbus does not change while it runs.
_CONF_AGE_SECS = 60.0

VERSION_INFO = obj(version=TEXT, revision=TEXT, branch=TEXT, date=TEXT, srcChecksum=TEXT)
CLUSTER = obj(
    {"bugtracker-url": nullable(TEXT), "central-log-url": nullable(TEXT)},
    user=nullable(TEXT), stormVersion=TEXT, stormVersionInfo=VERSION_INFO, versionMatch=FLAG,
    alternativeWorkerVersions=array(TEXT), nimbusUptime=TEXT, nimbusUptimeSeconds=COUNT,
    supervisors=COUNT, topologies=COUNT, slotsTotal=COUNT, slotsUsed=COUNT, slotsFree=COUNT,
    executorsTotal=COUNT, tasksTotal=COUNT, schedulerDisplayResource=FLAG,
    totalMem=NUMBER, totalCpu=NUMBER, availMem=NUMBER, availCpu=NUMBER, fragmentedMem=NUMBER,
    fragmentedCpu=NUMBER, memAssignedPercentUtil=NUMBER, cpuAssignedPercentUtil=NUMBER,
    totalGenerics=TEXT, availGenerics=TEXT,
)  # fmt: skip
NIMBUS = obj(
    host=TEXT, port=COUNT, status={"type": "string", "enum": ["Leader", "Not a Leader", "Offline"]},
    version=TEXT, nimbusUpTime=TEXT, nimbusUpTimeSeconds=COUNT, nimbusLogLink=nullable(TEXT),
    isLeader=FLAG,
)  # fmt: skip
NIMBUSES = obj(nimbuses=array(NIMBUS))
OWNER = obj(
    owner=TEXT, totalTopologies=COUNT, totalExecutors=COUNT, totalWorkers=COUNT, totalTasks=COUNT,
    totalMemoryUsage=NUMBER, totalCpuUsage=NUMBER, memoryGuarantee=nullable(NUMBER),
    cpuGuarantee=nullable(NUMBER), memoryGuaranteeRemaining=nullable(NUMBER),
    cpuGuaranteeRemaining=nullable(NUMBER), isolatedNodes=COUNT, totalReqOnHeapMem=NUMBER,
    totalReqOffHeapMem=NUMBER, totalReqMem=NUMBER, totalReqCpu=NUMBER,
    totalAssignedOnHeapMem=NUMBER, totalAssignedOffHeapMem=NUMBER,
)  # fmt: skip
OWNERS = obj(schedulerDisplayResource=FLAG, owners=array(OWNER))
EXIT = obj(time=COUNT, host=TEXT, port=COUNT, reason=TEXT, lastLine=TEXT)
TOPOLOGY_SUMMARY = extended(
    RESOURCES,
    obj(
        id=TEXT, encodedId=TEXT, owner=TEXT, name=TEXT, status=TEXT, uptime=TEXT,
        uptimeSeconds=COUNT, tasksTotal=COUNT, workersTotal=COUNT, executorsTotal=COUNT,
        replicationCount=COUNT, schedulerInfo=TEXT, topologyVersion=nullable(TEXT),
        stormVersion=nullable(TEXT), health=TEXT, restarts=COUNT, lastExit=nullable(EXIT),
        finished=nullable(FLAG),
    ),
)  # fmt: skip
TOPOLOGIES = obj(topologies=array(TOPOLOGY_SUMMARY), schedulerDisplayResource=FLAG)
OWNER_PAGE = extended(OWNER, obj(topologies=array(TOPOLOGY_SUMMARY), schedulerDisplayResource=FLAG))
SUPERVISOR = obj(
    id=TEXT, host=TEXT, uptime=TEXT, uptimeSeconds=COUNT, slotsTotal=COUNT, slotsUsed=COUNT,
    slotsFree=COUNT, totalMem=NUMBER, totalCpu=NUMBER, usedMem=NUMBER, usedCpu=NUMBER,
    availMem=NUMBER, availCpu=NUMBER, version=TEXT, blacklisted=FLAG, unhealthy=nullable(TEXT),
    totalGenericResources=map_of(NUMBER), usedGenericResources=map_of(NUMBER),
    availGenericResources=map_of(NUMBER), logLink=nullable(TEXT),
)  # fmt: skip
SUPERVISORS = obj(
    schedulerDisplayResource=FLAG, supervisors=array(SUPERVISOR), logviewerPort=COUNT,
    logviewerScheme=TEXT,
)  # fmt: skip
WORKER = obj(
    supervisorId=TEXT, host=TEXT, port=COUNT, topologyId=TEXT, topologyName=TEXT,
    executorsTotal=COUNT, assignedMemOnHeap=NUMBER, assignedMemOffHeap=NUMBER, assignedCpu=NUMBER,
    componentNumTasks=map_of(COUNT), uptime=TEXT, uptimeSeconds=COUNT,
    workerLogLink=nullable(TEXT), owner=TEXT,
)  # fmt: skip
SUPERVISOR_PAGE = obj(
    supervisors=array(SUPERVISOR), workers=array(WORKER), schedulerDisplayResource=FLAG,
    logviewerPort=COUNT, logviewerScheme=TEXT,
)  # fmt: skip


async def configuration(ask: Ask) -> Any:
    """Nimbus' configuration; what may be a secret is masked by Nimbus."""
    return await _conf(ask.site)


async def _conf(site: Site) -> dict[str, Any]:
    found = json.loads(await site.nimbus.read("getNimbusConf", max_age_secs=_CONF_AGE_SECS))
    assert isinstance(found, dict)
    return found


async def shows_resources(site: Site) -> bool:
    """Whether memory and CPU mean something in this cluster: it schedules by them."""
    conf = await _conf(site)
    return bool(conf.get("scheduler.display.resource"))


async def summary(ask: Ask) -> Any:
    cluster: storm.ClusterSummary = await ask.site.nimbus.read("getClusterInfo")
    return cluster_summary(cluster, await shows_resources(ask.site))


def cluster_summary(cluster: storm.ClusterSummary, display_resource: bool) -> dict[str, Any]:
    supervisors = [supervisor_json(one, None) for one in cluster.supervisors]
    leader = next((one for one in cluster.nimbuses if one.isLeader), None)
    version = leader.version if leader else ""
    total_mem = sum(one["totalMem"] for one in supervisors)
    total_cpu = sum(one["totalCpu"] for one in supervisors)
    avail_mem = sum(one["availMem"] for one in supervisors)
    avail_cpu = sum(one["availCpu"] for one in supervisors)
    slots = sum(one["slotsTotal"] for one in supervisors)
    used = sum(one["slotsUsed"] for one in supervisors)
    versions = {one.version for one in cluster.supervisors if one.version}
    return {
        "user": None,
        "stormVersion": version,
        "stormVersionInfo": {
            "version": version,
            "revision": "",
            "branch": "",
            "date": "",
            "srcChecksum": "",
        },
        "versionMatch": versions <= {version},
        "alternativeWorkerVersions": [],
        "nimbusUptime": pretty_secs(leader.uptime_secs if leader else 0),
        "nimbusUptimeSeconds": leader.uptime_secs if leader else 0,
        "supervisors": len(supervisors),
        "topologies": len(cluster.topologies),
        "slotsTotal": slots,
        "slotsUsed": used,
        "slotsFree": max(0, slots - used),
        "executorsTotal": sum(one.num_executors for one in cluster.topologies),
        "tasksTotal": sum(one.num_tasks for one in cluster.topologies),
        "schedulerDisplayResource": display_resource,
        "totalMem": total_mem,
        "totalCpu": total_cpu,
        "availMem": avail_mem,
        "availCpu": avail_cpu,
        "fragmentedMem": sum(one.fragmented_mem or 0.0 for one in cluster.supervisors),
        "fragmentedCpu": sum(one.fragmented_cpu or 0.0 for one in cluster.supervisors),
        "memAssignedPercentUtil": _percent(total_mem - avail_mem, total_mem),
        "cpuAssignedPercentUtil": _percent(total_cpu - avail_cpu, total_cpu),
        "totalGenerics": _generics(supervisors, "totalGenericResources"),
        "availGenerics": _generics(supervisors, "availGenericResources"),
        "bugtracker-url": None,
        "central-log-url": None,
    }


def _percent(part: float, whole: float) -> float:
    return round(100.0 * part / whole, 1) if whole else 0.0


def _generics(supervisors: Iterable[dict[str, Any]], field: str) -> str:
    sums: dict[str, float] = {}
    for one in supervisors:
        for name, amount in one[field].items():
            sums[name] = sums.get(name, 0.0) + amount
    return ", ".join(f"{name}: {amount:g}" for name, amount in sorted(sums.items()))


async def nimbuses(ask: Ask) -> Any:
    cluster: storm.ClusterSummary = await ask.site.nimbus.read("getClusterInfo")
    return {"nimbuses": [nimbus_json(one, ask.site.logviewers) for one in cluster.nimbuses]}


def nimbus_json(one: storm.NimbusSummary, logviewers: Logviewers) -> dict[str, Any]:
    return {
        "host": one.host,
        "port": one.port,
        "status": "Leader" if one.isLeader else "Not a Leader",
        "isLeader": bool(one.isLeader),
        "version": one.version,
        "nimbusUpTime": pretty_secs(one.uptime_secs),
        "nimbusUpTimeSeconds": one.uptime_secs,
        "nimbusLogLink": log_link(one.host, logviewers, "nimbus.log", daemon=True),
    }


def supervisor_json(one: storm.SupervisorSummary, logviewers: Logviewers | None) -> dict[str, Any]:
    totals = dict(one.total_resources or {})
    mem, cpu = (
        max((totals.pop(name, 0.0) for name in names), default=0.0) for names in (_MEMORY, _CPU)
    )
    used_generic = dict(one.used_generic_resources or {})
    used_mem, used_cpu = one.used_mem or 0.0, one.used_cpu or 0.0
    return {
        "id": one.supervisor_id,
        "host": one.host,
        "uptime": pretty_secs(one.uptime_secs),
        "uptimeSeconds": one.uptime_secs,
        "slotsTotal": one.num_workers,
        "slotsUsed": one.num_used_workers,
        "slotsFree": max(0, one.num_workers - one.num_used_workers),
        "totalMem": mem,
        "totalCpu": cpu,
        "usedMem": used_mem,
        "usedCpu": used_cpu,
        "availMem": max(0.0, mem - used_mem),
        "availCpu": max(0.0, cpu - used_cpu),
        "version": one.version or "",
        "blacklisted": bool(one.blacklisted),
        "unhealthy": one.unhealthy,
        "totalGenericResources": totals,
        "usedGenericResources": used_generic,
        "availGenericResources": {
            name: amount - used_generic.get(name, 0.0) for name, amount in totals.items()
        },
        "logLink": None
        if logviewers is None
        else log_link(one.host, logviewers, "supervisor.log", daemon=True),
    }


async def supervisors(ask: Ask) -> Any:
    cluster: storm.ClusterSummary = await ask.site.nimbus.read("getClusterInfo")
    logviewers = ask.site.logviewers
    return {
        "schedulerDisplayResource": await shows_resources(ask.site),
        "supervisors": [supervisor_json(one, logviewers) for one in cluster.supervisors],
        "logviewerPort": logviewers.port,
        "logviewerScheme": logviewers.scheme,
    }


async def supervisor(ask: Ask) -> Any:
    wanted, host = ask.query.get("id") or None, ask.query.get("host") or None
    if (wanted is None) == (host is None):
        raise RequestError(400, "name one supervisor by id, or all of a machine by host")
    page: storm.SupervisorPageInfo = await ask.site.nimbus.read(
        "getSupervisorPageInfo", wanted, host, ask.with_system
    )
    if not page.supervisor_summaries:
        raise RequestError(404, f"there is no supervisor {wanted or f'on {host}'}")
    logviewers = ask.site.logviewers
    return {
        "supervisors": [supervisor_json(one, logviewers) for one in page.supervisor_summaries],
        "workers": [worker_json(one, logviewers) for one in page.worker_summaries or ()],
        "schedulerDisplayResource": await shows_resources(ask.site),
        "logviewerPort": logviewers.port,
        "logviewerScheme": logviewers.scheme,
    }


def worker_json(one: storm.WorkerSummary, logviewers: Logviewers) -> dict[str, Any]:
    return {
        "supervisorId": one.supervisor_id or "",
        "host": one.host or "",
        "port": one.port or 0,
        "topologyId": one.topology_id or "",
        "topologyName": one.topology_name or "",
        "executorsTotal": one.num_executors or 0,
        "assignedMemOnHeap": one.assigned_memonheap or 0.0,
        "assignedMemOffHeap": one.assigned_memoffheap or 0.0,
        "assignedCpu": one.assigned_cpu or 0.0,
        "componentNumTasks": dict(one.component_to_num_tasks or {}),
        "uptime": pretty_secs(one.uptime_secs),
        "uptimeSeconds": one.uptime_secs or 0,
        "workerLogLink": worker_log_link(
            one.host, one.port, one.topology_id or "", logviewers
        ),
        "owner": one.owner or "",
    }  # fmt: skip


async def topologies(ask: Ask) -> Any:
    cluster: storm.ClusterSummary = await ask.site.nimbus.read("getClusterInfo")
    return {
        "topologies": [topology_summary(one) for one in cluster.topologies],
        "schedulerDisplayResource": await shows_resources(ask.site),
    }


def topology_summary(one: storm.TopologySummary) -> dict[str, Any]:
    last = one.last_exit
    return {
        **resources(one),
        "id": one.id,
        "encodedId": encoded(one.id),
        "owner": one.owner or "",
        "name": one.name,
        "status": one.status,
        "uptime": pretty_secs(one.uptime_secs),
        "uptimeSeconds": one.uptime_secs,
        "tasksTotal": one.num_tasks,
        "workersTotal": one.num_workers,
        "executorsTotal": one.num_executors,
        "replicationCount": one.replication_count or 0,
        "schedulerInfo": one.sched_status or "",
        "topologyVersion": one.topology_version,
        "stormVersion": one.storm_version,
        "health": one.health or "",
        "restarts": one.restarts or 0,
        "finished": one.finished,
        "lastExit": None
        if last is None
        else {
            "time": last.time_secs,
            "host": last.host,
            "port": last.port,
            "reason": last.reason,
            "lastLine": last.last_line,
        },
    }


async def owners(ask: Ask) -> Any:
    found = await ask.site.nimbus.read("getOwnerResourceSummaries", None)
    return {
        "schedulerDisplayResource": await shows_resources(ask.site),
        "owners": [owner_json(one) for one in found],
    }


async def owner(ask: Ask) -> Any:
    name = ask.path["id"]
    found = await ask.site.nimbus.read("getOwnerResourceSummaries", name)
    cluster: storm.ClusterSummary = await ask.site.nimbus.read("getClusterInfo")
    own = [one for one in cluster.topologies if (one.owner or "") == name]
    known = found[0] if found else storm.OwnerResourceSummary(owner=name)
    return {
        **owner_json(known),
        "topologies": [topology_summary(one) for one in own],
        "schedulerDisplayResource": await shows_resources(ask.site),
    }


def owner_json(one: storm.OwnerResourceSummary) -> dict[str, Any]:
    return {
        "owner": one.owner,
        "totalTopologies": one.total_topologies or 0,
        "totalExecutors": one.total_executors or 0,
        "totalWorkers": one.total_workers or 0,
        "totalTasks": one.total_tasks or 0,
        "totalMemoryUsage": one.memory_usage or 0.0,
        "totalCpuUsage": one.cpu_usage or 0.0,
        "memoryGuarantee": one.memory_guarantee,
        "cpuGuarantee": one.cpu_guarantee,
        "memoryGuaranteeRemaining": one.memory_guarantee_remaining,
        "cpuGuaranteeRemaining": one.cpu_guarantee_remaining,
        "isolatedNodes": one.isolated_node_guarantee or 0,
        "totalReqOnHeapMem": one.requested_on_heap_memory or 0.0,
        "totalReqOffHeapMem": one.requested_off_heap_memory or 0.0,
        "totalReqMem": one.requested_total_memory or 0.0,
        "totalReqCpu": one.requested_cpu or 0.0,
        "totalAssignedOnHeapMem": one.assigned_on_heap_memory or 0.0,
        "totalAssignedOffHeapMem": one.assigned_off_heap_memory or 0.0,
    }


async def history(ask: Ask) -> Any:
    found: storm.TopologyHistoryInfo = await ask.site.nimbus.read("getTopologyHistory", None)
    return {"topo-history": list(found.topo_ids or ())}


ENDPOINTS = (
    Endpoint(
        "GET", "/cluster/configuration", "Nimbus' configuration, with secrets masked.",
        map_of(ANY), configuration, "getNimbusConf",
    ),
    Endpoint(
        "GET", "/cluster/summary", "Sums over the cluster.", CLUSTER, summary, "getClusterInfo",
    ),
    Endpoint("GET", "/nimbus/summary", "Every Nimbus.", NIMBUSES, nimbuses, "getClusterInfo"),
    Endpoint(
        "GET", "/owner-resources", "What each owner of topologies uses.",
        OWNERS, owners, "getOwnerResourceSummaries",
    ),
    Endpoint(
        "GET", "/owner-resources/{id}", "What one owner uses, and the owner's topologies.",
        OWNER_PAGE, owner, "getOwnerResourceSummaries",
        (Param("id", "An owner's name.", in_path=True),),
    ),
    Endpoint(
        "GET", "/history/summary", "The ids of all topologies, with those that have ended.",
        obj({"topo-history": array(TEXT)}), history, "getTopologyHistory",
    ),
    Endpoint(
        "GET", "/supervisor/summary", "Every supervisor.", SUPERVISORS, supervisors,
        "getClusterInfo",
    ),
    Endpoint(
        "GET", "/supervisor", "The supervisors of a machine, or one of them, and their workers.",
        SUPERVISOR_PAGE, supervisor, "getSupervisorPageInfo",
        (
            Param("id", "A supervisor's id."),
            Param("host", "Instead of id: a machine's name."),
            Param("sys", "true: with system components."),
        ),
    ),
    Endpoint(
        "GET", "/topology/summary", "Every topology.", TOPOLOGIES, topologies,
        "getTopologySummaries",
    ),
)  # fmt: skip
