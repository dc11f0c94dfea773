"""Storm's structs, enums, exceptions and services, as `storm.thrift` declares them.

    storm.GlobalStreamId(componentId="words", streamId="default")
    storm.TopologyStatus.ACTIVE
    raise storm.NotAliveException(msg="wordcount is not alive")
    ThriftServer(storm.Nimbus, handler, ...)

Type checkers read `storm.pyi`. After a change of `storm.thrift`, `python -m squall_thrift.stubs`
writes that file and `storm_parsed.py`.
"""

from squall_thrift import idl
from squall_thrift.storm_parsed import PARSED

INTERFACE = idl.load_parsed(PARSED, __name__)

globals().update(INTERFACE.enums)
globals().update({name: spec.cls for name, spec in INTERFACE.structs.items()})
globals().update(INTERFACE.services)
