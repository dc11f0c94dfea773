"""Bugs planted in the source of the compiled core: the model of trees must find each of them.

One build has them all, and a switch that chooses one. Its hash tables begin with four places, and
its blocks have two roots, so that the model makes them grow, wrap round and close gaps.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bench import variants
from tests.support import tree_model as model

from squall_engine import core as chosen
from squall_engine.core.codec import CodecError

pytestmark = [
    pytest.mark.timeout(600),  # it compiles
    pytest.mark.skipif(not chosen.COMPILED, reason="the compiled core is not built, or not chosen"),
]

SWITCH = """\
cdef int PLANTED = 0


def plant(int number):
    global PLANTED
    PLANTED = number


include "cython/ids.pxi"
"""
# bug -> (text of the source, the same with the bug)
BUGS: dict[str, tuple[str, str]] = {
    "an acker completes a tree at the first ack after its init": (
        "        if entry.xor == 0 and entry.owner >= 0:",
        "        if (entry.xor == 0 or PLANTED == {n}) and entry.owner >= 0:",
    ),
    "a repeated init is taken twice": (
        "            if entry.root and entry.owner != UNKNOWN:",
        "            if PLANTED != {n} and entry.root and entry.owner != UNKNOWN:",
    ),
    "a failed tree may complete": (
        "            self.add_ack(root, next_id(&self.rng))",
        "            if PLANTED != {n}: self.add_ack(root, next_id(&self.rng))",
    ),
    "the edges of two anchors cancel each other out": (
        "            bits = next_id(&self.rng)\n            if anchor is current:",
        "            bits = 42 if PLANTED == {n} else next_id(&self.rng)\n"
        "            if anchor is current:",
    ),
    "the last acks of a batch are lost": (
        "        if self.last:\n            self.ledger.add_ack(self.last, self.merged)\n"
        "            self.last = 0",
        "        if self.last and PLANTED != {n}:\n"
        "            self.ledger.add_ack(self.last, self.merged)\n            self.last = 0",
    ),
    "a root that is removed from a table hides others": (
        "            if not self.entries[j].root:\n                break",
        "            if PLANTED == {n} or not self.entries[j].root:\n                break",
    ),
    "a buffer of acks that grows forgets one": (
        "        self.count = count\n        self.inits = inits",
        "        self.count = count - (PLANTED == {n})\n        self.inits = inits",
    ),
    "a bolt forgets the edges of its emits": (
        "            self.axor ^= bits\n            edge.add(values, bits, self.root,",
        "            if PLANTED != {n}: self.axor ^= bits\n"
        "            edge.add(values, bits, self.root,",
    ),
}
NUMBERS = {bug: number for number, bug in enumerate(BUGS, 1)}


@pytest.fixture(scope="module")
def core() -> ModuleType:
    """The core with all bugs, none of which is switched on."""
    cuts = [(old, new.format(n=NUMBERS[bug])) for bug, (old, new) in BUGS.items()]
    cuts += [
        ('include "cython/ids.pxi"\n', SWITCH),
        ("cdef Py_ssize_t TABLE_MIN = 1024", "cdef Py_ssize_t TABLE_MIN = 4"),
        # (A table is of whole blocks.)
        ("    BLOCK_BITS = 4\n    BLOCK_ROOTS = 16\n", "    BLOCK_BITS = 1\n    BLOCK_ROOTS = 2\n"),
    ]
    texts = variants.cut(variants.sources(), "with planted bugs", cuts)
    return load(variants.compiled(texts, "with planted bugs", ("-O0", "-w")))


def load(path: Path) -> ModuleType:
    """The module at a path, beside the real one."""
    loader = importlib.machinery.ExtensionFileLoader(variants.MODULE, str(path))
    spec = importlib.util.spec_from_file_location(variants.MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def checks(core: ModuleType, seed: int) -> Iterator[Callable[[], Any]]:
    shape = (seed, seed % 4 + 1, seed % 3 + 1, 300)
    yield lambda: model.check_sound(core, *shape)
    yield lambda: model.check_fails(core, *shape)
    yield lambda: model.check_network(core, *shape, 0.1, 0.3)


def test_without_a_bug_the_model_finds_none(core: ModuleType) -> None:
    core.plant(0)
    for seed in range(40):
        for check in checks(core, seed):
            check()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(core: ModuleType, bug: str) -> None:
    core.plant(NUMBERS[bug])
    try:
        for seed in range(40):
            for check in checks(core, seed):
                try:
                    check()
                except (AssertionError, CodecError):
                    return
    finally:
        core.plant(0)
    pytest.fail(f"40 seeds of the model have not found: {bug}")
