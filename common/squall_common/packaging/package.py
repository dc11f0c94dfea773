"""Packages, which carry the code of a topology.

A package is a folder, or an archive (`.zip`, `.jar`, `.pyz`, `.pex`). Its top level is what a
worker puts first on `sys.path`; `resources/` in it is where shell components run. A folder is
packed into a zip that is the same bytes for the same files, without what no worker needs and what
its `.stormignore` names (the patterns of a .gitignore). A project with `pyproject.toml` and a
`src/` folder has the content of `src/` at the top level.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import extract

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".nox", "node_modules",
        ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".idea", ".vscode",
    }
)  # fmt: skip
IGNORE_FILE = ".stormignore"
_SKIPPED_ENDS = (".pyc", ".pyo", ".egg-info", ".swp", "~")
# Zip knows no time before 1980; one fixed time makes the same files the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_EXECUTABLE, _PLAIN = 0o755, 0o644
_HINT = "a package is a folder, or a .zip, .jar, .pyz or .pex file"


def build_package(source: Path, folder: Path) -> Path:
    """The archive of a package: `source` itself when it is one, else a new zip in `folder`.

    Raises PackageError when there is nothing at `source`, when it is empty or neither a folder
    nor an archive, or holds nothing or too much to run.
    """
    try:
        if source.is_dir():
            return _pack(source, folder / f"{source.resolve().name or 'package'}.zip")
        if not source.exists():
            raise PackageError(f"there is no package {source}", hint=_HINT)
        if source.is_file() and not source.stat().st_size:
            raise PackageError(f"{source} is empty: it has no bytes", hint=_HINT)
        if not source.is_file() or not zipfile.is_zipfile(source):
            raise PackageError(f"{source} is neither a folder nor an archive", hint=_HINT)
        return source
    except OSError as error:
        raise PackageError(f"package {source} cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """Facts about a package that commands show."""

    size_bytes: int
    unpacked_bytes: int
    files: int
    sha256: str


def describe_package(archive: Path) -> PackageFacts:
    """Sizes and hash of an archive."""
    with zipfile.ZipFile(archive) as file:
        members = [info for info in file.infolist() if not info.is_dir()]
    return PackageFacts(
        archive.stat().st_size,
        sum(info.file_size for info in members),
        len(members),
        hashlib.sha256(archive.read_bytes()).hexdigest(),
    )


def unpack_package(archive: Path, folder: Path) -> Path:
    """Unpack a package as a supervisor does, into a new `code` folder in `folder`. Raises
    PackageError for one that is unsafe (`../`, links, devices), damaged or too big."""
    code = folder / "code"
    code.mkdir()
    try:
        extract(archive, code, sync=False)  # for this process only
    except OSError as error:
        raise PackageError(
            f"package {archive} cannot be unpacked: {error.strerror or error}"
        ) from error
    return code


def code_paths(code: Path) -> list[str]:
    """The first entries of `sys.path` for the unpacked package `code`: its top level, and where the
    makers of self-contained archives put what they bundle (`.deps/` in a PEX, `site-packages/` in
    one of shiv's)."""
    bundled = sorted((code / ".deps").iterdir()) if (code / ".deps").is_dir() else []
    bundled += [code / "site-packages"]
    return [str(code), *(str(path) for path in bundled if path.is_dir())]


def import_paths(code: Path, environment: Path | None) -> list[str]:
    """The first entries of `sys.path` for an unpacked package and the environment that it needs
    (`squall_common.packaging.dependencies`), if any."""
    paths = code_paths(code)
    return paths if environment is None else [*paths, str(environment / "site")]


def offer_to_children(environment: Path) -> None:
    """Let the processes that this one starts, shell components say, find the modules and programs
    of an environment."""
    paths = {"PYTHONPATH": environment / "site", "PATH": environment / "bin"}
    for name, path in paths.items():
        before = os.environ.get(name)
        os.environ[name] = f"{path}{os.pathsep}{before}" if before else str(path)


def modules_in(code: Path) -> list[str]:
    """The names of the modules of an unpacked package, sorted; for messages."""
    found = set()
    for path in code.rglob("*.py"):
        parts = path.relative_to(code).with_suffix("").parts
        if parts[-1] in {"__init__", "__main__"}:
            parts = parts[:-1]
        if parts and all(part.isidentifier() for part in parts):
            found.add(".".join(parts))
    return sorted(found)


def _pack(source: Path, target: Path) -> Path:
    limits = Limits()
    files = dict(package_files(source))
    if not files:
        raise PackageError(f"package {source} is empty")
    if len(files) > limits.entries_max:
        raise PackageError(
            f"package {source} has {len(files)} files; the limit is {limits.entries_max}",
            hint="name the folder that holds the code, not one that holds much else",
        )
    total = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            try:
                data = files[name].read_bytes()
                executable = files[name].stat().st_mode & 0o111
            except FileNotFoundError:
                continue  # removed meanwhile, as the journal of a database is
            except OSError as error:
                raise PackageError(
                    f"{files[name]} cannot be read: {error.strerror}",
                    hint=f"{IGNORE_FILE} can leave files out of the package",
                ) from error
            total += len(data)
            if total > limits.total_bytes_max:
                raise PackageError(
                    f"package {source} holds more than {limits.total_bytes_max} bytes"
                )
            info = zipfile.ZipInfo(name, _ZIP_TIME)
            info.external_attr = (stat.S_IFREG | (_EXECUTABLE if executable else _PLAIN)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return target


def package_files(source: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder with their names in the archive. Raises PackageError for what cannot be
    packed, and OSError."""
    src = source / "src"
    hoisted = (
        (source / "pyproject.toml").is_file()
        and src.is_dir()
        and not (src / "__init__.py").exists()
    )
    seen: set[str] = set()
    ignored = _ignored(source)
    for path in _walk(source, frozenset()):
        relative = path.relative_to(source)
        if ignored is not None and ignored.match_file(relative.as_posix()):
            continue
        if hoisted and relative.parts[0] == "src":
            relative = relative.relative_to("src")
        name = relative.as_posix()
        if name in seen:
            raise PackageError(
                f"package {source} has {name!r} both at its top level and in src/; "
                "the worker puts both in one place"
            )
        seen.add(name)
        yield name, path


def _ignored(source: Path) -> GitIgnoreSpec | None:
    """The files that the package's `.stormignore` leaves out, including `.stormignore` itself."""
    try:
        lines = (source / IGNORE_FILE).read_text().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise PackageError(f"{source / IGNORE_FILE} is not a text file: {error}") from error
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines([*lines, f"/{IGNORE_FILE}"])
    except ValueError as error:
        raise PackageError(f"{source / IGNORE_FILE}: {error}") from error


def _walk(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    """The files in a folder. Links are followed, as the files they lead to are what the code
    reads here; a link to a folder that it lies in is refused."""
    real = os.path.realpath(folder)
    if real in above:
        raise PackageError(f"{folder} is a link to a folder that it lies in")
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if entry.is_dir():
            if entry.name not in _SKIPPED_FOLDERS and not entry.name.endswith(_SKIPPED_ENDS):
                yield from _walk(path, above | {real})
        elif entry.is_file():
            if not entry.name.endswith(_SKIPPED_ENDS):
                yield path
        elif entry.is_symlink():
            raise PackageError(f"{path} is a link to something that is not there")
        else:
            raise PackageError(f"{path} is neither a file nor a folder")
