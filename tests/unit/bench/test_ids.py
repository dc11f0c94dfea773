"""Ids of the topologies that are measured."""

from __future__ import annotations

import os

import pytest
from bench.ids import new_topology_id

from squall_common.names import topology_name_of


def test_no_two_runs_of_a_machine_have_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_topology_id()
    other = os.getpid() + 1
    monkeypatch.setattr("bench.ids._NUMBERS", iter([1, 2]))  # as another process begins
    monkeypatch.setattr(os, "getpid", lambda: other)
    ids = {first, new_topology_id(), new_topology_id()}
    assert len(ids) == 3
    assert {topology_name_of(one) for one in ids} == {"bench"}
