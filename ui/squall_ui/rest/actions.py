"""What changes a topology: activate, deactivate, rebalance, kill, debug, log levels, profiles,
restarts of workers.

`ui.actions.enabled: false` refuses all of them. The listener refuses them from other sites' pages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from squall_thrift import storm
from squall_ui.rest.endpoints import (
    COMPONENT,
    HOST_PORT,
    ID,
    Ask,
    Endpoint,
    Param,
    RequestError,
)
from squall_ui.rest.shapes import COUNT, NUMBER, TEXT, Shape, array, map_of, nullable, obj
from squall_ui.rest.text import dump_link

_INT_MAX = 2**31 - 1
_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL", "CRITICAL", "OFF")
_SAMPLE_SECS_MAX = 60
_PROFILE_MINUTES_MAX = 60.0

DONE = obj(topologyOperation=TEXT, topologyId=TEXT, status={"type": "string", "enum": ["success"]})
REBALANCE: Shape = {
    "type": "object",
    "properties": {
        "rebalanceOptions": {
            "type": "object",
            "properties": {
                "numWorkers": {"type": "integer", "minimum": 1},
                "executors": {
                    "type": "object",
                    "additionalProperties": {"type": "integer", "minimum": 1},
                },
            },
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
_LEVEL = obj(
    target_level=nullable(TEXT), reset_level=nullable(TEXT), timeout=COUNT, timeout_epoch=COUNT
)
LOG_CONFIG = obj(namedLoggerLevels=map_of(_LEVEL))
LOG_CONFIG_BODY: Shape = {
    "type": "object",
    "properties": {
        "namedLoggerLevels": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "target_level": nullable(TEXT),
                    "reset_level": nullable(TEXT),
                    "timeout": {"type": "integer", "minimum": 0},
                },
            },
        }
    },
    "required": ["namedLoggerLevels"],
}
PROFILE = obj(status=TEXT, id=TEXT, optional={"timeout": TEXT, "dumplink": TEXT, "file": TEXT})
PENDING = obj(
    pending=array(obj(host=TEXT, port=COUNT, action=TEXT, timestamp=COUNT)),
)


def _done(operation: str, summary: storm.TopologySummary) -> dict[str, Any]:
    return {"topologyOperation": operation, "topologyId": summary.id, "status": "success"}


def _seconds(text: str) -> int:
    """A wait time of the path. Raises RequestError."""
    if not (text.isascii() and text.isdigit()) or int(text[:12]) > _INT_MAX:
        raise RequestError(400, f"{text!r} is not a wait time in whole seconds")
    return int(text)


async def activate(ask: Ask) -> Any:
    summary = await ask.topology()
    await ask.site.nimbus.change("activate", summary.name)
    return _done("activate", summary)


async def deactivate(ask: Ask) -> Any:
    summary = await ask.topology()
    await ask.site.nimbus.change("deactivate", summary.name)
    return _done("deactivate", summary)


async def kill(ask: Ask) -> Any:
    summary = await ask.topology()
    options = storm.KillOptions(wait_secs=_seconds(ask.path["wait-time"]))
    await ask.site.nimbus.change("killTopologyWithOpts", summary.name, options)
    return _done("kill", summary)


async def rebalance(ask: Ask) -> Any:
    summary = await ask.topology()
    options = rebalance_options(_seconds(ask.path["wait-time"]), ask.body)
    await ask.site.nimbus.change("rebalance", summary.name, options)
    return _done("rebalance", summary)


def rebalance_options(wait_secs: int, body: Any) -> storm.RebalanceOptions:
    """Storm documents this body and ignores it. Raises RequestError."""
    options = storm.RebalanceOptions(wait_secs=wait_secs)
    if body is None:
        return options
    asked = _object(body, "the body", {"rebalanceOptions"}).get("rebalanceOptions") or {}
    asked = _object(asked, "rebalanceOptions", {"numWorkers", "executors"})
    if asked.get("numWorkers") is not None:
        options.num_workers = _positive(asked["numWorkers"], "numWorkers")
    executors = asked.get("executors")
    if executors is not None:
        executors = _object(executors, "executors", None)
        options.num_executors = {
            name: _positive(count, f"executors of {name}") for name, count in executors.items()
        }
    return options


def _object(value: Any, name: str, known: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(400, f"{name} is not a JSON object")
    unknown = sorted(value.keys() - known) if known is not None else []
    if unknown:
        raise RequestError(400, f"{name}: unknown {', '.join(unknown)}")
    return value


def _positive(value: Any, name: str) -> int:
    # Forms send numbers as text.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _INT_MAX:
        raise RequestError(400, f"{name} is {value!r}; a whole number from 1 is expected")
    return value


async def debug(ask: Ask) -> Any:
    summary = await ask.topology()
    action = ask.path["action"]
    if action not in ("enable", "disable"):
        raise RequestError(400, f"{action!r}: enable or disable is expected")
    try:
        percent = float(ask.path["spct"])
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise RequestError(400, f"{ask.path['spct']!r} is not a percentage from 0 to 100")
    await ask.site.nimbus.change(
        "debug", summary.name, ask.path.get("component", ""), action == "enable", percent
    )
    return _done(f"debug/{action}", summary)


# Log levels ---------------------------------------------------------------------------------------


async def log_config(ask: Ask) -> Any:
    summary = await ask.topology()
    return _levels(await ask.site.nimbus.read("getLogConfig", summary.name))


def _levels(config: storm.LogConfig) -> dict[str, Any]:
    return {
        "namedLoggerLevels": {
            logger: {
                "target_level": level.target_log_level,
                "reset_level": level.reset_log_level,
                "timeout": level.reset_log_level_timeout_secs or 0,
                "timeout_epoch": level.reset_log_level_timeout_epoch or 0,
            }
            for logger, level in (config.named_logger_level or {}).items()
        }
    }


async def set_log_config(ask: Ask) -> Any:
    summary = await ask.topology()
    await ask.site.nimbus.change("setLogConfig", summary.name, log_levels(ask.body))
    return _levels(await ask.site.nimbus.read("getLogConfig", summary.name))


def log_levels(body: Any) -> storm.LogConfig:
    """A logger without a target level is reset. Raises RequestError."""
    named = _object(body, "the body", {"namedLoggerLevels"}).get("namedLoggerLevels")
    levels: dict[str, storm.LogLevel] = {}
    for logger, asked in _object(named, "namedLoggerLevels", None).items():
        asked = _object(
            asked, f"namedLoggerLevels of {logger}",
            {"target_level", "reset_level", "timeout", "timeout_epoch"},
        )  # fmt: skip
        target = asked.get("target_level")
        if target is None:
            levels[logger] = storm.LogLevel(action=storm.LogLevelAction.REMOVE)
            continue
        if not isinstance(target, str) or target.upper() not in _LEVELS:
            raise RequestError(
                400, f"{logger}: unknown level {target!r}: one of {', '.join(_LEVELS)}"
            )
        timeout = asked.get("timeout") or 0
        if timeout:
            timeout = _positive(timeout, f"timeout of {logger}")
        levels[logger] = storm.LogLevel(
            action=storm.LogLevelAction.UPDATE,
            target_log_level=target.upper(),
            reset_log_level=asked.get("reset_level"),
            reset_log_level_timeout_secs=timeout,
        )
    return storm.LogConfig(named_logger_level=levels)


# Workers ------------------------------------------------------------------------------------------


def _worker(text: str) -> tuple[str, int]:
    """Raises RequestError."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6):
        raise RequestError(400, f"{text!r} is not a worker, as HOST:PORT")
    return host.strip("[]"), int(port)


async def _request(
    ask: Ask, action: storm.ProfileAction, stamp_ms: int
) -> tuple[storm.TopologySummary, str, int]:
    """Send a request to the worker of the path. Raises RequestError if it runs no such topology."""
    summary = await ask.topology()
    host, port = _worker(ask.path["host-port"])
    page: storm.TopologyPageInfo = await ask.site.nimbus.read(
        "getTopologyPageInfo", summary.id, ":all-time", False
    )
    for one in page.workers or ():
        if one.port == port and host in (one.host, one.supervisor_id):
            node = storm.NodeInfo(node=one.supervisor_id or "", port={port})
            request = storm.ProfileRequest(nodeInfo=node, action=action, time_stamp=stamp_ms)
            await ask.site.nimbus.change("setWorkerProfiler", summary.id, request)
            return summary, one.host or host, port
    raise RequestError(404, f"{summary.name} has no worker {host}:{port}")


def _dump(action: storm.ProfileAction, kind: str) -> Callable[[Ask], Awaitable[Any]]:
    async def handle(ask: Ask) -> Any:
        stamp = int(time.time() * 1000)
        summary, host, port = await _request(ask, action, stamp)
        found = {"status": "ok", "id": ask.path["host-port"]}
        if kind:
            found["file"] = f"{kind}-{stamp}.{'svg' if kind == 'flamegraph' else 'txt'}"
            found["dumplink"] = dump_link(host, port, summary.id, ask.site.logviewers)
        return found

    return handle


async def start_profile(ask: Ask) -> Any:
    """The timeout is in minutes, as in Storm; parts of a minute may be given."""
    text = ask.path["timeout"]
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= _PROFILE_MINUTES_MAX:
        raise RequestError(400, f"{text!r} is not a number of minutes, at most 60")
    until_ms = int((time.time() + minutes * 60) * 1000)
    summary, host, port = await _request(ask, storm.ProfileAction.JPROFILE_START, until_ms)
    return {
        "status": "ok",
        "id": ask.path["host-port"],
        "timeout": str(until_ms),
        "dumplink": dump_link(host, port, summary.id, ask.site.logviewers),
        "file": f"flamegraph-{until_ms}.svg",
    }


def _sample(action: storm.ProfileAction, kind: str) -> Callable[[Ask], Awaitable[Any]]:
    async def handle(ask: Ask) -> Any:
        text = ask.path["secs"]
        if not (
            text.isascii()
            and text.isdigit()
            and len(text) <= 4
            and 1 <= int(text) <= _SAMPLE_SECS_MAX
        ):
            raise RequestError(400, f"{text!r} is not a number of seconds from 1 to 60")
        until_ms = int((time.time() + int(text)) * 1000)
        summary, host, port = await _request(ask, action, until_ms)
        return {
            "status": "ok",
            "id": ask.path["host-port"],
            "timeout": str(until_ms),
            "dumplink": dump_link(host, port, summary.id, ask.site.logviewers),
            "file": f"{kind}-{until_ms}.txt",
        }

    return handle


async def pending(ask: Ask) -> Any:
    """Requests to workers that their supervisors have not carried out yet. Squall's own."""
    summary = await ask.topology()
    name = ask.path["component"]
    found = []
    for action in storm.ProfileAction:
        for one in await ask.site.nimbus.read(
            "getComponentPendingProfileActions", summary.id, name, action
        ):
            found += [
                {
                    "host": one.nodeInfo.node,
                    "port": port,
                    "action": storm.ProfileAction(one.action).name,
                    "timestamp": one.time_stamp or 0,
                }
                for port in sorted(one.nodeInfo.port)
            ]
    return {"pending": found}


_WAIT = Param("wait-time", "Seconds before it takes effect.", COUNT, in_path=True)
_DEBUG = (
    Param("action", "enable or disable.", {"type": "string", "enum": ["enable", "disable"]}, True),
    Param("spct", "The percentage of tuples that is sampled.", NUMBER, in_path=True),
)
_WORKER = (ID, HOST_PORT)


def _checked(endpoint: Endpoint) -> Endpoint:
    """Refused while actions are switched off."""
    handler = endpoint.handler

    async def handle(ask: Ask) -> Any:
        if not ask.site.actions_enabled:
            raise RequestError(403, "actions are switched off (ui.actions.enabled)")
        return await handler(ask)

    return replace(endpoint, handler=handle)


def _post(
    path: str, sentence: str, answer: Shape, handler: Callable[[Ask], Awaitable[Any]],
    permission: str, params: tuple[Param, ...], body: Shape | None = None,
) -> Endpoint:  # fmt: skip
    return _checked(
        Endpoint("POST", path, sentence, answer, handler, permission, params, body=body)
    )


def _profiling(
    path: str, sentence: str, handler: Callable[[Ask], Awaitable[Any]], *more: Param
) -> Endpoint:
    return _post(
        f"/topology/{{id}}/profiling/{path}", sentence, PROFILE, handler, "setWorkerProfiler",
        (*_WORKER, *more),
    )  # fmt: skip


ENDPOINTS = (
    _post("/topology/{id}/activate", "Let the spouts emit.", DONE, activate, "activate", (ID,)),
    _post(
        "/topology/{id}/deactivate", "Stop the spouts.", DONE, deactivate, "deactivate", (ID,)
    ),
    _post(
        "/topology/{id}/rebalance/{wait-time}",
        "Spread the topology over the cluster again, with other numbers if the body has them.",
        DONE, rebalance, "rebalance", (ID, _WAIT), REBALANCE,
    ),
    _post(
        "/topology/{id}/kill/{wait-time}", "Kill the topology.", DONE, kill, "killTopology",
        (ID, _WAIT),
    ),
    _post(
        "/topology/{id}/debug/{action}/{spct}", "Sample tuples of all components into events.log.",
        DONE, debug, "debug", (ID, *_DEBUG),
    ),
    _post(
        "/topology/{id}/component/{component}/debug/{action}/{spct}",
        "Sample tuples of one component into events.log.",
        DONE, debug, "debug", (ID, COMPONENT, *_DEBUG),
    ),
    Endpoint(
        "GET", "/topology/{id}/logconfig", "The log levels that were set.", LOG_CONFIG, log_config,
        "getLogConfig", (ID,),
    ),
    _post(
        "/topology/{id}/logconfig", "Set log levels; a null target_level resets one.", LOG_CONFIG,
        set_log_config, "setLogConfig", (ID,), LOG_CONFIG_BODY,
    ),
    _profiling(
        "start/{host-port}/{timeout}", "Sample a worker for a flame graph.", start_profile,
        Param("timeout", "Minutes; parts of one may be given.", NUMBER, in_path=True),
    ),
    _profiling(
        "stop/{host-port}", "End a profile now.", _dump(storm.ProfileAction.JPROFILE_STOP, "")
    ),
    _profiling(
        "dumpprofile/{host-port}", "Write the samples of a profile so far.",
        _dump(storm.ProfileAction.JPROFILE_DUMP, "flamegraph"),
    ),
    _profiling(
        "dumpjstack/{host-port}", "Write the stacks of a worker's threads and asyncio tasks.",
        _dump(storm.ProfileAction.JSTACK_DUMP, "stacks"),
    ),
    _profiling(
        "restartworker/{host-port}", "Drain a worker and start it again.",
        _dump(storm.ProfileAction.JVM_RESTART, ""),
    ),
    _profiling(
        "dumpheap/{host-port}", "Write which objects fill a worker's memory.",
        _dump(storm.ProfileAction.JMAP_DUMP, "heap"),
    ),
    *(
        _profiling(
            f"{path}/{{host-port}}/{{secs}}", sentence, _sample(action, kind),
            Param("secs", "Seconds, 1 to 60.", COUNT, in_path=True),
        )
        for path, sentence, action, kind in (
            ("sample", "Sample the stacks of a worker's tasks (not Storm's).",
             storm.ProfileAction.SAMPLE_TASKS, "samples"),
            ("samplenative", "Sample running threads with native frames (not Storm's).",
             storm.ProfileAction.SAMPLE_NATIVE, "native"),
            ("samplenativeidle", "Sample all threads with native frames (not Storm's).",
             storm.ProfileAction.SAMPLE_NATIVE_IDLE, "native"),
        )
    ),
    Endpoint(
        "GET", "/topology/{id}/component/{component}/requests",
        "Requests to the workers of a component that are not carried out yet (not Storm's).",
        PENDING, pending, "getComponentPendingProfileActions", (ID, COMPONENT),
    ),
)  # fmt: skip
