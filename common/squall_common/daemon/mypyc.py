"""`mypyc_attr`, for the modules that are compiled (see `compiled_modules`): mypyc reads it where it
compiles them, and when they run nothing does, so that they need no package of mypyc's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    _C = TypeVar("_C", bound=type)

    def mypyc_attr(**_attributes: object) -> Callable[[_C], _C]:
        """A decorator of a class that leaves it as it is."""
        return lambda cls: cls
