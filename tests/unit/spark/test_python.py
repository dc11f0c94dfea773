"""`squall_spark.run`: what it refuses before it does anything."""

from __future__ import annotations

import pyspark
import pytest

import squall_spark
from squall import TopologyBuilder
from squall_common.errors import SquallError


def test_a_program_that_runs_again_in_a_worker_is_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its classes are imported there, and with them all that it does at its top."""
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: object())
    with pytest.raises(SquallError, match='if __name__ == "__main__"'):
        squall_spark.run(TopologyBuilder())
