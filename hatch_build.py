"""Compiles the core (engine/squall_engine/core/compiled.pyx, and the parts that it includes), the
memory that workers of one host share (worker/squall_worker/transport/ring/memory.pyx), and the
modules of `squall_common.daemon.compiled_modules`, where there is a C compiler.

Run by hatchling for every wheel, editable ones too. Where it cannot compile it says so in a line
and leaves a wheel of Python alone, which runs the same code uncompiled. SQUALL_BUILD=pure leaves
the compiler alone; SQUALL_BUILD=compiled makes a failure an error.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "squall_engine.core.compiled"
SOURCE = Path("engine/squall_engine/core/compiled.pyx")
PARTS = "cython/*.pxi"  # which the source includes; beside it
FORMAT = SOURCE.with_name("wire_format.py")
RING_MODULE = "squall_worker.transport.ring.memory"
RING_SOURCE = Path("worker/squall_worker/transport/ring/memory.pyx")
MODULES = Path("common/squall_common/daemon/compiled_modules.py")
# Of other modules of ours it counts what they declare, and no error in them. Packages of others are
# unknown wherever this is built: a build has an environment of its own, without them.
_MYPY = """\
[mypy]
explicit_package_bases = true
follow_imports = silent
ignore_missing_imports = true
no_site_packages = true
mypy_path = {path}
cache_dir = {cache}
"""


class CompiledCore(BuildHookInterface):  # type: ignore[misc]
    """`[tool.hatch.build.targets.wheel.hooks.custom]`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("SQUALL_BUILD", "")
        if wanted == "pure":
            return
        root = Path(self.root)
        try:
            with tempfile.TemporaryDirectory() as folder:
                targets = [
                    _put_beside(root / SOURCE, compile_core(root, Path(folder, "core"))),
                    _put_beside(root / RING_SOURCE, compile_ring(root, Path(folder, "ring"))),
                ]
        except Exception as error:
            if wanted == "compiled":
                raise
            self.app.display_warning(
                f"squall: the core is not compiled ({_first_line(error)}); "
                "its reference in Python will run, at six times the CPU, and workers of one host "
                "will not share memory"
            )
            return
        try:
            targets += put_modules(root)
        except Exception as error:
            if wanted == "compiled":
                raise
            self.app.display_warning(
                f"squall: the engine's modules are not compiled ({_first_line(error)}); they will "
                "run in Python"
            )
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version != "editable":
            # Ignored by git, so hatchling would leave it out.
            for target in targets:
                _, *name = target.relative_to(root).parts
                build_data["force_include"][str(target)] = Path(*name).as_posix()


def compile_core(
    root: Path,
    folder: Path,
    *,
    compile_args: Sequence[str] = ("-O3",),
    link_args: Sequence[str] = (),
    more_sources: Sequence[Path] = (),
) -> Path:
    """Compile into `folder`; returns the extension module. Raises whatever went wrong.

    The tests give other arguments: for the compiler, for the linker, and C files to add. The part
    of the core that declares the format of sections is made in `folder`, from the module that
    declares it for Python: nothing generated lies in the checkout, where it could be stale."""
    source = SOURCE.relative_to("engine")
    folder.mkdir(parents=True, exist_ok=True)
    declared = runpy.run_path(str(_format_of(root / SOURCE)))["cython"]()
    (folder / FORMAT.with_suffix(".pxi").name).write_text(declared)
    return _compile(
        MODULE,
        root / "engine",
        [source, *more_sources],
        folder,
        {"SQUALL_SOURCE_HASH": source_hash(root / SOURCE)},
        compile_args,
        link_args,
    )


def compile_ring(
    root: Path,
    folder: Path,
    *,
    compile_args: Sequence[str] = ("-O3",),
    link_args: Sequence[str] = (),
) -> Path:
    """Likewise the memory of rings."""
    source = RING_SOURCE.relative_to("worker")
    made_of = {"SQUALL_RING_SOURCE_HASH": ring_hash(root / RING_SOURCE)}
    return _compile(
        RING_MODULE, root / "worker", [source], folder, made_of, compile_args, link_args
    )


def put_modules(root: Path) -> list[Path]:
    """Compile the modules of the checkout, unless there are those of these sources; returns the
    files that belong to them. What was made of other sources is removed. Raises whatever went
    wrong."""
    about = runpy.run_path(str(root / MODULES))
    folders = {
        path.name: path for path in root.glob("*/squall*") if (path / "__init__.py").exists()
    }
    sources = sorted(_sources_of(about["MODULES"], folders))
    digest = about["digest"](folders[one.split("/")[0]] / one.partition("/")[2] for one in sources)
    home = folders[about["HOME"]] / about["FOLDER"]
    place = home / digest
    compiler = f"mypy {metadata.version('mypy')}"
    names = [about["file_name"](name) for name in (*about["MODULES"], about["LIBRARY"])]
    targets = [place / name for name in (*names, about["MADE_OF"])]
    if not (all(target.is_file() for target in targets) and _is_made_by(targets[-1], compiler)):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for made in compile_modules(root, about, Path(folder)):
                _put(made, place / made.name)
            # Last: without it the others are not looked at.
            made_of = Path(folder, about["MADE_OF"])
            entry = {"digest": digest, "sources": sources, "compiler": compiler}
            made_of.write_text(json.dumps(entry, indent=1))
            _put(made_of, place / made_of.name)
    for other in home.iterdir():
        if other != place:
            shutil.rmtree(other, ignore_errors=True)
    return targets


def _is_made_by(made_of: Path, compiler: str) -> bool:
    """Whether modules were compiled by this version: another one may have mended a defect."""
    found: Any = json.loads(made_of.read_bytes())
    return bool(found.get("compiler") == compiler)


def compile_modules(root: Path, about: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Compile the modules into `folder`; yields the extension modules, each named as it must be.
    Raises whatever went wrong."""
    packages = sorted({path.parent for path in root.glob("*/squall*/__init__.py")})
    path = ":".join(sorted({package.parent.name for package in packages}))
    config = folder / "mypy.ini"
    config.write_text(_MYPY.format(path=path, cache=folder / "cache"))
    homes = {package.name: package.parent.name for package in packages}
    files = [
        f"{homes[module.partition('.')[0]]}/{module.replace('.', '/')}.py"
        for module in about["MODULES"]
    ]
    with contextlib.chdir(root), _quiet():
        from mypyc.build import mypycify
        from setuptools import Distribution

        try:
            extensions = mypycify(
                ["--config-file", str(config), *files],
                opt_level="2",
                debug_level="0",
                target_dir=str(folder / "c"),
                group_name=about["GROUP"],
            )
        except SystemExit as error:  # it has said on stderr what it has found
            raise RuntimeError("mypy has found errors in them") from error
        distribution = Distribution({"name": "squall-modules", "ext_modules": extensions})
        command: Any = distribution.get_command_obj("build_ext")
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "temp")
        command.parallel = os.cpu_count() or 1
        distribution.run_command("build_ext")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name in (*about["MODULES"], about["LIBRARY"]):
        made = folder / "lib" / Path(*name.split(".")).with_suffix(suffix)
        yield made.rename(folder / about["file_name"](name))


def _sources_of(modules: Sequence[str], folders: Mapping[str, Path]) -> set[str]:
    """The sources that the compiled form of these modules depends on, as PACKAGE/...: their own,
    and those of the modules that they import, whose types they rely on."""
    found = set()
    for module in modules:
        (source,) = _files_of(module, folders)
        found.add(source)
        package, _, rest = source.partition("/")
        for node in ast.walk(ast.parse((folders[package] / rest).read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names)):
                    found.update(_files_of(name, folders))
    return found


def _files_of(module: str, folders: Mapping[str, Path]) -> list[str]:
    """The sources of a module of ours, as PACKAGE/...; those of a package include what its compiled
    modules declare. Of any other name: none."""
    package, *rest = module.split(".")
    if package not in folders:
        return []
    base = folders[package].joinpath(*rest)
    candidates = (base.with_suffix(".py"), base.with_suffix(".pyi"), base / "__init__.py")
    files = [
        *filter(Path.is_file, candidates),
        *(sorted(base.glob("*.pyi")) if base.is_dir() else ()),
    ]
    return [Path(package, file.relative_to(folders[package])).as_posix() for file in files]


def _compile(
    module: str,
    package: Path,
    sources: Sequence[Path],
    folder: Path,
    texts: Mapping[str, str],
    compile_args: Sequence[str],
    link_args: Sequence[str],
) -> Path:
    """Compile a module; `texts` are macros that are strings."""
    with contextlib.chdir(package), _quiet():
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension

        folder.mkdir(parents=True, exist_ok=True)
        extension = Extension(
            module,
            [str(source) for source in sources],
            extra_compile_args=list(compile_args),
            extra_link_args=list(link_args),
            define_macros=[(name, f'"{text}"') for name, text in texts.items()],
        )
        extensions = cythonize(
            [extension],
            build_dir=str(folder),
            include_path=[str(folder)],
            language_level=3,
            quiet=True,
        )
        distribution = Distribution({"name": "squall-core", "ext_modules": extensions})
        command: Any = distribution.get_command_obj("build_ext")
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "temp")
        distribution.run_command("build_ext")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    made = folder / "lib" / Path(*module.split(".")).with_suffix(suffix)
    if not made.is_file():
        raise FileNotFoundError(made.name)
    return made


def _put_beside(source: Path, made: Path) -> Path:
    """Put a module beside its source; returns where it is."""
    return _put(made, source.with_name(made.name))


def _put(made: Path, target: Path) -> Path:
    # Written beside it and renamed: a worker may have the old one mapped.
    fresh = target.with_name(f".{made.name}.{os.getpid()}")
    shutil.copy(made, fresh)
    os.replace(fresh, target)
    return target


def ring_hash(source: Path) -> str:
    """What `squall_worker.transport.ring.connections` knows the memory of rings by."""
    return hashlib.blake2b(source.read_bytes(), digest_size=16).hexdigest()


def source_hash(source: Path) -> str:
    """What `squall_engine.core` knows a module by: whether it was made of this source and its
    parts, and of this format of sections."""
    files = (source, *sorted(source.parent.glob(PARTS)), _format_of(source))
    data = b"".join(file.read_bytes() for file in files)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _format_of(source: Path) -> Path:
    return source.with_name(FORMAT.name)


@contextlib.contextmanager
def _quiet() -> Any:
    """The build's chatter goes to stderr, which pip shows when asked to (-v)."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


if __name__ == "__main__":  # the modules alone, as `make modules` wants them
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            put_modules(Path(__file__).resolve().parent)
    except Exception as problem:
        print(said.getvalue(), file=sys.stderr)
        print(f"The engine's modules are not compiled, and run in Python: {_first_line(problem)}")
