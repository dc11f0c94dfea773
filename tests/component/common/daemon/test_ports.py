"""Which ports of this machine `storm dev` takes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from squall_cli.dev.plan import DevPlan, check_ports, make_plan
from squall_common.daemon.ports import LOOPBACK, free_ports, port_is_free
from squall_common.errors import SquallError


def plan(**changes: Any) -> DevPlan:
    arguments: dict[str, Any] = {
        "data_dir": Path("/data"),
        "supervisors": 2,
        "slots": 3,
        "free_ports": None,
        "is_free": lambda _port: True,
        "site_conf": {"storm.zookeeper.root": "/storm", "nimbus.monitor.freq.secs": 10},
        "overrides": {},
    }
    return make_plan(**{**arguments, **changes})


def test_a_port_in_use_is_named_with_its_purpose() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = iter([port, *range(20_000, 20_020)])
        busy = plan(free_ports=lambda count: [next(ports) for _ in range(count)])
        with pytest.raises(SquallError, match=rf"port {port} \(ZooKeeper\) is in use") as caught:
            check_ports(busy, lambda p: port_is_free(p) if p == port else True)
    assert "--free-ports" in str(caught.value)


def test_free_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 20
    assert all(port_is_free(port) for port in ports)
    assert max(ports) < lowest or lowest <= 16_000
