"""Stacks of tasks, sampled from another thread while a topology runs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall.local import LocalCluster
from squall_engine.observe.stack_samples import HEADING, StackSamples, lines_of, run


class Numbers(Spout):
    outputs = ("n",)

    def open(self, conf: Any, context: Any) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        self.n += 1
        self.emit([self.n], message_id=self.n)


def burn(secs: float) -> None:
    end = time.thread_time() + secs
    while time.thread_time() < end:
        pass


class Burns(Bolt):
    outputs = ("n",)

    def execute(self, tup: Any) -> None:
        burn(0.004)
        self.emit([tup["n"]])


class Sleeps(Bolt):
    blocking = True

    def execute(self, tup: Any) -> None:
        time.sleep(0.05)


class Awaits(Bolt):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.05)


def test_stacks_are_those_of_the_task_whose_code_runs_or_waits() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("burns", Burns()).shuffle("numbers")
    builder.bolt("sleeps", Sleeps()).shuffle("burns")
    builder.bolt("awaits", Awaits()).shuffle("burns")
    with LocalCluster() as local:
        local.submit_topology("sampled", {"topology.max.spout.pending": 2000}, builder.build())
        engine = local._topologies._running["sampled"].engine
        samples = StackSamples(engine.built, engine._thread_id)
        deadline = time.monotonic() + 60
        while not _all_seen(samples):
            assert time.monotonic() < deadline, samples.text()
            run(samples, time.time() + 0.1)
        text = samples.text()
        assert run(samples, 0.0).startswith(HEADING)
        local.kill_topology("sampled", 0)
    for _, component, task, _, frames in lines_of(text):
        assert task > 0 or component == "__system"
        if component == "burns" and "burn" in frames[-1]:
            assert frames[0].startswith("Burns.execute (observe/test_stack_samples.py:")
    assert _seen(samples, "sleeps", "off", "Sleeps.execute") > _seen(samples, "sleeps", "on", "")


def _seen(samples: StackSamples, component: str, cpu: str, innermost: str) -> int:
    return sum(
        count
        for (one, name, _, frames), count in samples.stacks.items()
        if (one, name) == (cpu, component) and frames[-1].startswith(innermost)
    )


def _all_seen(samples: StackSamples) -> bool:
    return (
        _seen(samples, "burns", "on", "burn") > 5
        and _seen(samples, "sleeps", "off", "Sleeps.execute") > 20
        and _seen(samples, "awaits", "off", "") > 20
    )


def test_stacks_are_bounded_and_names_cannot_forge_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = StackSamples([], threading.get_ident())
    samples.sample()
    code = compile("def f(x): return x", "a;\tb\n.py", "exec")
    scope: dict[str, Any] = {}
    exec(code, scope)
    frame = type("Frame", (), {"f_code": scope["f"].__code__})()
    assert samples._label(frame) == "f (a__b_.py:1)"
    monkeypatch.setattr("squall_engine.observe.stack_samples._STACKS_MAX", 1)
    for number in range(5):
        samples._add("on", ("c", number), [frame])
    assert samples.stacks["on", "c", 4, ("(other stacks)",)] == 1
