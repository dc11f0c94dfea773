"""Commands against a fake Nimbus."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from tests.support.fake_nimbus import FakeNimbus, fake_nimbus
from tests.support.json_schemas import schemas

from squall_cli.main import run


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as nimbus:
        yield nimbus


@pytest.fixture
def command(nimbus: FakeNimbus, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command against the fake: (status, stdout, stderr). JSON that it prints is checked
    against its schema."""

    def call(*arguments: str) -> tuple[int, str, str]:
        options = (f"{key}={json.dumps(value)}" for key, value in nimbus.conf.items())
        status = run([*(word for option in options for word in ("-c", option)), *arguments])
        captured = capsys.readouterr()
        if status == 0 and "--json" in arguments:
            check_json(arguments, captured.out)
        return status, captured.out, captured.err

    return call


def check_json(arguments: tuple[str, ...], out: str) -> None:
    """Raise ValidationError unless the output is as docs/json.md says."""
    known = schemas()
    while arguments[0] == "-c":
        arguments = arguments[2:]
    words = 1 if f"storm {arguments[0]}" in known else 2
    schema = known[f"storm {' '.join(arguments[:words])}"]
    for document in out.splitlines() if arguments[0] == "monitor" else [out]:
        jsonschema.validate(json.loads(document), schema)
