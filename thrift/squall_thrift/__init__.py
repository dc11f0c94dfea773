"""Storm's Thrift interface in Python: the structs, their bytes, an asyncio server and client.

    storm            the structs, enums, exceptions and services of `storm.thrift`
    codec            a struct to its bytes and back
    server, client   framed transport, binary protocol, many connections on one event loop
    authorization    who may call what

Bytes are taken apart by code of our own, in two passes. The first (`scan`) walks over them without
making anything and refuses whatever claims more than is there. The second (`decode`) follows the
declared types. thriftpy2 reads the interface file; its compiled decoder is never used, because it
believes the lengths it is given: 14 bytes made it allocate 4 GB.
"""
