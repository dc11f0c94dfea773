"""Wheels made for tests."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    scripts: Mapping[str, str] | None = None,
    spoil: str | None = None,
) -> Path:
    """A wheel of one module, which knows its version. `scripts` are console scripts. The member
    `spoil` has another content than RECORD says."""
    members = dict(files if files is not None else {f"{name}.py": f"VERSION = {version!r}\n"})
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {line}\n" for line in requires)
    members[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}"
    )
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    )
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = ""
    for member, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{member},sha256={digest.decode()},{len(text.encode())}\n"
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    if spoil is not None:
        members[spoil] += "spoiled\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), text)
    return path
