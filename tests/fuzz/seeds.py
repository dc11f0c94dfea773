"""Writes what the fuzzer begins with: `python -m tests.fuzz.seeds`."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.targets import NAMES, target

CORPUS = Path(__file__).with_name("corpus")


def main() -> None:
    for name in NAMES:
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in target(name).seeds():
            (folder / seed).write_bytes(data)


if __name__ == "__main__":
    main()
