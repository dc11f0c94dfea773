"""`storm drpc-client`: what it says while it waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from squall_cli.commands import drpc_client
from squall_cli.main import run


class SlowClient:
    """Answers when the note was printed, or after a while."""

    def __init__(self, noted: threading.Event) -> None:
        self._noted = noted

    def __enter__(self) -> SlowClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, function: str, argument: str, *, timeout_secs: float | None) -> str:
        self._noted.wait(30)
        return f"{function} of {argument}"


def test_a_long_wait_names_the_function(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, noted = [], threading.Event()

    def note(message: str) -> None:
        said.append(message)
        noted.set()

    monkeypatch.setattr(drpc_client, "say", note)
    monkeypatch.setattr(drpc_client, "_NOTE_SECS", 0.01)
    client: Any = SlowClient(noted)
    monkeypatch.setattr("squall_drpc.client.DRPCClient.of", lambda _: client)
    assert run(["drpc-client", "-f", "reach", "url"]) == 0
    assert capsys.readouterr().out == "reach of url\n"
    assert said == ["waiting for a result of 'reach'; --timeout SECS gives up sooner"]
