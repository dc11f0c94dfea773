"""The bytes of calls and structs: framed transport, and the binary protocol in both directions.

`scan` walks over bytes before `decode` makes objects of them. May import `wire` and `idl`; knows no
socket and no service.
"""
