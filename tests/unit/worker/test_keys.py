"""The key that a worker finds in its folder, or does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from squall_common.errors import SquallError
from squall_common.security.curve import CURVE, KEY_FILE, CurveKey
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_worker.keys import own_key

TOPOLOGY = "wordcount-1-1700000000"
KEY = CurveKey.make(TOPOLOGY)


def spec(folder: Path, hostname: str = "node7") -> LaunchSpec:
    return LaunchSpec(
        TOPOLOGY, "node", hostname, 6700, "worker", Incarnation(1, 1), folder, folder, folder, {}
    )


def test_a_worker_that_encrypts_has_its_key(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(KEY.to_bytes())
    assert own_key(spec(tmp_path), {CURVE: "auto"}, "0.0.0.0") == KEY
    assert own_key(spec(tmp_path, "127.0.0.1"), {CURVE: "auto"}, "127.0.0.1") == KEY
    assert own_key(spec(tmp_path, "127.0.0.1"), {CURVE: True}, "127.0.0.1") == KEY
    assert own_key(spec(tmp_path), {CURVE: False}, "0.0.0.0") is None


def test_a_worker_of_a_secured_cluster_is_in_the_network_with_its_key_only(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(KEY.to_bytes())
    secured = replace(spec(tmp_path), secured=True)
    assert own_key(secured, {CURVE: "auto"}, "0.0.0.0") == KEY
    assert own_key(secured, {CURVE: False}, "127.0.0.1") is None
    for conf in ({CURVE: False}, {}):
        with pytest.raises(SquallError, match="with its topology's key only"):
            own_key(secured, conf, "0.0.0.0")


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", CurveKey.make("other-1-1").to_bytes()],
    ids=["none", "empty", "damaged", "another's"],
)
def test_a_worker_that_cannot_read_its_key_does_not_start(
    tmp_path: Path, data: bytes | None
) -> None:
    """It never goes on in the clear."""
    if data is not None:
        (tmp_path / KEY_FILE).write_bytes(data)
    with pytest.raises(SquallError, match="cannot read its key"):
        own_key(spec(tmp_path), {CURVE: "auto"}, "0.0.0.0")


def test_a_worker_whose_zeromq_lacks_curve_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KEY_FILE).write_bytes(KEY.to_bytes())
    monkeypatch.setattr("zmq.has", lambda feature: False)
    with pytest.raises(SquallError, match="without CURVE"):
        own_key(spec(tmp_path), {CURVE: True}, "127.0.0.1")


def test_a_topology_from_before_keys_stays_unencrypted_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(
        "squall_worker.keys.log.warning", lambda event, **keys: reported.append(keys["what_to_do"])
    )
    assert own_key(spec(tmp_path), {}, "127.0.0.1") is None
    assert reported == []
    assert own_key(spec(tmp_path), {}, "0.0.0.0") is None
    assert reported == ['storm rebalance NAME -t \'{"storm.messaging.curve": "auto"}\'']
