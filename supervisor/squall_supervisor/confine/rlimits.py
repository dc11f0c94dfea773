"""Kernel limits (setrlimit) that every worker of a node gets, from the configuration."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

from squall_common.config.schema import SCHEMA
from squall_common.errors import ConfigError

_MIB = 1024 * 1024

# The option, the limit's name in the module `resource`, and the size of one unit.
_OPTIONS = (
    ("supervisor.worker.limit.open.files", "RLIMIT_NOFILE", 1),
    ("supervisor.worker.limit.processes", "RLIMIT_NPROC", 1),
    ("supervisor.worker.limit.core.mb", "RLIMIT_CORE", _MIB),
    ("supervisor.worker.limit.file.mb", "RLIMIT_FSIZE", _MIB),
    ("supervisor.worker.limit.address.space.mb", "RLIMIT_AS", _MIB),
)
_DEFAULTS: Mapping[str, int] = {"supervisor.worker.limit.core.mb": 0}


def rlimits_of(conf: Mapping[str, Any]) -> dict[str, int]:
    """The limits that are set, by name. Raises ConfigError for a value of the wrong type or range,
    and for one above the limit of this process: no worker could start."""
    found = {}
    for key, name, unit in _OPTIONS:
        value = conf.get(key, _DEFAULTS.get(key))
        if value is None:
            continue
        kind = SCHEMA[key]
        if not kind.check(value):
            raise ConfigError(f"{key} is {value!r}; expected {kind.expected}")
        limit = int(value * unit)
        hard = resource.getrlimit(getattr(resource, name))[1]
        if hard != resource.RLIM_INFINITY and limit > hard and not _may_raise():
            raise ConfigError(
                f"{key} is {value}, but the supervisor itself may only have {hard // unit}",
                hint="Raise the limit of the supervisor (systemd: LimitNOFILE=, LimitNPROC= ...).",
            )
        found[name] = limit
    return found


def _may_raise() -> bool:
    from squall_supervisor.confine.capabilities import Capability, held

    return Capability.SYS_RESOURCE in held()
