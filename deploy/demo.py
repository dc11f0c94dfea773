"""`make demo`: word count over a real text, on a real cluster of processes on this machine.

Starts `storm dev` with two supervisors, submits `examples/wordcount` with `storm jar`, shows the
top words and the acked and failed lines, checks the counts against a plain count of the same text,
ends the topology with `storm kill`, and then the cluster. Exit status 0 if all of this succeeded.

All files are in a temporary folder, which is removed at the end (`--keep` keeps it).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parent.parent
WORDCOUNT = ROOT / "examples" / "wordcount"
STORM = [sys.executable, "-m", "squall_cli.main"]
NAME = "wordcount"

START_TIMEOUT_SECS = 60.0
COUNT_TIMEOUT_SECS = 60.0
STOP_TIMEOUT_SECS = 30.0


class DemoError(Exception):
    """A step of the demo failed; the message says which."""


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def cluster(data_dir: Path) -> Iterator[dict[str, Any]]:
    """A development cluster with two supervisors; yields the output of `storm dev --json`, and
    checks at the end that it exits with status 0."""
    messages = data_dir.parent / "storm-dev.err"
    argv = [
        *STORM, "dev", "--json", "--free-ports", "--data-dir", str(data_dir),
        "--supervisors", "2", "--slots", "2",
    ]  # fmt: skip
    with messages.open("wb") as errors:
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    assert process.stdout is not None
    try:
        alarm = threading.Timer(START_TIMEOUT_SECS + 10, process.kill)
        alarm.start()
        line = process.stdout.readline()
        alarm.cancel()
        if not line:
            raise DemoError(f"storm dev did not start:\n{messages.read_text()}")
        yield json.loads(line)
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_TIMEOUT_SECS)
        if status != 0:
            raise DemoError(f"storm dev exited with status {status}:\n{messages.read_text()}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def storm(conf_file: Path, *arguments: str | Path) -> str:
    """Run one `storm` command, shown as one would type it; return its stdout."""
    say("$ storm " + " ".join(str(a).replace(str(ROOT) + os.sep, "") for a in arguments))
    result = subprocess.run(
        [*STORM, "--config", str(conf_file), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    if result.returncode != 0:
        raise DemoError(f"storm {arguments[0]} exited with status {result.returncode}")
    return result.stdout


def submit(conf_file: Path, text: Path, output: Path) -> tuple[float, float]:
    """`storm jar`; returns when it was typed and when submitTopology was called (monotonic)."""
    arguments = [
        "jar", str(WORDCOUNT), "wordcount", "--text", str(text), "--output", str(output),
    ]  # fmt: skip
    say("$ storm " + " ".join(a.replace(str(ROOT) + os.sep, "") for a in arguments))
    typed = time.monotonic()
    called = typed
    with subprocess.Popen(
        [*STORM, "--config", str(conf_file), *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("submitting topology"):
                called = time.monotonic()
            say("  " + line.rstrip())
    if process.returncode != 0:
        raise DemoError(f"storm jar exited with status {process.returncode}")
    return typed, called


def progress_of(output: Path) -> dict[str, int] | None:
    """Counts of lines, acked and failed, written by the source's tasks; None before the first."""
    files = list(output.glob("lines-*.json"))
    if not files:
        return None
    values = [json.loads(file.read_text()) for file in files]
    return {key: sum(value[key] for value in values) for key in ("lines", "acked", "failed")}


def wait(what: str, probe: Callable[[], bool], timeout_secs: float, poll_secs: float) -> None:
    """Wait until `probe` holds. Raises DemoError after a timeout."""
    deadline = time.monotonic() + timeout_secs
    while not probe():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {timeout_secs:.0f} s for {what}")
        time.sleep(poll_secs)


def watch(output: Path) -> None:
    """Show how many lines are acked until all are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("lines acked", total=None)

        def done() -> bool:
            now = progress_of(output) or {"lines": 0, "acked": 0}
            bar.update(task, total=now["lines"] or None, completed=now["acked"])
            return now["acked"] == now["lines"] > 0

        wait("every line to be acked", done, COUNT_TIMEOUT_SECS, 0.1)


class FirstAck(threading.Thread):
    """Watches, during the submission, for the moment when the first line is acked."""

    def __init__(self, output: Path) -> None:
        super().__init__(name="first-ack", daemon=True)
        self._output = output
        self._at: float | None = None

    def run(self) -> None:
        deadline = time.monotonic() + COUNT_TIMEOUT_SECS
        while self._at is None and time.monotonic() < deadline:
            now = progress_of(self._output)
            if now is not None and now["acked"] > 0:
                self._at = time.monotonic()
            else:
                time.sleep(0.005)

    def wait(self) -> float:
        """That moment (monotonic). Raises DemoError after a timeout."""
        self.join()
        if self._at is None:
            raise DemoError(f"no line was acked within {COUNT_TIMEOUT_SECS:.0f} s")
        return self._at


def run(folder: Path) -> None:
    """The demo, in a folder of its own. Raises DemoError."""
    text, output = folder / "text.txt", folder / "counts"
    say("Making a text ...")
    subprocess.run([sys.executable, str(WORDCOUNT / "sample_text.py"), str(text)], check=True)
    say("\nStarting ZooKeeper, Nimbus and two supervisors ($ storm dev) ...")
    started = time.monotonic()
    with cluster(folder / "cluster") as state:
        conf_file = Path(state["conf_file"])
        daemons = {"ZooKeeper": state["zookeeper"], "Nimbus": state["nimbus"]}
        for name, daemon in daemons.items():
            say(f"  {name:<12} process {daemon['pid']}, {daemon['host']}:{daemon['port']}")
        for number, supervisor in enumerate(state["supervisors"], 1):
            slots = ", ".join(map(str, supervisor["slots"]))
            say(f"  Supervisor {number} process {supervisor['pid']}, slots {slots}")
        say(f"The cluster was up after {time.monotonic() - started:.1f} s.\n")

        first_ack = FirstAck(output)
        first_ack.start()
        typed, called = submit(conf_file, text, output)
        first = first_ack.wait()
        say(
            f"The first line was processed {first - called:.2f} s after submitTopology, "
            f"{first - typed:.2f} s after 'storm jar' was typed."
        )
        watch(output)
        say("")
        report = subprocess.run(
            [
                sys.executable, str(WORDCOUNT / "report.py"), "--text", str(text),
                "--output", str(output), "--wait", "20",
            ],
            check=False,
        )  # fmt: skip
        if report.returncode != 0:
            raise DemoError("the counts differ from the plain count")
        say("")
        say(storm(conf_file, "list").rstrip())
        storm(conf_file, "kill", NAME, "-w", "0")

        def gone() -> bool:
            listed = subprocess.run(
                [*STORM, "--config", str(conf_file), "list", "--json"],
                stdout=subprocess.PIPE,
                check=True,
            )
            return not json.loads(listed.stdout)

        wait("the topology to be gone", gone, STOP_TIMEOUT_SECS, 0.2)
        say("The topology is gone. Ending the cluster ...")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    options = parser.parse_args()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="squall-demo-"))
    failed = False
    try:
        run(folder)
    except (DemoError, subprocess.SubprocessError, OSError) as error:
        failed = True
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        failed = True
        print("Interrupted.", file=sys.stderr)
    if failed or options.keep:
        print(f"Logs and data are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    say(f"{'Failed' if failed else 'Done'} after {time.monotonic() - started:.1f} s.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
