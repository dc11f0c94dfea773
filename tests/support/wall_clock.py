"""Wall clocks that a test turns while processes run by them (`wall_clock.c`): nobody else's is
touched, and no clock that only counts.

    clocks = WallClocks(folder)
    subprocess.Popen(..., env={**os.environ, **clocks.environment("n1")})
    clocks.turn("n1", 3600)
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


def unavailable() -> str | None:
    """Why clocks cannot be turned here; None when they can."""
    if shutil.which("gcc") is None:
        return "there is no `gcc` (apt-get install gcc libc6-dev)"
    return None


class WallClocks:
    """The clocks of one test, by name. Raises CalledProcessError where C cannot be compiled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "clocks"
        self._folder.mkdir()
        self._library = self._folder / "wall_clock.so"
        command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)]
        subprocess.run(command, check=True, timeout=60)

    def environment(self, name: str) -> dict[str, str]:
        """What processes get that go by this clock."""
        if not self._file(name).exists():
            self.turn(name, 0)
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK_FILE": str(self._file(name))}

    def turn(self, name: str, secs: int) -> None:
        """Let a clock be so many seconds ahead of the machine's (behind, when negative)."""
        # In place: processes have the file mapped.
        with self._file(name).open("r+b" if self._file(name).exists() else "wb") as file:
            file.write(struct.pack("=q", secs))

    def turns(self, pid: int, name: str) -> bool:
        """Whether a process goes by this clock: it has the library and the clock's file mapped."""
        maps = Path(f"/proc/{pid}/maps").read_text()
        return all(f" {path}\n" in maps for path in (self._library, self._file(name)))

    def set_right(self) -> None:
        """All of them."""
        for file in self._folder.glob("*.shift"):
            self.turn(file.stem, 0)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.shift"
