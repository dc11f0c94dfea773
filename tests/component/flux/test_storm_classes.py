from __future__ import annotations

import subprocess
import sys

import pytest

from squall_flux.storm_classes import FluxShellBolt


@pytest.mark.parametrize(
    "words", [[], ["a b"], ["it's", '"x"', "back\\slash", "$HOME", "", "# no"], ["\\'", "'"]]
)
def test_commands_of_any_length_arrive_word_by_word(words: list[str]) -> None:
    show = "import sys; print(sys.argv[1:])"
    shell = FluxShellBolt([sys.executable, "-c", show, *words]).component()
    done = subprocess.run([shell.command, shell.script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{words}\n"
