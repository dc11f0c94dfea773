"""What all tests share: how hard Hypothesis tries, and that Ctrl-C ends what they start."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# As in tests/run_all.py, where pytest is started without it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
