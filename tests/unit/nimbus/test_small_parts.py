"""Redaction, history, locks, sessions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_nimbus.blobs.sessions import Sessions
from squall_nimbus.store.locks import NamedLocks
from squall_nimbus.topologies.finished import FinishedTopologies
from squall_nimbus.views.redact import HIDDEN, redact


def test_secrets_are_hidden_at_any_depth() -> None:
    conf = {
        "storm.zookeeper.auth.payload": "user:pass",
        "storm.zookeeper.topology.auth.payload": "a:b",
        "ui.https.keystore.password": "x",
        "aws.secret.access.key": "x",
        "my": {"apiToken": "x", "deeper": [{"Private_Key": "x"}, 1]},
        "topology.metrics.consumer.register": [
            {"class": "my:Consumer", "argument": {"apiToken": "x", "every": 1}}
        ],
        "topology.message.timeout.secs": 30,
        "unset.password": None,
    }
    assert redact(conf) == {
        "storm.zookeeper.auth.payload": HIDDEN,
        "storm.zookeeper.topology.auth.payload": HIDDEN,
        "ui.https.keystore.password": HIDDEN,
        "aws.secret.access.key": HIDDEN,
        "my": {"apiToken": HIDDEN, "deeper": HIDDEN},
        "topology.metrics.consumer.register": [
            {"class": "my:Consumer", "argument": {"apiToken": HIDDEN, "every": 1}}
        ],
        "topology.message.timeout.secs": 30,
        "unset.password": None,
    }


CANARY = "CANARY"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DATABASE_URL", f"postgres://app:{CANARY}@db/x"),
        ("amqp.url", f"amqp://app:{CANARY}@mq"),
        ("AWS_ACCESS_KEY_ID", CANARY),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
        ("PGPASS", CANARY),
        ("db.pwd", CANARY),
        ("encryption.key", CANARY),
        ("sasl.jaas.config", f'Login required password="{CANARY}";'),
        ("authorization", f"Bearer {CANARY}"),
        ("token.count", CANARY),
        ("my.settings", {"list": [CANARY], "deep": {"deeper": CANARY}}),
        ("topology.environment", {"PLAIN_NAME": CANARY}),
        # In values of Squall's own keys
        ("topology.worker.childopts", f"-Ddb.password={CANARY} -Xmx1g"),
        ("topology.metrics.consumer.register", [{"argument": f"http://a:{CANARY}@sink/"}]),
        ("storm.zookeeper.auth.payload", f"me:{CANARY}"),
    ],
)
def test_no_planted_secret_is_shown(key: str, value: Any) -> None:
    shown = redact({key: value})
    assert CANARY not in repr(shown)
    assert shown.keys() == {key}
    assert HIDDEN in repr(shown)


def test_values_of_known_keys_are_shown() -> None:
    conf = {
        "storm.id": "wc-1-17",
        "topology.name": "wc",
        "topology.workers": 2,
        "topology.blobstore.map": {"words": {"localname": "words.txt"}},
        "nimbus.seeds": ["http://host/at@sign"],
    }
    assert redact(conf) == conf


def test_a_history_that_cannot_be_written_does_not_stop_a_removal(tmp_path: Path) -> None:
    finished = FinishedTopologies(tmp_path / "nimbus" / "history.json", age_secs_max=100)
    finished.open()
    (tmp_path / "nimbus").rmdir()
    (tmp_path / "nimbus").write_bytes(b"in the way")
    finished.add("a-1-1", "me", 1_000)
    assert finished.ids(1_000) == ["a-1-1"]


def test_history_survives_a_restart_and_ages(tmp_path: Path) -> None:
    def opened() -> FinishedTopologies:
        finished = FinishedTopologies(tmp_path / "nimbus" / "history.json", age_secs_max=100)
        finished.open()
        return finished

    finished = opened()
    finished.add("a-1-1", "me", 1_000)
    finished.add("b-2-2", None, 1_050)
    finished.add("a-1-1", "me", 1_060)  # a removal that was done twice
    assert opened().ids(1_090) == ["a-1-1", "b-2-2"]
    assert opened().ids(1_110) == ["b-2-2"]


def test_history_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    entries = [{"topology_id": f"t-{i}-1", "owner": None, "time_secs": 5} for i in range(1_200)]
    file.write_text(json.dumps(entries))
    finished = FinishedTopologies(file, age_secs_max=100)
    finished.open()
    finished.add("new-1-1", None, 6)
    assert len(finished.ids(6)) == 1_000
    assert finished.ids(6)[-1] == "new-1-1"


def test_an_unreadable_history_is_started_again(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_bytes(b"{torn")
    finished = FinishedTopologies(file, age_secs_max=100)
    finished.open()
    finished.add("a-1-1", None, 5)
    assert finished.ids(5) == ["a-1-1"]


async def test_a_name_is_held_by_one_at_a_time_in_order() -> None:
    locks, order = NamedLocks(), []
    holders: set[str] = set()

    async def work(name: str, number: int) -> None:
        async with locks.hold(name):
            assert name not in holders
            holders.add(name)
            order.append((name, number))
            await asyncio.sleep(0)
            holders.discard(name)

    await asyncio.gather(*(work(name, i) for i in range(5) for name in ("a", "b")))
    assert [i for name, i in order if name == "a"] == list(range(5))
    assert len(locks) == 0


async def test_a_cancelled_waiter_leaves_no_lock_behind() -> None:
    locks = NamedLocks()
    async with locks.hold("a"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), locks.hold("a"):
                pytest.fail("it is held")
    assert len(locks) == 0


async def test_sessions_expire_when_idle_and_are_bounded() -> None:
    clock, closed = ManualClock(), []
    sessions = Sessions[str](
        "thing", idle_secs=10, limit=2, clock=clock.monotonic, close=closed.append
    )
    first, second = sessions.add("first"), sessions.add("second")
    assert first != second
    with pytest.raises(SquallError, match="2 things open"):
        sessions.check_room()
    clock.advance(9)
    async with sessions.use(second) as value:
        assert value == "second"
        clock.advance(30)
        sessions.expire()  # not while it is in use
    assert closed == ["first"]
    with pytest.raises(SquallError, match=f"there is no thing '{first}'"):
        async with sessions.use(first):
            pytest.fail("it expired")
    clock.advance(9)
    assert sessions.expire() == []
    clock.advance(1)
    assert sessions.expire() == [second]
