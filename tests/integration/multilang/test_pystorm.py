"""Unmodified pystorm components (PyPI), counted exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.shells import running
from tests.support.thirdparty import pystorm_python

from squall import ShellBolt, ShellSpout

pytestmark = pytest.mark.integration
SERIALIZERS = ["json", "msgpack"]


@pytest.fixture(scope="module")
def python() -> str:
    return str(pystorm_python())


def environment(component: str, serializer: str, **more: str) -> dict[str, str]:
    return {"COMPONENT": component, "SERIALIZER": serializer, **more}


def bolt(python: str, component: str, serializer: str, outputs: Any, **more: str) -> ShellBolt:
    return ShellBolt(
        python,
        "pystorm_components.py",
        outputs=outputs,
        environment=environment(component, serializer, **more),
        serializer=serializer,
    )


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_reliable_spout_and_a_bolt_that_fails_twice(python: str, serializer: str) -> None:
    """50 sentences of three words, each failed twice and then acked: nothing more, nothing less."""
    spout = ShellSpout(
        python,
        "pystorm_components.py",
        outputs=["sentence", "n"],
        environment=environment("Sentences", serializer),
        serializer=serializer,
    )
    split = bolt(python, "Split", serializer, ["word", "n"], FAILS="2")
    with running(split, spout=spout) as run:
        totals = run.cluster.totals
        run.wait(lambda: totals("shells")["numbers"]["acked"] == 50)
        run.cluster.wait_drained("shells")
        counts = totals("shells")
        assert counts["numbers"]["failed"] == 100
        assert counts["numbers"]["emitted"] == 150
        assert counts["shell"]["acked"] == 50
        assert counts["shell"]["failed"] == 100
        expected = {(w, n): 1 for n in range(50) for w in ("sentence", "number", str(n))}
        assert run.account.seen == expected
        assert any("ValueError" in error and "try 1 of" in error for error in run.errors())


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_bolt_that_asks_for_task_ids(python: str, serializer: str) -> None:
    with running(bolt(python, "Asking", serializer, ["n"]), count=500) as run:
        run.wait_all_acked()
        assert run.account.seen == dict.fromkeys(range(500), 1)
        assert not run.errors()


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_batching_bolt_lives_on_ticks(python: str, serializer: str) -> None:
    conf = {"topology.tick.tuple.freq.secs": 1}
    batches = bolt(python, "Batches", serializer, ["key", "size"])
    with running(batches, count=60, bolt_conf=conf) as run:
        run.wait_all_acked()
        assert run.account.seen == {(n, 1): 1 for n in range(60)}
        assert not run.account.failed
        assert not run.errors()


def test_a_bolt_that_dies_as_pystorm_does_is_replaced(python: str, tmp_path: Path) -> None:
    dies = bolt(python, "Dies", "json", ["n"], MARK=str(tmp_path / "mark"))
    with running(dies, count=200) as run:
        run.wait_all_acked()
        assert all(run.account.seen[n] >= 1 for n in range(200))
        assert run.account.failed
        errors = run.errors()
        assert any("KeyError" in error and "the thirtieth" in error for error in errors)
        assert any("exited with status 1" in error for error in errors)
