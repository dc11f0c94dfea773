"""The files by which questions about state reach a worker, and its answers come back.

The supervisor replaces the file of questions in the worker's folder as long as there are any; the
worker lays each answer into a file of its own, which the supervisor removes when it has read it.
Neither trusts what it finds: the folder is the worker's user's.

    state-questions     JSON: [[number, until when (CLOCK_MONOTONIC), question], ...]
    state-answer-7      magic "SQSA" | telemetry.live_state.encode_answer
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from squall_common.daemon.files import open_untrusted
from squall_common.telemetry.live_state import ANSWER_BYTES_MAX, QUESTION_BYTES_MAX

QUESTIONS_FILE = "state-questions"
QUESTIONS_MAX = 8
"""Of one worker at a time."""
_ANSWER_FILE = "state-answer-"
_MAGIC = b"SQSA"
_FILE_BYTES_MAX = QUESTIONS_MAX * (2 * QUESTION_BYTES_MAX + 100)
# No question waits for longer: a later time is one of another boot.
_WAIT_SECS_MAX = 60.0


class PendingQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question, with its number in this cluster."""

    number: int
    until: float  # CLOCK_MONOTONIC, which a machine shares
    question: str


_decoder = msgspec.json.Decoder(list[PendingQuestion])


def write_questions(folder: Path, questions: Sequence[PendingQuestion]) -> None:
    """Replace the questions in a worker's folder; none of them: remove the file. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    new = QUESTIONS_FILE + ".new"
    try:
        for name in (new,) if questions else (new, QUESTIONS_FILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
        if questions:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(new, flags, 0o644, dir_fd=at), "wb") as file:
                file.write(msgspec.json.encode(list(questions[:QUESTIONS_MAX])))
            os.replace(new, QUESTIONS_FILE, src_dir_fd=at, dst_dir_fd=at)
    finally:
        os.close(at)


def read_questions(folder: Path, now: float) -> list[PendingQuestion]:
    """The questions that are still waited for. What is no such file counts as none."""
    try:
        with open_untrusted(folder / QUESTIONS_FILE) as file:
            found = _decoder.decode(file.read(_FILE_BYTES_MAX))
    except (OSError, ValueError):
        return []
    return [one for one in found[:QUESTIONS_MAX] if now < one.until < now + _WAIT_SECS_MAX]


def write_state_answer(folder: Path, number: int, answer: bytes) -> None:
    """Lay an answer into a worker's folder, without waiting for the disk; those that nobody has
    taken in time go. Raises OSError."""
    _remove_late(folder)
    path = folder / f"{_ANSWER_FILE}{number}"
    new = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o644), "wb") as file:
        file.write(_MAGIC + answer)
    os.replace(new, path)


def _remove_late(folder: Path) -> None:
    with os.scandir(folder) as found:
        for one in found:
            if not one.name.startswith(_ANSWER_FILE):
                continue
            with contextlib.suppress(FileNotFoundError):  # it is being taken just now
                if one.stat(follow_symlinks=False).st_mtime < time.time() - _WAIT_SECS_MAX:
                    os.unlink(one.path)


def take_state_answer(folder: Path, number: int) -> bytes | None:
    """The answer to a question, which is removed; None if there is none yet. Raises ValueError for
    what no worker of ours writes, and OSError."""
    path = folder / f"{_ANSWER_FILE}{number}"
    try:
        with open_untrusted(path) as file:
            data = file.read(len(_MAGIC) + ANSWER_BYTES_MAX + 1)
        os.unlink(path)
    except FileNotFoundError:
        return None
    if len(data) > len(_MAGIC) + ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as a worker's answer")
    return data[len(_MAGIC) :]
