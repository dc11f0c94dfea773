"""What `import squall` loads in a fresh interpreter."""

import subprocess
import sys


def test_writing_a_topology_loads_neither_the_engine_nor_thrift_nor_the_network():
    """The module of a component is imported in every worker and by the import check."""
    code = (
        "import sys\n"
        "from squall import Bolt, Spout, Stream, Tuple, TopologyBuilder, submit_topology\n"
        "heavy = ('squall_engine', 'squall_thrift', 'thriftpy2', 'kazoo', 'zmq', 'asyncio', "
        "'rich', 'yaml', 'msgspec')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
