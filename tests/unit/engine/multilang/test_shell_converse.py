"""How long the worker stays with a child that it has answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall_engine.multilang.jsonline import JsonSerializer
from squall_engine.multilang.shell import Shell, ShellSetting

EMIT = b'{"command":"emit","anchors":["1"],"tuple":["word"]}\nend\n'
FAULTS: list[str] = []  # that were reported
ACK = b'{"command":"ack","id":"1"}\nend\n'


class Child:
    """Stands for the process: what it says, one read after the other."""

    is_full = False
    pid = 1

    def __init__(self, *says: bytes) -> None:
        self.says = list(says)
        self.heard: list[bytes] = []

    def read_within(self, secs: float) -> bytes:
        return self.says.pop(0) if self.says else b""

    def write(self, data: Any) -> int:
        self.heard.append(bytes(data))
        return len(data)


class Handler:
    """Stands for the log."""

    def log(self, level: int, message: str) -> None:
        pass


class Owner:
    """Stands for the bolt: a child that holds so many tuples."""

    def __init__(self, tuples: int) -> None:
        self.tuples = tuples
        self.shell: Any = None

    @property
    def child_works(self) -> bool:
        return self.tuples > 0

    def child_emits(self, command: Any) -> None:
        self.shell.answer((3,))

    def child_sent(self, name: str, command: Any) -> None:
        assert name == "ack"
        self.tuples -= 1

    def child_fault(self, error: Any) -> None:
        FAULTS.append(str(error))

    def child_paused(self) -> None:
        pass


def spoken(
    child: Child, *, tuples: int, tmp_path: Path, says: bytes = EMIT, linger_secs: float = 1.0
) -> None:
    """The worker after it has read a first emit."""
    owner: Any = Owner(tuples)
    setting = ShellSetting(
        component="bolt",
        task=1,
        argv=("python", "bolt.py"),
        cwd=tmp_path,
        env={},
        pid_dir=tmp_path,
        handshake={},
        timeout_secs=10.0,
        message_bytes_max=1_000_000,
        linger_secs=linger_secs,
    )
    handler: Any = Handler()
    shell: Any = Shell(setting, JsonSerializer(), owner, {}, handler, beats=True, now=lambda: 0.0)
    owner.shell = shell
    shell._process = child
    shell._received(says)


def test_the_child_is_kept_after_the_end_of_one_tuple_of_several(tmp_path: Path) -> None:
    child = Child(EMIT, ACK, EMIT, EMIT, ACK, EMIT)
    spoken(child, tuples=2, tmp_path=tmp_path)
    assert child.says == [EMIT]  # after its last ack it may say nothing for long
    assert child.heard == [b"[3]\nend\n"] * 4


@pytest.fixture(autouse=True)
def _no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, no conversation lasts too long."""
    monkeypatch.setattr("squall_engine.multilang.shell._CONVERSE_SECS_MAX", 60.0)


def test_a_child_that_never_stops_is_left_for_the_loops_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_engine.multilang.shell._CONVERSE_SECS_MAX", 0.0)
    child = Child(EMIT, EMIT)
    spoken(child, tuples=5, tmp_path=tmp_path)
    assert child.says == [EMIT]


def test_staying_can_be_turned_off(tmp_path: Path) -> None:
    child = Child(EMIT)
    spoken(child, tuples=5, tmp_path=tmp_path, linger_secs=0.0)
    assert child.says == [EMIT]


@pytest.mark.parametrize("tuples", [0, 1])
def test_a_child_that_holds_nothing_more_is_left(tuples: int, tmp_path: Path) -> None:
    child = Child(ACK, EMIT)
    spoken(child, tuples=tuples, tmp_path=tmp_path)
    assert child.says == [EMIT]


def test_a_child_that_says_nothing_is_left(tmp_path: Path) -> None:
    child = Child()
    spoken(child, tuples=5, tmp_path=tmp_path)
    assert child.heard == [b"[3]\nend\n"]


@pytest.mark.parametrize(
    ("says", "fault"),
    [
        (b'{"command":"log","msg":"x","level":[1]}', ""),
        (b'{"command":"metrics","name":"x","params":1%s}' % (b"0" * 400), "too large"),
        (b'{"command":"ack","id":"1","more":{}}', "cannot be used: AssertionError"),
    ],
)
def test_a_useless_message_does_not_affect_others(
    says: bytes, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child waits for the answer to its emit, whatever it said before."""
    FAULTS.clear()
    if fault.startswith("cannot"):

        def broken(owner: Owner, name: str, command: Any) -> None:
            raise AssertionError("of ours")

        monkeypatch.setattr(Owner, "child_sent", broken)
    child = Child()
    spoken(child, tuples=1, tmp_path=tmp_path, says=says + b"\nend\n" + EMIT)
    assert child.heard == [b"[3]\nend\n"]
    assert [True for reported in FAULTS if fault in reported] == [True] * bool(fault)
