"""Kernel limits (setrlimit) that every worker of a node gets, from the configuration."""

from __future__ import annotations

import resource

from squall_common.config.options.typed import SupervisorOptions
from squall_common.errors import ConfigError

_MIB = 1024 * 1024


def rlimits_of(options: SupervisorOptions) -> dict[str, int]:
    """The limits that are set, by name. Raises ConfigError for one above the limit of this process:
    no worker could start."""
    found = {}
    # The option, its value, the limit's name in the module `resource`, and the size of one unit.
    for key, value, name, unit in (
        ("open.files", options.supervisor_worker_limit_open_files, "RLIMIT_NOFILE", 1),
        ("processes", options.supervisor_worker_limit_processes, "RLIMIT_NPROC", 1),
        ("core.mb", options.supervisor_worker_limit_core_mb, "RLIMIT_CORE", _MIB),
        ("file.mb", options.supervisor_worker_limit_file_mb, "RLIMIT_FSIZE", _MIB),
        ("address.space.mb", options.supervisor_worker_limit_address_space_mb, "RLIMIT_AS", _MIB),
    ):
        if value is None:
            continue
        limit = value * unit
        hard = resource.getrlimit(getattr(resource, name))[1]
        if hard != resource.RLIM_INFINITY and limit > hard and not _may_raise():
            raise ConfigError(
                f"supervisor.worker.limit.{key} is {value}, but the supervisor itself may only "
                f"have {hard // unit}",
                hint="Raise the limit of the supervisor (systemd: LimitNOFILE=, LimitNPROC= ...).",
            )
        found[name] = limit
    return found


def _may_raise() -> bool:
    from squall_supervisor.confine.capabilities import Capability, held

    return Capability.SYS_RESOURCE in held()
