"""Lines of a log, as text and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_common.daemon import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    logs.set_place(lambda: None)
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_line_names_the_component_that_wrote_it(tmp_path: Path) -> None:
    logs.set_up_logging(tmp_path / "log")
    logs.set_place(lambda: ("split", 3))
    logging.getLogger("mine").warning("slow")
    logs.get_logger("ours").info("component_error", component="count", task=4)
    first, second = lines(tmp_path / "log")
    assert first.endswith("WARNING mine slow component=split task=3")
    assert second.endswith("INFO  ours component_error component=count task=4")


def test_a_line_of_json_has_the_keys_as_fields(tmp_path: Path) -> None:
    logs.set_up_logging(tmp_path / "log", as_json=True)
    logs.set_place(lambda: ("split", 3))
    logs.get_logger("ours").info("started", port=6700, why="a\nb \x1b[2J", error=KeyError("x"))
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("mine").exception("failed: %s", "x")
    first, second = map(json.loads, lines(tmp_path / "log"))
    assert (first["message"], first["port"], first["level"]) == ("started", 6700, "INFO")
    assert (first["component"], first["task"], first["logger"]) == ("split", 3, "ours")
    assert first["why"] == "a\nb \x1b[2J"
    assert first["error"] == "KeyError: 'x'"
    assert first["time"].endswith("Z")
    assert second["message"] == "failed: x"
    assert second["exception"].endswith("ValueError: no")
    assert "\x1b" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_are_hidden(tmp_path: Path, as_json: bool) -> None:
    logs.set_up_logging(tmp_path / "log", as_json=as_json)
    logs.get_logger("ours").info("connected", url="redis://me:hunter2@host/0", password="hunter2")
    logging.getLogger("mine").info("api_key=hunter2 user=ann")
    text = (tmp_path / "log").read_text()
    assert "hunter2" not in text
    assert "user=ann" in text
    assert "redis://me:*****@host/0" in text
