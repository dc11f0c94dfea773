"""Storm's paths, spelled out."""

import pytest

from squall_common.cluster import paths
from squall_common.topology.model import WorkerSlot


def test_paths_are_storms() -> None:
    slot = WorkerSlot("sup-1", 6700)
    assert paths.storm("wc-1-17") == "/storms/wc-1-17"
    assert paths.assignment("wc-1-17") == "/assignments/wc-1-17"
    assert paths.supervisor("sup-1") == "/supervisors/sup-1"
    assert paths.workerbeat("wc-1-17", slot) == "/workerbeats/wc-1-17/sup-1-6700"
    assert paths.component_errors("wc-1-17", "a b/c") == "/errors/wc-1-17/a%20b%2Fc"
    assert paths.last_error("wc-1-17", "words") == "/errors/wc-1-17/words-last-error"
    assert paths.credentials("wc-1-17") == "/credentials/wc-1-17"
    assert paths.logconfig("wc-1-17") == "/logconfigs/wc-1-17"
    assert (
        paths.profilerconfig("wc", "h", 1, "JSTACK_DUMP") == "/profilerconfigs/wc/h_1_JSTACK_DUMP"
    )
    assert paths.nimbus("h", 6627) == "/nimbuses/h:6627"


@pytest.mark.parametrize("slot", [WorkerSlot("sup-1", 6700), WorkerSlot("a-b-c", 1)])
def test_a_heartbeats_name_gives_its_slot(slot: WorkerSlot) -> None:
    name = paths.workerbeat("wc", slot).rpartition("/")[2]
    assert paths.slot_of_workerbeat(name) == slot


def test_the_questions_beside_heartbeats_are_not_slots() -> None:
    assert paths.questions("wc-1-17") == "/workerbeats/wc-1-17/questions"
    assert paths.slot_of_workerbeat("questions") is None
    name = paths.question("wc-1-17", 0xFEDC).rpartition("/")[2]
    assert (name, paths.root_of_question(name)) == ("000000000000fedc", 0xFEDC)
    for other in ("fedc", "0x00000000000fed", "+00000000000fedc", ""):
        assert paths.root_of_question(other) is None


@pytest.mark.parametrize("name", ["", "x", "-1", "x-", "x-y", "x-²", "x--1"[:2]])
def test_other_names_are_not_slots(name: str) -> None:
    assert paths.slot_of_workerbeat(name) is None


def test_everything_of_a_topology_has_its_parent_made() -> None:
    assert set(paths.OF_TOPOLOGY) <= set(paths.LAYOUT)
    assert paths.OF_TOPOLOGY[0] == paths.ASSIGNMENTS
    assert paths.OF_TOPOLOGY[-1] == paths.STORMS
