"""What all tests share: how hard Hypothesis tries, and processes that a test must not leave."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
