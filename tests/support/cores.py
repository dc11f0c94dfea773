"""The two cores, for tests of what both promise: `@both` runs a test with `core` as each of them.
The compiled one is skipped where it is not built."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from squall_engine.core import pure


def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("squall_engine.core.compiled")
    except ImportError:
        return None


compiled = _compiled()
both = pytest.mark.parametrize(
    "core",
    [
        pytest.param(pure, id="pure"),
        pytest.param(
            compiled,
            id="compiled",
            marks=pytest.mark.skipif(compiled is None, reason="the compiled core is not built"),
        ),
    ],
)
