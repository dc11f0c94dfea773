"""Requirements as text: whether the file says everything that a resolution depends on.

A resolution may be kept for the next submit only if its outcome follows from text that can be
compared: names, versions, hashes, options of the index, and files that it includes. A path, a URL
or an environment variable leads to content that may change unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_INCLUDES = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(\S.*)")
_PLAIN_OPTIONS = re.compile(
    r"(?:-i|--index-url|--extra-index-url|--no-index|--pre|--prefer-binary|--only-binary"
    r"|--no-binary|--require-hashes|--trusted-host)(?:[\s=].*)?"
)
_INCLUDES_MAX = 50


@dataclass(frozen=True, slots=True)
class RequirementsText:
    """All that a requirements file and the files that it includes say."""

    lines: tuple[str, ...]
    pinned: frozenset[str]  # projects of which exactly one version fits


def read_requirements(file: Path) -> RequirementsText | None:
    """The contents of a requirements file; None if the outcome depends on more than text."""
    lines: list[str] = []
    waiting, seen = [file], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            return None
        if len(seen) > _INCLUDES_MAX:
            return None
        for line in _logical_lines(text):
            included = _INCLUDES.fullmatch(line)
            if included is not None:
                if "://" in line or "$" in line:
                    return None
                waiting.append(path.parent / included[1].strip("\"'"))
            lines.append(line)
    return of_lines([line for line in lines if not _INCLUDES.fullmatch(line)])


def of_lines(lines: list[str]) -> RequirementsText | None:
    """The same for the lines themselves, which include no file."""
    pinned: set[str] = set()
    for line in lines:
        if "${" in line:
            return None
        if line.startswith("-"):
            if not _PLAIN_OPTIONS.fullmatch(line):
                return None
            continue
        try:
            requirement = Requirement(re.split(r"\s--", line, maxsplit=1)[0])
        except InvalidRequirement:  # a path, or an error that pip will explain
            return None
        if requirement.url is not None:
            return None
        if any(
            one.operator == "===" or (one.operator == "==" and not one.version.endswith(".*"))
            for one in requirement.specifier
        ):
            pinned.add(canonicalize_name(requirement.name))
    return RequirementsText(tuple(lines), frozenset(pinned))


def _logical_lines(text: str) -> list[str]:
    """Lines as pip reads them: joined at a backslash, without comments."""
    joined = re.sub(r"\\\r?\n", " ", text)
    stripped = (re.sub(r"(^|\s+)#.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in stripped if line]
