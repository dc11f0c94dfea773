"""Spark's daemon of Python workers: what its forks do not share."""

from __future__ import annotations

import json
import subprocess
import sys

TWO_WORKERS = """
import json, os, sys
sys.argv = ["daemon", "pyspark.worker"]
import squall_spark.tasks.daemon

def in_fork():
    reader, writer = os.pipe()
    if os.fork() == 0:
        import numpy, random
        os.write(writer, json.dumps([random.random(), numpy.random.random()]).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(reader, 1000))

print(json.dumps([in_fork(), in_fork()]))
"""


def test_each_worker_has_random_numbers_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first[0] != second[0]
    assert first[1] != second[1]
