"""The ring between two workers of one host: `memory` is the shared memory (compiled), `hello` the
format of the handshake, `connections` the sockets over which rings are handed over and sleepers
woken. It carries the frames of `squall_worker.transport` in place of ZeroMQ; delivery stays with
`Link`. May import the format of frames and nothing else of the transport.
"""
