"""What `import squall` offers, and that it costs nothing until it is used."""

import subprocess
import sys

import pytest

import squall


def test_every_exported_name_is_there_and_documented():
    for name in squall.__all__:
        value = getattr(squall, name)
        assert value.__doc__, name
        assert name in dir(squall)
        assert value.__module__.startswith(("squall.", "squall_common.")), name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'squall' has no attribute 'Topolgy'"):
        squall.Topolgy  # noqa: B018


def test_writing_a_topology_loads_neither_the_engine_nor_thrift_nor_the_network():
    """The module of a component is imported in every worker and by the import check."""
    code = (
        "import sys\n"
        "from squall import Bolt, Spout, Stream, Tuple, TopologyBuilder, submit_topology\n"
        "heavy = ('squall_engine', 'squall_thrift', 'thriftpy2', 'kazoo', 'zmq', 'asyncio', "
        "'rich', 'yaml')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
