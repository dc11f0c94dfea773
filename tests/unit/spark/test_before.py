"""What is found before a JVM is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import SquallError, TopologyBuilder
from squall_spark.before import check_inputs, check_outputs
from squall_spark.plan import SparkPlan


def plan(where: str, out: str = "/out") -> SparkPlan:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split()).shuffle("sentences")
    return plan_for(builder, [f"sentences={where}"], [f"split={out}"], streaming=True)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("missing.json", "there is no {}/missing.json"),
        ("*.json", r"no file matches {}/\*.json"),
    ],
)
def test_a_missing_input_is_named(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(SquallError, match=message.format(tmp_path)):
        check_inputs(plan(f"{tmp_path}/{where}"))


def test_inputs_that_are_there_or_elsewhere_pass(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    for where in (f"{tmp_path}/a.json", f"{tmp_path}/*.json", "s3a://bucket/x.json", "kafka:h:1/t"):
        check_inputs(plan(where))


def test_a_stream_of_one_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.touch()
    for where in (f"{file}", f"json:{file}"):
        with pytest.raises(SquallError, match=f"{file} is a file, and a stream reads a folder"):
            check_inputs(plan(where), streaming=True)
    for where in (f"{tmp_path}", f"{tmp_path}/*.json"):
        check_inputs(plan(where), streaming=True)


def test_an_output_that_is_there_is_refused(tmp_path: Path) -> None:
    check_outputs(plan("json:/in", f"{tmp_path}/new").sinks)
    with pytest.raises(SquallError, match="already exists"):
        check_outputs(plan("json:/in", str(tmp_path)).sinks)
