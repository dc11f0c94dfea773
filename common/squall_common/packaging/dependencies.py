"""Wheels that a topology needs beside its package.

They travel as blobs named by their content (`dep-SHA256-NAME.whl`), so the same wheel is uploaded
once for all topologies, and no one can store other content under a name that is in use. The keys
stand in `StormTopology.dependency_artifacts`. A supervisor builds one environment for each set of
wheels, and topologies with the same set share it.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.sources import WheelFile
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from squall_common.errors import PackageError
from squall_common.names import dependency_key
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import list_files
from squall_common.packaging.platforms import Platform

# The wheels of one topology, unpacked: as far apart from those of a package as PySpark's are.
_LIMITS = Limits(entries_max=50_000, total_bytes_max=4 * 1024**3, ratio_max=200)


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel on this disk."""

    path: Path
    sha256: str

    @property
    def key(self) -> str:
        """Its blob's key."""
        return dependency_key(self.sha256, self.path.name)


def read_wheel(path: Path) -> Wheel:
    """The wheel in a file. Raises PackageError if the file is not a wheel."""
    try:
        parse_wheel_filename(path.name)
        with path.open("rb") as file:
            return Wheel(path, hashlib.file_digest(file, "sha256").hexdigest())
    except InvalidWheelFilename as error:
        raise PackageError(f"{path.name} is not named as a wheel is: {error}") from error
    except OSError as error:
        raise PackageError(f"cannot read {path}: {error.strerror or error}") from error


def fits(filename: str, platform: Platform) -> bool:
    """Whether a wheel runs on a platform, by the tags in its name."""
    *_, tags = parse_wheel_filename(filename)
    return not tags.isdisjoint(platform.tags())


def check_fit(filenames: Iterable[str], platform: Platform) -> None:
    """Raise PackageError for wheels that do not run on this node. They were chosen for the nodes
    that the cluster had at the submit; installed all the same, they would fail in every worker,
    with an ImportError that does not say why."""
    tags = platform.tags()
    unfit = []
    for name in filenames:
        try:
            *_, own = parse_wheel_filename(name)
        except InvalidWheelFilename as error:
            raise PackageError(f"{name} is not a wheel: {error}") from error
        if own.isdisjoint(tags):
            unfit.append(name)
    if unfit:
        more = f", nor do {len(unfit) - 1} more of its wheels" if len(unfit) > 1 else ""
        raise PackageError(
            f"{min(unfit)} does not run on this node, which has {platform}{more}; run the same "
            "Python on every node, and submit the topology again"
        )


def environment_key(keys: Iterable[str], platform: Platform, squall_version: str) -> str:
    """The name of the environment that a set of dependencies makes on a platform."""
    parts = [*sorted(set(keys)), str(platform), squall_version]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def site_folder(environment: Path) -> Path:
    """The folder of an environment that belongs on sys.path."""
    return environment / "site"


def scripts_folder(environment: Path) -> Path:
    """The programs of an environment's wheels."""
    return environment / "bin"


def build_environment(wheels: Sequence[Wheel], folder: Path, interpreter: str) -> None:
    """Install wheels, and nothing else, into `folder`, which is new. Offline; no code of theirs
    runs. Raises PackageError that names the wheel, and OSError; `folder` then holds a part.

    Not fsynced: whoever gives the folder its name does that.
    """
    schemes = {
        "purelib": str(site_folder(folder)),
        "platlib": str(site_folder(folder)),
        "scripts": str(scripts_folder(folder)),
        "headers": str(folder / "include"),
        "data": str(folder),
    }
    site_folder(folder).mkdir(parents=True)
    for wheel in wheels:
        list_files(wheel.path, _LIMITS)  # names that lead astray, too many members
        destination = SchemeDictionaryDestination(schemes, interpreter, "posix")
        try:
            with WheelFile.open(wheel.path) as source:
                source.validate_record()
                install(source, destination, {"INSTALLER": b"squall\n"})
        except FileExistsError as error:
            twice = Path(str(error)).name
            raise PackageError(
                f"{wheel.path.name} contains {twice!r}, which is also in another wheel"
            ) from error
        except (
            InstallerError,
            InvalidWheelFilename,
            AssertionError,
            KeyError,
            ValueError,
            zipfile.BadZipFile,
            EOFError,
        ) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PackageError(f"{wheel.path.name} is damaged: {reason}") from error
