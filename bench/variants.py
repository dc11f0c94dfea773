"""The compiled core with a feature cut out, to see what it costs. For the benchmark alone.

A variant is a few cuts in the source of the core (`compiled.pyx` and its parts), each of which must
be found there exactly once; one that is not says so, and must be mended here. It is compiled into
the build folder under a hash of its text, and a worker of the benchmark loads it in place of the
real one. The tests plant bugs into the core in the same way.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "engine/squall_engine/core"
MODULE = "squall_engine.core.compiled"
BUILT = ROOT / "build" / "bench" / "cores"

Sources = dict[str, str]  # text by the path in the core's folder
Cuts = Sequence[tuple[str, str]]  # text that is there, and its replacement

CUTS: dict[str, Cuts] = {
    # What `execute` raises is not caught, and values are not checked against the declared fields.
    "errors": (
        (
            """\
            while True:
                try:
                    call_each(self, self.execute)
                    if self.trial is None or not self.trial.seeking:
                        break
                    raise RuntimeError("the search for the key of a tuple: StopIteration")
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
    # What a bolt pays that could be atomic, and is not.
    "state": (
        (
            """\
        if self.trial is not None and (self.trial.under_way or self.trial.seeking):
            try:
                self.trial.refuse(tup, error)
                return 0
            except Exception as last:
                error = last
""",
            "",
        ),
        (
            """\
        if self.trial is not None and self.trial.under_way:
            try:
                self.trial.returned(tup)
            except StopIteration as error:  # from here it would end the loop
                self.raised(error)
""",
            "",
        ),
        (
            """\
        if self.trial is not None:
            self.trial.begin(tup)
""",
            "",
        ),
        (
            """\
            if self.trial is not None:
                self.trial.broken_off()
""",
            "",
        ),
    ),
    # A tuple has one anchor at most.
    "several_anchors": (
        (
            """\
            elif self.mode == SEVERAL:
                self.report_merged()
                ack_roots(self.ledger, tup, self.axor)
""",
            "",
        ),
        (
            """\
        if batch.several is not None:
            tup.several = batch.several.get(i)
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
    """A cut does not fit the source any more."""


def sources() -> Sources:
    """The files that the core is compiled from."""
    files = [CORE / "compiled.pyx", CORE / "wire_format.py", *sorted(CORE.glob("cython/*.pxi"))]
    return {str(file.relative_to(CORE)): file.read_text() for file in files}


def cut(texts: Sources, name: str, cuts: Cuts) -> Sources:
    """The sources after these cuts; `name` is for the message. Raises CutError."""
    texts = dict(texts)
    for old, new in cuts:
        found = [path for path, text in texts.items() if old in text]
        if sum(text.count(old) for text in texts.values()) != 1:
            raise CutError(
                f"the variant {name!r} cuts text that stands {len(found)} times in the core's "
                f"source, where once is needed:\n{old}"
            )
        texts[found[0]] = texts[found[0]].replace(old, new)
    return texts


def build(variants: Sequence[str]) -> Path:
    """The compiled module without these features; compiled when it is not there yet."""
    texts = sources()
    for variant in variants:
        texts = cut(texts, variant, CUTS[variant])
    return compiled(texts, f"without {', '.join(variants)}")


def compiled(
    texts: Sources,
    title: str,
    compile_args: Sequence[str] = ("-O3",),
    link_args: Sequence[str] = (),
    more_sources: Sequence[Path] = (),
) -> Path:
    """The module of these sources, and of more C files; compiled when it is not there yet."""
    more = [file.read_text() for file in more_sources]
    made_of = repr((sorted(texts.items()), tuple(compile_args), tuple(link_args), more)).encode()
    name = f"{hashlib.sha256(made_of).hexdigest()[:16]}-{sys.implementation.cache_tag}"
    made = BUILT / name / "compiled.so"
    if not made.exists():
        print(f"compiling a core {title} ...", file=sys.stderr, flush=True)
        sys.path.insert(0, str(ROOT))
        from hatch_build import SOURCE, compile_core

        with tempfile.TemporaryDirectory() as folder:
            for path, text in texts.items():
                copy = Path(folder) / "tree" / SOURCE.parent / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(text)
            built = compile_core(
                Path(folder) / "tree",
                Path(folder) / "made",
                compile_args=compile_args,
                link_args=link_args,
                more_sources=more_sources,
            )
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
