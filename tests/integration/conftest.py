"""The files that take longest are handed out first: the last to end decides how long all take."""

from __future__ import annotations

import pytest

# More than a minute each where other work keeps the cores busy.
LONGEST = (
    "test_storm_dev.py",
    "test_nimbus_ha.py",
    "test_zookeeper_faults.py",
    "test_worker_process.py",
    "test_history.py",
    "test_dependencies.py",
    "test_backpressure_processes.py",
    "test_blobstore.py",
    "test_profile.py",
    "test_memory_limits.py",
    "test_topology_life.py",
    "test_readme.py",
    "test_run_as_user.py",
)
_PLACES = {name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(LONGEST)))
