"""What all tests share: how hard Hypothesis tries, how a test that hangs ends, and that Ctrl-C ends
what they start."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings
from tests.support import limits
from tests.support.effort import examples

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile(
    "squall",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=examples(50),
)
settings.load_profile("squall")

# As in tests/run_all.py, where pytest is started without it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(limits)
