"""The Spark session: what can be checked without one."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark.java_gateway
import pytest

from squall import SquallError
from squall_spark.session import (
    _java_ends_with_us,
    _python_logs_to,
    check_master,
    java_options,
)


def test_a_jvm_of_this_machine_is_short_lived() -> None:
    assert java_options(2) == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    assert java_options(64) == "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "yarn", "spark://h:7077"])
def test_masters(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", ["", "locale", "local[x]", "spark://"])
def test_what_is_not_a_master(master: str) -> None:
    with pytest.raises(SquallError, match="is not a Spark master"):
        check_master(master)


def test_a_jvm_outlives_a_thread_that_started_it() -> None:
    """As with `squall_spark.run` in a pool of threads: the session is kept for later calls."""
    original = vars(pyspark.java_gateway)["Popen"]

    def is_bound() -> bool:
        with _java_ends_with_us():
            return vars(pyspark.java_gateway)["Popen"] is not original

    assert is_bound()
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(is_bound).result()


def test_what_py4j_logs_of_an_interrupted_call_is_in_the_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It uses the root logger, and shows a traceback."""
    said = "Exception while sending command."
    record = logging.LogRecord("root", logging.ERROR, "/x/py4j/clientserver.py", 1, said, (), None)
    log = tmp_path / "spark.log"
    with _python_logs_to(log):
        logging.getLogger().handle(record)
        logging.getLogger().error("of the user's code")
    assert said in log.read_text()
    assert [one.getMessage() for one in caplog.records] == ["of the user's code"]
