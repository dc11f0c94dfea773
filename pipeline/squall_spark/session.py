"""The Spark session of a run: checks its requirements and keeps Spark's own output in a file.

The JVM that PySpark starts inherits this process's stdout and stderr, and its Python workers write
to the JVM's; so both point to the log file while it is started, and are restored afterwards.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.daemon.parent import end_with_parent
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
_PYSPARK_HINT = "pip install 'squall[spark]'"
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

_OURS: Mapping[str, str] = {
    # Partition i is task i: Spark must not merge or split them.
    "spark.sql.adaptive.enabled": "false",
    # One row is a section of many tuples, up to 256 KiB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "squall_spark.tasks.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "false",
}

# A JVM of this machine's lives as long as one job, most of whose work is done in Python. Without
# the optimizing compiler, and with one thread to collect garbage where there are few cores, a short
# job takes little more than half of the CPU, and a long one at most a few percent more.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_FEW_CORES = 4


def java_options(cores: int) -> str:
    """The options of a JVM that is driver and executor in one."""
    return f"{_SHORT_LIVED} {'-XX:+UseSerialGC' if cores <= _FEW_CORES else '-XX:+UseParallelGC'}"


def check_requirements(env: Mapping[str, str] = os.environ) -> None:
    """Raises SquallError when PySpark or Java is missing or too old."""
    for name in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise SquallError(f"Spark needs the Python package {name}", hint=_PYSPARK_HINT)
    home = env.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=env.get("PATH"))
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "none on PATH"
        raise SquallError(
            f"Spark needs a Java runtime: {where}",
            hint="apt-get install default-jre-headless, or set JAVA_HOME",
        )
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SquallError(f"{java} does not run: {error}") from error
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0 or found is None:
        raise SquallError(f"{java} does not run: {(done.stderr or done.stdout).strip()[:200]}")
    if int(found[1]) < JAVA_VERSION_MIN:
        raise SquallError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later; {java} is Java {found[1]}",
            hint="set JAVA_HOME to a newer one",
        )


def check_master(master: str) -> None:
    """Raises SquallError if it is not the URL of a master: Spark would report that only after
    starting."""
    if _MASTER.fullmatch(master) is None:
        raise SquallError(
            f"{master!r} is not a Spark master",
            hint="use local[*], local[4], spark://host:7077, yarn or k8s://...",
        )


@contextlib.contextmanager
def spark_session(
    name: str,
    *,
    master: str = "local[*]",
    conf: Iterable[tuple[str, str]] = (),
    log_file: Path | None = None,
) -> Iterator[SparkSession]:
    """A session, stopped at the end. `conf` overrides our settings. Raises SquallError when Java,
    PySpark or the master is not available."""
    check_master(master)
    check_requirements()
    # Spark's workers must run this same Python: they import squall and the topology's dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    # Not `.config` one by one: settings of an earlier session in this process must not remain.
    settings = {"spark.app.name": name, "spark.master": master, **_OURS}
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": java_options(os.cpu_count() or 1),
        }
    settings |= dict(conf)
    builder: Any = SparkSession.builder
    with _output_to(log_file), _java_ends_with_us():
        try:
            session = builder.config(map=settings).getOrCreate()
        except Exception as error:
            raise _not_started(master, error, log_file) from error
    try:
        with _python_logs_to(log_file):
            yield session
    finally:
        with _output_to(log_file), contextlib.suppress(Exception):
            session.stop()


@contextlib.contextmanager
def _java_ends_with_us() -> Iterator[None]:
    """The JVM that PySpark starts meanwhile is killed when this process dies: it would go on with
    the job, and with a checkpoint that belongs to the next driver, until it notices. Not on another
    thread than the main one: the kernel would kill it when that thread ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import pyspark.java_gateway

    gateway: Any = pyspark.java_gateway  # (it does not export its Popen)

    original = gateway.Popen

    def started(*args: Any, preexec_fn: Callable[[], None] | None = None, **kwargs: Any) -> Any:
        end = end_with_parent(signal.SIGKILL)

        def in_child() -> None:
            if preexec_fn is not None:
                preexec_fn()
            end()

        return original(*args, preexec_fn=in_child, **kwargs)

    gateway.Popen = started
    try:
        yield
    finally:
        gateway.Popen = original


def _not_started(master: str, error: Exception, log_file: Path | None) -> SquallError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    return SquallError(
        f"Spark did not start with master {master}: {reason}",
        hint=None if log_file is None else f"see {log_file}",
    )


@contextlib.contextmanager
def _python_logs_to(log_file: Path | None) -> Iterator[None]:
    """Send the logs of PySpark and Py4J to the file: they show whole tracebacks of errors that we
    report in one line. (Py4J logs the end of a call by a signal with the root logger.)"""
    if log_file is None:
        yield
        return
    handler = logging.FileHandler(log_file)
    root = logging.getLogger()

    def is_not_of_py4j(record: logging.LogRecord) -> bool:
        if Path(record.pathname).parent.name != "py4j":
            return True
        handler.handle(record)
        return False

    root.addFilter(is_not_of_py4j)
    loggers = [logging.getLogger(name) for name in ("py4j", "pyspark")]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        root.removeFilter(is_not_of_py4j)
        for logger, before in zip(loggers, propagated, strict=True):
            logger.removeHandler(handler)
            logger.propagate = before
        handler.close()


@contextlib.contextmanager
def _output_to(log_file: Path | None) -> Iterator[None]:
    """Point file descriptors 1 and 2 to the log file: children started now keep it."""
    if log_file is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise SquallError(f"cannot write the log file {log_file}: {error.strerror}") from error
    saved = os.dup(1), os.dup(2)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, was in enumerate(saved, start=1):
            os.dup2(was, number)
            os.close(was)
        os.close(log)
