"""The files that a supervisor has prepared for a worker, and what the worker makes of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError, describe

if TYPE_CHECKING:
    from squall_common.topology.prepared import PreparedTopology


class LocalizedTopologyError(SquallError):
    """The topology's code or configuration in stormdist cannot be read."""


@dataclass(frozen=True, slots=True)
class LocalizedTopology:
    """A topology as its workers run it."""

    prepared: PreparedTopology
    code_dir: Path
    environment: Path | None  # its dependencies

    @property
    def conf(self) -> Mapping[str, Any]:
        """The topology's own, normalized."""
        return self.prepared.conf


def load(stormdist: Path) -> LocalizedTopology:
    """Read stormcode.ser and stormconf.ser. Raises LocalizedTopologyError."""
    from squall_common.topology.prepared import prepare

    try:
        conf = (stormdist / "stormconf.ser").read_bytes()
        prepared = prepare((stormdist / "stormcode.ser").read_bytes(), conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        raise LocalizedTopologyError(
            f"the topology in {stormdist} cannot be read: {describe(error)}",
            hint="The supervisor downloads it again when the folder is removed.",
        ) from error
    environment = stormdist / "environment"
    return LocalizedTopology(
        prepared, stormdist / "code", environment if environment.is_dir() else None
    )


def put_on_path(localized: LocalizedTopology) -> None:
    """Make the modules of the unpacked package, the modules that it bundles, and its dependencies
    importable before all others, as a script's folder is for a script. Shell components find the
    dependencies, too."""
    from squall_common.packaging.package import import_paths, offer_to_children

    first = import_paths(localized.code_dir, localized.environment)
    sys.path[:] = [*first, *(path for path in sys.path if path not in first)]
    if localized.environment is not None:
        offer_to_children(localized.environment)
