"""The settings of the history, from the configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.config.options.typed import (
    ClientOptions,
    NimbusOptions,
    SupervisorOptions,
    TopologyOptions,
    WorkerOptions,
)
from squall_common.errors import SquallError

HistoryOptions = NimbusOptions | SupervisorOptions | WorkerOptions | ClientOptions
INSTALL_HINT = "pip install 'squall[history]' on every node of the cluster"


class HistoryUnavailableError(SquallError):
    """The history is wanted, and a package that it needs is not installed."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How one topology's history is taken. Times in seconds."""

    interval_secs: float
    rotation_secs: float
    rotation_bytes: int
    key_rate: float  # share of the tuples of fields groupings whose key is noted; 0: none

    @classmethod
    def of(cls, options: TopologyOptions) -> HistorySettings:
        return cls(
            interval_secs=max(0.1, options.topology_history_interval_secs),
            rotation_secs=options.topology_history_rotation_secs,
            rotation_bytes=options.topology_history_rotation_bytes,
            key_rate=options.topology_history_key_sampling_rate,
        )


def history_url(options: HistoryOptions) -> str:
    """`storm.history.dir`: a URL, or an absolute path; `history` in storm.local.dir when null. It
    is the site's to choose: a topology cannot have daemons write elsewhere."""
    given = options.storm_history_dir
    if given is None:
        return str(Path(options.storm_local_dir).absolute() / "history")
    return given if "://" in given else str(Path(given).expanduser().absolute())


def is_on(topology_conf: Mapping[str, Any]) -> bool:
    return TopologyOptions.read(topology_conf).topology_history_enable


def check_available(url: str) -> None:
    """Raises HistoryUnavailableError that names what is missing; of a URL also the package that its
    protocol needs."""
    needed = ("pyarrow", "fsspec") if "://" in url else ("pyarrow",)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise HistoryUnavailableError(
            f"topology.history.enable is set, and the Python package {' and '.join(missing)}, "
            "which writes the history, is not installed here",
            hint=INSTALL_HINT,
        )
    if "://" in url:
        import fsspec

        protocol = url.partition("://")[0].rpartition("::")[2]
        try:
            fsspec.get_filesystem_class(protocol)
        except (ImportError, ValueError) as error:
            raise HistoryUnavailableError(
                f"storm.history.dir {url} cannot be used here: {error}",
                hint=f"fsspec must know {protocol}://, on every node of the cluster",
            ) from error
