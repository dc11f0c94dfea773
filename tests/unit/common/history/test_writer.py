"""The writer: whole files under names of their own, nothing waits, nothing is lost silently."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from squall_common.config.options.typed import NimbusOptions, TopologyOptions, WorkerOptions
from squall_common.daemon.clock import ManualClock, SystemClock
from squall_common.daemon.folders import Folder
from squall_common.history.events import DaemonHistory
from squall_common.history.schema import Row, from_parquet
from squall_common.history.settings import (
    HistorySettings,
    HistoryUnavailableError,
    check_available,
    history_url,
)
from squall_common.history.writer import HistoryWriter, expire, file_name, written_at_ms

ID = "top-1-1700000000"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_common.history.writer._IMPORT_AFTER_SECS", 0.0)


class Gate(Folder):
    """A folder that is slow, or broken, until it is let go."""

    def __init__(self, url: str, *, error: Exception | None = None, opened: Any = None) -> None:
        super().__init__(url)
        self.error, self.opened = error, opened or threading.Event()
        self.tries = threading.Semaphore(0)

    def __truediv__(self, name: str) -> Gate:
        below = Gate(f"{self.url}/{name}", error=self.error, opened=self.opened)
        below.tries = self.tries
        return below

    def write(self, name: str, data: bytes) -> None:
        self.tries.release()
        if not self.opened.is_set():
            if self.error is not None:
                raise self.error
            self.opened.wait(30)
        super().write(name, data)


def writer(folder: Folder, **options: Any) -> HistoryWriter:
    made = HistoryWriter(folder, worker="h:6700", incarnation="1.2", clock=SystemClock(), **options)
    made.start()
    return made


def rows_in(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.parquet")):
        found += from_parquet(path.read_bytes(), path.name).to_pylist()
    return found


def row(number: int, text: str = "") -> Row:
    return Row(number, "event", "e", text=text)


def test_what_was_added_is_in_whole_files_by_topology(tmp_path: Path) -> None:
    made = writer(Folder(str(tmp_path / "h")), rotation_secs=3600)
    made.add(ID, [row(1), row(2)])
    made.add("other-2-1", [row(3)])
    assert made.close(30)
    assert [r["at_ms"] for r in rows_in(tmp_path / "h" / ID)] == [1, 2]
    assert [r["at_ms"] for r in rows_in(tmp_path / "h" / "other-2-1")] == [3]
    assert not list((tmp_path / "h").rglob(".*"))
    made.add(ID, [row(4)])  # too late, and no error
    assert len(rows_in(tmp_path)) == 3


def test_odd_names_stay_inside_the_folder(tmp_path: Path) -> None:
    names = ["..-1-1", "a%2Fb*{}[]?-1-1", "ünï-1-1", ".."]
    made = writer(Folder(str(tmp_path / "h")))
    for number, name in enumerate(names):
        made.add(name, [row(number)])
    assert made.close(30)
    assert len(list((tmp_path / "h").iterdir())) == len(names)
    assert [p.name for p in tmp_path.iterdir()] == ["h"]


def test_a_file_is_written_after_the_rotation_and_when_enough_waits(tmp_path: Path) -> None:
    gate = Gate(str(tmp_path))
    gate.opened.set()
    made = writer(gate, rotation_secs=0.05)
    made.add(ID, [row(1)])
    assert gate.tries.acquire(timeout=30)
    assert made.close(30)
    made = writer(gate, rotation_secs=3600, rotation_bytes=10_000)
    made.add(ID, [row(1)])
    made.add(ID, [row(n) for n in range(100)])
    assert gate.tries.acquire(timeout=30)
    assert made.close(30)
    assert len(rows_in(tmp_path)) == 102


def test_a_rotation_of_more_than_the_queue_holds_loses_nothing(tmp_path: Path) -> None:
    made = writer(
        Folder(str(tmp_path)), rotation_secs=3600, rotation_bytes=10**9, waiting_bytes_max=10_000
    )
    for written in (25, 50, 75, 100):
        made.add(ID, [row(n) for n in range(25)])  # 6,400 bytes
        deadline = time.monotonic() + 30
        while made.rows_written < written and time.monotonic() < deadline:
            time.sleep(0.01)
    assert made.close(30)
    assert made.rows_lost == 0
    assert len(rows_in(tmp_path)) == 100


def test_a_full_queue_drops_and_counts_and_the_history_says_so(tmp_path: Path) -> None:
    gate = Gate(str(tmp_path))
    made = writer(gate, rotation_secs=0.01, waiting_bytes_max=10_000)
    made.add(ID, [row(1)])
    assert gate.tries.acquire(timeout=30)  # stuck in the first file
    for number in range(200):
        made.add(ID, [row(number, "x" * 100)])
    lost = made.rows_lost
    assert 100 < lost < 200
    assert not made.close(0.05)
    gate.opened.set()
    made._thread.join(30)
    rows = rows_in(tmp_path)
    assert sum(r["n"] for r in rows if r["kind"] == "lost") == lost
    assert len([r for r in rows if r["kind"] == "event"]) == 201 - lost


def test_rows_that_could_not_be_written_are_tried_again(tmp_path: Path) -> None:
    reported: list[Exception] = []
    gate = Gate(str(tmp_path), error=OSError(28, "No space left on device"))
    made = writer(gate, rotation_secs=0.01, on_trouble=reported.append)
    made.add(ID, [row(1)])
    assert gate.tries.acquire(timeout=30)
    assert gate.tries.acquire(timeout=30)  # again
    gate.opened.set()
    made.add(ID, [row(2)])
    assert made.close(30)
    assert sorted(r["at_ms"] for r in rows_in(tmp_path)) == [1, 2]
    assert [str(one) for one in reported] == ["[Errno 28] No space left on device"]  # once a minute


def test_an_invalid_row_costs_its_file_and_not_the_writer(tmp_path: Path) -> None:
    made = writer(Folder(str(tmp_path)), rotation_secs=3600)
    made.add(ID, [Row("now", "event")])  # type: ignore[arg-type]
    made.add("other-1-1", [row(1)])
    assert made.close(30)
    assert [r["at_ms"] for r in rows_in(tmp_path / "other-1-1")] == [1]
    assert made.rows_lost == 1


def test_without_pyarrow_nothing_is_kept_and_one_warning_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Exception] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    made = writer(Folder(str(tmp_path)), on_trouble=reported.append)
    made._thread.join(30)
    made.add(ID, [row(1)])
    assert made.close(30)
    assert len(reported) == 1
    assert "pyarrow" in str(reported[0])
    assert "squall[history]" in str(reported[0])


def test_a_package_that_breaks_at_its_import_keeps_nothing_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(url: str) -> None:
        raise AttributeError("module 'aiobotocore' has no attribute 'session'")

    reported: list[Exception] = []
    monkeypatch.setattr("squall_common.history.writer.check_available", broken)
    made = writer(Folder("s3://bucket/h"), on_trouble=reported.append)
    made._thread.join(30)
    made.add(ID, [row(1)])
    assert made.close(30)
    assert [str(one) for one in reported] == ["module 'aiobotocore' has no attribute 'session'"]
    assert made._rows == {}


def test_a_url_is_written_to_with_a_single_put() -> None:
    import fsspec

    fsspec.filesystem("memory").store.clear()
    folder = Folder("memory://history/a")
    made = writer(folder)
    made.add(ID, [row(7)])
    assert made.close(30)
    place = folder / ID
    (name,) = place.names()
    assert [r["at_ms"] for r in from_parquet(place.read(name), name).to_pylist()] == [7]
    assert expire(folder, 4e9) == 1
    assert (folder / ID).names() == []


def test_a_url_whose_package_is_missing_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_available("memory://h")
    with pytest.raises(HistoryUnavailableError, match=r"mars://x/h cannot be used here: .*mars"):
        check_available("mars://x/h")

    def missing(protocol: str) -> None:
        raise ImportError(f"Install the package of {protocol}")

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    with pytest.raises(HistoryUnavailableError, match=r"s3://b/h .* Install the package of s3"):
        check_available("simplecache::s3://b/h")


def test_old_files_and_what_killed_writers_left_are_deleted(tmp_path: Path) -> None:
    place = tmp_path / ID
    place.mkdir()
    old, new = file_name(1_000_000, "w-1", 1), file_name(9_000_000, "w-1", 2)
    for name in (old, new, f".{old}.abcd", "notes.txt"):
        (place / name).write_bytes(b"x")
    (tmp_path / "gone-1-1").mkdir()
    (tmp_path / "gone-1-1" / old).write_bytes(b"x")
    assert expire(Folder(str(tmp_path)), 5_000) == 3
    assert sorted(p.name for p in place.iterdir()) == [new, "notes.txt"]
    assert not (tmp_path / "gone-1-1").exists()
    assert expire(Folder(str(tmp_path / "nowhere")), 5_000) == 0


def test_a_topology_whose_files_stay_does_not_keep_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = file_name(1_000_000, "w-1", 1)
    for name in ("a-1-1", "b-1-1", "c-1-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / old).write_bytes(b"x")
    delete, kept = Folder.delete, Folder(str(tmp_path)).names()[0]

    def refuse(self: Folder, name: str) -> None:
        if self.url.endswith(kept):
            raise PermissionError(13, "Permission denied")
        delete(self, name)

    monkeypatch.setattr(Folder, "delete", refuse)
    with pytest.raises(PermissionError):
        expire(Folder(str(tmp_path)), 5_000)
    assert [p.name for p in tmp_path.rglob("*.parquet")] == [old]
    assert (tmp_path / kept / old).exists()


@pytest.mark.parametrize("scheme", ["memory://history/two", "file://{}"])
def test_two_daemons_may_delete_old_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    folder = Folder(scheme.format(tmp_path))
    for number in (1, 2):
        (folder / ID).write(file_name(1_000_000, "w-1", number), b"x")
    names = Folder.names

    def names_then_the_other_daemon(self: Folder) -> list[str]:
        found = names(self)
        for name in found:
            if name.endswith("000001.parquet"):
                self.delete(name)
        return found

    monkeypatch.setattr(Folder, "names", names_then_the_other_daemon)
    expire(folder, 5_000)
    monkeypatch.undo()
    assert (folder / ID).names() == []


def old_daemon(folder: Path, hours: float) -> DaemonHistory:
    """With a file of just more than an hour ago, and one of just less, in the folder."""
    clock = ManualClock()
    place = folder / ID
    place.mkdir(parents=True)
    for number, secs_ago in enumerate((3601, 3599)):
        at_ms = int((clock.time() - secs_ago) * 1000)
        (place / file_name(at_ms, "w-1", number)).write_bytes(b"x")
    return DaemonHistory(
        str(folder),
        retention_hours=hours,
        name="nimbus h:1",
        clock=clock,
        topology_conf=lambda _: {},
    )


@pytest.mark.parametrize(("hours", "kept"), [(1, 1), (0.9997, 0), (2, 2), (0, 2)])
async def test_a_daemon_deletes_what_is_older_than_its_retention(
    tmp_path: Path, hours: float, kept: int
) -> None:
    """Nothing goes without a retention."""
    daemon = old_daemon(tmp_path / "h", hours)
    names = sorted(path.name for path in (tmp_path / "h" / ID).iterdir())
    await daemon.expire()
    left = sorted(path.name for path in (tmp_path / "h").rglob("*.parquet"))
    assert left == names[2 - kept :]
    await daemon.close()


async def test_a_folder_that_cannot_be_tidied_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    daemon = DaemonHistory(
        "mars://x",
        retention_hours=1,
        name="nimbus h:1",
        clock=SystemClock(),
        topology_conf=lambda _: {},
    )
    await daemon.expire()
    assert "history_not_expired" in caplog.text
    assert "mars" in caplog.text
    await daemon.close()


def test_names_sort_by_time_and_tell_it() -> None:
    names = [file_name(at, "h:1-a.1", 1) for at in (5, 1_700_000_000_000, 99_999)]
    assert [written_at_ms(n) for n in sorted(names)] == [5, 99_999, 1_700_000_000_000]
    assert written_at_ms("x.parquet") is None
    assert written_at_ms("_SUCCESS") is None


def test_where_a_history_lies_is_the_sites_to_say(tmp_path: Path) -> None:
    assert history_url(NimbusOptions(storm_local_dir=str(tmp_path))) == str(tmp_path / "history")
    assert history_url(WorkerOptions(storm_history_dir="/x/y")) == "/x/y"
    assert history_url(WorkerOptions(storm_history_dir="s3://b/h")) == "s3://b/h"
    settings = HistorySettings.of(TopologyOptions(topology_history_key_sampling_rate=0.0))
    assert (settings.interval_secs, settings.key_rate) == (10.0, 0.0)


async def test_a_daemon_adds_events_only_for_topologies_with_a_history(tmp_path: Path) -> None:
    confs = {ID: {"topology.history.enable": True}, "off-1-1": {}}
    daemon = DaemonHistory(
        str(tmp_path / "h"), name="nimbus h:1", clock=SystemClock(), topology_conf=confs.__getitem__
    )
    daemon.record_event("off-1-1", "submitted")
    daemon.record_event("gone-1-1", "submitted")
    await daemon.close()
    assert not (tmp_path / "h").exists()
    daemon.record_event(ID, "submitted", "workers=1")
    daemon.record_event(ID, "worker exited", "killed", "h:6700")
    del confs[ID]
    daemon.record_event(ID, "removed")  # it is known
    await daemon.close()
    rows = rows_in(tmp_path / "h")
    assert [(r["name"], r["text"], r["stream"]) for r in rows] == [
        ("submitted", "workers=1", ""),
        ("worker exited", "killed", "h:6700"),
        ("removed", "", ""),
    ]
    assert daemon.known == [ID]


async def test_a_rebalance_may_switch_a_history_on_and_off(tmp_path: Path) -> None:
    confs: dict[str, Any] = {ID: {}}
    daemon = DaemonHistory(
        str(tmp_path / "h"),
        name="nimbus h:1",
        clock=SystemClock(),
        topology_conf=confs.__getitem__,
    )
    for on in (False, True, False, True):
        confs[ID] = {"topology.history.enable": on}
        daemon.record_event(ID, "rebalanced", f"history {on}")
    await daemon.close()
    assert [r["text"] for r in rows_in(tmp_path / "h")] == ["history True"] * 2


async def test_a_configuration_that_cannot_be_read_is_logged_and_ends_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(topology_id: str) -> dict[str, Any]:
        raise ValueError(f"{topology_id}: no JSON")

    warned: list[str] = []
    monkeypatch.setattr(
        "squall_common.history.events.log.warning", lambda what, **_: warned.append(what)
    )
    daemon = DaemonHistory(
        str(tmp_path / "h"),
        name="nimbus h:1",
        clock=SystemClock(),
        topology_conf=damaged,
    )
    daemon.record_event(ID, "assigned")
    await daemon.close()
    assert warned == ["history_of_topology_unknown"]
    assert not (tmp_path / "h").exists()
