"""The transport between workers over ZeroMQ: `frames` is the format, `link` delivers sections in
order between two workers, `zmq` owns the sockets, `curve` the keys, and `ring` is shared memory in
place of sockets on one host. Implements `squall_engine.transport`.
"""

from squall_common.daemon import compiled_modules

compiled_modules.prefer()
