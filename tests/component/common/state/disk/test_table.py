from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_full_disk_is_said_and_what_was_there_stays(tmp_path: Path) -> None:
    """(The limit of a process on the size of its files is as a full disk.)"""
    script = """
import resource, signal, sys
from squall_common.state.disk.table import DiskTable
from squall_common.state.errors import StateStoreError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = DiskTable(sys.argv[1])
table.write([[(b"a", b"1")]])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    table.write([[(b"%05d" % number, b"x" * 1000) for number in range(5000)]])
except StateStoreError as error:
    print(table.get(b"a"), error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("b'1' could not write the state that is on disk"), done.stderr
