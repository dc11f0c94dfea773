"""What the fuzzer gives its inputs to: everything that reads bytes of others.

A target is a module here with

    check(data) -> str       gives it an input; returns a word about what came of that, and raises
                             for whatever a hostile peer must not be able to cause
    seeds()                  the inputs to begin with, by name: `tests/fuzz/corpus/TARGET`
    GROWTH_BYTES_MAX         by how much one input may make the process larger

and `check` is deterministic, so that a seed of the fuzzer gives the same inputs again.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Protocol, cast

NAMES = ("sections", "thrift", "multilang", "archives", "http")


class Target(Protocol):
    """See the module."""

    GROWTH_BYTES_MAX: int

    def check(self, data: bytes) -> str: ...

    def seeds(self) -> Iterable[tuple[str, bytes]]: ...


def target(name: str) -> Target:
    """The target of that name."""
    return cast(Target, importlib.import_module(f"tests.fuzz.targets.{name}"))
