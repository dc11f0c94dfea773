"""`storm proxy`: listens on loopback, for its own user alone, for clients that cannot prove who
they are, and adds the user's token or certificate to what they send to a secured cluster.

- `owner`: which user is at the other end of a connection.
- `thrift`: calls of Thrift in bare frames.
- `web`: requests over HTTP.
"""
