"""The side input of q13: a bounded table in a file, a key and a value in each line.

python side_input.py FILE
"""

import csv
import functools
import os
import sys
import tempfile

KEYS = 10_000


def write(path, keys=KEYS):
    """Write the table; whoever reads meanwhile sees the file before, or all of the new one."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, newline="", delete=False) as file:
        csv.writer(file).writerows((key, f"side-{key}") for key in range(keys))
    os.replace(file.name, path)


def made():
    """The path of a file with the table, which this user has in the folder for temporary files;
    written if it is not there."""
    path = os.path.join(tempfile.gettempdir(), f"nexmark-side-input-{os.getuid()}.csv")
    if not os.path.exists(path):
        write(path)
    return path


@functools.cache
def read(path):
    """The table: from keys to values. A worker reads the file once."""
    with open(path, newline="") as file:
        return {int(key): value for key, value in csv.reader(file)}


if __name__ == "__main__":
    write(sys.argv[1])
