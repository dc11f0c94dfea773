"""Files that a crash at any byte leaves either old or new, never torn."""

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: temporary file in the same folder, fsync, rename, fsync of the
    folder. Raises OSError (a full disk among them) with the old content untouched."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def make_dirs(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder that may exist, and its parents (those as the umask has it), so that a power
    failure takes none of them away: a file is not safe in a folder whose own name is not."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(mode=mode if folder == path else 0o777, exist_ok=True)
        sync_dir(folder.parent)


def make_private_dirs(path: Path) -> None:
    """The same for a folder that only we may enter, also if it is there and open to others."""
    make_dirs(path, mode=0o700)
    os.chmod(path, 0o700)


def sync_dir(path: Path) -> None:
    """Make the names inside a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
