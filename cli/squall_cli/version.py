"""The version of this installation."""

from importlib import metadata


def squall_version() -> str:
    """As the installed distribution says; `unknown` when run from a bare source tree."""
    try:
        return metadata.version("squall")
    except metadata.PackageNotFoundError:
        return "unknown"
