"""The members of an archive, and the names and links that are refused.

Checked before anything is written; `archive` unpacks what passes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from squall_common.errors import PackageError

_NAME_BYTES_MAX = 255  # NAME_MAX of every usual file system
PATH_BYTES_MAX = 2048
_DEPTH_MAX = 128  # folders: unpacking holds a descriptor of each on the way down
_LINK_STEPS_MAX = 256  # Linux follows 40 links, each of some parts


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an archive. A bomb is caught while it unpacks, at the first byte too many."""

    entries_max: int = 10_000
    total_bytes_max: int = 512 * 1024 * 1024
    ratio_max: int = 100  # bytes that come out for each byte of the archive


@dataclass(frozen=True, slots=True)
class Member:
    """One file, folder or link, as a reader of archives found it."""

    name: str  # as in the archive, for messages
    path: tuple[str, ...]
    is_dir: bool
    executable: bool
    open: Callable[[], IO[bytes]] | None  # None for a folder or a link
    link: str | None = None  # where a symbolic link leads
    size_bytes: int = 0  # as the archive states it


def refusal(archive: Path, name: str, why: str) -> PackageError:
    return PackageError(f"{archive.name}: member {name[:200]!r} {why}")


def safe_path(archive: Path, name: str) -> tuple[str, ...]:
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise refusal(archive, name, "has control characters in its name")
    if "\\" in name:
        raise refusal(archive, name, "has a backslash in its name")
    if name.startswith("/"):
        raise refusal(archive, name, "has an absolute path")
    path = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in path:
        raise refusal(archive, name, "leads out of the archive with '..'")
    encoded = [part.encode() for part in path]
    if sum(map(len, encoded)) + len(encoded) > PATH_BYTES_MAX or any(
        len(part) > _NAME_BYTES_MAX for part in encoded
    ):
        raise refusal(archive, name, "has too long a name")
    if len(path) > _DEPTH_MAX:
        raise refusal(archive, name, f"lies below more than {_DEPTH_MAX - 1} folders")
    return path


def check_names(members: list[Member], archive: Path, limits: Limits) -> None:
    """No two members may make the same file, on any file system: letters that differ in case only,
    or in how Unicode composes them, count as the same. Below META-INF, which is Java's and which no
    worker reads, they do not: most jars made of several hold META-INF/LICENSE and
    META-INF/license/."""
    if len(members) > limits.entries_max:
        raise PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    files: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    for member in members:
        if not member.path:
            if member.is_dir:
                continue  # "./"
            raise refusal(archive, member.name, "has no name")
        folded = _folded(member.path)
        for depth in range(1, len(folded) + 1):
            own = member.path[:depth]
            other = spelled.setdefault(folded[:depth], own)
            if other != own:
                raise refusal(
                    archive, member.name, f"differs from {'/'.join(other)!r} in case only"
                )
        folders.update(folded[:depth] for depth in range(1, len(folded)))
        if member.is_dir:
            folders.add(folded)
        elif folded in files:
            raise refusal(archive, member.name, "is there twice")
        else:
            files.add(folded)
        if len(spelled) > 4 * limits.entries_max:  # folders that are only implied count as well
            raise PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    both = files & folders
    if both:
        name = "/".join(spelled[min(both)])
        raise refusal(archive, name, "is a file and a folder")


def _folded(path: tuple[str, ...]) -> tuple[str, ...]:
    folded = tuple(unicodedata.normalize("NFC", part).casefold() for part in path)
    return (folded[0], *path[1:]) if path[0] == "META-INF" else folded


# Links.


def check_links(members: list[Member], archive: Path) -> None:
    """Follow each link as a kernel would, over all other links: none may lead out, be absolute, or
    go round in circles. One that leads to nothing is fine."""
    links = {member.path: member for member in members if member.link is not None}
    for member in links.values():
        text = member.link or ""
        if not text or text.startswith("/") or len(text.encode(errors="replace")) > PATH_BYTES_MAX:
            raise refusal(archive, member.name, "is a link that is not relative")
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
            raise refusal(archive, member.name, "is a link with control characters")
        _follow(member, links, archive)


def _follow(member: Member, links: Mapping[tuple[str, ...], Member], archive: Path) -> None:
    at = list(member.path[:-1])
    todo = _parts(member.link)
    steps = 0
    while todo:
        steps += 1
        if steps > _LINK_STEPS_MAX:
            raise refusal(archive, member.name, "is a link that goes round in circles")
        part = todo.pop(0)
        if part == "..":
            if not at:
                raise refusal(archive, member.name, "is a link that leads out of the archive")
            at.pop()
            continue
        at.append(part)
        other = links.get(tuple(at))
        if other is not None:
            at.pop()
            if (other.link or "").startswith("/"):
                raise refusal(archive, other.name, "is a link that is not relative")
            todo = _parts(other.link) + todo


def _parts(link: str | None) -> list[str]:
    return [part for part in (link or "").split("/") if part not in ("", ".")]
