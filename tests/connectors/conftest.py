"""Tests with real servers take longer than others, and in `make soak` much longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.effort import SOAK

from squall.testing.connectors import SinkContract, SourceContract

if SOAK:
    SourceContract.outage_secs = SinkContract.outage_secs = 30.0
_SECS_MAX = 3_600 if SOAK else 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(_SECS_MAX))
