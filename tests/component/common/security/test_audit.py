"""The audit log on a real disk, beside other users of the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.others import folder_for_others, missing

from squall_common.security.audit import AuditFile

# A user and a group without rights, on every Linux.
NOBODY = 65_534


@pytest.mark.parametrize(
    "command",
    [
        'cat "$1"', 'echo forged >> "$1"', 'echo forged > "$1"', 'rm -f "$1"; test ! -e "$1"',
        'mv "$1" "$1.old"', 'ln "$1" "$2/name"', 'chmod 666 "$1"', 'echo x > "$1.1"',
    ],
)  # fmt: skip
def test_a_worker_of_another_user_neither_reads_nor_changes_it(command: str) -> None:
    """As workers with `supervisor.run.worker.as.user` are, in a folder that they can walk to."""
    if os.geteuid() != 0:
        missing("only root has processes of other users")
    with folder_for_others() as folder:
        path = folder / "logs" / "nimbus-audit.log"
        file = AuditFile(path)
        file('{"action": "killTopology"}')
        before = path.read_bytes(), path.stat().st_mode, _names(path.parent)
        tried = subprocess.run(
            ["/bin/sh", "-c", command, "sh", str(path), str(folder / "logs")],
            user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False,
        )  # fmt: skip
        assert tried.returncode != 0, command
        file('{"action": "activate"}')
        file.close()
        assert path.read_bytes() == before[0] + b'{"action": "activate"}\n'
        assert (path.stat().st_mode, _names(path.parent)) == before[1:]


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))
