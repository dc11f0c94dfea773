"""What a chaos run found, as JSON: lost, unexpected, duplicates, recovered, and how long recovery
took, by kind of fault. `tests/chaos` writes one to build/chaos/ and prints it."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support.ledger import Ledger, TuplesLost


class Report:
    """Collects over all scenarios of a run."""

    def __init__(self) -> None:
        self.scenarios: dict[str, dict[str, Any]] = {}
        self._secs: defaultdict[str, list[float]] = defaultdict(list)
        self._kills = 0

    def recovered(self, kind: str, secs: float, *, kills: int = 0) -> None:
        """After a fault of this kind all worked again so many seconds later; `kills`: processes
        that it killed."""
        self._secs[kind].append(secs)
        self._kills += kills

    def judge(self, scenario: str, ledger: Ledger, **figures: Any) -> None:
        """Ask the ledger, note what it says, and raise TuplesLost if that is bad."""
        lost = ""
        try:
            ledger.check()
        except TuplesLost as error:
            lost = str(error)
        account = ledger.account()
        self.scenarios[scenario] = {**account, **figures}
        if lost:
            raise TuplesLost(f"{scenario}: {lost}; {json.dumps(self.scenarios[scenario])}")

    def as_json(self) -> dict[str, Any]:
        sums = {
            key: sum(scenario[key] for scenario in self.scenarios.values())
            for key in ("messages", "lost", "unexpected", "duplicates", "recovered")
        }
        return {
            **sums,
            "kills": self._kills,
            "recovery_secs": {kind: quantiles(secs) for kind, secs in sorted(self._secs.items())},
            "scenarios": self.scenarios,
        }

    def write(self, path: Path) -> str:
        text = json.dumps(self.as_json(), indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        return text


def quantiles(secs: list[float]) -> dict[str, float]:
    """How many, and the middle, the 95th percentile and the largest, in seconds."""
    ordered = sorted(secs)
    p95 = statistics.quantiles(ordered, n=20, method="inclusive")[-1] if ordered[1:] else ordered[0]
    return {
        "n": len(ordered),
        "p50": round(statistics.median(ordered), 2),
        "p95": round(p95, 2),
        "max": round(ordered[-1], 2),
    }
