"""Java properties files: lines of key=value."""

from __future__ import annotations

from pathlib import Path

from squall_common.errors import SquallError


def read_properties(path: Path) -> dict[str, str]:
    """A file of `key=value`, `key: value` or `key value` lines; # and ! begin comments, and a
    backslash continues a line. Raises SquallError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SquallError(f"cannot read {path}: {reason}") from error
    return parse_properties(text)


def read_credentials(path: Path) -> dict[str, str]:
    """Credentials of a topology, in a properties file. Raises SquallError, which quotes nothing of
    the file, also if it is JSON: lines of JSON have keys, too, and these would take the place of
    the topology's credentials."""
    found = read_properties(path)
    if next(iter(found), "").startswith(("{", "[")):
        raise SquallError(
            f"{path} holds JSON, not lines of key=value",
            hint="Write a line for each credential, such as: database.password=...",
        )
    return found


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file."""
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """At the first separator that no backslash escapes."""
    at = 0
    while at < len(line) and line[at] not in "=: \t":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip()
    return line[:at], rest[1:].lstrip() if rest[:1] in ("=", ":") else rest


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        code = text[at + 2 : at + 6]
        if text[at + 1 : at + 2] == "u" and len(code) == 4 and _is_hex(code):
            parts.append(chr(int(code, 16)))
            at += 6
        else:
            following = text[at + 1 : at + 2]
            parts.append(_ESCAPES.get(following, following))
            at += 2
    return "".join(parts)


def _is_hex(text: str) -> bool:
    return all(one in "0123456789abcdefABCDEF" for one in text)
