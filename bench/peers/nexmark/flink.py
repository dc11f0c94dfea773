"""Apache Flink from its published Python package, of which only the jars are used: a JVM that runs
SQL over events that it has read (`Auctions.java`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.peers.nexmark.queries import VIEWS
from bench.peers.tools import UnavailableError, run_tool
from bench.runs import RunError

VERSION = "2.3.0"
HERE = Path(__file__).resolve().parent
_MAIN = "squall.bench.Auctions"
_HEAP = "2g"
# Flink's serializers look into classes of Java's own.
_OPENS = [
    option
    for package in ("java.lang", "java.util", "java.time", "java.nio")
    for option in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
]


def install(home: Path) -> None:
    """The jars and our program, into `home`. Raises UnavailableError."""
    missing = [tool for tool in ("java", "javac") if shutil.which(tool) is None]
    if missing:
        raise UnavailableError(f"not found: {', '.join(missing)}")
    jars = home / "lib"
    if not jars.exists():
        home.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary"]
        package = f"apache-flink-libraries=={VERSION}"
        run_tool([*pip, ":all:", "--dest", str(home), package], f"pip, {package}", 600)
        [wheel] = home.glob("apache_flink_libraries-*.whl")
        fresh = home / ".lib"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("pyflink/lib/") and name.endswith(".jar"):
                    (fresh / Path(name).name).write_bytes(archive.read(name))
        wheel.unlink()
        fresh.rename(jars)
    classes = home / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir()
    source = str(HERE / "Auctions.java")
    run_tool(["javac", "-cp", f"{jars}/*", "-d", str(classes), source], "javac", 120)


def write_events(events: Iterable[Any], path: Path) -> None:
    """Lines for `Auctions.java`: the kind, Flink's time, and the fields of each event."""
    kinds = {"Person": 0, "Auction": 1, "Bid": 2}
    with path.open("w") as file:
        for event in events:
            fields = (kinds[type(event).__name__], event.at - 1, *event)
            file.write("\t".join(map(str, fields)) + "\n")


class Flink:
    """A JVM that waits for queries.

    with Flink(home, events_file, folder) as flink:
        cpu_secs, wall_secs = flink.measure("SELECT ...", 100_000)
    """

    def __init__(self, home: Path, events: Path, folder: Path) -> None:
        self._folder = folder
        views = folder / "views.sql"
        views.write_text("\n".join(VIEWS) + "\n")
        self._log = (folder / "flink.log").open("w")
        command = ["java", f"-Xms{_HEAP}", f"-Xmx{_HEAP}", *_OPENS]
        command += ["-cp", f"{home}/classes:{home}/lib/*", _MAIN, str(events), str(views)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=folder,
        )
        while (line := self._out.readline()) != "ready\n":
            if not line:
                self._end()
                raise UnavailableError(f"Flink did not start: {self._tail()}")

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def measure(self, sql: str, events: int) -> tuple[float, float]:
        """Seconds of CPU of the JVM, and of the clock, from the first event to the end of the job.
        Raises RunError."""
        cpu, wall = self._ask(sql, events, "-").split()
        return int(cpu) / 1e9, int(wall) / 1e9

    def rows(self, sql: str, events: int) -> Sequence[str]:
        """The changelog of a query: `KIND` and the fields of each row, by tabs. Raises RunError."""
        path = self._folder / "rows.tsv"
        self._ask(sql, events, str(path))
        return path.read_text().splitlines()

    def _ask(self, sql: str, events: int, path: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{events}\t{path}\t{sql}\n")
        self._process.stdin.flush()
        while line := self._out.readline().strip():
            if line.startswith("error "):
                raise RunError(f"Flink: {line.removeprefix('error ')}")
            if line.replace(" ", "").isdigit():
                return line
        raise RunError(f"Flink ended: {self._tail()}")

    def _tail(self) -> str:
        self._log.flush()
        lines = (self._folder / "flink.log").read_text().strip().splitlines()
        return " ".join(lines[-2:])

    def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
