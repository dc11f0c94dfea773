"""matplotlib asks another program for the machine's fonts the first time that it is used there,
which no unit test may (tests/support/plain_tests.py): it asks now, before any test runs."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import matplotlib.font_manager  # noqa: F401
