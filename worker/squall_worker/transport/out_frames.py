"""Sections in data frames, as a link sends them: gathered when they are small, cut when large."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from squall_worker.transport.frames import (
    FRAME_BYTES_TARGET,
    LENGTH_BYTES,
    PART_BYTES,
    SECTIONS_MAX,
)


class OutFrame:
    """The sections of one data frame that the peer has not acknowledged, or one part of a section:
    the `first` (or all) of it or a later one, and whether there is `more`."""

    __slots__ = ("first", "more", "sections", "size_bytes")

    def __init__(self, *, first: bool = True, more: bool = False) -> None:
        self.sections: list[bytes] = []
        self.size_bytes = 0  # a section's length counts once, with its first part
        self.first = first
        self.more = more

    def takes(self, size_bytes: int, sections: int = 1) -> bool:
        """Whether sections of this many bytes together still fit into this frame."""
        return (
            self.size_bytes + size_bytes <= FRAME_BYTES_TARGET
            and len(self.sections) + sections <= SECTIONS_MAX
            and self.first
            and not self.more
        )


def size_of(sections: Collection[bytes]) -> int:
    """The bytes that sections take in frames."""
    return sum(map(len, sections)) + LENGTH_BYTES * len(sections)


def whole(frames: Iterable[OutFrame]) -> Iterator[bytes]:
    """The sections of frames in order, with cut ones put together."""
    parts: list[bytes] = []
    for out in frames:
        if not out.first and not parts:
            continue  # its first part was acknowledged alone, which only a faulty peer does
        if out.more or parts:
            parts += out.sections
            if not out.more:
                yield b"".join(parts)
                parts = []
        else:
            yield from out.sections


def cut(section: bytes) -> Iterator[OutFrame]:
    """Cut a section that is too large for one frame into frames of its own."""
    for start in range(0, len(section), PART_BYTES):
        part = section[start : start + PART_BYTES]
        out = OutFrame(first=start == 0, more=start + PART_BYTES < len(section))
        out.sections.append(part)
        out.size_bytes = len(part) + (LENGTH_BYTES if out.first else 0)
        yield out
