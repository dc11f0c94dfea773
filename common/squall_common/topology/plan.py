"""What a component does, in words for operators: the calls of a stream that run in it, with their
functions and windows.

Whoever builds the topology writes it (`squall.streams`, and `TopologyBuilder` for the windows of a
`WindowedBolt`). It travels with the component and is only shown: nothing runs by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from squall_common.daemon.output.redaction import redact_text

TEXT_MAX = 200  # characters of each text
FUNCTIONS_MAX = 20  # of a step
PLAN_MAX = 8_000  # of a component, by `PlanStep.size`

_STEP_SIZE = 20


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One call, or the component's own code.

        PlanStep("map(normalise)", ("shop.orders:normalise",))
        PlanStep("count()", windows="tumbling 60 s of event time, lag 5 s")
        PlanStep("", ("shop.orders:Totals",), "sliding 600 s every 60 s")

    `call` is as in the plan of a `StreamBuilder`, "" for a component's own code. `functions` are
    the import paths of what it calls, without the arguments that are bound to it.
    """

    call: str
    functions: tuple[str, ...] = ()
    windows: str = ""

    @property
    def name(self) -> str:
        """The call; of a component's own code, its class."""
        return self.call or next(iter(self.functions), "").rpartition(":")[2]

    @property
    def size(self) -> int:
        """What it counts towards PLAN_MAX: its characters, and something for itself."""
        return _STEP_SIZE + len(self.call) + len(self.windows) + sum(map(len, self.functions))


Plan = tuple[PlanStep, ...]


def bounded(steps: Iterable[PlanStep]) -> Plan:
    """The steps with a bounded size and without the secrets that can be recognized in them: long
    texts are cut, and a last step says how many are left out."""
    kept: list[PlanStep] = []
    ends: list[int] = []
    waiting = iter(steps)
    for step in waiting:
        kept.append(_bounded(step))
        ends.append(kept[-1].size + (ends[-1] if ends else 0))
        if ends[-1] > PLAN_MAX:
            fitting = bisect_right(ends, PLAN_MAX - PlanStep(_left_out(10**9)).size)
            number = len(kept) - fitting + sum(1 for _ in waiting)
            return (*kept[:fitting], PlanStep(_left_out(number)))
    return tuple(kept)


def _bounded(step: PlanStep) -> PlanStep:
    # Cut before as well: any client may have sent megabytes. (Much later, so that no secret of
    # which the end is missing is left in what is shown.)
    return PlanStep(
        _cut(redact_text(step.call[: 10 * TEXT_MAX])),
        tuple(_cut(path) for path in step.functions[:FUNCTIONS_MAX]),
        _cut(step.windows),
    )


def _left_out(number: int) -> str:
    return f"and {number} more"


def with_windows(steps: Sequence[PlanStep], windows: str) -> Plan:
    """The steps, of which the last one has these windows."""
    return (*steps[:-1], replace(steps[-1], windows=windows))


def brief(steps: Sequence[PlanStep], most: int = TEXT_MAX) -> str:
    """The steps in few words, for a drawing: "map ×2, key_by", at most `most` characters. Of a
    single call the whole of it: "map(normalise)", "count over tumbling 60 s"."""
    if len(steps) == 1 and not steps[0].windows:
        return _cut(steps[0].name, most)
    found = [
        f"{name} ×{number}" if (number := len(list(group))) > 1 else name
        for name, group in groupby(map(_briefly, steps))
    ]
    return _cut(", ".join(found), most)


def plan_as_json(steps: Iterable[PlanStep]) -> list[dict[str, Any]]:
    """As `storm status`, `storm graph` and the REST API show it (docs/json.md)."""
    return [
        {"step": step.name, "functions": list(step.functions), "windows": step.windows or None}
        for step in steps
    ]


def _briefly(step: PlanStep) -> str:
    operation = step.call.partition("(")[0]
    return " over ".join(part for part in (operation, step.windows) if part)


def _cut(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
