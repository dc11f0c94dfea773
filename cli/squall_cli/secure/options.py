"""Options that several commands about certificates have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

_R = TypeVar("_R")
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

authority_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("ca"),
    show_default=True,
    help="Folder of the CA.",
)


def certificate_options(function: Callable[..., _R]) -> Callable[..., _R]:
    """Add --certificate and --key."""
    with_key = click.option(
        "--key", type=_FILE, metavar="FILE", help="Its key (default: beside it, as .key)."
    )(function)
    return click.option(
        "--certificate",
        type=_FILE,
        metavar="FILE",
        help="Your certificate (default: storm.security.certificate).",
    )(with_key)
