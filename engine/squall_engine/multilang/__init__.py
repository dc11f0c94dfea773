"""Shell components: spouts and bolts that are programs of their own, in any language.

A component's program runs as a child of the worker and speaks Storm's multilang protocol over its
stdin and stdout. Who does what here:

    messages      what goes over the pipes, and what can be wrong with it      pure
    jsonline      messages as JSON and a line `end` (Storm's default)          pure
    messagepack   messages as MessagePack (pystorm's second)                   pure
    handshake     the first message: conf, pid folder, context                 pure
    outbox        what waits to be written, and in which order                 pure
    life          when to ask, to kill, to replace a child                     pure
    process       one child process and its three pipes, on the event loop
    shell         the child of one task, replaced when it dies
    bolt, spout   the two kinds of task
    building      from the topology's description to these

No thread and no blocking call: pipes are read when they are readable and written as far as they
take it. A bolt's tuples wait in the bolt's inbox when its child is slow, and the engine stops the
spouts that feed it, as with any bolt; what a child says is always read, so that neither side can
wait for the other.

Turned down: a thread a pipe (Storm's way: two switches between threads a message), asyncio's
subprocess (its streams copy everything twice and have no way to put task ids ahead of tuples), and
speaking through sockets (programs reopen /dev/stdin).
"""
