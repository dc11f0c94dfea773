"""Files of workers that run as other users: what root does in a stranger's folder, it does to that
folder only."""

import errno
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.others import folder_for_others, missing, python_for_others

from squall_common.security.credentials import CREDENTIALS_FILE
from squall_supervisor.blobs.credentials import give_credentials
from squall_supervisor.confine import ownership
from squall_supervisor.confine.confinement import Confinement, WorkerUser, start_confined
from squall_supervisor.confine.ownership import (
    give_away,
    grant,
    make_own,
    open_passage,
    read_own,
    readers,
)

BLUE = WorkerUser("blue", 61001, 61001, (61001,), "/")
RED = WorkerUser("red", 61002, 61002, (61002,), "/")

PYTHON = python_for_others() or ""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    if not PYTHON:
        missing("no Python of this version that other users can run")
    with folder_for_others() as folder:
        yield folder


def as_user(user: WorkerUser, code: str, folder: Path) -> str:
    """What a program says that runs as a user."""
    child = subprocess.run(
        [PYTHON, "-I", "-S", "-c", code], user=user.uid, group=user.gid,
        extra_groups=list(user.groups), cwd=folder, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return child.stdout + child.stderr


@root_only
def test_a_folder_is_given_away_except_for_our_own_files(folder: Path) -> None:
    worker = folder / "w1"
    worker.mkdir(mode=0o700)
    (worker / "tmp").mkdir(mode=0o700)
    for name in ("launch.json", "key"):
        (worker / name).write_text("x")
        (worker / name).chmod(0o600)
    victim = folder / "victim"
    victim.write_text("x")
    (worker / "link").symlink_to(victim)
    give_away(worker, BLUE, keep=frozenset({"launch.json"}))
    assert [path.stat().st_uid for path in (worker, worker / "tmp")] == [BLUE.uid, BLUE.uid]
    assert stat.S_IMODE(worker.stat().st_mode) == 0o700
    assert (worker / "key").stat().st_uid == BLUE.uid
    assert (worker / "launch.json").stat().st_uid == 0
    assert victim.stat().st_uid == 0  # the target of a link is not touched
    code = "print(open('launch.json').read(), open('key').read())"
    assert as_user(BLUE, code, worker).split() == ["x", "x"]
    assert "PermissionError" in as_user(RED, f"open({str(worker / 'launch.json')!r})", folder)
    assert "PermissionError" in as_user(BLUE, "open('launch.json', 'w')", worker)


@root_only
def test_new_credentials_reach_a_worker_of_another_user_and_no_one_else(folder: Path) -> None:
    worker = folder / "w1"
    worker.mkdir(mode=0o700)
    file = worker / CREDENTIALS_FILE
    file.write_text("first")
    file.chmod(0o600)
    give_away(worker, BLUE, keep=frozenset({CREDENTIALS_FILE}))
    read = f"print(open({str(file)!r}).read())"
    assert as_user(BLUE, read, folder).strip() == "first"
    assert give_credentials(worker, b"second")
    assert as_user(BLUE, read, folder).strip() == "second"
    assert "PermissionError" in as_user(RED, read, folder)
    assert "PermissionError" in as_user(BLUE, f"open({str(file)!r}, 'w')", folder)
    # What its user puts in its place is replaced, and what it leads to is not touched.
    victim = folder / "victim"
    victim.write_text("x")
    swap = f"import os; os.remove({str(file)!r}); os.symlink({str(victim)!r}, {str(file)!r})"
    assert as_user(BLUE, swap, folder) == ""
    assert give_credentials(worker, b"second")
    assert (victim.read_text(), file.is_symlink(), file.stat().st_uid) == ("x", False, 0)
    assert give_credentials(worker, b"third")
    assert as_user(BLUE, read, folder).strip() == "third"


@root_only
def test_only_the_granted_user_is_let_in(folder: Path) -> None:
    code = folder / "code"
    code.mkdir(mode=0o700)
    (code / "main.py").write_text("secret")
    (code / "main.py").chmod(0o644)
    read = f"print(open({str(code / 'main.py')!r}).read())"
    grant(code, BLUE.uid)
    assert as_user(BLUE, read, folder).strip() == "secret"
    assert "PermissionError" in as_user(RED, read, folder)
    assert "PermissionError" in as_user(BLUE, "open('code/new', 'w')", folder)
    grant(code, RED.uid)
    grant(code, RED.uid)
    assert readers(code) == [BLUE.uid, RED.uid]
    assert as_user(RED, read, folder).strip() == "secret"


@root_only
def test_concurrent_grants_all_take_effect(folder: Path) -> None:
    threads = [threading.Thread(target=grant, args=(folder, 61000 + n)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert readers(folder) == [61000 + n for n in range(24)]


@root_only
def test_a_passage_can_be_walked_through_but_not_listed(folder: Path) -> None:
    (folder / "passage" / "inner").mkdir(parents=True)
    open_passage(folder / "passage")
    assert "PermissionError" in as_user(BLUE, "import os; os.listdir('passage')", folder)
    assert as_user(BLUE, "import os; print(os.listdir('passage/inner'))", folder).strip() == "[]"


@root_only
def test_logs_of_another_user_are_put_aside(folder: Path) -> None:
    logs = folder / "t-1" / "6700"
    make_own(logs, BLUE)
    (logs / "worker.log").symlink_to("/etc/passwd")
    make_own(logs, BLUE)
    assert (logs / "worker.log").is_symlink()  # its own affair
    make_own(logs, RED)
    assert list(logs.iterdir()) == []
    assert logs.stat().st_uid == RED.uid
    make_own(logs, None)  # as after the option was taken away: nothing of a stranger's is followed
    assert logs.stat().st_uid == os.geteuid()
    assert {path.name for path in logs.parent.iterdir()} == {
        "6700", f"6700.of-user-{BLUE.uid}-1", f"6700.of-user-{RED.uid}-1",
    }  # fmt: skip


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o750)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for attempt in (
        lambda: make_own(tmp_path / "link", None),
        lambda: grant(tmp_path / "link", 61001),
        lambda: open_passage(tmp_path / "link"),
        lambda: give_away(tmp_path / "link", BLUE, keep=frozenset()),
    ):
        with pytest.raises(OSError, match="link"):
            attempt()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o750


@root_only
def test_a_file_that_turns_into_a_link_is_not_followed(folder: Path) -> None:
    """CVE-2026-82429: the check and the change are of the same file, however often it is
    swapped."""
    victim = folder / "victim"
    victim.write_text("x")
    worker = folder / "w1"
    worker.mkdir(mode=0o700)
    # In a process of its own: threads take turns, and seldom between a look and what follows it.
    swap = "import os\nwhile True:\n" + "".join(
        f"    {make}; os.rename('new', 'n')\n"
        for make in ("open('new', 'w').close()", f"os.symlink({str(victim)!r}, 'new')")
    )
    child = subprocess.Popen([PYTHON, "-I", "-S", "-c", swap], cwd=worker)
    done = refused = 0
    deadline = time.monotonic() + 60
    try:
        while (done < 500 or not refused) and time.monotonic() < deadline:
            assert victim.stat().st_uid == 0
            try:
                give_away(worker, BLUE, keep=frozenset())
                done += 1
            except FileNotFoundError:
                continue  # it was gone between two looks
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                refused += 1
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    assert done
    assert refused
    assert victim.stat().st_uid == 0


def test_only_files_that_we_wrote_are_read(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.write_text("x")
    assert read_own(ours) == b"x"
    (tmp_path / "link").symlink_to(ours)
    with pytest.raises(OSError, match="link"):
        read_own(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not written by this supervisor"):
        read_own(tmp_path / "pipe")
    (tmp_path / "long").write_text("xx")
    with pytest.raises(ValueError, match="2 bytes"):
        read_own(tmp_path / "long", bytes_max=1)
    (tmp_path / "second").hardlink_to(ours)
    with pytest.raises(ValueError, match="not written"):
        read_own(ours)
    if os.geteuid() == 0:
        os.chown(tmp_path / "long", BLUE.uid, BLUE.gid)
        with pytest.raises(ValueError, match="not written"):
            read_own(tmp_path / "long")


@root_only
def test_a_worker_becomes_its_user_for_good(folder: Path) -> None:
    logs = folder / "logs"
    make_own(logs, BLUE)
    code = """
import json, os
found = {"uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups()}
try:
    os.setuid(0)
except PermissionError:
    found["back"] = False
print(json.dumps(found))
"""
    child = start_confined(
        [PYTHON, "-I", "-S", "-c", code], {}, Confinement(user=BLUE), cwd=Path("/"),
        out=logs / "out", err=logs / "err", launch_file=Path("/dev/null"), marks={},
    )  # fmt: skip
    assert child.wait(timeout=60) == 0, (logs / "err").read_text()
    assert (logs / "out").stat().st_uid == BLUE.uid
    expected = '{"uids": [61001, 61001, 61001], "gids": [61001, 61001, 61001], "groups": [61001]'
    assert (logs / "out").read_text().strip() == expected + ', "back": false}'
    # Its files are opened with its own rights.
    make_own(folder / "others", RED)
    with pytest.raises(OSError, match=r"open .*others/out: Permission denied"):
        start_confined(
            [PYTHON, "-I", "-S", "-c", code], {}, Confinement(user=BLUE), cwd=Path("/"),
            out=folder / "others" / "out", err=logs / "err", launch_file=Path("/dev/null"),
            marks={},
        )  # fmt: skip


def test_a_missing_folder_has_no_owner() -> None:
    assert ownership.owner_of(Path("/no/such/folder")) is None
