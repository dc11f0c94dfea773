"""Signatures of what users write, whose annotations may name what is imported for checkers only."""

from __future__ import annotations

import inspect
import pydoc
import sys
from typing import Any

import pytest

from squall import Bolt
from squall_common.topology.signatures import signature_of

# Before Python 3.14 such a name needs the import from the future.
_HEAD = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
SOURCE = f"""{_HEAD}
def main(argv: OnlyForCheckers, times: int = 1) -> OnlyForCheckers: ...

class Note(Bolt):
    def __init__(self, where: OnlyForCheckers, times: int = 1) -> None: ...
"""


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    names: dict[str, Any] = {"Bolt": Bolt, "__name__": __name__}
    # Compiled as a file of its own: not with the import from the future that this one has.
    exec(compile(SOURCE, "<user>", "exec", dont_inherit=True), names)
    return names


def test_a_function_is_bound_whatever_its_annotations_name(written: dict[str, Any]) -> None:
    signature = signature_of(written["main"])
    assert list(signature.parameters) == ["argv", "times"]
    assert signature.bind(["x"], times=2).arguments == {"argv": ["x"], "times": 2}
    assert signature.parameters["argv"].annotation == "OnlyForCheckers"


def test_a_component_shows_its_arguments_whatever_their_annotations_name(
    written: dict[str, Any],
) -> None:
    assert list(inspect.signature(written["Note"]).parameters) == ["where", "times"]
    assert "Note(where: " in pydoc.render_doc(written["Note"], renderer=pydoc.plaintext)
