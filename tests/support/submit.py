"""Submits the test topologies as a user does: with `storm jar`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.devcluster import ROOT, DevCluster
from tests.support.ledger import Ledger

LEDGER: Path = ROOT / "tests" / "topologies" / "ledger"


def submit_ledger(
    cluster: DevCluster,
    ledger: Ledger,
    *,
    name: str = "ledger",
    workers: int = 1,
    conf: dict[str, Any] | None = None,
) -> None:
    """Submit `tests/topologies/ledger` against a ledger."""
    cluster.storm(
        "jar",
        LEDGER,
        "ledger_topology.py",
        name,
        str(ledger.port),
        str(workers),
        json.dumps(conf or {}),
    )
