"""Shell components: spouts and bolts that are programs of their own, in any language.

A component's program runs as a child of the worker and speaks Storm's multilang protocol over its
stdin and stdout. Who does what here:

    messages      what goes over the pipes, and the faults that it can have    pure
    jsonline      messages as JSON and a line `end` (Storm's default)          pure
    messagepack   messages as MessagePack (pystorm's second)                   pure
    handshake     the first message: conf, pid folder, context                 pure
    outbox        what waits to be written, and in which order                 pure
    life          when to ask, to kill, to replace a child                     pure
    process       one child process and its three pipes, on the event loop
    shell         the child of one task, replaced when it dies
    bolt, spout   the two kinds of task
    build         makes these from the topology's description

There are no threads and no blocking calls: pipes are read when they are readable, and written as
far as they accept data. When a child is slow, the bolt's tuples wait in its inbox, and the engine
stops the spouts that feed it, as with any bolt. The output of a child is always read, so the two
sides cannot wait for each other.

Rejected: a thread for each pipe (Storm's way, with two thread switches for each message), asyncio's
subprocess (its streams copy everything twice, and cannot put task ids before tuples), and sockets
(programs reopen /dev/stdin).
"""
