from __future__ import annotations

import pytest

from squall import Bolt, CustomGrouping, ShellBolt, ShellSpout, Spout
from squall_common.errors import InvalidTopologyError
from squall_flux.storm_classes import STORM_CLASSES, FluxShell, FluxShellBolt, FluxShellSpout


def test_every_class_is_a_component_or_a_grouping() -> None:
    kinds = (Spout, Bolt, FluxShell, CustomGrouping)
    assert all(issubclass(found, kinds) for found in STORM_CLASSES.values())
    assert all(name.endswith(f".{found.__name__}") for name, found in STORM_CLASSES.items())


def test_a_shell_component_collects_streams_and_configuration() -> None:
    shell = FluxShellBolt(["python3", "split.py"], ["word"])
    shell.setNamedStream("errors", ["line", "why"])
    shell.addComponentConfig("a", [1])
    found = shell.component()
    assert isinstance(found, ShellBolt)
    assert (found.command, found.script) == ("python3", "split.py")
    assert found.outputs == {"default": ["word"], "errors": ["line", "why"]}
    assert shell.conf == {"a": [1]}
    assert isinstance(FluxShellSpout(["a", "b"]).component(), ShellSpout)


def test_a_command_of_one_word_is_run_by_env() -> None:
    shell = FluxShellBolt(["./split"]).component()
    assert (shell.command, shell.script) == ("env", "./split")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="the command is 'python3'; expected a list"):
        FluxShellBolt("python3")
    with pytest.raises(InvalidTopologyError, match="an empty list"):
        FluxShellBolt([])
    with pytest.raises(InvalidTopologyError, match="fields of stream 'default' are 'word'"):
        FluxShellBolt(["a", "b"], "word")
