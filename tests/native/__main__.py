"""`python -m tests.native [--secs N]`: builds the core and the memory of rings with warnings as
errors and with the address and undefined-behaviour sanitizers, runs their tests and the model of
trees with them, and fuzzes the core for that long. Beside it the other targets of the fuzzer, which
are in Python, get as long each. The inputs are the same in each run, unless SQUALL_SOAK=1. (The
tests of the memory are a fuzzer: Hypothesis writes what a hostile neighbour might; SQUALL_SOAK=1
for more of it.)

Users' builds have neither the warnings nor the sanitizers. The build is kept in build/bench/cores
until the source changes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import variants
from tests.fuzz.targets import NAMES

ROOT = Path(__file__).resolve().parents[2]
_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_FLAGS = (
    *("-O0", "-g1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"),
    *(*_SANITIZE, "-fsanitize-coverage=trace-pc"),
)
_TESTS = (
    "-k",
    "not pure",
    "tests/unit/engine/core",
    "tests/property/engine/acking/test_tree_model.py",
    "tests/property/engine/core/test_column_format.py",
    "tests/property/engine/core/test_compiled_columns.py",
    "tests/unit/worker/transport/ring",
    "tests/property/worker/transport/ring",
)
_RING_FOLDER = ROOT / "build" / "bench" / "ring"
_FUZZ = "import runpy, tests.native.core_at; runpy.run_module('tests.fuzz', run_name='__main__')"


def _library(name: str) -> str | None:
    """The path of a library of the C compiler's."""
    try:
        asked = subprocess.run(
            ("gcc", f"-print-file-name={name}"), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    path = asked.stdout.strip()
    return path if os.path.isabs(path) else None


def _ring() -> Path:
    """The memory of rings with sanitizers. Compiled each time: that takes seconds."""
    sys.path.insert(0, str(ROOT))
    from hatch_build import compile_ring

    shutil.rmtree(_RING_FOLDER, ignore_errors=True)
    flags = [flag for flag in _FLAGS if "coverage" not in flag]
    return compile_ring(ROOT, _RING_FOLDER, compile_args=flags, link_args=_SANITIZE)


def _run(core: Path, ring: Path, libraries: list[str], *arguments: str) -> int:
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        # The interpreter itself leaks at its end, and its own allocator would hide our errors.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "SQUALL_CORE": "compiled",
        "SQUALL_TEST_CORE": str(core),
        "SQUALL_TEST_RING": str(ring),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.native", description=__doc__)
    parser.add_argument("--secs", default="20", help="how long to fuzz each target")
    arguments = parser.parse_args()
    libraries = [path for name in ("libasan.so", "libubsan.so") if (path := _library(name))]
    if len(libraries) < 2:
        print("no C compiler with sanitizers is here (apt-get install gcc libc6-dev)")
        return 1 if os.environ.get("CI") else 0
    core = variants.compiled(
        variants.sources(),
        "with sanitizers",
        _FLAGS,
        _SANITIZE,
        [ROOT / "tests" / "fuzz" / "coverage.c"],
    )
    ring = _ring()
    plugin = ("-p", "tests.native.core_at", "-p", "no:cacheprovider")
    options = ["--secs", arguments.secs]
    if os.environ.get("SQUALL_SOAK") != "1":
        options += ["--seed", "1"]
    others = [name for name in NAMES if name != "sections"]
    beside = subprocess.Popen([sys.executable, "-m", "tests.fuzz", *others, *options], cwd=ROOT)
    try:
        failed = _run(core, ring, libraries, "-m", "pytest", "-q", "-x", *plugin, *_TESTS)
        failed |= _run(core, ring, libraries, "-c", _FUZZ, "sections", *options)
    except BaseException:
        beside.kill()
        raise
    finally:
        status = beside.wait()
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
