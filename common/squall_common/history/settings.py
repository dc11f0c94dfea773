"""The settings of the history, from the configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError

ENABLE_KEY = "topology.history.enable"
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
    def of(cls, conf: Mapping[str, Any]) -> HistorySettings:
        """The settings in a topology's merged configuration."""

        def number(key: str, default: float) -> float:
            value = conf.get(key)
            return default if value is None else float(value)

        interval_secs = number("topology.history.interval.secs", 10)
        return cls(
            interval_secs=max(0.1, interval_secs),
            rotation_secs=number("topology.history.rotation.secs", 60),
            rotation_bytes=int(number("topology.history.rotation.bytes", 4_194_304)),
            key_rate=min(1.0, number("topology.history.key.sampling.rate", 0.002)),
        )


def history_url(conf: Mapping[str, Any]) -> str:
    """`storm.history.dir`: a URL, or an absolute path; `history` in storm.local.dir when null."""
    given = conf.get("storm.history.dir")
    if not given:
        return str(Path(str(conf.get("storm.local.dir") or "storm-local")).absolute() / "history")
    return str(given) if "://" in str(given) else str(Path(str(given)).expanduser().absolute())


def history_folder(conf: Mapping[str, Any]) -> Folder:
    """Where a node writes. It is the site's to choose: a topology cannot have daemons write
    elsewhere."""
    return Folder(history_url(conf))


def is_on(topology_conf: Mapping[str, Any]) -> bool:
    return topology_conf.get(ENABLE_KEY) is True


def check_available(url: str) -> None:
    """Raises HistoryUnavailableError that names what is missing; of a URL also the package that its
    protocol needs."""
    needed = ("pyarrow", "fsspec") if "://" in url else ("pyarrow",)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise HistoryUnavailableError(
            f"{ENABLE_KEY} is set, and the Python package {' and '.join(missing)}, which writes "
            "the history, is not installed here",
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
