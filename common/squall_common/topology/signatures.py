"""The signatures of functions and classes that users write."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """The signature. Annotations are text, as Python 3.14 evaluates them only when they are
        asked for: names that are imported for type checkers alone would be a NameError here."""
        return inspect.signature(function, annotation_format=Format.STRING)

else:

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """The signature, with annotations as they are stored."""
        return inspect.signature(function)
