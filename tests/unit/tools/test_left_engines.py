"""An engine that a test leaves behind is found, and does not count for the next test."""

from __future__ import annotations

import sys

import pytest
from tests.support.left_engines import LeftEngines

from squall_engine import switch_interval
from squall_engine.switch_interval import SwitchInterval


def test_a_wish_that_has_not_ended_is_an_engine_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()
    own = SwitchInterval()
    monkeypatch.setattr(switch_interval, "SWITCH_INTERVAL", own)
    own.shorten(0.001).end()
    assert LeftEngines().end() == ""
    own.shorten(0.001)
    own.shorten(0.002)
    assert LeftEngines().end() == "2 running engines (or profiles)"
    assert LeftEngines().end() == ""
    assert sys.getswitchinterval() == before
