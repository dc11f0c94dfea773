"""A plain Thrift client: Apache's `thrift` package and bindings that its compiler generated (those
that petrel carries). Packs this project with petrel's own packager and submits it.

submit.py HOST PORT NAME CONF_JSON LOG_FOLDER
"""

import builtins
import importlib.resources
import os
import sys
import zipfile

from petrel.generated.storm import Nimbus
from petrel.package import build_jar
from petrel.topologybuilder import TopologyBuilder
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

CHUNK_BYTES = 307_200
builtins.xrange = range  # the bindings are of Python 2's time


class Protocol(TBinaryProtocol.TBinaryProtocol):
    """Bindings of that age write binary fields as text."""

    def writeString(self, value):
        if isinstance(value, bytes):
            self.writeBinary(value)
        else:
            super().writeString(value)


def main():
    host, port, name, conf, logs = sys.argv[1:6]
    here = os.path.dirname(os.path.abspath(__file__))
    os.chdir(here)
    jar = os.path.join(logs, name + ".jar")
    generated = importlib.resources.files("petrel.generated")
    source = next(p for p in generated.iterdir() if p.name.endswith(".jar"))
    build_jar(str(source), jar, "topology.yaml", venv=sys.prefix, logdir=logs)
    with zipfile.ZipFile(jar) as packed, packed.open("resources/topology.ser") as described:
        topology = TopologyBuilder().read(described)

    transport = TTransport.TFramedTransport(TSocket.TSocket(host, int(port)))
    client = Nimbus.Client(Protocol(transport, strictRead=True))
    transport.open()
    location = client.beginFileUpload()
    with open(jar, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            client.uploadChunk(location, chunk)
    client.finishFileUpload(location)
    client.submitTopology(name, location, conf, topology)
    assert [t.name for t in client.getClusterInfo().topologies if t.name == name]
    try:
        client.submitTopology(name, location, conf, topology)
    except Nimbus.AlreadyAliveException as error:
        print("refused:", error.msg)
    transport.close()


if __name__ == "__main__":
    main()
