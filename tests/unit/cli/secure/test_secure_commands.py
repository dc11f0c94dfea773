"""`storm admin secure` against a ZooKeeper that is a dictionary: killed at each of its writes, and
then repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from squall_cli.cluster import cluster_nodes
from squall_cli.main import run
from squall_cli.secure.authority_folder import AuthorityFolder
from squall_common.cluster import codec, paths
from squall_common.cluster.values import StormBase, SupervisorInfo, TopologyStatus
from squall_common.security.takeover import Takeover

WORDS = "words-1-1700000000"
BASE = codec.encode_storm_base(StormBase("words", TopologyStatus.ACTIVE, 1, owner="anonymous"))


class Killed(BaseException):
    """The command ends here."""


class Nodes:
    """What the commands use of a Kazoo client."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {
            paths.storm(WORDS): BASE,
            paths.supervisor("node-1"): codec.encode_supervisor(SupervisorInfo(0, "host1", "x")),
            paths.nimbus("nimbus1", 6627): b"",
        }
        self.left: int | None = None  # writes until it is killed

    def write(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def exists(self, path: str) -> object:
        return self.values.get(path)

    def get(self, path: str) -> tuple[bytes, None]:
        if path not in self.values:
            raise NoNodeError
        return self.values[path], None

    def get_children(self, path: str) -> list[str]:
        return [name for one in self.values if (name := paths.below(path, one)) is not None]

    def ensure_path(self, path: str) -> None:
        self.write()

    def create(self, path: str, value: bytes) -> None:
        self.write()
        assert path not in self.values
        self.values[path] = value

    def set(self, path: str, value: bytes) -> None:
        self.write()
        self.values[path] = value

    def delete(self, path: str) -> None:
        self.write()
        del self.values[path]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()

    @contextmanager
    def session(*_arguments: Any, **_keys: Any) -> Iterator[Nodes]:
        yield nodes

    monkeypatch.setattr(cluster_nodes, "zookeeper", session)
    write = AuthorityFolder.issue

    def issue(self: AuthorityFolder, *arguments: Any, **keys: Any) -> Any:
        nodes.write()
        return write(self, *arguments, **keys)

    monkeypatch.setattr(AuthorityFolder, "issue", issue)
    return nodes


def taken(nodes: Nodes, folder: Path) -> Takeover:
    authority = AuthorityFolder(folder).load()
    text = nodes.values[paths.TAKEOVER].decode()
    return Takeover.verify(text, authority.cluster, authority.certificate, time.time())


def test_each_step_may_be_killed_at_each_write_and_repeated(nodes: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    AuthorityFolder(folder).create("prod")
    steps = [["begin", "--owner", "words=alice"], ["confirm"], ["begin"], ["confirm"]]
    for step in steps:
        command = ["admin", "secure", *step, "--dir", str(folder)]
        if step == ["confirm"]:
            nodes.values.pop(paths.nimbus("nimbus1", 6627), None)
        for writes in range(10):
            nodes.left = writes
            try:
                assert run(command) == 0
            except Killed:
                continue
            break
        assert writes < 9
        nodes.left = None
    one = taken(nodes, folder)
    assert {name: found.owner for name, found in one.topologies.items()} == {WORDS: "alice"}
    assert one.topologies[WORDS].base == BASE
    issued = {path.name for path in (folder / "issued").glob("*.pem")}
    assert issued == {"nimbus-nimbus1.pem", "supervisor-node-1.pem"}


def test_it_says_what_comes_next_and_can_be_given_up(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ca"
    AuthorityFolder(folder).create("prod")

    def said(*words: str) -> tuple[int, str]:
        status = run(["admin", "secure", *words, "--dir", str(folder)])
        return status, capsys.readouterr().err

    assert said("status") == (1, "Nothing was begun: 'storm admin secure begin'.\n")
    assert "comes after 'storm admin secure begin'" in said("confirm")[1]
    assert f"{WORDS}: whose is it? (--owner)" in said("begin")[1]
    assert f"{WORDS} has no owner yet" in said("status")[1]
    assert "stop Nimbus at nimbus1:6627" in said("status")[1]
    assert said("begin", "--owner", "x")[0] == 2
    assert "no topology 'x'" in said("begin", "--owner", "x=alice")[1]
    assert said("begin", "--owner", f"{WORDS}=alice")[0] == 0
    assert "Nimbus still runs at nimbus1:6627" in said("confirm")[1]
    nodes.values.pop(paths.nimbus("nimbus1", 6627))
    assert said("confirm")[0] == 0
    assert "start Nimbus with its" in said("status")[1]
    assert said("cancel")[0] == 0
    assert paths.TAKEOVER not in nodes.values
    assert said("status")[0] == 1
    nodes.values[paths.CATALOG] = b"x"
    assert "this cluster is secured" in said("begin")[1]


def test_more_than_a_node_of_zookeeper_holds_is_refused(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ca"
    AuthorityFolder(folder).create("prod")
    del nodes.values[paths.nimbus("nimbus1", 6627)]
    nodes.values[paths.assignment(WORDS)] = os.urandom(700_000)
    assert run(["admin", "secure", "begin", "--owner", "words=alice", "--dir", str(folder)]) == 0
    assert run(["admin", "secure", "confirm", "--dir", str(folder)]) == 1
    assert "are too many to confirm at once" in capsys.readouterr().err
    assert paths.TAKEOVER not in nodes.values
