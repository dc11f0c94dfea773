"""The files that take longest are handed out first: the last to end decides how long all take. And
no daemon's loop may be held, whatever the test is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.held_loops import held_loops_in

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


@pytest.fixture(autouse=True)
def no_loop_is_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a daemon whose logs are in the test's folder says that its loop was held. Shared
    clusters check theirs when they end (`DevCluster.start`)."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    held = [] if folder is None else held_loops_in(folder)
    assert not held, "a daemon's loop was held:\n" + "\n".join(held)
