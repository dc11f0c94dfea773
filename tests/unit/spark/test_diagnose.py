"""What an error of Spark's means. The texts are Spark 4.3's, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_spark.data.bindings import Format, Source, StreamName
from squall_spark.diagnose import DataSet, diagnose
from squall_spark.messages import innermost, one_line

ABORTED = """[STREAM_FAILED] Query terminated: Job aborted due to stage failure: Task 0 in
stage 14.0 failed 1 times, most recent failure: Lost task 0.0 in stage 14.0 (TID 21):
org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out/x.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(X.scala:1)
Caused by: {cause}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)

Driver stacktrace:
"""


def data(folder: Path, format_: Format = Format.JSON) -> DataSet:
    source = Source(StreamName("records"), f"{folder}/in", format_)
    return DataSet(source, ("text", "n"), {"n": "bigint"})


def test_a_full_disk_is_the_message() -> None:
    cause = "java.io.IOException: No space left on device"
    found = diagnose(RuntimeError(ABORTED.format(cause=cause)), [], "spark.log")
    assert found.message == (
        "a disk is full (no space left on device): Spark was writing file:/out/x"
    )


def test_a_full_disk_in_a_component_names_it() -> None:
    cause = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "squall_spark.tasks.stages.StageError: bolt 'count': OSError: "
        "[Errno 28] No space left on device"
    )
    found = diagnose(RuntimeError(ABORTED.format(cause=cause)), [], "spark.log")
    assert "bolt 'count': OSError: [Errno 28] No space left on device" in found.message


def test_the_innermost_cause_is_the_message() -> None:
    cause = "java.lang.IllegalStateException: no such block"
    found = diagnose(RuntimeError(ABORTED.format(cause=cause)), [], "spark.log")
    assert found.message == "Spark: IllegalStateException: no such block"
    assert innermost("[PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03\n at x") == (
        "[PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03"
    )


@pytest.mark.parametrize(
    ("cause", "message", "hint"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "JVM has no memory left", "driver.memory"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "a Python worker of Spark's ended in the middle of its work",
            "--parallelism COMPONENT=N",
        ),
        (
            "org.apache.spark.SparkException: Error from python worker:\n"
            "  ModuleNotFoundError: No module named 'squall_spark'",
            "the Python of an executor has no squall",
            "PYSPARK_PYTHON",
        ),
    ],
)
def test_what_is_known_of_spark_comes_with_a_remedy(cause: str, message: str, hint: str) -> None:
    found = diagnose(RuntimeError(ABORTED.format(cause=cause)), [], "spark.log")
    assert message in found.message
    assert hint in (found.hint or "")
    assert (found.hint or "").endswith(" spark.log")


def test_a_job_that_spark_gives_up_says_why() -> None:
    """An error without a cause, as Py4J writes it."""
    why = "Job aborted due to stage failure: indeterminate output was failed and retried"
    text = (
        "An error occurred while calling o267.collectToPython.\n"
        f": org.apache.spark.SparkException: {why}\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(X.scala:1)\n"
    )
    assert innermost(text) == why


def test_an_error_of_several_lines_is_one_line() -> None:
    cause = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in run\n'
        "squall_spark.tasks.task.TaskFailedError: component 'b', task 3: a tuple "
        "failed: ValueError:\n"
        "two lines\n"
    )
    found = diagnose(RuntimeError(ABORTED.format(cause=cause)), [], "spark.log")
    assert found.message == "component 'b', task 3: a tuple failed: ValueError: two lines"


@pytest.mark.parametrize("text", ["flush() failed:", "a tuple failed: ValueError: ", "x:\n"])
def test_no_message_ends_at_a_colon(text: str) -> None:
    assert not one_line(text).endswith(":")


def test_the_line_is_found_in_the_file_that_spark_names(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    good, bad = '{"text": "a", "n": 1}\n', '{"text": "a", "n": "one"}\n'
    (tmp_path / "in" / "a.json").write_text(good * 3)
    (tmp_path / "in" / "b.json").write_text(good * 2 + bad + good)
    text = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        f"file://{tmp_path}/in/b.json.  SQLSTATE: KD001\n"
        "Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_"
        "SUGGESTION] Malformed records are detected in record parsing: [null,a]."
    )
    found = diagnose(RuntimeError(text), [data(tmp_path)], "spark.log")
    assert found.message == (
        f"--input records: {tmp_path}/in/b.json, line 3: field 'n' is \"one\", and its column is "
        "bigint"
    )


def test_a_file_is_found_where_spark_names_none(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"text": "a"}\n')
    (tmp_path / "in" / "b.json").write_text("{}\n\nnonsense\n")
    text = "[MALFORMED_RECORD_IN_SCHEMA_INFERENCE] Malformed records are detected"
    found = diagnose(RuntimeError(text), [data(tmp_path)], "spark.log")
    assert found.message.startswith(f"--input records: {tmp_path}/in/b.json, line 3: not JSON: ")
