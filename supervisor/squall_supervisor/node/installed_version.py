"""The version of Squall that is installed here."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache  # it reads files, and a supervisor announces it at every change of a slot
def installed_version() -> str:
    """The version in the package metadata; unknown for a checkout that is not installed."""
    try:
        return version("squall")
    except PackageNotFoundError:
        return "0.1.0"
