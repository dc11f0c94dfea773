"""Platforms: the properties of a node's Python and machine that wheels depend on.

    cp3.11 linux_x86_64 glibc2.36

is the text in which supervisors publish it (`squall.platform` in their scheduler meta). Wheel tags
follow from it (packaging.python.org, "Platform compatibility tags"): a wheel fits a cluster when it
fits the newest things that all of its nodes have.
"""

from __future__ import annotations

import platform as python_platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from packaging.tags import Tag, compatible_tags, cpython_tags

from squall_common.errors import SquallError

META_KEY = "squall.platform"

_TEXT = re.compile(
    r"cp(\d{1,3})\.(\d{1,3}) linux_([a-z0-9_]{1,20}) (glibc|musl)(\d{1,3})\.(\d{1,3})"
)
# The oldest glibc that tags name, and what some versions were called before PEP 600.
_OLDEST_GLIBC_MINOR = {"x86_64": 5, "i686": 5}
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True)
class Platform:
    """CPython on Linux; other nodes are not supported."""

    python: tuple[int, int]
    machine: str  # as in `uname -m`
    libc: str  # "glibc" or "musl"
    libc_version: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"cp{self.python[0]}.{self.python[1]} linux_{self.machine} "
            f"{self.libc}{self.libc_version[0]}.{self.libc_version[1]}"
        )

    @classmethod
    def parse(cls, text: str) -> Platform:
        """The inverse of `str`; raises ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a platform")
        major, minor, machine, libc, libc_major, libc_minor = match.groups()
        return cls((int(major), int(minor)), machine, libc, (int(libc_major), int(libc_minor)))

    def platform_tags(self) -> list[str]:
        """Platforms of wheels that run here, the closest first."""
        major, newest = self.libc_version
        names: list[str] = []
        if self.libc == "musl":
            names += [f"musllinux_{major}_{minor}" for minor in range(newest, -1, -1)]
        else:
            for minor in range(newest, _OLDEST_GLIBC_MINOR.get(self.machine, 17) - 1, -1):
                names.append(f"manylinux_{major}_{minor}")
                if minor in _LEGACY:
                    names.append(_LEGACY[minor])
        return [f"{name}_{self.machine}" for name in [*names, "linux"]]

    def tags(self) -> frozenset[Tag]:
        """Every wheel tag that runs here."""
        platforms = self.platform_tags()
        return frozenset(
            [
                *cpython_tags(self.python, [f"cp{self.python[0]}{self.python[1]}"], platforms),
                *compatible_tags(self.python, f"cp{self.python[0]}{self.python[1]}", platforms),
            ]
        )

    def marker_environment(self) -> dict[str, str]:
        """The environment in which dependency markers are evaluated (PEP 508)."""
        version = f"{self.python[0]}.{self.python[1]}"
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": "linux",
            "platform_release": "",
            "platform_version": "",
            "extra": "",
        }


def this_platform() -> Platform:
    """That of this process."""
    name, version = python_platform.libc_ver()
    if name == "glibc":
        libc, numbers = "glibc", version.split(".")
    else:
        libc, numbers = "musl", ["1", "2"]  # the only ABI that musllinux wheels are built for
    return Platform(
        (sys.version_info.major, sys.version_info.minor),
        python_platform.machine(),
        libc,
        (int(numbers[0]), int(numbers[1])),
    )


def parse_platforms(nodes: Mapping[str, str]) -> dict[str, Platform]:
    """The platforms of nodes, by name, from their texts. Raises SquallError for an unknown one."""
    known: dict[str, Platform] = {}
    for node, text in nodes.items():
        try:
            known[node] = Platform.parse(text)
        except ValueError:
            raise SquallError(
                f"supervisor {node} reports an unknown platform: {text[:80]!r}"
            ) from None
    return known


def common_platform(known: Mapping[str, Platform]) -> Platform | None:
    """The platform that all nodes can run; None if there are none. Raises SquallError if no wheel
    could run on all of them."""
    if not known:
        return None
    kinds = {replace(one, libc_version=(0, 0)) for one in known.values()}
    if len(kinds) > 1:
        shown = ", ".join(f"{node} has {one}" for node, one in sorted(known.items())[:6])
        raise SquallError(
            f"no dependencies can be built that run on every supervisor: {shown}",
            hint="run the same Python, on the same kind of machine, on every node",
        )
    return min(known.values(), key=lambda one: one.libc_version)


def platform_texts(metas: Iterable[tuple[str, str, Mapping[str, str]]]) -> dict[str, str]:
    """What `parse_platforms` takes, from (host, supervisor id, scheduler meta). Supervisors of one
    host with different Pythons are listed one by one: wheels must run in the workers of each."""
    by_host: dict[str, dict[str, str]] = {}
    for host, supervisor_id, meta in metas:
        if META_KEY in meta:
            by_host.setdefault(host, {})[supervisor_id] = meta[META_KEY]
    found = {}
    for host, texts in by_host.items():
        if len(set(texts.values())) == 1:
            found[host] = next(iter(texts.values()))
        else:
            found |= {f"{host} (supervisor {one})": text for one, text in texts.items()}
    return found
