"""The compiled core with a feature cut out, to see what it costs. For the benchmark alone.

A variant is a few cuts in the text of `compiled.pyx`, each of which must be found there exactly
once: a cut that is not says so, and is to be mended here. It is compiled into the build folder
under a hash of its text, and a worker of the benchmark loads it in the place of the real one.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "engine/squall_engine/core/compiled.pyx"
MODULE = "squall_engine.core.compiled"
FORMAT = "wire_format.py"
BUILT = ROOT / "build" / "bench" / "cores"

# variant -> (what stands there, what is to stand there)
CUTS: dict[str, Sequence[tuple[str, str]]] = {
    # What `execute` raises is not caught, and values are not checked against the declared fields.
    "errors": (
        (
            """\
            while True:
                try:
                    call_each(self, self.execute)
                    break
                except Exception as error:
                    self.raised(error)
""",
            """\
            call_each(self, self.execute)
""",
        ),
        (
            """\
cdef inline int check_values(Output output, object values) except -1:
""",
            """\
cdef inline int check_values(Output output, object values) except -1:
    return 0
""",
        ),
    ),
    # A tuple has one anchor at most.
    "several_anchors": (
        (
            """\
            elif self.mode == SEVERAL:
                ack_roots(self.ledger, tup, self.axor)
""",
            "",
        ),
        (
            """\
        if batch.several is not None:
            tup.anchors = batch.several.get(i)
        if batch.sources is not None:
""",
            """\
        if batch.sources is not None:
""",
        ),
        (
            "self.mode = PLAIN if root == 0 else (SEVERAL if root == MANY else ONE_ROOT)",
            "self.mode = PLAIN if root == 0 else ONE_ROOT",
        ),
    ),
}


class CutError(RuntimeError):
    """A cut no longer fits the source."""


def cut(text: str, variant: str) -> str:
    """The source without the feature. Raises CutError."""
    for old, new in CUTS[variant]:
        found = text.count(old)
        if found != 1:
            raise CutError(
                f"the variant {variant!r} in bench/variants.py cuts what stands {found} times in "
                f"{SOURCE.name}, where once is needed:\n{old}"
            )
        text = text.replace(old, new)
    return text


def build(variants: Sequence[str]) -> Path:
    """The compiled module without these features; compiled when it is not there yet."""
    text = SOURCE.read_text()
    for variant in variants:
        text = cut(text, variant)
    made_of = text.encode() + SOURCE.with_name(FORMAT).read_bytes()
    name = f"{hashlib.sha256(made_of).hexdigest()[:16]}-{sys.implementation.cache_tag}"
    made = BUILT / name / "compiled.so"
    if not made.exists():
        print(f"compiling a core without {', '.join(variants)} ...", file=sys.stderr, flush=True)
        sys.path.insert(0, str(ROOT))
        from hatch_build import SOURCE as RELATIVE
        from hatch_build import compile_core

        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "tree" / RELATIVE
            copy.parent.mkdir(parents=True)
            copy.write_text(text)
            shutil.copy(SOURCE.with_name(FORMAT), copy.with_name(FORMAT))
            built = compile_core(Path(folder) / "tree", Path(folder) / "made")
            made.parent.mkdir(parents=True, exist_ok=True)
            fresh = made.with_name(f".{os.getpid()}")
            fresh.write_bytes(built.read_bytes())
            fresh.replace(made)
    return made


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the core at another place."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        loader = importlib.machinery.ExtensionFileLoader(MODULE, str(self._path))
        return importlib.util.spec_from_file_location(MODULE, self._path, loader=loader)


def load(path: Path) -> None:
    """Make it the core of this process. Before anything of the engine is imported."""
    if MODULE in sys.modules:
        raise RuntimeError("the engine is loaded already")
    sys.meta_path.insert(0, _Finder(path))
