"""Storm's Thrift interface in Python: the structs, their bytes, an asyncio server and client.

    storm            the structs, enums, exceptions and services of `storm.thrift`
    codec            a struct to its bytes and back
    client           calls a service
    serving          an asyncio server: many connections, turns among callers, who may call what
    protocol         frames, messages, and the two passes below

Our own code parses the bytes, in two passes. The first (`protocol.scan`) walks over them without
making any object, and refuses data that claims more than it holds. The second (`protocol.decode`)
follows the declared types. thriftpy2 reads the interface file; its compiled decoder is never used,
because it trusts the lengths that it is given: 14 bytes made it allocate 4 GB.
"""
