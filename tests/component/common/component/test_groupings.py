"""The stable hash in another process, whose own hashes differ."""

import os
import subprocess
import sys

from tests.support.stable_hashes import TABLE


def test_the_table_holds_in_another_process():
    program = (
        "import datetime as dt, uuid, sys\nfrom decimal import Decimal\n"
        "from squall_common.component.groupings import stable_hash\n"
        f"for text in {list(TABLE)!r}: print(stable_hash(eval(text)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "77"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert [int(line) for line in out.stdout.split()] == list(TABLE.values())
