"""A rollback replaces the process by its next image, or ends it: it never goes on as it was."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, NoReturn

import pytest

from squall_engine.epochs.cluster import Image
from squall_worker import image

NEXT = Image(3, 2, 7)


class Replaced(BaseException):
    pass


class Ended(BaseException):
    pass


class Full:
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(status: int) -> NoReturn:
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(logging, "shutdown", lambda: None)


def test_the_next_image_knows_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(path: str, argv: list[str], environment: dict[str, str]) -> NoReturn:
        monkeypatch.setattr(os, "environ", environment)
        raise Replaced

    monkeypatch.setattr(os, "execve", replace)
    with pytest.raises(Replaced):
        image.begin_image(NEXT)
    assert image.current_image() == NEXT
    assert image.image_number() == 3


def test_a_process_that_cannot_be_replaced_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "execve", fail)
    with pytest.raises(Ended):
        image.begin_image(NEXT)
    assert "Cannot allocate memory" in capsys.readouterr().err


def test_a_full_disk_does_not_keep_a_process_from_being_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def replace(*_: Any) -> NoReturn:
        raise Replaced

    monkeypatch.setattr(os, "execve", replace)
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", Full())
    with pytest.raises(Replaced):
        image.begin_image(NEXT)
