"""`make quick`: an answer in 30 seconds. All of the lint, the plainest unit tests, and those whose
file was changed. (No unit test starts a process or opens a socket, see tests/unit/conftest.py.)

    python -m tests.quick

It says that a change is not plainly wrong, no more: `make check` comes before a commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Plain decisions: state machines, plans, codecs, checks of what users write.
PLAIN = (
    "tests/unit/cli/dev/test_plan.py",
    "tests/unit/cli/dev/test_report.py",
    "tests/unit/cli/test_usage.py",
    "tests/unit/common/cluster/test_codec.py",
    "tests/unit/common/cluster/test_paths.py",
    "tests/unit/drpc/test_fair.py",
    "tests/unit/nimbus/scheduler/test_even.py",
    "tests/unit/nimbus/views/test_health.py",
    "tests/unit/nimbus/topologies/test_lifecycle.py",
    "tests/unit/nimbus/scheduler/test_lost_nodes.py",
    "tests/unit/nimbus/scheduler/test_monitor.py",
    "tests/unit/common/topology/test_arguments.py",
    "tests/unit/common/packaging/test_blob_map.py",
    "tests/unit/squall/test_builder.py",
    "tests/unit/common/component/test_component.py",
    "tests/unit/common/config/test_load.py",
    "tests/unit/common/client/test_leader_search.py",
    "tests/unit/common/topology/test_thrift.py",
    "tests/unit/common/component/delivery/test_replaying.py",
    "tests/unit/common/daemon/test_resolver.py",
    "tests/unit/common/topology/test_system.py",
    "tests/unit/common/client/test_waiting.py",
    "tests/unit/supervisor/slots/test_adoption.py",
    "tests/unit/supervisor/records/test_assignments.py",
    "tests/unit/supervisor/node/test_isolation.py",
    "tests/unit/supervisor/slots/test_slot.py",
    "tests/unit/supervisor/slots/test_reports.py",
    "tests/unit/common/component/test_groupings.py",
    "tests/unit/engine/multilang/test_jsonline.py",
    "tests/unit/tools/test_imported_names.py",
    "tests/unit/worker",
)


def changed_tests(listed: str) -> list[str]:
    """The unit tests among the paths that git lists, a line each."""
    return [
        path
        for path in listed.splitlines()
        if path.startswith("tests/unit/")
        and Path(path).name.startswith("test_")
        and path.endswith(".py")
        and not path.startswith(PLAIN)
    ]


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout  # empty where this is no checkout: then nothing was changed


def main() -> int:
    began = time.monotonic()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in tests/run_all.py
    changed = changed_tests(
        _git("diff", "--name-only", "--diff-filter=d", "HEAD")
        + _git("ls-files", "--others", "--exclude-standard")
    )
    python = [sys.executable, "-m"]
    failed = False
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["pytest", "-q", "-n", "2", *PLAIN, *changed],
    ):
        failed |= subprocess.run([*python, *command], cwd=ROOT, check=False).returncode != 0
    print(f"{'FAILED' if failed else 'ok'} after {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
