"""The units of deploy/systemd, as systemd itself reads them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).resolve().parents[3] / "deploy" / "systemd").glob("*.service"))
# The most that `systemd-analyze security` may say, in tenths: workers of all users need most of
# what a unit can take away.
EXPOSED_MAX = {"squall-supervisor.service": 65, "squall-logviewer.service": 25}

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze (Debian: systemd)"
)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit_and_finds_it_closed(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    # A program that is there.
    unit.write_text(path.read_text().replace("/opt/squall/bin/storm", sys.executable))
    said = analyze("verify", "--man=no", unit).stderr.splitlines()
    # Of systemd 254; older ones leave it out.
    said = [line for line in said if "DelegateSubgroup" not in line]
    assert [line for line in said if path.name in line] == []
    most = EXPOSED_MAX.get(path.name, 20)
    judged = analyze("security", "--offline=true", f"--threshold={most}", unit)
    if "offline" in judged.stderr:
        pytest.skip("this systemd-analyze judges no unit that is not installed")
    assert judged.returncode == 0, judged.stdout[-300:]
