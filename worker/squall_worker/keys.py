"""The topology's key, as a worker gets it from its supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.security.curve import CURVE, CurveKey, is_loopback, require_curve
from squall_common.topology.encryption import encrypts
from squall_common.worker_files.launch_spec import LaunchSpec

log = get_logger(__name__)


def own_key(spec: LaunchSpec, topology_conf: Mapping[str, Any], bind_host: str) -> CurveKey | None:
    """The key with which this worker encrypts, or None if it does not. Raises SquallError if it
    must encrypt but cannot, also for a worker of a secured cluster that listens in the network: it
    never falls back to sending in the clear."""
    if not encrypts(topology_conf):
        if spec.secured and not is_loopback(bind_host):
            raise SquallError(
                f"a worker of a secured cluster listens on {bind_host} with its topology's key "
                f"only, and {CURVE} is false for {spec.topology_id}",
                hint=f'storm rebalance NAME -t \'{{"{CURVE}": "auto"}}\'',
            )
        if not is_loopback(bind_host):
            log.warning(
                "not_encrypted",
                topology_id=spec.topology_id,
                why=f"{CURVE} is false for this topology"
                if CURVE in topology_conf
                else "it was submitted to a release that made no keys",
                what_to_do=f'storm rebalance NAME -t \'{{"{CURVE}": "auto"}}\'',
            )
        return None
    require_curve()
    try:
        return CurveKey.from_bytes(spec.key_file.read_bytes(), spec.topology_id)
    except (OSError, ValueError) as error:
        raise SquallError(
            f"this worker must encrypt what it sends, but cannot read its key: {error}",
            hint="Its supervisor writes the key into the worker's folder. A supervisor of an "
            f"earlier release does not: keep {CURVE}: false on Nimbus until all are upgraded.",
        ) from error
