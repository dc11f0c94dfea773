"""Worker hooks and the threads that the tasks of a worker share."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.support import engine_components as c

from squall import (
    Bolt,
    InvalidTopologyError,
    Spout,
    SquallError,
    TopologyBuilder,
    WorkerHook,
)
from squall.testing import TopologyTest


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    c.LOG.clear()


class Named(WorkerHook):
    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, conf: Any, context: Any) -> None:
        context.resources["name"] = self.name
        c.log("order", f"start {self.name} {conf['topology.name']} {context.topology_name}")

    def shutdown(self) -> None:
        c.log("order", f"shutdown {self.name}")


class AsyncHook(Named):
    async def start(self, conf: Any, context: Any) -> None:
        await asyncio.sleep(0)
        super().start(conf, context)

    async def shutdown(self) -> None:
        await asyncio.sleep(0)
        super().shutdown()


class Greedy(Bolt):
    def prepare(self, conf: Any, context: Any) -> None:
        c.log("order", f"prepare with {context.resources['name']}")

    def execute(self, tup: Any) -> None:
        pass

    def cleanup(self) -> None:
        c.log("order", "cleanup")


def with_hooks(*hooks: WorkerHook) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(1))
    builder.bolt("bolt", Greedy()).shuffle("numbers")
    for hook in hooks:
        assert builder.add_worker_hook(hook) is builder
    return builder


def test_worker_hooks_run_around_the_components() -> None:
    with TopologyTest(with_hooks(Named("one"), AsyncHook("two"))) as test:
        test.run_until_idle()
        assert test.errors == []
    assert c.LOG["order"] == [
        "start one test test",
        "start two test test",
        "prepare with two",
        "cleanup",
        "shutdown two",
        "shutdown one",
    ]


def test_a_hook_may_be_defined_inside_a_test() -> None:
    class Local(WorkerHook):
        def start(self, conf: Any, context: Any) -> None:
            context.resources["name"] = "local"

    with TopologyTest(with_hooks(Local())):
        assert c.LOG["order"] == ["prepare with local"]


def test_a_hook_whose_start_fails_ends_the_worker_and_the_others_are_shut_down() -> None:
    class Broken(WorkerHook):
        def start(self, conf: Any, context: Any) -> None:
            raise OSError("no database")

    with (
        pytest.raises(SquallError, match=r"Broken: start\(\) failed: OSError: no database"),
        TopologyTest(with_hooks(Named("one"), Broken())),
    ):
        pass
    assert c.LOG["order"][-1] == "shutdown one"
    assert "prepare with one" not in c.LOG["order"]


def test_an_error_in_shutdown_is_reported_and_the_others_are_shut_down() -> None:
    class Broken(WorkerHook):
        def shutdown(self) -> None:
            raise OSError("in use")

    with TopologyTest(with_hooks(Named("one"), Broken())) as test:
        pass
    assert c.LOG["order"][-1] == "shutdown one"
    [error] = test.errors
    assert error.component == "__system"
    assert str(error.error) == "worker hook Broken: shutdown() failed: OSError: in use"


class Changed(WorkerHook):
    pass


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        (Named, "Named is a class; pass an object of it"),
        (object(), "is not a worker hook; derive its class from squall.WorkerHook"),
    ],
)
def test_what_is_no_hook_is_refused_by_the_builder(hook: Any, says: str) -> None:
    with pytest.raises(InvalidTopologyError, match=says):
        with_hooks(hook).build()


def test_a_hook_that_was_changed_after_its_constructor_is_refused() -> None:
    hook = Changed()
    hook.later = 1  # type: ignore[attr-defined]
    with pytest.raises(InvalidTopologyError, match="'later' was added after the constructor"):
        with_hooks(hook).build()


class Sharing(Bolt):
    outputs = ("thread",)

    async def execute(self, tup: Any) -> None:
        pool = self.context.shared_executor
        name = await asyncio.get_running_loop().run_in_executor(
            pool, lambda: threading.current_thread().name
        )
        c.log("threads", name)
        c.log("pools", pool)


class Waiting(Spout):
    def open(self, conf: Any, context: Any) -> None:
        self.context.shared_executor.submit(c.log, "ran", "in open")


def test_the_tasks_of_a_worker_share_a_pool_of_threads() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(20))
    builder.bolt("a", Sharing(), parallelism=2).shuffle("numbers")
    builder.bolt("b", Sharing()).shuffle("numbers")
    conf = {"topology.worker.shared.thread.pool.size": 2}
    with TopologyTest(builder, conf) as test:
        test.run_until(lambda: len(c.LOG.get("threads", [])) == 40)
        assert len({id(pool) for pool in c.LOG["pools"]}) == 1
        assert 1 <= len(set(c.LOG["threads"])) <= 2
        pool = c.LOG["pools"][0]
        context = test._engine.built[0].context
    with pytest.raises(RuntimeError):
        pool.submit(print)
    with pytest.raises(RuntimeError, match="the worker has ended"):
        _ = context.shared_executor


def test_a_worker_that_shares_no_work_has_no_pool() -> None:
    with TopologyTest(with_hooks(Named("one"))) as test:
        test.run_until_idle()
        assert test._engine.worker_context.shared_threads._executor is None
