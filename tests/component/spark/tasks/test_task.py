"""A shell bolt's process inside a task of Spark."""

from __future__ import annotations

import sys

from tests.support import spark_topologies as st
from tests.support.shells import PACKAGE
from tests.support.spark_plans import plan_for, run_here

from squall import ShellBolt, TopologyBuilder


def test_a_shell_bolt_runs_and_all_its_tuples_arrive() -> None:
    builder = TopologyBuilder()
    builder.spout("lines", st.NumberedLines())
    shell = ShellBolt(sys.executable, "ledger_split.py", outputs=["number", "place", "word"])
    builder.bolt("split", shell, parallelism=2).shuffle("lines")
    lines = [f"line {n} of many" for n in range(30)]
    plan = plan_for(builder, ["lines=/in.csv"])
    out = run_here(plan, {"lines": [list(range(30)), lines]}, code_dir=PACKAGE)["split"]
    assert sorted(map(tuple, out)) == [
        (n, place, word) for n, line in enumerate(lines) for place, word in enumerate(line.split())
    ]
