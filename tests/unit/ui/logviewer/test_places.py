"""Which files the logviewer opens, and which it never does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_ui.logviewer.places import NotServedError, Places

TOPOLOGY = "words-1-1700000000"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    folder = tmp_path / "logs" / "workers-artifacts" / TOPOLOGY / "6700"
    folder.mkdir(parents=True)
    (folder / "worker.log").write_text("one\n")
    (folder / "flamegraph-17.svg").write_text("<svg/>")
    (folder / ".hidden").write_text("no")
    (tmp_path / "logs" / "nimbus.log").write_text("nimbus\n")
    (tmp_path / "logs" / "storm.yaml").write_text("secret\n")
    (tmp_path / "secret").write_text("secret\n")
    return Places([tmp_path / "logs"], [tmp_path / "logs" / "workers-artifacts"])


def read(places: Places, file: str) -> bytes:
    with places.opened(file) as fd:
        return os.read(fd, 100)


def folder(places: Places) -> Path:
    return Path(places.artifacts[0]) / TOPOLOGY / "6700"


def test_a_log_is_opened(places: Places) -> None:
    assert read(places, f"{TOPOLOGY}/6700/worker.log") == b"one\n"


@pytest.mark.parametrize(
    "file",
    [
        "",
        "/etc/passwd",
        "../../secret",
        f"{TOPOLOGY}/6700/../../../../secret",
        f"{TOPOLOGY}/../storm.yaml",
        f"../workers-artifacts/{TOPOLOGY}/6700/worker.log",
        f"{TOPOLOGY}/6700/.hidden",
        f"{TOPOLOGY}/6700/",
        f"{TOPOLOGY}/6700",
        f"{TOPOLOGY}/port/worker.log",
        f"{TOPOLOGY}/6700/worker.log/",
        f"{TOPOLOGY}/6700/worker.log\x00.gz",
        f"{TOPOLOGY}/6700/{'x' * 300}",
        f"./{TOPOLOGY}/6700",
        f"{TOPOLOGY}//worker.log",
        f"{TOPOLOGY}/6700/%2e%2e",
        "..\\..\\secret",
    ],
)
def test_no_path_leads_out(places: Places, file: str) -> None:
    with pytest.raises(NotServedError), places.opened(file):
        pass


def test_links_out_are_not_followed(places: Places, tmp_path: Path) -> None:
    (folder(places) / "link.log").symlink_to(tmp_path / "secret")
    (folder(places).parent / "6701").symlink_to(tmp_path)
    os.link(tmp_path / "secret", folder(places) / "hard.log")
    for file in ("6700/link.log", "6701/secret", "6700/hard.log"):
        with pytest.raises(NotServedError), places.opened(f"{TOPOLOGY}/{file}"):
            pass
    listed = {one.name for one in places.files(TOPOLOGY)}
    assert listed == {"flamegraph-17.svg", "worker.log"}


def test_a_topology_that_is_a_link_is_not_served(places: Places, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "6700").mkdir(parents=True)
    (tmp_path / "elsewhere" / "6700" / "worker.log").write_text("secret")
    (Path(places.artifacts[0]) / "evil-1-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotServedError), places.opened("evil-1-1/6700/worker.log"):
        pass
    assert places.files("evil-1-1") == []


def test_pipes_devices_and_folders_are_refused_at_once(places: Places) -> None:
    """A pipe without a writer would hold whoever opens it."""
    os.mkfifo(folder(places) / "pipe.log")
    (folder(places) / "folder.log").mkdir()
    (folder(places) / "zero.log").symlink_to("/dev/zero")
    for name in ("pipe.log", "folder.log", "zero.log"):
        with pytest.raises(NotServedError), places.opened(f"{TOPOLOGY}/6700/{name}"):
            pass


def test_of_daemons_only_logs_are_served(places: Places) -> None:
    assert places.daemon_logs() == ["nimbus.log"]
    with places.opened_daemon_log("nimbus.log") as fd:
        assert os.read(fd, 10) == b"nimbus\n"
    for name in ("storm.yaml", "../secret", "workers-artifacts", "/etc/passwd", ".log", ""):
        with pytest.raises(NotServedError), places.opened_daemon_log(name):
            pass


def test_several_supervisors_of_a_machine_are_one_place(tmp_path: Path) -> None:
    for number, port in ((1, 6700), (2, 6710)):
        path = tmp_path / f"{number}" / "w" / TOPOLOGY / str(port)
        path.mkdir(parents=True)
        (path / "worker.log").write_text(f"{number}")
    places = Places([tmp_path], [tmp_path / "1" / "w", tmp_path / "2" / "w", tmp_path / "none"])
    assert {one.port for one in places.files(TOPOLOGY)} == {6700, 6710}
    assert read(places, f"{TOPOLOGY}/6710/worker.log") == b"2"
    assert [one.port for one in places.files(port=6700)] == [6700]


def test_dumps_are_told_from_logs(places: Places) -> None:
    assert [one.name for one in places.dumps(TOPOLOGY, 6700)] == ["flamegraph-17.svg"]
