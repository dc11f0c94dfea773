"""Finding the leader through the seeds, and what is said when there is none."""

import socket
import threading
import time

import pytest
from tests.support.fake_nimbus import fake_nimbus
from tests.support.servers import free_port

from squall_common.client.nimbus import NimbusClient, run_nimbus
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError
from squall_thrift import storm
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError


def options_for(*seeds, retries=0, **more):
    return ClientOptions(
        nimbus_seeds=seeds or ("localhost",),
        storm_nimbus_retry_times=retries,
        storm_nimbus_retry_interval_millis=1,
        **more,
    )


async def list_topologies(nimbus):
    return await nimbus.call("getTopologySummaries")


def test_a_call_reaches_the_leader_and_its_answer_comes_back():
    with fake_nimbus() as fake:
        fake.answers["getTopologySummaries"] = []
        options = options_for(f"127.0.0.1:{fake.port}")
        assert run_nimbus(options, list_topologies) == []
        assert [name for name, _ in fake.calls] == ["getLeader", "getTopologySummaries"]


def test_a_seed_without_a_port_has_nimbus_thrift_port():
    with fake_nimbus() as fake:
        fake.answers["getTopologySummaries"] = []
        assert run_nimbus(ClientOptions.read(fake.conf), list_topologies) == []


def test_a_seed_that_does_not_answer_is_passed_over():
    with fake_nimbus() as fake:
        fake.answers["getTopologySummaries"] = []
        options = options_for(f"127.0.0.1:{free_port()}", f"127.0.0.1:{fake.port}")
        assert run_nimbus(options, list_topologies) == []


def test_a_seed_that_hangs_is_passed_over_long_before_its_time_out(monkeypatch):
    """It takes connections, and answers nothing: a Nimbus that was stopped, or swaps."""
    monkeypatch.setattr("squall_common.client.nimbus._LEADER_TIMEOUT_SECS", 1000.0)
    with socket.create_server(("127.0.0.1", 0)) as hangs, fake_nimbus() as fake:
        fake.answers["getTopologySummaries"] = []
        options = options_for(
            f"127.0.0.1:{hangs.getsockname()[1]}",
            f"127.0.0.1:{fake.port}",
            storm_thrift_socket_timeout_ms=1_000_000.0,
        )
        assert run_nimbus(options, list_topologies) == []
        assert len(fake.called("getTopologySummaries")) == 1


def test_the_leader_that_a_seed_names_is_asked():
    with fake_nimbus() as follower, fake_nimbus() as leader:
        follower.answers["getLeader"] = storm.NimbusSummary(
            host="127.0.0.1", port=leader.port, uptime_secs=1, isLeader=True, version="1"
        )
        leader.answers["getTopologySummaries"] = []
        run_nimbus(options_for(f"127.0.0.1:{follower.port}"), list_topologies)
        assert follower.called("getTopologySummaries") == []
        assert len(leader.called("getTopologySummaries")) == 1


def test_a_leader_that_cannot_be_reached_is_named():
    port = free_port()
    with fake_nimbus() as follower:
        follower.answers["getLeader"] = storm.NimbusSummary(
            host="127.0.0.1", port=port, uptime_secs=1, isLeader=True, version="1"
        )
        with pytest.raises(NimbusError) as caught:
            run_nimbus(options_for(f"127.0.0.1:{follower.port}"), list_topologies)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert f"the leader, as 127.0.0.1:{follower.port} says" in str(caught.value)


def test_a_wrong_address_is_reported_with_all_attempts(caplog):
    caplog.set_level("INFO")
    port = free_port()
    started = time.monotonic()
    with pytest.raises(NimbusError) as caught:
        run_nimbus(options_for(f"127.0.0.1:{port}", retries=2), list_topologies)
    assert f"Nimbus cannot be reached: Nimbus at 127.0.0.1:{port}" in caught.value.message
    assert "nimbus.seeds" in (caught.value.hint or "")
    assert [r.getMessage().split()[0] for r in caplog.records] == ["nimbus_not_reached"] * 2
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("seed", ["h:x", "h:70000", "h:0"])
def test_a_seed_that_is_not_an_address_is_reported(seed):
    with pytest.raises(NimbusError, match="is neither a host nor host:port"):
        run_nimbus(options_for(seed), list_topologies)


def test_while_no_leader_is_elected_the_client_tries_again():
    with fake_nimbus() as fake:
        no_leader = ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, "no leader")
        fake.answers["getLeader"] = no_leader
        with pytest.raises(
            NimbusError, match=r"no Nimbus leads: .*does not know the leader"
        ) as caught:
            run_nimbus(options_for(f"127.0.0.1:{fake.port}", retries=2), list_topologies)
        assert len(fake.called("getLeader")) == 3
        assert "ZooKeeper" in caught.value.hint


def test_while_zookeeper_is_away_the_client_gives_up_soon():
    """Nimbus has waited for ZooKeeper itself before it answers: all attempts would take long."""
    with fake_nimbus() as fake:
        away = "Nimbus could not reach ZooKeeper: no connection"
        fake.answers["getLeader"] = ThriftApplicationError(
            ApplicationErrorType.INTERNAL_ERROR, away
        )
        fake.delays["getLeader"] = 2.0
        with pytest.raises(NimbusError, match=f"no Nimbus reaches ZooKeeper: .*{away}") as caught:
            run_nimbus(options_for(f"127.0.0.1:{fake.port}", retries=5), list_topologies)
        assert len(fake.called("getLeader")) == 1
        assert "topologies run on" in caught.value.hint


def test_declared_exceptions_come_as_they_are():
    with fake_nimbus() as fake:
        fake.answers["killTopology"] = storm.NotAliveException(msg="wc is not alive")
        with pytest.raises(storm.NotAliveException) as caught:
            run_nimbus(
                options_for(f"127.0.0.1:{fake.port}"),
                lambda nimbus: nimbus.call("killTopology", "wc"),
            )
    assert caught.value.msg == "wc is not alive"


@pytest.mark.parametrize(
    ("name", "wait_secs", "said"),
    [
        ("wc", 2**31, "wait_secs: 2147483648 does not fit"),
        ("w\udcff", 1, "cannot be written as UTF"),
    ],
)
def test_an_argument_that_storms_types_cannot_hold_is_said(name, wait_secs, said):
    with fake_nimbus() as fake:
        options = storm.KillOptions(wait_secs=wait_secs)
        with pytest.raises(NimbusError, match=rf"killTopologyWithOpts cannot .*{said}"):
            run_nimbus(
                options_for(f"127.0.0.1:{fake.port}"),
                lambda nimbus: nimbus.call("killTopologyWithOpts", name, options),
            )
        assert not fake.called("killTopologyWithOpts")


def test_a_call_that_is_too_large_is_said_with_its_size():
    with fake_nimbus() as fake:
        options = options_for(f"127.0.0.1:{fake.port}")
        limit = options.nimbus_thrift_max_buffer_size
        with pytest.raises(NimbusError) as caught:
            run_nimbus(options, lambda nimbus: nimbus.call("killTopology", "x" * 20 * limit))
    assert f"bytes, and Nimbus takes {limit} unless" in caught.value.hint


async def test_it_works_where_an_event_loop_runs_already():
    with fake_nimbus() as fake:
        fake.answers["getTopologySummaries"] = []
        options = options_for(f"127.0.0.1:{fake.port}")
        assert run_nimbus(options, list_topologies) == []
        async with await NimbusClient.connect(options) as nimbus:
            assert (nimbus.host, nimbus.port) == ("127.0.0.1", fake.port)
            assert await nimbus.call("getTopologySummaries") == []


def test_a_peer_that_hangs_up_instead_of_answering_is_said():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            peer, _ = listener.accept()
            peer.recv(1)
            peer.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(NimbusError, match=f"Nimbus at 127.0.0.1:{port}"):
            run_nimbus(options_for(f"127.0.0.1:{port}"), list_topologies)
        thread.join()


def test_no_answer_in_time_is_said_with_the_call():
    with fake_nimbus() as fake:
        fake.delays["getTopologySummaries"] = 5.0

        async def ask(nimbus):
            return await nimbus.call("getTopologySummaries", timeout_secs=0.05)

        with pytest.raises(NimbusError) as caught:
            run_nimbus(options_for(f"127.0.0.1:{fake.port}"), ask)
    assert "getTopologySummaries" in caught.value.message
    assert caught.value.hint == "whether the call took effect is not known"
