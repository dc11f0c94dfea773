"""Everything public is described, with an example that runs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

import squall_connectors
from squall._builder import BoltDeclarer, SpoutDeclarer

MODULES = (
    "squall",
    "squall.testing",
    "squall.testing.connectors",
    "squall.metrics",
    "squall.tracing",
    "squall.windows",
    "squall.streams",
    "squall.multilang",
    "squall.shell_logs",
    "squall_drpc",
    "squall_spark",
    *(
        f"squall_connectors.{room.name}"
        for room in pkgutil.iter_modules(squall_connectors.__path__)
        if room.ispkg
    ),
)
# What the examples of docstrings take for granted. (Nothing of it is called but what is here.)
PRELUDE = """
import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from squall import *
from squall._builder import BoltDeclarer, SpoutDeclarer
from squall.metrics import *
from squall.testing import *
from squall.streams import KeyState, Windowed
from squall.windows import *
from squall_drpc import *
class Split(Bolt):
    outputs = ["word"]
    def execute(self, tup):
        for word in tup["sentence"].split():
            self.emit([word])
class Count(Bolt):
    outputs = ["word", "count"]
    def execute(self, tup): pass
class Sentences(ReplayingSpout):
    outputs = ["sentence"]
    def __init__(self, path=""): self.path = path
    def next_message(self): return None
conf = {}
builder = TopologyBuilder()
DSN, URL = "postgresql://db.example/shop", "redis://redis.example"
"""
# Made by Squall and only read, or parts of a class that has an example.
WITHOUT_EXAMPLE = {
    "squall.ConfigError",
    "squall.NimbusError",
    "squall.PackageError",
    "squall.WorkerTopologyContext",
    "squall.metrics.ConsumerContext",
    "squall.metrics.DataPoint",
    "squall.metrics.Metric",
    "squall.metrics.TaskInfo",
    "squall.testing.Emitted",
    "squall.testing.Execution",
    "squall.testing.connectors.DeadLetterBolt",
    "squall.testing.connectors.ServerControl",
    "squall.multilang.Component",
    "squall.multilang.Tuple",
    "squall.shell_logs.ShellLogHandler",
    "squall.shell_logs.DefaultShellLogHandler",
    "squall_drpc.AsyncCoordinatedBolt",
    "squall_drpc.BatchBoltExecutor",
    "squall_drpc.CoordinatedBolt",
    "squall_drpc.DRPCError",
    "squall_drpc.FinishedCallback",
    "squall_drpc.JoinResult",
    "squall_drpc.KeyedFairBolt",
    "squall_drpc.PrepareRequest",
    "squall_drpc.Reason",
    "squall_drpc.TimeoutCallback",
    "squall_connectors.base.Backoff",
    "squall_connectors.base.RecordsRejectedError",
    "squall_connectors.base.Source",
    "squall_connectors.kafka.KafkaRecord",
    "squall_spark.Result",
}


def public() -> Iterator[tuple[str, Any]]:
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            yield f"{module_name}.{name}", getattr(module, name)
    yield "squall.SpoutDeclarer", SpoutDeclarer
    yield "squall.BoltDeclarer", BoltDeclarer


PUBLIC = dict(public())


def members(found: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself."""
    if inspect.isclass(found):
        for name, value in vars(found).items():
            # A test's name says what it does.
            hidden = name.startswith(("_", "test_"))
            if not hidden and (callable(value) or isinstance(value, property)):
                yield name, getattr(found, name)


def examples(text: str) -> list[str]:
    """The indented blocks of a docstring."""
    blocks = re.findall(r"(?:\A|\n\n)((?: {4,}[^\n]*\n(?:\n(?= {4}))*)+)", f"{text}\n")
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("name", PUBLIC)
def test_it_is_described(name: str) -> None:
    found = PUBLIC[name]
    assert inspect.getdoc(found), f"{name} has no docstring"
    lacking = [member for member, value in members(found) if not inspect.getdoc(value)]
    assert lacking == [], f"{name}: no docstring"


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - WITHOUT_EXAMPLE))
def test_it_has_an_example(name: str) -> None:
    found = PUBLIC[name]
    texts = [inspect.getdoc(found) or ""]
    texts += [inspect.getdoc(value) or "" for _, value in members(found)]
    assert any(examples(text) for text in texts), f"{name} has no example"


@pytest.mark.parametrize("name", PUBLIC)
def test_its_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = PUBLIC[name]
    texts = [inspect.getdoc(value) or "" for value in chain([found], dict(members(found)).values())]
    for example in chain.from_iterable(examples(text) for text in texts):
        needs_spark = name in ("squall_spark.run", "squall_spark.view_folder")
        if example.startswith("CREATE ") or needs_spark:
            continue  # SQL; and what needs Spark, which tests/spark runs
        module = types.ModuleType("example")
        monkeypatch.setitem(sys.modules, "example", module)
        namespace = vars(module)
        exec(compile(PRELUDE, "prelude", "exec"), namespace)
        beside = importlib.import_module(name.rpartition(".")[0])
        namespace.update({one: getattr(beside, one) for one in getattr(beside, "__all__", ())})
        exec(compile(example, name, "exec"), namespace)
